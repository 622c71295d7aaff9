/* Messages as JSON: a walk over protobuf-c's descriptors. Ends the program with exit status 1 if memory runs out. */

#include "ctl/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base.h"

json_t *json_or_exit(json_t *value)
{
	if (value == NULL) {
		fputs("editctl: out of memory\n", stderr);
		exit(1);
	}
	return value;
}

json_t *json_text(const char *text)
{
	json_t *value = json_string(text);
	if (value != NULL)
		return value;
	char *clean = strdup(text); /* not UTF-8: keep what is ASCII */
	for (char *c = clean; c != NULL && *c != '\0'; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	value = clean != NULL ? json_string(clean) : NULL;
	free(clean);
	return json_or_exit(value);
}

json_t *json_number(double value)
{
	if (isfinite(value))
		return json_or_exit(json_real(value));
	return json_text(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

static json_t *json_identity(uint64_t value)
{
	char text[17];
	snprintf(text, sizeof(text), "%016" PRIx64, value);
	return json_text(text);
}

static json_t *json_whole(uint64_t value)
{
	return json_or_exit(json_integer((json_int_t)u64_min(value, INT64_MAX)));
}

/* Size in memory of one value of a field. */
static size_t value_size(const ProtobufCFieldDescriptor *field)
{
	switch (field->type) {
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64: return sizeof(uint64_t);
	case PROTOBUF_C_TYPE_DOUBLE: return sizeof(double);
	case PROTOBUF_C_TYPE_UINT32: return sizeof(uint32_t);
	case PROTOBUF_C_TYPE_INT32: return sizeof(int32_t);
	case PROTOBUF_C_TYPE_BOOL: return sizeof(protobuf_c_boolean);
	case PROTOBUF_C_TYPE_STRING: return sizeof(char *);
	case PROTOBUF_C_TYPE_MESSAGE: return sizeof(ProtobufCMessage *);
	default: check_failed("a field type that control.proto does not use", __FILE__, __LINE__);
	}
}

static json_t *json_value(const ProtobufCFieldDescriptor *field, const void *place)
{
	switch (field->type) {
	case PROTOBUF_C_TYPE_UINT64: return json_whole(*(const uint64_t *)place);
	case PROTOBUF_C_TYPE_FIXED64: return json_identity(*(const uint64_t *)place);
	case PROTOBUF_C_TYPE_DOUBLE: return json_number(*(const double *)place);
	case PROTOBUF_C_TYPE_UINT32: return json_whole(*(const uint32_t *)place);
	case PROTOBUF_C_TYPE_INT32: return json_or_exit(json_integer(*(const int32_t *)place));
	case PROTOBUF_C_TYPE_BOOL: return json_boolean(*(const protobuf_c_boolean *)place);
	case PROTOBUF_C_TYPE_STRING: return json_text(*(char *const *)place);
	case PROTOBUF_C_TYPE_MESSAGE: {
		const ProtobufCMessage *message = *(ProtobufCMessage *const *)place;
		return message == NULL ? json_null() : json_message(message);
	}
	default: check_failed("a field type that control.proto does not use", __FILE__, __LINE__);
	}
}

static json_t *json_array_of(const ProtobufCFieldDescriptor *field, const char *values, size_t count)
{
	json_t *array = json_or_exit(json_array());
	for (size_t i = 0; i < count; i++)
		json_array_append_new(array, json_value(field, values + i * value_size(field)));
	return array;
}

json_t *json_message(const ProtobufCMessage *message)
{
	const ProtobufCMessageDescriptor *descriptor = message->descriptor;
	const char *base = (const char *)message;
	json_t *object = json_or_exit(json_object());
	for (unsigned i = 0; i < descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
		const char *place = base + field->offset;
		json_t *value;
		if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 &&
		    *(const uint32_t *)(base + field->quantifier_offset) != field->id)
			continue;
		if (field->label == PROTOBUF_C_LABEL_REPEATED)
			value = json_array_of(field, *(char *const *)place,
					      *(const size_t *)(base + field->quantifier_offset));
		else
			value = json_value(field, place);
		json_object_set_new(object, field->name, value);
	}
	return object;
}

json_t *json_answer(const char *command)
{
	json_t *object = json_or_exit(json_object());
	json_object_set_new(object, "version", json_whole(JSON_VERSION));
	json_object_set_new(object, "command", json_text(command));
	return object;
}

json_t *json_reply(const char *command, const Edit__Control__Reply *reply)
{
	json_t *answer = json_answer(command);
	if (reply->body_case == EDIT__CONTROL__REPLY__BODY__NOT_SET)
		return answer;
	json_t *body = json_message((const ProtobufCMessage *)reply->status); /* all bodies share one pointer */
	json_t *daemon_version = json_object_get(body, "version");
	if (daemon_version != NULL)
		json_object_set(answer, "daemon_version", daemon_version);
	json_object_update_missing(answer, body);
	json_decref(body);
	return answer;
}
