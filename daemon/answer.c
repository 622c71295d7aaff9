/* Memory and packing of answers, and the commands that change the ring. */

#include "daemon/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 511 };

struct answer_block {
	struct answer_block *next;
	size_t used_bytes, size_bytes;
	_Alignas(16) char bytes[];
};

void answer_init(struct answer *answer, struct daemon *daemon)
{
	*answer = (struct answer){.daemon = daemon};
	edit__control__reply__init(&answer->reply);
}

void answer_fini(struct answer *answer)
{
	while (answer->blocks) {
		struct answer_block *next = answer->blocks->next;
		free(answer->blocks);
		answer->blocks = next;
	}
}

/* A new block in front, with room for bytes. False: no memory. */
static bool add_block(struct answer *answer, size_t bytes)
{
	struct answer_block *block = calloc(1, sizeof *block + bytes);
	if (!block)
		return false;
	block->size_bytes = bytes;
	block->next = answer->blocks;
	answer->blocks = block;
	answer->taken_bytes += bytes;
	return true;
}

void *answer_take(struct answer *answer, size_t bytes)
{
	/* What is written when memory is short, and never sent. */
	static _Alignas(16) char scratch[ANSWER_PART_MAX];
	CHECK(bytes <= ANSWER_PART_MAX);
	bytes = (bytes + 15) / 16 * 16;
	struct answer_block *block = answer->blocks;
	bool has_room = block && block->size_bytes - block->used_bytes >= bytes;
	if (!has_room && (answer->taken_bytes > 4 * (size_t)CONTROL_REPLY_MAX || !add_block(answer, ANSWER_PART_MAX))) {
		answer->is_short = true;
		memset(scratch, 0, bytes);
		return scratch;
	}
	block = answer->blocks;
	void *part = block->bytes + block->used_bytes;
	block->used_bytes += bytes;
	return part;
}

char *answer_text(struct answer *answer, const char *text)
{
	size_t length = size_min(strlen(text), TEXT_MAX);
	char *copy = answer_take(answer, length + 1);
	memcpy(copy, text, length);
	copy[length] = 0;
	return copy;
}

void **answer_list(struct answer *answer, size_t count)
{
	size_t bytes = size_max(count, 1) * sizeof(void *);
	if (bytes <= ANSWER_PART_MAX)
		return answer->is_short ? NULL : answer_take(answer, bytes);
	if (!add_block(answer, bytes)) {
		answer->is_short = true;
		return NULL;
	}
	answer->blocks->used_bytes = bytes;
	return (void **)(void *)answer->blocks->bytes;
}

void *answer_pack(struct answer *answer, int error, size_t *ret_bytes)
{
	Edit__Control__Reply failed = EDIT__CONTROL__REPLY__INIT;
	Edit__Control__Reply *reply = &answer->reply;
	size_t size_bytes = 0;
	if (!error && answer->is_short)
		error = line_fail(&answer->why, EDIT_ERROR_FULL, "the answer is too large");
	if (!error && (size_bytes = edit__control__reply__get_packed_size(reply)) > (size_t)CONTROL_REPLY_MAX)
		error = line_fail(&answer->why, EDIT_ERROR_FULL, "the answer takes %zu bytes, at most %d can be sent",
				  size_bytes, CONTROL_REPLY_MAX);
	if (error) {
		reply = &failed;
		reply->error = error;
		reply->text = answer->why.text[0] ? answer->why.text : (char *)(uintptr_t)edit_error_text(error);
	}
	reply->version = CONTROL_VERSION;
	size_bytes = edit__control__reply__get_packed_size(reply);
	uint8_t *bytes = malloc(size_max(size_bytes, 1));
	if (!bytes)
		return NULL;
	*ret_bytes = edit__control__reply__pack(reply, bytes);
	return bytes;
}

int answer_needs_node(struct answer *answer)
{
	if (answer->daemon->driver.node)
		return 0;
	return line_fail(&answer->why, EDIT_ERROR_UNHEALTHY, "no run yet: waiting for a worker at %.200s",
			 answer->daemon->port.path);
}

void answer_put_change(struct answer *answer, const struct change_entry *entry)
{
	char text[256];
	Edit__Control__Change *change = answer_take(answer, sizeof *change);
	edit__control__change__init(change);
	changes_text(entry, text, sizeof text);
	change->id = entry->change.id;
	change->text = answer_text(answer, text);
	change->state = answer_text(answer, changes_state_text(entry->state));
	change->round = entry->round;
	change->folder = answer_text(answer, entry->folder);
	change->failure = answer_text(answer, entry->failure);
	answer->reply.body_case = EDIT__CONTROL__REPLY__BODY_CHANGE;
	answer->reply.change = change;
}

