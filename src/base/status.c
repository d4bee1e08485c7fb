#include "base/status.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct td_status_rep {
  atomic_uint refs; /* 0: static, never freed */
  td_code code;
  bool derived;
  size_t size;
  char message[]; /* `size` bytes and a NUL */
};

static struct td_status_rep out_of_memory = {.refs = 0, .code = TD_RESOURCE_EXHAUSTED, .size = 0};

static struct td_status_rep *rep_create(td_code code, size_t size) {
  struct td_status_rep *rep = malloc(sizeof *rep + size + 1);
  if (!rep) return NULL;
  atomic_init(&rep->refs, 1);
  rep->code = code;
  rep->derived = false;
  rep->size = size;
  rep->message[size] = '\0';
  return rep;
}

td_status td_error_bytes(td_code code, const char *message, size_t size) {
  assert(code != TD_OK);
  struct td_status_rep *rep = rep_create(code, size);
  if (!rep) return &out_of_memory;
  if (size) memcpy(rep->message, message, size);
  return rep;
}

td_status td_verror(td_code code, const char *fmt, va_list args) {
  char small[512];
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(small, sizeof small, fmt, args);
  td_status s;
  if (n < 0) {
    s = td_error_bytes(code, fmt, strlen(fmt));
  } else if ((size_t)n < sizeof small) {
    s = td_error_bytes(code, small, (size_t)n);
  } else {
    struct td_status_rep *rep = rep_create(code, (size_t)n);
    if (rep) vsnprintf(rep->message, (size_t)n + 1, fmt, again);
    s = rep ? rep : &out_of_memory;
  }
  va_end(again);
  return s;
}

td_status td_error(td_code code, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  td_status s = td_verror(code, fmt, args);
  va_end(args);
  return s;
}

td_code td_status_code(td_status s) { return s ? s->code : TD_OK; }

const char *td_status_message(td_status s) {
  if (s == &out_of_memory) return "out of memory";
  return s ? s->message : "";
}

const char *td_code_name(td_code code) {
  static const char *const names[] = {
      "OK",        "Cancelled",      "Unknown",           "Invalid argument",   "Deadline exceeded",
      "Not found", "Already exists", "Permission denied", "Resource exhausted", "Failed precondition",
      "Aborted",   "Out of range",   "Unimplemented",     "Internal",           "Unavailable",
      "Data loss", "Unauthenticated"};
  return (unsigned)code < sizeof names / sizeof *names ? names[code] : "Unknown";
}

td_status td_status_retain(td_status s) {
  if (s && atomic_load_explicit(&s->refs, memory_order_relaxed))
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
  return s;
}

void td_status_free(td_status s) {
  if (!s || !atomic_load_explicit(&s->refs, memory_order_relaxed)) return;
  /* acq_rel: the last owner must see every other owner's reads done before it frees. */
  if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1) free(s);
}

/* `s` with `head` and `tail` around its message. Consumes `s`. */
static td_status wrap(td_status s, const char *head, size_t head_size, const char *tail, size_t tail_size) {
  const char *message = td_status_message(s);
  size_t size = strlen(message);
  struct td_status_rep *rep = rep_create(s->code, head_size + size + tail_size);
  if (!rep) return s;
  memcpy(rep->message, head, head_size);
  memcpy(rep->message + head_size, message, size);
  memcpy(rep->message + head_size + size, tail, tail_size);
  rep->derived = s->derived;
  td_status_free(s);
  return rep;
}

td_status td_status_append(td_status s, const char *fmt, ...) {
  if (!s) return s;
  char *text = NULL;
  va_list args;
  va_start(args, fmt);
  int n = vasprintf(&text, fmt, args);
  va_end(args);
  if (n < 0) return s;
  s = wrap(s, "", 0, text, (size_t)n);
  free(text);
  return s;
}

td_status td_status_prepend(td_status s, const char *fmt, ...) {
  if (!s) return s;
  char *text = NULL;
  va_list args;
  va_start(args, fmt);
  int n = vasprintf(&text, fmt, args);
  va_end(args);
  if (n < 0) return s;
  s = wrap(s, text, (size_t)n, "", 0);
  free(text);
  return s;
}

bool td_status_is_derived(td_status s) { return s && s->derived; }

td_status td_status_derive(td_status s) {
  if (!s || s->derived) return s;
  struct td_status_rep *copy = (struct td_status_rep *)wrap(td_status_retain(s), "", 0, "", 0);
  if (copy == s) { /* out of memory: an unmarked error is better than none */
    td_status_free(copy);
    return s;
  }
  td_status_free(s);
  copy->derived = true;
  return copy;
}

void td_status_merge(td_status *into, td_status s) {
  if (!s) return;
  if (!*into || (td_status_is_derived(*into) && !td_status_is_derived(s))) {
    td_status_free(*into);
    *into = s;
  } else {
    td_status_free(s);
  }
}
