/* A cache in a file: component c of element i under the key "<i>_<c>". Who writes has a lock file beside it, and writes
 * to a part ("<name>_0"); an iterator that is saved while it writes ends its part, and goes on with the next one. At
 * the end all parts become one. Touching files blocks, so it happens on the pool. */
#include "ops/data/file_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/bundle.h"
#include "checkpoint/file.h"
#include "ops/data/archive.h"

enum { MAX_PARTS = 1 << 20, ITEM_DIGITS = 7 /* of 10 million, less one */ };

typedef struct file_cache {
  td_dataset base;
  char *filename;
  size_t size;
  int component_digits;
} file_cache;

typedef struct file_cache_iterator {
  td_iterator base;
  enum { NEW, WRITING, READING, OVER } mode;
  td_iterator *input; /* WRITING */
  int64_t next;       /* element */
  int64_t part;       /* WRITING: the present one */
  td_bundle_writer *writer;
  char *lock; /* path of the lock file that is its own; NULL: none */
  td_bundle_reader *reader;
  bool is_asked;
} file_cache_iterator;

static td_str name_of(const file_cache *d) { return td_str_n(d->filename, d->size); }

static void file_cache_destroy(td_dataset *d) { td_free(((file_cache *)d)->filename); }

static void unlock(file_cache_iterator *c) {
  if (c->lock) unlink(c->lock);
  td_free(c->lock);
  c->lock = NULL;
}

static void file_cache_stop(td_iterator *it) {
  file_cache_iterator *c = (file_cache_iterator *)it;
  td_bundle_writer_destroy(c->writer); /* a part that is not whole does not remain */
  unlock(c);
  td_bundle_reader_close(c->reader);
  td_iterator_destroy(c->input);
}

static char *part_name(const file_cache *d, int64_t part) {
  return td_asprintf("%.*s_%lld", (int)d->size, d->filename, (long long)part);
}

static char *key_of(const file_cache *d, int64_t item, int component) {
  return td_asprintf("%*lld_%*d", ITEM_DIGITS, (long long)item, d->component_digits, component);
}

/* ---- writing ---- */

static td_status take_lock(file_cache_iterator *c, const char *part) {
  char *name = td_asprintf("%s.lockfile", part), *path = NULL;
  td_status s = td_file_path(td_str_of(name), &path);
  td_free(name);
  if (s) return s;
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd >= 0) {
    close(fd);
    c->lock = path;
    return TD_STATUS_OK;
  }
  s = errno == EEXIST
          ? td_error(TD_ALREADY_EXISTS,
                     "There appears to be a concurrent caching iterator running - cache lockfile already exists "
                     "('%s'). If you are sure no other running TF computations are using this cache prefix, delete "
                     "the lockfile and re-initialize the iterator.",
                     path)
          : td_file_error(errno, path);
  td_free(path);
  return s;
}

/* Begins the present part unless it has begun. */
static td_status begin_part(file_cache_iterator *c, const file_cache *d) {
  if (c->writer) return TD_STATUS_OK;
  char *part = part_name(d, c->part);
  td_status s = td_bundle_exists(td_str_of(part))
                    ? td_error(TD_ALREADY_EXISTS,
                               "Existing cache files found: \n%s.index\n%s.data-00000-of-00001\nTo continue delete the "
                               "above files.",
                               part, part)
                    : take_lock(c, part);
  if (!s) s = td_bundle_writer_create(td_str_of(part), TD_SYNC_BEHIND, &c->writer);
  if (s) unlock(c);
  td_free(part);
  return s;
}

static td_status end_part(file_cache_iterator *c) {
  td_status s = td_bundle_writer_finish(c->writer);
  td_bundle_writer_destroy(c->writer);
  c->writer = NULL;
  unlock(c);
  c->part++;
  return s;
}

static td_status write_element(file_cache_iterator *c, const file_cache *d, const td_element *e) {
  td_status s = begin_part(c, d);
  for (int i = 0; i < e->count && !s; i++) {
    char *key = key_of(d, c->next, i);
    s = td_bundle_writer_add(c->writer, td_str_of(key), e->values[i]);
    td_free(key);
  }
  if (!s) c->next++;
  return s;
}

/* The input has ended: all parts become the cache. */
static td_status publish(file_cache_iterator *c, const file_cache *d) {
  td_status s = begin_part(c, d);
  if (!s) s = end_part(c);
  if (s) return s;
  td_str *parts = td_new_array(td_str, (size_t)c->part);
  for (int64_t i = 0; i < c->part; i++) parts[i] = td_str_of(part_name(d, i));
  s = td_bundle_merge(parts, (size_t)c->part, false, name_of(d), TD_SYNC_BEHIND);
  for (int64_t i = 0; i < c->part; i++) td_free((char *)parts[i].data);
  td_free(parts);
  return s;
}

