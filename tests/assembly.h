#ifndef EDIT_TESTS_ASSEMBLY_H
#define EDIT_TESTS_ASSEMBLY_H

/* A world of councils in virtual time, from one seed: daemons with disks, a network that loses, repeats and delays, and
 * what a driver does: heartbeats between ring neighbours, JOIN after a start or when dropped. Members are "a", "b", ...;
 * one daemon each.
 *
 * Checked at every action: nothing is said that is not on the disk; one roster per view number; views only grow; nobody
 * asks to be woken without end. */

#include "core/council.h"
#include "sim/dice.h"
#include "sim/heap.h"

enum { ASSEMBLY_MAX = 8, ASSEMBLY_VIEW_MAX = 4096 };

/* A daemon's life, and what outlives it. */
struct delegate {
	bool is_live;
	bool has_begun;           /* view 1 was complete once */
	bool leaves;              /* says JOIN no more */
	uint64_t fingerprint;     /* of what it trains: 1; 0: nothing yet */
	uint32_t life;            /* starts so far */
	struct council council;
	void *block;
	uint64_t tick_us;         /* appointment in the heap */
	uint64_t ticks;           /* deadlines that have passed */
	uint64_t installed;       /* view in force at the driver; 0: none */
	bool is_out;
	uint64_t heard_us[ASSEMBLY_MAX];
	bool is_doubted[ASSEMBLY_MAX];
	bool writes;              /* the disk is at it */
	bool has_file;
	struct vote file, writing;
	uint64_t last_refusal;
};

struct assembly {
	struct delegate delegates[ASSEMBLY_MAX];
	uint32_t count;           /* in view 1 */
	uint32_t fanout;
	struct dice dice;
	struct heap heap;
	uint64_t now_us;
	double loss, repeat;
	uint64_t delay_low_us, delay_high_us, disk_us;
	bool cut[ASSEMBLY_MAX][ASSEMBLY_MAX]; /* from, to */
	bool muted[DECREE_KIND_END];          /* messages of this kind are lost */
	bool is_trusting;         /* no driver raises a doubt */
	bool is_forced;           /* no law about one roster per number any more */
	uint64_t incarnations;
	struct roster decided[ASSEMBLY_VIEW_MAX];
	uint64_t highest;         /* decided */
	uint64_t restarts, sent[DECREE_KIND_END];
	struct council_counts counts; /* of daemons that are no more */
	struct council_actions actions;
	char fault[256];          /* the first law that was broken; empty: none */
};

/* A world of count members, the first of which is the tie-holder, all of view 1; nothing runs yet. The caller closes it. */
struct assembly *assembly_open(uint64_t seed, uint32_t count, uint32_t fanout);
/* Releases everything. */
void assembly_close(struct assembly *assembly);
/* Starts a daemon, with what its disk holds. One that has begun, or is not in view 1, says JOIN; if its disk is lost, the
 * config names the members of today. */
void assembly_start(struct assembly *assembly, uint32_t member);
/* All of view 1, complete. */
void assembly_begin(struct assembly *assembly);
/* View 1 is complete, says its driver. */
void assembly_complete(struct assembly *assembly, uint32_t member);
/* Ends a daemon; what the disk was writing is there or not, by the dice. */
void assembly_crash(struct assembly *assembly, uint32_t member);
/* Its vote file is lost. The daemon is not running. */
void assembly_lose_disk(struct assembly *assembly, uint32_t member);
/* Its worker comes: it trains what `fingerprint` says. */
void assembly_ready(struct assembly *assembly, uint32_t member, uint64_t fingerprint);
/* It has seen that members do not hold the same. */
void assembly_renew(struct assembly *assembly, uint32_t member);
/* It wants to leave. */
void assembly_leave(struct assembly *assembly, uint32_t member);
/* The operator's way out; names as letters, "ab". Returns what council_force does. */
int assembly_force(struct assembly *assembly, uint32_t member, const char *names);
/* Cuts both ways between two members, or mends. */
void assembly_cut(struct assembly *assembly, uint32_t one, uint32_t other, bool is_cut);
/* Lets virtual time pass; stops early at a fault. */
void assembly_run(struct assembly *assembly, uint64_t us);
/* Hands a message to a daemon as if it had come from `from`. */
void assembly_deliver(struct assembly *assembly, uint32_t from, uint32_t to, const struct decree *decree);
/* The view in force at a member, in ring order, the tie-holder as a capital letter: "Abd"; "-": none, or not live. ret has
 * room for ASSEMBLY_MAX + 1 bytes. */
const char *assembly_view(const struct assembly *assembly, uint32_t member, char *ret);
/* Counts of all daemons, also of those that are no more. */
struct council_counts assembly_counts(const struct assembly *assembly);
/* Could those who live decide, if all hear each other: are voters of the highest view a quorum of it? */
bool assembly_can_decide(const struct assembly *assembly);

#endif
