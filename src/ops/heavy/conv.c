/* Convolutions through oneDNN.
 *
 * A primitive costs far more to make than to run, so primitives are kept in a bounded cache by shape. Running one
 * needs memory objects and a scratchpad that no other thread uses: each cached plan keeps the few sets that were
 * in use at one time. A shape that oneDNN would only run with its reference loops is remembered as such and refused.
 */
#include <dnnl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ops/heavy/heavy.h"

typedef enum kind { FORWARD, BACKWARD_INPUT, BACKWARD_FILTER } kind;

/* What one running call needs for itself. */
typedef struct run {
  struct run *next;
  dnnl_stream_t stream;
  dnnl_memory_t input, filter, packed, output, scratch; /* packed: the filter as the primitive wants it, or NULL */
  void *packed_data, *scratch_data;
} run;

enum { IDLE_RUNS = 4, SETS = 64, WAYS = 4, KEPT_BYTES = 8 << 20 };

typedef struct plan {
  /* immutable */
  kind kind;
  td_heavy_conv p;
  bool usable, keeps_runs;
  dnnl_primitive_t primitive, reorder; /* reorder: of the filter, into or out of the primitive's layout; or NULL */
  dnnl_memory_desc_t input_md, filter_md, packed_md, output_md, scratch_md;
  /* guarded by the cache's lock */
  int refs;
  uint64_t last_use;
  run *idle;
  int idle_count;
} plan;

static struct {
  pthread_mutex_t lock;
  plan *plans[SETS][WAYS]; /* one reference each */
  uint64_t clock;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t engine_once = PTHREAD_ONCE_INIT;
static dnnl_engine_t engine; /* written once; lives as long as the process */
static void create_engine(void) {
  if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) engine = NULL;
}

static void run_destroy(run *r) {
  if (!r) return;
  if (r->input) dnnl_memory_destroy(r->input);
  if (r->filter) dnnl_memory_destroy(r->filter);
  if (r->packed) dnnl_memory_destroy(r->packed);
  if (r->output) dnnl_memory_destroy(r->output);
  if (r->scratch) dnnl_memory_destroy(r->scratch);
  if (r->stream) dnnl_stream_destroy(r->stream);
  free(r->packed_data);
  free(r->scratch_data);
  free(r);
}

static void plan_destroy(plan *p) {
  while (p->idle) {
    run *r = p->idle;
    p->idle = r->next;
    run_destroy(r);
  }
  if (p->primitive) dnnl_primitive_destroy(p->primitive);
  if (p->reorder) dnnl_primitive_destroy(p->reorder);
  free(p);
}

static void *aligned(size_t size) { return aligned_alloc(64, (size + 63) / 64 * 64 + 64); }

static bool memory_with(const dnnl_memory_desc_t *md, dnnl_memory_t *out, void **out_data) {
  size_t size = dnnl_memory_desc_get_size(md);
  return (*out_data = aligned(size)) && dnnl_memory_create(out, md, engine, *out_data) == dnnl_success;
}

static run *run_create(const plan *p) {
  run *r = calloc(1, sizeof *r);
  if (!r) return NULL;
  bool ok = dnnl_stream_create(&r->stream, engine, dnnl_stream_default_flags) == dnnl_success &&
            dnnl_memory_create(&r->input, &p->input_md, engine, DNNL_MEMORY_NONE) == dnnl_success &&
            dnnl_memory_create(&r->filter, &p->filter_md, engine, DNNL_MEMORY_NONE) == dnnl_success &&
            dnnl_memory_create(&r->output, &p->output_md, engine, DNNL_MEMORY_NONE) == dnnl_success &&
            (!p->reorder || memory_with(&p->packed_md, &r->packed, &r->packed_data)) &&
            memory_with(&p->scratch_md, &r->scratch, &r->scratch_data);
  if (ok) return r;
  run_destroy(r);
  return NULL;
}

/* ---- making a plan ---- */

