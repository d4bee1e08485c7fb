#include "framework/device.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <strings.h>

#include "base/mem.h"

/* Copies `s` into a fixed part of a name; false when it does not fit or is empty. */
static bool copy_part(td_str s, char *to, size_t capacity) {
  if (!s.size || s.size >= capacity) return false;
  memcpy(to, s.data, s.size);
  to[s.size] = '\0';
  return true;
}

static bool parse_number(td_str s, int32_t *out) {
  uint64_t v;
  if (!td_str_to_u64(s, &v) || v > INT32_MAX) return false;
  *out = (int32_t)v;
  return true;
}

static bool is_star(td_str s) { return s.size == 1 && s.data[0] == '*'; }

static bool valid_identifier(td_str s) {
  if (!s.size || !isalpha((unsigned char)s.data[0])) return false;
  for (size_t i = 0; i < s.size; i++)
    if (!isalnum((unsigned char)s.data[i]) && s.data[i] != '_') return false;
  return true;
}

/* "CPU:0", "CPU:*", "*:0", "CPU", "*" */
static bool parse_device_part(td_str s, td_device_name *out) {
  td_str rest = s, type = td_str_split(&rest, ':');
  if (!is_star(type) && (!valid_identifier(type) || !copy_part(type, out->type, sizeof out->type))) return false;
  return !rest.data || is_star(rest) || parse_number(rest, &out->id);
}

/* "cpu:0", "GPU:1": the legacy spelling of a whole component. */
static bool parse_legacy(td_str key, td_str value, td_device_name *out) {
  bool cpu = key.size == 3 && !strncasecmp(key.data, "cpu", 3), gpu = key.size == 3 && !strncasecmp(key.data, "gpu", 3);
  if (!cpu && !gpu) return false;
  strcpy(out->type, cpu ? "CPU" : "GPU");
  return is_star(value) || parse_number(value, &out->id);
}

bool td_device_name_parse(td_str text, td_device_name *out) {
  *out = (td_device_name){.replica = -1, .task = -1, .id = -1};
  if (!text.size || (text.size == 1 && text.data[0] == '/')) return true;
  if (text.data[0] != '/') return false;
  td_str rest = {text.data + 1, text.size - 1};
  while (rest.data) {
    td_str part = td_str_split(&rest, '/'), value = part, key = td_str_split(&value, ':');
    if (td_str_is(key, "job")) {
      if (!is_star(value) && (!valid_identifier(value) || !copy_part(value, out->job, sizeof out->job))) return false;
    } else if (td_str_is(key, "replica")) {
      if (!is_star(value) && !parse_number(value, &out->replica)) return false;
    } else if (td_str_is(key, "task")) {
      if (!is_star(value) && !parse_number(value, &out->task)) return false;
    } else if (td_str_is(key, "device")) {
      if (!parse_device_part(value, out)) return false;
    } else if (!parse_legacy(key, value, out)) {
      return false;
    }
  }
  return true;
}

void td_device_name_format(const td_device_name *n, char *out) {
  char *p = out, *end = out + TD_DEVICE_NAME_MAX;
  *p = '\0';
  if (n->job[0]) p += snprintf(p, (size_t)(end - p), "/job:%s", n->job);
  if (n->replica >= 0) p += snprintf(p, (size_t)(end - p), "/replica:%d", n->replica);
  if (n->task >= 0) p += snprintf(p, (size_t)(end - p), "/task:%d", n->task);
  if (!n->type[0] && n->id < 0) return;
  p += snprintf(p, (size_t)(end - p), "/device:%s:", n->type[0] ? n->type : "*");
  snprintf(p, (size_t)(end - p), n->id >= 0 ? "%d" : "*", n->id);
}

bool td_device_name_is_complete(const td_device_name *n) {
  return n->job[0] && n->replica >= 0 && n->task >= 0 && n->type[0] && n->id >= 0;
}

bool td_device_name_matches(const td_device_name *p, const td_device_name *n) {
  return (!p->job[0] || !strcmp(p->job, n->job)) && (p->replica < 0 || p->replica == n->replica) &&
         (p->task < 0 || p->task == n->task) && (!p->type[0] || !strcmp(p->type, n->type)) &&
         (p->id < 0 || p->id == n->id);
}

bool td_device_name_same_task(const td_device_name *a, const td_device_name *b) {
  return !strcmp(a->job, b->job) && a->replica == b->replica && a->task == b->task;
}

static td_status conflict(const char *what, const td_device_name *a, const td_device_name *b) {
  char x[TD_DEVICE_NAME_MAX], y[TD_DEVICE_NAME_MAX];
  td_device_name_format(a, x);
  td_device_name_format(b, y);
  return td_invalid_argument("Cannot merge devices with incompatible %s: '%s' and '%s'", what, x, y);
}

td_status td_device_name_merge(td_device_name *into, const td_device_name *other, bool soft) {
  td_device_name n = *into;
  if (!n.job[0]) memcpy(n.job, other->job, sizeof n.job);
  if (other->job[0] && strcmp(n.job, other->job)) return conflict("jobs", into, other);
  if (n.replica < 0) n.replica = other->replica;
  if (other->replica >= 0 && n.replica != other->replica) return conflict("replicas", into, other);
  if (n.task < 0) n.task = other->task;
  if (other->task >= 0 && n.task != other->task) return conflict("tasks", into, other);
  if (!n.type[0]) memcpy(n.type, other->type, sizeof n.type);
  bool types = other->type[0] && strcmp(n.type, other->type);
  if (types && !soft) return conflict("types", into, other);
  if (n.id < 0) n.id = other->id;
  bool ids = other->id >= 0 && n.id != other->id;
  if (ids && !soft) return conflict("ids", into, other);
  if (types) n.type[0] = '\0';
  if (types || ids) n.id = -1;
  *into = n;
  return TD_STATUS_OK;
}

td_device *td_device_create(const td_device_name *name, uint64_t incarnation, td_resource_mgr *resources) {
  char text[TD_DEVICE_NAME_MAX];
  td_device *d = td_new(td_device);
  atomic_init(&d->refs, 1);
  d->parsed = *name;
  td_device_name_format(name, text);
  d->name = td_strdup(text);
  d->incarnation = incarnation;
  d->resources = td_resource_mgr_retain(resources);
  return d;
}

td_device *td_device_retain(td_device *d) {
  atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
  return d;
}

void td_device_release(td_device *d) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!d || atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) != 1) return;
  td_resource_mgr_release(d->resources);
  td_free(d->name);
  td_free(d);
}
