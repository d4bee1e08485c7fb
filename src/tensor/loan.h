/* Loans: tensors that processes of one machine and user read where they lie, in the lender's shared memory
 * (shared_memory.h), instead of copying them.
 *
 * A loan is offered (its place goes to the borrower in a message), taken by the borrower, and returned when the last
 * tensor over it goes, by a word in the lender's memory: no message. Until then the lender holds the tensor. An offer
 * that is not taken when its step ends is withdrawn; what a process that has died borrowed comes back. Elements that
 * are lent do not change: who holds a shared tensor does not write it (tensor.h).
 *
 * Borrower and lender belong to one user and could read and write each other's memory anyway: what the other writes
 * there is checked so that no place outside the shared memory is read, and trusted beyond that.
 *
 * Thread-safe.
 */
#ifndef TD_TENSOR_LOAN_H_
#define TD_TENSOR_LOAN_H_

#include <sys/types.h>

#include "tensor/tensor.h"

/* Where a tensor's elements lie, and the loan's own word. */
typedef struct td_loan {
  uint64_t offset; /* from the beginning of the lender's memory */
  uint32_t slot, ticket;
} td_loan;

/* ---- the side that lends ---- */

/* What tells this process's memory from any other's; 0: there is none. */
uint64_t td_loan_memory(void);
/* Offers the tensor, or, if it is not lendable and not too large, a copy of it, to a process, within a step (any
 * address that is unique to it). False: it cannot be lent. */
bool td_loan_offer(td_tensor *t, pid_t borrower, const void *step, td_loan *out);
/* Offers a fresh buffer of at least `size` bytes, 64-byte aligned, for small tensors that go together: the caller puts
 * them there before the borrower hears of the offer. A borrower that keeps one of them keeps the whole, so there is
 * never more than 64 MB of such buffers. NULL: it cannot be lent. */
char *td_loan_offer_parcel(size_t size, pid_t borrower, const void *step, td_loan *out);
/* The step has ended: offers that were not taken are void. */
void td_loans_withdraw(const void *step);
size_t td_loans_count(void); /* that have not been taken back */

/* ---- the side that borrows ---- */

typedef struct td_lender td_lender; /* another process's memory, mapped */

/* `fd`: the descriptor of that memory in process `pid`. One reference; NULL: it cannot be mapped, or is no such memory.
 * Asked twice for one memory it is the same. */
td_lender *td_lender_open(pid_t pid, int fd);
td_lender *td_lender_retain(td_lender *l);
void td_lender_release(td_lender *l); /* may be NULL */
uint64_t td_lender_memory(const td_lender *l);

/* A loan that was taken. It is returned with the last reference, and each tensor over it has one. */
typedef struct td_borrowed td_borrowed;
/* Takes what was offered, once. INVALID_ARGUMENT: no such slot; ABORTED: the offer was withdrawn, or its lender is
 * gone. */
td_status td_lender_take(td_lender *l, const td_loan *loan, td_borrowed **out) TD_MUST_USE;
bool td_borrowed_is(const td_borrowed *b, const td_loan *loan);
/* A tensor over the elements at `offset` of the lender's memory. INVALID_ARGUMENT, RESOURCE_EXHAUSTED: no such place or
 * shape. */
td_status td_borrowed_tensor(td_borrowed *b, uint64_t offset, td_dtype dtype, int rank, const int64_t *dims,
                             td_tensor **out) TD_MUST_USE;
void td_borrowed_release(td_borrowed *b); /* may be NULL */

size_t td_lenders_count(void); /* memories of other processes that are mapped */

/* ---- both ---- */

/* Takes back what was returned, and what processes borrowed that are gone; lets go of the memory of those that are gone
 * and of which nothing is borrowed. To be called now and then while there are loans, or lenders. */
void td_loans_collect(void);

#endif /* TD_TENSOR_LOAN_H_ */