static bool describe(plan *p) {
  const td_heavy_conv *c = &p->p;
  const dnnl_dims_t in = {c->batch, c->in_c, c->in_h, c->in_w}, out = {c->batch, c->out_c, c->out_h, c->out_w},
                    filter = {c->out_c, c->in_c, c->filter_h, c->filter_w};
  return dnnl_memory_desc_init_by_tag(&p->input_md, 4, in, dnnl_f32, dnnl_nhwc) == dnnl_success &&
         dnnl_memory_desc_init_by_tag(&p->output_md, 4, out, dnnl_f32, dnnl_nhwc) == dnnl_success &&
         dnnl_memory_desc_init_by_tag(&p->filter_md, 4, filter, dnnl_f32, dnnl_hwio) == dnnl_success &&
         dnnl_memory_desc_init_by_tag(&p->packed_md, 4, filter, dnnl_f32, dnnl_format_tag_any) == dnnl_success;
}

static bool describe_work(const plan *p, kind kind, dnnl_convolution_desc_t *out) {
  const td_heavy_conv *c = &p->p;
  const dnnl_dims_t strides = {c->stride_h, c->stride_w}, dilates = {c->dilation_h - 1, c->dilation_w - 1},
                    before = {c->pad_top, c->pad_left}, after = {c->pad_bottom, c->pad_right};
  dnnl_status_t s;
  if (kind == FORWARD) {
    s = dnnl_dilated_convolution_forward_desc_init(out, dnnl_forward_training, dnnl_convolution_direct, &p->input_md,
                                                   &p->packed_md, NULL, &p->output_md, strides, dilates, before, after);
  } else if (kind == BACKWARD_INPUT) {
    s = dnnl_dilated_convolution_backward_data_desc_init(out, dnnl_convolution_direct, &p->input_md, &p->packed_md,
                                                         &p->output_md, strides, dilates, before, after);
  } else {
    s = dnnl_dilated_convolution_backward_weights_desc_init(out, dnnl_convolution_direct, &p->input_md, &p->packed_md,
                                                            NULL, &p->output_md, strides, dilates, before, after);
  }
  return s == dnnl_success;
}

static const char *name_of(dnnl_primitive_desc_t pd) {
  const char *name = NULL;
  return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name) == dnnl_success && name ? name
                                                                                                           : "ref";
}

/* Puts the implementation of that name in the place of `*pd`, if oneDNN has it for the case. */
static void prefer(const char *name, const dnnl_convolution_desc_t *desc, dnnl_primitive_attr_t attr,
                   dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_iterator_t at = NULL;
  if (dnnl_primitive_desc_iterator_create(&at, desc, attr, engine, NULL) != dnnl_success) return;
  do {
    dnnl_primitive_desc_t other = dnnl_primitive_desc_iterator_fetch(at);
    bool is_it = other && !strcmp(name_of(other), name);
    dnnl_primitive_desc_t spare = is_it ? *pd : other;
    if (is_it) *pd = other;
    if (spare) dnnl_primitive_desc_destroy(spare);
    if (is_it) break;
  } while (dnnl_primitive_desc_iterator_next(at) == dnnl_success);
  dnnl_primitive_desc_iterator_destroy(at);
}

/* oneDNN's first choice multiplies blocks of input channels. Where there is not more than one vector of them, its
 * older loops take 0.4 (1 channel) to 0.9 (16) of the time; not with a filter of one pixel. */
static bool has_few_channels(const td_heavy_conv *c) { return c->in_c <= 16 && c->filter_h * c->filter_w > 1; }

static bool primitive_desc(const plan *p, kind kind, dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint,
                           dnnl_primitive_desc_t *out) {
  dnnl_convolution_desc_t desc;
  if (!describe_work(p, kind, &desc) || dnnl_primitive_desc_create(out, &desc, attr, engine, hint) != dnnl_success)
    return false;
  if (p->kind == FORWARD && has_few_channels(&p->p)) prefer("jit:avx512_core", &desc, attr, out);
  return true;
}

