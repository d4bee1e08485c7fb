/* For unit tests: what a call has to return. Not part of the server. */
#ifndef TD_BASE_TESTING_H_
#define TD_BASE_TESTING_H_

#include "base/status.h"

/* Fails the test (cmocka) where it stands unless `s` is OK. */
#define must(s) td_must_(s, __FILE__, __LINE__)
/* … unless it is an error of that code with a message that contains `text`, or that is `text`. Takes the error. */
#define must_fail(s, code, text) td_must_fail_(s, code, text, __FILE__, __LINE__)
#define must_say(s, code, text)  td_must_say_(s, code, text, __FILE__, __LINE__)

void td_must_(td_status s, const char *file, int line);
void td_must_fail_(td_status s, td_code code, const char *text, const char *file, int line);
void td_must_say_(td_status s, td_code code, const char *text, const char *file, int line);

#endif /* TD_BASE_TESTING_H_ */
