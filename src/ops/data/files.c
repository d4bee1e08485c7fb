/* Datasets of what stands in files: TextLine, FixedLengthRecord, TFRecord. Reading blocks, so it happens on the pool:
 * an iterator hops there before it touches a file. */
#include "base/mem.h"
#include "checkpoint/file_match.h"
#include "checkpoint/record.h"
#include "ops/data/archive.h"
#include "ops/families.h"

typedef struct files files;

/* Reads the next record into *record; *end: the file has no more. */
typedef td_status (*read_fn)(const files *d, td_input *in, td_strbuf *record, bool *end);

struct files {
  td_dataset base;
  char **names;
  size_t *name_sizes;
  int64_t count;
  td_compression compression;
  size_t buffer_size;
  int64_t header, record, footer; /* FixedLengthRecord */
  read_fn read;
};

typedef struct files_iterator {
  td_iterator base;
  int64_t at; /* file */
  td_input *in;
  int64_t resumes; /* where in the file to go on, before it has been opened */
} files_iterator;

static void files_destroy(td_dataset *base) {
  files *d = (files *)base;
  for (int64_t i = 0; i < d->count; i++) td_free(d->names[i]);
  td_free(d->names);
  td_free(d->name_sizes);
}

static void files_stop(td_iterator *it) { td_input_close(((files_iterator *)it)->in); }

/* ---- formats ---- */

static td_status read_line(const files *d, td_input *in, td_strbuf *record, bool *end) {
  (void)d;
  return td_input_line(in, record, end);
}

static td_status read_tf_record(const files *d, td_input *in, td_strbuf *record, bool *end) {
  (void)d;
  return td_record_read(in, record, end);
}

/* At the end of a file whose body is not a whole number of records. */
static td_status excess(const files *d, const td_input *in, uint64_t size) {
  uint64_t body = size - (uint64_t)d->header - (uint64_t)d->footer;
  return td_invalid_argument(
      "Excluding the header (%lld bytes) and footer (%lld bytes), input file \"%s\" has body length %llu bytes, which "
      "is "
      "not an exact multiple of the record length (%lld bytes).",
      (long long)d->header, (long long)d->footer, td_input_path(in), (unsigned long long)body, (long long)d->record);
}

/* A plain file is refused as a whole before anything is read from it; of an inflated one the end shows. */
static td_status check_size(const files *d, td_input *in) {
  if (d->compression != TD_COMPRESSION_NONE) return TD_STATUS_OK;
  td_file f = {0};
  td_status s = td_file_open(&f, td_input_path(in));
  uint64_t size = f.size, around = (uint64_t)d->header + (uint64_t)d->footer;
  td_file_deinit(&f);
  if (s) return s;
  return size >= around && (size - around) % (uint64_t)d->record == 0 ? TD_STATUS_OK : excess(d, in, size);
}

/* A record is one if a footer's worth of bytes follows; what is read ahead of that is read again. */
static td_status read_fixed(const files *d, td_input *in, td_strbuf *record, bool *end) {
  uint64_t got, begin = td_input_tell(in), whole = (uint64_t)d->record + (uint64_t)d->footer;
  if (!begin) {
    TD_TRY(check_size(d, in));
    begin = (uint64_t)d->header;
    TD_TRY(td_input_seek(in, begin));
  }
  record->size = 0;
  TD_TRY(td_input_append(in, whole, record, &got));
  *end = got < whole;
  if (*end) return got == (uint64_t)d->footer || !got ? TD_STATUS_OK : excess(d, in, td_input_tell(in));
  record->size = (size_t)d->record;
  return td_input_seek(in, begin + (uint64_t)d->record);
}

/* ---- the iterator ---- */

static td_status make_element(td_str bytes, td_element **out) {
  td_tensor *t;
  TD_TRY(td_tensor_create_dims(TD_STRING, 0, NULL, &t));
  td_status s = td_string_set(TD_DATA(t, td_string), bytes);
  if (s)
    td_tensor_release(t);
  else
    *out = td_element_of(1, &t);
  return s;
}

static td_status open_file(files_iterator *f, const files *d) {
  TD_TRY(td_input_open(td_str_n(d->names[f->at], d->name_sizes[f->at]), d->compression, d->buffer_size, &f->in));
  uint64_t resumes = (uint64_t)f->resumes;
  f->resumes = 0;
  return resumes ? td_input_seek(f->in, resumes) : TD_STATUS_OK;
}

/* The next record of the file that is open, or NULL. */
static td_status next_record(td_iterator *it, td_element **out) {
  files_iterator *f = (files_iterator *)it;
  const files *d = (const files *)it->dataset;
  td_strbuf record = {0};
  bool end = false;
  td_status s = d->read(d, f->in, &record, &end);
  *out = NULL;
  if (!s && !end) s = make_element(td_strbuf_view(&record), out);
  td_strbuf_deinit(&record);
  return s;
}

