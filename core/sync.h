#ifndef EDIT_CORE_SYNC_H
#define EDIT_CORE_SYNC_H

/* What a member knows of the rounds: layers, tables of records, confirms and open changes, and the frames that fill them.
 * core/round.h moves layers through a round.
 *
 * Tables are kept for two rounds, by parity: a frame can be of the round after the one in progress here, never of the one after
 * that, because its origin needs a frame of ours in between. */

#include "core/layer.h"
#include "core/link.h"
#include "core/penalty.h"
#include "core/proposal.h"
#include "core/ring.h"
#include "core/row.h"

#define NO_BUFFER UINT32_MAX

/* Of a layer that goes back to the worker apart from a commit: its theta becomes the anchor, or is as it was. */
enum layer_return { RETURN_NOT, RETURN_ANCHOR, RETURN_AS_IT_IS };

/* NORM and CLIP wait for the other nodes of the replica. */
enum layer_phase { LAYER_WORKER, LAYER_OFFERED, LAYER_NORM, LAYER_SCALARS, LAYER_MEAN, LAYER_CLIP };

struct sync_layer {
	enum layer_phase phase;
	uint64_t round;               /* completed */
	uint32_t buffer;              /* index, NO_BUFFER if none */
	uint32_t record_count[2];     /* of the round with this parity */
	bool absent;                  /* brings nothing to the round in progress */
	bool early, early_absent;     /* its gradient was handed over, or is absent, while the offer waited */
	bool is_made_up;              /* theta has in it what the round behind the worker's steps brought */
	bool rejected;                /* was left out of the last round that the worker took part in */
	bool hash_due;                /* the driver has not told the hash of the last commit, or of what is held */
	bool is_rolled_back;          /* its last round was */
	enum layer_return returns;
	uint32_t accepted;            /* of the last scalars */
	enum verdict verdict;         /* own, of the round in progress */
	float weight;                 /* own, of the round in progress */
	struct detector detector;     /* as of the last commit */
	struct detector next;         /* as it will be if the round in progress commits */
	uint64_t mark_us;             /* begin of the present phase */
	bool own_shard_done;

	/* core/standing.h, core/heal.h */
	bool is_nothing;              /* anchor and momentum are not known */
	uint64_t since;               /* the view in which the last round was committed */
	uint64_t judged_in;           /* bit of each view in which the own record of the round in progress was filed; any: next holds */
	bool is_fetched;              /* from another member, since the last view that was ready; */
	bool fetch_commits;           /* and that is the round that the own record was filed for; */
	bool is_replaced;             /* or it is another outcome of the round that was held, from which theta did not begin */
	uint64_t target_round, target_hash, target_since; /* what all shall hold */
	uint64_t sent_for[2];         /* ring, across: number of the right neighbour's word that was answered with the layer */
	uint64_t times_us[3];         /* last round: scalars, reduce, gather */
};

/* A work buffer: the own pseudo-gradient, then the mean, of one layer in flight. */
struct sync_buffer {
	struct ring_pass pass;
	struct ring_pass across; /* of rings of rings: the own shard of pass, with the same member of the other groups */
	float *numbers;          /* [largest layer] */
	float *stash;            /* [largest own shard] for across */
	uint32_t layer_index;    /* its layer while busy */
	bool busy;               /* from start to commit */
	uint64_t round;
	uint64_t free_after[2];  /* once committed: link numbers up to which frames may still be sent from it: ring, across */
};

struct sync_confirm {
	uint64_t round, hash;
};

/* A layer on its way from one member to the next. */
struct heal_slot {
	float *numbers[HEAL_PART_COUNT]; /* [largest layer] where it waits until it is whole */
	bool is_coming, is_going;
	uint32_t coming, going;          /* layers */
	size_t received, sent;           /* elements, of the anchor and then the momentum */
};

struct sync_config {
	uint32_t rank, count;
	const struct layer *layers; /* [layer_count] */
	uint32_t layer_count;
	uint64_t view, since, round;
	const uint64_t *layer_rounds, *layer_since; /* [layer_count] or NULL */
	const bool *layer_rolled_back; /* [layer_count] or NULL */
	bool is_outdated;           /* the worker waits for theta */
	bool finished;              /* the run had ended before */
	uint64_t step;              /* of the worker, as struct offer tells it */
	bool is_stale;              /* theta did not begin from this anchor */
	const struct detector *detectors; /* [layer_count] or NULL */
	const struct ring_settings *settings;
	uint32_t column, shards;    /* of the mesh: this node's piece, pieces of a replica */
	uint32_t fanout;            /* members of a group, a divisor of count: count if the ring is flat */
};

