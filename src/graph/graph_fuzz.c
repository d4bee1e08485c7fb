/* GraphDef bytes through the whole room, as a client's graph and as a registered partition: whatever comes must end in
 * a status or in graphs, never in a crash. */
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "graph/gradient.h"
#include "graph/import.h"
#include "graph/lower.h"
#include "graph/optimize.h"
#include "graph/partition.h"
#include "graph/place.h"
#include "graph/prune.h"
#include "graph/testing.h"

static bool drop(td_status s) {
  bool ok = !s;
  td_status_free(s);
  return ok;
}

static void cut(td_graph *g, bool by_task, td_graph_test_cluster *c) {
  td_partition *parts;
  size_t count;
  int64_t k = 0;
  td_partition_options o = {.by_task = by_task,
                            .suffix = by_task ? 'S' : 'G',
                            .next_suffix = &k,
                            .incarnation = td_graph_test_incarnation,
                            .arg = c};
  if (!drop(td_graph_partition(g, &o, &parts, &count))) return;
  for (size_t i = 0; i < count; i++) {
    td_arena a = {0};
    Pb__GraphDef *def = td_graph_to_proto(parts[i].graph, &a);
    td_import_options import = {.is_partition = true};
    td_graph *again;
    /* what is sent to a worker must be acceptable there */
    td_status s = td_graph_import(def, NULL, &import, &again);
    if (s) {
      td_log_line(TD_LOG_ERROR, "%s", td_status_message(s));
      abort();
    }
    td_frames frames;
    drop(td_graph_frames(again, &a, &frames));
    if (by_task) cut(again, false, c);
    td_graph_release(again);
    td_arena_deinit(&a);
  }
  td_partitions_free(parts, count);
}

/* Names that the graph itself suggests: what is fed are its placeholders and the node in the middle. */
static void run_step(td_graph *g, td_graph_test_cluster *c, uint8_t choice) {
  enum { MOST = 8 };
  td_str feeds[MOST], fetches[MOST], targets[MOST];
  td_prune_options o = {.feeds = feeds,
                        .fetches = fetches,
                        .targets = targets,
                        .client_device = c->devices[0].name,
                        .client_incarnation = 1};
  for (size_t i = 0; i < g->node_count; i++) {
    const td_node *n = g->nodes[i];
    bool is_source = !n->in_edges || i == g->node_count / 2, is_sink = !n->out_edges;
    if (is_source && (choice & 1) && o.feed_count < MOST) feeds[o.feed_count++] = n->def.name;
    if (is_sink && n->output_count && (choice & 2) && o.fetch_count < MOST) fetches[o.fetch_count++] = n->def.name;
    if (is_sink && (choice & 4) && o.target_count < MOST) targets[o.target_count++] = n->def.name;
  }
  td_graph *client;
  if (!drop(td_graph_prune(g, &o, &client))) return;
  td_optimize_options optimize = td_optimize_options_of(NULL);
  optimize.targets = targets;
  optimize.target_count = o.target_count;
  if (choice & 8) td_graph_optimize(client, &optimize);
  cut(client, true, c);
  td_graph_release(client);
}

static void lower(td_graph *g, size_t first, size_t choice) {
  td_lower_options o = {.inline_all = choice % 2, .max_nodes = g->node_count + 1000};
  drop(td_graph_lower(g, first, &o));
}

static void differentiate(td_library *l) {
  td_str name;
  for (size_t i = 0; td_map_next(&l->functions, &i, &name, NULL);) {
    Pb__NameAttrList f = PB__NAME_ATTR_LIST__INIT;
    td_function_body body;
    f.name = (char *)name.data;
    if (!drop(td_gradient_body_create(l, &f, &body))) continue;
    drop(td_function_body_lower(&body, name));
    td_graph_release(body.graph);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  td_graph_test_register();
  td_log_set_level(TD_LOG_ERROR);
  if (size > 1 << 16) return 0;
  Pb__GraphDef *def = pb__graph_def__unpack(NULL, size, data);
  if (!def) return 0;
  td_arena arena = {0};
  td_graph *g;
  td_graph_test_cluster c = td_graph_test_devices(&arena, "worker", 2, 2);
  td_import_options import = {.is_partition = true};
  if (drop(td_graph_import(def, NULL, &import, &g))) {
    cut(g, false, &c);
    td_graph_release(g);
  }
  if (drop(td_graph_import(def, NULL, NULL, &g))) {
    td_place_options place = {.devices = c.devices,
                              .device_count = c.count,
                              .own_task_device = c.devices[0].name,
                              .allow_soft_placement = size % 2};
    differentiate(g->library);
    lower(g, 0, size);
    if (drop(td_graph_place(g, &place)))
      for (int choice = 2; choice < 8; choice++) run_step(g, &c, (uint8_t)choice);
    for (size_t i = 0; i < def->n_node; i++) { /* the same nodes again under other names, on top of the first */
      char *name = td_asprintf("x%s", def->node[i]->name);
      if (*def->node[i]->name) free(def->node[i]->name);
      def->node[i]->name = name;
    }
    size_t before = g->node_count;
    if (drop(td_graph_extend(g, def, NULL))) lower(g, before, size / 2);
    td_graph_release(g);
  }
  pb__graph_def__free_unpacked(def, NULL);
  td_arena_deinit(&arena);
  return 0;
}
