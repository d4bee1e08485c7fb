#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"debug", "info", "warning", "error"};
static atomic_int lowest = TD_LOG_INFO;
static _Thread_local const char *thread_task;

void td_log_set_level(td_log_level level) { atomic_store_explicit(&lowest, (int)level, memory_order_relaxed); }

bool td_log_enabled(td_log_level level) { return (int)level >= atomic_load_explicit(&lowest, memory_order_relaxed); }

bool td_log_level_parse(const char *name, td_log_level *out) {
  for (int i = TD_LOG_DEBUG; i <= TD_LOG_ERROR; i++) {
    if (strcasecmp(name, level_names[i])) continue;
    *out = (td_log_level)i;
    return true;
  }
  return false;
}

void td_log_set_task(const char *task) { thread_task = task; }

const char *td_log_task(void) { return thread_task ? thread_task : ""; }

void td_log_line(td_log_level level, const char *fmt, ...) {
  char line[2048];
  struct timespec now;
  struct tm tm;
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &tm);
  size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &tm);
  n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ %s %.512s%s", now.tv_nsec / 1000000, level_names[level],
                        td_log_task(), thread_task ? ": " : "");
  va_list args;
  va_start(args, fmt);
  int m = vsnprintf(line + n, sizeof line - n - 1, fmt, args);
  va_end(args);
  if (m > 0) n += (size_t)m < sizeof line - n - 1 ? (size_t)m : sizeof line - n - 2;
  /* One line each, whatever a peer put into its message: nobody forges a line of ours. */
  for (size_t i = 0; i < n; i++)
    if ((unsigned char)line[i] < ' ' || line[i] == 0x7f) line[i] = ' ';
  line[n++] = '\n';
  ssize_t ignored = write(STDERR_FILENO, line, n);
  (void)ignored;
}
