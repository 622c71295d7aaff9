/* Rings of nodes in trouble, over a perfect wire that a test cuts where it likes: nothing is half done, whoever stands still
 * says so in time, and what was cut goes on when it is whole. */

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lab.h"

enum { SILENCE_US = 3000000, HEARTBEAT_US = 1000000 /* as lab.c sets them */ };

static void offer_all(struct lab *lab)
{
	for (size_t n = 0; n < lab->count; n++)
		lab_offer(lab, n, false);
}

/* Other numbers in every theta, the same ones in every run. */
static void move_theta(struct lab *lab)
{
	unsigned random = 7;
	for (size_t n = 0; n < lab->count; n++)
		for (size_t l = 0; l < lab->layer_count; l++)
			for (size_t k = 0; k < lab->members[n].layers[l].size; k++) {
				random = random * 1664525u + 1013904223u;
				lab->members[n].layers[l].theta[k] += (float)(int)random * 1e-10f;
			}
}

static struct node_status status_of(const struct lab *lab, size_t n)
{
	struct node_status status;
	node_status(lab->members[n].node, lab->now_us, &status);
	return status;
}

/* ---- Cuts ---- */

enum { SIZE = 100, LAYERS = 2 };

static const size_t sizes[LAYERS] = {SIZE, 31};

/* Lets the first `after` chunks of a member through, none of the others. */
struct cut {
	uint32_t rank;
	size_t after, seen;
};

static bool pass_some_chunks(void *arg, uint32_t from, uint32_t to, const struct message *message)
{
	struct cut *cut = arg;
	(void)to;
	return message->kind != MESSAGE_CHUNK || from != cut->rank || cut->seen++ < cut->after;
}

/* A ring that has offered its first round and had two seconds for it. */
static struct lab *lab_with(size_t count, struct cut *cut)
{
	struct ring_settings settings = ring_settings_standard();
	settings.value[WIRE_CHUNK] = 64; /* 16 elements: several chunks per shard */
	struct lab *lab = lab_new(count, sizes, LAYERS, &settings, NULL, 0);
	lab_gather(lab);
	move_theta(lab);
	lab->filter = cut == NULL ? NULL : pass_some_chunks;
	lab->filter_arg = cut;
	offer_all(lab);
	lab_pass(lab, 2000000);
	return lab;
}

/* Each layer is as it was at the offer (anchor and momentum 0), or as in the ring that was not cut. */
static void assert_nothing_is_half_done(const struct lab *lab, const struct lab *offered, const struct lab *whole)
{
	static const float zeros[SIZE];
	for (size_t n = 0; n < lab->count; n++)
		for (size_t l = 0; l < LAYERS; l++) {
			const struct layer *layer = &lab->members[n].layers[l];
			const struct layer *before = &offered->members[n].layers[l], *after = &whole->members[n].layers[l];
			bool is_done = node_layer_round(lab->members[n].node, l) == 1;
			size_t bytes = sizes[l] * sizeof(float);
			assert_memory_equal(layer->anchor, is_done ? after->anchor : zeros, bytes);
			assert_memory_equal(layer->momentum, is_done ? after->momentum : zeros, bytes);
			assert_memory_equal(layer->theta, is_done ? after->theta : before->theta, bytes);
		}
}

/* Cuts the ring behind so many chunks of a member, looks, and makes it whole again. False: it has fewer. */
static bool cut_once(size_t count, uint32_t rank, size_t after, const struct lab *offered, const struct lab *whole)
{
	struct cut cut = {.rank = rank, .after = after};
	struct lab *lab = lab_with(count, &cut);
	bool is_cut = cut.seen > after;
	assert_int_equal(status_of(lab, (rank + 1) % count).round, is_cut ? 0 : 1);
	assert_nothing_is_half_done(lab, offered, whole);
	lab->filter = NULL;
	lab_pass(lab, 10000000);
	for (size_t n = 0; n < count; n++)
		assert_int_equal(status_of(lab, n).round, 1);
	assert_nothing_is_half_done(lab, offered, whole);
	lab_free(lab);
	return is_cut;
}

static void ring_cut_at_any_chunk_leaves_every_source_as_it_was(void **state)
{
	(void)state;
	for (size_t count = 2; count <= 4; count++) {
		struct lab *whole = lab_with(count, NULL), *offered = lab_new(count, sizes, LAYERS, NULL, NULL, 0);
		move_theta(offered);
		assert_int_equal(status_of(whole, 0).round, 1);
		for (uint32_t rank = 0; rank < count; rank++) {
			size_t after = 0;
			while (cut_once(count, rank, after, offered, whole))
				after++;
			assert_true(after >= 2 * LAYERS * (count - 1)); /* each hop of both phases of both layers */
		}
		lab_free(whole);
		lab_free(offered);
	}
}