static void next_file(files_iterator *f) {
  td_input_close(f->in);
  f->in = NULL;
  f->at++;
}

static td_next files_advance(td_iterator *it) {
  files_iterator *f = (files_iterator *)it;
  const files *d = (const files *)it->dataset;
  if (f->at >= d->count) return td_iterator_give(it, NULL);
  if (td_iterator_costs(it, SIZE_MAX) == TD_NEXT_HOP) return TD_NEXT_HOP;
  for (; f->at < d->count; next_file(f)) {
    td_element *e = NULL;
    td_status s = TD_STATUS_OK;
    if (!f->in) s = open_file(f, d);
    if (!s) s = next_record(it, &e);
    if (s) { /* the next request goes on with the next file */
      next_file(f);
      return td_iterator_fail(it, s);
    }
    if (e) return td_iterator_give(it, e);
  }
  return td_iterator_give(it, NULL);
}

static td_status files_archive(td_iterator *it, td_archive *a) {
  files_iterator *f = (files_iterator *)it;
  int64_t resumes = f->in ? (int64_t)td_input_tell(f->in) : f->resumes;
  TD_TRY(td_archive_int(a, &f->at, 0, ((const files *)it->dataset)->count));
  TD_TRY(td_archive_int(a, &resumes, 0, INT64_MAX));
  if (!a->is_writing) f->resumes = resumes;
  return TD_STATUS_OK;
}

#define FILES(label)                                                                                      \
  {                                                                                                       \
    .name = label, .iterator_size = sizeof(files_iterator), .advance = files_advance, .stop = files_stop, \
    .archive = files_archive, .destroy = files_destroy                                                    \
  }
static const td_dataset_ops line_ops = FILES("TextLine"), fixed_ops = FILES("FixedLengthRecord"),
                            record_ops = FILES("TFRecord");

/* ---- kernels ---- */

static td_status make(td_kernel_ctx *ctx, const td_dataset_ops *ops, read_fn read, files **out) {
  const td_tensor *names = td_in(ctx, 0);
  td_dtype type = TD_STRING;
  td_partial_shape scalar = {0};
  td_dataset *d;
  if (names->rank > 1) return td_invalid_argument("`filenames` must be a scalar or a vector.");
  TD_TRY(td_dataset_create(ops, sizeof(files), &(td_data_spec){1, &type, &scalar}, NULL, 0, &d));
  files *f = (files *)d;
  f->read = read;
  f->names = td_new_array(char *, (size_t)names->count + 1);
  f->name_sizes = td_new_array(size_t, (size_t)names->count + 1);
  for (; f->count < names->count; f->count++) {
    td_str name = td_string_view(TD_DATA(names, td_string) + f->count);
    f->names[f->count] = td_strndup(name.data, name.size);
    f->name_sizes[f->count] = name.size;
  }
  *out = f;
  return TD_STATUS_OK;
}

static td_status read_compression(td_kernel_ctx *ctx, int i, files *f) {
  td_str name;
  TD_TRY(td_in_text(ctx, i, "compression_type", &name));
  return td_compression_parse(name, &f->compression) ? TD_STATUS_OK
                                                     : td_invalid_argument("Unsupported compression_type.");
}

static td_status read_buffer_size(td_kernel_ctx *ctx, int i, files *f) {
  int64_t size;
  TD_TRY(td_in_int(ctx, i, "buffer_size", &size));
  if (size < 0) return td_invalid_argument("`buffer_size` must be >= 0 (0 == default)");
  f->buffer_size = (size_t)TD_MIN(size, (int64_t)TD_INPUT_BUFFER);
  return TD_STATUS_OK;
}

static td_status compute_plain(td_kernel_ctx *ctx, const td_dataset_ops *ops, read_fn read) {
  files *f;
  TD_TRY(make(ctx, ops, read, &f));
  td_status s = read_compression(ctx, 1, f);
  if (!s) s = read_buffer_size(ctx, 2, f);
  return td_out_dataset(ctx, s, &f->base);
}

static td_status compute_lines(td_kernel_ctx *ctx) { return compute_plain(ctx, &line_ops, read_line); }
static td_status compute_records(td_kernel_ctx *ctx) { return compute_plain(ctx, &record_ops, read_tf_record); }

