/* Making, checking and mapping the segment. The layout follows from sizes and inner factor alone, so a check
 * computes it again and compares. */

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/segment.h"

static uint64_t align_up(uint64_t offset, uint64_t alignment)
{
	return (offset + alignment - 1) / alignment * alignment;
}

/* Where the parts begin. */
struct segment_layout {
	uint64_t layers_offset, steps_offset, theta_offset, inner_offset, gradient_offset, slots_offset, size_bytes;
};

/* What it follows from. */
struct segment_extent {
	uint64_t layer_count, theta_bytes, inner_bytes; /* of the two areas */
	uint64_t slot_size;                             /* elements; 0: no slots */
};

/* Bytes from one layer's begin to the next one's in an area of `factor` numbers per element. */
static uint64_t area_bytes(uint64_t size, uint64_t factor)
{
	return align_up(size * factor * sizeof(float), 64);
}

static struct segment_layout layout_make(const struct segment_extent *extent)
{
	struct segment_layout layout;
	layout.layers_offset = SEGMENT_PAGE;
	layout.steps_offset = align_up(layout.layers_offset + extent->layer_count * sizeof(struct segment_layer), 64);
	layout.theta_offset =
		align_up(layout.steps_offset + SEGMENT_STEP_COUNT * sizeof(struct segment_step), SEGMENT_PAGE);
	layout.inner_offset = align_up(layout.theta_offset + extent->theta_bytes, SEGMENT_PAGE);
	layout.gradient_offset = align_up(layout.inner_offset + extent->inner_bytes, SEGMENT_PAGE);
	layout.slots_offset = align_up(layout.gradient_offset + extent->theta_bytes, SEGMENT_PAGE);
	layout.size_bytes = align_up(layout.slots_offset + SEGMENT_SLOT_COUNT * area_bytes(extent->slot_size, 1), SEGMENT_PAGE);
	return layout;
}

static struct segment_extent extent_of(const struct description *description, uint32_t shards, uint32_t column)
{
	struct segment_extent extent = {.layer_count = description->layer_count};
	for (size_t i = 0; i < description->layer_count; i++) {
		uint64_t whole = description->layers[i].size, size = ring_shard_size(whole, shards, column);
		extent.theta_bytes += area_bytes(size, 1);
		extent.inner_bytes += area_bytes(size, description->inner_factor);
		extent.slot_size = shards > 1 ? u64_max(extent.slot_size, whole) : 0;
	}
	return extent;
}

uint64_t segment_size(const struct description *description, uint32_t shards)
{
	struct segment_extent extent = extent_of(description, shards, 0);
	return layout_make(&extent).size_bytes;
}

/* Writes header and layer table into zeroed memory. */
static void segment_write(void *base, const struct segment_layout *layout, const struct description *description,
			  uint64_t description_hash, const struct segment_seat *seat, uint64_t slot_size)
{
	struct segment_header *header = base;
	header->magic = SEGMENT_MAGIC;
	header->version = SEGMENT_VERSION;
	header->layer_count = (uint32_t)description->layer_count;
	header->size_bytes = layout->size_bytes;
	header->layers_offset = layout->layers_offset;
	header->steps_offset = layout->steps_offset;
	header->theta_offset = layout->theta_offset;
	header->inner_offset = layout->inner_offset;
	header->gradient_offset = layout->gradient_offset;
	header->slots_offset = layout->slots_offset;
	header->slot_size = slot_size;
	header->inner_factor = description->inner_factor;
	atomic_store(&header->member_rank, seat->rank);
	atomic_store(&header->member_count, seat->count);
	header->column = seat->column;
	header->shards = seat->shards;
	header->looks_ahead = seat->looks_ahead;
	header->description_hash = description_hash;
	atomic_store(&header->offer_step, UINT64_MAX);
	struct segment_layer *layers = (struct segment_layer *)((char *)base + layout->layers_offset);
	uint64_t theta_offset = layout->theta_offset, inner_offset = layout->inner_offset;
	uint64_t gradient_offset = layout->gradient_offset;
	for (size_t i = 0; i < description->layer_count; i++) {
		layers[i].whole_size = description->layers[i].size;
		layers[i].size = ring_shard_size(layers[i].whole_size, seat->shards, seat->column);
		layers[i].theta_offset = theta_offset;
		layers[i].inner_offset = inner_offset;
		layers[i].gradient_offset = gradient_offset;
		theta_offset += area_bytes(layers[i].size, 1);
		inner_offset += area_bytes(layers[i].size, description->inner_factor);
		gradient_offset += area_bytes(layers[i].size, 1);
		atomic_store(&layers[i].owner, SEGMENT_WORKER);
	}
}

/* ---- Checking ---- */

#define DAMAGED(why, ...) line_fail(why, EDIT_ERROR_MALFORMED, "segment: " __VA_ARGS__)

