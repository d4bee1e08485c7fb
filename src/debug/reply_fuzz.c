/* A listener's reply, and the URLs, keys and metadata that it opens gates for. The first byte is the size of a URL. */
#include <stdint.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "debug/event.h"
#include "debug/gates.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  td_log_set_level(TD_LOG_ERROR);
  size_t n = TD_MIN((size_t)data[0], size - 1);
  td_strbuf url = {0};
  td_strbuf_puts(&url, "grpc://");
  td_strbuf_append(&url, td_str_n(data + 1, n));
  td_str view = td_strbuf_view(&url), address = td_debug_url_address(view), path = td_debug_url_path(view);
  if (address.size + path.size + 7 != view.size) abort();
  td_debug_gates *g = td_debug_gates_create();
  td_str reply = td_str_n(data + 1 + n, size - 1 - n);
  bool ok = td_debug_gates_apply(g, address, reply);
  if (td_debug_gates_apply(g, address, reply) != ok) abort();
  td_debug_gates_destroy(g);
  td_debug_event e;
  td_debug_metadata m = {.inputs = &view, .input_count = 1, .outputs = &reply, .output_count = 1};
  td_debug_metadata_event(&m, path, 1, &e);
  td_strbuf_deinit(&e.head);
  td_strbuf_deinit(&url);
  return 0;
}