struct sync {
	uint32_t rank, count, layer_count, buffer_count;
	const struct layer *layers;
	struct link *link;            /* to the right neighbour: of the ring, or of the group */
	struct link *across;          /* to that across the groups */
	uint32_t fanout, group_count; /* members of a group; groups. A flat ring is one group */
	struct row row;               /* with the other nodes of the replica */
	uint64_t sums, summed;        /* over the replica: asked for; known */
	struct scalar sum;            /* own part of the last one asked for */
	uint64_t sum_us;              /* when */
	struct ring_settings settings, next_settings; /* in force; from the next round on */
	uint64_t setting_round[RING_SETTING_COUNT], next_setting_round[RING_SETTING_COUNT]; /* after which it was changed */
	uint64_t round;               /* completed by all layers */
	uint64_t view, since;         /* number of the member list; of that in which the newest thing held was committed */
	uint64_t ready_in;            /* bit of each view in which it was */
	bool is_ready;                /* all members hold the same: rounds may go on */
	bool offered;                 /* the round in progress has begun here: with the own worker's offer, or late without */
	bool finished, paused;
	uint64_t pause_round, resume_round; /* after which the last pause was agreed; the latest one that was ended */

	/* core/part.h: the round in progress */
	bool late;                    /* goes on without the own worker */
	bool gradients;               /* is of gradients */
	bool aligns;                  /* equal weights, nobody late */
	bool behind;                  /* runs behind the worker's steps: sync.overlap = steps */
	bool resets;                  /* brings nothing: the worker gets the anchor */
	uint32_t return_count;        /* layers that go back apart from a commit */
	uint32_t next_return;         /* behind: first layer that the worker has not back */
	/* what the next one will be, for the worker's schedule */
	bool next_gradients, next_aligns;
	/* what theta is */
	uint64_t stale;               /* rounds in a row without the worker; above 0: theta began from layer.base */
	bool corrects;                /* the last offer's result is to be added to theta: layer.snapshot */
	bool lost;                    /* theta began from an anchor that is not known any more */
	bool waiting;                 /* an offer for the round after the one in progress */
	struct offer waiting_offer;
	uint64_t waiting_us;
	uint32_t waiting_wanted;
	uint64_t step;                /* of the worker, as its last offer told it */
	uint64_t part_us;             /* begin of the worker's interval: end of the last round it took part in, or offer for it */
	uint64_t grace_us;            /* after the begin of an interval a member is late; UINT64_MAX: never */
	uint64_t *interval_us;        /* [count] last one known of each member; 0: none */

	bool has_agreed;              /* on the round after the one in progress: next_..., finishing, changes taken */
	bool owes_schedule;           /* the offer came after that: the worker does not know when to offer next */
	uint64_t taken_round, taken;  /* digest of the changes taken after that round */
	uint64_t checkpoint_round;    /* after which the last checkpoint was agreed */
	bool realigns;                /* the own theta is not that of the others where it should be: the next record says so */
	bool refuses;                 /* the gradients of the worker's present step */
	bool amid_gradients;          /* the others had begun it with gradients when this one came */
	bool joins;                   /* has come without a theta: brings nothing to the round in progress */
	bool must_tell;               /* the worker, what comes next */
	bool finishing; /* agreed for the end of the round in progress */
	uint32_t next_start, first_open; /* positions: first layer not started; first not committed */
	uint32_t wanted;              /* layers below were asked for by the worker */
	struct offer offer;
	uint64_t offer_us, done_us;   /* of the last offer; of the last round's end */
	uint64_t due_us;              /* with rounds by time: when the worker shall offer; UINT64_MAX: told, or not known yet */
	uint64_t sync_us, begin_bytes, round_bytes;
	uint64_t progress_us;         /* something moved */
	uint64_t first_us[2];         /* first record of the first layer, by parity */
	uint64_t *arrival_us;         /* [2][count] of each member's first record */
	uint64_t *lateness_us;        /* [count] last round */
	double *lateness_mean_us;     /* [count] */
	struct sync_layer *state;     /* [layer_count] */
	struct record *records;       /* [2][layer_count][count] */
	double *weights;              /* [2][layer_count][count] */
	struct sync_confirm *confirms;/* [2][layer_count][count] */
	struct sync_buffer *buffers;  /* [buffer_count] */
	double *norms, *steps;        /* [count] scratch */
	enum verdict *verdicts;       /* [count] scratch */
	struct proposals proposals;
	/* core/standing.h: what members have said at the begin of the view */
	bool stands;                  /* they say it, before rounds go on */
	uint32_t leader;              /* whom the plan follows */
	bool is_planned, is_missing;  /* all have; and nobody has what is needed */
	bool has_adopted;             /* holds what all shall hold, and has taken over what holds for all */
	bool is_new, is_outdated;     /* see struct standing */
	uint32_t standing_count, next_ask; /* own layers asked for so far */
	size_t holding_count, unequal_count; /* of members and layers: words; that are not what all shall hold */
	struct standing *standings;   /* [count] */
	struct holding *holdings;     /* [layer_count][count] */
	struct heal_slot slots[2];    /* ring, across */
	uint64_t stand_us;            /* when the ring was complete */
	uint32_t *heard;              /* [members of the mesh] counter of the last change heard of from each */
};

