/* Messages of a bundle's index: BundleHeaderProto, BundleEntryProto. Names of its files. */
#ifndef TD_CHECKPOINT_BUNDLE_ENTRY_H_
#define TD_CHECKPOINT_BUNDLE_ENTRY_H_

#include "base/status.h"
#include "base/str.h"
#include "tensor/dtype.h"

enum { BUNDLE_VERSION = 1 };

static inline bool bundle_can_hold(td_dtype t) { return td_dtype_is_pod(t) || t == TD_STRING || t == TD_VARIANT; }

typedef struct bundle_header {
  int64_t shards;
  bool is_big_endian;
  td_str version; /* the bytes of its VersionDef, borrowed */
} bundle_header;

typedef struct bundle_entry {
  int64_t dtype, shard, offset, size;
  uint32_t crc;  /* masked */
  td_str shape;  /* the bytes of its TensorShapeProto, borrowed */
  td_str slices; /* from the first slice field to the end; other fields may stand between. Borrowed */
} bundle_entry;

/* INVALID_ARGUMENT for bytes that are no such message, with TensorFlow's text for a version that is too new. */
td_status bundle_header_decode(td_str bytes, bundle_header *out) TD_MUST_USE;
void bundle_header_encode(const bundle_header *h, td_strbuf *out);

td_status bundle_entry_decode(td_str bytes, bundle_entry *out) TD_MUST_USE;
/* `slices` only if it is what bundle_next_slice() yields, all of it. */
void bundle_entry_encode(const bundle_entry *e, td_strbuf *out);
/* Takes the next slice's message (a TensorSliceProto) from *rest; false at the end. */
bool bundle_next_slice(td_str *rest, td_str *out);

/* Paths, td_free()d by the caller. */
char *bundle_index_path(const char *prefix);
char *bundle_data_path(const char *prefix, int64_t shard, int64_t shards);

#endif /* TD_CHECKPOINT_BUNDLE_ENTRY_H_ */
