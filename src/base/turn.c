#include "base/turn.h"

#include <stddef.h>

static _Thread_local struct {
  bool (*is_wanted)(void *arg);
  void *arg;
} owner;

void td_turn_set_owner(bool (*is_wanted)(void *arg), void *arg) {
  owner.is_wanted = is_wanted;
  owner.arg = arg;
}

bool td_turn_is_wanted(void) { return !owner.is_wanted || owner.is_wanted(owner.arg); }
