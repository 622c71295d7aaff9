/* Hello, heartbeats and rolls in one ring. Knows nothing of rounds. */

#include "core/circle.h"
#include "core/ring.h"

#define HELLO_PER_HEARTBEAT 4 /* hellos are said so many times as often */

/* ---- Memory ---- */

size_t circle_size(const struct circle_config *config)
{
	return block_part(view_size(config->count)) + block_part(link_size(config->frames_max));
}

void circle_init(struct circle *circle, void *block, const struct circle_config *config)
{
	CHECK(config->rank < config->count);
	*circle = (struct circle){.first = config->first, .stride = config->stride, .incarnation = config->incarnation, .view_number = config->view_number,
				  .heartbeat_us = config->heartbeat_us, .frames_owed = config->frames_owed};
	view_init(&circle->view, block, config->rank, config->count, config->names, config->name_stride, config->facts, config->fact_count,
		  config->silence_us);
	link_init(&circle->link, (char *)block + block_part(view_size(config->count)), config->frames_max, config->retry_us);
}

void circle_begin(struct circle *circle, uint64_t now_us)
{
	circle->heartbeat_at_us = circle->hello_at_us = now_us;
}

uint32_t circle_global(const struct circle *circle, uint32_t rank)
{
	return circle->first + rank * circle->stride;
}

uint32_t circle_local(const struct circle *circle, uint32_t global)
{
	uint32_t count = circle->view.count;
	if (global < circle->first || (global - circle->first) % circle->stride != 0)
		return count;
	return (uint32_t)size_min(count, (global - circle->first) / circle->stride);
}

/* ---- Sending ---- */

void circle_send(struct circle *circle, uint32_t to, const struct message *message, struct actions *actions)
{
	const struct neighbour *neighbour = view_neighbour(&circle->view, to);
	struct action *action = actions_add(actions, ACTION_SEND);
	action->to = circle_global(circle, to);
	action->message = *message;
	action->message.from = circle_global(circle, circle->view.rank);
	action->message.incarnation = circle->incarnation;
	action->message.receiver = neighbour != NULL ? neighbour->incarnation : 0;
	action->message.view = circle->view_number;
}

static void send_hello(struct circle *circle, const struct neighbour *to, struct actions *actions)
{
	const struct view *view = &circle->view;
	struct message message = {.kind = MESSAGE_HELLO};
	message.hello = (struct hello){.name = view->names[view->rank * view->stride], .facts = view->facts, .fact_count = view->fact_count};
	circle_send(circle, to->rank, &message, actions);
}

static void send_heartbeat(struct circle *circle, const struct neighbour *to, struct actions *actions)
{
	struct message message = {.kind = MESSAGE_HEARTBEAT};
	struct heartbeat *heartbeat = &message.heartbeat;
	heartbeat->round = circle->round;
	heartbeat->waiting_for_worker = circle->waiting_for_worker;
	heartbeat->suspect_count = view_suspects(&circle->view, to, heartbeat->suspects);
	heartbeat->collectives = circle->collectives;
	if (to == view_side(&circle->view, VIEW_LEFT)) {
		circle->told_collectives = circle->collectives;
		link_report(&circle->link, &heartbeat->received, &heartbeat->resend);
	}
	circle_send(circle, to->rank, &message, actions);
}

bool circle_can_send(struct circle *circle)
{
	const struct neighbour *right = view_side(&circle->view, VIEW_RIGHT);
	return right != NULL && right->incarnation != 0 && right->accepts_us && !right->down;
}

/* ---- Hello and view ---- */

static void push_roll(struct circle *circle, uint32_t origin)
{
	struct frame frame = {.kind = MESSAGE_ROLL, .origin = origin};
	if (circle->view.count > 1 && origin != ring_right(circle->view.rank, circle->view.count))
		CHECK(link_push(&circle->link, &frame) == 0);
}

bool circle_roll(struct circle *circle, uint32_t rank)
{
	struct view *view = &circle->view;
	if (!view_roll(view, rank))
		return false;
	push_roll(circle, rank);
	if (view->rolled_count < view->count || view->complete)
		return false;
	view->complete = true;
	return true;
}

bool circle_join(struct circle *circle)
{
	if (circle->own_roll || !view_is_joined(&circle->view))
		return false;
	circle->own_roll = true;
	return circle_roll(circle, circle->view.rank);
}

/* A neighbour's new incarnation has been accepted: the streams with it start afresh. */
static void welcome(struct circle *circle, struct neighbour *neighbour, struct actions *actions)
{
	actions_note(actions, (struct note){.code = NOTE_PEER_HEARD, .peer = circle_global(circle, neighbour->rank)});
	if (neighbour == view_side(&circle->view, VIEW_LEFT))
		link_reset_left(&circle->link);
	if (neighbour == view_side(&circle->view, VIEW_RIGHT)) {
		link_reset_right(&circle->link);
		for (uint32_t rank = 0; rank < circle->view.count; rank++)
			if (circle->view.rolled[rank])
				push_roll(circle, rank);
	}
	/* In this order: a heartbeat counts only from somebody whose hello was accepted, and it is what tells that we accept. */
	send_hello(circle, neighbour, actions);
	send_heartbeat(circle, neighbour, actions);
}

