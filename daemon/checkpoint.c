/* Writes checkpoints in slices. Owns the copy of the anchor while one is being written; the folder itself is
 * daemon/folder.c's. */

#include "daemon/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
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
	free(checkpoint->copy);
	free(checkpoint->layer_hashes);
	free(checkpoint->tensors);
	free(checkpoint->sizes);
	free(checkpoint->hash);
	checkpoint->copy = NULL;
	checkpoint->layer_hashes = NULL;
	checkpoint->tensors = NULL;
	checkpoint->sizes = NULL;
	checkpoint->hash = NULL;
	checkpoint->is_busy = false;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
	if (!checkpoint->is_busy)
		return;
	safetensors_writer_abort(&checkpoint->writer);
	folder_remove(checkpoint->aside);
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

/* ---- Beginning ---- */

/* The tensors of a layer whose numbers are at `at`, or the one that its piece is. */
static void list_tensors(struct checkpoint *checkpoint, const struct run *run, size_t layer_index, const float *at)
{
	const struct description_layer *layer = &run->description.layers[layer_index];
	if (run->segment.shards > 1) {
		checkpoint->tensors[checkpoint->tensor_count++] = (struct safetensors_tensor){
			.name = layer->name, .type = SAFETENSORS_F32, .dims = &checkpoint->sizes[layer_index], .rank = 1,
			.data = at};
		return;
	}
	for (size_t j = layer->first_tensor; j < layer->first_tensor + layer->tensor_count; j++) {
		const struct description_tensor *tensor = &run->description.tensors[j];
		checkpoint->tensors[checkpoint->tensor_count++] = (struct safetensors_tensor){
			.name = tensor->name, .type = SAFETENSORS_F32, .dims = tensor->dims, .rank = tensor->rank,
			.data = at + tensor->offset};
	}
}

/* Copies the anchor and lists the tensors in it. */
static bool take_copy(struct checkpoint *checkpoint, const struct run *run)
{
	const struct description *description = &run->description;
	size_t count = 0;
	for (size_t i = 0; i < description->layer_count; i++)
		count += run->layers[i].size;
	checkpoint->copy = malloc(size_max(count, 1) * sizeof(float));
	checkpoint->layer_hashes = calloc(description->layer_count, sizeof(uint64_t));
	checkpoint->sizes = calloc(description->layer_count, sizeof(uint64_t));
	checkpoint->tensor_count = 0;
	checkpoint->tensors = calloc(description->tensor_count + description->layer_count, sizeof *checkpoint->tensors);
	checkpoint->hash = calloc(1, sizeof *checkpoint->hash);
	if (!checkpoint->copy || !checkpoint->layer_hashes || !checkpoint->sizes || !checkpoint->tensors || !checkpoint->hash)
		return false;

	float *to = checkpoint->copy;
	for (size_t i = 0; i < description->layer_count; i++) {
		size_t size = checkpoint->sizes[i] = run->layers[i].size;
		if (size > 0)
			memcpy(to, run->layers[i].anchor, size * sizeof(float));
		checkpoint->layer_hashes[i] = run->state.layers[i].hash;
		list_tensors(checkpoint, run, i, to);
		to += size;
	}
	return true;
}

static void join(char *path, size_t size, const char *folder, const char *name)
{
	int length = snprintf(path, size, "%s/%s", folder, name);
	CHECK(length > 0);
	CHECK((size_t)length < size);
}

bool checkpoint_begin(struct checkpoint *checkpoint, const struct run *run, uint64_t round)
{
	CHECK(run->is_begun);
	if (checkpoint->is_busy)
		return false;
	char name[48], path[2 * CONFIG_PATH_MAX];
	checkpoint->run = run;
	checkpoint->round = round;
	snprintf(name, sizeof name, "round-%06" PRIu64, round);
	join(checkpoint->place, sizeof checkpoint->place, checkpoint->folder, name);
	snprintf(name, sizeof name, ".round-%06" PRIu64 ".partial", round);
	join(checkpoint->aside, sizeof checkpoint->aside, checkpoint->folder, name);

	if (!take_copy(checkpoint, run))
		return give_up(checkpoint, "no memory for a copy of the anchor");
	if (folder_make(checkpoint->folder) != 0 || folder_make(checkpoint->aside) != 0)
		return give_up(checkpoint, "%s: %s", checkpoint->aside, strerror(errno));
	snprintf(checkpoint->file, sizeof checkpoint->file, "model.safetensors");
	if (run->segment.shards > 1)
		snprintf(checkpoint->file, sizeof checkpoint->file, "piece-%" PRIu32 "-of-%" PRIu32 ".safetensors",
			 run->segment.column + 1, run->segment.shards);
	join(path, sizeof path, checkpoint->aside, checkpoint->file);
	if (safetensors_writer_open(&checkpoint->writer, path, checkpoint->tensors, checkpoint->tensor_count) != 0)
		return give_up(checkpoint, "%s", checkpoint->writer.error);
	XXH3_64bits_reset(&checkpoint->hash->state);
	XXH3_64bits_update(&checkpoint->hash->state, checkpoint->writer.header, checkpoint->writer.header_bytes);
	checkpoint->is_busy = true;
	return true;
}

