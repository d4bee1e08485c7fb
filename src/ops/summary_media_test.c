#include <png.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ops/testing.h"
#include "proto/wire.h"

static td_str field(td_str message, uint32_t number) {
  td_wire_field f;
  bool bad = false;
  for (td_wire in = td_wire_of(message); td_wire_next(&in, &f, &bad);)
    if (f.number == number && f.type == TD_WIRE_BYTES) return f.bytes;
  return (td_str){0};
}

static uint64_t number(td_str message, uint32_t number) {
  td_wire_field f;
  bool bad = false;
  for (td_wire in = td_wire_of(message); td_wire_next(&in, &f, &bad);)
    if (f.number == number) return f.value;
  return 0;
}

static void expect_text(td_str got, const char *want) {
  assert_int_equal(got.size, strlen(want));
  assert_memory_equal(got.data, want, got.size);
}

/* The summary's first value. Runs `run`, whose output stays. */
static td_str first_value(td_op_run *run) {
  td_assert_runs(run);
  return field(td_string_view(TD_DATA(run->out[0], td_string)), 1);
}

static void release(td_op_run *run, td_tensor **in, int n) {
  td_tensor_release(run->out[0]);
  for (int i = 0; i < n; i++) td_tensor_release(in[i]);
}

/* An image's pixels as bytes. */
static void expect_pixels(const char *type_attr, td_tensor *image, int colors, const uint8_t *want, size_t size) {
  td_tensor *in[] = {td_test_tensor(TD_STRING, "[]", "t"), image};
  td_op_run run = {.op = "ImageSummary", .attrs = type_attr, .in = in, .in_count = 2};
  td_str value = first_value(&run), picture = field(value, 4), file = field(picture, 4);
  expect_text(field(value, 1), "t/image");
  assert_int_equal(number(picture, 1), image->dims[1]);
  assert_int_equal(number(picture, 2), image->dims[2]);
  assert_int_equal(number(picture, 3), colors);
  png_image png = {.version = PNG_IMAGE_VERSION};
  uint8_t got[64];
  assert_true(png_image_begin_read_from_memory(&png, file.data, file.size));
  png.format = colors == 1 ? PNG_FORMAT_GRAY : colors == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  assert_true(PNG_IMAGE_SIZE(png) == size && size <= sizeof got);
  assert_true(png_image_finish_read(&png, NULL, got, 0, NULL));
  assert_memory_equal(got, want, size);
  release(&run, in, 2);
}

static void images(void **state) {
  expect_pixels("T: uint8; max_images: 1", td_test_tensor(TD_UINT8, "[1,1,2,3]", "0 1 2 253 254 255"), 3,
                (uint8_t[]){0, 1, 2, 253, 254, 255}, 6);
  expect_pixels("T: uint8; max_images: 1", td_test_tensor(TD_UINT8, "[1,2,1,1]", "7 9"), 1, (uint8_t[]){7, 9}, 2);
  /* none is negative: the largest becomes 255; else 128 is in the middle; what is no number is red */
  expect_pixels("T: float; max_images: 1", td_test_tensor(TD_FLOAT, "[1,1,3,1]", "0 1 2"), 1, (uint8_t[]){0, 127, 255},
                3);
  expect_pixels("T: float; max_images: 1", td_test_tensor(TD_FLOAT, "[1,1,3,1]", "-2 0 2"), 1, (uint8_t[]){1, 128, 255},
                3);
  expect_pixels("T: float; max_images: 1", td_test_tensor(TD_FLOAT, "[1,1,2,3]", "nan 1 1 2 2 2"), 3,
                (uint8_t[]){255, 0, 0, 255, 255, 255}, 6);
}

static void several_images(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_STRING, "[]", "t"), td_test_tensor(TD_UINT8, "[3,1,1,1]", "1 2 3")};
  td_op_run run = {.op = "ImageSummary", .attrs = "T: uint8; max_images: 2", .in = in, .in_count = 2};
  expect_text(field(first_value(&run), 1), "t/image/0");
  td_wire_field f;
  bool bad = false;
  int count = 0;
  for (td_wire w = td_wire_of(td_string_view(TD_DATA(run.out[0], td_string))); td_wire_next(&w, &f, &bad);) count++;
  assert_int_equal(count, 2);
  release(&run, in, 2);
}

static void no_images(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_STRING, "[]", "t"), td_test_tensor(TD_UINT8, "[1,1,1,2]", "1 2")};
  td_op_run run = {.op = "ImageSummary", .attrs = "T: uint8", .in = in, .in_count = 2};
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "Tensor must be 4-D with last dim 1, 3, or 4");
  td_tensor_release(in[1]);
  in[1] = td_test_tensor(TD_UINT8, "[1,0,1,1]", "");
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "cannot be encoded as PNG");
  for (int i = 0; i < 2; i++) td_tensor_release(in[i]);
}

static int sample(td_str wav, int i) {
  const uint8_t *at = (const uint8_t *)wav.data + 44 + i * 2;
  return (int16_t)(at[0] | at[1] << 8);
}

static void sound(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_STRING, "[]", "t"), td_test_tensor(TD_FLOAT, "[1,3,2]", "0 1 -1 0.5 9 -9"),
                     td_test_tensor(TD_FLOAT, "[]", "44100")};
  td_op_run run = {.op = "AudioSummaryV2", .attrs = "max_outputs: 1", .in = in, .in_count = 3};
  td_str value = first_value(&run), audio = field(value, 6), wav = field(audio, 4);
  expect_text(field(value, 1), "t/audio");
  expect_text(field(audio, 5), "audio/wav");
  assert_int_equal(number(audio, 2), 2);
  assert_int_equal(number(audio, 3), 3);
  assert_int_equal(wav.size, 44 + 3 * 2 * 2);
  assert_memory_equal(wav.data, "RIFF", 4);
  assert_memory_equal(wav.data + 8, "WAVEfmt ", 8);
  assert_int_equal(sample(wav, 0), 0);
  assert_int_equal(sample(wav, 1), INT16_MAX);
  assert_int_equal(sample(wav, 4), INT16_MAX); /* louder than possible */
  assert_true(sample(wav, 2) <= -INT16_MAX && sample(wav, 5) <= -INT16_MAX);
  release(&run, in, 3);
}

static void no_sound(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_STRING, "[]", "t"), td_test_tensor(TD_FLOAT, "[1,3,2]", "0 1 -1 0.5 9 -9"),
                     td_test_tensor(TD_FLOAT, "[]", "0")};
  td_op_run run = {.op = "AudioSummaryV2", .in = in, .in_count = 3};
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "sample_rate must be > 0");
  td_tensor_release(in[2]);
  in[2] = td_test_tensor(TD_FLOAT, "[]", "8000");
  td_tensor_release(in[1]);
  in[1] = td_test_tensor(TD_FLOAT, "[3]", "0 1 2");
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "Tensor must be 3-D or 2-D");
  td_tensor_release(in[1]);
  in[1] = td_test_tensor(TD_FLOAT, "[1,0]", "");
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "num_frames must be positive.");
  for (int i = 0; i < 3; i++) td_tensor_release(in[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(images), cmocka_unit_test(several_images),
                                     cmocka_unit_test(no_images), cmocka_unit_test(sound), cmocka_unit_test(no_sound)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
