/* The vectors were written by TensorFlow 2.15's make_tensor_proto, or recorded from its clients, unless a comment
 * says otherwise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/mem.h"
#include "base/testing.h"
#include "proto/message.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

static td_tensor *decode(td_str bytes) {
  td_tensor *t = NULL;
  must(td_tensor_decode(bytes, &t));
  return t;
}

static void expect_error(td_str bytes, td_code code, const char *text) {
  td_tensor *t = NULL;
  td_status s = td_tensor_decode(bytes, &t);
  assert_int_equal(td_status_code(s), code);
  assert_null(t);
  if (!strstr(td_status_message(s), text)) fail_msg("\"%s\" lacks \"%s\"", td_status_message(s), text);
  td_status_free(s);
}

static td_strbuf encode(const td_tensor *t) {
  td_strbuf b = {0};
  must(td_tensor_encode(t, &b));
  return b;
}

/* Decodes; checks type, shape and values as text; encodes, decodes and checks again; also by way of protobuf-c. */
static void expect(td_str bytes, td_dtype dtype, const char *shape, const char *values) {
  td_tensor *t = decode(bytes);
  for (int turn = 0; turn < 3; turn++) {
    assert_int_equal(t->dtype, dtype);
    char *text = td_tensor_shape_text(t);
    assert_string_equal(text, shape);
    td_free(text);
    text = td_tensor_summarize(t, -1);
    assert_string_equal(text, values);
    td_free(text);
    if (turn == 2) break;
    td_strbuf b = encode(t);
    td_tensor_release(t);
    if (turn == 0) {
      t = decode(td_strbuf_view(&b));
    } else {
      td_arena arena = {0};
      ProtobufCMessage *m = NULL;
      assert_null(td_message_decode(&pb__tensor_proto__descriptor, bytes, &arena, &m));
      assert_null(td_tensor_from_proto((Pb__TensorProto *)m, &t));
      td_arena_deinit(&arena);
    }
    td_strbuf_deinit(&b);
  }
  td_tensor_release(t);
}

