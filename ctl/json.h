#ifndef EDIT_CTL_JSON_H
#define EDIT_CTL_JSON_H

/* Messages of the control socket as JSON, for programs. One walk over protobuf-c's descriptors serves all messages, so
 * names are those of proto/control.proto and a new field appears without a line here. */

#include <jansson.h>

#include "proto/control.pb-c.h"

enum { JSON_VERSION = 1 };

/* The value; ends the program if there is none because memory ran out. */
json_t *json_or_exit(json_t *value);
/* The text, with '?' for bytes that are not UTF-8. New reference. */
json_t *json_text(const char *text);
/* The number; what is not finite becomes the string "nan", "inf" or "-inf", for JSON has no number for it. New reference. */
json_t *json_number(double value);
/* An object with every field of message: repeated fields as arrays, submessages as objects (null if absent; of a oneof only
 * the field that is set), fixed64 (identities and hashes, too long for a double) as strings of 16 hexadecimal digits. New
 * reference. */
json_t *json_message(const ProtobufCMessage *message);
/* {"version": 1, "command": command}. New reference. */
json_t *json_answer(const char *command);
/* json_answer(command) with the fields of the reply's body; "version" of a body (status: that of editd) is named
 * "daemon_version". New reference. */
json_t *json_reply(const char *command, const Edit__Control__Reply *reply);

#endif
