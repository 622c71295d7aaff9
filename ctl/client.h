#ifndef EDIT_CTL_CLIENT_H
#define EDIT_CTL_CLIENT_H

/* The client's end of the control socket: one request, one reply, one at a time. Here or
 * on another host. */

#include "proto/control.pb-c.h"
#include "proto/control_codec.h"

struct client;

/* A reply and the block that it lives in; free(block) ends both. */
struct answer {
	void *block;
	const Edit__Control__Reply *reply;
};

/* Looks whether a daemon listens on the unix socket at path (ipc://PATH is taken too), then makes a client; no request is
 * sent yet. timeout_ms (> 0) bounds each later client_ask. On failure returns EDIT_ERROR_INVALID (path too long), _UNREACHABLE (no socket, no right to
 * it, nobody behind it) or _SYSTEM, and why tells what is wrong and what to do; ret_client is untouched. */
int client_open(const char *path, int timeout_ms, struct line *why, struct client **ret_client);
/* The same for a daemon on another host, as of remote_open; whether it is there is known by the first request. */
int client_open_remote(const char *address, const char *key_file, const char *server_file, int timeout_ms, struct line *why,
		       struct client **ret_client);
/* NULL is allowed. */
void client_close(struct client *client);

/* Sends request and waits for its reply. A reply that carries an error is a success here. On failure returns
 * EDIT_ERROR_UNREACHABLE (no daemon any more, or no answer in time), _MALFORMED (a reply that cannot be read), _REFUSED (one
 * of another control version, a key) or _SYSTEM; why tells more. A client that has failed may be asked again. */
int client_ask(struct client *client, const struct control_request *request, struct line *why, struct answer *ret_answer);

#endif
