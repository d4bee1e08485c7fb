/* Syntax of names and versions of a GraphDef, before anything is built from it. */
#include "graph/import.h"
#include "graph/internal.h"

static bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_name_start(char c) { return is_letter_or_digit(c) || c == '.'; }

static bool is_name_part(char c) { return is_letter_or_digit(c) || c == '_' || c == '.' || c == '-' || c == '/'; }

/* [A-Za-z0-9.][A-Za-z0-9_.\-/]*, pieces of which '>' may join (newer clients). */
bool td_node_name_is_valid(td_str name, bool allow_internal) {
  if (!name.size) return false;
  bool at_start = true;
  for (size_t i = 0; i < name.size; i++) {
    char c = name.data[i];
    if (at_start) {
      if (!is_name_start(c) && !(allow_internal && c == '_')) return false;
      at_start = false;
    } else if (c == '>') {
      at_start = true;
    } else if (!is_name_part(c)) {
      return false;
    }
  }
  return !at_start;
}

bool td_input_parse(td_str text, td_str *out_name, int *out_slot) {
  *out_name = text;
  *out_slot = 0;
  if (text.size && text.data[0] == '^') {
    *out_name = td_str_n(text.data + 1, text.size - 1);
    *out_slot = TD_CONTROL_SLOT;
    return true;
  }
  size_t digits = 0;
  while (digits < text.size && text.data[text.size - digits - 1] >= '0' && text.data[text.size - digits - 1] <= '9')
    digits++;
  if (digits == text.size || text.data[text.size - digits - 1] != ':') return true;
  int64_t slot;
  if (!digits || !td_str_to_i64(td_str_n(text.data + text.size - digits, digits), &slot) || slot > INT32_MAX)
    return false;
  *out_name = td_str_n(text.data, text.size - digits - 1);
  *out_slot = (int)slot;
  return true;
}

static td_status check_input_syntax(td_str input, bool *out_is_control) {
  td_str name;
  int slot;
  if (!td_input_parse(input, &name, &slot) || !td_node_name_is_valid(name, false))
    return td_invalid_argument("Illegal op input name '%.*s'", TD_STR_ARG(input));
  *out_is_control = slot == TD_CONTROL_SLOT;
  return TD_STATUS_OK;
}

static td_status check_node_syntax(const Pb__NodeDef *n) {
  if (!td_node_name_is_valid(td_str_of(n->name), false)) return td_invalid_argument("Illegal op name '%s'", n->name);
  bool seen_control = false;
  for (size_t i = 0; i < n->n_input; i++) {
    bool is_control = false;
    TD_TRY(check_input_syntax(td_str_of(n->input[i]), &is_control));
    if (seen_control && !is_control) return td_invalid_argument("All control inputs must follow all data inputs");
    seen_control = is_control;
  }
  return TD_STATUS_OK;
}

td_status td_graph_check_syntax(const Pb__GraphDef *def) {
  for (size_t i = 0; i < def->n_node; i++) {
    td_status s = check_node_syntax(def->node[i]);
    if (s) return td_graph_attach(s, td_str_of(def->node[i]->name));
  }
  return TD_STATUS_OK;
}

td_status td_graph_check_versions(const Pb__VersionDef *v) {
  if (!v) return TD_STATUS_OK;
  if (v->producer < 0)
    return td_invalid_argument(
        "GraphDef producer version %d below min producer 0 supported by TensorFlow %s.  Please regenerate your graph.",
        v->producer, TD_VERSION);
  if (v->min_consumer > TD_GRAPH_VERSION)
    return td_invalid_argument(
        "GraphDef min consumer version %d above current version %d for TensorFlow %s.  Please upgrade TensorFlow.",
        v->min_consumer, TD_GRAPH_VERSION, TD_VERSION);
  for (size_t i = 0; i < v->n_bad_consumers; i++)
    if (v->bad_consumers[i] == TD_GRAPH_VERSION)
      return td_invalid_argument(
          "GraphDef disallows consumer version %d.  Please upgrade TensorFlow: this version is likely buggy.",
          v->bad_consumers[i]);
  return TD_STATUS_OK;
}
