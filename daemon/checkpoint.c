/* Writes checkpoints in slices. Owns the copy of the anchor while one is being written; the folder itself is
 * daemon/folder.c's. */

#include "daemon/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* for a hash state of known size */
#include <xxhash.h>

#include "daemon/folder.h"

struct checkpoint_hash {
	XXH3_state_t state;
	size_t tensor; /* being hashed */
	size_t done;   /* bytes of it */
};

void checkpoint_init(struct checkpoint *checkpoint, const struct config *config)
{
	*checkpoint = (struct checkpoint){.keep = (size_t)config_number(config, CHECKPOINT_KEEP)};
	snprintf(checkpoint->folder, sizeof checkpoint->folder, "%s/checkpoints", config_text(config, NODE_STATE_DIR));
	folder_clean(checkpoint->folder);
	folder_newest(checkpoint->folder, checkpoint->newest, sizeof checkpoint->newest);
}

/* Releases what belongs to the one being written. */
static void release(struct checkpoint *checkpoint)
{
	snapshot_free(&checkpoint->snapshot);
	for (size_t i = 0; i < CHECKPOINT_FILE_COUNT; i++)
		checkpoint_file_fini(&checkpoint->files[i]);
	free(checkpoint->text);
	free(checkpoint->hash);
	checkpoint->text = NULL;
	checkpoint->hash = NULL;
	checkpoint->is_busy = false;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
	if (checkpoint->is_busy) {
		safetensors_writer_abort(&checkpoint->writer);
		folder_remove(checkpoint->aside);
	}
	release(checkpoint);
}

__attribute__((format(printf, 2, 3))) static bool give_up(struct checkpoint *checkpoint, const char *format, ...)
{
	char cause[400];
	va_list list;
	va_start(list, format);
	vsnprintf(cause, sizeof cause, format, list);
	va_end(list);
	snprintf(checkpoint->degraded, sizeof checkpoint->degraded, "checkpoint of round %" PRIu64 " not written: %s",
		 checkpoint->round, cause);
	folder_remove(checkpoint->aside);
	release(checkpoint);
	return false;
}

/* ---- What is in the files ---- */

void checkpoint_file_fini(struct checkpoint_file *file)
{
	free(file->tensors);
	free(file->names);
	free(file->dims);
	*file = (struct checkpoint_file){0};
}

/* Whole tensors of a layer whose numbers are at `at`, or the one that its piece is. */
static void list_layer(struct checkpoint_file *file, const struct description *description, const struct segment *segment,
		       size_t layer_index, const float *at)
{
	const struct description_layer *layer = &description->layers[layer_index];
	if (segment->shards > 1) {
		file->dims[layer_index] = segment_layer_size(segment, layer_index);
		file->tensors[file->tensor_count++] = (struct safetensors_tensor){
			.name = layer->name, .type = SAFETENSORS_F32, .dims = &file->dims[layer_index], .rank = 1, .data = at};
		return;
	}
	for (size_t j = layer->first_tensor; j < layer->first_tensor + layer->tensor_count; j++) {
		const struct description_tensor *tensor = &description->tensors[j];
		file->tensors[file->tensor_count++] = (struct safetensors_tensor){
			.name = tensor->name, .type = SAFETENSORS_F32, .dims = tensor->dims, .rank = tensor->rank,
			.data = at ? at + tensor->offset : NULL};
	}
}

int checkpoint_model_file(const struct description *description, const struct segment *segment, const struct snapshot *snapshot,
			  struct checkpoint_file *ret_file)
{
	size_t done = 0;
	*ret_file = (struct checkpoint_file){
		.tensors = calloc(description->tensor_count + description->layer_count, sizeof *ret_file->tensors),
		.dims = calloc(description->layer_count, sizeof *ret_file->dims)};
	if (!ret_file->tensors || !ret_file->dims)
		return EDIT_ERROR_SYSTEM;
	snprintf(ret_file->name, sizeof ret_file->name, "model.safetensors");
	if (segment->shards > 1)
		snprintf(ret_file->name, sizeof ret_file->name, "piece-%" PRIu32 "-of-%" PRIu32 ".safetensors", segment->column + 1,
			 segment->shards);
	for (size_t i = 0; i < description->layer_count; i++) {
		list_layer(ret_file, description, segment, i, snapshot->anchor ? snapshot->anchor + done : NULL);
		done += segment_layer_size(segment, i);
	}
	return 0;
}

enum { STATE_NAME_BYTES = DESCRIPTION_NAME_MAX + 16 };

/* One number per element of each layer, or `factor` of them. */
static void list_state(struct checkpoint_file *file, const struct description *description, const struct segment *segment,
		       const char *what, size_t factor, const float *numbers)
{
	size_t done = 0;
	for (size_t i = 0; i < description->layer_count; i++) {
		size_t at = file->tensor_count++, count = factor * segment_layer_size(segment, i);
		char *name = file->names + at * STATE_NAME_BYTES;
		snprintf(name, STATE_NAME_BYTES, "%s %s", what, description->layers[i].name);
		file->dims[at] = count;
		file->tensors[at] = (struct safetensors_tensor){.name = name, .type = SAFETENSORS_F32, .dims = &file->dims[at], .rank = 1,
								.data = numbers ? numbers + done : NULL};
		done += count;
	}
}