/* Whether a layout is only another name for the dense one `plain`: its blocks are as long as their dimensions. */
static bool is_same_layout(const dnnl_memory_desc_t *md, const dnnl_memory_desc_t *plain) {
  const dnnl_blocking_desc_t *b = &md->format_desc.blocking;
  dnnl_dims_t strides;
  dnnl_dim_t step = 1;
  if (md->format_kind != dnnl_blocked || md->extra.flags != dnnl_memory_extra_flag_none) return false;
  memcpy(strides, b->strides, sizeof strides);
  for (int i = b->inner_nblks - 1; i >= 0; i--) {
    dnnl_dim_t d = b->inner_idxs[i];
    if (b->inner_blks[i] != md->dims[d]) return false;
    strides[d] = step;
    step *= b->inner_blks[i];
  }
  for (int d = 0; d < md->ndims; d++) {
    if (md->padded_dims[d] != md->dims[d]) return false;
    if (md->dims[d] > 1 && strides[d] != plain->format_desc.blocking.strides[d]) return false;
  }
  return true;
}

static bool make_reorder(plan *p) {
  if (is_same_layout(&p->packed_md, &p->filter_md)) {
    p->filter_md = p->packed_md;
    return true;
  }
  bool out_of = p->kind == BACKWARD_FILTER;
  dnnl_primitive_desc_t pd = NULL;
  if (dnnl_reorder_primitive_desc_create(&pd, out_of ? &p->packed_md : &p->filter_md, engine,
                                         out_of ? &p->filter_md : &p->packed_md, engine, NULL) != dnnl_success)
    return false;
  bool ok = dnnl_primitive_create(&p->reorder, pd) == dnnl_success;
  dnnl_primitive_desc_destroy(pd);
  return ok;
}

