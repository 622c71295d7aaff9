/* Words of the command line as fields of requests. */

#include "ctl/request.h"

#include <string.h>

int request_put_setting(struct control_request *request, const char *name, struct line *why)
{
	if (name[0] == '\0')
		return line_fail(why, EDIT_ERROR_UNKNOWN, "the name of a setting is empty");
	if (strlen(name) > CONTROL_SETTING_MAX)
		return line_fail(why, EDIT_ERROR_UNKNOWN, "unknown setting %s", name);
	memcpy(request->setting, name, strlen(name) + 1);
	return 0;
}

int request_put_value(struct control_request *request, const char *value, struct line *why)
{
	if (value[0] == '\0')
		return line_fail(why, EDIT_ERROR_INVALID, "%s: the value is empty", request->setting);
	if (strlen(value) > CONTROL_VALUE_MAX)
		return line_fail(why, EDIT_ERROR_INVALID, "%s: a value of %zu bytes (at most %d)", request->setting,
				 strlen(value), CONTROL_VALUE_MAX);
	memcpy(request->value, value, strlen(value) + 1);
	return 0;
}

static int read_pair(const char *name, const char *value, struct control_request *ret_request, struct line *why)
{
	struct control_request request = {.command = COMMAND_SET};
	int error = request_put_setting(&request, name, why);
	if (error == 0)
		error = request_put_value(&request, value, why);
	if (error == 0)
		*ret_request = request;
	return error;
}

/* SETTING=VALUE */
static int read_assignment(const char *word, struct control_request *ret_request, struct line *why)
{
	char name[CONTROL_SETTING_MAX + 1];
	const char *sign = strchr(word, '=');
	if (sign == NULL)
		return line_fail(why, EDIT_ERROR_INVALID, "set is followed by SETTING VALUE or SETTING=VALUE..., not by '%s'",
				 word);
	size_t length = (size_t)(sign - word);
	if (length >= sizeof(name))
		return line_fail(why, EDIT_ERROR_UNKNOWN, "unknown setting %.*s", (int)size_min(length, 128), word);
	memcpy(name, word, length);
	name[length] = '\0';
	return read_pair(name, sign + 1, ret_request, why);
}

int request_read_set(const char *const *words, size_t word_count, struct control_request *ret_requests, size_t *ret_count,
		     struct line *why)
{
	int error = 0;
	if (word_count == 2 && strchr(words[0], '=') == NULL) {
		error = read_pair(words[0], words[1], ret_requests, why);
		if (error == 0)
			*ret_count = 1;
		return error;
	}
	for (size_t i = 0; i < word_count && error == 0; i++)
		error = read_assignment(words[i], &ret_requests[i], why);
	if (error == 0)
		*ret_count = word_count;
	return error;
}

int request_put_names(struct control_request *request, const char *const *names, size_t count, struct line *why)
{
	size_t length = 0;
	for (size_t i = 0; i < count; i++) {
		if (names[i][0] == '\0' || strchr(names[i], ' ') != NULL)
			return line_fail(why, EDIT_ERROR_INVALID, "'%.64s' is not the name of a member", names[i]);
		length += strlen(names[i]) + (i > 0);
	}
	if (length > CONTROL_VALUE_MAX)
		return line_fail(why, EDIT_ERROR_INVALID,
				 "%zu names take %zu bytes with the blanks between them, at most %d can be sent", count, length,
				 CONTROL_VALUE_MAX);
	request->value[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		strcat(request->value, i > 0 ? " " : "");
		strcat(request->value, names[i]);
	}
	return 0;
}
