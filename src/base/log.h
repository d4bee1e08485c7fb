/* Log lines on stderr: time, level, task, text. One write() a line. Thread-safe.
 *
 * The task is what td_log_set_task() named for the calling thread (several servers may live in one process).
 */
#ifndef TD_BASE_LOG_H_
#define TD_BASE_LOG_H_

#include <stdbool.h>

typedef enum td_log_level { TD_LOG_DEBUG, TD_LOG_INFO, TD_LOG_WARNING, TD_LOG_ERROR } td_log_level;

void td_log_set_level(td_log_level level);                    /* lines below it are dropped; INFO at start */
bool td_log_level_parse(const char *name, td_log_level *out); /* debug, info, warning, error */
bool td_log_enabled(td_log_level level);
void td_log_set_task(const char *task); /* for this thread; borrowed, must outlive its use; NULL: none */
const char *td_log_task(void);
void td_log_line(td_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define td_log(level, ...)                                      \
  do {                                                          \
    if (td_log_enabled(level)) td_log_line(level, __VA_ARGS__); \
  } while (0)
#define td_debug(...) td_log(TD_LOG_DEBUG, __VA_ARGS__)
#define td_info(...)  td_log(TD_LOG_INFO, __VA_ARGS__)
#define td_warn(...)  td_log(TD_LOG_WARNING, __VA_ARGS__)

#endif /* TD_BASE_LOG_H_ */
