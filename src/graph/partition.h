/* Partitioning: a placed graph cut along tasks (by the master) or along devices (by a worker). */
#ifndef TD_GRAPH_PARTITION_H_
#define TD_GRAPH_PARTITION_H_

#include "graph/graph.h"

/* How a task names the frames of loops on the wire. */
typedef enum td_frame_dialect { TD_FRAMES_ANY, TD_FRAMES_1X, TD_FRAMES_2X } td_frame_dialect;

typedef struct td_partition_options {
  bool by_task;         /* cut between tasks; else between devices */
  char suffix;          /* new nodes are "<src>_<suffix><k>": 'S' for a master, 'G' for a worker */
  int64_t *next_suffix; /* k, counted on by this call */
  /* Incarnation of a device by full name; 0 when unknown. */
  uint64_t (*incarnation)(void *arg, td_str device);
  /* What the task ("/job:j/replica:0/task:t") speaks; NULL: all tasks understand each other. Loops that span tasks that
   * do not are led over the device `relay`, whose task speaks any. */
  td_frame_dialect (*dialect)(void *arg, td_str task);
  td_str relay;
  void *arg;
} td_partition_options;

typedef struct td_partition {
  td_str location; /* "/job:j/replica:0/task:t", or the full device name */
  td_graph *graph;
} td_partition;

/* Cuts `g`, inserting _Send/_Recv pairs and control loops (spec/graph.md §5). Nodes of `g` are not changed. The
 * partitions come in order of location; the caller frees them with td_partitions_free(). */
td_status td_graph_partition(td_graph *g, const td_partition_options *options, td_partition **out,
                             size_t *out_count) TD_MUST_USE;
void td_partitions_free(td_partition *p, size_t count);

/* ---- control-flow frames, shared with the runtime ---- */
typedef struct td_frame_info {
  td_str frame_name; /* "" at the root */
  int parent;        /* index of the parent frame; -1 for the root */
  int64_t parallel_iterations;
  td_node *loop_cond; /* NULL: none */
} td_frame_info;
typedef struct td_frames {
  td_frame_info *frames; /* [0] is the root; from the arena */
  size_t count;
  int *of_node; /* frame index by node id (an Enter belongs to its parent frame, an Exit to the inner one) */
} td_frames;
/* INVALID_ARGUMENT "{{node n}} has inputs from different frames. …" */
td_status td_graph_frames(const td_graph *g, td_arena *arena, td_frames *out) TD_MUST_USE;

#endif /* TD_GRAPH_PARTITION_H_ */
