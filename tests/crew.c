/* See the header. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/crew.h"

const size_t crew_sizes[LAYERS] = {SIZE, 31, 0};
const size_t all[CREW_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};

struct node_status status_of(const struct lab *lab, size_t n)
{
	struct node_status status;
	node_status(lab->members[n].node, lab->now_us, &status);
	return status;
}

void move_member(struct lab *lab, size_t n, unsigned random)
{
	for (size_t l = 0; l < lab->layer_count; l++)
		for (size_t k = 0; k < lab->members[n].layers[l].size; k++) {
			random = random * 1664525u + 1013904223u;
			lab->members[n].layers[l].theta[k] += (float)(int)random * 1e-10f;
		}
}

struct ring_settings small_chunks(void)
{
	struct ring_settings settings = ring_settings_standard();
	settings.value[WIRE_CHUNK] = 64; /* 16 elements: several chunks per shard */
	settings.value[PENALTY_BY_STEPS] = 0;
	return settings;
}

struct lab *lab_of(size_t count)
{
	struct ring_settings settings = small_chunks();
	struct lab *lab = lab_new(count, crew_sizes, LAYERS, &settings, NULL, 0);
	lab_gather(lab);
	return lab;
}

/* Moves and offers: a round, if all of the view do. */
void work(struct lab *lab, const size_t *order, size_t count, unsigned random)
{
	for (size_t r = 0; r < count; r++) {
		move_member(lab, order[r], random + (unsigned)order[r]);
		lab_offer(lab, order[r], false);
	}
	lab_pass(lab, 1000000);
}

void assert_equal_members(const struct lab *lab, const size_t *order, size_t count, uint64_t round)
{
	for (size_t r = 0; r < count; r++) {
		const struct lab_member *first = &lab->members[order[0]], *member = &lab->members[order[r]];
		assert_true(node_is_ready(member->node));
		assert_int_equal(status_of(lab, order[r]).round, round);
		assert_int_equal(lab_notes(lab, order[r], NOTE_HASH_DIFFERS), 0);
		for (size_t l = 0; l < lab->layer_count; l++) {
			assert_int_equal(node_layer_round(member->node, l), round);
			assert_memory_equal(member->layers[l].anchor, first->layers[l].anchor, first->layers[l].size * 4);
			assert_memory_equal(member->layers[l].momentum, first->layers[l].momentum, first->layers[l].size * 4);
		}
	}
}

/* ---- Deaths ---- */

bool crew_die_after_frames(void *arg, uint32_t from, uint32_t to, const struct message *message)
{
	struct crew_death *death = arg;
	(void)to;
	if (from != death->rank || (message->kind != MESSAGE_CHUNK && message->kind != MESSAGE_RECORD &&
				    message->kind != MESSAGE_CONFIRM))
		return true;
	if (death->sent++ < death->after)
		return true;
	death->lab->members[from].dead = true;
	return false;
}

/* ---- Joining ---- */

static const uint64_t nothing[LAYERS] = {LAYER_NOTHING, LAYER_NOTHING, LAYER_NOTHING};

struct node_config joiner(void)
{
	return (struct node_config){.layer_rounds = nothing, .is_outdated = true, .settings = ring_settings_standard()};
}

void spoil(struct lab *lab, size_t n)
{
	for (size_t l = 0; l < LAYERS; l++)
		for (size_t k = 0; k < crew_sizes[l]; k++)
			lab->members[n].layers[l].theta[k] = lab->members[n].layers[l].anchor[k] =
				lab->members[n].layers[l].momentum[k] = 1e9f;
}

void enter_all(struct lab *lab, uint64_t view, const size_t *order, size_t count, size_t new_member,
		      const struct node_config *before)
{
	for (size_t r = 0; r < count; r++)
		lab_enter(lab, order[r], view, order, count, order[r] == new_member ? before : NULL);
	lab_pass(lab, 1000000);
}

struct lab *lab_that_lost(size_t count, size_t lost)
{
	struct lab *lab = lab_of(count);
	size_t left[8], left_count = 0;
	for (size_t n = 0; n < count; n++)
		if (n != lost)
			left[left_count++] = n;
	work(lab, all, count, 1);
	lab->members[lost].dead = true;
	lab_view(lab, 2, left, left_count);
	work(lab, left, left_count, 5);
	assert_equal_members(lab, left, left_count, 2);
	return lab;
}
