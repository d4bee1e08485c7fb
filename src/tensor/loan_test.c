/* Loans, with both sides in this process: what is lent, for how long, and what a borrower may say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/testing.h"
#include "tensor/loan.h"
#include "tensor/memory.h"
#include "tensor/shared_memory.h"

enum { COUNT = 100000, THREADS = 4, ROUNDS = 300 };
static const size_t MIB = 1 << 20;

static const int64_t dims[] = {COUNT};
static char a_step, another_step; /* their addresses */
static td_lender *lender;

static int open_lender(void **state) {
  assert_true(td_shared_memory_fd() >= 0);
  lender = td_lender_open(getpid(), td_shared_memory_fd());
  assert_non_null(lender);
  assert_int_equal(td_lender_memory(lender), td_loan_memory());
  return 0;
}

static int close_lender(void **state) {
  td_lender_release(lender);
  td_loans_collect();
  assert_int_equal(td_loans_count(), 0);
  td_memory_trim(0);
  return 0;
}

static td_tensor *make(float first) {
  td_tensor *t;
  must(td_tensor_create_dims(TD_FLOAT, 1, dims, &t));
  for (int i = 0; i < COUNT; i++) TD_DATA(t, float)[i] = first + (float)i;
  return t;
}

static void expect(const td_tensor *t, float first) {
  assert_int_equal(t->count, COUNT);
  for (int i = 0; i < COUNT; i++) assert_true(TD_DATA(t, float)[i] == first + (float)i);
}

static td_loan offer(td_tensor *t, const void *step) {
  td_loan loan;
  assert_true(td_loan_offer(t, getpid(), step, &loan));
  return loan;
}

static td_status take_as(const td_loan *loan, td_dtype type, const int64_t *size, td_tensor **out) {
  td_borrowed *b;
  TD_TRY(td_lender_take(lender, loan, &b));
  td_status s = td_borrowed_tensor(b, loan->offset, type, 1, size, out);
  td_borrowed_release(b);
  return s;
}

static td_tensor *take(const td_loan *loan) {
  td_tensor *t;
  must(take_as(loan, TD_FLOAT, dims, &t));
  return t;
}

static void what_is_lent_is_not_copied(void **state) {
  td_tensor *first = make(0);
  td_loan loan = offer(first, &a_step); /* made before anybody borrowed: a copy is lent */
  td_tensor *got = take(&loan);
  expect(got, 0);
  td_tensor_release(first);
  td_tensor_release(got);
  td_tensor *t = make(1);
  assert_true(td_tensor_is_lendable(t));
  loan = offer(t, &a_step);
  assert_int_equal(loan.offset, td_shared_memory_offset(t->data));
  got = take(&loan);
  expect(got, 1);
  TD_DATA(t, float)[7] = -1; /* nobody may; but so it shows */
  assert_true(TD_DATA(got, float)[7] == -1);
  td_tensor_release(got);
  td_tensor_release(t);
}

static void nobody_writes_what_is_lent(void **state) {
  td_tensor *t = make(2);
  td_loan loan = offer(t, &a_step);
  td_loans_collect();
  assert_false(td_tensor_is_exclusive(t));
  td_tensor *got = take(&loan), *view = td_tensor_slice(got, 10, 20), *copy;
  assert_true(td_tensor_is_foreign(got) && td_tensor_is_foreign(view));
  assert_false(td_tensor_is_exclusive(got));
  td_tensor_release(got);
  assert_false(td_tensor_is_exclusive(view)); /* the only one left */
  td_loans_collect();
  assert_int_equal(td_loans_count(), 1);
  must(td_tensor_copy(view, &copy));
  assert_true(td_tensor_is_exclusive(copy) && !td_tensor_is_foreign(copy));
  assert_true(TD_DATA(copy, float)[0] == 12);
  td_tensor_release(copy);
  td_tensor_release(view);
  td_loans_collect();
  assert_int_equal(td_loans_count(), 0);
  assert_true(td_tensor_is_exclusive(t));
  td_tensor_release(t);
}