/* Proposes a change and answers with how it is going so far. */
static int propose(struct answer *answer, const struct change *change, bool is_dry_run)
{
	struct driver *driver = &answer->daemon->driver;
	int error = answer_needs_node(answer);
	if (error)
		return error;
	struct node_status status;
	node_status(driver->node, answer->daemon->now_us, &status);
	if (status.phase == NODE_FINISHED)
		return line_fail(&answer->why, EDIT_ERROR_REFUSED, "the run is finished");
	if (change->at_round != 0 && change->at_round <= status.round)
		return line_fail(&answer->why, EDIT_ERROR_REFUSED, "round %llu has passed, %llu are complete",
				 (unsigned long long)change->at_round, (unsigned long long)status.round);
	if (is_dry_run) {
		struct change_entry entry = {.change = *change};
		if (change->kind == CHANGE_SET)
			entry.before = node_settings(driver->node)->value[change->setting];
		answer_put_change(answer, &entry);
		return 0;
	}

	uint64_t id = 0;
	error = driver_propose(driver, change, answer->daemon->now_us, &id);
	if (error == EDIT_ERROR_REFUSED && change->kind == CHANGE_RESUME)
		return line_fail(&answer->why, error, "training is not paused");
	if (error == EDIT_ERROR_REFUSED && change->kind == CHANGE_PAUSE && change->at_round == 0)
		return line_fail(&answer->why, error, "training is paused already");
	if (error == EDIT_ERROR_REFUSED && change->at_round != 0)
		return line_fail(&answer->why, error, "round %llu is too near: not all members can hold it in time",
				 (unsigned long long)change->at_round);
	if (error == EDIT_ERROR_UNHEALTHY)
		return line_fail(&answer->why, error, "the ring is not complete, waiting for %s: nothing can be agreed upon yet",
				 status.waiting_for < answer->daemon->config.member_count ?
					 answer->daemon->config.names[status.waiting_for] : "members");
	if (error == EDIT_ERROR_BUSY)
		return line_fail(&answer->why, error, "too many changes of this member are under way");
	if (error)
		return error;
	const struct change_entry *entry = changes_find(&driver->changes, id);
	CHECK(entry);
	answer_put_change(answer, entry);
	return 0;
}

/* Refuses a value that would have no meaning beside those that will hold when it takes effect. */
static int check_meaning(struct answer *answer, size_t index, double number, uint64_t at_round)
{
	const struct driver *driver = &answer->daemon->driver;
	int error = answer_needs_node(answer);
	if (error)
		return error;
	struct ring_settings settings = *node_next_settings(driver->node);
	changes_foresee(&driver->changes, at_round, &settings);
	setting_take(&settings, index, number);
	const char *conflict = setting_conflict(&settings, index);
	return conflict ? line_fail(&answer->why, EDIT_ERROR_REFUSED, "%s", conflict) : 0;
}

int answer_set(struct answer *answer, const struct control_request *request)
{
	size_t index;
	struct setting_value value;
	int error = setting_find(request->setting, &index, &answer->why);
	if (!error)
		error = setting_parse(index, request->value, &value, &answer->why);
	if (error)
		return error;
	if (!setting_at(index)->is_ring)
		return line_fail(&answer->why, EDIT_ERROR_REFUSED,
				 "%s: belongs to this node alone; change it in the config file and restart editd",
				 setting_at(index)->name);
	/* A dry run may be of one among several that mean something together: who asks for it looks at all of them. */
	error = request->dry_run ? 0 : check_meaning(answer, index, value.number, request->at_round);
	if (error)
		return error;
	struct change change = {.kind = CHANGE_SET, .setting = (uint32_t)index, .value = value.number,
				.at_round = request->at_round};
	return propose(answer, &change, request->dry_run);
}

int answer_pause(struct answer *answer, const struct control_request *request)
{
	struct change change = {.kind = CHANGE_PAUSE, .at_round = request->at_round};
	return propose(answer, &change, request->dry_run);
}

int answer_resume(struct answer *answer, const struct control_request *request)
{
	struct change change = {.kind = CHANGE_RESUME};
	return propose(answer, &change, request->dry_run);
}

int answer_checkpoint(struct answer *answer, const struct control_request *request)
{
	struct change change = {.kind = CHANGE_CHECKPOINT, .at_round = request->at_round};
	return propose(answer, &change, request->dry_run);
}
