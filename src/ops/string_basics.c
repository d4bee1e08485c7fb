/* Strings one by one: StringToNumber, StringLength, StringLower, StringUpper, StringStrip, Substr, EncodeBase64,
 * DecodeBase64, DecodeRaw, StringToHashBucketStrong. */
#include <ctype.h>
#include <locale.h>
#include <string.h>
#include <wctype.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/text_number.h"

static td_str text_at(const td_tensor *t, int64_t i) { return td_string_view(TD_DATA(t, td_string) + i); }
static bool is_trail(char c) { return ((unsigned char)c & 0xc0) == 0x80; } /* a UTF-8 character goes on */

/* ---- StringToNumber ---- */

static td_status number_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  td_tensor *out;
  TD_TRY(td_out_alloc_like(ctx, 0, t, &out));
  size_t size = td_dtype_size((td_dtype)out->dtype);
  for (int64_t i = 0; i < t->count; i++) {
    td_str s = text_at(t, i);
    if (td_text_number(s, (td_dtype)out->dtype, (char *)out->data + (size_t)i * size)) continue;
    return td_invalid_argument("StringToNumberOp could not correctly convert string: %.*s", (int)TD_MIN(s.size, 4096),
                               s.data);
  }
  return TD_STATUS_OK;
}

/* ---- units ---- */

typedef struct unit {
  bool characters; /* of UTF-8, else bytes */
} unit;

static td_status unit_create(td_kernel_builder *b, void *state) {
  td_str text;
  TD_TRY(td_attr_str(b->node, "unit", &text));
  ((unit *)state)->characters = td_str_is(text, "UTF8_CHAR");
  return TD_STATUS_OK;
}

static int64_t characters_of(td_str s) {
  int64_t n = 0;
  for (size_t i = 0; i < s.size; i++) n += !is_trail(s.data[i]);
  return n;
}

static td_status length_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  bool characters = ((const unit *)ctx->state)->characters;
  td_tensor *out;
  TD_TRY(td_out_alloc_like(ctx, 0, t, &out));
  for (int64_t i = 0; i < t->count; i++) {
    td_str s = text_at(t, i);
    TD_DATA(out, int32_t)[i] = (int32_t)(characters ? (uint64_t)characters_of(s) : s.size);
  }
  return TD_STATUS_OK;
}

/* ---- Substr ---- */

/* The byte where character `n` of `s` begins; its size when there are not as many. */
static size_t character_start(td_str s, int64_t n) {
  size_t at = 0;
  for (; n > 0 && at < s.size; n--) {
    do at++;
    while (at < s.size && is_trail(s.data[at]));
  }
  return at;
}

/* False when `pos` is outside of the string. */
static bool sub_string(td_str s, bool characters, int64_t pos, int64_t length, td_str *out) {
  int64_t size = characters ? characters_of(s) : (int64_t)s.size;
  if (pos < 0) pos += size;
  if (pos < 0 || pos > size) return false;
  if (length < 0) length = characters ? 0 : size;
  length = TD_MIN(length, size - pos);
  size_t begin = characters ? character_start(s, pos) : (size_t)pos;
  s = (td_str){s.data + begin, s.size - begin};
  *out = (td_str){s.data, characters ? character_start(s, length) : (size_t)length};
  return true;
}

/* Where element `i` of a result of shape `dims` comes from in `t`, whose shape goes into it. */
static int64_t source_of(const td_tensor *t, int rank, const int64_t *dims, int64_t i) {
  int64_t at = 0, stride = 1;
  for (int k = rank - 1, j = t->rank - 1; j >= 0; k--, j--) {
    int64_t index = i % dims[k];
    i /= dims[k];
    if (t->dims[j] != 1) at += index * stride;
    stride *= t->dims[j];
  }
  return at;
}

