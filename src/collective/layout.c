#include "collective/layout.h"

#include <stdlib.h>

#include "base/mem.h"

/* TensorFlow's constants. */
static const size_t MAX_CHUNK_BYTES = 4 * 1024 * 1024;
enum { MAX_SUBDIVS_PER_DEVICE = 2, ALIGNMENT = 64, MAX_CHUNKS = 1 << 20 };

static void destroy(td_resource *r) {
  td_member *m = (td_member *)r;
  td_group_release(m->group);
  td_free(m->rings);
  td_free(m->places);
  td_free(m);
}

static const td_resource_type type = {.name = "CollectiveMember", .destroy = destroy};

/* As many rings as keep chunks below 4 MiB. */
static td_status generate_offsets(const td_group *g, size_t size, int **out, int *out_count) {
  int per_task = g->size / g->task_count, most = TD_MIN(MAX_SUBDIVS_PER_DEVICE * per_task, TD_MAX_SUBDIVS), n = 0;
  if (!size) return td_internal("shape in CollectiveParams should be non-empty");
  do {
    n++;
  } while (size / ((size_t)g->size * (size_t)n) > MAX_CHUNK_BYTES && n < most);
  int stride = TD_MAX(per_task / n, 1);
  *out = td_new_array(int, (size_t)n);
  for (int i = 0; i < n; i++) (*out)[i] = i % 2 ? -stride * i : stride * i;
  *out_count = n;
  return TD_STATUS_OK;
}

/* A ring visits the tasks in order and, in each, its devices from an offset on; a negative one means that it goes
 * through them backwards. */
static void lay_ring(td_member *m, int offset, int *ring, int *place) {
  const td_group *g = m->group;
  bool reverse = offset < 0;
  int64_t shift = llabs((int64_t)offset);
  for (int first = 0, count; first < g->size; first += count) {
    for (count = 1; first + count < g->size && !strcmp(g->tasks[first], g->tasks[first + count]);) count++;
    for (int i = 0; i < count; i++) {
      int at = (int)((i + shift) % count);
      ring[first + i] = first + (reverse ? count - 1 - at : at);
      if (ring[first + i] == m->rank) *place = first + i;
    }
  }
}

static td_status lay_rings(td_member *m, const td_collective_spec *spec, size_t size) {
  static const int none = 0;
  int *generated = NULL;
  const int32_t *offsets = spec->subdiv_offsets;
  int n = spec->subdiv_count;
  if (spec->type == TD_COLLECTIVE_GATHER && (n > 1 || (n == 1 && offsets[0])))
    return td_invalid_argument("RingGather cannot take any subdiv offset other than 0.");
  if (n > TD_MAX_SUBDIVS) return td_invalid_argument("%d subdiv_offsets; at most %d are allowed", n, TD_MAX_SUBDIVS);
  if (!n && spec->type == TD_COLLECTIVE_GATHER) {
    offsets = &none;
    n = 1;
  } else if (!n) {
    TD_TRY(generate_offsets(m->group, size, &generated, &n));
    offsets = generated;
  }
  if ((int64_t)n * m->group->size > MAX_CHUNKS) {
    td_free(generated);
    return td_invalid_argument("%d subdivisions of a group of %d members are too many", n, m->group->size);
  }
  m->rings = td_new_array(int, (size_t)n *(size_t)m->group->size);
  m->places = td_new_array(int, (size_t)n);
  for (; m->ring_count < n; m->ring_count++)
    lay_ring(m, offsets[m->ring_count], m->rings + (size_t)m->ring_count * (size_t)m->group->size,
             &m->places[m->ring_count]);
  td_free(generated);
  return TD_STATUS_OK;
}

td_status td_member_create(td_group *group, int rank, int source_rank, const td_collective_spec *spec, size_t size,
                           td_member **out) {
  td_member *m = td_new(td_member);
  td_resource_init(&m->base, &type);
  m->group = td_group_retain(group);
  m->rank = rank;
  m->source_rank = source_rank;
  td_status s = TD_STATUS_OK;
  if (spec->type != TD_COLLECTIVE_BROADCAST)
    s = lay_rings(m, spec, size);
  else if (source_rank < 0 || source_rank >= group->size)
    s = td_internal("Instance %d has source %d in a group of %d", spec->instance_key, source_rank, group->size);
  if (s)
    td_resource_release(m);
  else
    *out = m;
  return s;
}

