#include "cluster/cluster_spec.h"

#include <ctype.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/mem.h"

enum { MAX_TASKS = 65536, MAX_JOB_NAME = 127 };

typedef struct builder {
  td_cluster_spec *spec;
  size_t capacity;
  td_map jobs; /* names so far; borrowed from the tasks */
} builder;

/* Cuts what is quoted in an error, however long the input is. */
static int shown(td_str s) { return (int)TD_MIN(s.size, (size_t)100); }

static td_status check_job(td_str job) {
  bool ok = job.size && job.size <= MAX_JOB_NAME && isalpha((unsigned char)job.data[0]);
  for (size_t i = 0; ok && i < job.size; i++) ok = isalnum((unsigned char)job.data[i]) || job.data[i] == '_';
  return ok ? TD_STATUS_OK
            : td_invalid_argument("invalid argument: \"%.*s\" is no job name in the cluster specification", shown(job),
                                  job.data);
}

/* "<no slash>:<port>" */
static td_status check_address(td_str address) {
  const char *colon = address.size ? memrchr(address.data, ':', address.size) : NULL;
  uint64_t port;
  bool ok = colon && colon > address.data && !memchr(address.data, '/', address.size) &&
            !memchr(address.data, '\0', address.size) &&
            td_str_to_u64(td_str_n(colon + 1, (size_t)(address.data + address.size - colon - 1)), &port) &&
            port <= 65535;
  return ok ? TD_STATUS_OK
            : td_invalid_argument("Could not interpret \"%.*s\" as a host-port pair.", shown(address), address.data);
}

static td_status add_task(builder *b, td_str job, int64_t index, td_str address) {
  td_cluster_spec *c = b->spec;
  TD_TRY(check_address(address));
  if (index < 0 || index > INT32_MAX)
    return td_invalid_argument("invalid argument: task index %lld of job \"%.*s\"", (long long)index, TD_STR_ARG(job));
  if (c->task_count == MAX_TASKS)
    return td_invalid_argument("invalid argument: more than %d tasks in the cluster", MAX_TASKS);
  TD_GROW(c->tasks, c->task_count, b->capacity);
  td_cluster_task *t = &c->tasks[c->task_count++];
  t->job = td_strndup(job.data, job.size);
  t->address = td_strndup(address.data, address.size);
  t->index = (int)index;
  t->name = td_asprintf("/job:%s/replica:0/task:%d", t->job, t->index);
  return TD_STATUS_OK;
}

static int by_index(const void *a, const void *b) {
  const td_cluster_task *x = a, *y = b;
  return (x->index > y->index) - (x->index < y->index);
}

/* Tasks [begin, count) are those of one job: sorted by index, none twice; and the job is new. */
static td_status finish_job(builder *b, td_str job, size_t begin) {
  td_cluster_spec *c = b->spec;
  if (c->task_count == begin)
    return td_invalid_argument("invalid argument: job \"%.*s\" has no tasks", TD_STR_ARG(job));
  if (td_map_insert(&b->jobs, td_str_of(c->tasks[begin].job), c))
    return td_invalid_argument("Duplicate job ID in cluster specification: %.*s", TD_STR_ARG(job));
  qsort(c->tasks + begin, c->task_count - begin, sizeof *c->tasks, by_index);
  for (size_t i = begin + 1; i < c->task_count; i++)
    if (c->tasks[i].index == c->tasks[i - 1].index)
      return td_invalid_argument("JobDef for job \"%s\" specified two addresses for task \"%d\": %s and %s",
                                 c->tasks[i].job, c->tasks[i].index, c->tasks[i - 1].address, c->tasks[i].address);
  return TD_STATUS_OK;
}

static builder begin(void) {
  td_cluster_spec *c = td_new(td_cluster_spec);
  atomic_init(&c->refs, 1);
  return (builder){.spec = c};
}

