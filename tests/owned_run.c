/* A run of one member, or of one of a mesh, in the scratch folder. See owned_run.h. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/owned_run.h"
#include "tests/scratch.h"

static int describe(size_t size, struct description *description, struct line *why)
{
	uint64_t dims[2] = {1024, size / 1024}, small = 3;
	description_init(description);
	int error = description_add_layer(description, "first", why);
	if (!error)
		error = description_add_tensor(description, "first.weight", dims, 2, why);
	if (!error)
		error = description_add_layer(description, "second", why);
	if (!error)
		error = description_add_tensor(description, "second.weight", &small, 1, why);
	if (!error)
		error = description_set_inner(description, 2, why);
	return error ? error : description_set_config(description, "{\"hidden_size\": 1}", why);
}

static int begin(struct owned_run *owned, size_t size, struct line *why)
{
	struct description description;
	int error = describe(size, &description, why);
	if (error)
		return error;
	size_t bytes = description_bytes(&description);
	void *encoded = malloc(bytes);
	CHECK(encoded);
	description_encode(&description, encoded);
	description_fini(&description);
	run_init(&owned->run, &owned->config);
	error = run_attach(&owned->run, encoded, bytes, why);
	free(encoded);
	const struct segment *segment = &owned->run.segment;
	for (size_t k = 0; !error && k < segment_layer_size(segment, 0); k++)
		segment_theta(segment, 0)[k] = (float)(segment_first(segment, 0) + k);
	if (!error)
		error = run_begin(&owned->run, 1, why);
	if (!error)
		run_give_layers(&owned->run);
	return error;
}

int owned_run_make(struct owned_run *owned, size_t size)
{
	return owned_run_make_piece(owned, size, 0, 1);
}

int owned_run_make_piece(struct owned_run *owned, size_t size, unsigned column, unsigned shards)
{
	char text[4096];
	struct line why = {""};
	CHECK(size % 1024 == 0);
	CHECK(column < shards);
	CHECK(shards <= 26);
	*owned = (struct owned_run){0};
	if (scratch_make(NULL) != 0)
		return -1;
	int length = snprintf(text, sizeof text,
			      "[node]\nname = %c\ncurve = no\nruntime_dir = %s\nstate_dir = %s\n[checkpoint]\nkeep = 2\n"
			      "[mesh]\nshards = %u\n[members]\n", 'a' + (int)column, scratch_path(""), scratch_path(""), shards);
	for (unsigned i = 0; i < shards; i++)
		length += snprintf(text + length, sizeof text - (size_t)length, "%c = tcp://127.0.0.1:%u\n", 'a' + (int)i, 7001 + i);
	int error = config_open(scratch_write("editd.conf", text, strlen(text)), &owned->config, &why);
	if (!error)
		error = begin(owned, size, &why);
	if (error)
		fprintf(stderr, "%s\n", why.text);
	return error;
}

int owned_run_remove(struct owned_run *owned)
{
	run_close(&owned->run);
	config_close(&owned->config);
	return scratch_remove(NULL);
}
