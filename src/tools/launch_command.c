/* tensorctl launch: a local cluster for the time of one command.
 *
 * One thread and one poll(): the tasks' output comes through pipes and is passed on line by line; signals come
 * through a signalfd. Tasks are in a process group of their own, so that Ctrl-C reaches the command first, and die
 * with this process whatever ends it.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "tools/commands.h"

enum {
  MAX_TASKS = 1000,
  START_TIMEOUT_MS = 60000,
  STOP_TIMEOUT_MS = 3000,
  START_TRIES = 3,
  MAX_LINE = 16384,
  TASK_GRACE_MS = 500
};

#define READY_LINE "Started server with target:"

typedef struct task {
  const char *job;
  int index, port;
  int held;         /* socket that keeps the port for this cluster; -1: none */
  bool is_external; /* in the cluster, but the command runs it */
  pid_t pid;        /* 0: not running */
  int output;       /* read end of its stdout and stderr; -1: none */
  td_strbuf line;   /* read but not ended */
  bool is_ready;
} task;

typedef struct launch {
  int ps, worker, external_worker;
  bool chief, external_chief, is_quiet;
  const char *server, *config, *threads, *log_level;
  char **command; /* NULL-terminated */
  task *tasks;
  int count;
  int signals; /* signalfd */
  sigset_t old_mask;
  pid_t command_pid;  /* 0: not started, or ended */
  int command_status; /* as waitpid() gave it */
  bool has_ended;     /* the command */
  int stop_signal;    /* one that came before the command was started */
  bool is_stopping;
} launch;

/* ---- ports and addresses ---- */

/* A port that is free, held by the socket that is returned; -1 when there is none. While that socket is open a task can
 * bind and listen on the port, too, but the system gives it to nobody who asks for any port. */
static int take_port(int *port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (struct sockaddr *)&address, size) || getsockname(fd, (struct sockaddr *)&address, &size)) {
    close(fd);
    return -1;
  }
  *port = ntohs(address.sin_port);
  return fd;
}

static void release_ports(launch *l) {
  for (int i = 0; i < l->count; i++) {
    if (l->tasks[i].held >= 0) close(l->tasks[i].held);
    l->tasks[i].held = -1;
  }
}

static bool choose_ports(launch *l) {
  release_ports(l);
  for (int i = 0; i < l->count; i++)
    if ((l->tasks[i].held = take_port(&l->tasks[i].port)) < 0) return false;
  return true;
}

/* "ps|127.0.0.1:1;127.0.0.1:2,worker|127.0.0.1:3" */
static char *cluster_flag(const launch *l) {
  td_strbuf b = {0};
  for (int i = 0; i < l->count; i++) {
    const task *t = &l->tasks[i];
    if (t->index)
      td_strbuf_putc(&b, ';');
    else
      td_strbuf_printf(&b, "%s%s|", i ? "," : "", t->job);
    td_strbuf_printf(&b, "127.0.0.1:%d", t->port);
  }
  return td_strbuf_take(&b);
}

/* The tasks that clients connect to: chief and workers, or the parameter servers where there are none. */
static char *client_targets(const launch *l) {
  td_strbuf b = {0};
  bool only_ps = !l->worker && !l->chief;
  for (int i = 0; i < l->count; i++)
    if (!l->tasks[i].is_external && (only_ps || strcmp(l->tasks[i].job, "ps")))
      td_strbuf_printf(&b, "%sgrpc://127.0.0.1:%d", b.size ? "," : "", l->tasks[i].port);
  return td_strbuf_take(&b);
}

/* malloc()ed */
static char *tf_config(const launch *l, const char *targets) {
  json_t *jobs = json_object();
  for (int i = 0; i < l->count; i++) {
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", l->tasks[i].port);
    if (!l->tasks[i].index) json_object_set_new(jobs, l->tasks[i].job, json_array());
    json_array_append_new(json_object_get(jobs, l->tasks[i].job), json_string(address));
  }
  json_t *root = json_pack("{s:o, s:s%}", "cluster", jobs, "session_master", targets, strcspn(targets, ","));
  char *text = json_dumps(root, JSON_COMPACT);
  json_decref(root);
  return text;
}

/* ---- processes ---- */

/* In the child: what a program expects to find. */
static void reset_signals(const launch *l) {
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &l->old_mask, NULL);
}

