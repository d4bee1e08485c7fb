/* What tensord's command line, environment and cluster file ask for. */
#ifndef TD_TOOLS_DAEMON_OPTIONS_H_
#define TD_TOOLS_DAEMON_OPTIONS_H_

#include <stdbool.h>
#include <stdio.h>

#include "base/log.h"
#include "base/str.h"
#include "cluster/cluster_spec.h"

typedef struct td_daemon_options {
  td_cluster_spec *cluster; /* one reference */
  char *job;                /* owned */
  int task_index;
  char *config; /* owned; serialized ConfigProto */
  size_t config_size;
  const char *bind; /* borrowed from argv; NULL: by the task's own address */
  int threads;      /* 0: one per core */
  int grace_ms;
  int session_gc_seconds; /* 0: off */
  bool no_neighbours, no_optimizer, saves_wait_for_disk;
  td_log_level log_level;
  bool show_help, show_version; /* nothing else is set then */
} td_daemon_options;

/* Reads argv (which getopt may reorder) and `tf_config` (the environment variable's value or NULL). The cluster comes
 * from --cluster_spec, else from --cluster_file, else from `tf_config`; --job_name and --task_index outrank the task
 * that the two JSON forms may name. INVALID_ARGUMENT with the offending value; nothing to release then. Blocks on the
 * files it reads. Not thread-safe (getopt). */
td_status td_daemon_options_parse(int argc, char **argv, const char *tf_config, td_daemon_options *out) TD_MUST_USE;
void td_daemon_options_deinit(td_daemon_options *o);
void td_daemon_options_print_help(FILE *out);

#endif /* TD_TOOLS_DAEMON_OPTIONS_H_ */
