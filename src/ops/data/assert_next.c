/* AssertNext, AssertPrev: datasets that hand their input on, after a look at what stands around them. For tests of what
 * becomes of a pipeline: here it runs as it was written, but for Skip(0), Take(-1), Repeat(1), which are nothing. */
#include <ctype.h>

#include "base/mem.h"
#include "ops/data/archive.h"
#include "ops/families.h"

typedef struct asserted {
  td_dataset base;
  td_tensor *names; /* a vector of strings, retained */
} asserted;

typedef struct assert_iterator {
  td_iterator base;
  td_iterator *input;
  bool is_asked;
} assert_iterator;

static void asserted_destroy(td_dataset *d) { td_tensor_release(((asserted *)d)->names); }

/* "Map" and "MapV2" are the same. */
static td_str without_version(td_str name) {
  size_t n = name.size;
  while (n && isdigit((unsigned char)name.data[n - 1])) n--;
  return n && n < name.size && name.data[n - 1] == 'V' ? td_str_n(name.data, n - 1) : name;
}

static td_status mismatch(td_str want, int64_t at, const char *found) {
  return td_invalid_argument("Asserted %.*s transformation at offset %lld but encountered %s transformation instead.",
                             TD_STR_ARG(want), (long long)at, found);
}

static td_status too_few(const char *which, int64_t want, int64_t found) {
  return td_invalid_argument("Asserted %s %lld transformations but encountered only %lld.", which, (long long)want,
                             (long long)found);
}

static td_status check_next(const td_iterator *it, const td_tensor *names) {
  const td_iterator *at = td_iterator_consumer(it);
  for (int64_t i = 0; i < names->count; i++, at = td_iterator_consumer(at)) {
    td_str want = td_string_view(TD_DATA(names, td_string) + i);
    if (!at) return too_few("next", names->count, i);
    if (!td_str_eq(without_version(want), without_version(td_str_of(at->dataset->ops->name))))
      return mismatch(want, i, at->dataset->ops->name);
  }
  return TD_STATUS_OK;
}

/* These are names of nodes' kinds: "MapDataset", maybe with attributes after it, which are not looked at. */
static td_status check_prev(const td_dataset *d, const td_tensor *names) {
  for (int64_t i = 0; i < names->count; i++) {
    td_str want = td_string_view(TD_DATA(names, td_string) + i), kind = want;
    size_t n = 0;
    while (n < want.size && want.data[n] != '(') n++;
    kind.size = n;
    if (!d->input_count) return too_few("previous", names->count, i);
    d = d->inputs[0];
    char *name = td_asprintf("%sDataset", d->ops->name);
    td_status s = td_str_eq(without_version(kind), td_str_of(name)) ? TD_STATUS_OK : mismatch(want, i, name);
    td_free(name);
    if (s) return s;
  }
  return TD_STATUS_OK;
}

static td_status next_start(td_iterator *it) {
  TD_TRY(check_next(it, ((asserted *)it->dataset)->names));
  return td_iterator_create_input(it, 0, &((assert_iterator *)it)->input);
}

static td_status prev_start(td_iterator *it) {
  TD_TRY(check_prev(it->dataset, ((asserted *)it->dataset)->names));
  return td_iterator_create_input(it, 0, &((assert_iterator *)it)->input);
}

static void assert_stop(td_iterator *it) { td_iterator_destroy(((assert_iterator *)it)->input); }

static td_next assert_advance(td_iterator *it) {
  assert_iterator *a = (assert_iterator *)it;
  a->is_asked = !a->is_asked;
  return a->is_asked ? td_iterator_pull(it, a->input) : td_iterator_pass(it, a->input);
}

static td_status assert_archive(td_iterator *it, td_archive *a) {
  TD_TRY(td_archive_input(a, it, 0, &((assert_iterator *)it)->input));
  return ((assert_iterator *)it)->input ? TD_STATUS_OK : td_archive_invalid("an input is missing");
}

#define ASSERTED(label, start_fn)                                                                          \
  {                                                                                                        \
    .name = label, .iterator_size = sizeof(assert_iterator), .start = start_fn, .advance = assert_advance, \
    .stop = assert_stop, .archive = assert_archive, .destroy = asserted_destroy,                           \
    .cardinality = td_dataset_input_cardinality                                                            \
  }
static const td_dataset_ops next_ops = ASSERTED("AssertNext", next_start),
                            prev_ops = ASSERTED("AssertPrev", prev_start);

static td_status make(td_kernel_ctx *ctx, const td_dataset_ops *ops) {
  td_dataset *input, *d;
  TD_TRY(td_in_dataset(ctx, 0, &input));
  TD_TRY(td_check_vector(td_in(ctx, 1), "transformations"));
  TD_TRY(td_dataset_create(ops, sizeof(asserted), &((td_dataset_kernel *)ctx->state)->spec, &input, 1, &d));
  ((asserted *)d)->names = td_tensor_retain(td_in(ctx, 1));
  return td_out_dataset(ctx, TD_STATUS_OK, d);
}

static td_status compute_next(td_kernel_ctx *ctx) { return make(ctx, &next_ops); }
static td_status compute_prev(td_kernel_ctx *ctx) { return make(ctx, &prev_ops); }

#define ASSERT(name) \
  { name, "input_dataset: variant; transformations: string", "handle: variant", TD_DATASET_TYPES, 0 }

static const td_op_spec ops[] = {ASSERT("AssertNextDataset"), ASSERT("AssertPrevDataset"),
                                 ASSERT("ExperimentalAssertNextDataset")};

static const td_kernel_def kernels[] = {
    TD_DATASET_KERNEL("AssertNextDataset", td_dataset_kernel_create, compute_next),
    TD_DATASET_KERNEL("AssertPrevDataset", td_dataset_kernel_create, compute_prev),
    TD_DATASET_KERNEL("ExperimentalAssertNextDataset", td_dataset_kernel_create, compute_next),
};

TD_FAMILY(assert_next, ops, kernels);