static bool start_task(launch *l, task *t, const char *cluster) {
  int out[2];
  if (pipe2(out, O_CLOEXEC)) return false;
  pid_t parent = getpid();
  t->pid = fork();
  if (!t->pid) {
    char job[64], index[32], config[PATH_MAX + 16], threads[64], level[64], grace[32], *spec;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(TD_EXIT_FAILED);
    reset_signals(l);
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(out[1], STDERR_FILENO);
    spec = td_asprintf("--cluster_spec=%s", cluster);
    snprintf(job, sizeof job, "--job_name=%s", t->job);
    snprintf(index, sizeof index, "--task_index=%d", t->index);
    snprintf(config, sizeof config, "--config=%s", l->config);
    snprintf(threads, sizeof threads, "--threads=%s", l->threads);
    snprintf(level, sizeof level, "--log_level=%s", l->log_level);
    snprintf(grace, sizeof grace, "--grace_ms=%d", TASK_GRACE_MS);
    execl(l->server, l->server, spec, job, index, config, threads, level, grace, (char *)NULL);
    fprintf(stderr, "%s: %s\n", l->server, strerror(errno));
    _exit(TD_EXIT_USAGE);
  }
  close(out[1]);
  t->output = out[0];
  if (t->pid > 0) fcntl(t->output, F_SETFL, O_NONBLOCK);
  return t->pid > 0;
}

