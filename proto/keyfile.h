#ifndef EDIT_PROTO_KEYFILE_H
#define EDIT_PROTO_KEYFILE_H

/* Files that hold a CURVE key, 40 characters of Z85, as INI without sections: `secret = KEY` in the one file that stays on its
 * machine, `public = KEY` in those that are handed out, with `rights = read` or `rights = change` beside it where the key is a
 * tool's. Owns nothing; a line of refusal never repeats a key. */

#include "proto/text.h"

enum { KEY_BYTES = 41 /* a key as text, with its zero byte */ };

#define KEYFILE_SECRET "secret"   /* name of the secret key's file in a folder of keys */
#define KEYFILE_CLIENTS "clients" /* folder of the keys of tools in there */
#define KEYFILE_ENDING ".pub"     /* behind the name of whoever a public key belongs to */

/* Whether text is a key: 32 bytes in Z85. */
bool keyfile_is_key(const char *text);

/* Reads a public key. is_client: rights may be given (default: read), and *ret_may_change is set. EDIT_ERROR_UNKNOWN (no such file),
 * _INVALID, _RANGE or _SYSTEM with a line that names the file; the results are untouched then. */
int keyfile_read_public(const char *path, bool is_client, char ret_key[KEY_BYTES], bool *ret_may_change, struct line *why);

/* Reads a secret key, whose file must be open to its owner alone, who must be this process's user or the owner of its folder,
 * which others must not be able to write to. Errors as above, and EDIT_ERROR_REFUSED for the wrong owner or mode. */
int keyfile_read_secret(const char *path, char ret_key[KEY_BYTES], struct line *why);

#endif
