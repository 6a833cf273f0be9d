// SPDX-License-Identifier: MIT
/*
 * The index: its hash against the published vectors, chains, and an attack on
 * one bucket.
 */
#include "fixture.h"

#include "core/internal.h"

static u64 rotate(u64 x, int n)
{
	return x << n | x >> (64 - n);
}

static void sip_round(u64 v[4])
{
	v[0] += v[1];
	v[1] = rotate(v[1], 13) ^ v[0];
	v[0] = rotate(v[0], 32);
	v[2] += v[3];
	v[3] = rotate(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotate(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotate(v[1], 17) ^ v[2];
	v[2] = rotate(v[2], 32);
}

/* SipHash-c-d of any length, as the paper's figure 2.1 has it. */
static u64 siphash(int c, int d, const u64 k[2], const u8 *in, size_t len)
{
	u64 v[4] = {
		k[0] ^ 0x736f6d6570736575ULL, k[1] ^ 0x646f72616e646f6dULL,
		k[0] ^ 0x6c7967656e657261ULL, k[1] ^ 0x7465646279746573ULL,
	};
	size_t i, j;

	for (i = 0; i <= len / 8; i++) {
		u64 m = 0;

		for (j = 0; j < 8 && 8 * i + j < len; j++)
			m |= (u64)in[8 * i + j] << (8 * j);
		if (i == len / 8)
			m |= (u64)(len & 0xff) << 56;
		v[3] ^= m;
		for (j = 0; j < (size_t)c; j++)
			sip_round(v);
		v[0] ^= m;
	}
	v[2] ^= 0xff;
	for (j = 0; j < (size_t)d; j++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static void siphash_is_siphash(void **state)
{
	static const u64 k[2] = {
		0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL
	};
	u8 in[64];
	u64 secret[2], seed = 1;
	int i, j;

	(void)state;
	for (i = 0; i < 64; i++)
		in[i] = (u8)i;
	/* the paper's appendix A, and the vectors of SipHash-1-3 */
	assert_true(siphash(2, 4, k, in, 15) == 0xa129ca6149be45e5ULL);
	assert_true(siphash(1, 3, k, in, 0) == 0xabac0158050fc4dcULL);
	assert_true(siphash(1, 3, k, in, 1) == 0xc9f49bf37d57ca93ULL);
	assert_true(siphash(1, 3, k, in, 32) == 0x81157b6c16a7b60dULL);
	assert_true(core_siphash13(k, in) == 0x81157b6c16a7b60dULL);
	for (i = 0; i < 1000; i++) {
		for (j = 0; j < 32; j++) {
			seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
			in[j] = (u8)(seed >> 56);
		}
		secret[0] = seed ^ seed >> 17;
		secret[1] = seed * 3;
		assert_true(core_siphash13(secret, in) ==
			    siphash(1, 3, secret, in, 32));
	}
}

static void keys_differ_in_any_bit(void **state)
{
	struct kvmm_publish_entry e;
	struct kvmm_block_ref ref;
	struct kvmm_cursor cur = { 0 };
	struct fx f;
	int bit;

	(void)state;
	fx_open(&f, 2, 0);
	e = fx_entry(fx_alloc(&f), 1);
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), 0);
	for (bit = 0; bit < 256; bit++) {
		e.key[bit / 8] ^= (u8)(1 << bit % 8);
		kvmm_core_lookup(&f.c, f.me, 0, f.now, &cur, e.key, &ref, 1);
		assert_int_equal(ref.result, KVMM_MISS);
		e.key[bit / 8] ^= (u8)(1 << bit % 8);
	}
	kvmm_core_lookup(&f.c, f.me, 0, f.now, &cur, e.key, &ref, 1);
	assert_int_equal(ref.result, KVMM_MEMORY);
	fx_close(&f);
}

/* The secret matters: other pools put the same keys elsewhere. */
static void the_secret_matters(void **state)
{
	struct fx a, b;
	u8 key[KVMM_KEY_LEN];
	u32 same = 0;
	u64 i;

	(void)state;
	fx_open(&a, 256, 0);
	fx_config(&b, 256, 0);
	b.cfg.secret[1] ^= 1;
	assert_int_equal(kvmm_core_init(&b.c, &b.cfg), 0);
	for (i = 0; i < 256; i++) {
		fx_key(key, i);
		same += index_hash(&a.c, key) % 256 ==
			index_hash(&b.c, key) % 256;
	}
	assert_true(same < 16);
	fx_close(&a);
	fx_close(&b);
}

#define WALK	(KVMM_PROBE_MAX * KVMM_BUCKET)	/* entries of the longest walk */

/*
 * Keys chosen with the secret known: all belong at the start of the index, so
 * that a walk from there grows to its bound.
 */
static void a_walk_is_bounded(void **state)
{
	u64 *ids = test_calloc(WALK + 72, sizeof(*ids)), id = 0;
	struct kvmm_publish_entry e;
	u8 key[KVMM_KEY_LEN];
	struct fx f;
	u32 i, n = 0;
	u64 h;

	(void)state;
	fx_open(&f, 2 * WALK, 0);
	f.lazy = true;
	while (n < WALK + 72) {
		fx_key(key, ++id);
		if ((u64)index_hash(&f.c, key) * f.c.nr_buckets >> 32 < 8)
			ids[n++] = id;
	}
	for (i = 0; i < WALK - 8; i++)
		fx_block(&f, ids[i]);
	/* within the next few the walk is too long for one */
	for (h = 0; i < WALK + 72; i++) {
		h = fx_alloc(&f);
		e = fx_entry(h, ids[i]);
		if (fx_publish_entry(&f, f.me, 0, &e))
			break;
	}
	assert_int_equal(e.result, -ENOBUFS);
	f.lazy = false;
	/* nothing was done: pinned, and good for another key */
	assert_int_equal(fx_query(&f, h), KVMM_FILLING);
	assert_int_equal(fx_stat(&f).pins, 1);
	/* a few that go make room, wherever in the run they were */
	f.lazy = true;
	for (n = 40; n < 200; n++) {
		fx_drop(&f, fx_lookup_by(&f, f.me, ids[n], 0).handle);
		if (!fx_publish(&f, h, ids[i]))
			break;
	}
	assert_true(n < 200);
	for (id = 0; id <= i; id++)
		assert_int_equal(fx_has(&f, ids[id]), id < 40 || id > n);
	for (id = 0; id <= i; id += 2)
		fx_drop(&f, fx_lookup_by(&f, f.me, ids[id], 0).handle);
	for (id = 0; id <= i; id++)
		assert_int_equal(fx_has(&f, ids[id]),
				 id % 2 && (id < 40 || id > n));
	fx_close(&f);
	test_free(ids);
}

/* Runs that go round the end of the index; any one of them may go. */
static void a_run_goes_round_the_end(void **state)
{
	u64 ids[40], id = 0;
	u8 key[KVMM_KEY_LEN];
	struct fx f;
	u32 i, k, n = 0;

	(void)state;
	fx_open(&f, 64, 0);
	while (n < 40) {
		u32 home;

		fx_key(key, ++id);
		home = (u64)index_hash(&f.c, key) * f.c.nr_buckets >> 32;
		if (home >= f.c.nr_buckets - 2 || home < 1)
			ids[n++] = id;
	}
	for (k = 0; k < 40; k++) {
		for (i = 0; i < 40; i++)
			if (!fx_has(&f, ids[i]))
				fx_block(&f, ids[i]);
		fx_drop(&f, fx_lookup_by(&f, f.me, ids[k], 0).handle);
		fx_drop(&f, fx_lookup_by(&f, f.me, ids[(k * 5 + 1) % 40],
					 0).handle);
		for (i = 0; i < 40; i++)
			assert_int_equal(fx_has(&f, ids[i]),
					 i != k && i != (k * 5 + 1) % 40);
	}
	fx_close(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(siphash_is_siphash),
	cmocka_unit_test(keys_differ_in_any_bit),
	cmocka_unit_test(the_secret_matters),
	cmocka_unit_test(a_walk_is_bounded),
	cmocka_unit_test(a_run_goes_round_the_end),
};

FX_TESTS(index_tests, tests);
