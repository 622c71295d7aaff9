/* The table of editctl's commands. What proto/command.h does not say, the words and options of each, stands here. */

#include "ctl/verb.h"

#include <string.h>

#include "ctl/arguments.h"

enum {
	OPTIONS_OF_READ = VERB_WATCH,
	OPTIONS_OF_CHANGE = VERB_WAIT | VERB_TIMEOUT
};

/* By enum command; what is not listed takes no words and no further options. */
static const struct verb_words words[32] = {
	[COMMAND_GET] = {"[SETTING]", 0, 1, 0, 0},
	[COMMAND_CHANGE] = {"ID", 1, 1, 0, 0},
	[COMMAND_TRACE] = {NULL, 0, 0, VERB_SINCE | VERB_LAST | VERB_FOLLOW, VERB_WATCH},
	[COMMAND_SET] = {"SETTING VALUE", 1, ARGUMENTS_WORD_MAX, VERB_AT_ROUND | VERB_DRY_RUN, 0},
	[COMMAND_PAUSE] = {NULL, 0, 0, VERB_AT_ROUND, 0},
	[COMMAND_CHECKPOINT] = {NULL, 0, 0, VERB_AT_ROUND, 0},
	[COMMAND_LEAVE] = {NULL, 0, 0, 0, VERB_WAIT},
	[COMMAND_FORCE] = {"NAME...", 1, ARGUMENTS_WORD_MAX, VERB_FORCE, VERB_WAIT | VERB_TIMEOUT},
};

static const struct verb_words words_of_wait = {"round N | finished | healthy", 1, 2, VERB_TIMEOUT, 0};

static const struct verb_words words_of_keygen = {"NAME", 1, 1, VERB_OUT | VERB_FORCE, 0};

static const struct verb verbs[] = {
#define X(id, number, name, right, function, help) {id, name, help, &words[id], OPTIONS_OF_##right, run_##function},
	COMMANDS(X)
#undef X
	{0, "wait", "until it is so, or --timeout has passed", &words_of_wait, 0, run_wait},
	{0, "keygen", "a pair of keys for a member, or for a person with editctl on another host", &words_of_keygen, 0, run_keygen},
};

const struct verb *verb_list(size_t *ret_count)
{
	*ret_count = sizeof(verbs) / sizeof(verbs[0]);
	return verbs;
}

const struct verb *verb_find(const char *name)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
	return NULL;
}

bool verb_has(const struct verb *verb, enum verb_option option)
{
	return (((verb->options & ~verb->words->without) | verb->words->options) & (unsigned)option) != 0;
}
