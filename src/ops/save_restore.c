/* Checkpoints: SaveV2, RestoreV2, MergeV2Checkpoints, ShardedFilename, ShardedFilespec; and format V1: Save,
 * SaveSlices, Restore, RestoreSlice. Whatever touches files runs on the pool. */
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/bundle.h"
#include "checkpoint/checkpoint_v1.h"
#include "checkpoint/file.h"
#include "framework/device.h"
#include "ops/blocking.h"
#include "ops/families.h"
#include "ops/move.h"

static td_str string_at(const td_tensor *t, int64_t i) { return td_string_view(TD_DATA(t, td_string) + i); }

static td_sync when(const td_kernel_ctx *ctx) {
  return ctx->device->saves_wait_for_disk ? TD_SYNC_FIRST : TD_SYNC_BEHIND;
}

/* ---- V2 ---- */

enum { FIXED_INPUTS = 3 }; /* prefix, tensor names, shapes and slices */

static td_status check_inputs(td_kernel_ctx *ctx) {
  const td_tensor *prefix = td_in(ctx, 0), *names = td_in(ctx, 1), *slices = td_in(ctx, 2);
  if (prefix->count != 1) {
    return td_invalid_argument("Input prefix should have a single element, got %lld instead.",
                               (long long)prefix->count);
  }
  if (names->rank != 1 || slices->rank != 1) {
    return td_invalid_argument(
        "Input tensor_names and shape_and_slices should be an 1-D tensors, got %s and %s instead.", TD_SHOW(names),
        TD_SHOW(slices));
  }
  if (names->count != slices->count) {
    return td_invalid_argument("tensor_names and shape_and_slices have different number of elements: %lld vs. %lld",
                               (long long)names->count, (long long)slices->count);
  }
  return TD_STATUS_OK;
}

/* What a shape_and_slice says of a tensor to save. */
static td_status parse_for_save(td_str spec, const td_tensor *t, td_shape *full, td_slice *slice) {
  td_shape part;
  TD_TRY(td_shape_and_slice_parse(spec, full, slice, &part));
  if (!td_dims_eq(part.rank, part.dims, t->rank, t->dims)) {
    return td_invalid_argument(
        "Slice in shape_and_slice specification does not match the shape of the tensor to  save: "
        "%.*s, tensor: %s",
        (int)TD_MIN(spec.size, (size_t)512), spec.data, TD_SHOW(t));
  }
  return TD_STATUS_OK;
}

static td_status save_one(td_bundle_writer *w, td_str name, td_str spec, const td_tensor *t) {
  td_shape full;
  td_slice slice;
  if (!spec.size) return td_bundle_writer_add(w, name, t);
  TD_TRY(parse_for_save(spec, t, &full, &slice));
  return td_bundle_writer_add_slice(w, name, &full, &slice, t);
}

static td_status save_v2(td_kernel_ctx *ctx) {
  td_bundle_writer *w = NULL;
  TD_TRY(check_inputs(ctx));
  int64_t n = td_in(ctx, 1)->count;
  if (ctx->kernel->input_count != n + FIXED_INPUTS) {
    return td_invalid_argument("Got %lld tensor names but %d tensors.", (long long)n,
                               ctx->kernel->input_count - FIXED_INPUTS);
  }
  td_status status = td_bundle_writer_create(string_at(td_in(ctx, 0), 0), when(ctx), &w);
  for (int64_t i = 0; i < n && !status; i++) {
    status = save_one(w, string_at(td_in(ctx, 1), i), string_at(td_in(ctx, 2), i), td_in(ctx, (int)i + FIXED_INPUTS));
  }
  if (!status) status = td_bundle_writer_finish(w);
  td_bundle_writer_destroy(w);
  return status;
}
TD_BLOCKING(save_v2)

typedef struct restore {
  td_kernel_ctx *ctx;
  td_bundle_plan **plans;
  td_status *statuses;
} restore;

/* All types are held against the checkpoint's before anything is read. */
static td_status check_types(td_kernel_ctx *ctx, td_bundle_reader *r) {
  const td_tensor *names = td_in(ctx, 1);
  td_strbuf wrong = {0};
  td_status status = TD_STATUS_OK;
  for (int64_t i = 0; i < names->count && !status; i++) {
    td_dtype stored;
    td_shape shape;
    status = td_bundle_lookup(r, string_at(names, i), &stored, &shape);
    if (status || stored == td_out_type(ctx, (int)i)) continue;
    td_strbuf_printf(&wrong, "%stensor_name = %.*s; expected dtype %s does not equal original dtype %s",
                     wrong.size ? "\n" : "", TD_STR_ARG(string_at(names, i)), td_dtype_name(td_out_type(ctx, (int)i)),
                     td_dtype_name(stored));
  }
  if (!status && wrong.size) status = td_error_bytes(TD_INVALID_ARGUMENT, wrong.data, wrong.size);
  td_strbuf_deinit(&wrong);
  return status;
}