static td_status substr_shape(const td_tensor *in, const td_tensor *pos, td_shape *out) {
  out->rank = TD_MAX(in->rank, pos->rank);
  for (int k = 0; k < out->rank; k++) {
    int i = k - (out->rank - in->rank), j = k - (out->rank - pos->rank);
    int64_t a = i < 0 ? 1 : in->dims[i], b = j < 0 ? 1 : pos->dims[j];
    if (a != b && a != 1 && b != 1)
      return td_invalid_argument("Incompatible shapes: %s vs. %s", TD_SHOW(in), TD_SHOW(pos));
    out->dims[k] = a == 1 ? b : a;
  }
  return TD_STATUS_OK;
}

static td_status substr_compute(td_kernel_ctx *ctx) {
  const td_tensor *in = td_in(ctx, 0), *pos = td_in(ctx, 1), *length = td_in(ctx, 2);
  bool characters = ((const unit *)ctx->state)->characters;
  td_shape shape;
  td_tensor *out;
  if (!td_tensor_same_shape(pos, length))
    return td_invalid_argument("pos and len should have the same shape, got: %s vs. %s", TD_SHOW(pos), TD_SHOW(length));
  TD_TRY(substr_shape(in, pos, &shape));
  TD_TRY(td_out_alloc(ctx, 0, &shape, &out));
  for (int64_t i = 0; i < out->count; i++) {
    td_str s = text_at(in, source_of(in, out->rank, out->dims, i)), part;
    int64_t at = source_of(pos, out->rank, out->dims, i), from = td_tensor_int_at(pos, at);
    if (!sub_string(s, characters, from, td_tensor_int_at(length, at), &part)) {
      if (characters)
        return td_invalid_argument("pos %lld out of range for string at index %lld", (long long)from, (long long)i);
      return td_invalid_argument("pos %lld out of range for string b'%.*s' at index %lld", (long long)from,
                                 (int)TD_MIN(s.size, 1024), s.data, (long long)i);
    }
    TD_TRY(td_string_set(TD_DATA(out, td_string) + i, part));
  }
  return TD_STATUS_OK;
}

/* ---- StringLower, StringUpper ---- */

typedef struct letters {
  locale_t unicode; /* 0: bytes of ASCII only */
  bool upper;
} letters;

static td_status letters_create(td_kernel_builder *b, void *state) {
  letters *st = state;
  td_str encoding;
  TD_TRY(td_attr_str(b->node, "encoding", &encoding));
  st->upper = td_str_is(b->node->op, "StringUpper");
  if (!encoding.size) return TD_STATUS_OK;
  if (!td_str_is(encoding, "utf-8")) {
    return td_invalid_argument("only utf-8 or '' (no encoding) is supported, received %.*s", TD_STR_ARG(encoding));
  }
  st->unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
  return st->unicode ? TD_STATUS_OK : td_unimplemented("The system has no tables of letters beyond ASCII (C.UTF-8)");
}
static void letters_destroy(void *state) {
  letters *st = state;
  if (st->unicode) freelocale(st->unicode);
}

/* One character off the front; U+FFFD for a byte that begins none. */
static uint32_t next_character(td_str *s) {
  unsigned char c = (unsigned char)s->data[0];
  size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : (c & 0xf0) == 0xe0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
  uint32_t u = n == 1 ? c : n ? c & (0x7fu >> n) : 0xfffd;
  bool good = n && n <= s->size;
  for (size_t i = 1; good && i < n; i++) {
    good = is_trail(s->data[i]);
    u = u << 6 | ((unsigned char)s->data[i] & 0x3f);
  }
  good = good && !(n == 3 && (u < 0x800 || (u >= 0xd800 && u < 0xe000))) && !(n == 4 && (u < 0x10000 || u > 0x10ffff));
  if (!good) n = 1;
  *s = (td_str){s->data + n, s->size - n};
  return good ? u : 0xfffd;
}