static void an_offer_ends_with_its_step(void **state) {
  td_tensor *a = make(3), *b = make(4), *c = make(5), *got;
  td_loan not_taken = offer(a, &a_step), taken = offer(b, &a_step), other = offer(c, &another_step);
  got = take(&taken);
  td_loans_withdraw(&a_step);
  td_loans_withdraw(&a_step); /* may be a new step's address by now */
  assert_int_equal(td_loans_count(), 2);
  assert_true(td_tensor_is_exclusive(a));
  td_tensor *none = NULL;
  must_fail(take_as(&not_taken, TD_FLOAT, dims, &none), TD_ABORTED, "withdrawn");
  td_loan again = offer(a, &another_step); /* its slot, but not its ticket */
  assert_int_equal(again.slot, not_taken.slot);
  must_fail(take_as(&not_taken, TD_FLOAT, dims, &none), TD_ABORTED, "withdrawn");
  expect(got, 4);
  td_tensor_release(got);
  got = take(&again);
  must_fail(take_as(&again, TD_FLOAT, dims, &none), TD_ABORTED, "withdrawn"); /* it is taken */
  expect(got, 3);
  td_tensor_release(got);
  got = take(&other);
  expect(got, 5);
  td_tensor_release(got);
  assert_null(none);
  td_tensor_release(a);
  td_tensor_release(b);
  td_tensor_release(c);
}

static void what_cannot_be_lent(void **state) {
  td_loan loan;
  td_tensor *t;
  must(td_tensor_create_dims(TD_STRING, 1, dims, &t));
  assert_false(td_loan_offer(t, getpid(), &a_step, &loan));
  td_tensor_release(t);
  must(td_tensor_create_dims(TD_FLOAT, 0, NULL, &t)); /* small ones travel in messages */
  assert_false(td_loan_offer(t, getpid(), &a_step, &loan));
  td_tensor_release(t);
  must(td_tensor_create_dims(TD_FLOAT, 1, (int64_t[]){40 << 20}, &t));
  offer(t, &a_step);
  td_tensor *most = td_tensor_slice(t, 1, t->count); /* begins at an odd place, and is too large for a copy */
  assert_false(td_loan_offer(most, getpid(), &a_step, &loan));
  td_tensor_release(most);
  td_loans_withdraw(&a_step);
  td_tensor_keep_private(t);
  assert_false(td_loan_offer(t, getpid(), &a_step, &loan));
  td_tensor_release(t);
  t = make(0);
  assert_false(td_loan_offer(t, 1 << 29, &a_step, &loan)); /* no such process */
  td_tensor *all = td_tensor_slice(t, 1, COUNT);           /* a copy is lent */
  loan = offer(all, &a_step);
  assert_int_not_equal(loan.offset, td_shared_memory_offset(all->data));
  td_loans_withdraw(&a_step);
  td_tensor_release(all);
  td_tensor_release(t);
}

static void places_are_checked(void **state) {
  td_tensor *t = make(0), *got = NULL;
  const uint64_t good = td_shared_memory_offset(t->data);
  const struct {
    uint64_t offset;
    td_dtype type;
    int64_t size;
  } bad[] = {
      {good + 4, TD_FLOAT, COUNT},   {0, TD_FLOAT, COUNT}, /* the slots themselves */
      {1ull << 40, TD_FLOAT, COUNT}, {UINT64_MAX & ~63ull, TD_FLOAT, COUNT},
      {good, TD_FLOAT, 1ll << 40}, /* goes on behind the end */
      {good, TD_FLOAT, INT64_MAX},   {good, TD_FLOAT, -1},
      {good, TD_STRING, 1}, /* pointers of another process */
      {good, TD_RESOURCE, 1},        {good, (td_dtype)999, 1},
      {good, (td_dtype)0, 1},
  };
  for (size_t i = 0; i < TD_COUNT(bad); i++) {
    td_loan loan = offer(t, &a_step);
    loan.offset = bad[i].offset;
    td_status s = take_as(&loan, bad[i].type, &bad[i].size, &got);
    assert_int_equal(td_status_code(s), bad[i].size == INT64_MAX ? TD_RESOURCE_EXHAUSTED : TD_INVALID_ARGUMENT);
    td_status_free(s);
    assert_null(got);
  }
  const td_loan good_one = offer(t, &a_step);
  for (int i = 0; i < 2; i++) {
    td_loan loan = {good_one.offset, i ? UINT32_MAX : TD_SHARED_SLOTS, good_one.ticket};
    must_fail(take_as(&loan, TD_FLOAT, dims, &got), TD_INVALID_ARGUMENT, "No tensor can be lent with slot");
  }
  got = take(&good_one);
  td_tensor_release(got);
  td_loans_collect();
  assert_int_equal(td_loans_count(), 0); /* those with a bad place came back too */
  td_tensor_release(t);
}