static td_status plan_one(td_kernel_ctx *ctx, td_bundle_reader *r, int64_t i, td_bundle_plan **out) {
  td_str name = string_at(td_in(ctx, 1), i), spec = string_at(td_in(ctx, 2), i);
  td_dtype dtype;
  td_shape full, part, stored;
  td_slice slice;
  if (!spec.size) return td_bundle_plan_create(r, name, NULL, out);
  TD_TRY(td_shape_and_slice_parse(spec, &full, &slice, &part));
  TD_TRY(td_bundle_lookup(r, name, &dtype, &stored));
  if (!td_shape_eq(&full, &stored)) {
    char *a = td_shape_text(&full), *b = td_shape_text(&stored);
    td_status status = td_invalid_argument(
        "tensor_name = %.*s; shape in shape_and_slice spec %s does not match the shape stored in checkpoint: %s",
        TD_STR_ARG(name), a, b);
    td_free(a);
    td_free(b);
    return status;
  }
  return td_bundle_plan_create(r, name, &slice, out);
}

static void read_range(void *arg, int64_t begin, int64_t end) {
  restore *r = arg;
  for (int64_t i = begin; i < end; i++) r->statuses[i] = td_bundle_read(r->plans[i], &r->ctx->out[i].tensor);
}

static td_status restore_bundle(td_kernel_ctx *ctx) {
  int64_t n = td_in(ctx, 1)->count;
  td_bundle_reader *reader = NULL;
  restore r = {ctx, td_new_array(td_bundle_plan *, n ? n : 1), td_new_array(td_status, n ? n : 1)};
  td_status status;
  TD_TRY_GOTO(td_bundle_reader_open(string_at(td_in(ctx, 0), 0), false, &reader));
  TD_TRY_GOTO(check_types(ctx, reader));
  for (int64_t i = 0; i < n; i++) TD_TRY_GOTO(plan_one(ctx, reader, i, &r.plans[i]));
  td_ctx_parallel_for(ctx, n, 1e5, read_range, &r);
  for (int64_t i = 0; i < n; i++) td_status_merge(&status, r.statuses[i]);
cleanup:
  for (int64_t i = 0; i < n; i++) td_bundle_plan_destroy(r.plans[i]);
  td_free(r.plans);
  td_free(r.statuses);
  td_bundle_reader_close(reader);
  return status;
}

/* A tensor of a V1 checkpoint as output `i`; `spec` empty: all of it. */
static td_status restore_v1(td_kernel_ctx *ctx, td_v1_reader *r, td_str pattern, td_str name, td_str spec, int i) {
  td_dtype dtype;
  td_shape stored, full, part;
  td_slice slice;
  bool found;
  td_tensor *t;
  TD_TRY(td_v1_reader_lookup(r, name, &dtype, &stored, &found));
  if (!found) {
    return td_not_found("Tensor name \"%.*s\" not found in checkpoint files %.*s", TD_STR_ARG(name),
                        TD_STR_ARG(pattern));
  }
  if (dtype != td_out_type(ctx, i)) {
    return td_invalid_argument(
        "Expected to restore a tensor of type %s, got a tensor of type %s instead: tensor_name = %.*s",
        td_dtype_name(td_out_type(ctx, i)), td_dtype_name(dtype), TD_STR_ARG(name));
  }
  td_slice_full(&slice, stored.rank);
  if (spec.size) {
    TD_TRY(td_shape_and_slice_parse(spec, &full, &slice, &part));
    if (!td_shape_eq(&full, &stored)) {
      char *a = td_shape_text(&full), *b = td_shape_text(&stored);
      td_status status = td_invalid_argument(
          "Shape in shape_and_slice spec does not match the shape in the save file: %s, save file shape: %s", a, b);
      td_free(a);
      td_free(b);
      return status;
    }
  }
  TD_TRY(td_v1_reader_read(r, name, &slice, &t));
  td_out_set(ctx, i, t);
  return TD_STATUS_OK;
}

static td_status restore_v2(td_kernel_ctx *ctx) {
  td_v1_reader *reader = NULL;
  const td_tensor *names = td_in(ctx, 1);
  if (names->count != ctx->kernel->output_count) {
    return td_invalid_argument("Got %lld tensor names, but %d expected dtypes.", (long long)names->count,
                               ctx->kernel->output_count);
  }
  TD_TRY(check_inputs(ctx));
  td_str prefix = string_at(td_in(ctx, 0), 0);
  if (td_bundle_exists(prefix)) return restore_bundle(ctx);
  td_status status = td_v1_reader_open(prefix, &reader);
  for (int64_t i = 0; i < names->count && !status; i++) {
    status = restore_v1(ctx, reader, prefix, string_at(names, i), string_at(td_in(ctx, 2), i), (int)i);
  }
  td_v1_reader_close(reader);
  return status;
}
TD_BLOCKING(restore_v2)

