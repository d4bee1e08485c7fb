#include "cluster/messages.h"

#include "base/clock.h"
#include "base/mem.h"
#include "proto/message.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

enum { COPY_BELOW = 2048 };   /* contents smaller than this are copied behind the header */
enum { MAX_NAMES = 1 << 20 }; /* tensors and names of one request */

static void release_tensor(void *t) { td_tensor_release(t); }

/* A TensorProto on its way into a message. */
typedef struct outgoing_tensor {
  td_tensor *t;
  td_strbuf text; /* the whole of one that is not plain; */
  uint8_t header[TD_TENSOR_HEADER_MAX];
  size_t header_size; /* of others, what goes before the raw contents */
  size_t size;        /* of the whole */
} outgoing_tensor;

static td_status prepare(td_tensor *t, outgoing_tensor *o) {
  o->t = t;
  o->text = (td_strbuf){0};
  if (!td_dtype_is_pod((td_dtype)t->dtype)) {
    td_status s = td_tensor_encode(t, &o->text);
    if (s) td_strbuf_deinit(&o->text);
    o->size = o->text.size;
    return s;
  }
  o->header_size = td_tensor_proto_header(t, o->header);
  o->size = o->header_size + t->size;
  return TD_STATUS_OK;
}

static void put_header(td_payload *p, uint32_t number, size_t size) {
  uint8_t bytes[2 * TD_WIRE_MAX_VARINT], *end = td_wire_write_varint(bytes, (uint64_t)number << 3 | TD_WIRE_BYTES);
  end = td_wire_write_varint(end, size);
  td_payload_copy(p, bytes, (size_t)(end - bytes));
}

static void put(td_payload *p, outgoing_tensor *o) {
  td_tensor *t = o->t;
  if (o->text.size) {
    td_payload_take(p, td_strbuf_take(&o->text), o->size);
    return;
  }
  td_payload_copy(p, o->header, o->header_size);
  if (t->size < COPY_BELOW)
    td_payload_copy(p, t->data, t->size);
  else
    td_payload_add(p, t->data, t->size, release_tensor, td_tensor_retain(t));
}

td_status td_payload_add_tensor(td_payload *p, uint32_t number, td_tensor *t) {
  outgoing_tensor o;
  TD_TRY(prepare(t, &o));
  put_header(p, number, o.size);
  put(p, &o);
  return TD_STATUS_OK;
}

td_status td_payload_add_named_tensor(td_payload *p, uint32_t number, td_str name, td_tensor *t) {
  outgoing_tensor o;
  TD_TRY(prepare(t, &o));
  put_header(p, number, td_wire_header_size(1, name.size) + name.size + td_wire_header_size(2, o.size) + o.size);
  put_header(p, 1, name.size);
  td_payload_copy(p, name.data, name.size);
  put_header(p, 2, o.size);
  put(p, &o);
  return TD_STATUS_OK;
}

td_status td_payload_add_message(td_payload *p, const ProtobufCMessage *m) {
  td_strbuf b = {0};
  TD_TRY(td_message_encode(m, &b));
  size_t size = b.size;
  td_payload_take(p, td_strbuf_take(&b), size);
  return TD_STATUS_OK;
}

void td_named_tensors_release(td_named_tensors *t) {
  for (size_t i = 0; i < t->count; i++) td_tensor_release(t->items[i].tensor);
  t->count = 0;
}

/* ---- reading requests ---- */

static td_status malformed(const char *what, const td_wire *w, td_str all) {
  return td_invalid_argument("malformed %s at byte %zu of %zu", what, (size_t)((const char *)w->next - all.data),
                             all.size);
}

/* Calls visit for each field. */
typedef td_status (*field_fn)(void *arg, const td_wire_field *f);

static td_status each_field(td_str bytes, const char *what, field_fn visit, void *arg) {
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false;
  while (td_wire_next(&w, &f, &bad)) TD_TRY(visit(arg, &f));
  return bad ? malformed(what, &w, bytes) : TD_STATUS_OK;
}

/* How often the field `number` occurs, so that a list can be laid out once. */
static size_t count_fields(td_str bytes, uint32_t number) {
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false;
  size_t n = 0;
  while (td_wire_next(&w, &f, &bad)) n += f.number == number && f.type == TD_WIRE_BYTES;
  return n;
}

/* A list needs many times the bytes that its empty elements have on the wire. */
static td_status check_counts(td_str bytes, const char *what, uint32_t a, uint32_t b, uint32_t c) {
  size_t n = count_fields(bytes, a) + count_fields(bytes, b) + count_fields(bytes, c);
  return n > MAX_NAMES
             ? td_resource_exhausted("%s of %zu tensors and names; at most %d can be taken", what, n, MAX_NAMES)
             : TD_STATUS_OK;
}

typedef struct named_parts {
  td_str name, tensor;
  bool has_tensor;
} named_parts;

