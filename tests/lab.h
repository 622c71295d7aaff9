#ifndef EDIT_TESTS_LAB_H
#define EDIT_TESTS_LAB_H

/* A ring, or a mesh, of nodes in one process over a perfect wire, in lockstep, for tests of core/node.h. Messages are copied
 * when sent and delivered in order; a test may cut links, drop messages or look at each. sim/ is the place for random faults. */

#include "core/node.h"

enum { LAB_NOTES_MAX = 4096 };

struct lab;

struct lab_member {
	struct node *node;
	struct layer *layers;       /* [layer_count], memory owned by the lab */
	uint64_t done;            /* steps */
	uint64_t step;            /* last ACTION_STEP */
	uint64_t schedule;          /* last ACTION_SCHEDULE: steps; UINT64_MAX: none yet */
	uint64_t scheduled_count;
	bool gradients;             /* last ACTION_SCHEDULE */
	bool paused;
	uint64_t checkpoint_round;  /* last ACTION_CHECKPOINT */
	size_t published;           /* layers, since the last offer */
	enum verdict verdict;       /* of the last layer published */
	uint64_t deadline_us;
	bool dead;                  /* hears and says nothing */
	uint64_t view;              /* number, 1 at first */
	size_t *order;              /* of the view: index of the member with each rank */
	const char **names;         /* the same for names */
	size_t fetched;             /* layers, since the last lab_offer */
	struct note notes[LAB_NOTES_MAX];
	size_t note_count;
};

struct lab {
	size_t count, layer_count;
	size_t shards;              /* of a mesh: members of a replica, whose ranks follow each other; 1: no mesh */
	struct lab_member *members; /* [count] */
	uint64_t now_us;
	size_t fanout;              /* of the views to come; 0: flat rings */
	/* If set: called for each message before it is queued; false drops it. */
	bool (*filter)(void *arg, uint32_t from, uint32_t to, const struct message *message);
	void *filter_arg;
};

/* A ring of count members with layers of these sizes, all numbers 0. settings NULL: standard. facts_of NULL: none; else the
 * facts of each member. The caller frees. */
struct lab *lab_new(size_t count, const size_t *sizes, size_t layer_count, const struct ring_settings *settings,
		    const struct fact *const *facts_of, size_t fact_count);
/* A mesh of rows x shards members; each holds its pieces of layers of these sizes. */
struct lab *lab_mesh(size_t rows, size_t shards, const size_t *sizes, size_t layer_count, const struct ring_settings *settings);
void lab_free(struct lab *lab);
/* A member goes on in another view, of the count members whose indices order tells: from the node that it has, or, with before, from a
 * start of its daemon: what it knew (round, layer_rounds, since, is_outdated, settings) is taken from there. */
void lab_enter(struct lab *lab, size_t rank, uint64_t view, const size_t *order, size_t count, const struct node_config *before);
/* All members of a new view that are not dead enter it, and have a second to go on. */
void lab_view(struct lab *lab, uint64_t view, const size_t *order, size_t count);
/* Hash of a layer's anchor and momentum, as lab members tell it. */
uint64_t lab_hash(const struct layer *layer);
/* All daemons have been stopped and start again, between two rounds, on the memory of their layers; is_stale [count]: of
 * struct node_config. */
void lab_restart(struct lab *lab, const bool *is_stale);
/* Gives one member an event (now_us is filled in) and delivers everything until no message is under way. */
void lab_event(struct lab *lab, size_t rank, struct event event);
/* Lets time pass in steps of 10 ms, ticking members at their deadlines. */
void lab_pass(struct lab *lab, uint64_t us);
/* Starts all members and lets them say hello. */
void lab_gather(struct lab *lab);
/* Offers for one member: steps, tokens and loss are made up. */
void lab_offer(struct lab *lab, size_t rank, bool is_final);
/* Notes of a code that a member has made. */
size_t lab_notes(const struct lab *lab, size_t rank, enum note_code code);
/* The last note of a code; NULL if none. */
const struct note *lab_note(const struct lab *lab, size_t rank, enum note_code code);

#endif