static void tensorflow_vectors(void **state) {
  expect(TD_STR("\x08\x01\x12\x04\x12\x02\x08\x02\x22\x08\x00\x00\x80\x3f\x00\x00\x00\x40"), TD_FLOAT, "[2]", "1 2");
  expect(TD_STR("\x08\x07\x12\x00\x22\x04\x03str"), TD_STRING, "[]", "str");
  expect(TD_STR("\x08\x01\x12\x08\x12\x02\x08\x02\x12\x02\x08\x03\x2a\x04\x00\x00\xc0\x3f"), TD_FLOAT, "[2,3]",
         "[1.5 1.5 1.5][1.5 1.5 1.5]");
  expect(TD_STR("\x08\x03\x12\x04\x12\x02\x08\x03\x22\x0c\x01\x00\x00\x00\xfe\xff\xff\xff\x03\x00\x00\x00"), TD_INT32,
         "[3]", "1 -2 3");
  expect(TD_STR("\x08\x07\x12\x04\x12\x02\x08\x03\x42\x01\x61\x42\x00\x42\x03\x62\x63\x64"), TD_STRING, "[3]",
         "a  bcd");
  expect(TD_STR("\x08\x13\x12\x04\x12\x02\x08\x02\x22\x04\x00\x3c\x00\xc1"), TD_HALF, "[2]", "1 -2.5");
  expect(TD_STR("\x08\x0a\x12\x04\x12\x02\x08\x03\x5a\x03\x01\x00\x01"), TD_BOOL, "[3]", "1 0 1");
  expect(TD_STR("\x08\x02\x12\x04\x12\x02\x08\x01\x32\x08\x9a\x99\x99\x99\x99\x99\xb9\x3f"), TD_DOUBLE, "[1]", "0.1");
  expect(TD_STR("\x08\x06\x12\x04\x12\x02\x08\x02\x22\x02\x01\xff"), TD_INT8, "[2]", "1 -1");
  expect(TD_STR("\x08\x11\x12\x04\x12\x02\x08\x01\x3a\x03\xff\xff\x03"), TD_UINT16, "[1]", "65535");
  expect(TD_STR("\x08\x16\x12\x04\x12\x02\x08\x01\x82\x01\x05\xff\xff\xff\xff\x0f"), TD_UINT32, "[1]", "4294967295");
  expect(TD_STR("\x08\x17\x12\x04\x12\x02\x08\x01\x8a\x01\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), TD_UINT64,
         "[1]", "18446744073709551615");
  expect(TD_STR("\x08\x0e\x12\x04\x12\x02\x08\x02\x22\x04\x80\x3f\x40\x40"), TD_BFLOAT16, "[2]", "1 3");
  expect(TD_STR("\x08\x01\x12\x06\x12\x00\x12\x02\x08\x03"), TD_FLOAT, "[0,3]", "");
}

static void complex_values(void **state) {
  td_tensor *t = decode(TD_STR("\x08\x08\x12\x04\x12\x02\x08\x03\x4a\x08\x00\x00\x80\x3f\x00\x00\x00\x40"));
  assert_int_equal(t->count, 3);
  for (int i = 0; i < 3; i++) {
    assert_true(crealf(TD_DATA(t, td_complex64)[i]) == 1 && cimagf(TD_DATA(t, td_complex64)[i]) == 2);
  }
  td_tensor_release(t);
  t =
      decode(TD_STR("\x08\x12\x12\x04\x12\x02\x08\x02\x62\x20"
                    "\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\x00\x40"
                    "\x00\x00\x00\x00\x00\x00\x08\x40\x00\x00\x00\x00\x00\x00\x10\xc0"));
  assert_true(creal(TD_DATA(t, td_complex128)[1]) == 3 && cimag(TD_DATA(t, td_complex128)[1]) == -4);
  td_tensor_release(t);
  /* by hand: half of an element is none */
  t = decode(TD_STR("\x08\x08\x12\x04\x12\x02\x08\x01\x4d\x00\x00\x80\x3f"));
  assert_true(TD_DATA(t, td_complex64)[0] == 0);
  td_tensor_release(t);
}

/* By hand from here on. */
static void lists_in_other_forms(void **state) {
  /* not packed; packed in two pieces; more values than elements; none; negative ints, the last repeated */
  expect(TD_STR("\x08\x01\x12\x04\x12\x02\x08\x02\x2d\x00\x00\x80\x3f\x2d\x00\x00\x00\x40"), TD_FLOAT, "[2]", "1 2");
  expect(TD_STR("\x08\x03\x12\x04\x12\x02\x08\x05\x3a\x01\x01\x38\x02\x3a\x01\x03"), TD_INT32, "[5]", "1 2 3 3 3");
  expect(TD_STR("\x08\x04\x12\x04\x12\x02\x08\x02\x3a\x04\x01\x02\x03\x04"), TD_UINT8, "[2]", "1 2");
  expect(TD_STR("\x08\x09\x12\x04\x12\x02\x08\x02"), TD_INT64, "[2]", "0 0");
  expect(TD_STR("\x08\x09\x12\x04\x12\x02\x08\x02\x52\x0a\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"), TD_INT64, "[2]",
         "-2 -2");
  expect(TD_STR("\x08\x06\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), TD_INT8, "[]", "-1");
  expect(TD_STR("\x08\x0a\x12\x04\x12\x02\x08\x02\x58\x05"), TD_BOOL, "[2]", "1 1");
  expect(TD_STR("\x08\x13\x12\x04\x12\x02\x08\x02\x6a\x02\x80\x78"), TD_HALF, "[2]", "1 1");
  expect(TD_STR("\x08\x0e\x68\x80\x7f"), TD_BFLOAT16, "[]", "1");
  expect(TD_STR("\x08\x07\x12\x04\x12\x02\x08\x03\x42\x01x\x42\x01y"), TD_STRING, "[3]", "x y y");
  expect(TD_STR("\x08\x07\x12\x04\x12\x02\x08\x02"), TD_STRING, "[2]", " ");
  expect(TD_STR("\x08\x07\x12\x04\x12\x02\x08\x02\x22\x0a\x06\x02strstrxx"), TD_STRING, "[2]", "strstr xx");
  expect(TD_STR("\x08\x0b\x12\x04\x12\x02\x08\x02\x3a\x02\x03\x04"), TD_QINT8, "[2]", "3 4");
  /* fields in another order; an unknown one; a name in the shape */
  expect(TD_STR("\x2a\x04\x00\x00\x80\x3f\x18\x05\xfa\x07\x01z\x12\x07\x12\x05\x12\x01n\x08\x02\x08\x01"), TD_FLOAT,
         "[2]", "1 1");
  /* content of an empty tensor is ignored */
  expect(TD_STR("\x08\x01\x12\x04\x12\x02\x08\x00\x22\x01z"), TD_FLOAT, "[0]", "");
}

static void malformed_tensors(void **state) {
  expect_error(TD_STR(""), TD_INVALID_ARGUMENT, "unknown type 0");
  expect_error(TD_STR("\x08\x65"), TD_INVALID_ARGUMENT, "unknown type 101");
  expect_error(TD_STR("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), TD_INVALID_ARGUMENT, "unknown type -1");
  expect_error(TD_STR("\x08\x01\x12\x02\x18\x01"), TD_INVALID_ARGUMENT, "unknown rank");
  expect_error(TD_STR("\x08\x01\x12\x0d\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), TD_INVALID_ARGUMENT,
               "not fully defined");
  expect_error(TD_STR("\x08\x01\x12\x0d\x12\x0b\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"), TD_INVALID_ARGUMENT,
               "size -2");
  expect_error(TD_STR("\x08\x01\x12\x04\x12\x02\x08\x02\x22\x03"
                      "abc"),
               TD_INVALID_ARGUMENT, "tensor_content of 3 bytes does not fit shape [2] and type float");
  expect_error(TD_STR("\x08\x01\x22\x09"
                      "abc"),
               TD_INVALID_ARGUMENT, "Malformed TensorProto at byte 2");
  expect_error(TD_STR("\x08\x01\x2a\x03"
                      "abc"),
               TD_INVALID_ARGUMENT, "Malformed list");
  expect_error(TD_STR("\x08\x01\x28\x03"), TD_INVALID_ARGUMENT, "Malformed value");
  expect_error(TD_STR("\x08\x03\x3a\x01\x80"), TD_INVALID_ARGUMENT, "Malformed list");
  expect_error(TD_STR("\x08\x07\x22\x02\x02x"), TD_INVALID_ARGUMENT, "tensor_content has 1 bytes");
  expect_error(TD_STR("\x08\x07\x22\x03\x01xy"), TD_INVALID_ARGUMENT, "tensor_content has 2 bytes");
  expect_error(TD_STR("\x08\x07\x22\x01\x80"), TD_INVALID_ARGUMENT, "Malformed sizes");
  expect_error(TD_STR("\x08\x14\x72\x04\x0a\x02x\0"), TD_INVALID_ARGUMENT, "NUL");
  expect_error(TD_STR("\x08\x14\x72\x02\x0a\x05"), TD_INVALID_ARGUMENT, "Malformed ResourceHandleProto");
}

static void huge_claims(void **state) {
  /* 2^62 floats; 2^40 bytes as zeros; 2^30 times a string; 2^63 elements */
  expect_error(TD_STR("\x08\x01\x12\x0c\x12\x0a\x08\x80\x80\x80\x80\x80\x80\x80\x80\x40"), TD_RESOURCE_EXHAUSTED,
               "has shape");
  expect_error(TD_STR("\x08\x04\x12\x09\x12\x07\x08\x80\x80\x80\x80\x80\x20"), TD_RESOURCE_EXHAUSTED, "uint8");
  td_strbuf b = {0};
  td_strbuf_append(&b, TD_STR("\x08\x07\x12\x06\x12\x04\x08\x80\x80\x04\x42\x80\x80\x08")); /* 65536 x 128 KiB */
  for (int i = 0; i < 131072; i++) td_strbuf_putc(&b, 'x');
  expect_error(td_strbuf_view(&b), TD_RESOURCE_EXHAUSTED, "repeats a string of 131072 bytes");
  td_strbuf_deinit(&b);
  expect_error(TD_STR("\x08\x01\x12\x1c\x12\x0a\x08\x80\x80\x80\x80\x80\x80\x80\x80\x40\x12\x02\x08\x02\x12\x02\x08\x02"
                      "\x12\x02\x08\x02\x12\x02\x08\x02"),
               TD_INVALID_ARGUMENT, "too large");
  for (int i = 0; i < 300; i++) td_strbuf_append(&b, TD_STR("\x12\x02\x08\x01"));
  td_strbuf whole = {0};
  td_wire_put_uint(&whole, 1, 1);
  td_wire_put_bytes(&whole, 2, td_strbuf_view(&b));
  expect_error(td_strbuf_view(&whole), TD_INVALID_ARGUMENT, "more than 254 dimensions");
  td_strbuf_deinit(&b);
  td_strbuf_deinit(&whole);
}

static void encodes_the_fast_layout(void **state) {
  td_tensor *t = decode(TD_STR("\x08\x01\x2d\x00\x00\x80\x3f"));
  td_strbuf b = encode(t);
  assert_true(td_str_eq(td_strbuf_view(&b), TD_STR("\x08\x01\x12\x00\x22\x04\x00\x00\x80\x3f")));
  td_strbuf_deinit(&b);
  td_tensor_release(t);
  t = decode(TD_STR("\x08\x01\x12\x06\x12\x00\x12\x02\x08\x03"));
  b = encode(t); /* a size of zero is written, and empty content too */
  assert_true(td_str_eq(td_strbuf_view(&b), TD_STR("\x08\x01\x12\x08\x12\x02\x08\x00\x12\x02\x08\x03\x22\x00")));
  uint8_t head[TD_TENSOR_HEADER_MAX];
  assert_int_equal(td_tensor_proto_header(t, head), b.size);
  assert_memory_equal(head, b.data, b.size);
  td_strbuf_deinit(&b);
  td_tensor_release(t);
  t = decode(TD_STR("\x08\x07\x12\x04\x12\x02\x08\x02\x42\x01x\x42\x02yz"));
  b = encode(t);
  assert_true(td_str_eq(td_strbuf_view(&b), TD_STR("\x08\x07\x12\x04\x12\x02\x08\x02\x22\x05\x01\x02xyz")));
  td_strbuf_deinit(&b);
  td_tensor_release(t);
  int64_t dims[TD_MAX_RANK];
  for (int i = 0; i < TD_MAX_RANK; i++) dims[i] = i ? INT64_MAX : 0;
  assert_null(td_tensor_create_dims(TD_FLOAT, TD_MAX_RANK, dims, &t));
  assert_true(td_tensor_proto_header(t, head) < TD_TENSOR_HEADER_MAX);
  td_tensor_release(t);
}

static void handles_round_trip(void **state) {
  const td_str handle = TD_STR(
      "\x0a\x06/job:a\x12\x01"
      "c\x1a\x01n\x20\x85\x80\x80\x80\x80\x80\x80\x80\x80\x01\x2a\x01T\x32\x02\x08\x01");
  td_strbuf b = {0};
  td_strbuf_append(&b, TD_STR("\x08\x14\x12\x00"));
  td_wire_put_bytes(&b, 14, handle);
  td_tensor *t = decode(td_strbuf_view(&b));
  td_resource_handle *h = TD_DATA(t, td_resource_handle *)[0];
  assert_string_equal(h->device, "/job:a");
  assert_string_equal(h->type_name, "T");
  assert_true(h->hash_code == 0x8000000000000005);
  td_strbuf again = {0};
  td_resource_handle_encode(h, &again);
  assert_true(td_str_eq(td_strbuf_view(&again), handle));
  td_strbuf_deinit(&again);
  again = encode(t); /* as content this time */
  td_tensor *u = decode(td_strbuf_view(&again));
  assert_string_equal(TD_DATA(u, td_resource_handle *)[0]->name, "n");
  td_strbuf_deinit(&again);
  td_strbuf_deinit(&b);
  td_tensor_release(t);
  td_tensor_release(u);
}

static void variants_round_trip(void **state) {
  td_tensor *t = decode(TD_STR("\x08\x15\x12\x04\x12\x02\x08\x02\x7a\x09\x0a\x02TL\x12\x01m\x1a\x00"));
  const td_opaque_variant *o = td_variant_as_opaque(TD_DATA(t, td_variant *)[0]);
  assert_string_equal(o->type_name, "TL");
  assert_int_equal(o->size, 9);
  assert_null(TD_DATA(t, td_variant *)[1]);
  td_strbuf b = encode(t);
  td_tensor *u = decode(td_strbuf_view(&b));
  assert_string_equal(td_variant_as_opaque(TD_DATA(u, td_variant *)[0])->type_name, "TL");
  assert_null(TD_DATA(u, td_variant *)[1]);
  td_strbuf_deinit(&b);
  td_tensor_release(t);
  td_tensor_release(u);
}

static void shapes(void **state) {
  td_shape s;
  bool unknown;
  assert_null(
      td_shape_decode(TD_STR("\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x12\x02\x08\x05"), &s, &unknown));
  assert_true(s.rank == 2 && s.dims[0] == -1 && s.dims[1] == 5 && !unknown);
  assert_null(td_shape_decode(TD_STR("\x18\x01"), &s, &unknown));
  assert_true(unknown);
  td_status status = td_shape_decode(TD_STR("\x12\x00\x18\x01"), &s, &unknown);
  assert_int_equal(td_status_code(status), TD_INVALID_ARGUMENT);
  td_status_free(status);
  td_strbuf b = {0};
  td_shape_encode(2, (int64_t[]){-1, 300}, &b);
  assert_null(td_shape_decode(td_strbuf_view(&b), &s, &unknown));
  assert_true(s.rank == 2 && s.dims[0] == -1 && s.dims[1] == 300);
  td_strbuf_deinit(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tensorflow_vectors),
      cmocka_unit_test(complex_values),
      cmocka_unit_test(lists_in_other_forms),
      cmocka_unit_test(malformed_tensors),
      cmocka_unit_test(huge_claims),
      cmocka_unit_test(encodes_the_fast_layout),
      cmocka_unit_test(handles_round_trip),
      cmocka_unit_test(variants_round_trip),
      cmocka_unit_test(shapes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