/* ---- Finishing ---- */

static size_t tensor_bytes(const struct safetensors_tensor *tensor)
{
	size_t bytes = sizeof(float);
	for (size_t i = 0; i < tensor->rank; i++)
		bytes *= tensor->dims[i];
	return bytes;
}

/* Hashes the next slice of the tensors, in the order in which they stand in the file. True: all done. */
static bool hash_slice(struct checkpoint *checkpoint)
{
	struct checkpoint_hash *hash = checkpoint->hash;
	size_t room = CHECKPOINT_SLICE_BYTES;
	while (hash->tensor < checkpoint->tensor_count) {
		const struct safetensors_tensor *tensor = &checkpoint->tensors[hash->tensor];
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

static json_t *hash_text(uint64_t hash)
{
	char text[17];
	snprintf(text, sizeof text, "%016" PRIx64, hash);
	return json_string(text);
}

static void add_file(json_t *files, const char *name, uint64_t bytes, uint64_t hash)
{
	json_t *file = json_object();
	json_object_set_new(file, "bytes", json_integer((json_int_t)bytes));
	json_object_set_new(file, "xxh3", hash_text(hash));
	json_object_set_new(files, name, file);
}

/* The text of manifest.json; NULL if memory is short. The caller's to free. */
static char *make_manifest(const struct checkpoint *checkpoint, const char *config)
{
	const struct run *run = checkpoint->run;
	json_t *root = json_object(), *files = json_object(), *layers = json_array();
	json_object_set_new(root, "format", json_integer(1));
	json_object_set_new(root, "run", json_string(config_text(run->config, NODE_RUN)));
	json_object_set_new(root, "member", json_string(config_text(run->config, NODE_NAME)));
	json_object_set_new(root, "view", json_integer(VIEW_FIRST));
	json_object_set_new(root, "round", json_integer((json_int_t)checkpoint->round));
	if (run->segment.shards > 1) {
		json_object_set_new(root, "row", json_integer((json_int_t)run->config->row));
		json_object_set_new(root, "column", json_integer((json_int_t)run->config->column));
		json_object_set_new(root, "shards", json_integer((json_int_t)run->config->shards));
	}
	add_file(files, "config.json", strlen(config), XXH3_64bits(config, strlen(config)));
	add_file(files, checkpoint->file, checkpoint->writer.total_bytes,
		 XXH3_64bits_digest(&checkpoint->hash->state));
	json_object_set_new(root, "files", files);
	for (size_t i = 0; i < run->description.layer_count; i++) {
		json_t *layer = json_object();
		json_object_set_new(layer, "name", json_string(run->description.layers[i].name));
		if (run->segment.shards > 1)
			json_object_set_new(layer, "first", json_integer((json_int_t)segment_first(&run->segment, i)));
		json_object_set_new(layer, "elements", json_integer((json_int_t)checkpoint->sizes[i]));
		json_object_set_new(layer, "xxh3", hash_text(checkpoint->layer_hashes[i]));
		json_array_append_new(layers, layer);
	}
	json_object_set_new(root, "layers", layers);
	char *text = json_dumps(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
	json_decref(root);
	return text;
}

static enum checkpoint_result fail_step(struct checkpoint *checkpoint, const char *cause)
{
	give_up(checkpoint, "%s", cause);
	return CHECKPOINT_FAILED;
}

/* The files beside the model, and the folder's name. 0, or an error that errno explains. */
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

/* All numbers are on their way: the small files, the name, and room for the next one. */
static enum checkpoint_result finish(struct checkpoint *checkpoint)
{
	struct line cause;
	const char *config = checkpoint->run->description.config ? checkpoint->run->description.config : "{}\n";
	char *manifest = make_manifest(checkpoint, config);
	if (!manifest) {
		safetensors_writer_abort(&checkpoint->writer);
		return fail_step(checkpoint, "no memory for manifest.json");
	}
	int error = safetensors_writer_commit(&checkpoint->writer);
	if (error)
		line_fail(&cause, error, "%s", checkpoint->writer.error);
	else if ((error = put_in_place(checkpoint, config, manifest)) != 0)
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
	bool is_done = checkpoint->writer.file_bytes == checkpoint->writer.total_bytes;
	if (!is_done && safetensors_writer_step(&checkpoint->writer, CHECKPOINT_SLICE_BYTES, &is_done) != 0)
		return fail_step(checkpoint, checkpoint->writer.error);
	if (!hash_slice(checkpoint) || !is_done)
		return CHECKPOINT_GOES_ON;
	return finish(checkpoint);
}
