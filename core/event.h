#ifndef EDIT_CORE_EVENT_H
#define EDIT_CORE_EVENT_H

/* What goes into node_step and what comes out: messages, events, actions, notes. Plain data; nothing here acts.
 *
 * An event carries its time; an action is a request to the driver (daemon/driver.c or sim/), which has no say in the
 * protocol. Pointers in a message are borrowed: in an event they are valid during node_step only; in an action a chunk's
 * payload stays in place and unchanged until the right neighbour has acknowledged it, so it can be sent without a copy. */

#include "core/option.h"

enum {
	PROTOCOL_VERSION = 1,
	VIEW_FIRST = 1,        /* number of the first view: the list of the config */
	FACT_COUNT_MAX = 8192, /* facts of one hello */
	FACT_TEXT_MAX = 255,   /* bytes of a fact's key or value, without the final 0 */
	SUSPECT_COUNT_MAX = 8, /* members that one heartbeat can name as down */
	ACTION_COUNT_MAX = 1024
};

/* ---- Verdicts (also travel in records) ---- */

#define VERDICTS(X)                                                                                                    \
	X(VERDICT_ABSENT, "absent")                                                                                        \
	X(VERDICT_ACCEPTED, "accepted")                                                                                    \
	X(VERDICT_OUTLIER, "outlier")                                                                                      \
	X(VERDICT_NONFINITE, "nonfinite")                                                                                  \
	X(VERDICT_LATE, "late")

enum verdict {
#define X(id, text) id,
	VERDICTS(X)
#undef X
	VERDICT_COUNT
};

/* ---- Messages between neighbours ----
 *
 * `origin` and `shard` are ranks in the ring of the frame's stream. */

enum message_kind {
	MESSAGE_HELLO = 1, /* who I am, and the facts that all members must share */
	MESSAGE_REFUSE,    /* your hello is not accepted: why */
	MESSAGE_HEARTBEAT, /* to both neighbours, also the acknowledgement of the ring stream */
	MESSAGE_ROLL,      /* ring stream: this member has both its neighbours */
	MESSAGE_RECORD,    /* ring stream: one member's scalars of one layer in one round */
	MESSAGE_CHUNK,     /* ring stream: part of a shard, partial sum or mean */
	MESSAGE_CONFIRM,   /* ring stream: one member has committed a layer; hash of the result */
	MESSAGE_CHANGE,    /* ring stream: a proposed change of settings, pause, checkpoint; or resume */
	MESSAGE_STANDING,  /* ring stream: how far one member has come, at the begin of a view */
	MESSAGE_HOLDING,   /* ring stream: what one member holds of a layer, then and when it has fetched it */
	MESSAGE_SCALAR,    /* stream inside a replica: what one of its nodes knows of its pieces */
	MESSAGE_DECREE,    /* of a council, to any member and to who wants to be one; never for a node */
	MESSAGE_KIND_END
};

/* Something that must be equal on all members, as text: "hidden_size" = "128", "layer 3" = "blocks.2 147712". */
struct fact {
	const char *key;
	const char *value;
};

struct hello {
	const char *name; /* the sender's own name, [a-z0-9-]{1,63} */
	const struct fact *facts;
	size_t fact_count;
};

enum refusal {
	REFUSAL_DUPLICATE = 1, /* a live daemon has this name already */
	REFUSAL_FACT,          /* a fact differs; text tells the first */
	REFUSAL_VERSION,       /* protocol version differs */
	REFUSAL_RESTARTED,     /* the ring has begun rounds with another incarnation of this member */
	REFUSAL_STRANGER,      /* the name is not that of a neighbour */
	REFUSAL_KEY,           /* the connection's key is not that of the member with this name */
	REFUSAL_END
};

struct refuse {
	enum refusal reason;
	uint32_t fact_index; /* REFUSAL_FACT: index into the refused hello's facts (fact_count of it: one is missing) */
};

struct heartbeat {
	uint64_t round;            /* rounds completed by the sender */
	uint64_t received;         /* ring stream frames taken in order from the receiver of this heartbeat (if it is left) */
	bool resend;               /* a gap was seen: send again from `received` */
	bool waiting_for_worker;   /* the sender's worker has not offered the round in progress */
	uint64_t collectives;      /* inside a replica: begun by the sender since it started */
	uint32_t suspect_count;
	uint32_t suspects[SUSPECT_COUNT_MAX]; /* ranks known to be down, on the sender's other side */
};