int64_t td_chunk_elements(int64_t count, size_t element_size, int64_t chunks, bool align) {
  if (!align) return count / chunks;
  int64_t size = (int64_t)element_size, base = count / chunks + (count % chunks != 0);
  if (ALIGNMENT <= size) return base;
  int64_t past = base % (ALIGNMENT / size); /* a whole unit is added where none is missing: so does TensorFlow */
  return base + ALIGNMENT / size - past;
}

/* ---- trees ---- */

/* A binary tree over `size` places. Its root is place 0, or a source that sends to places 0 and 1 beside what its place
 * sends to. `forwards_all`: this is the source of the whole broadcast. */
static void place_in_tree(td_tree *t, int source, bool forwards_all) {
  int next = source ? 2 * (t->place + 1) : 2 * t->place + 1;
  t->to_count = 0;
  t->from = -1;
  if (t->place != source) {
    t->from = source ? t->place / 2 - 1 : (t->place - 1) / 2;
    if (t->from < 0) t->from = source;
  }
  if (forwards_all && source) {
    if (t->size > 1) t->to[t->to_count++] = 0;
    if (t->size > 2 && source != 1) t->to[t->to_count++] = 1;
  }
  for (int i = 0; i < 2; i++, next++)
    if (next < t->size && next != source) t->to[t->to_count++] = next;
}

static int first_of_task(const td_group *g, int rank) {
  while (rank > 0 && !strcmp(g->tasks[rank - 1], g->tasks[rank])) rank--;
  return rank;
}

/* The tree over the tasks: the source speaks for its task, the first device for each other. */
static bool tree_over_tasks(const td_member *m, bool is_source, td_tree *t) {
  const td_group *g = m->group;
  int *speakers = td_new_array(int, (size_t)g->task_count), source = 0;
  int source_first = first_of_task(g, m->source_rank);
  bool takes_part = false;
  *t = (td_tree){.size = g->task_count};
  for (int rank = 0, i = 0; rank < g->size; rank++) {
    if (first_of_task(g, rank) != rank) continue;
    speakers[i] = rank == source_first ? m->source_rank : rank;
    if (rank == source_first) source = i;
    if (speakers[i] == m->rank) t->place = i, takes_part = true;
    i++;
  }
  if (takes_part) {
    place_in_tree(t, source, is_source);
    for (int i = 0; i < t->to_count; i++) t->ranks[i] = speakers[t->to[i]];
    if (t->from >= 0) t->ranks[4] = speakers[t->from];
  }
  td_free(speakers);
  return takes_part;
}

static void tree_in_task(const td_member *m, bool is_source, td_tree *t) {
  const td_group *g = m->group;
  int first = first_of_task(g, m->rank), task = 0, count = 1;
  for (int rank = 1; rank <= first; rank++) task += strcmp(g->tasks[rank - 1], g->tasks[rank]) != 0;
  while (first + count < g->size && !strcmp(g->tasks[first], g->tasks[first + count])) count++;
  bool has_source = m->source_rank >= first && m->source_rank < first + count;
  *t = (td_tree){.subdiv = task + (g->task_count > 1), .size = count, .place = m->rank - first};
  place_in_tree(t, has_source ? m->source_rank - first : 0, is_source);
  for (int i = 0; i < t->to_count; i++) t->ranks[i] = first + t->to[i];
  if (t->from >= 0) t->ranks[4] = first + t->from;
}

int td_member_trees(const td_member *m, bool is_source, td_tree out[2]) {
  int n = 0;
  if (m->group->task_count > 1 && tree_over_tasks(m, is_source, &out[0])) n++;
  tree_in_task(m, is_source, &out[n++]);
  return n;
}
