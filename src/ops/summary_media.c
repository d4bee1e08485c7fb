/* Images and sound in summaries (TensorFlow's summary_image_op, summary_audio_op, wav_io). */
#include <endian.h>
#include <limits.h>
#include <math.h>
#include <png.h>
#include <string.h>

#include "base/mem.h"
#include "ops/move.h"
#include "ops/summary_value.h"
#include "proto/wire.h"
#include "tensor/number.h"

enum { IMAGE_HEIGHT = 1, IMAGE_WIDTH, IMAGE_COLORS, IMAGE_FILE };
enum { AUDIO_RATE = 1, AUDIO_CHANNELS, AUDIO_FRAMES, AUDIO_FILE, AUDIO_TYPE };

/* "<tag>/<kind>/<i>", without the number where there can be but one. */
static char *tag_of(td_str tag, const char *kind, int64_t i, int64_t most) {
  td_strbuf b = {0};
  td_strbuf_append(&b, tag);
  td_strbuf_printf(&b, "/%s", kind);
  if (most > 1) td_strbuf_printf(&b, "/%lld", (long long)i);
  return td_strbuf_take(&b);
}

/* ---- images ---- */

static bool is_finite(const td_tensor *t, int64_t at, int64_t depth) {
  for (int64_t k = 0; k < depth; k++)
    if (!isfinite(td_tensor_real_at(t, at + k))) return false;
  return true;
}

/* Pixels [at, at + n * depth) of `t` into bytes: 0..255 if none is negative, else 128 in the middle. */
static void scale_image(const td_tensor *t, int64_t at, int64_t n, int64_t depth, const uint8_t *bad_color,
                        uint8_t *to) {
  const float tiny = 1e-6f;
  float least = INFINITY, most = -INFINITY, scale, offset = 0;
  for (int64_t i = 0; i < n; i++) {
    if (!is_finite(t, at + i * depth, depth)) continue;
    for (int64_t k = 0; k < depth; k++) {
      float v = (float)td_tensor_real_at(t, at + i * depth + k);
      least = fminf(least, v);
      most = fmaxf(most, v);
    }
  }
  if (least < 0) {
    float far = fmaxf(fabsf(least), fabsf(most));
    scale = far < tiny ? 0 : 127.0f / far;
    offset = 128;
  } else {
    scale = most < tiny ? 0 : 255.0f / most;
  }
  for (int64_t i = 0; i < n; i++) {
    bool finite = is_finite(t, at + i * depth, depth);
    for (int64_t k = 0; k < depth; k++) {
      /* a double beyond float's range may be too much */
      float v = finite ? (float)td_tensor_real_at(t, at + i * depth + k) * scale + offset : 0;
      to[i * depth + k] = finite ? (uint8_t)fmaxf(0, fminf(v, 255)) : bad_color[k];
    }
  }
}

static td_status encode_png(const uint8_t *pixels, int64_t width, int64_t height, int64_t depth, td_strbuf *out) {
  static const uint32_t formats[] = {[1] = PNG_FORMAT_GRAY, [3] = PNG_FORMAT_RGB, [4] = PNG_FORMAT_RGBA};
  png_image image = {
      .version = PNG_IMAGE_VERSION, .width = (uint32_t)width, .height = (uint32_t)height, .format = formats[depth]};
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  td_status s = TD_STATUS_OK;
  if (!td_strbuf_try_reserve(out, size)) return td_resource_exhausted("No memory for a PNG file of %zu bytes", size);
  if (!png_image_write_to_memory(&image, out->data + out->size, &size, 0, pixels, 0, NULL))
    s = td_internal("PNG encoding failed: %s", image.message);
  else
    out->size += size;
  png_image_free(&image);
  return s;
}

static td_status put_image(td_strbuf *summary, const char *tag, const td_tensor *t, int64_t index,
                           const td_tensor *bad_color, uint8_t *scaled) {
  int64_t height = t->dims[1], width = t->dims[2], depth = t->dims[3], size = height * width * depth;
  const uint8_t *pixels = scaled;
  td_strbuf message = {0}, png = {0};
  if (t->dtype == TD_UINT8)
    pixels = TD_DATA(t, uint8_t) + index * size;
  else
    scale_image(t, index * size, height * width, depth, bad_color->data, scaled);
  td_status s = encode_png(pixels, width, height, depth, &png);
  if (!s) {
    td_wire_put_uint(&message, IMAGE_HEIGHT, (uint64_t)height);
    td_wire_put_uint(&message, IMAGE_WIDTH, (uint64_t)width);
    td_wire_put_uint(&message, IMAGE_COLORS, (uint64_t)depth);
    td_wire_put_bytes(&message, IMAGE_FILE, td_strbuf_view(&png));
    td_summary_put_value(summary, td_str_of(tag), TD_VALUE_IMAGE, td_strbuf_view(&message));
  }
  td_strbuf_deinit(&message);
  td_strbuf_deinit(&png);
  return s;
}

