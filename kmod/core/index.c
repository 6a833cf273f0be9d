// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The index: from a key to the block that has it.  Keys come from clients, so
 * they are hashed with the pool's secret: nobody can aim at one bucket.
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
	return (u32)core_siphash13(c->cfg.secret, key) & c->bucket_mask;
}

static bool key_equal(const u8 *a, const u8 *b)
{
	u64 x[4], y[4];

	memcpy(x, a, sizeof(x));
	memcpy(y, b, sizeof(y));
	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]));
}

u32 index_find(const struct kvmm_core *c, const u8 *key, u32 hash)
{
	u32 i = *bucket_at(c, hash);

	while (i != KVMM_NONE) {
		const struct kvmm_block *b = block_at(c, i);

		if (key_equal(b->key, key))
			return i;
		i = b->hash_next;
	}
	return KVMM_NONE;
}

int index_add(struct kvmm_core *c, struct kvmm_block *b, u32 i, u32 hash)
{
	u32 *head = bucket_at(c, hash);
	u32 n = 0, k;

	/* At most one block a bucket on average: a long chain is an attack. */
	for (k = *head; k != KVMM_NONE; k = block_at(c, k)->hash_next)
		if (++n >= KVMM_CHAIN_MAX)
			return -ENOBUFS;
	b->hash_next = *head;
	*head = i;
	b->flags |= KVMM_B_KEYED;
	return 0;
}

void index_del(struct kvmm_core *c, struct kvmm_block *b, u32 i)
{
	u32 *link;

	if (!(b->flags & KVMM_B_KEYED))
		return;
	link = bucket_at(c, index_hash(c, b->key));
	while (*link != i) {
		if (core_bug_on(*link == KVMM_NONE))
			return;
		link = &block_at(c, *link)->hash_next;
	}
	*link = b->hash_next;
	b->hash_next = KVMM_NONE;
	b->flags &= ~KVMM_B_KEYED;
}
