/* Connections between tasks of one machine and user: large pieces go from memory to memory with one copy, made by the
 * one who receives (process_vm_readv); all else over a unix socket. Through a socket alone every byte is copied twice.
 *
 * A server that listens on ip:port offers the abstract unix addresses "tensord/1/ipv4:IP:PORT" and, for every further
 * loop, ".../LANE" beside it. A client whose peer's address is its own machine's tries those first. Both see in the
 * socket's credentials who the other is: only processes of the own user are neighbours, who could read each other's
 * memory anyway. Anything else (no such address, another user, another container, ptrace forbidden, a server that is
 * not tensord) is left to TCP.
 *
 * The server's greeting carries the descriptor of memory that it lends to whoever asks for that by other means (the
 * user's business); `td_stream.neighbour` holds it.
 *
 * Thread-safety: a stream belongs to its loop's thread, like any td_stream.
 */
#ifndef TD_RPC_NEIGHBOUR_H_
#define TD_RPC_NEIGHBOUR_H_

#include "rpc/address.h"
#include "rpc/stream.h"

/* The neighbours' address of loop `lane` of a server that is bound to `bound`; false if it is not an IP address. */
bool td_neighbour_address(const td_address *bound, int lane, td_address *out);

/* Connects to the server behind `address` if it is a neighbour; NULL if it is not, or cannot take a connection now. The
 * first loop serves it where there is no `lane`. Does not block. */
td_stream *td_neighbour_connect(const td_address *address, int lane);

/* The stream over a connected, non-blocking unix socket, which passes to it and is closed if the peer is another
 * user's: NULL then. `memory`: what the peer is told of memory that this process lends (td_neighbour). Its writev()
 * says -EBUSY while lent memory has not been copied by the peer. */
td_stream *td_neighbour_stream_create(int fd, int memory);

#endif /* TD_RPC_NEIGHBOUR_H_ */
