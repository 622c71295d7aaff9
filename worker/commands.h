#ifndef EDIT_WORKER_COMMANDS_H
#define EDIT_WORKER_COMMANDS_H

/* The commands of edit-worker. Each gets its arguments with its own name in argv[0] ("edit-worker train") and returns
 * the program's exit status. */

/* What --help of each command ends with. */
#define EXIT_STATUS_TEXT                                                                                           \
	"Exit status: 0 ok, 1 a file is damaged or cannot be read or written, 2 arguments or files that do not fit, 3 no " \
	"daemon, 4 the daemon refuses this worker"

/* Takes part in a ring as the training process of one node. */
int command_train(int argc, char **argv);
/* Tells the loss of a model on a file. */
int command_eval(int argc, char **argv);
/* Makes a model of the checkpoints of a mesh. */
int command_join(int argc, char **argv);
/* Lets a model continue a text. */
int command_sample(int argc, char **argv);

#endif
