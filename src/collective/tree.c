/* Broadcast over trees (TensorFlow's HierarchicalTreeBroadcaster): from the source's task to the others', then within
 * each task. */
#include <stdio.h>

#include "base/mem.h"
#include "collective/internal.h"

typedef struct trees {
  td_tree trees[2];
  int count;
  td_transfer recv, sends[8];
  int send_count;
} trees;

static void destroy(td_collective_op *op) { td_free(op->state); }

static td_str key_of(const td_tree *t, int from, int to, char *buffer, size_t capacity) {
  int n = snprintf(buffer, capacity, "%d:%d:%d", t->subdiv, from, to);
  return td_str_n(buffer, (size_t)n);
}

/* To whom it has to go in all of its trees. */
static void send_all(td_collective_op *op) {
  trees *s = op->state;
  td_tensor *value = op->c->spec->is_source ? op->c->input : op->c->output;
  char key[64];
  for (int k = 0; k < s->count; k++)
    for (int i = 0; i < s->trees[k].to_count; i++) {
      const td_tree *t = &s->trees[k];
      td_transfer *send = &s->sends[s->send_count++];
      send->op = op;
      op->left++;
      td_transfer_send(send, key_of(t, t->place, t->to[i], key, sizeof key), value, value->data, value->size);
    }
}

static void advance(td_collective_op *op, td_transfer *t) {
  trees *s = op->state;
  op->left--;
  if (t != &s->recv) return;
  td_tensor *to = op->c->output;
  const void *from;
  td_status status = td_transfer_bytes(t, to->size, &from);
  if (!status && from != to->data && to->size) memcpy(to->data, from, to->size);
  td_transfer_taken(t);
  if (status)
    td_op_fail(op, status);
  else
    send_all(op);
}

static td_status start(td_collective_op *op) {
  trees *s = td_new(trees);
  char key[64];
  op->state = s;
  s->count = td_member_trees(op->member, op->c->spec->is_source, s->trees);
  for (int k = 0; k < s->count; k++) { /* it receives in one of them at most: there it is not the source */
    const td_tree *t = &s->trees[k];
    if (t->from < 0) continue;
    s->recv.op = op;
    op->left++;
    td_transfer_recv(&s->recv, key_of(t, t->from, t->place, key, sizeof key), t->ranks[4], op->c->output->data,
                     op->c->output->size);
    return TD_STATUS_OK;
  }
  if (!op->c->spec->is_source)
    return td_internal("Instance %d: a receiver is the source's rank %d", op->c->spec->instance_key,
                       op->member->source_rank);
  send_all(op);
  return TD_STATUS_OK;
}

const td_algorithm td_tree_algorithm = {.start = start, .advance = advance, .destroy = destroy};
