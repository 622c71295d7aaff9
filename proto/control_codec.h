#ifndef EDIT_PROTO_CONTROL_CODEC_H
#define EDIT_PROTO_CONTROL_CODEC_H

/* Requests and replies of the control socket as bytes, checked on the way in. Requests are plain structs on both
 * ends; replies are built and read as the generated types of control.proto (daemon/control.c and answers, ctl/),
 * because they are wide and only shown. */

#include "core/base.h"
#include "proto/command.h"
#include "proto/text.h"

enum {
	CONTROL_SETTING_MAX = 63, /* bytes of a setting's name */
	CONTROL_VALUE_MAX = 255   /* bytes of its value as text, or of names with blanks between them */
};

struct control_request {
	enum command command;
	char setting[CONTROL_SETTING_MAX + 1];
	char value[CONTROL_VALUE_MAX + 1];
	uint64_t at_round; /* below 2^53 */
	bool dry_run;
	uint64_t change;
	bool force;
};

/* Writes request into buffer. EDIT_ERROR_FULL if it does not fit (CONTROL_REQUEST_MAX always does). */
int control_request_encode(const struct control_request *request, void *buffer, size_t buffer_bytes, size_t *ret_bytes);

/* Reads a request of at most CONTROL_REQUEST_MAX bytes; allocates nothing. EDIT_ERROR_MALFORMED (not a request),
 * EDIT_ERROR_REFUSED (another CONTROL_VERSION), EDIT_ERROR_UNKNOWN (no such command), EDIT_ERROR_RANGE: why says it
 * in one line, fit to be the reply's text. */
int control_request_decode(const void *frame, size_t frame_bytes, struct control_request *ret_request, struct line *why);

/* The name of a command as in the table; NULL if there is none of that number. */
const char *control_command_name(uint32_t command);
/* The command of that name, 0 if there is none. */
uint32_t control_command_find(const char *name);
/* Whether the command changes the ring (right CHANGE) rather than only reads. */
bool control_command_changes(uint32_t command);

struct Edit__Control__Reply;

/* Reads a reply of at most CONTROL_REPLY_MAX bytes for a client. The reply lives in one block of at most 64 KiB + 32
 * x frame_bytes; the caller free()s *ret_block when done with it. All text in it is plain (proto/text.h).
 * EDIT_ERROR_MALFORMED, EDIT_ERROR_REFUSED (another CONTROL_VERSION) or EDIT_ERROR_SYSTEM (no memory), with a line.
 * A reply that carries an error is read well: look at its error field. */
int control_reply_decode(const void *frame, size_t frame_bytes, void **ret_block,
			 const struct Edit__Control__Reply **ret_reply, struct line *why);

#endif
