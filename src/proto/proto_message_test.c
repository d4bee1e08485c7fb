#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/testing.h"
#include "proto/config.pb-c.h"
#include "proto/framework.pb-c.h"
#include "proto/master.pb-c.h"
#include "proto/message.h"
#include "proto/wire.h"

static void expect_error(const ProtobufCMessageDescriptor *type, td_str bytes, td_code code, const char *text) {
  td_arena arena = {0};
  ProtobufCMessage *m = NULL;
  td_status s = td_message_decode(type, bytes, &arena, &m);
  assert_int_equal(td_status_code(s), code);
  if (!strstr(td_status_message(s), text)) fail_msg("\"%s\" lacks \"%s\"", td_status_message(s), text);
  assert_null(m);
  td_status_free(s);
  td_arena_deinit(&arena);
}

static void *decode(const ProtobufCMessageDescriptor *type, td_str bytes, td_arena *arena) {
  ProtobufCMessage *m = NULL;
  must(td_message_decode(type, bytes, arena, &m));
  return m;
}

/* The nodes of a recorded CreateSession: name, op, attr with a type and a shape of one unknown dimension. */
static const char graph[] =
    "\x0a\x3c"
    "\x0a\x01"
    "a"
    "\x12\x0b"
    "Placeholder"
    "\x2a\x0b"
    "\x0a\x05"
    "dtype"
    "\x12\x02"
    "\x30\x01"
    "\x2a\x18"
    "\x0a\x05"
    "shape"
    "\x12\x0f"
    "\x3a\x0d"
    "\x12\x0b"
    "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    "\x1a\x03"
    "b:0"
    "\x12\x00"
    "\x22\x03"
    "\x08\x86\x01";

static void recorded_graph(void **state) {
  td_arena arena = {0};
  Pb__GraphDef *g = decode(&pb__graph_def__descriptor, td_str_n(graph, sizeof graph - 1), &arena);
  assert_int_equal(g->n_node, 1);
  assert_string_equal(g->node[0]->op, "Placeholder");
  assert_string_equal(g->node[0]->input[0], "b:0");
  assert_int_equal(g->node[0]->n_attr, 2);
  assert_int_equal(g->node[0]->attr[0]->value->value_case, PB__ATTR_VALUE__VALUE_TYPE);
  assert_int_equal(g->node[0]->attr[0]->value->type, 1);
  assert_int_equal(g->node[0]->attr[1]->value->shape->dim[0]->size, -1);
  assert_int_equal(g->versions->producer, 134);
  assert_non_null(g->library);
  td_strbuf b = {0};
  assert_null(td_message_encode(&g->base, &b));
  Pb__GraphDef *again = decode(&pb__graph_def__descriptor, td_strbuf_view(&b), &arena);
  assert_string_equal(again->node[0]->attr[1]->key, "shape");
  td_strbuf field = {0};
  assert_null(td_message_encode_field(&g->base, 7, &field));
  assert_int_equal(field.size, b.size + td_wire_header_size(7, b.size));
  td_strbuf_deinit(&field);
  td_strbuf_deinit(&b);
  td_arena_deinit(&arena);
}

static void unknown_fields_and_loose_lists(void **state) {
  td_arena arena = {0};
  /* a list of ints not packed, then packed; a field nobody knows; an enum's unknown number */
  Pb__AttrValue *v = decode(&pb__attr_value__descriptor,
                            TD_STR("\x0a\x10"
                                   "\x18\x01"
                                   "\x18\xac\x02"
                                   "\x1a\x02\x03\x04"
                                   "\xfa\x07\x02hi"
                                   "\x30\x7f"),
                            &arena);
  assert_int_equal(v->list->n_i, 4);
  assert_int_equal(v->list->i[1], 300);
  assert_int_equal(v->list->i[3], 4);
  assert_int_equal(v->list->type[0], 127);
  td_strbuf b = {0};
  assert_null(td_message_encode(&v->base, &b)); /* the unknown field survives */
  assert_non_null(memmem(b.data, b.size, "\xfa\x07\x02hi", 5));
  td_strbuf_deinit(&b);
  td_arena_deinit(&arena);
}

static void malformed_messages(void **state) {
  const ProtobufCMessageDescriptor *g = &pb__graph_def__descriptor;
  expect_error(g,
               TD_STR("\x0a\x05\x0a\x09"
                      "abc"),
               TD_INVALID_ARGUMENT, "Malformed GraphDef: no valid field at byte 2");
  expect_error(g,
               TD_STR("\x0a\x05\x0a\x03"
                      "a\0b"),
               TD_INVALID_ARGUMENT, "NUL in a string at byte 4");
  expect_error(g, TD_STR("\x08\x05"), TD_INVALID_ARGUMENT, "wrong wire type");
  expect_error(g, TD_STR("\x0b"), TD_INVALID_ARGUMENT, "Malformed GraphDef");
  expect_error(&pb__version_def__descriptor, TD_STR("\x1a\x02\x01\x80"), TD_INVALID_ARGUMENT, "cut-off number");
  expect_error(&pb__tensor_proto__descriptor, TD_STR("\x2a\x03\x01\x02\x03"), TD_INVALID_ARGUMENT, "no multiple");
}