static void take_hello(struct circle *circle, uint32_t from, const struct message *message, uint64_t now_us,
		       struct actions *actions)
{
	bool is_new;
	struct message answer = {.kind = MESSAGE_REFUSE};
	struct neighbour *neighbour = view_neighbour(&circle->view, from);
	if (view_hello(&circle->view, from, message, now_us, &is_new, &answer.refuse) == 0) {
		if (is_new)
			welcome(circle, neighbour, actions);
		else
			send_heartbeat(circle, neighbour, actions); /* it has not heard yet that we accept it */
		return;
	}
	circle_send(circle, from, &answer, actions);
	if (neighbour == NULL) {
		circle->dropped++;
		return;
	}
	bool is_known = neighbour->refused_incarnation == message->incarnation && neighbour->refused == answer.refuse.reason;
	neighbour->refused = answer.refuse.reason;
	neighbour->refused_incarnation = message->incarnation;
	if (is_known)
		return;
	actions_note(actions, (struct note){
		.code = answer.refuse.reason == REFUSAL_RESTARTED ? NOTE_PEER_RESTARTED : NOTE_PEER_REFUSED,
		.peer = message->from, .a = answer.refuse.fact_index, .detail = (int)answer.refuse.reason});
}

static void take_refuse(struct circle *circle, uint32_t from, const struct message *message, struct actions *actions)
{
	struct neighbour *neighbour = view_neighbour(&circle->view, from);
	if (neighbour == NULL || neighbour->refuses_us == message->refuse.reason)
		return;
	neighbour->refuses_us = message->refuse.reason;
	actions_note(actions, (struct note){.code = NOTE_REFUSED_BY, .peer = message->from,
					    .a = message->refuse.fact_index, .detail = (int)message->refuse.reason});
}

/* true: the right neighbour has taken frames. */
static bool take_heartbeat(struct circle *circle, struct neighbour *from, const struct heartbeat *heartbeat, uint64_t now_us)
{
	from->round = heartbeat->round;
	from->waiting_for_worker = heartbeat->waiting_for_worker;
	from->collectives = u64_max(from->collectives, heartbeat->collectives);
	from->suspect_count = 0;
	for (uint32_t i = 0; i < heartbeat->suspect_count; i++)
		if (heartbeat->suspects[i] < circle->view.count && from->suspect_count < SUSPECT_COUNT_MAX)
			from->suspects[from->suspect_count++] = heartbeat->suspects[i];
	return from == view_side(&circle->view, VIEW_RIGHT) && from->accepts_us &&
	       link_acknowledge(&circle->link, heartbeat->received, heartbeat->resend, now_us);
}

bool circle_message(struct circle *circle, uint32_t from, const struct message *message, uint64_t now_us, bool *ret_moved,
		    struct actions *actions)
{
	*ret_moved = false;
	/* A rank means another member in another view. Who speaks another protocol knows of no view: 0. */
	bool is_of_view = message->view == circle->view_number;
	if (!is_of_view && (message->kind != MESSAGE_REFUSE || message->view != 0)) {
		circle->dropped++;
		return false;
	}
	if (message->kind == MESSAGE_HELLO) {
		take_hello(circle, from, message, now_us, actions);
		return false;
	}
	if (message->kind == MESSAGE_REFUSE) {
		take_refuse(circle, from, message, actions);
		return false;
	}
	bool is_for_us = message->receiver == circle->incarnation;
	struct neighbour *neighbour = view_neighbour(&circle->view, from);
	if (neighbour == NULL || !view_is_known(neighbour, message->incarnation)) {
		circle->dropped++;
		return false;
	}
	uint64_t was_down_us = view_heard(neighbour, now_us);
	if (was_down_us > 0)
		actions_note(actions, (struct note){.code = NOTE_PEER_UP, .peer = message->from, .a = was_down_us / 1000});
	if (is_for_us && !neighbour->accepts_us)
		neighbour->refuses_us = 0;
	neighbour->accepts_us = is_for_us;
	if (message->kind == MESSAGE_HEARTBEAT) {
		*ret_moved = take_heartbeat(circle, neighbour, &message->heartbeat, now_us);
		return false;
	}
	bool is_stream = is_for_us && neighbour == view_side(&circle->view, VIEW_LEFT);
	circle->dropped += !is_stream;
	return is_stream;
}

/* ---- Time ---- */

void circle_watch(struct circle *circle, uint64_t now_us, struct actions *actions)
{
	struct view *view = &circle->view;
	bool heartbeat_is_due = now_us >= circle->heartbeat_at_us;
	bool hello_is_due = now_us >= circle->hello_at_us;
	for (uint32_t i = 0; i < view->side_count; i++) {
		struct neighbour *side = &view->side[i];
		if (view_check_silence(view, side, now_us))
			actions_note(actions, (struct note){.code = NOTE_PEER_DOWN, .peer = circle_global(circle, side->rank),
							    .a = (now_us - side->heard_us) / 1000});
		if (hello_is_due && (side->incarnation == 0 || !side->accepts_us || side->down))
			send_hello(circle, side, actions);
		bool must_report = side == view_side(view, VIEW_LEFT) &&
				   (link_must_report(&circle->link, now_us) || circle->told_collectives < circle->collectives);
		if (side->incarnation != 0 && (heartbeat_is_due || must_report))
			send_heartbeat(circle, side, actions);
		if (side->incarnation != 0 && !side->down)
			actions_wake(actions, side->heard_us + view->silence_us);
	}
	if (heartbeat_is_due)
		circle->heartbeat_at_us = now_us + circle->heartbeat_us;
	if (hello_is_due)
		circle->hello_at_us = now_us + circle->heartbeat_us / HELLO_PER_HEARTBEAT;
	if (view->side_count == 0)
		return;
	actions_wake(actions, circle->heartbeat_at_us);
	actions_wake(actions, circle->hello_at_us);
	actions_wake(actions, circle->link.report_at_us);
}