static td_status named_field(void *arg, const td_wire_field *f) {
  named_parts *p = arg;
  if (f->type != TD_WIRE_BYTES) return TD_STATUS_OK;
  if (f->number == 1) p->name = f->bytes;
  if (f->number == 2) p->tensor = f->bytes, p->has_tensor = true;
  return TD_STATUS_OK;
}

static td_status add_named(td_named_tensors *list, td_str bytes, const char *what) {
  named_parts p = {0};
  TD_TRY(each_field(bytes, "NamedTensorProto", named_field, &p));
  td_named_tensor *item = &list->items[list->count];
  *item = (td_named_tensor){.name = p.name};
  td_status s = td_tensor_decode(p.tensor, &item->tensor);
  if (s && td_status_code(s) != TD_RESOURCE_EXHAUSTED) {
    td_status bad = td_invalid_argument("Invalid TensorProto for %s %zu: %s", what, list->count, td_status_message(s));
    td_status_free(s);
    return bad;
  }
  if (!s) list->count++;
  return s;
}

td_status td_named_tensor_decode(td_str bytes, td_arena *arena, td_named_tensors *out) {
  *out = (td_named_tensors){.items = td_arena_array(arena, td_named_tensor, 1)};
  return add_named(out, bytes, "tensor");
}

static td_status run_step_field(void *arg, const td_wire_field *f) {
  td_run_step_request *r = arg;
  if (f->type == TD_WIRE_BYTES) {
    switch (f->number) {
      case 1:
        r->session = f->bytes;
        break;
      case 2:
        return add_named(&r->feeds, f->bytes, "feed value");
      case 3:
        r->fetches[r->fetch_count++] = f->bytes;
        break;
      case 4:
        r->targets[r->target_count++] = f->bytes;
        break;
      case 5:
        r->options = f->bytes;
        break;
      case 6:
        r->partial_run_handle = f->bytes;
        break;
    }
  } else if (f->type == TD_WIRE_VARINT) {
    if (f->number == 7) r->store_errors_in_body = f->value;
    if (f->number == 8) r->request_id = (int64_t)f->value;
  }
  return TD_STATUS_OK;
}

td_status td_run_step_request_decode(td_str bytes, td_arena *arena, td_run_step_request *out) {
  *out = (td_run_step_request){0};
  TD_TRY(check_counts(bytes, "RunStepRequest", 2, 3, 4));
  out->feeds.items = td_arena_array(arena, td_named_tensor, count_fields(bytes, 2) + 1);
  out->fetches = td_arena_array(arena, td_str, count_fields(bytes, 3) + 1);
  out->targets = td_arena_array(arena, td_str, count_fields(bytes, 4) + 1);
  return each_field(bytes, "RunStepRequest", run_step_field, out);
}

static td_status experimental_field(void *arg, const td_wire_field *f) {
  td_run_options_view *o = arg;
  if (f->number == 1 && f->type == TD_WIRE_VARINT) o->collective_graph_key = (int64_t)f->value;
  return TD_STATUS_OK;
}

static td_status options_field(void *arg, const td_wire_field *f) {
  td_run_options_view *o = arg;
  if (f->type == TD_WIRE_VARINT) {
    if (f->number == 1) o->trace_level = (int)f->value;
    if (f->number == 2) o->timeout_ms = (int64_t)f->value;
    if (f->number == 5) o->output_partition_graphs = f->value;
  } else if (f->number == 6 && f->type == TD_WIRE_BYTES) {
    o->debug = count_fields(f->bytes, 4) ? f->bytes : TD_STR("");
  } else if (f->number == 8 && f->type == TD_WIRE_BYTES) {
    return each_field(f->bytes, "RunOptions.Experimental", experimental_field, o);
  }
  return TD_STATUS_OK;
}

td_status td_run_options_decode(td_str bytes, td_run_options_view *out) {
  *out = (td_run_options_view){0};
  return each_field(bytes, "RunOptions", options_field, out);
}

static td_status run_callable_field(void *arg, const td_wire_field *f) {
  td_run_callable_request *r = arg;
  if (f->number == 1 && f->type == TD_WIRE_BYTES) r->session = f->bytes;
  if (f->number == 2 && f->type == TD_WIRE_VARINT) r->handle = (int64_t)f->value;
  if (f->number == 4 && f->type == TD_WIRE_VARINT) r->request_id = (int64_t)f->value;
  if (f->number == 3 && f->type == TD_WIRE_BYTES) {
    td_status s = td_tensor_decode(f->bytes, &r->feeds.items[r->feeds.count].tensor);
    if (s) return td_status_prepend(s, "Invalid TensorProto for feed value %zu: ", r->feeds.count);
    r->feeds.count++;
  }
  return TD_STATUS_OK;
}

td_status td_run_callable_request_decode(td_str bytes, td_arena *arena, td_run_callable_request *out) {
  *out = (td_run_callable_request){0};
  TD_TRY(check_counts(bytes, "RunCallableRequest", 3, 0, 0));
  out->feeds.items = td_arena_array(arena, td_named_tensor, count_fields(bytes, 3) + 1);
  return each_field(bytes, "RunCallableRequest", run_callable_field, out);
}

