#ifndef EDIT_CTL_ARGUMENTS_H
#define EDIT_CTL_ARGUMENTS_H

/* The command line of editctl, parsed and checked; --help and usage come from the table of verbs. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct verb;

enum {
	ARGUMENTS_WORD_MAX = 64 /* words behind the command */
};

struct arguments {
	const struct verb *verb;
	const char *socket_path;
	const char *host;  /* tcp://HOST:PORT of another node, asked instead of socket_path; NULL: none */
	const char *key_file, *server_file; /* with host: the own secret key, and the public key of that node */
	double timeout_s;  /* of one request: 0.001 to 86400 */
	bool json, watch;
	double watch_s;    /* 0.1 to 86400 */
	bool dry_run, wait;
	uint64_t at_round; /* 0: not given */
	uint64_t since_round, last_count; /* 0: not given */
	bool follow;
	const char *out;   /* --out: folder of the keys that are made */
	bool force;
	double limit_s;    /* --timeout: of all waiting; negative: none */
	const char *words[ARGUMENTS_WORD_MAX]; /* [word_count], as in argv */
	size_t word_count;
};

/* Fills *ret_arguments from argv (whose texts it borrows) and EDITCTL_SOCKET, _HOST, _KEY and _SERVER. Prints and exits 0 for --help and --version;
 * anything wrong is told in one line with exit status 2, with --json as an object too. */
void arguments_parse(int argc, char **argv, struct arguments *ret_arguments);

/* A time in seconds from low to high. 0, or EDIT_ERROR_INVALID; ret_s untouched then. */
int arguments_read_seconds(const char *text, double low, double high, double *ret_s);
/* A round or a number of rounds, 1 to 2^63 - 1, in decimal digits. 0, or EDIT_ERROR_INVALID; ret_round untouched then. */
int arguments_read_round(const char *text, uint64_t *ret_round);
/* An identity, 1 to 16 hexadecimal digits, not 0. 0, or EDIT_ERROR_INVALID; ret_identity untouched then. */
int arguments_read_identity(const char *text, uint64_t *ret_identity);

#endif
