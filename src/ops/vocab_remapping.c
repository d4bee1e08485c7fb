/* GenerateVocabRemapping: where the entries of a vocabulary file stand in an older one. */
#include "base/mem.h"
#include "ops/blocking.h"
#include "ops/families.h"
#include "ops/table.h"

static const td_op_spec ops[] = {
    {"GenerateVocabRemapping", "new_vocab_file: string; old_vocab_file: string", "remapping: int64; num_present: int32",
     "new_vocab_offset: int >= 0; num_new_vocab: int >= 0; old_vocab_size: int >= -1 = -1", 0},
};

typedef struct vocab_state {
  int64_t offset, count, old_size;
} vocab_state;

static td_status vocab_create(td_kernel_builder *b, void *state) {
  vocab_state *st = state;
  TD_TRY(td_attr_int(b->node, "new_vocab_offset", &st->offset));
  TD_TRY(td_attr_int(b->node, "num_new_vocab", &st->count));
  return td_attr_int(b->node, "old_vocab_size", &st->old_size);
}

/* The lines of a file as a table, either way: from number to text, or from text to number. */
static td_status read_vocabulary(td_kernel_ctx *ctx, int input, bool by_number, int64_t size, td_table **out) {
  const td_tensor *name = td_in(ctx, input);
  if (name->count != 1)
    return td_invalid_argument("input %d of %.*s should be a single file name", input, TD_STR_ARG(ctx->kernel->op));
  td_str path = td_string_view(TD_DATA(name, td_string));
  if (!path.size || memchr(path.data, 0, path.size))
    return td_invalid_argument("%s vocab filename cannot be empty.", input ? "old" : "new");
  td_table_options o = {.kind = TD_TABLE_HASH,
                        .key_type = by_number ? TD_INT64 : TD_STRING,
                        .value_type = by_number ? TD_STRING : TD_INT64,
                        .value_size = 1};
  td_table_file_options file = {.vocab_size = size,
                                .key_index = by_number ? TD_TABLE_LINE_NUMBER : TD_TABLE_WHOLE_LINE,
                                .value_index = by_number ? TD_TABLE_WHOLE_LINE : TD_TABLE_LINE_NUMBER,
                                .delimiter = '\t'};
  TD_TRY(td_table_create(&o, out));
  char *text = td_strndup(path.data, path.size);
  td_status s = td_table_init_from_file(*out, text, &file);
  td_free(text);
  return s;
}

/* Looks `count` keys up; what is not found gets the default. One reference. */
static td_status look_up(td_table *t, const td_tensor *keys, const td_tensor *none, td_tensor **out) {
  TD_TRY(td_tensor_create_dims(t->value_type, 1, keys->dims, out));
  return td_table_find(t, keys, none, *out);
}

static td_status remap(td_kernel_ctx *ctx, td_table *new_vocab, td_table *old_vocab) {
  const vocab_state *st = ctx->state;
  td_status status = TD_STATUS_OK;
  td_tensor *lines = NULL, *words = NULL, *no_word = NULL, *no_line = NULL, *found = NULL, *present;
  TD_TRY_GOTO(td_tensor_create_dims(TD_INT64, 1, &st->count, &lines));
  TD_TRY_GOTO(td_tensor_create_dims(TD_STRING, 0, NULL, &no_word));
  TD_TRY_GOTO(td_tensor_create_dims(TD_INT64, 0, NULL, &no_line));
  TD_DATA(no_line, int64_t)[0] = -1;
  for (int64_t i = 0; i < st->count; i++) TD_DATA(lines, int64_t)[i] = st->offset + i;
  TD_TRY_GOTO(look_up(new_vocab, lines, no_word, &words));
  TD_TRY_GOTO(look_up(old_vocab, words, no_line, &found));
  TD_TRY_GOTO(td_out_alloc_dims(ctx, 1, 0, NULL, &present));
  TD_DATA(present, int32_t)[0] = 0;
  for (int64_t i = 0; i < st->count; i++) TD_DATA(present, int32_t)[0] += TD_DATA(found, int64_t)[i] >= 0;
  td_out_set(ctx, 0, found);
  found = NULL;
cleanup:
  td_tensor_release(lines);
  td_tensor_release(words);
  td_tensor_release(no_word);
  td_tensor_release(no_line);
  td_tensor_release(found);
  return status;
}

static td_status vocab_compute(td_kernel_ctx *ctx) {
  const vocab_state *st = ctx->state;
  td_table *new_vocab = NULL, *old_vocab = NULL;
  td_status status = TD_STATUS_OK;
  TD_TRY_GOTO(read_vocabulary(ctx, 0, true, -1, &new_vocab));
  if (st->offset > td_table_size(new_vocab) - st->count)
    TD_TRY_GOTO(
        td_invalid_argument("new_vocab_offset %lld and num_new_vocab %lld go beyond the new vocabulary of %lld "
                            "entries",
                            (long long)st->offset, (long long)st->count, (long long)td_table_size(new_vocab)));
  TD_TRY_GOTO(read_vocabulary(ctx, 1, false, st->old_size, &old_vocab));
  status = remap(ctx, new_vocab, old_vocab);
cleanup:
  if (new_vocab) td_resource_release(new_vocab);
  if (old_vocab) td_resource_release(old_vocab);
  return status;
}
TD_BLOCKING(vocab_compute)

static const td_kernel_def kernels[] = {
    {.op = "GenerateVocabRemapping",
     .state_size = sizeof(vocab_state),
     .create = vocab_create,
     .compute_async = vocab_compute_async},
};

TD_FAMILY(vocab_remapping, ops, kernels);
