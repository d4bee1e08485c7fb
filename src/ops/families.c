#include "ops/families.h"

#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static td_status outcome; /* written once, under `once` */

static void register_all(void) {
  static const td_op_family *const families[] = {
#define TD_FAMILY_ENTRY(name) &td_family_##name,
      TD_FAMILIES(TD_FAMILY_ENTRY)
#undef TD_FAMILY_ENTRY
          NULL};
  for (const td_op_family *const *f = families; *f && !outcome; f++) outcome = td_family_register(*f);
}

td_status td_ops_register(void) {
  pthread_once(&once, register_all);
  return td_status_retain(outcome);
}