/* One member's scalars of one layer in one round. Sent once by its member and relayed, never recomputed. */
struct record {
	uint64_t round;        /* the round in progress: completed rounds + 1 */
	uint32_t layer_index;
	uint32_t origin;       /* rank */
	enum verdict verdict;  /* by the origin's own detector */
	double norm;           /* ||anchor - theta||_2; NaN or infinity if nonfinite */
	double z;              /* 0 while the detector warms up */
	double mean, sd;       /* of the origin's detector before this norm */
	uint64_t step;         /* of the worker at its last boundary, as its offer told it */
	uint64_t steps;        /* local steps since the last round */
	uint64_t tokens;       /* tokens trained on since the last round */
	double loss;           /* mean loss of those steps, nats per token; NaN if unknown */
	uint64_t interval_us;  /* from the last publish of all layers to the offer */
	uint64_t exposed_us;   /* time that the worker waited for layers of the previous round */
	uint64_t change;       /* layer 0: digest of the changes that may be taken after this round (0: none) */
	bool final;            /* the worker has done its last step */
	bool realign;          /* its theta is not that of the others where it should be: see struct offer */
};

enum chunk_phase {
	PHASE_REDUCE = 1, /* payload: sum of weighted pseudo-gradients so far */
	PHASE_GATHER,     /* payload: the finished mean */
	PHASE_HEAL,       /* payload: of what the receiver lacks: shard HEAL_ANCHOR or HEAL_MOMENTUM, offset from its begin */
	PHASE_END
};

/* What a chunk of PHASE_HEAL is of, in the place of a shard. */
enum { HEAL_ANCHOR, HEAL_MOMENTUM, HEAL_PART_COUNT };

struct chunk {
	uint64_t round;
	uint32_t layer_index;
	enum chunk_phase phase;
	uint32_t shard;       /* rank of the owner, who finishes the sum */
	uint64_t offset;      /* first element, from the begin of the layer */
	uint64_t count;       /* elements; payload is 4 x count bytes, little-endian float32 */
	double square_norm;   /* PHASE_GATHER, last chunk of its shard: sum of squares of the shard; 0 otherwise */
};

struct confirm {
	uint64_t round;
	uint32_t layer_index;
	uint32_t origin;
	uint64_t hash; /* of anchor and momentum, made by the driver */
};

/* How far a member has come, when a view begins: what all take over from whoever has come furthest. */
struct standing {
	uint32_t origin;
	uint64_t since;        /* the view in which the newest thing that it holds was committed; 0: none yet */
	uint64_t ready_in;     /* bit of each of the last 64 views that it was ready in: number % 64 */
	uint64_t round;        /* rounds completed */
	struct ring_settings settings, next_settings; /* in force for the round in progress; for the one after that, if has_agreed */
	uint64_t setting_round[RING_SETTING_COUNT], next_setting_round[RING_SETTING_COUNT]; /* after which each was changed; 0: never */
	uint64_t pause_round, resume_round, checkpoint_round;
	uint64_t taken_round, taken; /* last round whose changes it has taken, and their digest (0: none) */
	bool is_new;           /* has started since its last view */
	bool is_outdated;      /* its worker's theta began from something else: see struct node_config */
	bool has_offered;      /* has begun the round in progress, */
	bool is_final;         /* with the last parameters of its worker; */
	bool gradients;        /* which is of gradients; */
	bool aligns;           /* which aligns; */
	bool has_agreed;       /* whose first layer's records it has, so that it knows of the next round: */
	bool next_gradients, next_aligns;
	bool finishing, finished;
};

/* What a member holds of a layer. */
struct holding {
	uint32_t origin;
	uint32_t layer_index;
	uint64_t number;       /* of the member's words on this layer, from 1 */
	uint64_t since;        /* the view in which that round was committed; 0: before the first */
	uint64_t round;
	uint64_t hash;         /* of anchor and momentum */
	bool is_nothing;       /* it has none, or a damaged one: since, round and hash are 0 */
	bool is_rolled_back;   /* the layer's round was */
};

