/* Every file of the fuzzer's corpus through its target, without the fuzzer: what once was found stays found. */

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/manifest.h"
#include "proto/codec.h"
#include "tests/fuzz/target.h"
#include "worker/complain.h"
#include "worker/llama_config.h"
#include "worker/tensorfile.h"

enum { FILE_MAX = 2 << 20 };

/* Runs target over corpus/name; at least `least` files must be there. */
static void replay(const char *name, int (*target)(const uint8_t *, size_t), size_t least)
{
	char path[512];
	snprintf(path, sizeof(path), "tests/fuzz/corpus/%s", name);
	DIR *folder = opendir(path);
	if (!folder)
		fail_msg("%s: not there (run from the root of the tree)", path);
	static uint8_t bytes[FILE_MAX];
	size_t count = 0;
	for (struct dirent *entry; (entry = readdir(folder));) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "tests/fuzz/corpus/%s/%s", name, entry->d_name);
		FILE *file = fopen(path, "rb");
		assert_non_null(file);
		size_t size = fread(bytes, 1, sizeof(bytes), file);
		fclose(file);
		uint8_t *copy = malloc(size ? size : 1); /* of exactly its size, for the address sanitizer */
		memcpy(copy, bytes, size);
		assert_int_equal(target(copy, size), 0);
		free(copy);
		count++;
	}
	closedir(folder);
	assert_true(count >= least);
}

static void frames_replay(void **state)
{
	(void)state;
	replay("codec", target_codec, 20);
}

static void requests_replay(void **state)
{
	(void)state;
	replay("control", target_control, 20);
}

static void descriptions_replay(void **state)
{
	(void)state;
	replay("description", target_description, 3);
}

static void segments_replay(void **state)
{
	(void)state;
	replay("segment", target_segment, 3);
}

static void files_replay(void **state)
{
	(void)state;
	replay("weights", target_weights, 3);
	replay("config", target_config, 1);
	replay("tokens", target_tokens, 4);
	replay("manifest", target_manifest, 1);
	replay("snapshot", target_snapshot, 1);
}

/* The corpus is worth something only while its good messages are good: each kind is accepted. */
static void corpus_has_a_good_message_of_every_kind(void **state)
{
	(void)state;
	static const char *const names[] = {"hello", "refuse", "heartbeat", "roll", "record", "scalar", "chunk", "heal",
					   "confirm", "change", "standing", "holding", "holding-nothing",
					   "decree-prepare", "decree-promise", "decree-decided", "decree-join", "decree-refused"};
	bool is_there[MESSAGE_KIND_END] = {false};
	struct codec *codec = codec_init(aligned_alloc(16, codec_size()));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char path[128];
		static uint8_t bytes[FILE_MAX];
		static const float payload[16];
		snprintf(path, sizeof(path), "tests/fuzz/corpus/codec/%s", names[i]);
		FILE *file = fopen(path, "rb");
		assert_non_null(file);
		size_t size = fread(bytes, 1, sizeof(bytes), file);
		fclose(file);
		struct message message;
		const char *what = "";
		size_t payload_bytes = !strcmp(names[i], "chunk") || !strcmp(names[i], "heal") ? sizeof(payload) : 0;
		if (codec_decode(codec, bytes, size, payload, payload_bytes, &message, &what))
			fail_msg("%s: refused because of %s (make corpus writes it anew)", path, what);
		is_there[message.kind] = true;
	}
	for (int kind = MESSAGE_HELLO; kind < MESSAGE_KIND_END; kind++)
		assert_true(is_there[kind]);
	free(codec);
}

static void corpus_has_good_files_of_every_kind(void **state)
{
	(void)state;
	char error[COMPLAINT_MAX];
	static const char *const names[] = {"ours", "halves"};
	for (size_t i = 0; i < 2; i++) {
		char path[128];
		struct tensorfile *file;
		snprintf(path, sizeof(path), "tests/fuzz/corpus/weights/%s", names[i]);
		if (tensorfile_open(path, &file, error, sizeof(error)))
			fail_msg("%s", error);
		assert_int_equal(tensorfile_count(file), 2);
		tensorfile_close(file);
	}
	struct llama_config config;
	if (llama_config_load("tests/fuzz/corpus/config/good", &config, error, sizeof(error)))
		fail_msg("%s", error);
}

static size_t read_good(const char *target, char bytes[4096])
{
	char path[128];
	snprintf(path, sizeof(path), "tests/fuzz/corpus/%s/good", target);
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	size_t size = fread(bytes, 1, 4096, file);
	fclose(file);
	return size;
}

static void corpus_has_a_good_checkpoint(void **state)
{
	(void)state;
	char bytes[4096];
	struct line why = {""};
	struct manifest manifest;
	struct snapshot snapshot;
	size_t size = read_good("manifest", bytes);
	if (manifest_read(bytes, size, &manifest, &why))
		fail_msg("%s", why.text);
	size = read_good("snapshot", bytes);
	if (snapshot_read(bytes, size, 1, &snapshot, &why))
		fail_msg("%s", why.text);
	assert_int_equal(snapshot.step, 20);
	assert_true(snapshot.settings.value[SYNC_INTERVAL] == 5);
	snapshot_free(&snapshot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_replay),
		cmocka_unit_test(requests_replay),
		cmocka_unit_test(descriptions_replay),
		cmocka_unit_test(segments_replay),
		cmocka_unit_test(files_replay),
		cmocka_unit_test(corpus_has_a_good_message_of_every_kind),
		cmocka_unit_test(corpus_has_good_files_of_every_kind),
		cmocka_unit_test(corpus_has_a_good_checkpoint),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
