#ifndef EDIT_WORKER_PIECE_H
#define EDIT_WORKER_PIECE_H

/* A checkpoint of one member of a mesh (daemon/checkpoint.h): config.json, manifest.json and piece-C-of-M.safetensors, with
 * one float32 tensor [elements of the piece] for each layer, named like the layer. Reads and checks such folders; each
 * failure writes one line to error [error_size] and returns an error as those of worker/tensorfile.h. */

#include "core/base.h"
#include "worker/llama_layout.h"

/* What the manifest of a folder says, and the file once it is open. */
struct piece {
	const char *folder;                 /* borrowed */
	char run[64];
	uint64_t round;
	unsigned column, shards;            /* column from 0, below shards */
	char file_name[48];                 /* piece-C-of-M.safetensors, C from 1 */
	uint64_t file_bytes, config_bytes;  /* sizes and hashes that the two files must have */
	char file_hash[17], config_hash[17];
	struct tensorfile *file;            /* NULL until piece_open */
};

/* Who is told how much of a file has been hashed since the last time. */
struct piece_watch {
	void (*told)(void *object, uint64_t bytes);
	void *object;
};

/* Reads the manifest of a folder, and nothing else. EDIT_ERROR_INVALID: a folder of something else. */
int piece_read(struct piece *piece, const char *folder, char *error, size_t error_size);

/* Whether pieces [count] are all M pieces of one model after one round, in any order, each once. EDIT_ERROR_INVALID. */
int piece_check(const struct piece *pieces, unsigned count, char *error, size_t error_size);

/* Compares sizes and hashes of the folder's files with the manifest, reading all of them, and opens the tensors. */
int piece_open(struct piece *piece, const struct piece_watch *watch, char *error, size_t error_size);
/* Safe on one that was never opened. */
void piece_close(struct piece *piece);

/* Reads the piece's elements of a layer to their place in theta [llama_layer_size]. The piece is open. */
int piece_fill(const struct piece *piece, const struct llama_config *config, unsigned layer, float *theta, char *error,
	       size_t error_size);

#endif