static int header_check(const struct segment_header *header, size_t size_bytes, struct line *why)
{
	if (header->magic != SEGMENT_MAGIC)
		return DAMAGED(why, "does not begin with the magic number");
	if (header->version != SEGMENT_VERSION)
		return DAMAGED(why, "version %u, expected %d", header->version, (int)SEGMENT_VERSION);
	if (header->size_bytes != size_bytes)
		return DAMAGED(why, "%zu bytes, its header says %" PRIu64, size_bytes, header->size_bytes);
	if (header->layer_count < 1 || header->layer_count > LAYER_COUNT_MAX)
		return DAMAGED(why, "%u layers, expected 1 to %d", header->layer_count, (int)LAYER_COUNT_MAX);
	if (header->inner_factor > DESCRIPTION_INNER_MAX)
		return DAMAGED(why, "inner factor %u, expected 0 to %d", header->inner_factor, (int)DESCRIPTION_INNER_MAX);
	uint32_t rank = atomic_load(&header->member_rank), count = atomic_load(&header->member_count);
	if (count < 1 || count > MEMBER_COUNT_MAX || rank >= count)
		return DAMAGED(why, "member %u of %u", rank, count);
	if (header->shards < 1 || header->shards > count || header->column >= header->shards)
		return DAMAGED(why, "piece %u of %u, of %u members", header->column, header->shards, count);
	if (SEGMENT_PAGE + header->layer_count * sizeof(struct segment_layer) > size_bytes)
		return DAMAGED(why, "too small for its %u layers", header->layer_count);
	return 0;
}

/* Computes the layout anew from the layer table's sizes, compares it with what header and table say, and fills places
 * [header->layer_count] from base. Each size is read once: what is checked is what is used. */
static int layout_check(const struct segment_header *header, const struct segment_layer *layers, char *base,
			struct segment_place *places, struct line *why)
{
	struct segment_extent extent = {.layer_count = header->layer_count};
	for (size_t i = 0; i < header->layer_count; i++) {
		uint64_t size = *(const volatile uint64_t *)&layers[i].size;
		uint64_t whole_size = *(const volatile uint64_t *)&layers[i].whole_size;
		if (whole_size > DESCRIPTION_SIZE_MAX || extent.theta_bytes > sizeof(float) * DESCRIPTION_SIZE_MAX)
			return DAMAGED(why, "layer %zu has %" PRIu64 " elements", i, whole_size);
		if (size != ring_shard_size(whole_size, header->shards, header->column))
			return DAMAGED(why, "layer %zu has %" PRIu64 " elements of %" PRIu64 " here", i, size, whole_size);
		if (layers[i].theta_offset != header->theta_offset + extent.theta_bytes ||
		    layers[i].inner_offset != header->inner_offset + extent.inner_bytes ||
		    layers[i].gradient_offset != header->gradient_offset + extent.theta_bytes)
			return DAMAGED(why, "layer %zu lies elsewhere than its size says", i);
		uint32_t owner = atomic_load_explicit(&layers[i].owner, memory_order_relaxed);
		if (owner != SEGMENT_WORKER && owner != SEGMENT_DAEMON)
			return DAMAGED(why, "layer %zu belongs to %u, expected %d or %d", i, owner, (int)SEGMENT_WORKER,
				       (int)SEGMENT_DAEMON);
		places[i].size = size;
		places[i].whole_size = whole_size;
		extent.theta_bytes += area_bytes(size, 1);
		extent.inner_bytes += area_bytes(size, header->inner_factor);
		extent.slot_size = header->shards > 1 ? u64_max(extent.slot_size, whole_size) : 0;
	}
	struct segment_layout layout = layout_make(&extent);
	if (header->layers_offset != layout.layers_offset || header->steps_offset != layout.steps_offset ||
	    header->theta_offset != layout.theta_offset || header->inner_offset != layout.inner_offset ||
	    header->gradient_offset != layout.gradient_offset || header->slots_offset != layout.slots_offset ||
	    header->slot_size != extent.slot_size || header->size_bytes != layout.size_bytes)
		return DAMAGED(why, "offsets do not fit the layers' sizes");
	/* The layout's end is the file's end, so everything below lies inside. */
	char *theta = base + layout.theta_offset, *inner = base + layout.inner_offset;
	char *gradient = base + layout.gradient_offset;
	for (size_t i = 0; i < header->layer_count; i++) {
		places[i].theta = (float *)theta;
		places[i].inner = header->inner_factor > 0 ? (float *)inner : NULL;
		places[i].gradient = (float *)gradient;
		theta += area_bytes(places[i].size, 1);
		gradient += area_bytes(places[i].size, 1);
		inner += area_bytes(places[i].size, header->inner_factor);
	}
	return 0;
}