typedef struct merge_attrs {
  bool delete_old_dirs, allow_missing_files;
} merge_attrs;

static td_status merge_create(td_kernel_builder *b, void *state) {
  merge_attrs *a = state;
  TD_TRY(td_attr_bool(b->node, "delete_old_dirs", &a->delete_old_dirs));
  return td_attr_bool(b->node, "allow_missing_files", &a->allow_missing_files);
}

static td_status merge_v2(td_kernel_ctx *ctx) {
  const merge_attrs *attrs = ctx->state;
  const td_tensor *from = td_in(ctx, 0), *to = td_in(ctx, 1);
  if (from->rank != 1) {
    return td_invalid_argument("Input checkpoint_prefixes should be an 1-D tensor, got %s instead.", TD_SHOW(from));
  }
  if (to->rank) {
    return td_invalid_argument("Input destination_prefix should be a scalar tensor, got %s instead.", TD_SHOW(to));
  }
  td_str *prefixes = td_new_array(td_str, from->count ? from->count : 1), merged = string_at(to, 0);
  for (int64_t i = 0; i < from->count; i++) prefixes[i] = string_at(from, i);
  td_status status = td_bundle_merge(prefixes, (size_t)from->count, attrs->allow_missing_files, merged, when(ctx));
  for (int64_t i = 0; i < from->count && !status && attrs->delete_old_dirs; i++) {
    char *path = NULL;
    if (td_str_eq(td_file_dir(prefixes[i]), td_file_dir(merged))) continue;
    status = td_file_path(td_file_dir(prefixes[i]), &path);
    if (path) rmdir(path); /* the first of a folder's bundles does it; one that is not empty stays */
    td_free(path);
  }
  td_free(prefixes);
  return status;
}
TD_BLOCKING(merge_v2)

/* ---- names ---- */

static td_status set_name(td_kernel_ctx *ctx, char *name) {
  td_tensor *out;
  td_status status = td_out_alloc_dims(ctx, 0, 0, NULL, &out);
  if (!status) status = td_string_set(TD_DATA(out, td_string), td_str_of(name));
  td_free(name);
  return status;
}

static td_status check_scalars(td_kernel_ctx *ctx) {
  static const char *const names[] = {"Input 0 (basename)", "Input 1", "Input 2"};
  for (int i = 0; i < ctx->kernel->input_count; i++) {
    if (td_in(ctx, i)->count != 1) {
      return td_invalid_argument("%s must be a scalar, got shape %s", names[i], TD_SHOW(td_in(ctx, i)));
    }
  }
  td_str base = string_at(td_in(ctx, 0), 0);
  return base.size > INT_MAX / 2 ? td_invalid_argument("A file name of %zu bytes is too long", base.size)
                                 : TD_STATUS_OK;
}

static td_status sharded_filename(td_kernel_ctx *ctx) {
  TD_TRY(check_scalars(ctx));
  return set_name(ctx, td_asprintf("%.*s-%05d-of-%05d", TD_STR_ARG(string_at(td_in(ctx, 0), 0)),
                                   TD_DATA(td_in(ctx, 1), int32_t)[0], TD_DATA(td_in(ctx, 2), int32_t)[0]));
}

static td_status sharded_filespec(td_kernel_ctx *ctx) {
  TD_TRY(check_scalars(ctx));
  return set_name(ctx, td_asprintf("%.*s-\?\?\?\?\?-of-%05d", TD_STR_ARG(string_at(td_in(ctx, 0), 0)),
                                   TD_DATA(td_in(ctx, 1), int32_t)[0]));
}

/* ---- V1 ---- */

