/* Holds back what is written to standard error while the command line is parsed, and tells it in two forms if the program
 * ends there. One per process, for it hangs on that end. */

#include "ctl/usage.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base.h"
#include "ctl/json.h"
#include "ctl/session.h"
#include "ctl/verb.h"

static struct {
	FILE *standard_error; /* NULL: nothing is held back */
	char *text;
	size_t text_bytes;
	int argc;
	char **argv;
} usage;

/* Long options may be cut short, short ones written together; -s, -t and -w take the rest of their word. */
static bool is_json(const char *word)
{
	if (word[0] != '-')
		return false;
	if (word[1] != '-')
		return word[strcspn(word, "jstw")] == 'j';
	return strlen(word) > 2 && strncmp(word, "--json", strlen(word)) == 0;
}

static bool wants_json(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (is_json(argv[i]))
			return true;
	return false;
}

/* The first command among the words; NULL: none. */
static const struct verb *find_verb(void)
{
	const struct verb *verb = NULL;
	for (int i = 1; i < usage.argc && verb == NULL; i++)
		verb = verb_find(usage.argv[i]);
	return verb;
}

/* What stands in the first line behind the program's name. */
static void print_json(void)
{
	char *begin = strstr(usage.text, ": ");
	const struct verb *verb = find_verb();
	json_t *object = json_answer(verb != NULL ? verb->name : "");
	begin = begin != NULL ? begin + 2 : usage.text;
	begin[strcspn(begin, "\n")] = '\0';
	if (verb == NULL)
		json_object_set_new(object, "command", json_null());
	json_object_set_new(object, "error", json_text(edit_error_text(EDIT_ERROR_INVALID)));
	json_object_set_new(object, "text", json_text(begin));
	json_object_set_new(object, "exit_status", json_integer(edit_error_status(EDIT_ERROR_INVALID)));
	session_print(object);
	session_flush();
}

static void tell(int status, void *ignored)
{
	(void)ignored;
	if (usage.standard_error == NULL)
		return;
	usage_end();
	if (status == edit_error_status(EDIT_ERROR_INVALID) && usage.text != NULL)
		print_json();
}

void usage_begin(int argc, char **argv)
{
	if (!wants_json(argc, argv))
		return;
	FILE *held = open_memstream(&usage.text, &usage.text_bytes);
	if (held == NULL || on_exit(tell, NULL) != 0)
		return;
	usage.argc = argc;
	usage.argv = argv;
	usage.standard_error = stderr;
	stderr = held;
}

void usage_end(void)
{
	if (usage.standard_error == NULL)
		return;
	fclose(stderr);
	stderr = usage.standard_error;
	usage.standard_error = NULL;
	if (usage.text != NULL)
		fputs(usage.text, stderr);
}
