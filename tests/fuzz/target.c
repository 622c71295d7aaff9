/* Fuzz targets: see target.h. */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/decree.h"
#include "proto/codec.h"
#include "proto/control_codec.h"
#include "proto/segment.h"
#include "tests/fuzz/target.h"

static struct codec *codec_make(void)
{
	void *block = aligned_alloc(16, codec_size());
	CHECK(block);
	return codec_init(block);
}

int target_codec(const uint8_t *data, size_t size)
{
	static struct codec *first, *second;
	static unsigned char frame[CODEC_FRAME_MAX];
	static const float payload[16];
	first = first ? first : codec_make();
	second = second ? second : codec_make();
	struct message message, again;
	for (size_t payload_bytes = 0; payload_bytes <= sizeof(payload); payload_bytes += sizeof(payload)) {
		if (codec_decode(first, data, size, payload, payload_bytes, &message, NULL))
			continue;
		size_t frame_bytes;
		CHECK(codec_encode(second, &message, frame, sizeof(frame), &frame_bytes) == 0);
		CHECK(codec_decode(second, frame, frame_bytes, payload, message.payload_bytes, &again, NULL) == 0);
		CHECK(again.kind == message.kind);
		CHECK(again.from == message.from);
		if (message.kind == MESSAGE_HELLO)
			CHECK(again.hello.fact_count == message.hello.fact_count);
		if (message.kind == MESSAGE_DECREE && message.decree->roster.count > 0)
			CHECK(roster_is_equal(&again.decree->roster, &message.decree->roster));
		if (message.kind == MESSAGE_CHUNK)
			CHECK(4 * again.chunk.count == payload_bytes);
	}
	return 0;
}

int target_control(const uint8_t *data, size_t size)
{
	struct control_request request, again;
	unsigned char frame[CONTROL_REQUEST_MAX];
	size_t frame_bytes;
	if (control_request_decode(data, size, &request, NULL) == 0) {
		CHECK(control_request_encode(&request, frame, sizeof(frame), &frame_bytes) == 0);
		CHECK(control_request_decode(frame, frame_bytes, &again, NULL) == 0);
		CHECK(again.command == request.command);
		CHECK(!strcmp(again.value, request.value));
		CHECK(again.force == request.force);
	}
	void *block;
	const struct Edit__Control__Reply *reply;
	if (control_reply_decode(data, size, &block, &reply, NULL) == 0)
		free(block);
	return 0;
}

int target_description(const uint8_t *data, size_t size)
{
	struct description description;
	if (description_decode(data, size, &description, NULL))
		return 0;
	size_t size_bytes = description_bytes(&description);
	CHECK(size_bytes == size);
	char *bytes = malloc(size_bytes);
	CHECK(bytes);
	description_encode(&description, bytes);
	CHECK(!memcmp(bytes, data, size));
	CHECK(segment_size(&description, 1) > sizeof(float) * description.size);
	free(bytes);
	description_fini(&description);
	return 0;
}

/* Bytes of a good segment of three layers, made once. */
static const char *segment_bytes(size_t *ret_size_bytes)
{
	static char *bytes;
	static size_t size_bytes;
	static const uint64_t dims[1] = {100};
	if (!bytes) {
		char folder[] = "/tmp/fuzz_segment.XXXXXX", path[64];
		struct description description;
		struct segment segment;
		CHECK(mkdtemp(folder));
		strcpy(stpcpy(path, folder), "/segment");
		description_init(&description);
		for (int i = 0; i < 3; i++) {
			const char name[2] = {(char)('a' + i), 0};
			CHECK(description_add_layer(&description, name, NULL) == 0);
			CHECK(description_add_tensor(&description, name, dims, 1, NULL) == 0);
		}
		CHECK(description_set_inner(&description, 2, NULL) == 0);
		CHECK(segment_create(path, &description, 1, &(struct segment_seat){.rank = 0, .count = 1, .shards = 1}, &segment, NULL) == 0);
		size_bytes = segment.mapping.size_bytes;
		bytes = malloc(size_bytes);
		CHECK(bytes);
		memcpy(bytes, segment.mapping.base, size_bytes);
		segment_close(&segment);
		description_fini(&description);
		unlink(path);
		rmdir(folder);
	}
	*ret_size_bytes = size_bytes;
	return bytes;
}

int target_segment(const uint8_t *data, size_t size)
{
	size_t size_bytes;
	const char *good = segment_bytes(&size_bytes);
	char *bytes = malloc(size_bytes);
	CHECK(bytes);
	memcpy(bytes, good, size_bytes);
	size_t half = size_min(size / 2, 256), rest = size_min(size - size / 2, 3 * sizeof(struct segment_layer));
	memcpy(bytes, data, half);
	if (rest > 0)
		memcpy(bytes + SEGMENT_PAGE, data + size / 2, rest);
	int fd = memfd_create("segment", MFD_CLOEXEC);
	CHECK(fd >= 0);
	CHECK(write(fd, bytes, size_bytes) == (ssize_t)size_bytes);
	free(bytes);
	struct segment segment;
	if (segment_adopt(fd, &segment, NULL))
		return 0;
	float sum = 0;
	for (size_t i = 0; i < segment.layer_count; i++) {
		size_t count = segment_layer_size(&segment, i);
		for (size_t j = 0; j < count; j++)
			sum += segment_theta(&segment, i)[j];
		for (size_t j = 0; j < segment.inner_factor * count; j++)
			sum += segment_inner(&segment, i)[j];
		(void)segment_is_torn(&segment, i);
	}
	CHECK(sum == 0); /* all of it lies where nothing was laid */
	segment_close(&segment);
	return 0;
}
