#ifndef EDIT_SIM_CITIZEN_H
#define EDIT_SIM_CITIZEN_H

/* One member of a world: its node and its roads; and a replica: the memory and the worker of all members that share one copy of the
 * model, so that what they hold together is there to be looked at. Without a mesh a replica is one member's. */

#include "core/places.h"
#include "sim/roster.h"
#include "sim/setup.h"

/* What a member that falls leaves behind: nothing; its worker, which goes on; the worker's memory, on which another worker goes on. */
enum remains { REMAINS_NOTHING, REMAINS_WORKER, REMAINS_MEMORY };

struct replica {
	float *numbers;        /* of all layers */
	struct layer *layers;  /* [layer_count] whole */
	uint32_t *committed, *published; /* [layer_count] members that have, of the round under way */
	struct trainee trainee;
	uint64_t work_us;      /* the earliest entry in the heap; UINT64_MAX: none */
	uint32_t paused;       /* members that hold it */

	/* sim/remains.h: words of the worker's memory */
	struct offer offer;    /* the last one */
	uint64_t *told_round;  /* [layer_count] with which each layer was published last */
	enum remains remains;
	bool is_apart;         /* the worker has no daemon: what it hands over is not heard */
	uint64_t void_offers;  /* number of the offer of such a step; 0: none */
	bool is_refusing;      /* gradients of this step, which an earlier daemon had heard of, go back */
	uint64_t meets_us;     /* when it finds the next daemon, once that has started */
};

struct citizen {
	struct node *node;
	void *block;           /* of the node */
	struct layer *layers;  /* [layer_count] its pieces of the replica's */
	struct road roads[ROAD_COUNT];
	struct road *ways;     /* [members] to each other one, where members change; NULL otherwise */
	const struct roster *roster; /* of the view that it is in */
	uint64_t tick_us;      /* the earliest entry in the heap; UINT64_MAX: none */
	uint64_t told_us;      /* when the last of what the worker tells arrives */
	uint64_t deadline_us;
	uint64_t taken_from_left[ROAD_COUNT]; /* by the road that leads there: frames below have arrived once */
	uint64_t incarnation;
	/* of its state file: the round, the view of what is newest, and the worker's offers that came before */
	uint64_t kept_round, kept_since, kept_offers;
	bool is_torn;          /* a layer of it is damaged */
	uint32_t life;         /* how often it has come back */
	bool crashed, finished, stall_noted;
	bool rises;            /* fallen, and about to be in a view again: one after that with this number */
	uint64_t rises_after;
};

/* Makes the memory of a replica. */
void replica_init(struct replica *replica, const struct setup *setup, const struct world_config *config);
/* Gives it a worker; node: any of its members' own. */
void replica_employ(struct replica *replica, const struct setup *setup, const struct world_config *config,
		    const struct node *node, struct dice *dice);
/* Releases it. */
void replica_fini(struct replica *replica);

/* Makes a member of a replica. node: all but layers and settings, which come from the setup; its pointers must outlive the member. */
void citizen_init(struct citizen *member, const struct setup *setup, const struct world_config *config,
		  const struct replica *replica, const struct node_config *node);
/* It goes on in another view. node: as for citizen_init. */
void citizen_enter(struct citizen *member, const struct world_config *config, const struct node_config *node);
/* Draws the roads. */
void citizen_connect(struct citizen *member, const struct setup *setup, const struct world_config *config, struct dice *dice);
/* Releases it. */
void citizen_fini(struct citizen *member);

#endif