td_status td_summary_put_images(td_strbuf *summary, td_str tag, const td_tensor *t, int64_t most,
                                const td_tensor *bad_color) {
  int64_t depth = t->rank == 4 ? t->dims[3] : 0;
  if (depth != 1 && depth != 3 && depth != 4)
    return td_invalid_argument("Tensor must be 4-D with last dim 1, 3, or 4, not %s", TD_SHOW(t));
  if (bad_color->count < depth)
    return td_invalid_argument("expected depth <= bad_color.size, got depth = %lld, bad_color.size = %lld",
                               (long long)depth, (long long)bad_color->count);
  if (t->dims[0] && (t->dims[1] < 1 || t->dims[2] < 1 || t->dims[1] >= 1 << 20 || t->dims[2] >= 1 << 20))
    return td_invalid_argument("An image of %lld by %lld cannot be encoded as PNG", (long long)t->dims[1],
                               (long long)t->dims[2]);
  uint8_t *scaled = NULL;
  td_status status = TD_STATUS_OK;
  if (t->dtype != TD_UINT8 && t->count) scaled = td_try_malloc((size_t)(t->count / t->dims[0]));
  if (t->dtype != TD_UINT8 && t->count && !scaled)
    return td_resource_exhausted("No memory for an image of %lld bytes", (long long)(t->count / t->dims[0]));
  for (int64_t i = 0; i < TD_MIN(most, t->dims[0]) && !status; i++) {
    char *name = tag_of(tag, "image", i, most);
    status = put_image(summary, name, t, i, bad_color, scaled);
    td_free(name);
  }
  td_free(scaled);
  return status;
}

/* ---- sound ---- */

static char *put16(char *p, uint16_t v) {
  v = htole16(v);
  memcpy(p, &v, 2);
  return p + 2;
}

static char *put32(char *p, uint32_t v) {
  v = htole32(v);
  memcpy(p, &v, 4);
  return p + 4;
}

static char *put_text(char *p, const char *four) {
  memcpy(p, four, 4);
  return p + 4;
}

/* RIFF WAVE, PCM of 16 bits. */
static td_status encode_wav(const float *samples, int64_t frames, int64_t channels, uint64_t rate, td_strbuf *out) {
  enum { HEADER = 44, BYTES = 2, PCM = 1, FORMAT_SIZE = 16 };
  if (!rate || rate > UINT32_MAX)
    return td_invalid_argument("sample_rate must be in (0, 2^32), got: %llu", (unsigned long long)rate);
  if (channels < 1 || channels > UINT16_MAX)
    return td_invalid_argument("num_channels must be in (0, 2^16), got: %lld", (long long)channels);
  if (frames < 1) return td_invalid_argument("num_frames must be positive.");
  if (frames > (UINT32_MAX - HEADER) / BYTES / channels)
    return td_invalid_argument("Provided channels and frames cannot be encoded as a WAV.");
  uint32_t data = (uint32_t)(frames * channels * BYTES);
  if (!td_strbuf_try_reserve(out, HEADER + (size_t)data))
    return td_resource_exhausted("No memory for a WAV file of %u bytes", data);
  char *p = out->data + out->size;
  p = put_text(put32(put_text(p, "RIFF"), data + HEADER - 8), "WAVE");
  p = put16(put16(put32(put_text(p, "fmt "), FORMAT_SIZE), PCM), (uint16_t)channels);
  p = put32(put32(p, (uint32_t)rate), (uint32_t)(rate * BYTES * (uint64_t)channels));
  p = put16(put16(p, (uint16_t)(BYTES * channels)), 8 * BYTES);
  p = put32(put_text(p, "data"), data);
  for (int64_t i = 0; i < frames * channels; i++) {
    float v = roundf(samples[i] * 32768.0f);
    v = isnan(v) ? 0 : fminf(fmaxf(v, INT16_MIN), INT16_MAX);
    p = put16(p, (uint16_t)(int16_t)v);
  }
  out->size += HEADER + (size_t)data;
  return TD_STATUS_OK;
}

static td_status put_clip(td_strbuf *summary, const char *tag, const td_tensor *t, int64_t index, float sample_rate) {
  int64_t frames = t->dims[1], channels = t->rank == 2 ? 1 : t->dims[2];
  uint64_t rate = sample_rate < 4294967296.0f ? (uint64_t)lrintf(sample_rate) : UINT64_MAX;
  uint32_t bits;
  td_strbuf message = {0}, wav = {0};
  memcpy(&bits, &sample_rate, 4);
  td_status s = encode_wav(TD_DATA(t, float) + index * frames * channels, frames, channels, TD_MAX(rate, 1), &wav);
  if (!s) {
    td_wire_put_fixed32(&message, AUDIO_RATE, bits);
    td_wire_put_uint(&message, AUDIO_CHANNELS, (uint64_t)channels);
    td_wire_put_uint(&message, AUDIO_FRAMES, (uint64_t)frames);
    td_wire_put_bytes(&message, AUDIO_FILE, td_strbuf_view(&wav));
    td_wire_put_bytes(&message, AUDIO_TYPE, TD_STR("audio/wav"));
    td_summary_put_value(summary, td_str_of(tag), TD_VALUE_AUDIO, td_strbuf_view(&message));
  }
  td_strbuf_deinit(&message);
  td_strbuf_deinit(&wav);
  return s;
}

td_status td_summary_put_audio(td_strbuf *summary, td_str tag, const td_tensor *t, int64_t most, float sample_rate) {
  td_status status = TD_STATUS_OK;
  if (t->rank < 2 || t->rank > 3) return td_invalid_argument("Tensor must be 3-D or 2-D, got: %s", TD_SHOW(t));
  if (!(sample_rate > 0)) return td_invalid_argument("sample_rate must be > 0");
  for (int64_t i = 0; i < TD_MIN(most, t->dims[0]) && !status; i++) {
    char *name = tag_of(tag, "audio", i, most);
    status = put_clip(summary, name, t, i, sample_rate);
    td_free(name);
  }
  return status;
}
