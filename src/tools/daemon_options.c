#include "tools/daemon_options.h"

#include <getopt.h>
#include <limits.h>

#include "base/mem.h"
#include "tools/files.h"

enum { DEFAULT_GRACE_MS = 5000, MAX_THREADS = 4096, MAX_GC_SECONDS = INT_MAX / 1000, MAX_FILE_BYTES = 16 << 20 };

enum {
  OPT_CLUSTER_SPEC = 1,
  OPT_CLUSTER_FILE,
  OPT_JOB,
  OPT_TASK,
  OPT_CONFIG,
  OPT_BIND,
  OPT_THREADS,
  OPT_NEIGHBOURS,
  OPT_OPTIMIZE,
  OPT_SYNC_SAVES,
  OPT_LOG_LEVEL,
  OPT_GRACE,
  OPT_SESSION_GC,
  OPT_VERSION,
  OPT_HELP,
};

static const struct option long_options[] = {
    {"cluster_spec", required_argument, NULL, OPT_CLUSTER_SPEC},
    {"cluster_file", required_argument, NULL, OPT_CLUSTER_FILE},
    {"job_name", required_argument, NULL, OPT_JOB},
    {"task_index", required_argument, NULL, OPT_TASK},
    {"config", required_argument, NULL, OPT_CONFIG},
    {"bind", required_argument, NULL, OPT_BIND},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"neighbours", required_argument, NULL, OPT_NEIGHBOURS},
    {"optimize", required_argument, NULL, OPT_OPTIMIZE},
    {"sync_saves", required_argument, NULL, OPT_SYNC_SAVES},
    {"log_level", required_argument, NULL, OPT_LOG_LEVEL},
    {"grace_ms", required_argument, NULL, OPT_GRACE},
    {"session_gc_seconds", required_argument, NULL, OPT_SESSION_GC},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, OPT_HELP},
    {0},
};

/* The flags as written; all borrowed from argv. */
typedef struct flags {
  const char *cluster_spec, *cluster_file, *job, *config;
  int task_index; /* -1: not given */
} flags;

void td_daemon_options_print_help(FILE *out) {
  fputs(
      "Usage: tensord --cluster_spec=SPEC --job_name=JOB --task_index=N [options]\n"
      "\n"
      "Serves one task of a TensorFlow cluster: sessions of grpc:// clients, and partitions of other tasks' graphs.\n"
      "\n"
      "The cluster, one of:\n"
      "  --cluster_spec=SPEC  JOB|HOST:PORT;HOST:PORT,JOB2|HOST:PORT; a job with gaps: JOB|1=HOST:PORT;3=HOST:PORT\n"
      "  --cluster_file=FILE  JSON as in TF_CONFIG: {\"cluster\": {\"ps\": [\"host:port\"]}, \"task\": {\"type\": "
      "\"ps\", "
      "\"index\": 0}}\n"
      "  TF_CONFIG            the same JSON, in the environment\n"
      "\n"
      "This task (may be left out where the JSON names it):\n"
      "  --job_name=JOB       needed if the cluster has several jobs\n"
      "  --task_index=N       needed if the job has several tasks\n"
      "\n"
      "Options:\n"
      "  --config=FILE        serialized ConfigProto: the server's defaults; device_count.CPU = N gives N CPU devices\n"
      "  --bind=HOST          listen there, or on unix:PATH (default: the loopback address if the task's own address "
      "is\n"
      "                       a loopback name, else every address)\n"
      "  --threads=N          compute threads (default: one per core)\n"
      "  --neighbours=on|off  whether tasks of this machine and user lend large tensors to each other\n"
      "                       (default: on; off: by TCP, as between machines)\n"
      "  --optimize=on|off    whether graphs of this task's sessions are optimised when a step is first asked for\n"
      "                       (default: on; off: every node that was written runs)\n"
      "  --sync_saves=on|off  whether a checkpoint is on disk before its save is answered (default: off; as with\n"
      "                       TensorFlow it is then written, and on its way to the disk)\n"
      "  --log_level=LEVEL    debug, info, warning or error (default: info)\n"
      "  --grace_ms=N         how long running steps may go on after SIGTERM (default: 5000)\n"
      "  --session_gc_seconds=N  end sessions that their clients have not used for so long (default: 0, never)\n"
      "  --version            print the version\n"
      "  --help               print this\n"
      "\n"
      "Exit status: 0 after SIGTERM or SIGINT, 2 if the server cannot start.\n",
      out);
}