static bool start_command(launch *l) {
  char *flag = cluster_flag(l), *targets = client_targets(l), *json = tf_config(l, targets);
  setenv("TENSORD_CLUSTER", flag, 1);
  setenv("TENSORD_TARGETS", targets, 1);
  setenv("TF_CONFIG", json, 1);
  td_free(flag);
  td_free(targets);
  free(json);
  l->command_pid = fork();
  if (!l->command_pid) {
    reset_signals(l);
    execvp(l->command[0], l->command);
    fprintf(stderr, "tensorctl launch: %s: %s\n", l->command[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
  }
  return l->command_pid > 0;
}

/* ---- output of tasks ---- */

static void emit(launch *l, task *t, td_str line) {
  if (td_str_starts(line, TD_STR(READY_LINE))) t->is_ready = true;
  if (l->is_quiet && (t->is_ready || l->is_stopping)) return;
  td_strbuf b = {0};
  td_strbuf_printf(&b, "[%s/%d] %.*s\n", t->job, t->index, TD_STR_ARG(line));
  for (size_t done = 0; done < b.size;) {
    ssize_t n = write(STDERR_FILENO, b.data + done, b.size - done);
    if (n < 0 && errno != EINTR) break;
    if (n > 0) done += (size_t)n;
  }
  td_strbuf_deinit(&b);
}

static void emit_lines(launch *l, task *t) {
  td_str rest = td_strbuf_view(&t->line);
  for (const char *end; (end = rest.size ? memchr(rest.data, '\n', rest.size) : NULL);) {
    emit(l, t, td_str_n(rest.data, (size_t)(end - rest.data)));
    rest = td_str_n(end + 1, rest.size - (size_t)(end + 1 - rest.data));
  }
  if (rest.size > MAX_LINE) {
    emit(l, t, rest);
    rest.size = 0;
  }
  if (t->line.data && rest.data != t->line.data) memmove(t->line.data, rest.data, rest.size);
  t->line.size = rest.size;
}

static void read_output(launch *l, task *t) {
  char block[4096];
  ssize_t n;
  while ((n = read(t->output, block, sizeof block)) > 0) {
    td_strbuf_append(&t->line, td_str_n(block, (size_t)n));
    emit_lines(l, t);
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (t->line.size) emit(l, t, td_strbuf_view(&t->line));
  t->line.size = 0;
  close(t->output);
  t->output = -1;
}

/* ---- events ---- */

static void task_ended(launch *l, task *t, int status) {
  t->pid = 0;
  t->is_ready = false;
  if (l->is_stopping) return;
  if (WIFSIGNALED(status))
    fprintf(stderr, "tensorctl launch: %s/%d was ended by signal %d\n", t->job, t->index, WTERMSIG(status));
  else
    fprintf(stderr, "tensorctl launch: %s/%d ended with status %d\n", t->job, t->index, WEXITSTATUS(status));
}

static void reap(launch *l) {
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid == l->command_pid) {
      l->command_pid = 0;
      l->command_status = status;
      l->has_ended = true;
    }
    for (int i = 0; i < l->count; i++)
      if (l->tasks[i].pid == pid) task_ended(l, &l->tasks[i], status);
  }
}

static void take_signals(launch *l) {
  struct signalfd_siginfo s;
  while (read(l->signals, &s, sizeof s) == sizeof s) {
    if (s.ssi_signo == SIGCHLD) continue;
    if (!l->command_pid)
      l->stop_signal = (int)s.ssi_signo;
    else if (s.ssi_code != SI_KERNEL) /* the terminal sends to the command itself, too */
      kill(l->command_pid, (int)s.ssi_signo);
  }
  reap(l);
}

/* Waits for output or a signal and handles it. */
static void step(launch *l, int timeout_ms) {
  struct pollfd *fds = td_new_array(struct pollfd, (size_t)l->count + 1);
  for (int i = 0; i < l->count; i++) fds[i] = (struct pollfd){.fd = l->tasks[i].output, .events = POLLIN};
  fds[l->count] = (struct pollfd){.fd = l->signals, .events = POLLIN};
  if (poll(fds, (nfds_t)l->count + 1, timeout_ms) > 0) {
    for (int i = 0; i < l->count; i++)
      if (fds[i].revents) read_output(l, &l->tasks[i]);
    if (fds[l->count].revents) take_signals(l);
  }
  td_free(fds);
}

static int count_running(const launch *l) {
  int n = 0;
  for (int i = 0; i < l->count; i++) n += l->tasks[i].pid > 0;
  return n;
}

static int count_own(const launch *l) {
  int n = 0;
  for (int i = 0; i < l->count; i++) n += !l->tasks[i].is_external;
  return n;
}

static int count_ready(const launch *l) {
  int n = 0;
  for (int i = 0; i < l->count; i++) n += l->tasks[i].is_ready;
  return n;
}

static int ms_until(uint64_t deadline_ns) {
  uint64_t now = td_now_ns();
  return now >= deadline_ns ? 0 : (int)((deadline_ns - now) / 1000000u) + 1;
}

static void signal_tasks(launch *l, int signal_number) {
  for (int i = 0; i < l->count; i++)
    if (l->tasks[i].pid > 0) kill(l->tasks[i].pid, signal_number);
}

static void stop_tasks(launch *l) {
  l->is_stopping = true;
  signal_tasks(l, SIGTERM);
  for (uint64_t deadline = td_now_ns() + STOP_TIMEOUT_MS * 1000000ull; count_running(l) && ms_until(deadline);)
    step(l, ms_until(deadline));
  signal_tasks(l, SIGKILL);
  while (count_running(l)) step(l, 100);
  for (int i = 0; i < l->count; i++) {
    if (l->tasks[i].output >= 0) read_output(l, &l->tasks[i]);
    if (l->tasks[i].output >= 0) close(l->tasks[i].output);
    td_strbuf_deinit(&l->tasks[i].line);
    l->tasks[i].output = -1;
  }
  l->is_stopping = false;
}

/* Starts every task and waits until all accept. */
static bool start_tasks(launch *l) {
  if (!choose_ports(l)) return false;
  char *flag = cluster_flag(l);
  bool ok = true;
  for (int i = 0; ok && i < l->count; i++) ok = l->tasks[i].is_external || start_task(l, &l->tasks[i], flag);
  td_free(flag);
  uint64_t deadline = td_now_ns() + START_TIMEOUT_MS * 1000000ull;
  while (ok && !l->stop_signal && count_ready(l) < count_own(l)) {
    step(l, ms_until(deadline));
    ok = count_running(l) == count_own(l) && ms_until(deadline);
  }
  return ok && !l->stop_signal;
}

static void make_tasks(launch *l) {
  struct {
    const char *job;
    int count;
  } jobs[] = {{"chief", l->chief || l->external_chief}, {"ps", l->ps}, {"worker", l->worker + l->external_worker}};
  for (size_t j = 0; j < TD_COUNT(jobs); j++)
    for (int i = 0; i < jobs[j].count; i++) {
      bool is_external =
          strcmp(jobs[j].job, "worker") ? !j && l->external_chief : jobs[j].count - i <= l->external_worker;
      l->tasks[l->count++] =
          (task){.job = jobs[j].job, .index = i, .is_external = is_external, .held = -1, .output = -1};
    }
}

/* ---- the command ---- */

/* Ends this process as the command ended: with its status, or by its signal. */
static int pass_on(const launch *l, int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  int number = WTERMSIG(status);
  struct rlimit none = {0};
  setrlimit(RLIMIT_CORE, &none); /* the command has left its core */
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  signal(number, SIG_DFL);
  sigprocmask(SIG_UNBLOCK, &set, NULL);
  raise(number);
  return 128 + number;
}

static void take_over_signals(launch *l) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGHUP);
  sigaddset(&set, SIGQUIT);
  sigprocmask(SIG_BLOCK, &set, &l->old_mask);
  signal(SIGPIPE, SIG_IGN);
  l->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int run_launch(launch *l) {
  l->tasks = td_new_array(task, MAX_TASKS * 3 + 1);
  make_tasks(l);
  take_over_signals(l);
  bool ok = false;
  for (int i = 0; i < START_TRIES && !ok && !l->stop_signal; i++) { /* a chosen port may have been taken meanwhile */
    if (i) stop_tasks(l);
    ok = start_tasks(l);
  }
  if (ok && !start_command(l)) {
    fprintf(stderr, "tensorctl launch: fork: %s\n", strerror(errno));
    ok = false;
  }
  while (ok && !l->has_ended) step(l, -1);
  if (!ok && !l->stop_signal) fprintf(stderr, "tensorctl launch: the cluster could not be started\n");
  stop_tasks(l);
  release_ports(l);
  close(l->signals);
  td_free(l->tasks);
  if (l->stop_signal) return 128 + l->stop_signal;
  return ok ? pass_on(l, l->command_status) : TD_EXIT_FAILED;
}

