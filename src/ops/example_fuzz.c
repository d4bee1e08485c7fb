/* Examples from hostile bytes: all three ops with one of each kind of feature, whose types the first byte chooses. */
#include <stdlib.h>

#include "base/mem.h"
#include "ops/testing.h"
#include "tensor/memory.h"

static td_tensor *text(td_str s) {
  td_tensor *t;
  if (td_tensor_create_dims(TD_STRING, 0, NULL, &t)) abort();
  if (td_string_set(TD_DATA(t, td_string), s)) abort();
  return t;
}

static td_tensor *fallback(const char *type) {
  bool is_string = *type == 's';
  return is_string ? text(TD_STR("none")) : td_test_tensor(*type == 'f' ? TD_FLOAT : TD_INT64, "[]", "-1");
}

/* Elements of all outputs are read: what was never written shows under MemorySanitizer or valgrind. */
static void check(td_op_run *run) {
  for (int i = 0; i < run->out_count; i++) {
    td_free(td_tensor_summarize(run->out[i], 100000));
    td_tensor_release(run->out[i]);
  }
}

static void run_op(td_op_run *run) {
  td_status s = td_op_test_run(run);
  if (!s) check(run);
  td_status_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const types[] = {"float", "int64", "string"};
  if (!size) return 0;
  td_memory_set_limit(64 << 20);
  const char *a = types[*data % 3], *b = types[*data / 3 % 3], *c = types[*data / 9 % 3];
  td_str bytes = td_str_n(data + 1, size - 1);
  td_tensor *single[] = {text(bytes), fallback(b), fallback(c)};
  char *attrs = td_asprintf(
      "num_sparse: 1; sparse_keys: ['a']; sparse_types: [%s]; dense_keys: ['b', 'c']; Tdense: [%s, %s]; "
      "dense_shapes: [[], [?]]",
      a, b, c);
  run_op(&(td_op_run){.op = "ParseSingleExample", .attrs = attrs, .in = single, .in_count = 3});
  td_free(attrs);
  td_tensor *twice = td_tensor_reshape(single[0], 1, &(int64_t){1});
  td_tensor *keys[] = {td_test_tensor(TD_STRING, "[1]", "a"), td_test_tensor(TD_STRING, "[2]", "b c"),
                       td_test_tensor(TD_STRING, "[1]", "a"), td_test_tensor(TD_STRING, "[0]", "")};
  td_tensor *in[] = {twice, keys[3], keys[0], keys[1], keys[2], single[1], single[2]};
  attrs = td_asprintf(
      "num_sparse: 1; sparse_types: [%s]; Tdense: [%s, %s]; dense_shapes: [[], [?]]; ragged_value_types: [%s]; "
      "ragged_split_types: [int32]",
      a, b, c, a);
  run_op(&(td_op_run){.op = "ParseExampleV2", .attrs = attrs, .in = in, .in_count = 7});
  td_free(attrs);
  for (int i = 0; i < 4; i++) td_tensor_release(keys[i]);
  for (int i = 0; i < 3; i++) td_tensor_release(single[i]);
  td_tensor_release(twice);
  return 0;
}
