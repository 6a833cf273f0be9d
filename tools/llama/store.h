/* SPDX-License-Identifier: MIT */
/*
 * State <-> blocks: where the state of token ranges goes when its slot is
 * needed.
 *
 * A range is block_tokens tokens at a multiple of block_tokens.  Its key is the
 * chained one of libkvmm: over the domain (weights, engine, what its bits
 * depend on), and all tokens up to its end.  So conversations that begin alike
 * share ranges, and a longer one serves the beginning of a shorter one.  The
 * engine's bytes of a range are cut into pieces of the pool's block size, each
 * a block of its own under a key that is wrapped around the range's.
 */
#ifndef KVMM_LLAMA_STORE_H
#define KVMM_LLAMA_STORE_H

#include "engine.h"

#include <kvmm.h>

struct store;

/**
 * struct store_opts - the pool
 * @backend: whose
 * @device: of the kernel's backend; NULL: /dev/kvmm
 * @pool: its name; one that exists already is used as it is
 * @block_size: bytes; 0: chosen so that little is wasted
 * @memory: bytes of frames
 * @disk: bytes of slots
 * @swap: file or block device for them; NULL: a file without a name
 * @model_hash: SHA-256 of the weights
 * @tenant: keeps keys of tenants apart; NULL: none
 * @log: for messages of the library
 */
struct store_opts {
	enum kvmm_backend backend;
	const char *device;
	const char *pool;
	uint64_t block_size;
	uint64_t memory;
	uint64_t disk;
	const char *swap;
	const void *model_hash;
	const char *tenant;
	void (*log)(void *ctx, enum kvmm_log_level level, const char *text);
};

#define STORE_HASH_LEN	32

/**
 * struct store_info - what was opened
 * @backend: "kernel" or "user"
 * @io: how the area is driven
 * @found: the pool was there before
 * @block_size: bytes of a piece, at most
 * @pieces: blocks of a range
 */
struct store_info {
	const char *backend;
	const char *io;
	bool found;
	unsigned int block_size;
	unsigned int pieces;
};

/**
 * struct store_found - where restored ranges were
 * @memory: ranges that were in memory
 * @disk: ranges of which some was read back from the area
 * @refused: the engine did not take a range: it is dropped
 */
struct store_found {
	unsigned int memory;
	unsigned int disk;
	unsigned int refused;
};

/**
 * store_open() - open or make the pool
 * @out: set on success
 * @opts: which
 * @engine: whose state
 * @why: what went wrong, as a sentence
 * @len: bytes at @why
 *
 * Return: 0 or -errno.
 */
int store_open(struct store **out, const struct store_opts *opts,
	       const struct engine_info *engine, char *why, size_t len);

/**
 * store_close() - NULL is fine
 * @st: the store
 * @destroy: the pool goes, also one that the kernel would keep
 */
void store_close(struct store *st, bool destroy);

/** store_info() - what was opened */
const struct store_info *store_info(const struct store *st);

/**
 * store_restore() - append stored ranges to a slot
 * @st: the store
 * @e: the engine
 * @slot: it holds the tokens before range @first
 * @tokens: of the whole prompt
 * @first: range to begin with
 * @end: and to end before
 * @found: added to
 *
 * Stops at the first range that is not there, whole and right.
 * Return: ranges appended, or -errno where the store itself failed; what was
 * appended until then is in @found.
 */
long store_restore(struct store *st, struct engine *e, unsigned int slot,
		   const uint32_t *tokens, unsigned int first, unsigned int end,
		   struct store_found *found);

/**
 * store_save() - keep ranges that are not kept yet
 * @st: the store
 * @e: the engine
 * @slot: it holds the ranges
 * @tokens: of all of them
 * @nr: ranges from the first on
 * @cost_us: to compute one again
 *
 * Return: ranges that were not there before, or -errno.  With no room left,
 * the rest is not kept.
 */
long store_save(struct store *st, struct engine *e, unsigned int slot,
		const uint32_t *tokens, unsigned int nr, unsigned int cost_us);

/** store_evict() - move everything out of memory, to the area */
int store_evict(struct store *st);

/** store_stat() - the pool's counters */
int store_stat(struct store *st, struct kvmm_pool_stat *stat);

#endif /* KVMM_LLAMA_STORE_H */