static bool pass_within_a_half(void *arg, uint32_t from, uint32_t to, const struct message *message)
{
	(void)arg;
	(void)message;
	return from / 2 == to / 2;
}

static void halves_of_a_ring_stand_still_and_agree_when_joined(void **state)
{
	(void)state;
	struct lab *lab = lab_with(4, NULL);
	move_theta(lab);
	lab->filter = pass_within_a_half;
	offer_all(lab);
	lab_pass(lab, 20000000);
	for (size_t n = 0; n < 4; n++) {
		assert_int_equal(status_of(lab, n).round, 1);
		for (size_t l = 0; l < LAYERS; l++)
			assert_int_equal(node_layer_round(lab->members[n].node, l), 1);
		assert_int_equal(status_of(lab, n).waiting_for / 2, 1 - n / 2); /* somebody of the other half */
		assert_true(status_of(lab, n).stalled_us > SILENCE_US);
	}
	lab->filter = NULL;
	lab_pass(lab, 10000000);
	for (int r = 0; r < 2; r++) {
		move_theta(lab);
		offer_all(lab);
		lab_pass(lab, 100000);
	}
	for (size_t n = 0; n < 4; n++) {
		assert_int_equal(status_of(lab, n).round, 4);
		assert_int_equal(lab_notes(lab, n, NOTE_HASH_DIFFERS), 0);
		for (size_t l = 0; l < LAYERS; l++)
			assert_memory_equal(lab->members[n].layers[l].anchor, lab->members[0].layers[l].anchor,
					    sizes[l] * sizeof(float));
	}
	lab_free(lab);
}

static void death_before_the_first_chunk_is_told_within_the_silence(void **state)
{
	(void)state;
	for (size_t dead = 0; dead < 5; dead++) {
		struct cut none = {.rank = (uint32_t)dead};
		struct lab *lab = lab_with(5, &none);
		lab->members[dead].dead = true;
		lab_pass(lab, SILENCE_US + 2000);
		for (size_t side = 1; side < 5; side += 3) {
			size_t neighbour = (dead + side) % 5;
			assert_int_equal(lab_notes(lab, neighbour, NOTE_PEER_DOWN), 1);
			assert_int_equal(lab_note(lab, neighbour, NOTE_PEER_DOWN)->peer, dead);
			assert_int_equal(status_of(lab, neighbour).waiting_for, dead);
		}
		lab_pass(lab, HEARTBEAT_US); /* one hop more for the others */
		for (size_t n = 0; n < 5; n++)
			if (n != dead)
				assert_int_equal(status_of(lab, n).waiting_for, dead);
		lab_free(lab);
	}
}

/* ---- Order of the layers ---- */

static void assert_layer_rounds(const struct lab *lab, size_t n, size_t done)
{
	for (size_t l = 0; l < lab->layer_count; l++)
		assert_int_equal(node_layer_round(lab->members[n].node, l), l < done);
}

static void want(struct lab *lab, size_t n, uint32_t layer_index)
{
	lab_event(lab, n, (struct event){.kind = EVENT_WANT, .wanted = layer_index});
	lab_pass(lab, 10000);
}

static void members_that_want_layers_in_other_orders_do_not_wait_for_each_other(void **state)
{
	(void)state;
	const size_t four[] = {5, 40, 1, 7};
	struct ring_settings settings = ring_settings_standard();
	settings.value[SYNC_PREFETCH] = 0;
	struct lab *lab = lab_new(3, four, 4, &settings, NULL, 0);
	lab_gather(lab);
	for (size_t n = 0; n < 3; n++)
		lab_event(lab, n, (struct event){.kind = EVENT_OFFER, .offer = {.steps = 1}});
	want(lab, 0, 3);
	want(lab, 1, 0);
	assert_layer_rounds(lab, 2, 0);
	want(lab, 2, 2);
	assert_layer_rounds(lab, 0, 1);
	want(lab, 0, 0); /* has it already */
	want(lab, 1, 2);
	assert_layer_rounds(lab, 0, 3);
	want(lab, 2, 3);
	assert_layer_rounds(lab, 0, 3);
	want(lab, 1, 3);
	for (size_t n = 0; n < 3; n++)
		assert_int_equal(status_of(lab, n).round, 1);
	lab_free(lab);
}

