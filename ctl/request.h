#ifndef EDIT_CTL_REQUEST_H
#define EDIT_CTL_REQUEST_H

/* Words of the command line as fields of requests. What a setting may be is the daemon's to say; here only what cannot even
 * be sent is refused. */

#include "proto/control_codec.h"

/* Puts the name of a setting. EDIT_ERROR_UNKNOWN with a line if it is longer than any, or empty. */
int request_put_setting(struct control_request *request, const char *name, struct line *why);
/* Puts a value. EDIT_ERROR_INVALID with a line if it is longer than any, or empty. */
int request_put_value(struct control_request *request, const char *value, struct line *why);

/* Reads the words of `set`: either SETTING VALUE or SETTING=VALUE one or more times, into ret_requests [*ret_count], which has
 * room for word_count. EDIT_ERROR_INVALID or _UNKNOWN with a line. */
int request_read_set(const char *const *words, size_t word_count, struct control_request *ret_requests, size_t *ret_count,
		     struct line *why);

/* Joins names by single blanks into the value, for `force`. EDIT_ERROR_INVALID with a line if one is empty or holds a blank, or if all of
 * them are too long to be sent. */
int request_put_names(struct control_request *request, const char *const *names, size_t count, struct line *why);

#endif