/* Checks a mapping and makes a segment of it. */
static int segment_check(const struct mapping *mapping, struct segment *ret_segment, struct line *why)
{
	if (mapping->size_bytes < SEGMENT_PAGE)
		return DAMAGED(why, "only %zu bytes", mapping->size_bytes);
	/* The other process may write while we look: decisions are made on a copy. */
	struct segment_header header;
	memcpy(&header, mapping->base, sizeof(header));
	int error = header_check(&header, mapping->size_bytes, why);
	if (error)
		return error;
	char *base = mapping->base;
	struct segment segment = {.mapping = *mapping,
				  .header = mapping->base,
				  .layers = (struct segment_layer *)(base + SEGMENT_PAGE),
				  .layer_count = header.layer_count,
				  .inner_factor = header.inner_factor,
				  .column = header.column,
				  .shards = header.shards,
				  .slot_size = header.slot_size};
	segment.places = calloc(segment.layer_count, sizeof(segment.places[0]));
	if (!segment.places)
		return line_fail(why, EDIT_ERROR_SYSTEM, "segment: no memory");
	error = layout_check(&header, segment.layers, base, segment.places, why);
	if (error) {
		free(segment.places);
		return error;
	}
	segment.steps = (struct segment_step *)(base + header.steps_offset);
	segment.slots = segment.shards > 1 ? (float *)(base + header.slots_offset) : NULL;
	*ret_segment = segment;
	return 0;
}

/* The same; takes the mapping over, also on failure. */
static int segment_make(struct mapping *mapping, struct segment *ret_segment, struct line *why)
{
	int error = segment_check(mapping, ret_segment, why);
	if (error)
		mapping_close(mapping);
	return error;
}

int segment_create(const char *path, const struct description *description, uint64_t description_hash,
		   const struct segment_seat *seat, struct segment *ret_segment, struct line *why)
{
	CHECK(seat->rank < seat->count);
	CHECK(seat->column < seat->shards);
	struct segment_extent extent = extent_of(description, seat->shards, seat->column);
	struct segment_layout layout = layout_make(&extent);
	struct mapping mapping;
	int error = mapping_create(path, layout.size_bytes, &mapping, why);
	if (error)
		return error;
	segment_write(mapping.base, &layout, description, description_hash, seat, extent.slot_size);
	error = mapping_rename(path, why);
	if (error) {
		mapping_close(&mapping);
		return error;
	}
	return segment_make(&mapping, ret_segment, why);
}

int segment_open(const char *path, struct segment *ret_segment, struct line *why)
{
	struct mapping mapping;
	int error = mapping_open(path, &mapping, why);
	return error ? error : segment_make(&mapping, ret_segment, why);
}

int segment_adopt(int fd, struct segment *ret_segment, struct line *why)
{
	struct mapping mapping;
	int error = mapping_adopt(fd, "segment", &mapping, why);
	return error ? error : segment_make(&mapping, ret_segment, why);
}

void segment_close(struct segment *segment)
{
	if (!segment->header)
		return;
	free(segment->places);
	mapping_close(&segment->mapping);
	*segment = (struct segment){.mapping.fd = -1};
}

/* ---- Looking ---- */

float *segment_theta(const struct segment *segment, size_t layer_index)
{
	CHECK(layer_index < segment->layer_count);
	return segment->places[layer_index].theta;
}

float *segment_gradient(const struct segment *segment, size_t layer_index)
{
	CHECK(layer_index < segment->layer_count);
	return segment->places[layer_index].gradient;
}

float *segment_inner(const struct segment *segment, size_t layer_index)
{
	CHECK(layer_index < segment->layer_count);
	return segment->places[layer_index].inner;
}

size_t segment_layer_size(const struct segment *segment, size_t layer_index)
{
	CHECK(layer_index < segment->layer_count);
	return segment->places[layer_index].size;
}

size_t segment_whole_size(const struct segment *segment, size_t layer_index)
{
	CHECK(layer_index < segment->layer_count);
	return segment->places[layer_index].whole_size;
}

size_t segment_first(const struct segment *segment, size_t layer_index)
{
	return ring_shard_begin(segment_whole_size(segment, layer_index), segment->shards, segment->column);
}

float *segment_slot(const struct segment *segment, size_t slot)
{
	CHECK(slot < SEGMENT_SLOT_COUNT);
	CHECK(segment->slots != NULL);
	return segment->slots + slot * (area_bytes(segment->slot_size, 1) / sizeof(float));
}

bool segment_is_torn(const struct segment *segment, size_t layer_index)
{
	CHECK(layer_index < segment->layer_count);
	const struct segment_layer *layer = &segment->layers[layer_index];
	uint64_t ended_step = atomic_load_explicit(&layer->ended_step, memory_order_acquire);
	return atomic_load_explicit(&layer->begun_step, memory_order_relaxed) != ended_step;
}

void segment_sum_steps(const struct segment *segment, uint64_t from_step, uint64_t to_step, uint64_t *ret_tokens,
		       double *ret_loss)
{
	uint64_t tokens = 0, count = 0;
	double loss_sum = 0;
	if (to_step > SEGMENT_STEP_COUNT)
		from_step = u64_max(from_step, to_step - SEGMENT_STEP_COUNT);
	for (uint64_t step = from_step; step < to_step; step++) {
		const struct segment_step *entry = &segment->steps[step % SEGMENT_STEP_COUNT];
		if (entry->step != step)
			continue; /* written over by a later one */
		tokens += entry->tokens;
		loss_sum += entry->loss;
		count++;
	}
	*ret_tokens = tokens;
	*ret_loss = count > 0 ? loss_sum / (double)count : NAN;
}

_Static_assert(sizeof(struct segment_layer) % 64 == 0, "a layer's words share no cache line with another's");
