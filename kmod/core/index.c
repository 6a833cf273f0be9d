// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The index: from a key to the block that has it.  A table with linear probing
 * by buckets of one cache line, which keep the hash beside the block's number,
 * so that a walk reads one line or two and no descriptor but the right one.
 * Keys come from clients, so they are hashed with the pool's secret: nobody can
 * aim at one place.
 *
 * SipHash-1-3 after Aumasson and Bernstein, "SipHash: a fast short-input PRF"
 * (INDOCRYPT 2012), for the fixed length of a key.
 */
#include "internal.h"

static inline u64 rotl64(u64 x, int n)
{
	return x << n | x >> (64 - n);
}

static __always_inline void sip_round(u64 v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = rotl64(v[1], 13) ^ v[0];
	v[3] = rotl64(v[3], 16) ^ v[2];
	v[0] = rotl64(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = rotl64(v[1], 17) ^ v[2];
	v[3] = rotl64(v[3], 21) ^ v[0];
	v[2] = rotl64(v[2], 32);
}

static __always_inline void sip_word(u64 v[4], u64 m)
{
	v[3] ^= m;
	sip_round(v);
	v[0] ^= m;
}

u64 core_siphash13(const u64 secret[2], const u8 *key)
{
	u64 v[4] = {
		secret[0] ^ 0x736f6d6570736575ULL,
		secret[1] ^ 0x646f72616e646f6dULL,
		secret[0] ^ 0x6c7967656e657261ULL,
		secret[1] ^ 0x7465646279746573ULL,
	};
	u64 m[KVMM_KEY_LEN / 8];

	memcpy(m, key, sizeof(m));	/* little endian only */
	sip_word(v, m[0]);
	sip_word(v, m[1]);
	sip_word(v, m[2]);
	sip_word(v, m[3]);
	sip_word(v, (u64)KVMM_KEY_LEN << 56);
	v[2] ^= 0xff;
	sip_round(v);
	sip_round(v);
	sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
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

/* One in each byte but the last, which counts. */
#define ONES	0x0001010101010101ULL

static __always_inline u32 nr_entries(const struct kvmm_index_bucket *b)
{
	return (u32)(b->tags >> 56);
}

static __always_inline bool is_full(const struct kvmm_index_bucket *b)
{
	return nr_entries(b) == KVMM_BUCKET;
}

static __always_inline u64 tag_of(u32 hash)
{
	return hash & 0xff;
}

/*
 * The high bit of byte K is set: entry K may be one with @hash, or, seldom, it
 * isn't.  All bytes at once: which of them it is can't be foretold, so a branch
 * for each entry would cost more.
 */
static __always_inline u64 match(const struct kvmm_index_bucket *b, u32 hash)
{
	u64 x = b->tags ^ ONES * tag_of(hash);

	return (x - ONES) & ~x & ONES << 7 & ((1ULL << 8 * nr_entries(b)) - 1);
}

static __always_inline u32 first_of(u64 m)
{
	return (u32)__builtin_ctzll(m) >> 3;
}

static __always_inline void set_tag(struct kvmm_index_bucket *b, u32 k, u64 tag)
{
	b->tags = (b->tags & ~(0xffULL << 8 * k)) | tag << 8 * k;
}

static void add_entry(struct kvmm_index_bucket *b, struct kvmm_index_entry e)
{
	u32 k = nr_entries(b);

	b->entry[k] = e;
	set_tag(b, k, tag_of(e.hash));
	b->tags += 1ULL << 56;
}

/* Entries stay packed to the front. */
static void remove_entry(struct kvmm_index_bucket *b, u32 k)
{
	u32 last = nr_entries(b) - 1;

	b->entry[k] = b->entry[last];
	set_tag(b, k, tag_of(b->entry[last].hash));
	b->tags -= 1ULL << 56;
}

u32 index_guess(const struct kvmm_core *c, u32 hash)
{
	const struct kvmm_index_bucket *b = bucket_at(c, index_home(c, hash));
	u64 m = match(b, hash);

	return m ? b->entry[first_of(m)].block : KVMM_NONE;
}

u32 index_find_room(const struct kvmm_core *c, const u8 *key, u32 hash,
		    struct kvmm_index_bucket **room)
{
	u32 at = index_home(c, hash), k;
	u64 m;

	*room = NULL;
	for (k = 0; k < KVMM_PROBE_MAX; k++, at = index_next(c, at)) {
		struct kvmm_index_bucket *b = bucket_at(c, at);

		for (m = match(b, hash); m; m &= m - 1) {
			struct kvmm_index_entry e = b->entry[first_of(m)];

			if (e.hash == hash &&
			    key_equal(block_at(c, e.block)->key, key))
				return e.block;
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
	add_entry(room, (struct kvmm_index_entry){ .block = i, .hash = hash });
	b->link = hash;
	b->flags |= KVMM_B_KEYED;
}

/* Is @x in the circular range (@from, @to]. */
static bool between(u32 x, u32 from, u32 to)
{
	return from <= to ? from < x && x <= to : from < x || x <= to;
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
			add_entry(bucket_at(c, hole), b->entry[k]);
			remove_entry(b, k);
			hole = at;
		}
		if (n < KVMM_BUCKET)
			break;
		at = index_next(c, at);
	}
}

/* Which of the entries is block @i's, KVMM_BUCKET: none. */
static __always_inline u32 entry_of(const struct kvmm_index_bucket *b, u32 hash,
				    u32 i)
{
	u64 m;

	for (m = match(b, hash); m; m &= m - 1)
		if (b->entry[first_of(m)].block == i)
			return first_of(m);
	return KVMM_BUCKET;
}

void index_del(struct kvmm_core *c, struct kvmm_block *b, u32 i)
{
	struct kvmm_index_bucket *bucket;
	u32 at, entry, k;
	bool full;

	if (!(b->flags & KVMM_B_KEYED))
		return;
	b->flags &= ~KVMM_B_KEYED;
	at = index_home(c, b->link);
	for (k = 0;; k++, at = index_next(c, at)) {
		bucket = bucket_at(c, at);
		entry = entry_of(bucket, b->link, i);
		if (entry < KVMM_BUCKET)
			break;
		if (core_bug_on(k > c->nr_buckets))
			return;
	}
	full = is_full(bucket);
	remove_entry(bucket, entry);
	if (unlikely(full))
		fill_hole(c, at);
}