/* func{attr{value{func{…}}}}: three levels a turn. */
static td_strbuf nested(int turns) {
  td_strbuf inner = {0};
  for (int i = 0; i < turns; i++) {
    td_strbuf value = {0}, entry = {0}, func = {0};
    td_wire_put_bytes(&value, 10, td_strbuf_view(&inner));
    td_wire_put_bytes(&entry, 2, td_strbuf_view(&value));
    td_wire_put_bytes(&func, 2, td_strbuf_view(&entry));
    td_strbuf_deinit(&inner);
    td_strbuf_deinit(&value);
    td_strbuf_deinit(&entry);
    inner = func;
  }
  return inner;
}

static void nesting_is_bounded(void **state) {
  td_arena arena = {0};
  td_strbuf b = nested(32);
  decode(&pb__name_attr_list__descriptor, td_strbuf_view(&b), &arena);
  td_strbuf_deinit(&b);
  b = nested(34);
  expect_error(&pb__name_attr_list__descriptor, td_strbuf_view(&b), TD_INVALID_ARGUMENT, "nested too deeply");
  td_strbuf_deinit(&b);
  b = nested(3000);
  expect_error(&pb__name_attr_list__descriptor, td_strbuf_view(&b), TD_INVALID_ARGUMENT, "nested too deeply");
  td_strbuf_deinit(&b);
  td_arena_deinit(&arena);
}

static void small_bytes_cannot_ask_for_much(void **state) {
  size_t n = 1 << 22; /* of empty nodes, two bytes each: 64 times that in memory */
  td_strbuf b = {0};
  for (size_t i = 0; i < n; i++) td_strbuf_append(&b, TD_STR("\x0a\x00"));
  expect_error(&pb__graph_def__descriptor, td_strbuf_view(&b), TD_RESOURCE_EXHAUSTED, "would take");
  td_strbuf_deinit(&b);
  for (size_t i = 0; i < 100; i++) td_strbuf_append(&b, TD_STR("\x22\x04\x1a\x02\x01\x02")); /* merged each time */
  expect_error(&pb__graph_def__descriptor, td_strbuf_view(&b), TD_INVALID_ARGUMENT, "repeated too often");
  td_strbuf_deinit(&b);
}

static void many_small_honest_parts(void **state) {
  td_strbuf b = {0};
  for (int i = 0; i < 100000; i++) td_strbuf_append(&b, td_str_n(graph, sizeof graph - 1 - 7));
  td_arena arena = {0};
  Pb__GraphDef *g = decode(&pb__graph_def__descriptor, td_strbuf_view(&b), &arena);
  assert_int_equal(g->n_node, 100000);
  td_strbuf_deinit(&b);
  td_arena_deinit(&arena);
}

static void config_merges_by_concatenation(void **state) {
  td_arena arena = {0};
  Pb__ConfigProto *c = decode(&pb__config_proto__descriptor,
                              TD_STR("\x38\x01"
                                     "\x22\x02"
                                     "ab"
                                     "\x82\x01\x02\x60\x01"
                                     "\x38\x00"
                                     "\x22\x01"
                                     "c"
                                     "\x82\x01\x02\x40\x01"),
                              &arena);
  assert_int_equal(c->n_device_filters, 2);
  assert_int_equal(c->allow_soft_placement, 0);
  assert_int_equal(c->experimental->optimize_for_static_graph, 1);
  assert_int_equal(c->experimental->share_session_state_in_clusterspec_propagation, 1);
  td_arena_deinit(&arena);
}

static void oneofs_keep_the_last_member(void **state) {
  td_arena arena = {0};
  /* shape, then i, then shape again; and shape, shape, i */
  Pb__AttrValue *v = decode(&pb__attr_value__descriptor, TD_STR("\x3a\x02\x18\x01\x18\x07\x3a\x00"), &arena);
  assert_int_equal(v->value_case, PB__ATTR_VALUE__VALUE_SHAPE);
  assert_false(v->shape->unknown_rank);
  v = decode(&pb__attr_value__descriptor, TD_STR("\x3a\x02\x18\x01\x3a\x00\x18\x07"), &arena);
  assert_int_equal(v->value_case, PB__ATTR_VALUE__VALUE_I);
  /* a map entry's value twice, with nothing in it */
  Pb__AttrEntry *e = decode(&pb__attr_entry__descriptor, TD_STR("\x0a\x01k\x12\x00\x12\x00"), &arena);
  assert_int_equal(e->value->value_case, PB__ATTR_VALUE__VALUE__NOT_SET);
  td_arena_deinit(&arena);
}

static void empty_message(void **state) {
  td_arena arena = {0};
  Pb__RunStepRequest *r = decode(&pb__run_step_request__descriptor, TD_STR(""), &arena);
  assert_string_equal(r->session_handle, "");
  assert_null(r->options);
  td_strbuf b = {0};
  assert_null(td_message_encode(&r->base, &b));
  assert_int_equal(b.size, 0);
  td_strbuf_deinit(&b);
  td_arena_deinit(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(recorded_graph),
      cmocka_unit_test(unknown_fields_and_loose_lists),
      cmocka_unit_test(malformed_messages),
      cmocka_unit_test(nesting_is_bounded),
      cmocka_unit_test(small_bytes_cannot_ask_for_much),
      cmocka_unit_test(many_small_honest_parts),
      cmocka_unit_test(config_merges_by_concatenation),
      cmocka_unit_test(oneofs_keep_the_last_member),
      cmocka_unit_test(empty_message),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
