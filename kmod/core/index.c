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

u64 core_siphash13(const u64 secret[2], const u8 *key)
{
	u64 v0 = secret[0] ^ 0x736f6d6570736575ULL;
	u64 v1 = secret[1] ^ 0x646f72616e646f6dULL;
	u64 v2 = secret[0] ^ 0x6c7967656e657261ULL;
	u64 v3 = secret[1] ^ 0x7465646279746573ULL;
	u64 m;
	u32 k;

	for (k = 0; k < KVMM_KEY_LEN / 8; k++) {
		memcpy(&m, key + 8 * k, 8);	/* little endian only */
		v3 ^= m;
		SIPROUND;
		v0 ^= m;
	}
	m = (u64)KVMM_KEY_LEN << 56;
	v3 ^= m;
	SIPROUND;
	v0 ^= m;
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

/* Where an entry belongs: hashes in order, so any table size will do. */
static u32 index_home(const struct kvmm_core *c, u32 hash)
{
	return (u32)((u64)hash * c->index_size >> 32);
}

static u32 index_next(const struct kvmm_core *c, u32 at)
{
	return at + 1 < c->index_size ? at + 1 : 0;
}

void index_prefetch(const struct kvmm_core *c, u32 hash)
{
	core_prefetchw(entry_at(c, index_home(c, hash)));
}

static bool key_equal(const u8 *a, const u8 *b)
{
	u64 x[4], y[4];

	memcpy(x, a, sizeof(x));
	memcpy(y, b, sizeof(y));
	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]));
}

u32 index_guess(const struct kvmm_core *c, u32 hash)
{
	u32 at = index_home(c, hash), k;

	for (k = 0; k < KVMM_PROBE_MAX; k++, at = index_next(c, at)) {
		const struct kvmm_index_entry *e = entry_at(c, at);

		if (e->block == KVMM_NONE || e->hash == hash)
			return e->block;
	}
	return KVMM_NONE;
}

u32 index_find(const struct kvmm_core *c, const u8 *key, u32 hash)
{
	u32 at = index_home(c, hash), k;

	for (k = 0; k < KVMM_PROBE_MAX; k++, at = index_next(c, at)) {
		const struct kvmm_index_entry *e = entry_at(c, at);

		if (e->block == KVMM_NONE)
			break;
		if (e->hash == hash &&
		    key_equal(block_at(c, e->block)->key, key))
			return e->block;
	}
	return KVMM_NONE;
}

int index_add(struct kvmm_core *c, struct kvmm_block *b, u32 i, u32 hash)
{
	u32 at = index_home(c, hash), k;

	for (k = 0; k < KVMM_PROBE_MAX; k++, at = index_next(c, at)) {
		struct kvmm_index_entry *e = entry_at(c, at);

		if (e->block != KVMM_NONE)
			continue;
		e->block = i;
		e->hash = hash;
		b->link = hash;
		b->flags |= KVMM_B_KEYED;
		return 0;
	}
	return -ENOBUFS;
}

/* Is @x in the circular range (@from, @to]. */
static bool idx_between(u32 x, u32 from, u32 to)
{
	return from <= to ? from < x && x <= to : from < x || x <= to;
}

void index_del(struct kvmm_core *c, struct kvmm_block *b, u32 i)
{
	u32 hole, at, k = 0;

	if (!(b->flags & KVMM_B_KEYED))
		return;
	b->flags &= ~KVMM_B_KEYED;
	hole = index_home(c, b->link);
	while (entry_at(c, hole)->block != i) {
		if (core_bug_on(k++ > c->index_size))
			return;
		hole = index_next(c, hole);
	}
	/*
	 * Whatever follows in the same run and belongs at or before the hole
	 * moves up, so that no walk ends too early (Knuth, TAOCP 3, 6.4,
	 * algorithm R).
	 */
	for (at = index_next(c, hole); entry_at(c, at)->block != KVMM_NONE;
	     at = index_next(c, at)) {
		if (idx_between(index_home(c, entry_at(c, at)->hash), hole, at))
			continue;
		*entry_at(c, hole) = *entry_at(c, at);
		hole = at;
	}
	entry_at(c, hole)->block = KVMM_NONE;
}