static size_t on_the_ring(const struct lab *lab, size_t n)
{
	size_t count = 0;
	for (size_t l = 0; l < lab->layer_count; l++) {
		enum node_layer_state layer = node_layer_state(lab->members[n].node, l);
		count += layer != NODE_LAYER_WORKER && layer != NODE_LAYER_OFFERED;
	}
	return count;
}

static void so_many_layers_as_prefetch_says_are_on_the_ring_at_once(void **state)
{
	(void)state;
	const size_t six[] = {4, 4, 4, 4, 4, 4};
	for (size_t prefetch = 0; prefetch <= 6; prefetch++) {
		struct ring_settings settings = ring_settings_standard();
		settings.value[SYNC_PREFETCH] = (double)prefetch;
		struct lab *lab = lab_new(2, six, 6, &settings, NULL, 0);
		lab_gather(lab);
		/* The other member has not offered: nothing gets off the ring again. */
		lab_event(lab, 0, (struct event){.kind = EVENT_OFFER, .offer = {.steps = 1}});
		lab_pass(lab, 10000);
		assert_int_equal(on_the_ring(lab, 0), prefetch);
		want(lab, 0, 0);
		assert_int_equal(on_the_ring(lab, 0), prefetch == 0 ? 1 : prefetch);
		lab_offer(lab, 1, false);
		lab_pass(lab, 10000);
		assert_layer_rounds(lab, 0, prefetch == 0 ? 1 : 6);
		lab_free(lab);
	}
}

/* ---- Numbers and views ---- */

/* Ten weights of a tenth, rounded to float32, add up to more than 1: with the largest float everywhere the sum is infinite. */
static void mean_that_overflows_is_applied_by_nobody(void **state)
{
	(void)state;
	const size_t size = 30;
	struct lab *lab = lab_new(10, &size, 1, NULL, NULL, 0);
	lab_gather(lab);
	for (size_t n = 0; n < 10; n++)
		for (size_t k = 0; k < size; k++)
			lab->members[n].layers[0].theta[k] = k < 20 ? -FLT_MAX : 1.0f;
	offer_all(lab);
	lab_pass(lab, 10000);
	for (size_t n = 0; n < 10; n++) {
		const struct layer *layer = &lab->members[n].layers[0];
		assert_int_equal(status_of(lab, n).round, 1);
		assert_int_equal(node_record(lab->members[n].node, 0, 3)->verdict, VERDICT_ACCEPTED);
		assert_non_null(lab_note(lab, n, NOTE_ROLLED_BACK));
		assert_int_equal(lab_note(lab, n, NOTE_ROLLED_BACK)->a, 10);
		for (size_t k = 0; k < size; k++) {
			assert_true(layer->anchor[k] == 0.0f);
			assert_true(layer->momentum[k] == 0.0f);
			assert_true(layer->theta[k] == 0.0f);
		}
		assert_int_equal(lab_notes(lab, n, NOTE_HASH_DIFFERS), 0);
	}
	lab_free(lab);
}

static void frames_of_another_view_are_dropped_and_counted(void **state)
{
	(void)state;
	struct lab *lab = lab_with(3, NULL);
	struct message message = {.kind = MESSAGE_HEARTBEAT, .from = 0, .incarnation = 1000, .receiver = 1001, .view = 2};
	uint64_t dropped = status_of(lab, 1).frames_dropped;
	lab->members[0].dead = true;
	for (int i = 0; i < 4; i++) {
		lab_pass(lab, HEARTBEAT_US);
		lab_event(lab, 1, (struct event){.kind = EVENT_MESSAGE, .message = &message});
	}
	assert_int_equal(status_of(lab, 1).frames_dropped, dropped + 4);
	assert_int_equal(lab_notes(lab, 1, NOTE_PEER_DOWN), 1); /* such frames are no sign of life */
	lab_free(lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ring_cut_at_any_chunk_leaves_every_source_as_it_was),
		cmocka_unit_test(halves_of_a_ring_stand_still_and_agree_when_joined),
		cmocka_unit_test(death_before_the_first_chunk_is_told_within_the_silence),
		cmocka_unit_test(members_that_want_layers_in_other_orders_do_not_wait_for_each_other),
		cmocka_unit_test(so_many_layers_as_prefetch_says_are_on_the_ring_at_once),
		cmocka_unit_test(mean_that_overflows_is_applied_by_nobody),
		cmocka_unit_test(frames_of_another_view_are_dropped_and_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
