#ifndef EDIT_SIM_WORLD_H
#define EDIT_SIM_WORLD_H

/* A ring, or a mesh, of many members in one process, one thread and virtual time, everything drawn from one seed: the second driver of
 * node_step. Every event's outcome is checked (sim/ledger.h, sim/ballot.h); a world ends well when all members have finished
 * their rounds, or, if one has crashed, when the others have finished or stand still and say why. */

#include "sim/trace.h"

/* id, bit, name: what may go wrong, as in --faults */
#define FAULTS(X)                                                                                                      \
	X(FAULT_LOSS, 0, "loss")           /* messages vanish */                                                       \
	X(FAULT_REORDER, 1, "reorder")     /* messages overtake each other */                                          \
	X(FAULT_DUPLICATE, 2, "duplicate") /* messages arrive twice */                                                 \
	X(FAULT_SLOW, 3, "slow")           /* some workers are up to 20 times slower */                                \
	X(FAULT_POISON, 4, "poison")       /* some pseudo-gradients are 50 times too long */                           \
	X(FAULT_NAN, 5, "nan")             /* some thetas hold NaN or infinity */                                      \
	X(FAULT_CRASH, 6, "crash")         /* one member stops for good */                                             \
	X(FAULT_CHANGE, 7, "change")       /* settings, pauses and checkpoints are proposed */                         \
	X(FAULT_JITTER, 8, "jitter")       /* latency varies */                                                        \
	X(FAULT_CUT, 9, "cut")             /* roads swallow everything for a while, also in one direction */           \
	X(FAULT_RESTART, 10, "restart")    /* one member stops and comes back with nothing, unless it crashes */           \
	X(FAULT_DEATH, 11, "death")        /* some workers die among their gradients, others go on from there */       \
	X(FAULT_VIEWS, 12, "views")        /* members fall, come back, join and leave, and the others go on in new views */

enum fault {
#define X(id, bit, name) id = 1 << bit,
	FAULTS(X)
#undef X
#define X(id, bit, name) | id
	FAULT_ALL = 0 FAULTS(X),
#undef X
	/* drawn together; the others each by dice of its own */
	FAULT_DRAWN = (FAULT_DEATH << 1) - 1
};

/* id, text, least number in 1,000 drawn worlds: a third of what is usual */
#define COVERAGE(X)                                                                                                    \
	X(COVER_MESSAGES, "messages", 2000000)                                                                         \
	X(COVER_LOST, "lost", 30000)                                                                                   \
	X(COVER_REPEATED, "repeated", 100000)                                                                          \
	X(COVER_OVERTAKING, "overtaking", 150000)                                                                      \
	X(COVER_SENT_AGAIN, "sent again", 300000)                                                                      \
	X(COVER_COMMITS, "commits", 50000)                                                                             \
	X(COVER_OUTLIERS, "outliers", 220)                                                                             \
	X(COVER_NONFINITES, "nonfinite", 3000)                                                                         \
	X(COVER_ROLLBACKS, "rollbacks", 90)                                                                            \
	X(COVER_CRASHES, "crashes", 40)                                                                                \
	X(COVER_RESTARTS, "restarts", 9)                                                                              \
	X(COVER_CUTS, "cuts", 300)                                                                                     \
	X(COVER_STALLS, "stalls", 30)                                                                                  \
	X(COVER_TAKEN, "changes taken", 200)                                                                           \
	X(COVER_DROPPED, "dropped", 2)                                                                                 \
	X(COVER_REFUSED, "refused", 400)                                                                               \
	X(COVER_PAUSES, "pauses", 250)                                                                                 \
	X(COVER_CHECKPOINTS, "checkpoints", 250)                                                                       \
	X(COVER_ALONE, "rings of one", 30)                                                                             \
	X(COVER_MESHES, "meshes", 60)                                                                                 \
	X(COVER_GROUPS, "rings of rings", 20)                                                                         \
	X(COVER_EMPTY, "empty layers", 100)                                                                            \
	X(COVER_LATES, "late", 400)                                                                                     \
	X(COVER_ABSENTS, "absent", 700)                                                                                 \
	X(COVER_GRADIENTS, "gradients", 1300)                                                                            \
	X(COVER_ALIGNED, "aligned", 250)                                                                                \
	X(COVER_DEATHS, "worker deaths", 120)                                                                           \
	X(COVER_VIEWS, "views entered", 2800)                                                                              \
	X(COVER_FALLS, "falls", 290)                                                                                      \
	X(COVER_INTACT, "back intact", 90)                                                                               \
	X(COVER_TORN, "back torn", 60)                                                                                   \
	X(COVER_JOINS, "joins", 140)                                                                                      \
	X(COVER_LEAVES, "leaves", 30)                                                                                    \
	X(COVER_HEALS, "layers healed", 600)                                                                              \
	X(COVER_REDONE, "layers redone", 2)                                                                             \
	X(COVER_SURVIVORS, "workers live on", 80)                                                                     \
	X(COVER_MEMORIES, "memory lives on", 28)                                                                      \
	X(COVER_OFFERED_AGAIN, "offered again", 31)                                                                   \
	X(COVER_COUNTED_AGAIN, "counted again", 18)                                                                   \
	X(COVER_VOID_OFFERS, "offers void", 12)                                                                       \
	X(COVER_REFUSED_STEPS, "steps refused", 11)                                                                   \
	X(COVER_CUT_SCALARS, "cut in scalars", 350)                                                                       \
	X(COVER_CUT_REDUCE, "cut in reduce", 110)                                                                         \
	X(COVER_CUT_GATHER, "cut in gather", 150)                                                                         \
	X(COVER_CUT_STANDING, "cut in standing", 1400)                                                                     \
	X(COVER_CUT_HEAL, "cut in heal", 240)

enum coverage {
#define X(id, text, minimum) id,
	COVERAGE(X)
#undef X
	COVERAGE_COUNT
};

struct world_config {
	uint64_t seed;
	uint32_t peers;     /* of a ring, so many replicas there are: 1 .. MEMBER_COUNT_MAX */
	uint32_t shards;    /* members of a replica; peers x shards <= MEMBER_COUNT_MAX */
	uint32_t fanout;    /* members of a group of the ring, a divisor of peers; peers: the ring is flat */
	size_t layer_count; /* 1 .. LAYER_COUNT_MAX */
	uint64_t rounds;    /* 1 .. */
	unsigned faults;    /* enum fault, or-ed */
};

enum { WORLD_REASON_BYTES = 320, VIEW_PEERS_MAX = 16 /* of a ring whose members change */ };

struct world_result {
	bool ok;
	char reason[WORLD_REASON_BYTES]; /* if not */
	uint64_t events, time_us, hash;
	uint64_t coverage[COVERAGE_COUNT];
};

/* Fills in what is 0 (faults: UINT_MAX) by the seed: mostly small rings. */
void world_config_draw(struct world_config *config);
/* Runs a world to its end. trace: written all along, printed by nobody. */
void world_run(const struct world_config *config, struct trace *trace, struct world_result *ret_result);

#endif