static td_status finish(builder *b, td_status s, td_cluster_spec **out) {
  if (!s && !b->spec->task_count) s = td_invalid_argument("invalid argument: the cluster specification names no task");
  td_map_deinit(&b->jobs);
  if (s)
    td_cluster_spec_release(b->spec);
  else
    *out = b->spec;
  return s;
}

/* "host:1;host:2" or "1=host:1;3=host:3" */
static td_status parse_job(builder *b, td_str text) {
  td_str rest = text, job = td_str_trim(td_str_split(&rest, '|'));
  if (!rest.data)
    return td_invalid_argument("invalid argument: expected \"job|host:port;host:port\", got \"%.*s\"", shown(text),
                               text.data);
  TD_TRY(check_job(job));
  size_t first = b->spec->task_count;
  for (int64_t next = 0; rest.data; next++) {
    td_str address = td_str_trim(td_str_split(&rest, ';')), value = address, key = td_str_split(&value, '=');
    int64_t index = next;
    if (value.data) {
      if (!td_str_to_i64(key, &index))
        return td_invalid_argument("invalid argument: \"%.*s\" is no task index", shown(key), key.data);
      address = value;
    }
    TD_TRY(add_task(b, job, index, address));
    next = index;
  }
  return finish_job(b, job, first);
}

td_status td_cluster_spec_parse(td_str flag, td_cluster_spec **out) {
  builder b = begin();
  td_status s = TD_STATUS_OK;
  td_str rest = flag;
  while (!s && rest.data && flag.size) s = parse_job(&b, td_str_split(&rest, ','));
  return finish(&b, s, out);
}

td_status td_cluster_spec_from_proto(const Pb__ClusterDef *def, td_cluster_spec **out) {
  builder b = begin();
  td_status s = TD_STATUS_OK;
  for (size_t i = 0; !s && i < def->n_job; i++) {
    const Pb__JobDef *j = def->job[i];
    td_str job = td_str_of(j->name);
    size_t first = b.spec->task_count;
    s = check_job(job);
    for (size_t k = 0; !s && k < j->n_tasks; k++)
      s = add_task(&b, job, j->tasks[k]->key, td_str_of(j->tasks[k]->value));
    if (!s) s = finish_job(&b, job, first);
  }
  return finish(&b, s, out);
}

/* ---- JSON ---- */

static td_str json_str(const json_t *j) { return td_str_n(json_string_value(j), json_string_length(j)); }

static td_status json_job(builder *b, const char *name, const json_t *tasks) {
  td_str job = td_str_of(name);
  size_t first = b->spec->task_count, i;
  const char *key;
  const json_t *item;
  TD_TRY(check_job(job));
  if (json_is_string(tasks)) {
    TD_TRY(add_task(b, job, 0, json_str(tasks)));
  } else if (json_is_array(tasks)) {
    json_array_foreach((json_t *)tasks, i, item) {
      if (!json_is_string(item))
        return td_invalid_argument("invalid argument: task %zu of job \"%s\" is no string", i, name);
      TD_TRY(add_task(b, job, (int64_t)i, json_str(item)));
    }
  } else if (json_is_object(tasks)) {
    json_object_foreach((json_t *)tasks, key, item) {
      int64_t index;
      if (!td_str_to_i64(td_str_of(key), &index) || !json_is_string(item))
        return td_invalid_argument("invalid argument: task \"%.100s\" of job \"%s\" is no index with an address", key,
                                   name);
      TD_TRY(add_task(b, job, index, json_str(item)));
    }
  } else {
    return td_invalid_argument("invalid argument: job \"%s\" is no list of addresses", name);
  }
  return finish_job(b, job, first);
}