static td_status read_sizes(td_kernel_ctx *ctx, files *f) {
  TD_TRY(td_in_int(ctx, 1, "header_bytes", &f->header));
  if (f->header < 0) return td_invalid_argument("`header_bytes` must be >= 0");
  TD_TRY(td_in_int(ctx, 2, "record_bytes", &f->record));
  if (f->record <= 0) return td_invalid_argument("`record_bytes` must be > 0");
  TD_TRY(td_in_int(ctx, 3, "footer_bytes", &f->footer));
  if (f->footer < 0) return td_invalid_argument("`footer_bytes` must be >= 0");
  TD_TRY(read_buffer_size(ctx, 4, f));
  return ctx->kernel->input_count > 5 ? read_compression(ctx, 5, f) : TD_STATUS_OK;
}

static td_status compute_fixed(td_kernel_ctx *ctx) {
  files *f;
  TD_TRY(make(ctx, &fixed_ops, read_fixed, &f));
  td_status s = read_sizes(ctx, f);
  return td_out_dataset(ctx, s, &f->base);
}

/* ---- MatchingFiles: the names themselves, sorted ---- */

typedef struct matching_iterator {
  td_iterator base;
  td_names names;
  size_t next;
  bool is_read;
} matching_iterator;

static void matching_stop(td_iterator *it) { td_names_deinit(&((matching_iterator *)it)->names); }

static td_next matching_advance(td_iterator *it) {
  matching_iterator *m = (matching_iterator *)it;
  const files *d = (const files *)it->dataset;
  td_element *e;
  td_status s = TD_STATUS_OK;
  if (!m->is_read) {
    if (td_iterator_costs(it, SIZE_MAX) == TD_NEXT_HOP) return TD_NEXT_HOP;
    m->is_read = true;
    for (int64_t i = 0; i < d->count && !s; i++) s = td_file_match(td_str_n(d->names[i], d->name_sizes[i]), &m->names);
    td_names_sort(&m->names);
    if (s) return td_iterator_fail(it, s);
  }
  if (m->next >= m->names.count) return td_iterator_give(it, NULL);
  s = make_element(td_str_of(m->names.items[m->next++]), &e);
  return s ? td_iterator_fail(it, s) : td_iterator_give(it, e);
}

static td_status matching_archive(td_iterator *it, td_archive *a) {
  matching_iterator *m = (matching_iterator *)it;
  size_t count = m->names.count;
  TD_TRY(td_archive_bool(a, &m->is_read));
  TD_TRY(td_archive_count(a, &count));
  for (size_t i = 0; i < count; i++) {
    td_strbuf name = {0};
    if (a->is_writing) td_strbuf_puts(&name, m->names.items[i]);
    td_status s = td_archive_bytes(a, &name);
    if (!s && !a->is_writing) td_names_add(&m->names, "", td_strbuf_cstr(&name));
    td_strbuf_deinit(&name);
    if (s) return s;
  }
  return td_archive_size(a, &m->next, count);
}

static const td_dataset_ops matching_ops = {.name = "MatchingFiles",
                                            .iterator_size = sizeof(matching_iterator),
                                            .advance = matching_advance,
                                            .stop = matching_stop,
                                            .archive = matching_archive,
                                            .destroy = files_destroy};

static td_status compute_matching(td_kernel_ctx *ctx) {
  files *f;
  TD_TRY(make(ctx, &matching_ops, NULL, &f));
  return td_out_dataset(ctx, TD_STATUS_OK, &f->base);
}

#define FIXED_IN "filenames: string; header_bytes: int64; record_bytes: int64; footer_bytes: int64; buffer_size: int64"
#define PLAIN_IN "filenames: string; compression_type: string; buffer_size: int64"
#define META     "metadata: string = ''"

static const td_op_spec ops[] = {
    {"FixedLengthRecordDataset", FIXED_IN, "handle: variant", META, TD_OP_STATEFUL},
    {"FixedLengthRecordDatasetV2", FIXED_IN "; compression_type: string", "handle: variant", META, TD_OP_STATEFUL},
    {"ExperimentalMatchingFilesDataset", "patterns: string", "handle: variant", NULL, TD_OP_STATEFUL},
    {"MatchingFilesDataset", "patterns: string", "handle: variant", NULL, TD_OP_STATEFUL},
    {"TFRecordDataset", PLAIN_IN, "handle: variant", META, TD_OP_STATEFUL},
    {"TextLineDataset", PLAIN_IN, "handle: variant", META, TD_OP_STATEFUL},
};

#define PLAIN(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .compute = fn }

static const td_kernel_def kernels[] = {
    PLAIN("FixedLengthRecordDataset", compute_fixed), PLAIN("FixedLengthRecordDatasetV2", compute_fixed),
    PLAIN("MatchingFilesDataset", compute_matching),  PLAIN("ExperimentalMatchingFilesDataset", compute_matching),
    PLAIN("TFRecordDataset", compute_records),        PLAIN("TextLineDataset", compute_lines),
};

TD_FAMILY(data_files, ops, kernels);