static bool build(plan *p) {
  bool ok = false;
  dnnl_primitive_attr_t attr = NULL;
  dnnl_primitive_desc_t forward = NULL, pd = NULL;
  if (!engine || !describe(p) || dnnl_primitive_attr_create(&attr) != dnnl_success) goto cleanup;
  dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
  if (p->kind != FORWARD && !primitive_desc(p, FORWARD, attr, NULL, &forward)) goto cleanup;
  if (!primitive_desc(p, p->kind, attr, forward, &pd) || !strncmp(name_of(pd), "ref", 3)) goto cleanup;
  p->packed_md = *dnnl_primitive_desc_query_md(
      pd, p->kind == BACKWARD_FILTER ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
  p->scratch_md = *dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
  p->keeps_runs = dnnl_memory_desc_get_size(&p->scratch_md) + dnnl_memory_desc_get_size(&p->packed_md) <= KEPT_BYTES;
  ok = dnnl_primitive_create(&p->primitive, pd) == dnnl_success && make_reorder(p);
cleanup:
  if (pd) dnnl_primitive_desc_destroy(pd);
  if (forward) dnnl_primitive_desc_destroy(forward);
  if (attr) dnnl_primitive_attr_destroy(attr);
  return ok;
}

/* ---- the cache ---- */

static size_t set_of(kind kind, const td_heavy_conv *c) {
  uint64_t h = (uint64_t)kind + 1;
  const int64_t *words = (const int64_t *)c;
  for (size_t i = 0; i < sizeof *c / sizeof *words; i++)
    h = (h ^ (uint64_t)words[i]) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
  return h % SETS;
}

/* Drops a reference; the lock is held. Returns the plan when it is to be destroyed (outside the lock). */
static plan *unref(plan *p) { return --p->refs == 0 ? p : NULL; }

/* One reference; *out_run: one of its idle runs, if it has any. */
static plan *find(plan **set, kind kind, const td_heavy_conv *c, run **out_run) {
  for (int i = 0; i < WAYS; i++) {
    plan *p = set[i];
    if (!p || p->kind != kind || memcmp(&p->p, c, sizeof *c)) continue;
    p->last_use = ++cache.clock;
    p->refs++;
    *out_run = p->idle;
    if (p->idle) p->idle = p->idle->next, p->idle_count--;
    return p;
  }
  return NULL;
}

/* Puts `p` in the place of the least recently used plan of its set, which is returned if nobody runs it. */
static plan *insert(plan **set, plan *p) {
  int at = 0;
  for (int i = 0; i < WAYS; i++) {
    if (!set[i]) {
      at = i;
      break;
    }
    if (set[i]->last_use < set[at]->last_use) at = i;
  }
  plan *old = set[at];
  set[at] = p;
  p->last_use = ++cache.clock;
  return old ? unref(old) : NULL;
}

/* The plan for a case, with one reference; NULL without memory. Two threads may build the same one: the first stays.
 * *out_run: as find(). */
static plan *plan_get(kind kind, const td_heavy_conv *c, run **out_run) {
  plan **set = cache.plans[set_of(kind, c)];
  *out_run = NULL;
  pthread_mutex_lock(&cache.lock);
  plan *p = find(set, kind, c, out_run);
  pthread_mutex_unlock(&cache.lock);
  if (p) return p;
  plan *fresh = calloc(1, sizeof *fresh), *dead;
  if (!fresh) return NULL;
  fresh->kind = kind;
  fresh->p = *c;
  fresh->refs = 2; /* the cache's and the caller's */
  fresh->usable = build(fresh);
  pthread_mutex_lock(&cache.lock);
  p = find(set, kind, c, out_run);
  if (p) {
    dead = fresh;
  } else {
    p = fresh;
    dead = insert(set, fresh);
  }
  pthread_mutex_unlock(&cache.lock);
  if (dead) plan_destroy(dead);
  return p;
}

static void plan_put(plan *p, run *r) {
  pthread_mutex_lock(&cache.lock);
  if (r && p->idle_count < IDLE_RUNS && p->keeps_runs) {
    r->next = p->idle;
    p->idle = r;
    p->idle_count++;
    r = NULL;
  }
  plan *dead = unref(p);
  pthread_mutex_unlock(&cache.lock);
  run_destroy(r);
  if (dead) plan_destroy(dead);
}

/* ---- running ---- */

static bool reorder(const plan *p, run *r, dnnl_memory_t from, dnnl_memory_t to) {
  const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
  return dnnl_primitive_execute(p->reorder, r->stream, 2, args) == dnnl_success;
}

static bool execute(const plan *p, run *r, void *input, void *filter, void *output) {
  dnnl_memory_set_data_handle(r->input, input);
  dnnl_memory_set_data_handle(r->filter, filter);
  dnnl_memory_set_data_handle(r->output, output);
  dnnl_memory_t packed = r->packed ? r->packed : r->filter;
  if (p->reorder && p->kind != BACKWARD_FILTER && !reorder(p, r, r->filter, packed)) return false;
  const int args_of[3][3] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                             {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                             {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
  const dnnl_exec_arg_t args[] = {{args_of[p->kind][0], r->input},
                                  {args_of[p->kind][1], packed},
                                  {args_of[p->kind][2], r->output},
                                  {DNNL_ARG_SCRATCHPAD, r->scratch}};
  if (dnnl_primitive_execute(p->primitive, r->stream, 4, args) != dnnl_success) return false;
  if (p->reorder && p->kind == BACKWARD_FILTER && !reorder(p, r, packed, r->filter)) return false;
  return dnnl_stream_wait(r->stream) == dnnl_success;
}

static bool convolve(kind kind, const td_heavy_conv *c, const void *input, const void *filter, const void *output) {
  pthread_once(&engine_once, create_engine);
  td_heavy_enter();
  run *r;
  plan *p = plan_get(kind, c, &r);
  if (!p) return false;
  if (!r && p->usable) r = run_create(p);
  bool ok = r && execute(p, r, (void *)(uintptr_t)input, (void *)(uintptr_t)filter, (void *)(uintptr_t)output);
  plan_put(p, r);
  return ok;
}

bool td_heavy_conv_forward(const td_heavy_conv *p, const float *input, const float *filter, float *output) {
  return convolve(FORWARD, p, input, filter, output);
}
bool td_heavy_conv_backward_input(const td_heavy_conv *p, const float *grad, const float *filter, float *input_grad) {
  return convolve(BACKWARD_INPUT, p, input_grad, filter, grad);
}
bool td_heavy_conv_backward_filter(const td_heavy_conv *p, const float *input, const float *grad, float *filter_grad) {
  return convolve(BACKWARD_FILTER, p, input, filter_grad, grad);
}