/* Questions that the nodes of one replica answer each other. */
enum scalar_kind {
	SCALAR_ROUND, /* number: a round; layer_index 0: whether the worker has offered, and what */
	SCALAR_NORM,  /* number: a round: value: sum of squares of what the node brings for its piece of the layer */
	SCALAR_MEAN,  /* number: a round: value: sum of squares of the mean of its piece */
	SCALAR_STEP,  /* number: of the sum: value, and in `final` whether the worker is to offer; layer_index 0 */
	SCALAR_KIND_COUNT
};

struct scalar {
	enum scalar_kind kind;
	uint32_t layer_index;
	uint32_t origin;   /* column */
	uint64_t number;
	double value;
	uint64_t word;     /* NORM of layer 0: digest of the changes that may be taken after this round */
	enum verdict verdict; /* NORM: what is certain without a detector; ROUND: ACCEPTED or LATE */
	bool final, realign;  /* ROUND: of the offer; STEP: see there */
};

enum change_kind {
	CHANGE_SET = 1, /* setting := value from the round after the agreed one */
	CHANGE_PAUSE,   /* workers stop at the begin of the interval after the agreed round */
	CHANGE_CHECKPOINT,
	CHANGE_RESUME,  /* taken up as soon as it is heard of: no round can be under way */
	CHANGE_KIND_END
};

struct change {
	uint64_t id;     /* origin rank + 1 in the upper 32 bits, a counter below: never 0; taken in this order */
	enum change_kind kind;
	uint32_t setting; /* CHANGE_SET: enum ring_setting */
	double value;
	uint64_t at_round; /* 0: as soon as all hold it; otherwise take it up after exactly this round, or drop it. RESUME: the
			    * round after which the pause was agreed */
};

struct decree; /* core/decree.h */

struct message {
	enum message_kind kind;
	uint32_t from;        /* rank in the mesh of the sender (the neighbour, not the origin) */
	uint64_t incarnation; /* of the sender: random id of this start of the daemon */
	uint64_t receiver;    /* incarnation of the receiver whose hello the sender has accepted; 0: none */
	uint64_t view;        /* of the sender; frames of another than the receiver's are dropped */
	uint64_t sequence;    /* ring stream: number of the frame on this link, from 0 */
	union {
		struct hello hello;
		struct refuse refuse;
		struct heartbeat heartbeat;
		struct record record;
		struct chunk chunk;
		struct confirm confirm;
		struct change change;
		struct scalar scalar;
		uint32_t roll_origin;
		const struct standing *standing; /* borrowed, as facts are */
		struct holding holding;
		const struct decree *decree; /* borrowed likewise; from, receiver, view and sequence are 0, incarnation is
					      * that of who sends it, which may pass on what another one says */
	};
	const void *payload; /* MESSAGE_CHUNK: any alignment; NULL otherwise */
	size_t payload_bytes;
};

/* ---- Events ---- */

enum event_kind {
	EVENT_TICK = 1, /* start, or the deadline that node_step asked for has passed */
	EVENT_MESSAGE,
	EVENT_OFFER,    /* the worker hands over all layers at a step boundary; or begins to hand over gradients */
	EVENT_GRADIENT, /* the worker hands over a layer's gradient; last layer first */
	EVENT_WANT,     /* the worker waits for a layer that is not published yet (told once per layer and round) */
	EVENT_HASHED,   /* answer to ACTION_COMMITTED, _HASH and _HEALED */
	EVENT_CHANGE,   /* a command on this node proposes a change (id is made by the node) */
	EVENT_COLLECT,  /* of a mesh: the worker asks for the next collective of its replica */
	EVENT_SUM,      /* of a mesh: its part of the next sum over the replica */
	EVENT_KIND_END
};