int checkpoint_state_file(const struct description *description, const struct segment *segment, const struct snapshot *snapshot,
			  const char *text, struct checkpoint_file *ret_file)
{
	size_t most = 2 * description->layer_count + 1;
	*ret_file = (struct checkpoint_file){.tensors = calloc(most, sizeof *ret_file->tensors),
					     .dims = calloc(most, sizeof *ret_file->dims),
					     .names = calloc(most, STATE_NAME_BYTES)};
	if (!ret_file->tensors || !ret_file->dims || !ret_file->names)
		return EDIT_ERROR_SYSTEM;
	snprintf(ret_file->name, sizeof ret_file->name, "state.safetensors");
	list_state(ret_file, description, segment, "momentum", 1, snapshot->momentum);
	if (snapshot->has_inner)
		list_state(ret_file, description, segment, "inner", segment->inner_factor, snapshot->inner);
	size_t at = ret_file->tensor_count++;
	ret_file->dims[at] = snapshot_text_bytes(description->layer_count);
	ret_file->tensors[at] = (struct safetensors_tensor){
		.name = "state", .type = SAFETENSORS_U8, .dims = &ret_file->dims[at], .rank = 1, .data = text};
	return 0;
}

/* ---- Beginning ---- */

static void join(char *path, size_t size, const char *folder, const char *name)
{
	int length = snprintf(path, size, "%s/%s", folder, name);
	CHECK(length > 0);
	CHECK((size_t)length < size);
}

/* Begins checkpoint->file. */
static int open_file(struct checkpoint *checkpoint)
{
	char path[2 * CONFIG_PATH_MAX];
	const struct checkpoint_file *file = &checkpoint->files[checkpoint->file];
	struct checkpoint_hash *hash = checkpoint->hash;
	join(path, sizeof path, checkpoint->aside, file->name);
	int error = safetensors_writer_open(&checkpoint->writer, path, file->tensors, file->tensor_count);
	if (error)
		return error;
	hash->tensor = hash->done = 0;
	XXH3_64bits_reset(&hash->state);
	XXH3_64bits_update(&hash->state, checkpoint->writer.header, checkpoint->writer.header_bytes);
	return 0;
}

/* Everything that is to be written, in memory. */
static bool take_copies(struct checkpoint *checkpoint, const struct run *run)
{
	checkpoint->hash = calloc(1, sizeof *checkpoint->hash);
	if (!checkpoint->hash || snapshot_take(&checkpoint->snapshot, run, checkpoint->round) != 0)
		return false;
	checkpoint->text = snapshot_text(&checkpoint->snapshot, run);
	return checkpoint->text &&
	       checkpoint_model_file(&run->description, &run->segment, &checkpoint->snapshot, &checkpoint->files[CHECKPOINT_MODEL]) == 0 &&
	       checkpoint_state_file(&run->description, &run->segment, &checkpoint->snapshot, checkpoint->text,
				     &checkpoint->files[CHECKPOINT_STATE]) == 0;
}

static void begin_manifest(struct checkpoint *checkpoint)
{
	const struct config *config = checkpoint->run->config;
	struct manifest *manifest = &checkpoint->manifest;
	*manifest = (struct manifest){.round = checkpoint->round, .shards = config->shards, .column = config->column};
	snprintf(manifest->run, sizeof manifest->run, "%s", config_text(config, NODE_RUN));
	snprintf(manifest->member, sizeof manifest->member, "%s", config_text(config, NODE_NAME));
}

static void add_file(struct checkpoint *checkpoint, const char *name, uint64_t bytes, uint64_t hash)
{
	struct manifest_file *file = &checkpoint->manifest.files[checkpoint->manifest.file_count++];
	*file = (struct manifest_file){.bytes = bytes, .hash = hash};
	CHECK(strlen(name) < sizeof file->name);
	memcpy(file->name, name, strlen(name) + 1);
}

void checkpoint_prepare(struct checkpoint *checkpoint, const struct run *run)
{
	if (!checkpoint->is_busy)
		snapshot_take_inner(&checkpoint->snapshot, run);
}