/* Of one loan, which is returned when all of them are gone. */
static void small_tensors_share_a_parcel(void **state) {
  enum { SMALL = 100, COUNT_OF = 50, ROOM = 448 };
  td_loan loan;
  td_borrowed *b;
  td_tensor *got[COUNT_OF];
  const int64_t size = SMALL;
  char *room = td_loan_offer_parcel((size_t)COUNT_OF * ROOM, getpid(), &a_step, &loan);
  assert_non_null(room);
  assert_int_equal(loan.offset, td_shared_memory_offset(room));
  for (int i = 0; i < COUNT_OF; i++)
    for (int k = 0; k < SMALL; k++) ((float *)(void *)(room + i * ROOM))[k] = (float)(i * SMALL + k);
  must(td_lender_take(lender, &loan, &b));
  assert_true(td_borrowed_is(b, &loan));
  for (int i = 0; i < COUNT_OF; i++)
    must(td_borrowed_tensor(b, loan.offset + (uint64_t)i * ROOM, TD_FLOAT, 1, &size, &got[i]));
  td_borrowed_release(b);
  td_loans_withdraw(&a_step);
  for (int i = 0; i < COUNT_OF; i++) {
    td_loans_collect();
    assert_int_equal(td_loans_count(), 1);
    assert_true(td_tensor_is_foreign(got[i]) && !td_tensor_is_exclusive(got[i]));
    for (int k = 0; k < SMALL; k++) assert_true(TD_DATA(got[i], float)[k] == (float)(i * SMALL + k));
    td_tensor_release(got[i]);
  }
  td_loans_collect();
  assert_int_equal(td_loans_count(), 0);
}

/* They keep more memory from going back than a borrower may need of them. */
static void parcels_are_bounded(void **state) {
  td_loan loan, last;
  size_t n = 0;
  while (td_loan_offer_parcel(MIB, getpid(), &a_step, &loan)) {
    last = loan;
    n++;
  }
  assert_int_equal(n, 64);
  td_borrowed *b;
  must(td_lender_take(lender, &last, &b));
  td_loans_withdraw(&a_step);
  assert_null(td_loan_offer_parcel(64 * MIB, getpid(), &a_step, &loan)); /* one is still out */
  td_borrowed_release(b);
  assert_non_null(td_loan_offer_parcel(64 * MIB, getpid(), &a_step, &loan));
  assert_null(td_loan_offer_parcel(1, getpid(), &a_step, &loan));
  td_loans_withdraw(&a_step);
  assert_null(td_loan_offer_parcel(1, 1 << 29, &a_step, &loan)); /* no such process */
  assert_null(td_loan_offer_parcel(SIZE_MAX, getpid(), &a_step, &loan));
  assert_int_equal(td_loans_count(), 0);
}

