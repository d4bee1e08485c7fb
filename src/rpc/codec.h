/* gRPC's small encodings: percent-encoded messages, grpc-timeout, base64 of binary metadata. Pure functions. */
#ifndef TD_RPC_CODEC_H_
#define TD_RPC_CODEC_H_

#include "base/status.h"
#include "base/str.h"

enum {
  TD_RPC_MESSAGE_MAX = 3072,      /* longer messages are cut, as TensorFlow's */
  TD_RPC_TRAILERS_MAX = 7 * 1024, /* encoded message and details together: peers take about 8 KiB of metadata */
};

/* Appends `message` percent-encoded as a grpc-message, cut at TD_RPC_MESSAGE_MAX bytes (with " ... [truncated]")
 * and at `max_encoded` encoded bytes, never inside a UTF-8 sequence. */
void td_percent_encode(td_strbuf *out, td_str message, size_t max_encoded);
/* Appends `s` decoded; a '%' without two hex digits stands for itself. */
void td_percent_decode(td_strbuf *out, td_str s);

/* Writes `timeout_ns` as a grpc-timeout of at most 8 digits, rounded up; returns its length (≤ 9). */
size_t td_timeout_format(uint64_t timeout_ns, char out[16]);
/* Nanoseconds, saturated; false when `s` is no grpc-timeout. */
bool td_timeout_parse(td_str s, uint64_t *out_ns);

void td_base64_encode(td_strbuf *out, td_str bytes); /* unpadded, as gRPC sends */
bool td_base64_decode(td_strbuf *out, td_str s);     /* padded or not; false when it is no base64 */

#endif /* TD_RPC_CODEC_H_ */
