/* Addresses as text ("host:port", "[v6]:port", "unix:PATH") and their resolution. */
#ifndef TD_RPC_ADDRESS_H_
#define TD_RPC_ADDRESS_H_

#include <stdbool.h>
#include <sys/socket.h>

#include "base/status.h"
#include "rpc/loop.h"

enum { TD_ADDRESSES_MAX = 8 };

typedef struct td_address {
  struct sockaddr_storage storage;
  socklen_t size;
} td_address;

typedef struct td_addresses {
  td_address items[TD_ADDRESSES_MAX];
  int count;
} td_addresses;

/* Resolves what needs no name service: numeric hosts, "localhost", unix paths, an empty host (any). *out has no
 * item when the host is another name. INVALID_ARGUMENT `Could not interpret "<s>" as a host-port pair.` */
td_status td_address_parse(const char *text, td_addresses *out) TD_MUST_USE;
/* The same with names; blocks. UNAVAILABLE when the name is not known. */
td_status td_address_resolve(const char *text, td_addresses *out) TD_MUST_USE;
/* "ipv4:1.2.3.4:5", "ipv6:[::1]:5", "unix:"; to be td_free()d. */
char *td_address_name(const struct sockaddr *address);
int td_address_port(const struct sockaddr *address); /* 0 for a unix socket */

/* Resolution on a thread of its own, because name services may block for seconds. */
typedef struct td_resolution td_resolution;
/* done(arg, status, addresses) runs once on the loop, unless cancelled; status is its to free. */
td_resolution *td_resolution_start(td_loop *l, const char *text,
                                   void (*done)(void *arg, td_status status, const td_addresses *found), void *arg);
void td_resolution_cancel(td_resolution *r); /* on the loop; `done` will not run. Not after it has run. */

#endif /* TD_RPC_ADDRESS_H_ */
