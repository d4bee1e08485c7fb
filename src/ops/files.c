/* Files as values: ReadFile, WriteFile, MatchingFiles. They run on the pool. */
#include "base/mem.h"
#include "checkpoint/file_match.h"
#include "checkpoint/input.h"
#include "ops/blocking.h"
#include "ops/families.h"
#include "ops/move.h"

static td_str string_at(const td_tensor *t, int64_t i) { return td_string_view(TD_DATA(t, td_string) + i); }

static td_status check_scalar(const td_tensor *t, const char *what) {
  return t->rank ? td_invalid_argument("%s tensor must be scalar, but had shape: %s", what, TD_SHOW(t)) : TD_STATUS_OK;
}

static td_status read_file(td_kernel_ctx *ctx) {
  td_tensor *out;
  td_strbuf contents = {0};
  TD_TRY(check_scalar(td_in(ctx, 0), "Input filename"));
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  td_status status = td_input_whole_file(string_at(td_in(ctx, 0), 0), &contents);
  size_t size = contents.size;
  if (!status) td_string_take(TD_DATA(out, td_string), td_strbuf_take(&contents), size);
  td_strbuf_deinit(&contents);
  return status;
}
TD_BLOCKING(read_file)

static td_status write_file(td_kernel_ctx *ctx) {
  char *path = NULL;
  td_file file = {0};
  td_status status;
  TD_TRY(check_scalar(td_in(ctx, 0), "Input filename"));
  TD_TRY(check_scalar(td_in(ctx, 1), "Contents"));
  td_str contents = string_at(td_in(ctx, 1), 0);
  TD_TRY(td_file_path(string_at(td_in(ctx, 0), 0), &path));
  TD_TRY_GOTO(td_file_make_dirs(td_file_dir(td_str_of(path))));
  TD_TRY_GOTO(td_file_create(&file, path));
  status = td_file_append(&file, contents.data, contents.size);
cleanup:
  td_file_deinit(&file);
  td_free(path);
  return status;
}
TD_BLOCKING(write_file)

static td_status matching_files(td_kernel_ctx *ctx) {
  const td_tensor *patterns = td_in(ctx, 0);
  td_names names = {0};
  td_tensor *out;
  td_status status = TD_STATUS_OK;
  if (patterns->rank > 1) {
    return td_invalid_argument("Input patterns tensor must be scalar or vector, but had shape: %s", TD_SHOW(patterns));
  }
  for (int64_t i = 0; i < patterns->count; i++) TD_TRY_GOTO(td_file_match(string_at(patterns, i), &names));
  td_names_sort(&names);
  TD_TRY_GOTO(td_out_alloc_dims(ctx, 0, 1, &(int64_t){(int64_t)names.count}, &out));
  for (size_t i = 0; i < names.count; i++)
    TD_TRY_GOTO(td_string_set(TD_DATA(out, td_string) + i, td_str_of(names.items[i])));
cleanup:
  td_names_deinit(&names);
  return status;
}
TD_BLOCKING(matching_files)

static const td_op_spec ops[] = {
    {"MatchingFiles", "pattern: string", "filenames: string", NULL, 0},
    {"ReadFile", "filename: string", "contents: string", NULL, 0},
    {"WriteFile", "filename: string; contents: string", NULL, NULL, TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    {.op = "MatchingFiles", .compute_async = matching_files_async},
    {.op = "ReadFile", .compute_async = read_file_async},
    {.op = "WriteFile", .compute_async = write_file_async},
};

TD_FAMILY(files, ops, kernels);
