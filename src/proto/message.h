/* Decoding and encoding of protobuf-c messages.
 *
 * Bytes from outside go through td_message_decode(): it walks them first (nesting, sizes, memory that the message
 * would take, NULs in strings), for protobuf-c bounds none of these, and then unpacks into an arena. A decoded
 * message is never freed by itself: it dies with its arena. Its sub-messages may be NULL where the sender left them
 * out, also the value of a map entry; its strings never are.
 *
 * Thread-safety: none needed; the arena belongs to the caller.
 */
#ifndef TD_PROTO_MESSAGE_H_
#define TD_PROTO_MESSAGE_H_

#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

/* Decodes `bytes` as a message of type `type` into `arena`. What is kept is copied: `bytes` may go away.
 * INVALID_ARGUMENT names the type and the offset; RESOURCE_EXHAUSTED when the message would take too much memory.
 *
 *   Pb__GraphDef *graph;
 *   TD_TRY(td_message_decode(&pb__graph_def__descriptor, bytes, arena, (ProtobufCMessage **)&graph));
 */
td_status td_message_decode(const ProtobufCMessageDescriptor *type, td_str bytes, td_arena *arena,
                            ProtobufCMessage **out) TD_MUST_USE;

/* The checks alone. */
td_status td_message_check(const ProtobufCMessageDescriptor *type, td_str bytes) TD_MUST_USE;

/* Appends the encoding of `m`. RESOURCE_EXHAUSTED past 2 GiB, when nothing is appended. */
td_status td_message_encode(const ProtobufCMessage *m, td_strbuf *out) TD_MUST_USE;

/* Appends `m` as field `number` of a message that is written by hand (proto/wire.h). */
td_status td_message_encode_field(const ProtobufCMessage *m, uint32_t number, td_strbuf *out) TD_MUST_USE;

#endif /* TD_PROTO_MESSAGE_H_ */
