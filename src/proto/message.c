#include "proto/message.h"

#include <inttypes.h>

#include "base/mem.h"
#include "proto/wire.h"

static const size_t MAX_MESSAGE = ((size_t)1 << 31) - 1;
static const size_t MIB = (size_t)1 << 20;

/* A singular sub-message may come again and is merged with what came before: a few times is a writer's habit (merging
 * by concatenation), more is an attack on quadratic time. */
enum { MAX_REPEATS = 8, MAX_FIELDS = 64, MAX_MERGED = 16 << 20 };

typedef struct walk {
  const ProtobufCMessageDescriptor *type; /* of the whole message, for errors */
  const uint8_t *start;
  size_t memory; /* that the decoded message would take, about and at least */
  bool merges;   /* some singular sub-message comes again */
} walk;

static td_status malformed(const walk *w, const void *at, const char *what) {
  return td_invalid_argument("Malformed %s: %s at byte %td", w->type->short_name, what, (const uint8_t *)at - w->start);
}

static td_wire_type wire_type(ProtobufCType type) {
  switch (type) {
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
      return TD_WIRE_FIXED32;
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
      return TD_WIRE_FIXED64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
      return TD_WIRE_BYTES;
    default:
      return TD_WIRE_VARINT;
  }
}

/* A packed list: whole values, at most 8 bytes of memory each. */
static td_status check_packed(walk *w, td_wire_type type, td_str bytes) {
  size_t count = 0, unit = type == TD_WIRE_FIXED64 ? 8 : 4;
  if (type == TD_WIRE_VARINT) {
    td_wire list = td_wire_of(bytes);
    uint64_t value;
    for (; list.next < list.end; count++) {
      if (!td_wire_read_varint(&list, &value)) return malformed(w, list.next, "cut-off number in a list");
    }
  } else if (bytes.size % unit) {
    return malformed(w, bytes.data, "a list's size is no multiple of its elements'");
  } else {
    count = bytes.size / unit;
  }
  w->memory += count * 8;
  return TD_STATUS_OK;
}

static td_status check_message(walk *w, const ProtobufCMessageDescriptor *type, td_str bytes, int depth);

static td_status check_field(walk *w, const ProtobufCFieldDescriptor *field, const td_wire_field *f, int depth,
                             uint8_t *repeats) {
  td_wire_type expected = wire_type(field->type);
  bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
  if (f->type != expected && repeated && f->type == TD_WIRE_BYTES) return check_packed(w, expected, f->bytes);
  if (f->type != expected)
    return td_status_append(malformed(w, f->bytes.data, "wrong wire type"), " (field %s)", field->name);
  if (repeated) w->memory += 16;
  switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
      if (f->bytes.size && memchr(f->bytes.data, 0, f->bytes.size))
        return malformed(w, f->bytes.data, "NUL in a string");
      w->memory += f->bytes.size + 32;
      return TD_STATUS_OK;
    case PROTOBUF_C_TYPE_BYTES:
      w->memory += f->bytes.size + 16;
      return TD_STATUS_OK;
    case PROTOBUF_C_TYPE_MESSAGE:
      if (!repeated && ++*repeats > MAX_REPEATS) return malformed(w, f->bytes.data, "a field repeated too often");
      if (*repeats > 1) w->merges = true;
      return check_message(w, field->descriptor, f->bytes, depth + 1);
    default:
      return TD_STATUS_OK;
  }
}

/* Recursion is bounded by TD_WIRE_MAX_DEPTH. */
static td_status check_message(walk *w, const ProtobufCMessageDescriptor *type, td_str bytes, int depth) {
  if (depth > TD_WIRE_MAX_DEPTH) return malformed(w, bytes.data, "nested too deeply");
  w->memory += type->sizeof_message + 16;
  uint8_t repeats[MAX_FIELDS] = {0};
  td_wire in = td_wire_of(bytes);
  td_wire_field f;
  bool bad;
  size_t fields = 0;
  while (td_wire_next(&in, &f, &bad)) {
    if (f.type != TD_WIRE_BYTES) f.bytes.data = (const char *)in.next;
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(type, f.number);
    if (field) {
      size_t index = TD_MIN((size_t)(field - type->fields), (size_t)MAX_FIELDS - 1);
      TD_TRY(check_field(w, field, &f, depth, &repeats[index]));
    } else {
      w->memory += f.bytes.size + 48; /* kept as an unknown field */
    }
    fields++;
  }
  if (bad) return malformed(w, in.next, "no valid field");
  if (fields > 16) w->memory += fields * 64; /* protobuf-c's notes of them */
  return TD_STATUS_OK;
}

/* What a message of `size` bytes may take: honest ones stay far below, also those of many small parts. */
static size_t memory_limit(size_t size) { return 64 * MIB + 48 * TD_MIN(size, 64 * MIB) + 8 * size; }

static td_status check(const ProtobufCMessageDescriptor *type, td_str bytes, walk *w) {
  if (bytes.size > MAX_MESSAGE) {
    return td_resource_exhausted("A %s of %zu bytes is larger than 2 GiB", type->short_name, bytes.size);
  }
  *w = (walk){.type = type, .start = (const uint8_t *)bytes.data};
  TD_TRY(check_message(w, type, bytes, 1));
  if (w->memory <= memory_limit(bytes.size)) return TD_STATUS_OK;
  return td_resource_exhausted("A %s of %zu bytes would take %zu bytes of memory", type->short_name, bytes.size,
                               w->memory);
}