static void put_character(td_strbuf *b, uint32_t u) {
  if (u < 0x80) {
    td_strbuf_putc(b, (char)u);
    return;
  }
  int more = u < 0x800 ? 1 : u < 0x10000 ? 2 : 3;
  td_strbuf_putc(b, (char)((more == 1 ? 0xc0 : more == 2 ? 0xe0 : 0xf0) | u >> 6 * more));
  while (more--) td_strbuf_putc(b, (char)(0x80 | (u >> 6 * more & 0x3f)));
}

static void change_letters(const letters *st, td_str s, td_strbuf *b) {
  while (s.size) {
    if (st->unicode) {
      uint32_t u = next_character(&s);
      put_character(b, (uint32_t)(st->upper ? towupper_l(u, st->unicode) : towlower_l(u, st->unicode)));
      continue;
    }
    char c = s.data[0], first = st->upper ? 'a' : 'A';
    td_strbuf_putc(b, c >= first && c < first + 26 ? (char)(c ^ 0x20) : c);
    s = (td_str){s.data + 1, s.size - 1};
  }
}

static td_status letters_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  td_tensor *out;
  td_status status = TD_STATUS_OK;
  TD_TRY(td_out_alloc_like(ctx, 0, t, &out));
  td_strbuf b = {0};
  for (int64_t i = 0; i < t->count && !status; i++) {
    b.size = 0;
    change_letters(ctx->state, text_at(t, i), &b);
    status = td_string_set(TD_DATA(out, td_string) + i, td_strbuf_view(&b));
  }
  td_strbuf_deinit(&b);
  return status;
}

/* ---- StringStrip ---- */

static td_status strip_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  td_tensor *out;
  TD_TRY(td_out_alloc_like(ctx, 0, t, &out));
  for (int64_t i = 0; i < t->count; i++) {
    td_str s = text_at(t, i);
    while (s.size && isspace((unsigned char)s.data[0])) s = (td_str){s.data + 1, s.size - 1};
    while (s.size && isspace((unsigned char)s.data[s.size - 1])) s.size--;
    TD_TRY(td_string_set(TD_DATA(out, td_string) + i, s));
  }
  return TD_STATUS_OK;
}

/* ---- Base64, the alphabet for addresses ---- */

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

typedef struct base64 {
  bool pad;
} base64;

static td_status base64_create(td_kernel_builder *b, void *state) {
  return td_attr_bool(b->node, "pad", &((base64 *)state)->pad);
}

static void encode(td_str s, bool pad, td_strbuf *b) {
  for (size_t i = 0; i < s.size; i += 3) {
    size_t n = TD_MIN(s.size - i, (size_t)3);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; k++) bits = bits << 8 | (k < n ? (unsigned char)s.data[i + k] : 0);
    for (size_t k = 0; k <= n; k++) td_strbuf_putc(b, alphabet[bits >> (18 - 6 * k) & 0x3f]);
    for (size_t k = n; pad && k < 3; k++) td_strbuf_putc(b, '=');
  }
}

static td_status decode(td_str s, td_strbuf *b) {
  uint32_t bits = 0;
  int held = 0;
  if (s.size && s.size % 4 == 0 && s.data[s.size - 1] == '=') s.size -= s.data[s.size - 2] == '=' ? 2 : 1;
  if (s.size % 4 == 1) return td_invalid_argument("Base64 string length cannot be 1 modulo 4.");
  for (size_t i = 0; i < s.size; i++) {
    const char *at = s.data[i] ? strchr(alphabet, s.data[i]) : NULL;
    if (!at) return td_invalid_argument("Invalid character found in base64.");
    bits = bits << 6 | (uint32_t)(at - alphabet);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    td_strbuf_putc(b, (char)(bits >> held));
  }
  return TD_STATUS_OK;
}

