// SPDX-License-Identifier: MIT
/*
 * State <-> blocks, over libkvmm.  See store.h for what a range, a piece and a
 * key are.
 *
 * Restoring goes in windows, so that a prompt may be longer than the memory of
 * the pool: look up and pin what is in memory, bring the rest in, hand each
 * range to the engine, unpin.
 */
#include "store_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS		1000	/* for a frame that is being written out */

/* Bytes of piece @i: only the last one is shorter. */
static size_t piece_len(const struct store *st, unsigned int i)
{
	if (i + 1 < st->info.pieces)
		return st->info.block_size;
	return st->bytes - (size_t)i * st->info.block_size;
}

/* Keys of the first @nr ranges, at st->keys. */
static int range_keys(struct store *st, const uint32_t *tokens, unsigned int nr)
{
	long n;

	if (nr > st->max_keys) {
		uint8_t *more = realloc(st->keys, (size_t)nr * KVMM_KEY_LEN);

		if (!more)
			return -ENOMEM;
		st->keys = more;
		st->max_keys = nr;
	}
	n = kvmm_key_chain(st->keyer, NULL, tokens, (size_t)nr * st->tokens,
			   st->tokens, NULL, st->keys);
	return n < 0 ? (int)n : 0;
}

/* Keys of the pieces of @nr ranges from @first on, at st->piece_keys. */
static int piece_keys(struct store *st, unsigned int first, unsigned int nr)
{
	uint8_t *key = st->piece_keys;

	for (unsigned int r = first; r < first + nr; r++) {
		for (unsigned int i = 0; i < st->info.pieces; i++) {
			int err = kvmm_key_wrap(st->keyer, i,
						st->keys +
						(size_t)r * KVMM_KEY_LEN,
						KVMM_KEY_LEN, key);

			if (err)
				return err;
			key += KVMM_KEY_LEN;
		}
	}
	return 0;
}

/*
 * Bring in what of the first @n of st->refs is in the area.  Each entry whose
 * result is KVMM_MEMORY afterwards is pinned; what can't be brought in is a
 * miss, whatever the reason.
 */
static void bring_in(struct store *st, unsigned int n)
{
	unsigned int nr = 0, i, a;
	long r;

	for (i = 0; i < n; i++)
		if (st->refs[i].result == KVMM_SWAP)
			st->away[nr++] = st->refs[i];
	if (!nr)
		return;
	r = kvmm_swap_in(st->pool, st->away, nr, KVMM_SWAP_PIN);
	for (i = 0, a = 0; i < n; i++) {
		if (st->refs[i].result != KVMM_SWAP)
			continue;
		if (r >= 0 && st->away[a].result >= 0) {
			st->refs[i] = st->away[a];
			st->refs[i].result = KVMM_MEMORY;
		} else {
			st->refs[i].result = KVMM_MISS;
		}
		a++;
	}
}

/* One that is being read back counts as one that is in the area. */
static void settle_pending(struct store *st, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		struct kvmm_block_ref *ref = &st->refs[i];

		if (ref->result != KVMM_PENDING)
			continue;
		/* the lookup's pin would be one too many after the swap-in's */
		kvmm_unpin(st->pool, ref, 1);
		ref->result = KVMM_SWAP;
	}
}

static void unpin_all(struct store *st, unsigned int n)
{
	unsigned int nr = 0;

	for (unsigned int i = 0; i < n; i++)
		if (st->refs[i].result == KVMM_MEMORY)
			st->refs[nr++] = st->refs[i];
	if (nr)
		kvmm_unpin(st->pool, st->refs, nr);
}

/* Hand a range, all of whose pieces are pinned, to the engine. */
static int load_range(struct store *st, struct engine *e, unsigned int slot,
		      unsigned int range, struct kvmm_block_ref *refs)
{
	for (unsigned int i = 0; i < st->info.pieces; i++)
		memcpy(st->range + (size_t)i * st->info.block_size,
		       kvmm_addr(st->pool, &refs[i]), piece_len(st, i));
	return engine_load(e, slot, range * st->tokens, st->range);
}

/* Are all pieces of a range in memory? */
static bool complete(const struct store *st, const struct kvmm_block_ref *refs)
{
	for (unsigned int i = 0; i < st->info.pieces; i++)
		if (refs[i].result != KVMM_MEMORY)
			return false;
	return true;
}

/* Ranges appended, of @nr from @first on; fewer where one is missing. */
static long restore_window(struct store *st, struct engine *e,
			   unsigned int slot, unsigned int first,
			   unsigned int nr, struct store_found *found)
{
	unsigned int p = st->info.pieces, n = nr * p, i, done = 0;
	bool disk[STORE_WINDOW] = { false };
	long prefix, whole;
	int err = piece_keys(st, first, nr);

	if (err)
		return err;
	prefix = kvmm_lookup(st->pool, st->piece_keys, st->refs, n,
			     KVMM_LOOKUP_PIN | KVMM_LOOKUP_PREFIX);
	if (prefix < 0)
		return prefix;
	settle_pending(st, n);
	whole = prefix / p;
	for (i = 0; i < whole * p; i++)
		if (st->refs[i].result == KVMM_SWAP)
			disk[i / p] = true;
	bring_in(st, (unsigned int)whole * p);
	for (; done < whole && !err; done++) {
		struct kvmm_block_ref *refs = &st->refs[done * p];

		if (!complete(st, refs))
			break;
		err = load_range(st, e, slot, first + done, refs);
		if (err)
			break;
		found->memory += !disk[done];
		found->disk += disk[done];
	}
	if (err == -EBADMSG) {
		/* right bytes, but no use: another engine's, for all we know */
		found->refused++;
		memcpy(st->away, &st->refs[done * p], p * sizeof(st->away[0]));
		unpin_all(st, n);
		kvmm_drop(st->pool, st->away, p);
		return done;
	}
	unpin_all(st, n);
	return err ? err : (long)done;
}

