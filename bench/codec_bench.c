/* The TensorProto codec: encoding and decoding by size, strings, and the header alone, which is all that a tensor on
 * its way to a peer is given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "figure.h"
#include "tensor/tensor_proto.h"

typedef struct codec {
  td_tensor *t;
  td_strbuf bytes;
} codec;

static void must(td_status s) {
  if (!s) return;
  fprintf(stderr, "codec_bench: %s\n", td_status_message(s));
  exit(2);
}

static void encode(void *arg) {
  codec *c = arg;
  c->bytes.size = 0;
  must(td_tensor_encode(c->t, &c->bytes));
}

static void decode(void *arg) {
  codec *c = arg;
  td_tensor *t;
  must(td_tensor_decode(td_strbuf_view(&c->bytes), &t));
  td_tensor_release(t);
}

static void header(void *arg) {
  codec *c = arg;
  uint8_t buffer[TD_TENSOR_HEADER_MAX];
  c->bytes.size = td_tensor_proto_header(c->t, buffer);
}

/* Encodes and decodes `t`, which it releases. */
static void both_ways(const char *what, td_tensor *t, double units, bench_scale scale) {
  char name[64];
  codec c = {.t = t};
  encode(&c);
  snprintf(name, sizeof name, "codec/decode %s", what);
  bench_measure(&(bench_case){name, decode, &c, units, scale});
  snprintf(name, sizeof name, "codec/encode %s", what);
  bench_measure(&(bench_case){name, encode, &c, units, scale});
  td_strbuf_deinit(&c.bytes);
  td_tensor_release(t);
}

static td_tensor *floats(int64_t n) {
  td_tensor *t;
  must(td_tensor_create_dims(TD_FLOAT, 1, &n, &t));
  memset(t->data, 1, t->size);
  return t;
}

static td_tensor *strings(int64_t n) {
  td_tensor *t;
  must(td_tensor_create_dims(TD_STRING, 1, &n, &t));
  for (int64_t i = 0; i < n; i++) must(td_string_set(TD_DATA(t, td_string) + i, TD_STR("sixteen bytes each")));
  return t;
}

/* A list of values, as constants of a graph have it: packed float_val. */
static void typed_list(int64_t n) {
  char payload[4096];
  td_strbuf b = {0};
  memset(payload, 1, sizeof payload);
  td_strbuf_append(&b, TD_STR("\x08\x01\x12\x05\x12\x03\x08\x80\x08\x2a\x80\x20")); /* float, [1024], float_val */
  td_strbuf_append(&b, (td_str){payload, (size_t)n * sizeof(float)});
  codec c = {.bytes = b};
  bench_measure(&(bench_case){"codec/decode float_val 4KB", decode, &c, (double)n * sizeof(float), BENCH_GB});
  td_strbuf_deinit(&c.bytes);
}

int main(int argc, char **argv) {
  bench_options(argc, argv);
  codec c = {.t = floats(1)};
  bench_measure(&(bench_case){"codec/header", header, &c, 1, BENCH_NS});
  td_tensor_release(c.t);
  both_ways("scalar", floats(1), 1, BENCH_NS);
  both_ways("4KB", floats(1 << 10), 4 << 10, BENCH_GB);
  both_ways("256KB", floats(64 << 10), 256 << 10, BENCH_GB);
  both_ways("16MB", floats(4 << 20), 16 << 20, BENCH_GB);
  both_ways("1,000 strings", strings(1000), 1000, BENCH_NS);
  typed_list(1024);
  return 0;
}
