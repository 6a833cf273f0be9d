/* SPDX-License-Identifier: MIT */
/*
 * What store.c and store_open.c share.
 */
#ifndef KVMM_LLAMA_STORE_IMPL_H
#define KVMM_LLAMA_STORE_IMPL_H

#include "store.h"

#define STORE_WINDOW	32	/* most ranges that are looked up at once */

/**
 * struct store - an open pool
 * @info: for others
 * @kv: the library
 * @pool: the pool
 * @name: its name
 * @keyer: makes keys
 * @tokens: of a range
 * @bytes: of a range's state
 * @window: ranges at once
 * @range: one range's state
 * @keys: of ranges, grows
 * @max_keys: room there
 * @piece_keys: of a window's pieces
 * @refs: a window's pieces
 * @away: those of them that are not in memory
 * @entries: a range's pieces, to be published
 */
struct store {
	struct store_info info;
	struct kvmm *kv;
	struct kvmm_pool *pool;
	char name[KVMM_NAME_LEN];
	struct kvmm_keyer *keyer;
	unsigned int tokens;
	size_t bytes;
	unsigned int window;
	char *range;
	uint8_t *keys;
	size_t max_keys;
	uint8_t *piece_keys;
	struct kvmm_block_ref *refs;
	struct kvmm_block_ref *away;
	struct kvmm_publish_entry *entries;
};

#endif /* KVMM_LLAMA_STORE_IMPL_H */
