/* SerializeIterator, DeserializeIterator: iterators in checkpoints. The state is a variant of a type of its own, as
 * TensorFlow's is private to it: version, checksum, then the archive of the tree (archive.h). A saved iterator is
 * restored into one that has been initialised with the same pipeline. */
#include <string.h>

#include "base/mem.h"
#include "checkpoint/crc32c.h"
#include "ops/blocking.h"
#include "ops/data/archive.h"
#include "ops/data/iterator_resource.h"
#include "ops/families.h"
#include "tensor/tensor_proto.h"

static const char type_name[] = "tensord::IteratorState";
enum { VERSION = 1, HEAD = 1 + 4 /* version, checksum of what follows */ };

/* ---- saving ---- */

typedef struct saving {
  td_request request;
  td_kernel_ctx *ctx;
  td_archive archive;
} saving;

static td_next use_tree(td_request *r, td_driver *d, td_status *status) {
  saving *s = TD_CONTAINER_OF(r, saving, request);
  if (td_driver_costs(d, SIZE_MAX) == TD_NEXT_HOP) return TD_NEXT_HOP;
  s->archive.waiter = d;
  s->archive.is_busy = false;
  s->archive.depth = 0;
  s->archive.out.size = 0;
  *status = td_driver_archive(d, &s->archive);
  if (!s->archive.is_busy) return TD_NEXT_READY;
  if (!*status) return TD_NEXT_WAIT;
  return TD_NEXT_READY; /* no need to wait for an error */
}

static td_status out_state(td_kernel_ctx *ctx, td_str payload) {
  td_strbuf message = {0};
  td_tensor *out;
  uint32_t crc = td_crc32c_mask(td_crc32c(payload.data, payload.size));
  td_wire_put_bytes(&message, 1, td_str_of(type_name));
  td_wire_put_header(&message, 2, payload.size + HEAD);
  td_strbuf_putc(&message, VERSION);
  td_strbuf_append(&message, td_str_n(&crc, sizeof crc));
  td_strbuf_append(&message, payload);
  td_status s = td_out_alloc_dims(ctx, 0, 0, NULL, &out);
  if (!s) s = td_opaque_variant_decode(td_strbuf_view(&message), TD_DATA(out, td_variant *));
  td_strbuf_deinit(&message);
  return s;
}

static void saved(td_request *r, td_status status, td_element *e) {
  saving *s = TD_CONTAINER_OF(r, saving, request);
  td_kernel_ctx *ctx = s->ctx;
  (void)e; /* none */
  if (!status) status = out_state(ctx, td_strbuf_view(&s->archive.out));
  td_archive_deinit(&s->archive);
  td_kernel_done(ctx, status);
}

static void saving_destroy(td_request *r) { td_free(TD_CONTAINER_OF(r, saving, request)); }

static void compute_serialize(td_kernel_ctx *ctx) {
  td_iterator_resource *r = NULL;
  td_driver *d = NULL;
  td_status s = td_iterator_resource_find(td_in(ctx, 0), ctx->device, &r);
  if (!s) s = td_iterator_resource_driver(r, "Save", "saving it", &d);
  td_resource_release(r);
  if (s) {
    td_kernel_done(ctx, s);
    return;
  }
  saving *save = td_new(saving);
  save->ctx = ctx;
  save->archive.is_writing = true;
  save->request =
      (td_request){.cancellation = ctx->step->cancellation, .done = saved, .destroy = saving_destroy, .use = use_tree};
  td_driver_next(d, &save->request);
  td_driver_release(d);
}

/* ---- restoring ---- */

/* The archive's bytes, borrowed from the tensor. */
static td_status in_state(const td_tensor *t, td_str *out) {
  *out = (td_str){0};
  td_str metadata = {0};
  td_wire_field f;
  bool bad = false;
  uint32_t crc;
  TD_TRY(td_check_scalar(t, "serialized"));
  const td_opaque_variant *v = td_variant_as_opaque(TD_DATA(t, td_variant *)[0]);
  if (!v || strcmp(v->type_name, type_name) != 0)
    return td_invalid_argument("The value is not an iterator's state of this server's, but %.*s", 64,
                               v ? v->type_name : "another variant");
  for (td_wire in = td_wire_of(td_str_n(v->bytes, v->size)); td_wire_next(&in, &f, &bad);)
    if (f.number == 2 && f.type == TD_WIRE_BYTES) metadata = f.bytes;
  if (bad || metadata.size < HEAD) return td_archive_invalid("it is cut off");
  if (metadata.data[0] != VERSION)
    return td_unimplemented("The state of an iterator has version %d, this server knows %d",
                            (unsigned char)metadata.data[0], VERSION);
  memcpy(&crc, metadata.data + 1, sizeof crc);
  *out = td_str_n(metadata.data + HEAD, metadata.size - HEAD);
  return td_crc32c_unmask(crc) == td_crc32c(out->data, out->size) ? TD_STATUS_OK
                                                                  : td_archive_invalid("its checksum does not match");
}

/* A tree over `dataset` in that state. */
static td_status revive(td_dataset *dataset, td_str state, td_pool *pool, td_driver **out) {
  td_archive a = {.in = td_wire_of(state)};
  td_driver *d = td_driver_create(pool);
  td_status s = td_driver_set_root(d, dataset, NULL);
  if (!s) s = td_driver_archive(d, &a);
  if (!s && td_wire_left(&a.in)) s = td_archive_invalid("something follows it");
  td_archive_deinit(&a);
  if (s)
    td_driver_release(d);
  else
    *out = d;
  return s;
}

static td_status compute_deserialize(td_kernel_ctx *ctx) {
  td_iterator_resource *r;
  td_driver *old = NULL, *d;
  td_str state;
  TD_TRY(in_state(td_in(ctx, 1), &state));
  TD_TRY(td_iterator_resource_find(td_in(ctx, 0), ctx->device, &r));
  td_status s = td_iterator_resource_driver(r, "Restore", "restoring it", &old);
  if (!s) s = revive(td_driver_dataset(old), state, ctx->step->pool, &d);
  if (!s) td_iterator_resource_replace(r, d);
  td_driver_release(old);
  td_resource_release(r);
  return s;
}
TD_BLOCKING(compute_deserialize)

static const td_op_spec ops[] = {
    {"DeserializeIterator", "resource_handle: resource; serialized: variant", NULL, NULL, TD_OP_STATEFUL},
    {"SerializeIterator", "resource_handle: resource", "serialized: variant", "external_state_policy: int = 0",
     TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    {.op = "DeserializeIterator", .cost = TD_COST_CHEAP, .compute_async = compute_deserialize_async},
    {.op = "SerializeIterator", .cost = TD_COST_CHEAP, .compute_async = compute_serialize},
};

TD_FAMILY(iterator_state, ops, kernels);