static td_status base64_compute(td_kernel_ctx *ctx, bool encodes) {
  const td_tensor *t = td_in(ctx, 0);
  td_tensor *out;
  td_status status = TD_STATUS_OK;
  TD_TRY(td_out_alloc_like(ctx, 0, t, &out));
  td_strbuf b = {0};
  for (int64_t i = 0; i < t->count && !status; i++) {
    b.size = 0;
    if (encodes)
      encode(text_at(t, i), ((const base64 *)ctx->state)->pad, &b);
    else
      status = decode(text_at(t, i), &b);
    if (!status) status = td_string_set(TD_DATA(out, td_string) + i, td_strbuf_view(&b));
  }
  td_strbuf_deinit(&b);
  return status;
}
static td_status encode_compute(td_kernel_ctx *ctx) { return base64_compute(ctx, true); }
static td_status decode_compute(td_kernel_ctx *ctx) { return base64_compute(ctx, false); }

/* ---- DecodeRaw ---- */

typedef struct raw {
  bool swaps; /* the bytes of each number */
} raw;

static td_status raw_create(td_kernel_builder *b, void *state) {
  bool little;
  TD_TRY(td_attr_bool(b->node, "little_endian", &little));
  ((raw *)state)->swaps = !little;
  return TD_STATUS_OK;
}

static void copy_swapped(char *to, const char *from, size_t bytes, size_t width) {
  for (size_t i = 0; i < bytes; i += width)
    for (size_t k = 0; k < width; k++) to[i + k] = from[i + width - 1 - k];
}

static td_status raw_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  td_dtype type = td_out_type(ctx, 0);
  size_t width = td_dtype_size(type), size = t->count ? text_at(t, 0).size : 0;
  td_shape shape;
  td_tensor *out;
  for (int64_t i = 1; i < t->count; i++) {
    if (text_at(t, i).size == size) continue;
    return td_invalid_argument(
        "DecodeRaw requires input strings to all be the same size, but element %lld has size %zu != %zu", (long long)i,
        size, text_at(t, i).size);
  }
  if (size % width) {
    return td_invalid_argument("Input to DecodeRaw has length %zu that is not a multiple of %zu, the size of %s", size,
                               width, td_dtype_name(type));
  }
  td_tensor_shape(t, &shape);
  TD_TRY(td_shape_append(&shape, (int64_t)(size / width)));
  TD_TRY(td_out_alloc(ctx, 0, &shape, &out));
  for (int64_t i = 0; size && i < t->count; i++) {
    char *to = (char *)out->data + (size_t)i * size;
    if (((const raw *)ctx->state)->swaps && width > 1)
      copy_swapped(to, text_at(t, i).data, size, width);
    else
      memcpy(to, text_at(t, i).data, size);
  }
  for (int64_t i = 0; type == TD_BOOL && i < out->count; i++) TD_DATA(out, uint8_t)[i] = TD_DATA(out, uint8_t)[i] != 0;
  return TD_STATUS_OK;
}

/* ---- StringToHashBucketStrong: SipHash-2-4 ---- */

typedef struct strong {
  uint64_t buckets, key[2];
} strong;

static td_status strong_create(td_kernel_builder *b, void *state) {
  strong *st = state;
  int64_t n;
  const Pb__AttrValue__ListValue *key;
  TD_TRY(td_attr_int(b->node, "num_buckets", &n));
  TD_TRY(td_attr_list(b->node, "key", &key));
  if (n < 1) return td_invalid_argument("num_buckets must be at least 1, got %lld", (long long)n);
  if (key->n_i != 2) return td_invalid_argument("Key must have 2 elements");
  st->buckets = (uint64_t)n;
  st->key[0] = (uint64_t)key->i[0];
  st->key[1] = (uint64_t)key->i[1];
  return TD_STATUS_OK;
}

static uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

static void sip_round(uint64_t v[4]) {
  v[0] += v[1];
  v[1] = rotate(v[1], 13) ^ v[0];
  v[0] = rotate(v[0], 32);
  v[2] += v[3];
  v[3] = rotate(v[3], 16) ^ v[2];
  v[0] += v[3];
  v[3] = rotate(v[3], 21) ^ v[0];
  v[2] += v[1];
  v[1] = rotate(v[1], 17) ^ v[2];
  v[2] = rotate(v[2], 32);
}

