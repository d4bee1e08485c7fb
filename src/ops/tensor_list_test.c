#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "ops/tensor_list_data.h"
#include "ops/testing.h"
#include "tensor/tensor_proto.h"

static td_tensor *ints(const char *shape, const char *values) { return td_test_tensor(TD_INT32, shape, values); }

/* Runs an op and hands out its first result; releases the inputs but for the first `kept`. */
static td_tensor *run(const char *op, const char *attrs, int count, td_tensor **in, int kept) {
  td_op_run r = {.op = op, .attrs = attrs, .in = in, .in_count = count};
  assert_null(td_op_test_run(&r));
  for (int i = kept; i < count; i++) td_tensor_release(in[i]);
  for (int i = 1; i < r.out_count; i++) td_tensor_release(r.out[i]);
  return r.out[0];
}

static void fails(const char *op, const char *attrs, int count, td_tensor **in, int kept, const char *text) {
  td_op_run r = {.op = op, .attrs = attrs, .in = in, .in_count = count};
  td_assert_run_fails(&r, TD_INVALID_ARGUMENT, text);
  for (int i = kept; i < count; i++) td_tensor_release(in[i]);
}

#define RUN(op, attrs, kept, ...) \
  run(op, attrs, (int)TD_COUNT(((td_tensor *[]){__VA_ARGS__})), (td_tensor *[]){__VA_ARGS__}, kept)
#define FAILS(op, attrs, kept, text, ...) \
  fails(op, attrs, (int)TD_COUNT(((td_tensor *[]){__VA_ARGS__})), (td_tensor *[]){__VA_ARGS__}, kept, text)
#define OF_INTS "element_dtype: int32"

static void expect(td_tensor *t, const char *shape, const char *values) {
  td_assert_tensor(t, TD_INT32, shape, values, 0);
  td_tensor_release(t);
}

static td_tensor *from_rows(void) {
  return RUN("TensorListFromTensor", OF_INTS "; shape_type: int32", 0, ints("[3,2]", "1 2 3 4 5 6"), ints("[1]", "2"));
}

static void building(void **state) {
  td_tensor *l = RUN("EmptyTensorList", OF_INTS "; shape_type: int32", 0, ints("[]", "-1"), ints("[]", "2"));
  td_tensor *two = RUN("TensorListPushBack", OF_INTS, 1, l, ints("[]", "7"));
  expect(RUN("TensorListLength", "", 1, l), "[]", "0"); /* others see the old list */
  td_tensor *three = RUN("TensorListPushBack", OF_INTS, 1, two, ints("[]", "8"));
  FAILS("TensorListPushBack", OF_INTS, 1, "Tried to push item into a full list", three, ints("[]", "9"));
  expect(RUN("TensorListStack", OF_INTS, 1, three, ints("[]", "-1")), "[2]", "7 8");
  td_tensor *popped = RUN("TensorListPopBack", OF_INTS, 1, three, ints("[]", "-1"));
  expect(RUN("TensorListLength", "", 1, popped), "[]", "1");
  expect(RUN("TensorListLength", "", 1, three), "[]", "2");
  FAILS("TensorListPopBack", OF_INTS, 1, "Trying to pop from an empty list.", l, ints("[]", "-1"));
  FAILS("TensorListGetItem", OF_INTS, 1, "Trying to access element -1 in a list with 2 elements.", three,
        ints("[]", "-1"), ints("[]", "-1"));
  td_tensor_release(l);
  td_tensor_release(two);
  td_tensor_release(three);
  td_tensor_release(popped);
}

static void rows(void **state) {
  td_tensor *l = from_rows();
  expect(RUN("TensorListGather", OF_INTS, 1, l, ints("[2]", "2 0"), ints("[1]", "2")), "[2,2]", "5 6 1 2");
  FAILS("TensorListGather", OF_INTS, 1, "Index 3 out o range; list only has 3 elements.", l, ints("[1]", "3"),
        ints("[1]", "2"));
  td_tensor *set = RUN("TensorListSetItem", OF_INTS, 1, l, ints("[]", "1"), ints("[2]", "30 40"));
  expect(RUN("TensorListStack", OF_INTS, 1, set, ints("[1]", "2")), "[3,2]", "1 2 30 40 5 6");
  expect(RUN("TensorListStack", OF_INTS, 1, l, ints("[1]", "2")), "[3,2]", "1 2 3 4 5 6");
  td_tensor *longer = RUN("TensorListResize", "", 1, set, ints("[]", "4"));
  expect(RUN("TensorListStack", OF_INTS, 1, longer, ints("[1]", "2")), "[4,2]", "1 2 30 40 5 6 0 0");
  td_tensor *sum = RUN("AddN", "N: 2; T: variant", 2, l, set);
  expect(RUN("TensorListStack", OF_INTS, 1, sum, ints("[1]", "2")), "[3,2]", "2 4 33 44 10 12");
  td_tensor *zeros = RUN("ZerosLike", "T: variant", 1, l);
  expect(RUN("TensorListConcat", OF_INTS, 1, zeros), "[6]", "0 0 0 0 0 0");
  td_tensor_release(l);
  td_tensor_release(set);
  td_tensor_release(longer);
  td_tensor_release(sum);
  td_tensor_release(zeros);
}

/* As after a journey to another task; what arrives cut off is refused. */
static void travels(void **state) {
  td_tensor *l = RUN("TensorListReserve", OF_INTS "; shape_type: int32", 0, ints("[1]", "2"), ints("[]", "3"));
  td_tensor *set = RUN("TensorListSetItem", OF_INTS, 1, l, ints("[]", "1"), ints("[2]", "3 4"));
  td_strbuf bytes = {0};
  td_tensor *back;
  assert_null(td_tensor_encode(set, &bytes));
  assert_null(td_tensor_decode(td_strbuf_view(&bytes), &back));
  expect(RUN("TensorListStack", OF_INTS, 1, back, ints("[1]", "2")), "[3,2]", "0 0 3 4 0 0");
  expect(RUN("TensorListGetItem", OF_INTS, 1, back, ints("[]", "1"), ints("[1]", "2")), "[2]", "3 4");
  td_tensor *pushed = RUN("TensorListPushBack", OF_INTS, 1, back, ints("[2]", "5 6"));
  expect(RUN("TensorListLength", "", 1, pushed), "[]", "4");
  td_tensor_release(back);
  td_tensor_release(pushed);
  for (size_t cut = 0; cut < bytes.size; cut++) { /* whatever it says, nothing breaks */
    td_status s = td_tensor_decode((td_str){bytes.data, cut}, &back);
    if (!s && back->dtype == TD_VARIANT && back->count == 1) {
      td_tensor_list *list;
      td_status_free(td_tensor_list_of(TD_DATA(back, td_variant *)[0], &list));
      td_tensor_list_release(list);
    }
    if (!s) td_tensor_release(back);
    td_status_free(s);
  }
  td_strbuf_deinit(&bytes);
  td_tensor_release(set);
  td_tensor_release(l);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(building), cmocka_unit_test(rows), cmocka_unit_test(travels)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