static td_status save_v1(td_kernel_ctx *ctx) {
  bool has_slices = td_str_is(ctx->kernel->op, "SaveSlices");
  const td_tensor *file = td_in(ctx, 0), *names = td_in(ctx, 1);
  int fixed = has_slices ? 3 : 2;
  td_v1_writer *w = NULL;
  if (file->count != 1) {
    return td_invalid_argument("Input 0 (filename) must be a string scalar; got a tensor of %lldelements",
                               (long long)file->count);
  }
  if (has_slices && td_in(ctx, 2)->count != names->count) {
    return td_invalid_argument("Expected %lld elements for the tensor shapes and slices but got %lld",
                               (long long)names->count, (long long)td_in(ctx, 2)->count);
  }
  if (ctx->kernel->input_count != names->count + fixed) {
    return td_invalid_argument(
        "Expected totally %lld inputs as input #1 (which is a string tensor of saved names) contains "
        "%lld names, but received %d inputs",
        (long long)names->count + fixed, (long long)names->count, ctx->kernel->input_count);
  }
  td_status status = td_v1_writer_create(string_at(file, 0), when(ctx), &w);
  for (int64_t i = 0; i < names->count && !status; i++) {
    const td_tensor *t = td_in(ctx, (int)i + fixed);
    td_str spec = has_slices ? string_at(td_in(ctx, 2), i) : TD_STR("");
    td_shape full;
    td_slice slice;
    td_tensor_shape(t, &full);
    td_slice_full(&slice, t->rank);
    if (spec.size) status = parse_for_save(spec, t, &full, &slice);
    if (!status) status = td_v1_writer_add(w, string_at(names, i), &full, &slice, t);
  }
  if (!status) status = td_v1_writer_finish(w);
  td_v1_writer_destroy(w);
  return status;
}
TD_BLOCKING(save_v1)

static td_status restore_one(td_kernel_ctx *ctx) {
  const td_tensor *pattern = td_in(ctx, 0), *name = td_in(ctx, 1);
  const td_tensor *spec = ctx->kernel->input_count > 2 ? td_in(ctx, 2) : NULL;
  td_v1_reader *reader = NULL;
  if (pattern->count != 1) {
    return td_invalid_argument("Input 0 (file_pattern) must be a string scalar; got a tensor of %lld elements",
                               (long long)pattern->count);
  }
  if (name->count < 1) return td_invalid_argument("Input 1 (file_pattern) must be a have at least 1 elements");
  if (spec && spec->count < 1) return td_invalid_argument("Input 2 (shape_and_slice) must have at least 1 element");
  td_status status = td_v1_reader_open(string_at(pattern, 0), &reader);
  if (!status) {
    status =
        restore_v1(ctx, reader, string_at(pattern, 0), string_at(name, 0), spec ? string_at(spec, 0) : TD_STR(""), 0);
  }
  td_v1_reader_close(reader);
  return status;
}
TD_BLOCKING(restore_one)

/* ---- tables ---- */

static const td_op_spec ops[] = {
    {"MergeV2Checkpoints", "checkpoint_prefixes: string; destination_prefix: string", NULL,
     "delete_old_dirs: bool = true; allow_missing_files: bool = false", TD_OP_STATEFUL},
    {"Restore", "file_pattern: string; tensor_name: string", "tensor: dt", "dt: type; preferred_shard: int = -1",
     TD_OP_STATEFUL},
    {"RestoreSlice", "file_pattern: string; tensor_name: string; shape_and_slice: string", "tensor: dt",
     "dt: type; preferred_shard: int = -1", TD_OP_STATEFUL},
    {"RestoreV2", "prefix: string; tensor_names: string; shape_and_slices: string", "tensors: dtypes",
     "dtypes: list(type) >= 1", TD_OP_STATEFUL},
    {"Save", "filename: string; tensor_names: string; data: T", NULL, "T: list(type) >= 1", TD_OP_STATEFUL},
    {"SaveSlices", "filename: string; tensor_names: string; shapes_and_slices: string; data: T", NULL,
     "T: list(type) >= 1", TD_OP_STATEFUL},
    {"SaveV2", "prefix: string; tensor_names: string; shape_and_slices: string; tensors: dtypes", NULL,
     "dtypes: list(type) >= 1", TD_OP_STATEFUL},
    {"ShardedFilename", "basename: string; shard: int32; num_shards: int32", "filename: string", NULL, 0},
    {"ShardedFilespec", "basename: string; num_shards: int32", "filename: string", NULL, 0},
};

static const td_kernel_def kernels[] = {
    {.op = "MergeV2Checkpoints",
     .state_size = sizeof(merge_attrs),
     .create = merge_create,
     .compute_async = merge_v2_async},
    {.op = "Restore", .compute_async = restore_one_async},
    {.op = "RestoreSlice", .compute_async = restore_one_async},
    {.op = "RestoreV2", .compute_async = restore_v2_async},
    {.op = "Save", .compute_async = save_v1_async},
    {.op = "SaveSlices", .compute_async = save_v1_async},
    {.op = "SaveV2", .compute_async = save_v2_async},
    {.op = "ShardedFilename", .cost = TD_COST_CHEAP, .compute = sharded_filename},
    {.op = "ShardedFilespec", .cost = TD_COST_CHEAP, .compute = sharded_filespec},
};

TD_FAMILY(save_restore, ops, kernels);
