#ifndef EDIT_CTL_USAGE_H
#define EDIT_CTL_USAGE_H

/* Usage errors as JSON. argp and getopt tell them on standard error and end the program; with --json on the command line,
 * however wrong the rest of it is, what they have told then goes to standard output as an object too, in the form of
 * session_fail. */

/* Called before the command line is parsed; argv must live as long as the program. Does nothing unless --json is there. */
void usage_begin(int argc, char **argv);

/* Called when it has been parsed: there was no usage error. */
void usage_end(void);

#endif
