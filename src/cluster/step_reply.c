#include "cluster/step_reply.h"

#include "cluster/step_trace.h"
#include "proto/wire.h"

td_status td_step_combine(td_master_step *st) {
  size_t roots = 0;
  td_status first = NULL, first_derived = NULL;
  for (size_t i = 0; i < st->part_count; i++) {
    td_status s = st->parts[i].status;
    if (!s) continue;
    if (td_status_is_derived(s)) {
      if (!first_derived) first_derived = s;
      continue;
    }
    roots++;
    if (!first) first = s;
  }
  if (roots < 2) {
    td_status s = first ? first : first_derived;
    /* a new one, so that the mark stays between servers */
    return s ? td_error_bytes(td_status_code(s), td_status_message(s), strlen(td_status_message(s))) : TD_STATUS_OK;
  }
  td_strbuf text = {0};
  td_strbuf_puts(&text, "\n=====================\n");
  for (size_t i = 0; i < st->part_count && text.size < 8192; i++) {
    td_status s = st->parts[i].status;
    if (s && !td_status_is_derived(s))
      td_strbuf_printf(&text, "%s: %s\n", td_code_name(td_status_code(s)), td_status_message(s));
  }
  td_strbuf_puts(&text, "=====================\n");
  td_status s = td_error_bytes(td_status_code(first), text.data, text.size);
  td_strbuf_deinit(&text);
  return s;
}

static void put_results(td_master_step *st, td_payload *message, td_status *status) {
  td_plan_view *v = st->view;
  td_step_part *own = v->plan->own >= 0 ? &st->parts[v->plan->own] : NULL;
  for (size_t i = 0; !*status && i < v->fetch_count; i++) {
    td_tensor *t = own ? own->run.recvs[v->fetch_slots[i]] : NULL;
    if (!t)
      *status = td_internal("Worker did not return a value for fetch: %.*s", TD_STR_ARG(v->fetch_names[i]));
    else if (st->is_callable)
      *status = td_payload_add_tensor(message, 1, t);
    else
      *status = td_payload_add_named_tensor(message, 1, v->fetch_names[i], t);
  }
}

/* RunMetadata: present even when empty. */
static void put_metadata(td_master_step *st, td_payload *message) {
  static const uint8_t empty[] = {0x12, 0x00};
  td_strbuf all = {0}, b = {0};
  if (st->trace) td_step_trace_put(st->trace, &all);
  for (size_t i = 0; i < st->part_count; i++) { /* what is a message comes in pieces, which readers put together */
    td_run_graph *r = &st->parts[i].run;
    if (r->step_stats.size) td_wire_put_bytes(&all, 1, td_strbuf_view(&r->step_stats));
    if (r->record_costs && r->cost_graph.size) td_wire_put_bytes(&all, 2, td_strbuf_view(&r->cost_graph));
    if (r->metadata.size) td_strbuf_append(&all, td_strbuf_view(&r->metadata));
  }
  if (!all.size) {
    td_payload_add(message, empty, sizeof empty, NULL, NULL);
    return;
  }
  td_wire_put_bytes(&b, 2, td_strbuf_view(&all));
  size_t size = b.size;
  td_payload_take(message, td_strbuf_take(&b), size);
  td_strbuf_deinit(&all);
}

void td_step_answer(td_master_step *st, td_status status) {
  if (st->is_answered) {
    td_status_free(status);
    return;
  }
  st->is_answered = true;
  td_payload message = {0};
  if (!status && st->view) put_results(st, &message, &status);
  if (!status || (st->request.store_errors_in_body && !st->is_callable)) {
    if (status) {
      td_payload_deinit(&message);
      message = (td_payload){0};
    }
    put_metadata(st, &message);
    if (status) {
      td_strbuf b = {0};
      td_wire_put_uint(&b, 3, (uint64_t)td_status_code(status));
      td_wire_put_bytes(&b, 4, td_str_of(td_status_message(status)));
      td_payload_copy(&message, b.data, b.size);
      td_strbuf_deinit(&b);
      td_status_free(status);
    }
    td_call_reply(st->call, &message);
  } else {
    td_payload_deinit(&message);
    td_call_fail_client(st->call, status);
  }
}
