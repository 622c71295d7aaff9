#ifndef EDIT_DAEMON_FIELDS_H
#define EDIT_DAEMON_FIELDS_H

/* Fields of the JSON texts in a checkpoint. Hashes are 16 hexadecimal digits, since JSON's numbers hold 53 bits only for others. */

#include <jansson.h>

#include "core/base.h"

/* A whole number as a field. NULL if memory is short. */
json_t *fields_count(uint64_t count);
/* A hash as a field. NULL if memory is short. */
json_t *fields_hash(uint64_t hash);
/* Reads a whole number from an object. False: it is not there, or something else. */
bool fields_read_count(const json_t *object, const char *name, uint64_t *ret_count);
/* Reads field "xxh3" of an object, a hash. False: it is not there, or something else. */
bool fields_read_hash(const json_t *object, uint64_t *ret_hash);

#endif
