#include "framework/variable.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "tensor/loan.h"
#include "tensor/shared_memory.h"

static td_variable *make(const td_resource_type *type, int64_t n, float value) {
  td_variable *v = td_variable_create(type, TD_FLOAT, TD_STR("v"));
  td_tensor *t;
  assert_null(td_tensor_create_dims(TD_FLOAT, 1, &n, &t));
  for (int64_t i = 0; i < n; i++) TD_DATA(t, float)[i] = value;
  td_variable_set(v, t);
  return v;
}

static void test_read(void **state) {
  td_variable *v = td_variable_create(&td_ref_variable_type, TD_FLOAT, TD_STR("a name"));
  assert_string_equal(v->name, "a name");
  td_tensor *t = NULL;
  assert_null(td_variable_read(v, &t));
  assert_null(t);
  char *text = td_variable_shape_text(v);
  assert_string_equal(text, "[]");
  td_free(text);
  td_variable_declare_shape(v, 2, (int64_t[]){2, 3});
  text = td_variable_shape_text(v);
  assert_string_equal(text, "[2,3]");
  td_free(text);
  td_variable_release(v);
}

static void test_copy_on_write(void **state) {
  td_variable *v = make(&td_resource_variable_type, 4, 1);
  td_tensor *before = v->value, *snapshot;
  assert_null(td_variable_make_exclusive(v, true)); /* nobody looks: the same buffer */
  assert_ptr_equal(v->value, before);
  assert_null(td_variable_read(v, &snapshot));
  assert_ptr_equal(snapshot, before);
  assert_null(td_variable_make_exclusive(v, true));
  assert_ptr_not_equal(v->value, snapshot);
  assert_true(TD_DATA(v->value, float)[3] == 1);
  td_tensor_release(snapshot);
  assert_null(td_variable_read(v, &snapshot));
  assert_null(td_variable_make_exclusive(v, false)); /* a fresh buffer of the same shape */
  assert_ptr_not_equal(v->value, snapshot);
  assert_int_equal(v->value->count, 4);
  td_tensor_release(snapshot);
  /* a view counts as a reader */
  td_tensor *slice = td_tensor_slice(v->value, 1, 2);
  before = v->value;
  assert_null(td_variable_make_exclusive(v, true));
  assert_ptr_not_equal(v->value, before);
  td_tensor_release(slice);
  td_variable_release(v);
}

static void test_sparse(void **state) {
  td_variable *v = make(&td_resource_variable_type, 4, 1);
  td_tensor *snapshot, *later;
  assert_null(td_variable_read(v, &snapshot));
  assert_null(td_variable_prepare_sparse(v)); /* copies once, */
  assert_ptr_not_equal(v->value, snapshot);
  assert_true(v->copy_on_read);
  td_tensor *own = v->value;
  assert_null(td_variable_read(v, &later)); /* then readers copy */
  assert_ptr_not_equal(later, own);
  assert_null(td_variable_prepare_sparse(v));
  assert_ptr_equal(v->value, own);
  td_tensor_release(snapshot);
  td_tensor_release(later);
  td_variable_release(v);
  v = make(&td_ref_variable_type, 4, 1); /* ref variables: in place, whoever reads */
  own = v->value;
  assert_null(td_variable_read(v, &snapshot));
  assert_null(td_variable_prepare_sparse(v));
  assert_ptr_equal(v->value, own);
  assert_false(v->copy_on_read);
  td_tensor_release(snapshot);
  td_variable_release(v);
}

/* Writers change all elements under the lock; a snapshot never shows half of it, sparse mode or not. */
enum { ELEMENTS = 512, ROUNDS = 500 };

static void *write_main(void *arg) {
  td_variable *v = arg;
  for (int r = 0; r < ROUNDS; r++) {
    pthread_rwlock_wrlock(&v->lock);
    td_status s = r % 100 == 99 ? td_variable_prepare_sparse(v) : td_variable_make_exclusive(v, true);
    if (s) abort();
    for (int i = 0; i < ELEMENTS; i++) TD_DATA(v->value, float)[i] += 1;
    pthread_rwlock_unlock(&v->lock);
  }
  return NULL;
}

static void *read_main(void *arg) {
  td_variable *v = arg;
  for (int r = 0; r < ROUNDS; r++) {
    td_tensor *t;
    if (td_variable_read(v, &t)) abort();
    for (int i = 1; i < ELEMENTS; i++)
      if (TD_DATA(t, float)[i] != TD_DATA(t, float)[0]) abort();
    td_tensor_release(t);
  }
  return NULL;
}

static void test_threads(void **state) {
  td_variable *v = make(&td_resource_variable_type, ELEMENTS, 0);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, i % 2 ? read_main : write_main, v), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  assert_true(TD_DATA(v->value, float)[0] == 2 * ROUNDS);
  td_variable_release(v);
}

/* Where somebody borrows, values move to where they can be lent when they are next written; but not those that sparse
 * updates write while others read. */
static void test_lent_values(void **state) {
  char step;
  td_loan loan;
  enum { SIZE = 50000 };
  td_variable *v = make(&td_ref_variable_type, SIZE, 1);
  assert_true(td_variable_is_writable(v));
  if (td_shared_memory_fd() < 0) skip();
  assert_false(td_variable_is_writable(v));
  assert_null(td_variable_make_exclusive(v, true));
  assert_true(td_variable_is_writable(v) && td_tensor_is_lendable(v->value));
  assert_true(TD_DATA(v->value, float)[SIZE - 1] == 1);
  td_tensor *lent = v->value;
  assert_true(td_loan_offer(lent, getpid(), &step, &loan));
  assert_false(td_variable_is_writable(v));
  assert_null(td_variable_prepare_sparse(v)); /* a private copy, */
  assert_ptr_not_equal(v->value, lent);
  assert_false(td_tensor_is_lendable(v->value));
  assert_true(TD_DATA(v->value, float)[SIZE - 1] == 1);
  assert_true(td_variable_is_writable(v)); /* which stays */
  lent = v->value;
  assert_null(td_variable_prepare_sparse(v));
  assert_null(td_variable_make_exclusive(v, true));
  assert_ptr_equal(v->value, lent);
  td_loans_withdraw(&step);
  td_variable_release(v);
}

/* A large table that nobody borrowed does not take its memory twice when sparse updates begin. */
static void test_private_values(void **state) {
  enum { SIZE = 20 << 20 };
  if (td_shared_memory_fd() < 0) skip();
  td_variable *v = make(&td_ref_variable_type, SIZE, 3);
  td_tensor *value = v->value;
  assert_true(td_tensor_is_lendable(value));
  assert_null(td_variable_prepare_sparse(v));
  assert_ptr_equal(v->value, value);
  assert_false(td_tensor_is_lendable(value) || td_shared_memory_holds(value->data));
  for (int i = 0; i < SIZE; i++) assert_true(TD_DATA(value, float)[i] == 3);
  td_tensor *held = td_tensor_retain(value);
  assert_null(td_variable_prepare_sparse(v)); /* in place, whoever reads */
  assert_ptr_equal(v->value, value);
  td_tensor_release(held);
  td_variable_release(v);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_read),    cmocka_unit_test(test_copy_on_write), cmocka_unit_test(test_sparse),
      cmocka_unit_test(test_threads), cmocka_unit_test(test_lent_values),   cmocka_unit_test(test_private_values),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
