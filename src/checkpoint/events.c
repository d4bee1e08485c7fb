#include "checkpoint/events.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "checkpoint/record.h"
#include "proto/wire.h"

enum { EVENT_TIME = 1, EVENT_STEP, EVENT_VERSION, MOST_PENDING = 1 << 20 };

static void put_time(td_strbuf *event) {
  double seconds = (double)td_wall_us() / 1e6;
  uint64_t bits;
  memcpy(&bits, &seconds, 8);
  td_wire_put_fixed64(event, EVENT_TIME, bits);
}

static td_status create_file(td_events *e, const char *dir, td_str suffix) {
  char host[256] = "unknown";
  if (gethostname(host, sizeof host - 1)) strcpy(host, "unknown");
  char *path =
      td_asprintf("%s%sevents.out.tfevents.%010lld.%s%.*s", dir, !*dir || dir[strlen(dir) - 1] == '/' ? "" : "/",
                  (long long)(td_wall_us() / 1000000), host, TD_STR_ARG(suffix));
  td_status s = td_file_make_dirs(td_str_of(dir));
  if (!s) s = td_file_create(&e->file, path);
  td_free(path);
  return s;
}

td_status td_events_open(td_events *e, td_str dir, td_str suffix) {
  char *path;
  if (suffix.size > 255 || memchr(suffix.data, 0, suffix.size) || memchr(suffix.data, '/', suffix.size))
    return td_invalid_argument("A suffix of %zu bytes cannot be part of a file name", suffix.size);
  TD_TRY(td_file_path(dir, &path));
  td_status s = create_file(e, path, suffix);
  td_free(path);
  if (s) return s;
  td_strbuf event = {0};
  put_time(&event);
  td_wire_put_bytes(&event, EVENT_VERSION, TD_STR("brain.Event:2"));
  s = td_events_add_serialized(e, td_strbuf_view(&event));
  td_strbuf_deinit(&event);
  if (!s) s = td_events_flush(e);
  if (s) td_events_close(e);
  return s;
}

td_status td_events_add_serialized(td_events *e, td_str event) {
  if (!td_strbuf_try_reserve(&e->pending, event.size + TD_RECORD_HEADER + TD_RECORD_FOOTER))
    return td_resource_exhausted("No memory for an event of %zu bytes", event.size);
  td_record_append(&e->pending, event);
  return e->pending.size > MOST_PENDING ? td_events_flush(e) : TD_STATUS_OK;
}

td_status td_events_add(td_events *e, int64_t step, uint32_t field, td_str message) {
  td_strbuf event = {0};
  td_status s = TD_STATUS_OK;
  if (!td_strbuf_try_reserve(&event, message.size + 64))
    return td_resource_exhausted("No memory for an event of %zu bytes", message.size);
  put_time(&event);
  td_wire_put_uint(&event, EVENT_STEP, (uint64_t)step);
  td_wire_put_bytes(&event, field, message);
  s = td_events_add_serialized(e, td_strbuf_view(&event));
  td_strbuf_deinit(&event);
  return s;
}

td_status td_events_flush(td_events *e) {
  if (!e->file.is_open) return td_failed_precondition("An event file is not open");
  td_status s = td_file_append(&e->file, e->pending.data, e->pending.size);
  td_strbuf_deinit(&e->pending);
  return s;
}

void td_events_close(td_events *e) {
  if (e->file.is_open) td_status_free(td_events_flush(e));
  td_file_deinit(&e->file);
  td_strbuf_deinit(&e->pending);
}
