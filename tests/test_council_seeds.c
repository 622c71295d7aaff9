/* Councils under everything that can go wrong, drawn from seeds: tests/assembly.h has the laws. In the end faults stop,
 * the dead come back, and all must be in one view within bounded time, unless too many voters have lost their disks for
 * ever.
 *
 * build/tests/test_council_seeds [SEEDS [FIRST]]   (default 5000 from 1) */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/assembly.h"

#define SECOND UINT64_C(1000000)

static uint64_t seed_count = 5000, seed_first = 1;

struct coverage {
	uint64_t views, attempts, given_way, adopted, reordered, restarts, asked, relayed, disks_lost, stranded, left;
};

static uint32_t draw(struct assembly *world, uint32_t count)
{
	return (uint32_t)dice_between(&world->dice, 0, count - 1);
}

static uint32_t count_live(const struct assembly *world)
{
	uint32_t count = 0;
	for (uint32_t member = 0; member < ASSEMBLY_MAX; member++)
		count += world->delegates[member].is_live;
	return count;
}

static void split(struct assembly *world)
{
	uint64_t sides = dice_bits(&world->dice);
	for (uint32_t one = 0; one < ASSEMBLY_MAX; one++)
		for (uint32_t other = 0; other < ASSEMBLY_MAX; other++)
			world->cut[one][other] = (sides >> one & 1) != (sides >> other & 1);
}

static void set_weather(struct assembly *world)
{
	world->loss = dice_chance(&world->dice, 0.5) ? 0 : 0.3 * dice_unit(&world->dice);
	world->repeat = 0.2 * dice_unit(&world->dice);
	world->delay_low_us = dice_magnitude(&world->dice, 100, 50000);
	world->delay_high_us = world->delay_low_us * dice_between(&world->dice, 1, 6);
	world->disk_us = dice_magnitude(&world->dice, 100, 50000);
}

/* Something goes wrong, or is put right. */
static void trouble(struct assembly *world, uint32_t members, struct coverage *coverage)
{
	const uint32_t member = draw(world, members), other = draw(world, members);
	struct delegate *delegate = &world->delegates[member];
	switch (dice_between(&world->dice, 0, 9)) {
	case 0:
	case 1:
		if (delegate->is_live)
			assembly_crash(world, member);
		break;
	case 2:
		if (delegate->is_live)
			assembly_crash(world, member);
		if (dice_chance(&world->dice, 0.1) && delegate->has_file) {
			assembly_lose_disk(world, member);
			coverage->disks_lost++;
		}
		assembly_start(world, member);
		break;
	case 3:
	case 4:
		if (!delegate->is_live)
			assembly_start(world, member);
		break;
	case 5: world->cut[member][other] = true; break;
	case 6: assembly_cut(world, member, other, true); break;
	case 7: split(world); break;
	case 8: memset(world->cut, 0, sizeof world->cut); break;
	default:
		if (delegate->is_live && count_live(world) > 2 && dice_chance(&world->dice, 0.3)) {
			assembly_leave(world, member);
			coverage->left++;
		} else {
			set_weather(world);
		}
	}
}

static bool is_one_view(const struct assembly *world, uint32_t members)
{
	for (uint32_t member = 0; member < members; member++) {
		const struct delegate *delegate = &world->delegates[member];
		if (delegate->is_out || delegate->installed != world->highest || world->decided[world->highest].count != members)
			return false;
	}
	return true;
}

static void show(const struct assembly *world, uint32_t members, uint64_t seed, const char *what)
{
	char view[ASSEMBLY_MAX + 1];
	printf("seed %llu, at %.3f s: %s\n", (unsigned long long)seed, (double)world->now_us / 1e6, what);
	for (uint32_t member = 0; member < members; member++) {
		const struct council *council = &world->delegates[member].council;
		printf("  %c: view %llu %s, knows %llu, voter %d, promised %llx, accepted %llx, stage %d, reason at %lld us\n",
				'a' + member,
		       (unsigned long long)world->delegates[member].installed, assembly_view(world, member, view),
		       (unsigned long long)council->vote.roster.number, council->vote.is_voter, (unsigned long long)council->vote.promised,
		       (unsigned long long)council->vote.accepted_ballot, council->stage, (long long)council->propose_at_us);
	}
}