static td_next write_next(td_iterator *it) {
  file_cache_iterator *c = (file_cache_iterator *)it;
  const file_cache *d = (const file_cache *)it->dataset;
  td_status s = TD_STATUS_OK;
  if (!c->is_asked) {
    s = begin_part(c, d); /* before an element is taken from the input */
    if (!s && !c->input) s = td_iterator_create_input(it, 0, &c->input);
    if (s) return td_iterator_fail(it, s);
    c->is_asked = true;
    return td_iterator_pull(it, c->input);
  }
  if (!c->input->status && td_iterator_costs(it, SIZE_MAX) == TD_NEXT_HOP) return TD_NEXT_HOP;
  c->is_asked = false;
  if (c->input->status) return td_iterator_pass(it, c->input);
  td_element *e = td_iterator_take(c->input);
  s = e ? write_element(c, d, e) : publish(c, d);
  if (!e) c->mode = OVER;
  if (!s) return td_iterator_give(it, e);
  td_element_free(e);
  return td_iterator_fail(it, s);
}

/* ---- reading ---- */

static td_status read_component(file_cache_iterator *c, td_str key, td_dtype type, td_tensor **out) {
  td_bundle_plan *plan;
  td_dtype stored;
  td_shape shape;
  TD_TRY(td_bundle_lookup(c->reader, key, &stored, &shape));
  if (stored != type)
    return td_invalid_argument("The cache has a %s under %.*s where the dataset has a %s", td_dtype_name(stored),
                               TD_STR_ARG(key), td_dtype_name(type));
  TD_TRY(td_bundle_plan_create(c->reader, key, NULL, &plan));
  td_status s = td_bundle_read(plan, out);
  td_bundle_plan_destroy(plan);
  return s;
}

static td_next read_next(td_iterator *it) {
  file_cache_iterator *c = (file_cache_iterator *)it;
  const file_cache *d = (const file_cache *)it->dataset;
  td_status s = c->reader ? TD_STATUS_OK : td_bundle_reader_open(name_of(d), false, &c->reader);
  td_element *e = td_element_create(d->base.spec.width);
  for (int i = 0; i < e->count && !s; i++) {
    char *key = key_of(d, c->next, i);
    s = read_component(c, td_str_of(key), d->base.spec.types[i], &e->values[i]);
    td_free(key);
    if (i || td_status_code(s) != TD_NOT_FOUND) continue;
    td_status_free(s);
    td_element_free(e);
    c->mode = OVER;
    return td_iterator_give(it, NULL);
  }
  c->next++;
  if (!s) return td_iterator_give(it, e);
  td_element_free(e);
  return td_iterator_fail(it, s);
}

/* ---- the iterator ---- */

static td_next file_cache_advance(td_iterator *it) {
  file_cache_iterator *c = (file_cache_iterator *)it;
  if (c->mode == OVER) return td_iterator_give(it, NULL);
  if (c->is_asked) return write_next(it);
  if (td_iterator_costs(it, SIZE_MAX) == TD_NEXT_HOP) return TD_NEXT_HOP;
  if (c->mode == NEW) c->mode = td_bundle_exists(name_of((const file_cache *)it->dataset)) ? READING : WRITING;
  return c->mode == READING ? read_next(it) : write_next(it);
}

/* One that was writing reads if the cache has been completed since. */
static td_status file_cache_archive(td_iterator *it, td_archive *a) {
  file_cache_iterator *c = (file_cache_iterator *)it;
  if (a->is_writing && c->writer && c->next) TD_TRY(end_part(c));
  int64_t mode = c->mode;
  TD_TRY(td_archive_int(a, &mode, NEW, OVER));
  c->mode = (int)mode;
  TD_TRY(td_archive_int(a, &c->next, 0, INT64_MAX));
  TD_TRY(td_archive_int(a, &c->part, 0, MAX_PARTS));
  TD_TRY(td_archive_input(a, it, 0, &c->input));
  if (!a->is_writing && c->mode == WRITING && td_bundle_exists(name_of((const file_cache *)it->dataset))) {
    c->mode = READING;
    td_iterator_destroy(c->input);
    c->input = NULL;
  }
  return TD_STATUS_OK;
}

static const td_dataset_ops file_cache_ops = {.name = "FileCache",
                                              .iterator_size = sizeof(file_cache_iterator),
                                              .advance = file_cache_advance,
                                              .stop = file_cache_stop,
                                              .archive = file_cache_archive,
                                              .destroy = file_cache_destroy,
                                              .cardinality = td_dataset_input_cardinality};

td_status td_file_cache_create(const td_data_spec *spec, td_dataset *input, td_str filename, td_dataset **out) {
  TD_TRY(td_dataset_create(&file_cache_ops, sizeof(file_cache), spec, &input, 1, out));
  file_cache *d = (file_cache *)*out;
  d->filename = td_strndup(filename.data, filename.size);
  d->size = filename.size;
  d->component_digits = snprintf(NULL, 0, "%d", spec->width ? spec->width - 1 : 0);
  return TD_STATUS_OK;
}