static void only_shared_memory_is_mapped(void **state) {
  int pipes[2], file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  assert_int_equal(pipe(pipes), 0);
  int shrinks = memfd_create("shrinks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  int small = memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  int other = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING); /* large and sealed, but not ours */
  assert_int_equal(ftruncate(shrinks, 1 << 20) | ftruncate(small, 4096) | ftruncate(other, 1 << 20), 0);
  assert_int_equal(fcntl(small, F_ADD_SEALS, F_SEAL_SHRINK) | fcntl(other, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const int none[] = {pipes[0], pipes[1], file, shrinks, small, other, -1, 100000};
  for (size_t i = 0; i < TD_COUNT(none); i++) assert_null(td_lender_open(getpid(), none[i]));
  const int fds[] = {pipes[0], pipes[1], file, shrinks, small, other};
  for (size_t i = 0; i < TD_COUNT(fds); i++) close(fds[i]);
  td_lender *again = td_lender_open(getpid(), td_shared_memory_fd());
  assert_ptr_equal(again, lender);
  td_lender_release(again);
}

/* What a process borrowed comes back when it dies, whether it had taken it or not. */
static void the_dead_return_all(void **state) {
  int go[2];
  char byte;
  assert_int_equal(pipe(go), 0);
  pid_t child = fork();
  if (!child) {
    close(go[1]);
    _exit(read(go[0], &byte, 1) != 0);
  }
  td_tensor *t = make(6);
  td_loan loans[3];
  for (int i = 0; i < 3; i++) assert_true(td_loan_offer(t, child, &a_step, &loans[i]));
  td_tensor *got = take(&loans[1]); /* in its place */
  td_loans_collect();
  assert_int_equal(td_loans_count(), 3);
  close(go[1]);
  assert_int_equal(waitpid(child, NULL, 0), child);
  td_loans_collect();
  assert_int_equal(td_loans_count(), 0);
  assert_true(td_tensor_is_exclusive(t));
  td_tensor_release(got); /* too late, and harmless */
  close(go[0]);
  td_tensor_release(t);
}

/* A dead process's memory is let go of as soon as nothing is borrowed of it. */
static void the_dead_lend_nothing(void **state) {
  int go[2];
  char byte;
  td_lender_release(lender);
  assert_int_equal(td_lenders_count(), 0);
  assert_int_equal(pipe(go), 0);
  pid_t child = fork(); /* it has inherited the descriptor */
  if (!child) {
    close(go[1]);
    _exit(read(go[0], &byte, 1) != 0);
  }
  lender = td_lender_open(child, td_shared_memory_fd());
  assert_non_null(lender);
  td_tensor *t = make(8), *none = NULL;
  td_loan first = offer(t, &a_step), second = offer(t, &a_step);
  td_tensor *got = take(&first);
  close(go[1]);
  assert_int_equal(waitpid(child, NULL, 0), child);
  td_loans_collect();
  assert_int_equal(td_lenders_count(), 1);
  expect(got, 8);
  td_tensor_release(got);
  td_loans_collect();
  assert_int_equal(td_lenders_count(), 0);
  must_fail(take_as(&second, TD_FLOAT, dims, &none), TD_ABORTED, "gone");
  td_lender *other = td_lender_open(getpid(), td_shared_memory_fd()); /* mapped anew */
  assert_ptr_not_equal(other, lender);
  td_lender_release(lender);
  lender = other;
  td_loans_withdraw(&a_step);
  td_tensor_release(t);
  close(go[0]);
}

static void slots_run_out(void **state) {
  td_tensor *t = make(7);
  td_loan loan;
  size_t n = 0;
  while (td_loan_offer(t, getpid(), &a_step, &loan)) n++;
  assert_int_equal(n, TD_SHARED_SLOTS);
  assert_int_equal(td_loans_count(), n);
  td_loans_withdraw(&a_step);
  assert_int_equal(td_loans_count(), 0);
  assert_true(td_tensor_is_exclusive(t));
  td_tensor_release(t);
}

/* What was lent reads as it was until it is returned, though its lender goes on to write into free memory. */
static void *lend_and_borrow(void *arg) {
  char step;
  float first = (float)(int)(intptr_t)arg * ROUNDS;
  td_tensor *held[8] = {0};
  for (int i = 0; i < ROUNDS; i++) {
    td_tensor *t = make(first + (float)i);
    td_loan loan = offer(t, &step);
    td_tensor_release(t); /* as a step that has sent it */
    int at = i % 8;
    if (held[at]) expect(held[at], first + (float)(i - 8));
    td_tensor_release(held[at]);
    held[at] = NULL;
    if (i % 3) {
      held[at] = take(&loan);
    } else {
      td_loans_withdraw(&step);
      td_tensor *none;
      must_fail(take_as(&loan, TD_FLOAT, dims, &none), TD_ABORTED, "withdrawn");
    }
  }
  for (int i = 0; i < 8; i++) td_tensor_release(held[i]);
  td_loans_withdraw(&step);
  return NULL;
}

static void many_at_once(void **state) {
  pthread_t threads[THREADS];
  for (intptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, lend_and_borrow, (void *)i);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  td_loans_collect();
  assert_int_equal(td_loans_count(), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_lent_is_not_copied),
      cmocka_unit_test(nobody_writes_what_is_lent),
      cmocka_unit_test(an_offer_ends_with_its_step),
      cmocka_unit_test(what_cannot_be_lent),
      cmocka_unit_test(places_are_checked),
      cmocka_unit_test(small_tensors_share_a_parcel),
      cmocka_unit_test(parcels_are_bounded),
      cmocka_unit_test(only_shared_memory_is_mapped),
      cmocka_unit_test(the_dead_return_all),
      cmocka_unit_test(the_dead_lend_nothing),
      cmocka_unit_test(slots_run_out),
      cmocka_unit_test(many_at_once),
  };
  return cmocka_run_group_tests(tests, open_lender, close_lender);
}
