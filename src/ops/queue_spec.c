/* What queues are made of: reading, checking, comparing. */
#include <string.h>

#include "base/mem.h"
#include "ops/queue_data.h"

const char *td_queue_kind_name(td_queue_kind kind) {
  static const char *const names[] = {
      [TD_QUEUE_FIFO] = "FIFOQueue",
      [TD_QUEUE_SHUFFLE] = "RandomShuffleQueue",
      [TD_QUEUE_PADDING] = "PaddingFIFOQueue",
      [TD_QUEUE_PRIORITY] = "PriorityQueue",
  };
  return names[kind];
}

void td_queue_spec_deinit(td_queue_spec *s) {
  for (int i = 0; i < s->shape_count; i++) td_partial_shape_deinit(&s->shapes[i]);
  td_free(s->shapes);
  td_free(s->types);
  *s = (td_queue_spec){0};
}

char *td_queue_types_text(const td_queue_spec *s) {
  td_strbuf b = {0};
  for (int i = 0; i < s->type_count; i++) td_strbuf_printf(&b, "%s%s", i ? ", " : "", td_dtype_name(s->types[i]));
  return td_strbuf_take(&b);
}

/* "[[2,3], []]" */
static char *shapes_text(const td_queue_spec *s) {
  td_strbuf b = {0};
  td_strbuf_putc(&b, '[');
  for (int i = 0; i < s->shape_count; i++) {
    char *text = td_partial_shape_text(&s->shapes[i]);
    td_strbuf_printf(&b, "%s%s", i ? ", " : "", text);
    td_free(text);
  }
  td_strbuf_putc(&b, ']');
  return td_strbuf_take(&b);
}

td_status td_queue_spec_check(const td_queue_spec *s, td_str name) {
  if (!s->type_count) return td_invalid_argument("Empty component types for queue %.*s", TD_STR_ARG(name));
  if (s->shape_count && s->shape_count != s->type_count) {
    char *types = td_queue_types_text(s), *shapes = shapes_text(s);
    td_status status =
        td_invalid_argument("Different number of component types.  Types: %s, Shapes: %s", types, shapes);
    td_free(types);
    td_free(shapes);
    return status;
  }
  if (s->kind == TD_QUEUE_PADDING && s->shape_count != s->type_count)
    return td_invalid_argument("Shapes must be provided for all components, but received %d dtypes and %d shapes.",
                               s->type_count, s->shape_count);
  for (int i = 0; i < s->shape_count; i++)
    if (s->shapes[i].rank < 0 || (s->kind != TD_QUEUE_PADDING && !td_partial_shape_is_full(&s->shapes[i])))
      return td_invalid_argument("The shape of component %d of queue %.*s is not fully known", i, TD_STR_ARG(name));
  return TD_STATUS_OK;
}

static bool same_types(const td_queue_spec *a, const td_queue_spec *b) {
  return a->type_count == b->type_count && !memcmp(a->types, b->types, (size_t)a->type_count * sizeof *a->types);
}

static bool same_shapes(const td_queue_spec *a, const td_queue_spec *b) {
  if (a->shape_count != b->shape_count) return false;
  for (int i = 0; i < a->shape_count; i++) {
    const td_partial_shape *x = &a->shapes[i], *y = &b->shapes[i];
    if (a->kind == TD_QUEUE_PADDING ? !td_partial_shape_fits(x, y->rank, y->dims) : !td_partial_shape_eq(x, y))
      return false;
  }
  return true;
}

static td_status differ(const char *noun, const char *name, const char *what, char *have, char *want) {
  td_status s = td_invalid_argument("Shared %s '%s' has component %s %s but requested component %s were %s", noun, name,
                                    what, have, what, want);
  td_free(have);
  td_free(want);
  return s;
}

td_status td_queue_components_match(const td_queue_spec *own, const td_queue_spec *want, const char *noun,
                                    const char *name) {
  if (!same_types(own, want)) return differ(noun, name, "types", td_queue_types_text(own), td_queue_types_text(want));
  if (!same_shapes(own, want)) return differ(noun, name, "shapes", shapes_text(own), shapes_text(want));
  return TD_STATUS_OK;
}

td_status td_queue_spec_matches(const td_queue_spec *own, const td_queue_spec *s, const char *name, td_str node,
                                td_str op) {
  if (own->kind != s->kind)
    return td_invalid_argument("Expected %s, found %.*s", td_queue_kind_name(own->kind), TD_STR_ARG(op));
  if (own->capacity != s->capacity)
    return td_invalid_argument("Shared queue '%s' has capacity %lld but requested capacity was %lld", name,
                               (long long)own->capacity, (long long)s->capacity);
  if (own->min_after_dequeue != s->min_after_dequeue)
    return td_invalid_argument("Shared queue '%s' has min_after_dequeue %lld but requested min_after_dequeue was %lld.",
                               name, (long long)own->min_after_dequeue, (long long)s->min_after_dequeue);
  if ((s->seed || s->seed2) && (s->seed != own->seed || s->seed2 != own->seed2))
    return td_invalid_argument("Shared queue '%s' has random seeds (%lld, %lld) but requested seeds are (%lld, %lld).",
                               name, (long long)own->seed, (long long)own->seed2, (long long)s->seed,
                               (long long)s->seed2);
  return td_queue_components_match(own, s, "queue", name);
}