static td_status parse_int(const char *flag, const char *text, int lowest, int highest, int *out) {
  int64_t value;
  if (!td_str_to_i64(td_str_of(text), &value) || value < lowest || value > highest)
    return td_invalid_argument("--%s=%.100s: expected a number from %d to %d", flag, text, lowest, highest);
  *out = (int)value;
  return TD_STATUS_OK;
}

/* `word`, on or off: what sets *out. */
static td_status parse_switch(const char *flag, const char *text, const char *word, bool *out) {
  *out = !strcmp(text, word);
  if (!strcmp(text, "on") || !strcmp(text, "off")) return TD_STATUS_OK;
  return td_invalid_argument("--%s=%.100s: expected on or off", flag, text);
}

static td_status take_option(int option, const char *value, flags *f, td_daemon_options *out) {
  switch (option) {
    case OPT_CLUSTER_SPEC:
      f->cluster_spec = value;
      break;
    case OPT_CLUSTER_FILE:
      f->cluster_file = value;
      break;
    case OPT_JOB:
      f->job = value;
      break;
    case OPT_TASK:
      return parse_int("task_index", value, 0, INT_MAX, &f->task_index);
    case OPT_CONFIG:
      f->config = value;
      break;
    case OPT_BIND:
      out->bind = *value ? value : NULL;
      break;
    case OPT_THREADS:
      return parse_int("threads", value, 0, MAX_THREADS, &out->threads);
    case OPT_NEIGHBOURS:
      return parse_switch("neighbours", value, "off", &out->no_neighbours);
    case OPT_OPTIMIZE:
      return parse_switch("optimize", value, "off", &out->no_optimizer);
    case OPT_SYNC_SAVES:
      return parse_switch("sync_saves", value, "on", &out->saves_wait_for_disk);
    case OPT_GRACE:
      return parse_int("grace_ms", value, 0, INT_MAX, &out->grace_ms);
    case OPT_SESSION_GC:
      return parse_int("session_gc_seconds", value, 0, MAX_GC_SECONDS, &out->session_gc_seconds);
    case OPT_LOG_LEVEL:
      if (!td_log_level_parse(value, &out->log_level))
        return td_invalid_argument("--log_level=%.100s: expected debug, info, warning or error", value);
      break;
    case OPT_VERSION:
      out->show_version = true;
      break;
    case OPT_HELP:
      out->show_help = true;
      break;
    default:
      break;
  }
  return TD_STATUS_OK;
}

static td_status parse_flags(int argc, char **argv, flags *f, td_daemon_options *out) {
  optind = 0; /* start afresh, also on a second command line in one process */
  opterr = 0;
  for (;;) {
    int at = optind ? optind : 1;
    int option = getopt_long(argc, argv, "", long_options, NULL);
    if (option < 0) break;
    const char *word = at < argc ? argv[at] : "";
    if (option == '?') return td_invalid_argument("%.100s: unknown option, or its value is missing (see --help)", word);
    TD_TRY(take_option(option, optarg, f, out));
    if (out->show_help || out->show_version) return TD_STATUS_OK;
  }
  if (optind < argc) return td_invalid_argument("unexpected argument \"%.100s\" (see --help)", argv[optind]);
  return TD_STATUS_OK;
}