long store_restore(struct store *st, struct engine *e, unsigned int slot,
		   const uint32_t *tokens, unsigned int first, unsigned int end,
		   struct store_found *found)
{
	unsigned int at = first;
	int err = range_keys(st, tokens, end);

	if (err)
		return err;
	while (at < end) {
		unsigned int nr = end - at;
		long n;

		if (nr > st->window)
			nr = st->window;
		n = restore_window(st, e, slot, at, nr, found);
		if (n < 0)
			return n;
		at += (unsigned int)n;
		if (n < nr)
			break;
	}
	return at - first;
}

/* Blocks for the pieces of a range; fewer than all: none. */
static int alloc_pieces(struct store *st, struct kvmm_block_ref *refs)
{
	unsigned int p = st->info.pieces;
	long n = kvmm_alloc(st->pool, refs, p, 1, WAIT_MS);

	if (n == p)
		return 0;
	/* a block that is being filled is freed with its last pin */
	if (n > 0)
		kvmm_unpin(st->pool, refs, (unsigned int)n);
	return n < 0 ? (int)n : -ENOSPC;
}

/* Save one range; @parent: the piece before its first one, set to its last. */
static int save_range(struct store *st, struct engine *e, unsigned int slot,
		      unsigned int range, uint64_t *parent,
		      unsigned int cost_us)
{
	struct kvmm_publish_entry *entries = st->entries;
	unsigned int p = st->info.pieces, i;
	long n;
	int err = engine_save(e, slot, range * st->tokens, st->range);

	if (!err)
		err = alloc_pieces(st, st->refs);
	if (!err)
		err = piece_keys(st, range, 1);
	if (err)
		return err;
	memset(entries, 0, p * sizeof(entries[0]));
	for (i = 0; i < p; i++) {
		memcpy(kvmm_addr(st->pool, &st->refs[i]),
		       st->range + (size_t)i * st->info.block_size,
		       piece_len(st, i));
		memcpy(entries[i].key, st->piece_keys + i * KVMM_KEY_LEN,
		       KVMM_KEY_LEN);
		entries[i].handle = st->refs[i].handle;
		entries[i].parent = i ? st->refs[i - 1].handle : *parent;
		entries[i].position = range * p + i;
		entries[i].length = (unsigned int)piece_len(st, i);
		entries[i].cost_us = cost_us / p;
	}
	n = kvmm_publish(st->pool, entries, p, 0);
	if (n < 0)
		return (int)n;
	for (i = 0; i < p; i++)
		if (entries[i].result && entries[i].result != -EEXIST)
			return entries[i].result;
	*parent = entries[p - 1].existing ? entries[p - 1].existing :
					    entries[p - 1].handle;
	return 0;
}

long store_save(struct store *st, struct engine *e, unsigned int slot,
		const uint32_t *tokens, unsigned int nr, unsigned int cost_us)
{
	unsigned int p = st->info.pieces, at, n, i;
	uint64_t parent = 0;
	long saved = 0;
	int err = range_keys(st, tokens, nr);

	for (at = 0; at < nr && !err; at += n) {
		bool there[STORE_WINDOW];
		uint64_t last[STORE_WINDOW];
		long found;

		n = nr - at < st->window ? nr - at : st->window;
		err = piece_keys(st, at, n);
		if (err)
			break;
		found = kvmm_lookup(st->pool, st->piece_keys, st->refs, n * p,
				    0);
		if (found < 0)
			return found;
		for (i = 0; i < n; i++) {
			there[i] = true;
			for (unsigned int k = 0; k < p; k++)
				there[i] &= st->refs[i * p + k].result !=
					    KVMM_MISS;
			last[i] = st->refs[i * p + p - 1].handle;
		}
		for (i = 0; i < n && !err; i++) {
			if (there[i]) {
				parent = last[i];
				continue;
			}
			err = save_range(st, e, slot, at + i, &parent, cost_us);
			saved += !err;
		}
	}
	/* no room: what comes behind would be of no use */
	if (err == -ENOSPC || err == -EAGAIN || err == -ETIMEDOUT)
		err = 0;
	return err ? err : saved;
}

int store_evict(struct store *st)
{
	return kvmm_reclaim(st->pool, 0, NULL);
}

int store_stat(struct store *st, struct kvmm_pool_stat *stat)
{
	return kvmm_pool_stat(st->pool, stat);
}
