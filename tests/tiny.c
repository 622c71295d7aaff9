/* See the header. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/tiny.h"

struct ring_settings tiny_settings(enum method method)
{
	struct ring_settings settings = ring_settings_standard();
	settings.value[METHOD] = method;
	for (enum ring_setting i = 0; i < RING_SETTING_COUNT; i++)
		method_presets(method, i, &settings.value[i]);
	return settings;
}

struct lab *tiny_ring(enum method method, size_t count, const size_t *sizes, size_t layer_count)
{
	struct ring_settings settings = tiny_settings(method);
	struct lab *lab = lab_new(count, sizes, layer_count, &settings, NULL, 0);
	lab_gather(lab);
	return lab;
}

void tiny_fill(float *numbers, size_t size, float value)
{
	for (size_t i = 0; i < size; i++)
		numbers[i] = value;
}

void tiny_set_theta(struct lab *lab, size_t n, float value)
{
	for (size_t l = 0; l < lab->layer_count; l++)
		tiny_fill(lab->members[n].layers[l].theta, lab->members[n].layers[l].size, value);
}

void tiny_assert_all(const float *numbers, size_t size, double expected)
{
	for (size_t i = 0; i < size; i++)
		if (!(fabs((double)numbers[i] - expected) <= 1e-6 * fmax(1.0, fabs(expected))))
			fail_msg("%.9g, expected %.9g", (double)numbers[i], expected);
}

void tiny_assert_theta(const struct lab *lab, size_t n, double expected)
{
	for (size_t l = 0; l < lab->layer_count; l++)
		tiny_assert_all(lab->members[n].layers[l].theta, lab->members[n].layers[l].size, expected);
}

void tiny_assert_anchors(const struct lab *lab, double expected)
{
	for (size_t n = 0; n < lab->count; n++)
		for (size_t l = 0; l < lab->layer_count; l++)
			tiny_assert_all(lab->members[n].layers[l].anchor, lab->members[n].layers[l].size, expected);
}

uint64_t tiny_round(const struct lab *lab, size_t n)
{
	struct node_status status;
	node_status(lab->members[n].node, lab->now_us, &status);
	return status.round;
}

void tiny_assert_rounds(const struct lab *lab, uint64_t round)
{
	for (size_t n = 0; n < lab->count; n++)
		assert_int_equal(tiny_round(lab, n), round);
}

enum verdict tiny_verdict(const struct lab *lab, uint32_t n)
{
	return node_record(lab->members[0].node, 0, n)->verdict;
}

void tiny_settle(struct lab *lab)
{
	lab_pass(lab, 10000);
}

void tiny_offer(struct lab *lab, const float *thetas)
{
	for (size_t n = 0; n < lab->count; n++)
		tiny_set_theta(lab, n, thetas[n]);
	for (size_t n = 0; n < lab->count; n++)
		lab_offer(lab, n, false);
	tiny_settle(lab);
}

void tiny_change(struct lab *lab, enum ring_setting setting, double value)
{
	lab_event(lab, 0, (struct event){.kind = EVENT_CHANGE,
					 .change = {.kind = CHANGE_SET, .setting = setting, .value = value}});
}
