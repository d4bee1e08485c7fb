/* Status: what every fallible function returns.
 *
 * A td_status is one pointer: NULL is OK, anything else is a reference-counted error of one of gRPC's codes
 * with a message. Whoever detects an error writes its message, with the offending values; callers propagate it
 * (TD_TRY) or annotate it. A status has one owner: returning it hands it over; td_status_free() ends it.
 * Creating a status never fails: when memory is out, a static RESOURCE_EXHAUSTED stands in.
 *
 * Thread-safety: a status is immutable but for its reference count, which is atomic.
 */
#ifndef TD_BASE_STATUS_H_
#define TD_BASE_STATUS_H_

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#define TD_MUST_USE     __attribute__((warn_unused_result))
#define TD_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* gRPC's and TensorFlow's codes: the same numbers on the wire. */
typedef enum td_code {
  TD_OK = 0,
  TD_CANCELLED = 1,
  TD_UNKNOWN = 2,
  TD_INVALID_ARGUMENT = 3,
  TD_DEADLINE_EXCEEDED = 4,
  TD_NOT_FOUND = 5,
  TD_ALREADY_EXISTS = 6,
  TD_PERMISSION_DENIED = 7,
  TD_RESOURCE_EXHAUSTED = 8,
  TD_FAILED_PRECONDITION = 9,
  TD_ABORTED = 10,
  TD_OUT_OF_RANGE = 11,
  TD_UNIMPLEMENTED = 12,
  TD_INTERNAL = 13,
  TD_UNAVAILABLE = 14,
  TD_DATA_LOSS = 15,
  TD_UNAUTHENTICATED = 16,
} td_code;

typedef struct td_status_rep *td_status;

#define TD_STATUS_OK ((td_status)NULL)

/* A new error. `code` must not be TD_OK. */
td_status td_error(td_code code, const char *fmt, ...) TD_PRINTF(2, 3) TD_MUST_USE;
td_status td_verror(td_code code, const char *fmt, va_list args) TD_MUST_USE;

/* A new error whose message is `size` bytes at `message`, which may hold anything (a peer's message). */
td_status td_error_bytes(td_code code, const char *message, size_t size) TD_MUST_USE;

/* Short forms for the commonest codes. */
#define td_invalid_argument(...)    td_error(TD_INVALID_ARGUMENT, __VA_ARGS__)
#define td_not_found(...)           td_error(TD_NOT_FOUND, __VA_ARGS__)
#define td_internal(...)            td_error(TD_INTERNAL, __VA_ARGS__)
#define td_unimplemented(...)       td_error(TD_UNIMPLEMENTED, __VA_ARGS__)
#define td_failed_precondition(...) td_error(TD_FAILED_PRECONDITION, __VA_ARGS__)
#define td_resource_exhausted(...)  td_error(TD_RESOURCE_EXHAUSTED, __VA_ARGS__)
#define td_aborted(...)             td_error(TD_ABORTED, __VA_ARGS__)
#define td_cancelled(...)           td_error(TD_CANCELLED, __VA_ARGS__)

td_code td_status_code(td_status s);        /* TD_OK for NULL */
const char *td_status_message(td_status s); /* NUL-terminated, "" for OK; lives as long as `s` */
const char *td_code_name(td_code code);     /* "Invalid argument", as TensorFlow 1.x prints it */

td_status td_status_retain(td_status s) TD_MUST_USE; /* another reference to the same error; NULL for NULL */
void td_status_free(td_status s);                    /* drops one reference; NULL is fine */

/* Consumes `s` and returns it with the formatted text after (append) or before (prepend) its message. OK stays
 * OK. The derived mark is kept. */
td_status td_status_append(td_status s, const char *fmt, ...) TD_PRINTF(2, 3) TD_MUST_USE;
td_status td_status_prepend(td_status s, const char *fmt, ...) TD_PRINTF(2, 3) TD_MUST_USE;

/* A derived error is the consequence of another failure (an aborted rendezvous, a cancelled step): a root error
 * is preferred over it when several are combined. td_status_derive() consumes `s` and returns it marked. */
bool td_status_is_derived(td_status s);
td_status td_status_derive(td_status s) TD_MUST_USE;

/* First error wins: keeps *into if it is an error that is not derived, or if `s` is OK or derived while *into is
 * an error; consumes `s` either way. */
void td_status_merge(td_status *into, td_status s);

#define TD_TRY(expr)                 \
  do {                               \
    td_status td_try_s_ = (expr);    \
    if (td_try_s_) return td_try_s_; \
  } while (0)

/* For functions with a cleanup label: sets `status` (a td_status variable in scope) and jumps. */
#define TD_TRY_GOTO(expr)     \
  do {                        \
    status = (expr);          \
    if (status) goto cleanup; \
  } while (0)

#endif /* TD_BASE_STATUS_H_ */