/* Bytes of the block for sync_init, a multiple of 64. */
size_t sync_size(const struct sync_config *config);
/* Lays everything into block (64-byte aligned). The links are the member's own: in its group, across the groups, inside its replica;
 * outlive sync. */
void sync_init(struct sync *sync, void *block, const struct sync_config *config, struct link *link, struct link *across,
	       struct link *row_link);
/* Small frames that a correct ring, and a correct row, can owe to the right neighbour at once. */
size_t sync_frames_max(uint32_t layer_count, uint32_t member_count, uint32_t shards);
size_t sync_row_frames_max(uint32_t layer_count, uint32_t member_count, uint32_t shards);

/* Frames from the left neighbour. EDIT_ERROR_MALFORMED, and nothing changed, if it cannot be in this place. */
int sync_record(struct sync *sync, const struct record *record, uint64_t now_us);
int sync_confirm(struct sync *sync, const struct confirm *confirm, struct actions *actions);
int sync_scalar(struct sync *sync, const struct scalar *scalar, uint64_t now_us);
/* is_home: along the ring by which an own change is known to have been everywhere. */
int sync_change(struct sync *sync, const struct change *change, bool is_home, struct actions *actions);
/* The own part of the next sum over the replica. */
void sync_sum(struct sync *sync, double value, bool wants_offer, uint64_t now_us);
/* Once all rings are complete: tells the others the own part, and the driver the sum when it is known. */
void sync_advance_sum(struct sync *sync, uint64_t now_us, struct actions *actions);
/* Hash of a layer just committed. */
void sync_hashed(struct sync *sync, uint32_t layer_index, uint64_t hash, struct actions *actions);
/* Proposes a change (id is set). Errors: RANGE, INVALID (kind), BUSY, REFUSED (the round has passed; nothing to
 * resume; paused already). */
int sync_propose(struct sync *sync, struct change *change, struct actions *actions);
/* Files a record, own or received, and sends it on unless it has been everywhere. */
void sync_file_record(struct sync *sync, const struct record *record, uint64_t now_us);
/* Makes the message of a frame: contents from the tables. */
void sync_message(const struct sync *sync, const struct frame *frame, bool is_across, struct message *ret_message);

/* Sends a frame of a member's on along all rings of the member, unless it has been everywhere. */
void sync_push(struct sync *sync, const struct frame *frame);

/* Tables. */
struct holding *sync_holding_at(const struct sync *sync, uint32_t layer_index, uint32_t rank);
struct record *sync_record_at(const struct sync *sync, uint64_t round, uint32_t layer_index, uint32_t rank);
double *sync_weight_at(const struct sync *sync, uint64_t round, uint32_t layer_index, uint32_t rank);
struct sync_confirm *sync_confirm_at(const struct sync *sync, uint64_t round, uint32_t layer_index, uint32_t rank);
/* Bit of a view in a word that tells some of them apart: the last 64. */
static inline uint64_t sync_view_bit(uint64_t view) { return UINT64_C(1) << view % 64; }
/* Layer that is begun as the position-th of the round in progress: backwards with gradients. */
static inline uint32_t sync_layer_at(const struct sync *sync, uint32_t position)
{
	return sync->gradients ? sync->layer_count - 1 - position : position;
}
/* First element of the own shard of a layer, which goes across the groups. */
static inline size_t sync_shard_begin(const struct sync *sync, uint32_t layer_index)
{
	return ring_shard_begin(sync->layers[layer_index].size, sync->fanout, sync->rank % sync->fanout);
}
/* Rank in the mesh of a member of the ring, and members of the mesh. */
static inline uint32_t sync_peer(const struct sync *sync, uint32_t rank) { return rank * sync->row.count + sync->row.rank; }
static inline uint32_t sync_peer_count(const struct sync *sync) { return sync->count * sync->row.count; }
/* Whom the round in progress waits for: a rank in the mesh (own: the own worker), the number of members: nobody in particular. */
uint32_t sync_waits_for(const struct sync *sync);

#endif
