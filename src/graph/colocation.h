/* Colocation sets: which nodes must share a device, and what is asked of it. Used by the placer only. */
#ifndef TD_GRAPH_COLOCATION_H_
#define TD_GRAPH_COLOCATION_H_

#include "graph/place.h"

/* A partial device name that something asks for. Interned: two equal ones are one pointer. NULL asks for nothing. */
typedef struct td_place_spec {
  td_device_name name;
  td_str text;
  struct td_place_choice *choices; /* found so far, by types */
} td_place_spec;

/* Devices that match a spec and have one of some types, in order of preference. */
typedef struct td_place_choice {
  uint32_t types;
  int *devices; /* indices into sorted, ascending */
  int count;
  struct td_place_choice *next;
} td_place_choice;

/* One node's set; what it asks for is valid at the root. requested is always at least as narrow as the other two. */
typedef struct td_place_member {
  int parent, rank;
  const td_place_spec *requested, *resource, *assigned;
  uint32_t types; /* bit per device type that has kernels for all of the set */
  const td_place_choice *choice;
} td_place_member;

enum { TD_PLACE_MAX_TYPES = 31 };

typedef struct td_placer {
  td_graph *g;
  const td_place_options *options;
  td_arena arena;                 /* for this placement */
  const td_place_device **sorted; /* by name */
  int *type_of;                   /* by index in sorted: bit number */
  td_map device_index;            /* full name -> &sorted[i] */
  td_str types[TD_PLACE_MAX_TYPES];
  int type_count;
  uint32_t cpu, all_types;            /* bits */
  td_device_name own;                 /* address of the own task; job empty when unknown */
  td_map specs_by_text;               /* as written in nodes and canonical -> td_place_spec */
  const td_place_spec **device_specs; /* by index in sorted, made on first use */
  td_place_spec anything;             /* holds the choices of those who ask for nothing */
  td_place_member *members;           /* by node id */
  int *device_of;                     /* by node id: index in sorted; -1: none yet */
} td_placer;

/* Interned; *out is NULL when the text asks for nothing. False when it is no device name. */
bool td_place_spec_parse(td_placer *p, td_str text, const td_place_spec **out);
const td_place_spec *td_place_spec_of(td_placer *p, const td_device_name *name);
const td_place_spec *td_place_spec_of_device(td_placer *p, int device);

int td_place_root(td_placer *p, int node);
/* Fills members: one set a node, joined along ref and resource edges and colocation groups. */
td_status td_place_colocate(td_placer *p) TD_MUST_USE;
/* "\nColocation Debug Info: …" */
void td_place_describe(td_placer *p, int root, td_strbuf *out);

#endif /* TD_GRAPH_COLOCATION_H_ */
