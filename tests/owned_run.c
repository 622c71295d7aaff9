/* A run of one member in the scratch folder. See owned_run.h. */

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
	for (size_t k = 0; k < size && !error; k++)
		segment_theta(&owned->run.segment, 0)[k] = (float)k;
	if (!error)
		error = run_begin(&owned->run, 1, why);
	if (!error)
		run_give_layers(&owned->run);
	return error;
}

int owned_run_make(struct owned_run *owned, size_t size)
{
	char text[2048];
	struct line why = {""};
	CHECK(size % 1024 == 0);
	*owned = (struct owned_run){0};
	if (scratch_make(NULL) != 0)
		return -1;
	snprintf(text, sizeof text,
		 "[node]\nname = a\nruntime_dir = %s\nstate_dir = %s\n[checkpoint]\nkeep = 2\n"
		 "[members]\na = tcp://127.0.0.1:7001\n", scratch_path(""), scratch_path(""));
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
