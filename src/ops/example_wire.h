/* Example, SequenceExample and their features (tensorflow.Example), read from their bytes.
 *
 * The bytes are whatever somebody put into a string: nothing is copied or believed before it has been looked at. Views
 * point into the bytes. Thread-safe: no state.
 */
#ifndef TD_OPS_EXAMPLE_WIRE_H_
#define TD_OPS_EXAMPLE_WIRE_H_

#include "proto/wire.h"
#include "tensor/tensor.h"

/* A Feature: values of one type. */
typedef struct td_feature {
  td_dtype type; /* TD_STRING, TD_FLOAT, TD_INT64; TD_INVALID: it says nothing, as if it were absent */
  int64_t count; /* of values */
  td_str list;   /* the message with the values */
} td_feature;

/* False for bytes that are no Feature. */
bool td_feature_parse(td_str bytes, td_feature *out);
/* Copies all values to elements [at, at + count) of `t`, which is of the feature's type. Only strings can fail, for
 * want of memory. */
td_status td_feature_copy(const td_feature *f, td_tensor *t, int64_t at) TD_MUST_USE;

/* Walks the entries of a map<string, message> in field 1 of the messages in field `field` of `bytes`: each(arg, key,
 * value) for every entry, in order; an entry that comes later is the one that counts. False for malformed bytes or when
 * each() says so. */
bool td_feature_map_walk(td_str bytes, uint32_t field, bool (*each)(void *arg, td_str key, td_str value), void *arg);

#endif /* TD_OPS_EXAMPLE_WIRE_H_ */