static td_status exec_opts_field(void *arg, const td_wire_field *f) {
  td_run_graph_request *r = arg;
  if (f->number == 1) r->record_costs = f->value;
  if (f->number == 3) r->record_timeline = f->value;
  if (f->number == 4) r->record_partition_graphs = f->value;
  return TD_STATUS_OK;
}

static td_status run_graph_field(void *arg, const td_wire_field *f) {
  td_run_graph_request *r = arg;
  if (f->type == TD_WIRE_BYTES) {
    switch (f->number) {
      case 1:
        r->graph_handle = f->bytes;
        break;
      case 3:
        return add_named(&r->sends, f->bytes, "send");
      case 4:
        r->recv_keys[r->recv_key_count++] = f->bytes;
        break;
      case 5:
        return each_field(f->bytes, "ExecutorOpts", exec_opts_field, r);
      case 8:
        r->session = f->bytes;
        break;
      case TD_RUN_GRAPH_ENDED_STEPS:
        r->ended_steps = f->bytes;
        break;
    }
  } else if (f->type == TD_WIRE_VARINT) {
    switch (f->number) {
      case 2:
        r->step_id = (int64_t)f->value;
        break;
      case 6:
        r->is_partial = f->value;
        break;
      case 7:
        r->is_last_partial_run = f->value;
        break;
      case 9:
        r->store_errors_in_body = f->value;
        break;
      case 10:
        r->create_worker_session_called = f->value;
        break;
      case 11:
        r->request_id = (int64_t)f->value;
        break;
    }
  }
  return TD_STATUS_OK;
}

td_status td_run_graph_request_decode(td_str bytes, td_arena *arena, td_run_graph_request *out) {
  *out = (td_run_graph_request){0};
  TD_TRY(check_counts(bytes, "RunGraphRequest", 3, 4, 0));
  out->sends.items = td_arena_array(arena, td_named_tensor, count_fields(bytes, 3) + 1);
  out->recv_keys = td_arena_array(arena, td_str, count_fields(bytes, 4) + 1);
  return each_field(bytes, "RunGraphRequest", run_graph_field, out);
}

td_status td_recv_tensor_response_encode(td_tensor *t, bool is_dead, td_payload *out) {
  td_strbuf head = {0};
  td_wire_put_uint(&head, 2, is_dead);
  td_wire_put_uint(&head, 3, (uint64_t)td_wall_us());
  td_payload_copy(out, head.data, head.size);
  td_strbuf_deinit(&head);
  if (t) return td_payload_add_tensor(out, 1, t);
  /* A dead tensor: any valid type, no elements. */
  static const uint8_t none[] = {0x0a, 0x08, 0x08, TD_FLOAT, 0x12, 0x04, 0x12, 0x02, 0x08, 0x00};
  td_payload_copy(out, none, sizeof none);
  return TD_STATUS_OK;
}

/* ---- statuses ---- */

static const td_str derived_mark = {"[_Derived_]", 11};
static const td_str derived_key = {"type.googleapis.com/tensorflow.DerivedStatus", 44};

td_status td_status_from_peer(int code, td_str message) {
  if (code == TD_OK) return TD_STATUS_OK;
  bool derived = td_str_starts(message, derived_mark);
  if (derived) message = td_str_n(message.data + derived_mark.size, message.size - derived_mark.size);
  td_status s =
      td_error_bytes(code > 0 && code <= TD_UNAUTHENTICATED ? (td_code)code : TD_UNKNOWN, message.data, message.size);
  return derived ? td_status_derive(s) : s;
}

td_status td_status_from_call(td_status status, td_str details) {
  if (!status) return status;
  td_code code = td_status_code(status);
  td_str message = td_str_of(td_status_message(status));
  td_status s = td_status_from_peer(code, message);
  td_status_free(status);
  bool marked = details.size && memmem(details.data, details.size, derived_key.data, derived_key.size);
  return code == TD_CANCELLED || marked ? td_status_derive(s) : s;
}

char *td_status_marked_message(td_status s) {
  return td_asprintf("%s%s", td_status_is_derived(s) ? derived_mark.data : "", td_status_message(s));
}

void td_call_fail_peer(td_call *call, td_status status) {
  if (!td_status_is_derived(status)) {
    td_call_fail(call, status, (td_str){0});
    return;
  }
  /* GrpcPayloadContainer{payloads{key, value}} */
  td_strbuf details = {0}, entry = {0};
  td_wire_put_bytes(&entry, 1, derived_key);
  td_wire_put_bytes(&entry, 2, (td_str){"", 0});
  td_wire_put_bytes(&details, 1, td_strbuf_view(&entry));
  char *message = td_status_marked_message(status);
  td_status marked = td_error_bytes(td_status_code(status), message, strlen(message));
  td_call_fail(call, marked, td_strbuf_view(&details));
  td_status_free(status);
  td_free(message);
  td_strbuf_deinit(&entry);
  td_strbuf_deinit(&details);
}

void td_call_fail_client(td_call *call, td_status status) { td_call_fail(call, status, (td_str){0}); }