struct offer {
	uint64_t step;        /* of the worker at this boundary, since the run began here, and what the run is ahead of it (ACTION_STEP) */
	uint64_t steps;       /* since the last offer */
	uint64_t tokens;      /* since the last offer */
	double loss;          /* mean over those steps */
	uint64_t exposed_us;  /* that the worker waited in acquire since the last offer */
	bool final;           /* no step will follow; gradients: the step in progress is the last, its parameters are offered next */
	bool gradients;       /* of the step in progress, layer by layer with EVENT_GRADIENT; theta stays with the worker */
	bool realign;         /* gradients: a worker died in the middle of a step, theta may differ from that of the others */
};

enum collective_kind { COLLECTIVE_GATHER = 1, COLLECTIVE_REDUCE };

/* All nodes of a replica call the same in the same order. */
struct collective_call {
	enum collective_kind kind;
	uint32_t layer_index;
	float *numbers; /* [size] GATHER: theta of the whole layer at the end. REDUCE: this node's gradient of the whole layer; at the
			 * end the own piece holds the mean, the rest is anything */
	size_t size;    /* elements of the whole layer */
};

struct event {
	enum event_kind kind;
	uint64_t now_us; /* monotonic; only differences matter; never goes back */
	union {
		const struct message *message;
		struct offer offer;
		uint32_t wanted; /* layer index */
		struct {
			uint32_t layer_index;
			bool absent; /* no gradient: the worker died before it had one */
		} gradient;
		struct {
			uint32_t layer_index;
			uint64_t hash;
		} hashed;
		struct change change;
		struct collective_call collective;
		struct {
			double value;
			bool wants_offer; /* this node's worker is to offer at the end of the step */
		} sum;
	};
};

/* ---- Actions ---- */

/* Steps of an ACTION_SCHEDULE that never pass. */
#define SCHEDULE_LATER UINT64_MAX

enum action_kind {
	ACTION_SEND = 1,   /* message to member `to`; may be lost, the core sends again. MESSAGE_REFUSE goes back to where the
			    * message of this event came from, which may be another process than the member */
	ACTION_COMMITTED,  /* a layer has completed round `round`: answer with EVENT_HASHED, the hash of anchor and momentum */
	ACTION_HASH,       /* answer with EVENT_HASHED, the hash of the layer's anchor and momentum as they are */
	ACTION_HEALED,     /* a layer is now that of round `round`, fetched from another member: answer as to ACTION_COMMITTED */
	ACTION_PUBLISH,    /* the worker may have the layer back: theta, or with gradients their mean */
	ACTION_SCHEDULE,   /* the worker shall offer again `number` steps after the last offer (SCHEDULE_LATER: not before it is
			    * told another number; 0: the run ends, stop it); `gradients`: from its next step on it hands over
			    * the gradients of every step, besides */
	ACTION_STEP,       /* whatever depends on how far the run has come, the worker shall do from now on as if it had done `number` steps:
			    * members that average gradients step alike only at one learning rate */
	ACTION_PAUSE,      /* the worker shall not begin another step */
	ACTION_RESUME,
	ACTION_CHECKPOINT, /* write a checkpoint of round `round`, just completed: in the list of the step in which it was, behind the
			    * ACTION_PUBLISH that ends it for the worker */
	ACTION_COLLECTED,  /* collective `number` (counted from 1 since the start) is done, the worker may have its numbers */
	ACTION_SUMMED,     /* sum `number` is known: value, and whether any node's worker is to offer */
	ACTION_NOTE        /* something worth telling a person */
};