static uint64_t sip_hash(const uint64_t key[2], td_str s) {
  uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du, key[0] ^ 0x6c7967656e657261u,
                   key[1] ^ 0x7465646279746573u};
  for (size_t at = 0;; at += 8) {
    size_t n = TD_MIN(s.size - at, (size_t)8);
    uint64_t word = 0;
    for (size_t k = 0; k < n; k++) word |= (uint64_t)(unsigned char)s.data[at + k] << 8 * k;
    if (n < 8) word |= (uint64_t)s.size << 56;
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
    if (n < 8) break;
  }
  v[2] ^= 0xff;
  for (int i = 0; i < 4; i++) sip_round(v);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static td_status strong_compute(td_kernel_ctx *ctx) {
  const strong *st = ctx->state;
  const td_tensor *t = td_in(ctx, 0);
  td_tensor *out;
  TD_TRY(td_out_alloc_like(ctx, 0, t, &out));
  for (int64_t i = 0; i < t->count; i++)
    TD_DATA(out, int64_t)[i] = (int64_t)(sip_hash(st->key, text_at(t, i)) % st->buckets);
  return TD_STATUS_OK;
}

/* ---- tables ---- */

#define UNIT "unit: string in {'BYTE', 'UTF8_CHAR'} = 'BYTE'"

static const td_op_spec ops[] = {
    {"DecodeBase64", "input: string", "output: string", NULL, 0},
    {"DecodeRaw", "bytes: string", "output: out_type",
     "out_type: type in {half, float, double, int32, uint16, uint8, int16, int8, int64, complex64, complex128, bool, "
     "bfloat16}; little_endian: bool = true",
     0},
    {"EncodeBase64", "input: string", "output: string", "pad: bool = false", 0},
    {"StringLength", "input: string", "output: int32", UNIT, 0},
    {"StringLower", "input: string", "output: string", "encoding: string = ''", 0},
    {"StringStrip", "input: string", "output: string", NULL, 0},
    {"StringToHashBucketStrong", "input: string", "output: int64", "num_buckets: int >= 1; key: list(int)", 0},
    {"StringToNumber", "string_tensor: string", "output: out_type",
     "out_type: type in {float, double, int32, int64, uint32, uint64} = float", 0},
    {"StringUpper", "input: string", "output: string", "encoding: string = ''", 0},
    {"Substr", "input: string; pos: T; len: T", "output: string", "T: type in {int32, int64}; " UNIT, 0},
};

#define PLAIN(name, fn) \
  { .op = name, .cost = TD_COST_EXPENSIVE, .compute = fn }
#define WITH(name, type, make, fn) \
  { .op = name, .cost = TD_COST_EXPENSIVE, .state_size = sizeof(type), .create = make, .compute = fn }
#define LETTERS(name)                                                                               \
  {                                                                                                 \
    .op = name, .cost = TD_COST_EXPENSIVE, .state_size = sizeof(letters), .create = letters_create, \
    .destroy = letters_destroy, .compute = letters_compute                                          \
  }

static const td_kernel_def kernels[] = {
    PLAIN("DecodeBase64", decode_compute),
    WITH("DecodeRaw", raw, raw_create, raw_compute),
    WITH("EncodeBase64", base64, base64_create, encode_compute),
    WITH("StringLength", unit, unit_create, length_compute),
    LETTERS("StringLower"),
    PLAIN("StringStrip", strip_compute),
    WITH("StringToHashBucketStrong", strong, strong_create, strong_compute),
    PLAIN("StringToNumber", number_compute),
    LETTERS("StringUpper"),
    WITH("Substr", unit, unit_create, substr_compute),
};

TD_FAMILY(string_basics, ops, kernels);
