/* Cluster specifications from the outside. The first byte chooses the form: flag text, JSON or a ClusterDef message.
 * What is accepted must survive the way through a message. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cluster/cluster_spec.h"
#include "proto/message.h"

static void check(td_cluster_spec *c) {
  td_arena arena = {0};
  td_cluster_spec *again;
  td_status s = td_cluster_spec_from_proto(td_cluster_spec_to_proto(c, &arena), &again);
  if (s || again->task_count != c->task_count) abort();
  for (size_t i = 0; i < c->task_count; i++) {
    const td_cluster_task *a = &c->tasks[i], *b = &again->tasks[i];
    if (strcmp(a->name, b->name) || strcmp(a->address, b->address)) abort();
    if (td_cluster_spec_find(c, td_str_of(a->name)) != a || td_cluster_spec_task(c, a->job, a->index) != a) abort();
  }
  td_cluster_spec_release(again);
  td_arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  td_str text = td_str_n(data + 1, size - 1);
  td_arena arena = {0};
  td_cluster_spec *c = NULL;
  td_status s = TD_STATUS_OK;
  switch (data[0] % 3) {
    case 0:
      s = td_cluster_spec_parse(text, &c);
      break;
    case 1: {
      char *job;
      int index;
      s = td_cluster_spec_from_json(text, &c, &job, &index);
      td_free(job);
      break;
    }
    default: {
      Pb__ClusterDef *def;
      s = td_message_decode(&pb__cluster_def__descriptor, text, &arena, (ProtobufCMessage **)&def);
      if (!s) s = td_cluster_spec_from_proto(def, &c);
    }
  }
  if (!s) check(c);
  td_cluster_spec_release(c);
  td_status_free(s);
  td_arena_deinit(&arena);
  return 0;
}
