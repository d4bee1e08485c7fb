/* tensord: one task of a cluster, until SIGTERM or SIGINT. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cluster/server.h"
#include "ops/families.h"
#include "ops/heavy.h"
#include "tensor/loan.h"
#include "tensor/memory.h"
#include "tools/daemon_options.h"

enum { EXIT_NO_START = 2, TRIM_AGE_MS = 2000, TRIM_PERIOD_S = 1, IDLE_PERIOD_S = 5 };

/* One line on stderr. TensorFlow's test harnesses tell bad arguments from other failures by these words. */
static int fail(td_status s) {
  const char *text = td_status_message(s), *label = "invalid argument: ";
  bool labelled = td_status_code(s) != TD_INVALID_ARGUMENT || strstr(text, "invalid argument");
  fprintf(stderr, "tensord: %s%s\n", labelled ? "" : label, text);
  td_status_free(s);
  return EXIT_NO_START;
}

static void end_at_once(int signal_number) { _exit(128 + signal_number); }

/* Sleeps until one of `set` arrives. Meanwhile loans that have ended are taken back, and idle buffers go back to the
 * system; with nothing to give back the process hardly ever wakes. */
static void wait_for_signal(const sigset_t *set) {
  for (;;) {
    td_memory_stats memory;
    td_memory_get_stats(&memory);
    bool has_loans = td_loans_count();
    struct timespec period = {.tv_sec = memory.buffers_idle || has_loans ? TRIM_PERIOD_S : IDLE_PERIOD_S};
    int got = sigtimedwait(set, NULL, &period);
    if (got > 0) return;
    if (got != -1 || errno != EAGAIN) continue;
    if (has_loans || td_lenders_count()) td_loans_collect();
    if (memory.buffers_idle) td_memory_trim(TRIM_AGE_MS);
  }
}

/* From the first signal on a second one ends the process at once. */
static void arm_second_signal(const sigset_t *set) {
  struct sigaction action = {.sa_handler = end_at_once};
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  pthread_sigmask(SIG_UNBLOCK, set, NULL);
}

static int serve(const td_daemon_options *o, const sigset_t *set) {
  td_server *server = NULL;
  td_server_options options = {
      .cluster = o->cluster,
      .job = o->job,
      .task_index = o->task_index,
      .config = td_str_n(o->config, o->config_size),
      .bind = o->bind,
      .threads = o->threads,
      .no_neighbours = o->no_neighbours,
      .saves_wait_for_disk = o->saves_wait_for_disk,
      .no_optimizer = o->no_optimizer,
      .session_gc_ms = o->session_gc_seconds * 1000,
  };
  td_status s = td_ops_register();
  if (!s) s = td_server_create(&options, &server);
  if (s) return fail(s);
  td_server_start(server);
  printf("Started server with target: %s (%s, tensord %s)\n", td_server_target(server), td_server_task(server),
         TD_VERSION);
  fflush(stdout);
  td_log_set_task(td_server_task(server));
  wait_for_signal(set);
  arm_second_signal(set);
  td_info("stopping; running steps have %d ms to end", o->grace_ms);
  td_server_stop(server, o->grace_ms);
  td_log_set_task(NULL);
  td_server_destroy(server);
  return EXIT_SUCCESS;
}

int main(int argc, char **argv) {
  td_daemon_options options;
  td_status s = td_daemon_options_parse(argc, argv, getenv("TF_CONFIG"), &options);
  if (s) return fail(s);
  if (options.show_help || options.show_version) {
    if (options.show_help)
      td_daemon_options_print_help(stdout);
    else
      printf("tensord %s\n", TD_VERSION);
    return EXIT_SUCCESS;
  }
  /* Blocked before any thread starts, so that every thread inherits it and only wait_for_signal() takes them. */
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  signal(SIGPIPE, SIG_IGN);
  td_log_set_level(options.log_level);
  td_heavy_prepare();
  int code = serve(&options, &set);
  td_daemon_options_deinit(&options);
  return code;
}
