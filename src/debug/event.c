#include "debug/event.h"

#include "base/mem.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

/* Fields of Event, LogMessage, Summary, Summary.Value, SummaryMetadata, PluginData, TensorProto. */
enum { EVENT_TIME = 1, EVENT_GRAPH = 4, EVENT_SUMMARY = 5, EVENT_LOG = 6, LOG_MESSAGE = 2, SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_NODE = 7, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum { METADATA_PLUGIN = 1, PLUGIN_NAME = 1, PLUGIN_CONTENT = 2 };
enum { PROTO_DTYPE = 1, PROTO_SHAPE = 2, PROTO_CONTENT = 4, PROTO_STRING = 8 };

void td_debug_events_deinit(td_debug_events *e) {
  for (size_t i = 0; i < e->count; i++) td_strbuf_deinit(&e->items[i].head);
  td_free(e->items);
  *e = (td_debug_events){0};
}

static void put_time(td_strbuf *b, int64_t wall_us) {
  double time = (double)wall_us;
  uint64_t bits;
  memcpy(&bits, &time, 8);
  td_wire_put_fixed64(b, EVENT_TIME, bits);
}

static void put_json(td_strbuf *b, td_str text) {
  td_strbuf_putc(b, '"');
  for (size_t i = 0; i < text.size; i++) {
    unsigned char c = (unsigned char)text.data[i];
    if (c == '"' || c == '\\')
      td_strbuf_printf(b, "\\%c", c);
    else if (c < 0x20)
      td_strbuf_printf(b, "\\u%04x", c);
    else
      td_strbuf_putc(b, (char)c);
  }
  td_strbuf_putc(b, '"');
}

/* ---- tensors ---- */

/* A Summary.Value up to its tensor. */
static void put_value(td_strbuf *b, const td_debug_key *key, size_t chunks, size_t index) {
  td_strbuf json = {0}, plugin = {0}, metadata = {0};
  td_strbuf_puts(&json, "{\"device\":");
  put_json(&json, key->device);
  td_strbuf_printf(&json, ",\"outputSlot\":%d,\"numChunks\":%zu,\"chunkIndex\":%zu}", key->slot, chunks, index);
  td_wire_put_bytes(&plugin, PLUGIN_NAME, TD_STR("debugger"));
  td_wire_put_bytes(&plugin, PLUGIN_CONTENT, td_strbuf_view(&json));
  td_wire_put_bytes(&metadata, METADATA_PLUGIN, td_strbuf_view(&plugin));
  td_wire_put_bytes(b, VALUE_TAG, key->node);
  td_wire_put_bytes(b, VALUE_NODE, key->watch);
  td_wire_put_bytes(b, VALUE_METADATA, td_strbuf_view(&metadata));
  td_strbuf_deinit(&json);
  td_strbuf_deinit(&plugin);
  td_strbuf_deinit(&metadata);
}

/* The event around a TensorProto that consists of `proto` and, behind it, the bytes of `body`. */
static void wrap(const td_debug_key *key, int64_t wall_us, size_t chunks, size_t index, td_str proto, td_str body,
                 td_debug_event *out) {
  td_strbuf value = {0};
  put_value(&value, key, chunks, index);
  size_t tensor = proto.size + body.size;
  size_t value_size = value.size + td_wire_header_size(VALUE_TENSOR, tensor) + tensor;
  size_t summary_size = td_wire_header_size(SUMMARY_VALUE, value_size) + value_size;
  put_time(&out->head, wall_us);
  td_wire_put_header(&out->head, EVENT_SUMMARY, summary_size);
  td_wire_put_header(&out->head, SUMMARY_VALUE, value_size);
  td_strbuf_append(&out->head, td_strbuf_view(&value));
  td_wire_put_header(&out->head, VALUE_TENSOR, tensor);
  td_strbuf_append(&out->head, proto);
  out->body = body;
  td_strbuf_deinit(&value);
}

/* Type and shape. */
static void put_proto(td_strbuf *b, const td_tensor *t) {
  td_strbuf shape = {0};
  td_shape_encode(t->rank, t->dims, &shape);
  td_wire_put_uint(b, PROTO_DTYPE, t->dtype);
  td_wire_put_bytes(b, PROTO_SHAPE, td_strbuf_view(&shape));
  td_strbuf_deinit(&shape);
}

/* `content` is the whole tensor_content; it may be empty. */
static void content_events(const td_debug_key *key, const td_tensor *t, td_str content, int64_t wall_us, size_t limit,
                           td_debug_events *out) {
  if (!limit) limit = content.size;
  out->count = content.size ? (content.size + limit - 1) / limit : 1;
  out->items = td_new_array(td_debug_event, out->count);
  for (size_t i = 0; i < out->count; i++) {
    td_str body = td_str_n(content.data + i * limit, TD_MIN(limit, content.size - i * limit));
    td_strbuf proto = {0};
    put_proto(&proto, t);
    if (body.size) td_wire_put_header(&proto, PROTO_CONTENT, body.size);
    wrap(key, wall_us, out->count, i, td_strbuf_view(&proto), body, &out->items[i]);
    td_strbuf_deinit(&proto);
  }
}

static td_str string_at(const td_tensor *t, int64_t i) { return td_string_view(TD_DATA(t, td_string) + i); }

/* The end of the chunk of strings that begins at `from`. */
static int64_t chunk_end(const td_tensor *t, int64_t from, size_t limit) {
  size_t size = 0;
  int64_t i = from;
  while (i < t->count && (!limit || size + string_at(t, i).size <= limit)) size += string_at(t, i++).size;
  return i;
}

static td_status string_events(const td_debug_key *key, const td_tensor *t, int64_t wall_us, size_t limit,
                               td_debug_events *out) {
  size_t chunks = 0;
  for (int64_t from = 0; from < t->count || !chunks; chunks++) {
    int64_t end = chunk_end(t, from, limit);
    if (end == from && from < t->count)
      return td_failed_precondition(
          "string value at index %lld from debug node %.*s does not fit gRPC message size limit (%zu)", (long long)from,
          TD_STR_ARG(key->watch), limit);
    from = end;
  }
  out->items = td_new_array(td_debug_event, chunks);
  out->count = chunks;
  int64_t from = 0;
  for (size_t c = 0; c < chunks; c++) {
    int64_t end = chunk_end(t, from, limit);
    td_strbuf proto = {0};
    put_proto(&proto, t);
    for (; from < end; from++) td_wire_put_bytes(&proto, PROTO_STRING, string_at(t, from));
    wrap(key, wall_us, chunks, c, td_strbuf_view(&proto), TD_STR(""), &out->items[c]);
    td_strbuf_deinit(&proto);
  }
  return TD_STATUS_OK;
}

/* Handles, as TensorFlow's string lists: the sizes as varints, then the encodings. */
static void handle_list(const td_tensor *t, td_strbuf *out) {
  td_strbuf all = {0};
  for (int64_t i = 0; i < t->count; i++) {
    size_t before = all.size;
    const td_resource_handle *h = TD_DATA(t, td_resource_handle *)[i];
    if (h) td_resource_handle_encode(h, &all);
    td_wire_put_varint(out, all.size - before);
  }
  td_strbuf_append(out, td_strbuf_view(&all));
  td_strbuf_deinit(&all);
}

/* An encoding of our own: the bytes of the event are all in its head. */
static td_status whole_event(const td_debug_key *key, const td_tensor *t, int64_t wall_us, td_debug_events *out) {
  td_strbuf proto = {0};
  td_status s = TD_STATUS_OK;
  if (t->dtype == TD_RESOURCE) {
    td_strbuf content = {0};
    put_proto(&proto, t);
    handle_list(t, &content);
    td_wire_put_bytes(&proto, PROTO_CONTENT, td_strbuf_view(&content));
    td_strbuf_deinit(&content);
  } else {
    s = td_tensor_encode(t, &proto);
    if (s) { /* a variant that cannot travel: its type and shape do */
      td_status_free(s);
      s = TD_STATUS_OK;
      proto.size = 0;
      put_proto(&proto, t);
    }
  }
  out->items = td_new_array(td_debug_event, 1);
  out->count = 1;
  wrap(key, wall_us, 1, 0, td_strbuf_view(&proto), TD_STR(""), out->items);
  td_strbuf_deinit(&proto);
  return s;
}

td_status td_debug_tensor_events(const td_debug_key *key, const td_tensor *t, int64_t wall_us, size_t chunk_bytes,
                                 td_debug_events *out) {
  *out = (td_debug_events){0};
  if (!t->has_value) {
    content_events(key, t, TD_STR(""), wall_us, chunk_bytes, out);
    return TD_STATUS_OK;
  }
  if (t->dtype == TD_STRING) return string_events(key, t, wall_us, chunk_bytes, out);
  if (!td_dtype_is_pod((td_dtype)t->dtype)) return whole_event(key, t, wall_us, out);
  content_events(key, t, td_str_n(t->data, t->size), wall_us, chunk_bytes, out);
  return TD_STATUS_OK;
}

/* ---- graphs ---- */

void td_debug_graph_event(td_str graph, int64_t wall_us, td_debug_event *out) {
  *out = (td_debug_event){.body = graph};
  put_time(&out->head, wall_us);
  td_wire_put_header(&out->head, EVENT_GRAPH, graph.size);
}

void td_debug_graph_chunks(td_str graph, td_str device, int64_t wall_us, td_debug_events *out) {
  uint64_t hash = td_hash64(graph.data, graph.size);
  out->count = graph.size ? (graph.size + TD_DEBUG_CHUNK_BYTES - 1) / TD_DEBUG_CHUNK_BYTES : 1;
  out->items = td_new_array(td_debug_event, out->count);
  for (size_t i = 0; i < out->count; i++) {
    td_debug_event *e = &out->items[i];
    size_t at = i * TD_DEBUG_CHUNK_BYTES;
    td_strbuf prefix = {0};
    td_strbuf_printf(&prefix, "%llu,%.*s,%lld|%zu|%zu|", (unsigned long long)hash, TD_STR_ARG(device),
                     (long long)wall_us, i, out->count);
    e->body = td_str_n(graph.data + at, TD_MIN(graph.size - at, (size_t)TD_DEBUG_CHUNK_BYTES));
    put_time(&e->head, wall_us);
    td_wire_put_header(&e->head, EVENT_GRAPH, prefix.size + e->body.size);
    td_strbuf_append(&e->head, td_strbuf_view(&prefix));
    td_strbuf_deinit(&prefix);
  }
}

/* ---- metadata of a run ---- */

static void put_names(td_strbuf *b, const char *name, const td_str *names, size_t count) {
  td_strbuf_printf(b, ",\"%s\":[", name);
  for (size_t i = 0; i < count; i++) {
    if (i) td_strbuf_putc(b, ',');
    put_json(b, names[i]);
  }
  td_strbuf_putc(b, ']');
}

void td_debug_metadata_event(const td_debug_metadata *m, td_str grpc_path, int64_t wall_us, td_debug_event *out) {
  td_strbuf json = {0}, log = {0};
  td_strbuf_printf(&json, "{\"global_step\":%lld,\"session_run_index\":%lld,\"executor_step_index\":%lld",
                   (long long)m->global_step, (long long)m->run_index, (long long)m->run_index);
  put_names(&json, "input_names", m->inputs, m->input_count);
  put_names(&json, "output_names", m->outputs, m->output_count);
  put_names(&json, "target_nodes", m->targets, m->target_count);
  if (grpc_path.data) {
    td_strbuf_puts(&json, ",\"grpc_path\":");
    put_json(&json, grpc_path);
  }
  td_strbuf_putc(&json, '}');
  td_wire_put_bytes(&log, LOG_MESSAGE, td_strbuf_view(&json));
  *out = (td_debug_event){.body = TD_STR("")};
  put_time(&out->head, wall_us);
  td_wire_put_bytes(&out->head, EVENT_LOG, td_strbuf_view(&log));
  td_strbuf_deinit(&json);
  td_strbuf_deinit(&log);
}
