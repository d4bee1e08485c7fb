/* Debugging: where the debugger's ops hand over what they watch. An interface only; `debug/` implements it.
 *
 * A watch is named by its key "<node>:<output>:<debug op>" and goes to debug URLs (file://, grpc://). A gated watch
 * reaches a grpc:// URL only while the listener there has enabled its key.
 */
#ifndef TD_FRAMEWORK_DEBUG_H_
#define TD_FRAMEWORK_DEBUG_H_

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "tensor/tensor.h"

typedef struct td_debug_key {
  td_str device; /* full name */
  td_str node, op;
  int32_t slot;
  td_str watch; /* "<node>:<slot>:<op>" */
} td_debug_key;

/* One value on its way to its URLs. The caller owns it until done(). */
typedef struct td_debug_publication td_debug_publication;
struct td_debug_publication {
  const td_debug_key *key;
  td_tensor *tensor; /* borrowed */
  const td_str *urls;
  size_t url_count;
  bool is_gated;
  /* Exactly once; any thread, possibly before publish() returns; no lock held. RESOURCE_EXHAUSTED past the limit of
   * bytes on disk, UNAVAILABLE for a URL of no known scheme, else INTERNAL with every URL's reason. */
  void (*done)(td_debug_publication *p, td_status status);
};

/* The debugger's side of one step. */
typedef struct td_debug_sink td_debug_sink;
typedef struct td_debug_sink_ops {
  /* Whether the listener at this URL wants this watch now; a URL that is not grpc:// always does. Does not block. */
  bool (*is_open)(td_debug_sink *s, td_str url, td_str watch);
  void (*publish)(td_debug_sink *s, td_debug_publication *p); /* does not block */
} td_debug_sink_ops;
struct td_debug_sink { /* embed it first */
  const td_debug_sink_ops *ops;
};

#endif /* TD_FRAMEWORK_DEBUG_H_ */