/* The index may be a number or a string of one. */
static td_status json_task(const json_t *task, char **job, int *index) {
  *job = NULL;
  *index = -1;
  if (!task) return TD_STATUS_OK;
  const json_t *type = json_object_get(task, "type"), *i = json_object_get(task, "index");
  int64_t value = 0;
  if (!json_is_string(type)) return td_invalid_argument("invalid argument: \"task\" has no \"type\" string");
  if (json_is_integer(i))
    value = json_integer_value(i);
  else if (i && !(json_is_string(i) && td_str_to_i64(json_str(i), &value)))
    return td_invalid_argument("invalid argument: \"index\" of \"task\" is no number");
  if (value < 0 || value > INT32_MAX) return td_invalid_argument("invalid argument: task index %lld", (long long)value);
  *job = td_strndup(json_string_value(type), json_string_length(type));
  *index = (int)value;
  return TD_STATUS_OK;
}

td_status td_cluster_spec_from_json(td_str text, td_cluster_spec **out, char **job, int *index) {
  json_error_t error;
  *job = NULL;
  json_t *root = json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES, &error);
  if (!root)
    return td_invalid_argument("invalid argument: JSON, line %d, column %d: %s", error.line, error.column, error.text);
  builder b = begin();
  td_status s = TD_STATUS_OK;
  json_t *cluster = json_object_get(root, "cluster");
  if (!json_is_object(cluster)) {
    s = td_invalid_argument("invalid argument: no \"cluster\" object in the JSON");
  } else {
    const char *name;
    json_t *tasks;
    json_object_foreach(cluster, name, tasks) {
      s = json_job(&b, name, tasks);
      if (s) break;
    }
  }
  if (!s) s = json_task(json_object_get(root, "task"), job, index);
  json_decref(root);
  s = finish(&b, s, out);
  if (s) {
    td_free(*job);
    *job = NULL;
  }
  return s;
}

/* ---- the rest ---- */

td_cluster_spec *td_cluster_spec_retain(td_cluster_spec *c) {
  atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
  return c;
}

void td_cluster_spec_release(td_cluster_spec *c) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
  for (size_t i = 0; i < c->task_count; i++) {
    td_free(c->tasks[i].job);
    td_free(c->tasks[i].address);
    td_free(c->tasks[i].name);
  }
  td_free(c->tasks);
  td_free(c);
}

/* The task; with index -1 the first one of the job. */
const td_cluster_task *td_cluster_spec_task(const td_cluster_spec *c, const char *job, int index) {
  for (size_t i = 0; i < c->task_count; i++)
    if (!strcmp(c->tasks[i].job, job) && (index < 0 || c->tasks[i].index == index)) return &c->tasks[i];
  return NULL;
}

const td_cluster_task *td_cluster_spec_find(const td_cluster_spec *c, td_str name) {
  for (size_t i = 0; i < c->task_count; i++)
    if (td_str_is(name, c->tasks[i].name)) return &c->tasks[i];
  return NULL;
}

Pb__ClusterDef *td_cluster_spec_to_proto(const td_cluster_spec *c, td_arena *arena) {
  Pb__ClusterDef *def = td_arena_new(arena, Pb__ClusterDef);
  pb__cluster_def__init(def);
  def->job = td_arena_array(arena, Pb__JobDef *, c->task_count);
  for (size_t i = 0; i < c->task_count; i++) {
    const td_cluster_task *t = &c->tasks[i];
    Pb__JobDef *job = def->n_job ? def->job[def->n_job - 1] : NULL;
    if (!job || strcmp(job->name, t->job)) {
      job = def->job[def->n_job++] = td_arena_new(arena, Pb__JobDef);
      pb__job_def__init(job);
      job->name = td_arena_strdup(arena, t->job);
      job->tasks = td_arena_array(arena, Pb__JobDef__TaskEntry *, c->task_count - i);
    }
    Pb__JobDef__TaskEntry *entry = job->tasks[job->n_tasks++] = td_arena_new(arena, Pb__JobDef__TaskEntry);
    pb__job_def__task_entry__init(entry);
    entry->key = t->index;
    entry->value = td_arena_strdup(arena, t->address);
  }
  return def;
}
