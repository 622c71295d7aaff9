#ifndef EDIT_PROTO_ADDRESS_H
#define EDIT_PROTO_ADDRESS_H

/* Addresses as ZeroMQ writes them: tcp://HOST:PORT and ipc://PATH. Looks nothing up. */

#include "proto/text.h"

enum address_kind {
	ADDRESS_TCP = 1,
	ADDRESS_IPC
};

enum {
	ADDRESS_TEXT_MAX = 255,
	ADDRESS_PATH_MAX = 107 /* what a unix socket's path can hold */
};

struct address {
	enum address_kind kind;
	char host[ADDRESS_TEXT_MAX + 1]; /* TCP: name, IPv4, IPv6 without brackets, or "*" (bind to all) */
	uint16_t port;                   /* TCP: 1 to 65535 */
	char path[ADDRESS_PATH_MAX + 1]; /* IPC: absolute */
};

/* Takes an address apart. EDIT_ERROR_INVALID with a line that quotes text and says what was expected. */
int address_parse(const char *text, struct address *ret_address, struct line *why);

/* Whether only this host can be reached by it: ipc, 127.0.0.0/8, ::1, localhost. */
bool address_is_loopback(const struct address *address);

#endif