/* code, level (journal priority), text; {peer} {layer} {round} {a} {b} {x} are filled in by daemon/ and sim/ */
#define NOTES(X)                                                                                                       \
	X(NOTE_PEER_HEARD, 6, "peer {peer}: hello accepted")                                                               \
	X(NOTE_PEER_REFUSED, 3, "peer {peer}: hello refused ({refusal})")                                                  \
	X(NOTE_REFUSED_BY, 3, "refused by peer {peer} ({refusal})")                                                        \
	X(NOTE_RING_COMPLETE, 5, "ring: all {a} members have said hello, view {b} begins")                                 \
	X(NOTE_PEER_DOWN, 4, "peer {peer}: down, not heard for {a} ms")                                                   \
	X(NOTE_PEER_UP, 5, "peer {peer}: heard again after {a} ms")                                                        \
	X(NOTE_PEER_RESTARTED, 3, "peer {peer}: restarted in mid-run, without what it had")                               \
	X(NOTE_ROUND_DONE, 6, "round {round}: done in {a} us, {b} bytes sent")                                             \
	X(NOTE_VERDICT, 4, "round {round}, layer {layer}: peer {peer} left out ({verdict}, norm={x}, z={y})")              \
	X(NOTE_ROLLED_BACK, 4, "round {round}, layer {layer}: rolled back ({a} accepted)")                                 \
	X(NOTE_HASH_DIFFERS, 3, "round {round}, layer {layer}: peer {peer} has hash {a}, here {b}")                        \
	X(NOTE_CHANGE_HELD, 6, "change {a}: held by all members")                                                          \
	X(NOTE_CHANGE_TAKEN, 5, "change {a}: in force after round {round}")                                                \
	X(NOTE_CHANGE_DROPPED, 4, "change {a}: dropped, not held by all before round {round}")                             \
	X(NOTE_CHANGE_HERE, 6, "change {a}: proposed here")                                                               \
	X(NOTE_CHANGE_REFUSED, 4, "change refused ({error})")                                                              \
	X(NOTE_STALLED, 4, "round {round}: stalled for {a} ms, waiting for peer {peer}")                                   \
	X(NOTE_VIEW_READY, 5, "view {a}: all members hold the same after {b} ms, {round} rounds are complete")                \
	X(NOTE_LAYER_FETCHED, 6, "layer {layer}: fetched, as of round {round}")                                              \
	X(NOTE_FETCHED_WRONG, 3, "layer {layer}: fetched with hash {a} instead of {b}; is fetched again")                    \
	X(NOTE_LAYER_MISSING, 2, "layer {layer}: no member of the view holds it as of round {round}; waits for one that does") \
	X(NOTE_FINISHED, 5, "run finished after round {round}")

enum note_code {
#define X(code, level, text) code,
	NOTES(X)
#undef X
	NOTE_COUNT
};

struct note {
	enum note_code code;
	uint32_t peer;        /* rank in the mesh */
	uint32_t layer_index;
	uint64_t round;
	uint64_t a, b;
	double x, y;
	int detail;           /* enum verdict, enum refusal or error code, by the note's kind */
};

struct action {
	enum action_kind kind;
	uint32_t to;          /* ACTION_SEND: rank in the mesh */
	uint32_t layer_index; /* ACTION_COMMITTED, _HASH, _HEALED, _PUBLISH */
	enum verdict verdict; /* ACTION_PUBLISH: this member's own verdict on the layer; with gradients that on the mean */
	uint64_t round;       /* ACTION_COMMITTED, _HEALED, _PUBLISH, _CHECKPOINT */
	bool gradients;       /* ACTION_SCHEDULE */
	uint64_t number;      /* ACTION_SCHEDULE, _STEP: steps; ACTION_COLLECTED, ACTION_SUMMED */
	double value;         /* ACTION_SUMMED */
	bool wants_offer;     /* the same */
	union {
		struct message message;
		struct note note;
	};
};

/* The caller's; node_step fills it anew. When it returns, the driver carries out list[0..count) in order and calls again
 * with EVENT_TICK at deadline_us (UINT64_MAX: no need) if nothing happened before. */
struct actions {
	size_t count;
	uint64_t deadline_us;
	struct action list[ACTION_COUNT_MAX];
};

/* Appends an action of a kind, all else zero, and returns it for filling in. */
static inline struct action *actions_add(struct actions *actions, enum action_kind kind)
{
	CHECK(actions->count < ACTION_COUNT_MAX);
	struct action *action = &actions->list[actions->count++];
	*action = (struct action){.kind = kind};
	return action;
}

/* Appends a note. Notes are for people: when the list is nearly full they give way to what the protocol needs. */
static inline void actions_note(struct actions *actions, struct note note)
{
	if (actions->count < ACTION_COUNT_MAX / 4 * 3)
		actions_add(actions, ACTION_NOTE)->note = note;
}

/* The driver shall come back at at_us, if it has not been asked to come earlier. */
static inline void actions_wake(struct actions *actions, uint64_t at_us)
{
	actions->deadline_us = u64_min(actions->deadline_us, at_us);
}

#endif