td_status td_message_check(const ProtobufCMessageDescriptor *type, td_str bytes) {
  walk w;
  return check(type, bytes, &w);
}

static void join(const ProtobufCMessageDescriptor *type, td_str bytes, td_strbuf *out);

static const ProtobufCFieldDescriptor *sub_message(const ProtobufCMessageDescriptor *type, const td_wire_field *f) {
  const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(type, f->number);
  return field && field->type == PROTOBUF_C_TYPE_MESSAGE ? field : NULL;
}

static bool comes_again(uint32_t number, td_wire rest) {
  td_wire_field f;
  bool bad;
  while (td_wire_next(&rest, &f, &bad)) {
    if (f.number == number) return true;
  }
  return false;
}

/* Appends one sub-message, a singular one joined with its later occurrences in `rest`. */
static void join_field(const ProtobufCFieldDescriptor *field, td_wire_field f, td_wire rest, td_strbuf *out) {
  td_strbuf all = {0}, joined = {0};
  td_strbuf_append(&all, f.bytes);
  td_wire_field later;
  bool bad;
  while (field->label != PROTOBUF_C_LABEL_REPEATED && td_wire_next(&rest, &later, &bad)) {
    if (later.number == f.number) td_strbuf_append(&all, later.bytes);
  }
  join(field->descriptor, td_strbuf_view(&all), &joined);
  td_wire_put_bytes(out, f.number, td_strbuf_view(&joined));
  td_strbuf_deinit(&all);
  td_strbuf_deinit(&joined);
}

/* Appends a message in which every singular sub-message occurs once: protobuf-c's own merging loses numbers and fails
 * on an empty oneof. The bytes have been checked. */
static void join(const ProtobufCMessageDescriptor *type, td_str bytes, td_strbuf *out) {
  bool done[MAX_FIELDS] = {false};
  td_wire in = td_wire_of(bytes);
  td_wire_field f;
  bool bad;
  for (const uint8_t *start = in.next; td_wire_next(&in, &f, &bad); start = in.next) {
    const ProtobufCFieldDescriptor *field = sub_message(type, &f);
    if (!field) {
      td_strbuf_append(out, td_str_n(start, (size_t)(in.next - start)));
      continue;
    }
    /* of a oneof's member the last one counts, at its place: another member may come between */
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF && comes_again(f.number, in)) continue;
    size_t index = TD_MIN((size_t)(field - type->fields), (size_t)MAX_FIELDS - 1);
    if (!done[index]) join_field(field, f, in, out);
    done[index] = field->label != PROTOBUF_C_LABEL_REPEATED;
  }
}

static void *arena_alloc(void *arena, size_t size) { return td_arena_alloc(arena, size); }
static void arena_free(void *arena, void *p) {}

td_status td_message_decode(const ProtobufCMessageDescriptor *type, td_str bytes, td_arena *arena,
                            ProtobufCMessage **out) {
  walk w;
  TD_TRY(check(type, bytes, &w));
  if (w.memory > 64 * MIB) { /* the arena ends the process when there is none: ask first */
    void *probe = td_try_malloc(w.memory);
    if (!probe) return td_resource_exhausted("No memory for a %s of %zu bytes", type->short_name, bytes.size);
    td_free(probe);
  }
  ProtobufCAllocator allocator = {arena_alloc, arena_free, arena};
  td_strbuf joined = {0};
  if (w.merges && bytes.size > MAX_MERGED) { /* joining copies each level */
    return td_invalid_argument("A %s of %zu bytes repeats singular fields", type->short_name, bytes.size);
  }
  if (w.merges) join(type, bytes, &joined);
  td_str whole = w.merges ? td_strbuf_view(&joined) : bytes;
  ProtobufCMessage *m = protobuf_c_message_unpack(type, &allocator, whole.size, (const uint8_t *)whole.data);
  td_strbuf_deinit(&joined);
  if (!m) return td_invalid_argument("Malformed %s of %zu bytes", type->short_name, bytes.size);
  *out = m;
  return TD_STATUS_OK;
}

/* Room for `size` more bytes and a NUL at the end of `b`. */
static uint8_t *reserve(td_strbuf *b, size_t size) {
  size_t need = b->size + size + 1;
  if (need > b->capacity) {
    b->capacity = TD_MAX(need, b->capacity * 2);
    b->data = td_realloc(b->data, b->capacity);
  }
  return (uint8_t *)b->data + b->size;
}

static td_status check_size(const ProtobufCMessage *m, size_t size) {
  if (size <= MAX_MESSAGE) return TD_STATUS_OK;
  return td_resource_exhausted("A %s of %zu bytes is larger than 2 GiB", m->descriptor->short_name, size);
}

static void append(const ProtobufCMessage *m, size_t size, td_strbuf *out) {
  protobuf_c_message_pack(m, reserve(out, size));
  out->size += size;
  out->data[out->size] = '\0';
}

td_status td_message_encode(const ProtobufCMessage *m, td_strbuf *out) {
  size_t size = protobuf_c_message_get_packed_size(m);
  TD_TRY(check_size(m, size));
  append(m, size, out);
  return TD_STATUS_OK;
}

td_status td_message_encode_field(const ProtobufCMessage *m, uint32_t number, td_strbuf *out) {
  size_t size = protobuf_c_message_get_packed_size(m);
  TD_TRY(check_size(m, size));
  td_wire_put_header(out, number, size);
  append(m, size, out);
  return TD_STATUS_OK;
}