static void print_help(FILE *out) {
  fputs(
      "Usage: tensorctl launch [--ps N] [--worker N] [--chief] [options] -- COMMAND [ARGUMENT...]\n"
      "\n"
      "Starts a cluster of tensord processes on this machine, runs the command, stops the cluster when the command\n"
      "ends, and ends as the command did (its exit status, or its signal).\n"
      "\n"
      "The command finds in its environment:\n"
      "  TENSORD_TARGETS    grpc:// targets for clients, with commas: the chief's and each worker's\n"
      "  TENSORD_CLUSTER    the cluster as --cluster_spec of tensord takes it\n"
      "  TF_CONFIG          the cluster in TensorFlow's JSON, and the first target as session_master\n"
      "\n"
      "Options:\n"
      "  --ps=N             parameter servers (default: 0)\n"
      "  --worker=N         workers (default: 0)\n"
      "  --chief            a task of job chief as well\n"
      "  --external_chief   a task of job chief that the command itself runs: in the cluster, but not started\n"
      "  --external_worker=N  workers behind those that the command itself runs\n"
      "  --server=PATH      the daemon (default: tensord beside tensorctl)\n"
      "  --config=FILE      for every task: serialized ConfigProto\n"
      "  --threads=N        for every task: compute threads\n"
      "  --log_level=LEVEL  for every task: debug, info, warning or error\n"
      "  --quiet            the tasks' log lines are shown only until they have started\n"
      "\n"
      "Log lines of tasks go to stderr with the task's name in front: [ps/0] ...\n",
      out);
}

static bool parse_count(const char *flag, const char *text, int *out) {
  int64_t n;
  if (td_str_to_i64(td_str_of(text), &n) && n >= 0 && n <= MAX_TASKS) {
    *out = (int)n;
    return true;
  }
  fprintf(stderr, "tensorctl launch: --%s=%.100s: expected a number from 0 to %d\n", flag, text, MAX_TASKS);
  return false;
}

/* "tensord" beside this program; td_free()d by the caller. */
static char *own_server(void) {
  char path[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  while (n > 0 && path[n - 1] != '/') n--;
  return td_asprintf("%.*stensord", (int)TD_MAX(n, 0), path);
}

/* True when the command is to be run; else *code is how to end. */
static bool parse_options(int argc, char **argv, launch *l, int *code) {
  static const struct option options[] = {{"ps", required_argument, NULL, 'p'},
                                          {"worker", required_argument, NULL, 'w'},
                                          {"external_worker", required_argument, NULL, 'x'},
                                          {"chief", no_argument, NULL, 'm'},
                                          {"external_chief", no_argument, NULL, 'e'},
                                          {"server", required_argument, NULL, 's'},
                                          {"config", required_argument, NULL, 'c'},
                                          {"threads", required_argument, NULL, 't'},
                                          {"log_level", required_argument, NULL, 'l'},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
  *code = TD_EXIT_USAGE;
  for (int option; (option = getopt_long(argc, argv, "+", options, NULL)) >= 0;) {
    switch (option) {
      case 'p':
        if (!parse_count("ps", optarg, &l->ps)) return false;
        break;
      case 'w':
        if (!parse_count("worker", optarg, &l->worker)) return false;
        break;
      case 'x':
        if (!parse_count("external_worker", optarg, &l->external_worker)) return false;
        break;
      case 'm':
        l->chief = true;
        break;
      case 'e':
        l->external_chief = true;
        break;
      case 's':
        l->server = optarg;
        break;
      case 'c':
        l->config = optarg;
        break;
      case 't':
        l->threads = optarg;
        break;
      case 'l':
        l->log_level = optarg;
        break;
      case 'q':
        l->is_quiet = true;
        break;
      case 'h':
        print_help(stdout);
        *code = TD_EXIT_OK;
        return false;
      default:
        return false;
    }
  }
  l->command = argv + optind;
  if (optind < argc && l->ps + l->worker + l->chief) return true;
  fprintf(stderr, "tensorctl launch: %s\n",
          optind < argc ? "no task asked for: give --ps, --worker or --chief" : "no command given");
  print_help(stderr);
  return false;
}

int td_launch_command(int argc, char **argv) {
  char *server = own_server();
  launch l = {.server = server, .config = "", .threads = "0", .log_level = "info"};
  int code;
  if (parse_options(argc, argv, &l, &code)) code = run_launch(&l);
  td_free(server);
  return code;
}
