#ifndef EDIT_PROTO_STREAM_H
#define EDIT_PROTO_STREAM_H

/* Standard input, output and error as every program needs them: open. A program that is started without one of them would
 * get its number for the next file or socket that it opens, and write its lines for people into that. */

/* Puts /dev/null, which then fails to read or write, in the place of each of the three that is closed. To be called
 * before anything is opened. */
void stream_open_standard(void);

#endif
