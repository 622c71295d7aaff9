/* Requests and replies of the control socket. */

#include <stdlib.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/codec_arena.h"
#include "proto/control.pb-c.h"
#include "proto/control_codec.h"

enum { REQUEST_BLOCK_BYTES = 32 << 10 };

/* ---- Commands ---- */

const char *control_command_name(uint32_t command)
{
	switch (command) {
#define X(id, number, name, right, function, help) case (number): return name;
	COMMANDS(X)
#undef X
	default: return NULL;
	}
}

uint32_t control_command_find(const char *name)
{
#define X(id, number, text, right, function, help)                                                                     \
	if (!strcmp(name, text))                                                                                           \
		return id;
	COMMANDS(X)
#undef X
	return 0;
}

bool control_command_changes(uint32_t command)
{
	enum { READ, CHANGE };
	switch (command) {
#define X(id, number, name, right, function, help) case (number): return (right) == CHANGE;
	COMMANDS(X)
#undef X
	default: return false;
	}
}

/* ---- Requests ---- */

int control_request_encode(const struct control_request *request, void *buffer, size_t buffer_bytes, size_t *ret_bytes)
{
	Edit__Control__Request wire = EDIT__CONTROL__REQUEST__INIT;
	wire.version = CONTROL_VERSION;
	wire.command = request->command;
	wire.setting = (char *)request->setting;
	wire.value = (char *)request->value;
	wire.at_round = request->at_round;
	wire.dry_run = request->dry_run;
	wire.change = request->change;
	wire.force = request->force;
	if (edit__control__request__get_packed_size(&wire) > buffer_bytes)
		return EDIT_ERROR_FULL;
	*ret_bytes = edit__control__request__pack(&wire, buffer);
	return 0;
}

int control_request_decode(const void *frame, size_t frame_bytes, struct control_request *ret_request, struct line *why)
{
	_Alignas(16) unsigned char block[REQUEST_BLOCK_BYTES];
	struct arena arena = {.base = block, .size_bytes = sizeof(block)};
	if (frame_bytes > CONTROL_REQUEST_MAX)
		return line_fail(why, EDIT_ERROR_MALFORMED, "a request of %zu bytes is too long, expected up to %d", frame_bytes,
				 (int)CONTROL_REQUEST_MAX);
	const Edit__Control__Request *wire = (const Edit__Control__Request *)arena_unpack(
		&arena, &edit__control__request__descriptor, frame, frame_bytes);
	if (!wire || wire->version == 0)
		return line_fail(why, EDIT_ERROR_MALFORMED, "not a request");
	if (wire->version != CONTROL_VERSION)
		return line_fail(why, EDIT_ERROR_REFUSED, "control protocol version %u, this daemon speaks version %d",
				 wire->version, (int)CONTROL_VERSION);
	if (!control_command_name(wire->command))
		return line_fail(why, EDIT_ERROR_UNKNOWN, "unknown command %u", wire->command);
	if (strlen(wire->setting) > CONTROL_SETTING_MAX || strlen(wire->value) > CONTROL_VALUE_MAX)
		return line_fail(why, EDIT_ERROR_RANGE, "a setting's name has up to %d bytes, its value up to %d",
				 (int)CONTROL_SETTING_MAX, (int)CONTROL_VALUE_MAX);
	if (wire->at_round >= CODEC_NUMBER_END)
		return line_fail(why, EDIT_ERROR_RANGE, "the round is out of range, expected less than 2^53");
	struct control_request request = {.command = (enum command)wire->command,
					  .at_round = wire->at_round,
					  .dry_run = wire->dry_run,
					  .change = wire->change,
					  .force = wire->force};
	strcpy(request.setting, wire->setting);
	strcpy(request.value, wire->value);
	*ret_request = request;
	return 0;
}

/* ---- Replies ---- */

int control_reply_decode(const void *frame, size_t frame_bytes, void **ret_block,
			 const struct Edit__Control__Reply **ret_reply, struct line *why)
{
	if (frame_bytes > CONTROL_REPLY_MAX)
		return line_fail(why, EDIT_ERROR_MALFORMED, "a reply of %zu bytes is too long, expected up to %d", frame_bytes,
				 (int)CONTROL_REPLY_MAX);
	size_t size_bytes = (64 << 10) + 32 * frame_bytes;
	void *block = aligned_alloc(16, size_bytes);
	if (!block)
		return line_fail(why, EDIT_ERROR_SYSTEM, "no memory for a reply of %zu bytes", frame_bytes);
	struct arena arena = {.base = block, .size_bytes = size_bytes};
	const Edit__Control__Reply *wire = (const Edit__Control__Reply *)arena_unpack(
		&arena, &edit__control__reply__descriptor, frame, frame_bytes);
	int error = 0;
	if (!wire || wire->version == 0)
		error = line_fail(why, EDIT_ERROR_MALFORMED, "the daemon's answer is not a reply");
	else if (wire->version != CONTROL_VERSION)
		error = line_fail(why, EDIT_ERROR_REFUSED, "the daemon speaks control protocol version %u, expected %d",
				  wire->version, (int)CONTROL_VERSION);
	if (error) {
		free(block);
		return error;
	}
	*ret_block = block;
	*ret_reply = wire;
	return 0;
}
