#ifndef EDIT_PROTO_DESCRIPTION_H
#define EDIT_PROTO_DESCRIPTION_H

/* What a worker tells the daemon about its model: layers, tensors, facts, config text. Built call by call, or read from
 * bytes; both ways pass the same checks. A description owns its arrays and texts until description_fini.
 *
 * As bytes (little-endian; a text is a uint32 length and that many bytes, without a final zero):
 *
 *   "EDITDSC1"  uint32 version  uint32 inner_factor  uint32 layer_count  uint32 fact_count  text config
 *   layer [layer_count]:   text name  uint32 tensor_count
 *     tensor [tensor_count]: text name  uint32 rank  uint64 dims[rank]
 *   fact [fact_count]:     text key  text value
 */

#include "core/event.h"
#include "core/layer.h"
#include "proto/text.h"

enum {
	DESCRIPTION_VERSION = 1,
	DESCRIPTION_BYTES_MAX = 8 << 20,
	DESCRIPTION_CONFIG_MAX = 1 << 20, /* bytes of the config text */
	DESCRIPTION_TENSOR_MAX = 65536,
	DESCRIPTION_FACT_MAX = 2048, /* leaves room in a hello for one fact per layer */
	DESCRIPTION_NAME_MAX = 200,  /* bytes of a layer's or tensor's name: fits a fact with a number behind it */
	DESCRIPTION_RANK_MAX = 8,
	DESCRIPTION_INNER_MAX = 8    /* largest inner factor */
};

/* No layer, and no model, has more elements than this. */
#define DESCRIPTION_SIZE_MAX (UINT64_C(1) << 40)

struct description_layer {
	char *name;
	uint64_t size;       /* elements: sum over its tensors */
	size_t first_tensor; /* index */
	size_t tensor_count;
};

struct description_tensor {
	char *name;
	size_t layer_index;
	size_t rank;
	uint64_t dims[DESCRIPTION_RANK_MAX]; /* [rank], row-major */
	uint64_t offset;                     /* elements from the begin of the layer */
	uint64_t size;                       /* elements: product of dims, 1 for rank 0 */
};

struct description {
	unsigned inner_factor; /* inner optimiser state: inner_factor x size float32 per layer */
	char *config;          /* text of config.json; NULL: none */
	size_t layer_count, tensor_count, fact_count;
	struct description_layer *layers;   /* [layer_count] */
	struct description_tensor *tensors; /* [tensor_count], in the order of layers */
	struct fact *facts;                 /* [fact_count] */
	uint64_t size;                      /* elements of all layers */
};

/* An empty description on the caller's memory. */
void description_init(struct description *description);
/* Frees what it owns. Safe on one that is all zero. */
void description_fini(struct description *description);

/* Appending; each returns 0, EDIT_ERROR_INVALID or EDIT_ERROR_RANGE (what is wrong is said in why; the description
 * is as it was), or EDIT_ERROR_SYSTEM (no memory). Texts are copied. */
int description_add_layer(struct description *description, const char *name, struct line *why);
/* To the layer added last; dims[rank]. */
int description_add_tensor(struct description *description, const char *name, const uint64_t *dims, size_t rank,
			   struct line *why);
int description_add_fact(struct description *description, const char *key, const char *value, struct line *why);
int description_set_config(struct description *description, const char *text, struct line *why);
int description_set_inner(struct description *description, unsigned factor, struct line *why);

/* What only the whole can show: at least one layer; names of layers, tensors and keys of facts each given once; as
 * bytes at most DESCRIPTION_BYTES_MAX. EDIT_ERROR_INVALID or EDIT_ERROR_RANGE with a line. */
int description_check(const struct description *description, struct line *why);

/* Bytes of a description, and the writing of exactly that many into buffer. */
size_t description_bytes(const struct description *description);
void description_encode(const struct description *description, void *buffer);
/* Reads one; includes description_check. Memory taken is bounded by a small multiple of size_bytes.
 * EDIT_ERROR_MALFORMED, EDIT_ERROR_REFUSED (another version), or an error of the functions above, with a line.
 * ret_description is init'ed on success only, then the caller's to description_fini. */
int description_decode(const void *bytes, size_t size_bytes, struct description *ret_description, struct line *why);

/* XXH3 (64 bits) of an encoded description. */
uint64_t description_hash(const void *bytes, size_t size_bytes);

/* Index of a layer by name; EDIT_ERROR_UNKNOWN if there is none. */
int description_find_layer(const struct description *description, const char *name, size_t *ret_index);

#endif