static void add(struct coverage *coverage, const struct assembly *world)
{
	const struct council_counts counts = assembly_counts(world);
	coverage->views += world->highest - 1;
	coverage->attempts += counts.attempts;
	coverage->given_way += counts.given_way;
	coverage->adopted += counts.adopted;
	coverage->reordered += counts.reordered;
	coverage->asked += counts.asked;
	coverage->relayed += counts.relayed;
	coverage->restarts += world->restarts;
}

/* false: a law was broken, or they did not come together. */
static bool run_seed(uint64_t seed, struct coverage *coverage)
{
	struct dice dice = dice_at(seed, 0, 0);
	const uint64_t disks_lost_before = coverage->disks_lost;
	const uint32_t count = (uint32_t)dice_between(&dice, 1, 5), fanout = dice_chance(&dice, 0.3) ? 2 : 0;
	const uint32_t members = count + (uint32_t)dice_between(&dice, count == 1, 2);
	struct assembly *world = assembly_open(dice_bits(&dice), count, fanout);
	assembly_begin(world);
	set_weather(world);
	const uint64_t end_us = dice_between(&dice, 5, 40) * SECOND;
	while (world->now_us < end_us && world->fault[0] == 0) {
		trouble(world, members, coverage);
		assembly_run(world, dice_magnitude(&world->dice, 1000, 4 * SECOND));
	}
	world->loss = world->repeat = 0;
	world->delay_low_us = 1000;
	world->delay_high_us = 20000;
	memset(world->cut, 0, sizeof world->cut);
	for (uint32_t member = 0; member < members; member++) {
		if (world->delegates[member].is_live && world->delegates[member].leaves)
			assembly_crash(world, member);
		if (!world->delegates[member].is_live)
			assembly_start(world, member);
	}
	for (int tenths = 0; tenths < 600 && world->fault[0] == 0 && !is_one_view(world, members); tenths++)
		assembly_run(world, SECOND / 10);
	bool is_stranded = !is_one_view(world, members) && !assembly_can_decide(world) && coverage->disks_lost > disks_lost_before;
	bool is_right = world->fault[0] == 0 && (is_one_view(world, members) || is_stranded);
	coverage->stranded += is_stranded;
	if (!is_right)
		show(world, members, seed, world->fault[0] != 0 ? world->fault : "they are not in one view a minute after the last fault");
	add(coverage, world);
	assembly_close(world);
	return is_right;
}

static void all_who_live_end_in_one_view_and_no_view_has_two_rosters(void **state)
{
	(void)state;
	struct coverage coverage = {0};
	for (uint64_t seed = seed_first; seed < seed_first + seed_count; seed++)
		assert_true(run_seed(seed, &coverage));
	printf("%llu seeds: %llu views, %llu attempts, %llu gave way, %llu adopted, %llu reordered, %llu restarts, "
	       "%llu asked, %llu relayed, "
	       "%llu disks lost, %llu left, %llu stranded\n",
	       (unsigned long long)seed_count, (unsigned long long)coverage.views, (unsigned long long)coverage.attempts,
	       (unsigned long long)coverage.given_way, (unsigned long long)coverage.adopted, (unsigned long long)coverage.reordered,
	       (unsigned long long)coverage.restarts, (unsigned long long)coverage.asked, (unsigned long long)coverage.relayed,
	       (unsigned long long)coverage.disks_lost, (unsigned long long)coverage.left, (unsigned long long)coverage.stranded);
	if (seed_count < 1000)
		return;
	assert_true(coverage.views > seed_count);
	assert_true(coverage.given_way > seed_count / 10);
	assert_true(coverage.adopted > seed_count / 100);
	assert_true(coverage.reordered > seed_count / 100);
	assert_true(coverage.restarts > seed_count);
	assert_true(coverage.asked > seed_count);
	assert_true(coverage.relayed > seed_count);
	assert_true(coverage.disks_lost > seed_count / 20);
	assert_true(coverage.left > 0);
	assert_true(coverage.stranded < seed_count / 3); /* or this shows nothing */
}

static void same_seed_gives_the_same_run(void **state)
{
	(void)state;
	struct coverage once = {0}, again = {0};
	for (uint64_t seed = 1; seed <= 10; seed++) {
		assert_true(run_seed(seed, &once));
		assert_true(run_seed(seed, &again));
		assert_memory_equal(&once, &again, sizeof once);
	}
}

int main(int count, char **words)
{
	if (count > 1)
		seed_count = strtoull(words[1], NULL, 10);
	if (count > 2)
		seed_first = strtoull(words[2], NULL, 10);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_who_live_end_in_one_view_and_no_view_has_two_rosters),
		cmocka_unit_test(same_seed_gives_the_same_run),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