bool checkpoint_begin(struct checkpoint *checkpoint, const struct run *run, uint64_t round)
{
	CHECK(run->is_begun);
	if (checkpoint->is_busy)
		return false;
	char name[48];
	checkpoint->run = run;
	checkpoint->round = round;
	checkpoint->file = CHECKPOINT_MODEL;
	snprintf(name, sizeof name, "round-%06" PRIu64, round);
	join(checkpoint->place, sizeof checkpoint->place, checkpoint->folder, name);
	snprintf(name, sizeof name, ".round-%06" PRIu64 ".partial", round);
	join(checkpoint->aside, sizeof checkpoint->aside, checkpoint->folder, name);

	begin_manifest(checkpoint);
	if (!take_copies(checkpoint, run))
		return give_up(checkpoint, "no memory for a copy of anchor, momentum and inner state");
	if (folder_make(checkpoint->folder) != 0 || folder_make(checkpoint->aside) != 0)
		return give_up(checkpoint, "%s: %s", checkpoint->aside, strerror(errno));
	if (open_file(checkpoint) != 0)
		return give_up(checkpoint, "%s", checkpoint->writer.error);
	checkpoint->is_busy = true;
	return true;
}

/* ---- Finishing ---- */

static size_t tensor_bytes(const struct safetensors_tensor *tensor)
{
	size_t bytes = tensor->type == SAFETENSORS_U8 ? 1 : sizeof(float);
	for (size_t i = 0; i < tensor->rank; i++)
		bytes *= tensor->dims[i];
	return bytes;
}

/* Hashes the next slice of the tensors, in the order in which they stand in the file. True: all done. */
static bool hash_slice(struct checkpoint *checkpoint)
{
	struct checkpoint_hash *hash = checkpoint->hash;
	const struct checkpoint_file *file = &checkpoint->files[checkpoint->file];
	size_t room = CHECKPOINT_SLICE_BYTES;
	while (hash->tensor < file->tensor_count) {
		const struct safetensors_tensor *tensor = &file->tensors[hash->tensor];
		size_t bytes = tensor_bytes(tensor);
		size_t part = size_min(bytes - hash->done, room);
		XXH3_64bits_update(&hash->state, (const char *)tensor->data + hash->done, part);
		hash->done += part;
		room -= part;
		if (hash->done < bytes)
			return false;
		hash->tensor++;
		hash->done = 0;
	}
	return true;
}

static enum checkpoint_result fail_step(struct checkpoint *checkpoint, const char *cause)
{
	give_up(checkpoint, "%s", cause);
	return CHECKPOINT_FAILED;
}

/* The files beside the numbers, and the folder's name. 0, or an error that errno explains. */
static int put_in_place(const struct checkpoint *checkpoint, const char *config, const char *manifest)
{
	char path[2 * CONFIG_PATH_MAX];
	join(path, sizeof path, checkpoint->aside, "config.json");
	int error = folder_write(path, config, strlen(config));
	join(path, sizeof path, checkpoint->aside, "manifest.json");
	if (!error)
		error = folder_write(path, manifest, strlen(manifest));
	if (error)
		return error;
	folder_date(checkpoint->folder, checkpoint->aside);
	return folder_put(checkpoint->aside, checkpoint->place);
}

/* All numbers are there: the small files, the name, and room for the next one. */
static enum checkpoint_result finish(struct checkpoint *checkpoint)
{
	const char *config = checkpoint->run->description.config ? checkpoint->run->description.config : "{}\n";
	add_file(checkpoint, "config.json", strlen(config), XXH3_64bits(config, strlen(config)));
	char *manifest = manifest_text(&checkpoint->manifest, checkpoint->run, &checkpoint->snapshot);
	if (!manifest)
		return fail_step(checkpoint, "no memory for manifest.json");
	struct line cause = {""};
	int error = put_in_place(checkpoint, config, manifest);
	if (error)
		line_fail(&cause, error, "%s: %s", checkpoint->aside, strerror(errno));
	free(manifest);
	if (error)
		return fail_step(checkpoint, cause.text);

	snprintf(checkpoint->newest, sizeof checkpoint->newest, "%s", checkpoint->place);
	checkpoint->degraded[0] = 0;
	release(checkpoint);
	folder_prune(checkpoint->folder, checkpoint->keep, checkpoint->newest);
	return CHECKPOINT_WRITTEN;
}

enum checkpoint_result checkpoint_step(struct checkpoint *checkpoint)
{
	CHECK(checkpoint->is_busy);
	struct safetensors_writer *writer = &checkpoint->writer;
	bool is_done = writer->file_bytes == writer->total_bytes;
	if (!is_done && safetensors_writer_step(writer, CHECKPOINT_SLICE_BYTES, &is_done) != 0)
		return fail_step(checkpoint, writer->error);
	if (!hash_slice(checkpoint) || !is_done)
		return CHECKPOINT_GOES_ON;
	if (safetensors_writer_commit(writer) != 0)
		return fail_step(checkpoint, writer->error);
	add_file(checkpoint, checkpoint->files[checkpoint->file].name, writer->total_bytes,
		 XXH3_64bits_digest(&checkpoint->hash->state));
	if (++checkpoint->file == CHECKPOINT_FILE_COUNT)
		return finish(checkpoint);
	return open_file(checkpoint) == 0 ? CHECKPOINT_GOES_ON : fail_step(checkpoint, writer->error);
}
