// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The index: from a key to the block that has it.  A table with linear probing
 * that keeps the hash beside the block's number, so that a walk reads one or
 * two cache lines and no descriptor but the right one.  Keys come from clients,
 * so they are hashed with the pool's secret: nobody can aim at one place.
 *
 * SipHash-1-3 after Aumasson and Bernstein, "SipHash: a fast short-input PRF"
 * (INDOCRYPT 2012), for the fixed length of a key.
 */
#include "internal.h"

static inline u64 rotl64(u64 x, int n)
{
	return x << n | x >> (64 - n);
}

#define SIPROUND do {							\
	v0 += v1; v2 += v3;						\
	v1 = rotl64(v1, 13) ^ v0; v3 = rotl64(v3, 16) ^ v2;		\
	v0 = rotl64(v0, 32);						\
	v2 += v1; v0 += v3;						\
	v1 = rotl64(v1, 17) ^ v2; v3 = rotl64(v3, 21) ^ v0;		\
	v2 = rotl64(v2, 32);						\
} while (0)

#define SIPWORD(m) do {							\
	v3 ^= (m);							\
	SIPROUND;							\
	v0 ^= (m);							\
} while (0)

u64 core_siphash13(const u64 secret[2], const u8 *key)
{
	u64 v0 = secret[0] ^ 0x736f6d6570736575ULL;
	u64 v1 = secret[1] ^ 0x646f72616e646f6dULL;
	u64 v2 = secret[0] ^ 0x6c7967656e657261ULL;
	u64 v3 = secret[1] ^ 0x7465646279746573ULL;
	u64 m[KVMM_KEY_LEN / 8];

	memcpy(m, key, sizeof(m));	/* little endian only */
	SIPWORD(m[0]);
	SIPWORD(m[1]);
	SIPWORD(m[2]);
	SIPWORD(m[3]);
	SIPWORD((u64)KVMM_KEY_LEN << 56);
	v2 ^= 0xff;
	SIPROUND;
	SIPROUND;
	SIPROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}

u32 index_hash(const struct kvmm_core *c, const u8 *key)
{
	return (u32)core_siphash13(c->cfg.secret, key);
}

static bool key_equal(const u8 *a, const u8 *b)
{
	u64 x[4], y[4];

	memcpy(x, a, sizeof(x));
	memcpy(y, b, sizeof(y));
	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]));
}

static u32 index_next(const struct kvmm_core *c, u32 at)
{
	return at + 1 < c->nr_buckets ? at + 1 : 0;
}

/* Entries are packed to the front, so a bucket is full when its last is. */
static bool is_full(const struct kvmm_index_bucket *b)
{
	return b->entry[KVMM_BUCKET - 1].block != KVMM_NONE;
}

/*
 * All eight are compared, whatever is there: which of them it is can't be
 * foretold, so a branch for each would cost more.
 */
static __always_inline u32 match_hash(const struct kvmm_index_bucket *b,
				      u32 hash)
{
#define M(k) ((u32)(b->entry[k].hash == hash) << (k))
	return M(0) | M(1) | M(2) | M(3) | M(4) | M(5) | M(6) | M(7);
#undef M
}

static __always_inline u32 match_block(const struct kvmm_index_bucket *b, u32 i)
{
#define M(k) ((u32)(b->entry[k].block == i) << (k))
	return M(0) | M(1) | M(2) | M(3) | M(4) | M(5) | M(6) | M(7);
#undef M
}

static __always_inline u32 nr_entries(const struct kvmm_index_bucket *b)
{
#define M(k) (b->entry[k].block != KVMM_NONE)
	return M(0) + M(1) + M(2) + M(3) + M(4) + M(5) + M(6) + M(7);
#undef M
}

u32 index_guess(const struct kvmm_core *c, u32 hash)
{
	const struct kvmm_index_bucket *b = bucket_at(c, index_home(c, hash));
	u32 m = match_hash(b, hash);

	return m ? b->entry[__builtin_ctz(m)].block : KVMM_NONE;
}

u32 index_find_room(const struct kvmm_core *c, const u8 *key, u32 hash,
		    struct kvmm_index_bucket **room)
{
	u32 at = index_home(c, hash), m, k, i;

	*room = NULL;
	for (k = 0; k < KVMM_PROBE_MAX; k++, at = index_next(c, at)) {
		struct kvmm_index_bucket *b = bucket_at(c, at);

		for (m = match_hash(b, hash); m; m &= m - 1) {
			i = b->entry[__builtin_ctz(m)].block;
			if (i != KVMM_NONE && key_equal(block_at(c, i)->key, key))
				return i;
		}
		if (!is_full(b)) {
			*room = b;
			break;
		}
	}
	return KVMM_NONE;
}

u32 index_find(const struct kvmm_core *c, const u8 *key, u32 hash, u32 guess)
{
	struct kvmm_index_bucket *room;

	if (guess != KVMM_NONE) {
		const struct kvmm_block *b = block_at(c, guess);

		if ((b->flags & KVMM_B_KEYED) && key_equal(b->key, key))
			return guess;
	}
	return index_find_room(c, key, hash, &room);
}

void index_put(struct kvmm_index_bucket *room, struct kvmm_block *b, u32 i,
	       u32 hash)
{
	struct kvmm_index_entry *e = &room->entry[nr_entries(room)];

	e->block = i;
	e->hash = hash;
	b->link = hash;
	b->flags |= KVMM_B_KEYED;
}

/* Is @x in the circular range (@from, @to]. */
static bool between(u32 x, u32 from, u32 to)
{
	return from <= to ? from < x && x <= to : from < x || x <= to;
}

static void remove_entry(struct kvmm_index_bucket *b, u32 k)
{
	u32 last = nr_entries(b) - 1;

	b->entry[k] = b->entry[last];
	b->entry[last].block = KVMM_NONE;
}

/*
 * Bucket @hole was full and has room now.  A walk ends at the first bucket that
 * is not full, so an entry further on that belongs at or before the hole moves
 * there; and so on with the place that it leaves (Knuth, TAOCP 3, 6.4,
 * algorithm R, with buckets).
 */
static void fill_hole(struct kvmm_core *c, u32 hole)
{
	u32 at = index_next(c, hole), k;

	while (at != hole) {
		struct kvmm_index_bucket *b = bucket_at(c, at);
		u32 n = nr_entries(b);

		for (k = 0; k < n; k++)
			if (!between(index_home(c, b->entry[k].hash), hole,
				     at))
				break;
		if (k < n) {
			bucket_at(c, hole)->entry[KVMM_BUCKET - 1] = b->entry[k];
			remove_entry(b, k);
			hole = at;
		}
		if (n < KVMM_BUCKET)
			break;
		at = index_next(c, at);
	}
}

void index_del(struct kvmm_core *c, struct kvmm_block *b, u32 i)
{
	struct kvmm_index_bucket *bucket;
	u32 at, m, k;
	bool full;

	if (!(b->flags & KVMM_B_KEYED))
		return;
	b->flags &= ~KVMM_B_KEYED;
	at = index_home(c, b->link);
	for (k = 0;; k++, at = index_next(c, at)) {
		bucket = bucket_at(c, at);
		m = match_block(bucket, i);
		if (m)
			break;
		if (core_bug_on(k > c->nr_buckets))
			return;
	}
	full = is_full(bucket);
	remove_entry(bucket, (u32)__builtin_ctz(m));
	if (unlikely(full))
		fill_hole(c, at);
}
