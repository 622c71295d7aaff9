/* Fuzz targets for the files that a worker, or a daemon that restarts, reads: see target.h. The bytes become a file in memory, because the readers take
 * paths. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/manifest.h"
#include "tests/fuzz/target.h"
#include "worker/complain.h"
#include "worker/corpus.h"
#include "worker/llama_config.h"
#include "worker/tensorfile.h"

/* A path under which data[size] can be read as a regular file, until the next call. */
static const char *file_make(const uint8_t *data, size_t size)
{
	static char path[64];
	static int fd = -1;
	if (fd < 0)
		fd = memfd_create("fuzz", MFD_CLOEXEC);
	CHECK(fd >= 0);
	CHECK(ftruncate(fd, 0) == 0);
	CHECK(pwrite(fd, data, size, 0) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return path;
}

/* What is refused is told in one line. */
static void check_complaint(const char *error)
{
	CHECK(*error);
	CHECK(!strchr(error, '\n'));
}

int target_weights(const uint8_t *data, size_t size)
{
	char error[COMPLAINT_MAX] = "";
	struct tensorfile *file;
	if (tensorfile_open(file_make(data, size), &file, error, sizeof(error))) {
		check_complaint(error);
		return 0;
	}
	for (size_t i = 0; i < tensorfile_count(file); i++) {
		struct tensorfile_tensor *tensor = tensorfile_at(file, i);
		CHECK(tensorfile_find(file, tensor->name) == tensor);
		if (tensorfile_check(tensor, tensor->dims, tensor->rank, error, sizeof(error))) {
			check_complaint(error);
			continue;
		}
		uint64_t count = 1;
		for (size_t k = 0; k < tensor->rank; k++)
			count *= tensor->dims[k];
		CHECK(count <= size);
		/* Of exactly its size, for the address sanitizer. */
		float *values = malloc(count ? count * sizeof(*values) : 1);
		CHECK(values);
		CHECK(tensorfile_read(tensor, values, error, sizeof(error)) == 0);
		free(values);
	}
	tensorfile_close(file);
	return 0;
}

int target_config(const uint8_t *data, size_t size)
{
	char error[COMPLAINT_MAX] = "";
	struct llama_config config;
	if (llama_config_load(file_make(data, size), &config, error, sizeof(error))) {
		check_complaint(error);
		return 0;
	}
	CHECK(config.vocab_size && config.hidden_size && config.intermediate_size && config.layer_count);
	CHECK(config.kv_head_count);
	CHECK(config.head_count % config.kv_head_count == 0);
	CHECK(config.head_dim >= 2);
	CHECK(config.head_dim % 2 == 0);
	CHECK(config.rms_norm_eps > 0);
	CHECK(config.rope_theta > 0);
	return 0;
}

/* The first bytes are options, the rest is the file. */
int target_tokens(const uint8_t *data, size_t size)
{
	char error[COMPLAINT_MAX] = "";
	if (size < 4)
		return 0;
	const struct corpus_options options = {.type = (enum corpus_type)(data[0] % CORPUS_TYPE_COUNT),
					       .vocab_size = 1 + data[1] * 300u,
					       .context = 1 + data[2] % 32u,
					       .holdout = data[3] / 256.0};
	struct corpus corpus;
	if (corpus_open(&corpus, file_make(data + 4, size - 4), &options, true, error, sizeof(error))) {
		check_complaint(error);
		return 0;
	}
	const struct corpus_part part = {.seed = data[3], .rank = 0, .count = 1};
	CHECK(corpus_part_check(&corpus, &part, error, sizeof(error)) == 0);
	for (uint64_t number = 0; number < u64_min(corpus.sample_count, 64); number++) {
		uint32_t tokens[33];
		CHECK(corpus_sample(&corpus, &part, number, tokens, error, sizeof(error)) == 0);
		for (uint32_t i = 0; i <= options.context; i++)
			CHECK(tokens[i] < options.vocab_size);
	}
	corpus_close(&corpus);
	return 0;
}

int target_manifest(const uint8_t *data, size_t size)
{
	struct manifest manifest;
	struct line why = {""};
	if (manifest_read((const char *)data, size, &manifest, &why)) {
		check_complaint(why.text);
		return 0;
	}
	CHECK(text_is_name(manifest.run));
	CHECK(text_is_name(manifest.member));
	CHECK(manifest.shards >= 1);
	CHECK(manifest.column < manifest.shards);
	CHECK(manifest.file_count >= 1);
	CHECK(manifest.file_count <= MANIFEST_FILES_MAX);
	for (size_t i = 0; i < manifest.file_count; i++)
		CHECK(!strchr(manifest.files[i].name, '/'));
	return 0;
}

int target_snapshot(const uint8_t *data, size_t size)
{
	struct snapshot snapshot;
	struct line why = {""};
	for (size_t layer_count = 0; layer_count < 3; layer_count++) {
		if (snapshot_read((const char *)data, size, layer_count, &snapshot, &why)) {
			check_complaint(why.text);
			continue;
		}
		CHECK(snapshot.layer_count == layer_count);
		for (size_t i = 0; i < RING_SETTING_COUNT; i++)
			CHECK(setting_holds(i, snapshot.settings.value[i]));
		for (size_t i = 0; i < layer_count; i++)
			CHECK(snapshot.layers[i].detector.var >= 0);
		snapshot_free(&snapshot);
	}
	return 0;
}