/* The cluster, and the task if the source of the cluster names one. */
static td_status find_cluster(const flags *f, const char *tf_config, td_daemon_options *out, int *index) {
  td_strbuf json = {0};
  td_status status = TD_STATUS_OK;
  if (f->cluster_spec && f->cluster_file)
    return td_invalid_argument("--cluster_spec and --cluster_file: only one of them can be given");
  if (f->cluster_spec)
    return td_status_prepend(td_cluster_spec_parse(td_str_of(f->cluster_spec), &out->cluster), "--cluster_spec: ");
  if (!f->cluster_file && !(tf_config && *tf_config))
    return td_invalid_argument(
        "no cluster: give --cluster_spec, --cluster_file or TF_CONFIG in the environment (see --help)");
  if (f->cluster_file)
    TD_TRY_GOTO(td_file_read("--cluster_file", f->cluster_file, MAX_FILE_BYTES, &json));
  else
    td_strbuf_puts(&json, tf_config);
  status = td_status_prepend(td_cluster_spec_from_json(td_strbuf_view(&json), &out->cluster, &out->job, index),
                             "%s: ", f->cluster_file ? f->cluster_file : "TF_CONFIG");
cleanup:
  td_strbuf_deinit(&json);
  return status;
}

/* Fills in what may be left out: the job of a cluster of one job, the index of a job of one task. */
static td_status choose_task(const flags *f, int json_index, td_daemon_options *out) {
  const td_cluster_spec *c = out->cluster;
  if (f->job && *f->job) {
    td_free(out->job);
    out->job = td_strdup(f->job);
  }
  if (!out->job) {
    for (size_t i = 1; i < c->task_count; i++)
      if (strcmp(c->tasks[i].job, c->tasks[0].job))
        return td_invalid_argument("--job_name is needed: the cluster has several jobs");
    out->job = td_strdup(c->tasks[0].job);
  }
  out->task_index = f->task_index >= 0 ? f->task_index : json_index;
  if (out->task_index >= 0) return TD_STATUS_OK;
  size_t tasks = 0;
  for (size_t i = 0; i < c->task_count; i++) {
    if (strcmp(c->tasks[i].job, out->job)) continue;
    out->task_index = c->tasks[i].index;
    tasks++;
  }
  if (tasks > 1) return td_invalid_argument("--task_index is needed: job \"%s\" has %zu tasks", out->job, tasks);
  if (!tasks) out->task_index = 0; /* the server says that there is no such job */
  return TD_STATUS_OK;
}

static td_status read_config(const flags *f, td_daemon_options *out) {
  if (!f->config || !*f->config) return TD_STATUS_OK;
  td_strbuf bytes = {0};
  td_status s = td_file_read("--config", f->config, MAX_FILE_BYTES, &bytes);
  if (s) {
    td_strbuf_deinit(&bytes);
    return s;
  }
  out->config_size = bytes.size;
  out->config = td_strbuf_take(&bytes);
  return TD_STATUS_OK;
}

td_status td_daemon_options_parse(int argc, char **argv, const char *tf_config, td_daemon_options *out) {
  flags f = {.task_index = -1};
  int json_index = -1;
  td_status status = TD_STATUS_OK;
  td_daemon_options o = {.grace_ms = DEFAULT_GRACE_MS, .log_level = TD_LOG_INFO};
  TD_TRY_GOTO(parse_flags(argc, argv, &f, &o));
  if (!o.show_help && !o.show_version) {
    TD_TRY_GOTO(find_cluster(&f, tf_config, &o, &json_index));
    TD_TRY_GOTO(choose_task(&f, json_index, &o));
    TD_TRY_GOTO(read_config(&f, &o));
  }
  *out = o;
  return TD_STATUS_OK;
cleanup:
  td_daemon_options_deinit(&o);
  return status;
}

void td_daemon_options_deinit(td_daemon_options *o) {
  td_cluster_spec_release(o->cluster);
  td_free(o->job);
  td_free(o->config);
}
