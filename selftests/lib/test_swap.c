// SPDX-License-Identifier: MIT
/*
 * Swapping: what comes back is what went out, byte for byte; results of each
 * entry; room made by reclaim, by allocation and by swapping in.
 */
#include "lt.h"

#include <stdlib.h>

#define NAME "lt-swap"

static struct kvmm_pool *swap_pool(struct lt *lt, unsigned int frames,
				   unsigned int slots, unsigned int flags)
{
	struct kvmm_pool *pool = lt_pool(lt, NAME, frames, slots, 0);

	lt_attach(pool, lt_path(lt), flags | KVMM_SWAP_UNLINK);
	return pool;
}

static void round_trip(struct lt *lt, unsigned int flags)
{
	struct kvmm_pool *pool = swap_pool(lt, 200, 300, flags);
	struct kvmm_block_ref refs[200];
	struct kvmm_pool_stat st;
	unsigned int i;

	lt_store(pool, refs, 0, 200, 0);
	/* Out and kept in memory. */
	assert_int_equal(kvmm_swap_out(pool, refs, 200, 0), 200);
	for (i = 0; i < 200; i++) {
		assert_int_equal(refs[i].result, 0);
		assert_true(refs[i].frame < 200);
	}
	assert_int_equal(lt_stat(pool).blocks[KVMM_CLEAN], 200);
	/* Already there: nothing moves. */
	assert_int_equal(kvmm_swap_out(pool, refs, 200, KVMM_SWAP_DROP), 200);
	for (i = 0; i < 200; i++)
		assert_int_equal(refs[i].frame, KVMM_NO_FRAME);
	st = lt_stat(pool);
	assert_int_equal(st.swap_outs, 200);
	assert_int_equal(st.swap_out_bytes, 200 * LT_BLOCK);
	assert_int_equal(st.blocks[KVMM_SWAPPED], 200);
	assert_int_equal(st.frames_free, 200);
	assert_int_equal(st.checksums, !(flags & KVMM_SWAP_NO_CHECKSUM));
	memset(kvmm_pool_arena(pool, NULL), 0xa5, 200 * LT_BLOCK);

	assert_int_equal(lt_find(pool, 17, 0, NULL), KVMM_SWAP);
	assert_int_equal(kvmm_pin(pool, refs, 1), 0);
	assert_int_equal(refs[0].result, -EAGAIN);
	assert_int_equal(kvmm_swap_in(pool, refs, 200, KVMM_SWAP_PIN), 200);
	for (i = 0; i < 200; i++)
		lt_check(kvmm_addr(pool, &refs[i]), i, LT_BLOCK);
	st = lt_stat(pool);
	assert_int_equal(st.swap_ins, 200);
	assert_int_equal(st.swap_in_bytes, 200 * LT_BLOCK);
	assert_int_equal(st.pins, 200);
	assert_int_equal(kvmm_swap_in(pool, refs, 200, KVMM_SWAP_PIN), 200);
	assert_int_equal(lt_stat(pool).pins, 400);
	assert_int_equal(lt_stat(pool).swap_ins, 200);
	assert_int_equal(lt_stat(pool).checksum_errors, 0);
	assert_int_equal(kvmm_unpin(pool, refs, 200), 200);
	assert_int_equal(kvmm_unpin(pool, refs, 200), 200);
	lt_end(lt, pool, NAME);
}

static void out_and_in(void **state)
{
	round_trip(*state, 0);
}

static void out_and_in_without_checksums(void **state)
{
	round_trip(*state, KVMM_SWAP_NO_CHECKSUM);
}

static void one_block(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = swap_pool(lt, 4, 4, 0);
	struct kvmm_block_ref ref;

	lt_store(pool, &ref, 5, 1, 0);
	assert_int_equal(kvmm_swap_out(pool, &ref, 1, KVMM_SWAP_DROP), 1);
	assert_int_equal(ref.frame, KVMM_NO_FRAME);
	memset(kvmm_pool_arena(pool, NULL), 0, 4 * LT_BLOCK);
	assert_int_equal(kvmm_swap_in(pool, &ref, 1, KVMM_SWAP_PIN), 1);
	lt_check(kvmm_addr(pool, &ref), 5, LT_BLOCK);
	lt_end(lt, pool, NAME);
}

static void odd_lengths(void **state)
{
	static const unsigned int len[] = { 1, 511, 512, 4095, 4096, 4097,
					    12345, LT_BLOCK - 1, LT_BLOCK };
	enum { N = sizeof(len) / sizeof(len[0]) };
	struct lt *lt = *state;
	struct kvmm_pool *pool = swap_pool(lt, N, N, 0);
	struct kvmm_block_ref refs[N];
	struct kvmm_publish_entry e[N];
	uint64_t bytes = 0;
	unsigned int i;

	assert_int_equal(kvmm_alloc(pool, refs, N, 1, 0), N);
	for (i = 0; i < N; i++) {
		lt_fill(kvmm_addr(pool, &refs[i]), i, len[i]);
		e[i] = lt_entry(refs[i].handle, i);
		e[i].length = len[i];
		bytes += len[i];
	}
	assert_int_equal(kvmm_publish(pool, e, N, 0), N);
	assert_int_equal(kvmm_swap_out(pool, refs, N, KVMM_SWAP_DROP), N);
	assert_int_equal(lt_stat(pool).swap_out_bytes, bytes);
	memset(kvmm_pool_arena(pool, NULL), 0xff, N * LT_BLOCK);
	assert_int_equal(kvmm_swap_in(pool, refs, N, KVMM_SWAP_PIN), N);
	for (i = 0; i < N; i++)
		lt_check(kvmm_addr(pool, &refs[i]), i, len[i]);
	lt_end(lt, pool, NAME);
}

static void block_sizes(void **state)
{
	static const unsigned int size[] = { 4096, 8192, 1 << 20, 2 << 20 };
	struct lt *lt = *state;
	unsigned int s, i;

	for (s = 0; s < sizeof(size) / sizeof(size[0]); s++) {
		struct kvmm_pool_opts o = {
			.size = sizeof(o),
			.name = NAME,
			.block_size = size[s],
			.nr_frames = 5,
			.nr_slots = 5,
		};
		struct kvmm_publish_entry e[5];
		struct kvmm_block_ref refs[5];
		struct kvmm_pool *pool;

		pool = lt_create(lt, &o);
		lt_attach(pool, lt_path(lt), KVMM_SWAP_UNLINK);
		assert_int_equal(kvmm_alloc(pool, refs, 5, 1, 0), 5);
		for (i = 0; i < 5; i++) {
			lt_fill(kvmm_addr(pool, &refs[i]), i, size[s]);
			e[i] = lt_entry(refs[i].handle, i);
			e[i].length = size[s];
		}
		assert_int_equal(kvmm_publish(pool, e, 5, 0), 5);
		assert_int_equal(kvmm_swap_out(pool, refs, 5, KVMM_SWAP_DROP),
				 5);
		memset(kvmm_pool_arena(pool, NULL), 0, 5 * (size_t)size[s]);
		assert_int_equal(kvmm_swap_in(pool, refs, 5, KVMM_SWAP_PIN), 5);
		for (i = 0; i < 5; i++)
			lt_check(kvmm_addr(pool, &refs[i]), i, size[s]);
		lt_end(lt, pool, NAME);
	}
}

static void entry_results(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, NAME, 8, 4, 0);
	struct kvmm_block_ref refs[8], q[3];

	lt_store(pool, refs, 0, 6, 0);
	/* No area yet. */
	assert_int_equal(kvmm_swap_out(pool, refs, 6, 0), 0);
	assert_int_equal(refs[5].result, -EOPNOTSUPP);
	assert_int_equal(kvmm_swap_in(pool, refs, 2, 0), 2);
	lt_attach(pool, lt_path(lt), KVMM_SWAP_UNLINK);

	assert_int_equal(kvmm_alloc(pool, &refs[6], 1, 1, 0), 1);
	q[0] = refs[6];
	q[1].handle = 0x123456789;
	q[2] = refs[0];
	assert_int_equal(kvmm_swap_out(pool, q, 3, 0), 1);
	assert_int_equal(q[0].result, -EBUSY);
	assert_int_equal(q[1].result, -ESTALE);
	assert_int_equal(q[2].result, 0);
	assert_int_equal(kvmm_swap_in(pool, q, 3, 0), 1);
	assert_int_equal(q[0].result, -EBUSY);
	assert_int_equal(q[1].result, -ESTALE);
	assert_int_equal(q[1].frame, KVMM_NO_FRAME);
	assert_int_equal(q[2].result, 0);
	/* Pinned blocks can be written, but keep their frame. */
	assert_int_equal(kvmm_pin(pool, refs + 1, 1), 1);
	assert_int_equal(kvmm_swap_out(pool, refs + 1, 1, KVMM_SWAP_DROP), 1);
	assert_true(refs[1].frame < 8);
	lt_check(kvmm_addr(pool, refs + 1), 1, LT_BLOCK);
	lt_end(lt, pool, NAME);
}

static void same_block_twice(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = swap_pool(lt, 4, 4, 0);
	struct kvmm_block_ref refs[6];
	unsigned int i;

	lt_store(pool, refs, 0, 1, 0);
	for (i = 1; i < 6; i++)
		refs[i] = refs[0];
	assert_int_equal(kvmm_swap_out(pool, refs, 6, KVMM_SWAP_DROP), 6);
	assert_int_equal(lt_stat(pool).swap_outs, 1);
	assert_int_equal(kvmm_swap_in(pool, refs, 6, KVMM_SWAP_PIN), 6);
	assert_int_equal(lt_stat(pool).swap_ins, 1);
	assert_int_equal(lt_stat(pool).pins, 6);
	lt_check(kvmm_addr(pool, refs), 0, LT_BLOCK);
	lt_end(lt, pool, NAME);
}

static void alloc_makes_room(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = swap_pool(lt, 100, 400, 0);
	struct kvmm_block_ref refs[100];
	unsigned int i, k, n, again = 0;
	long got;

	lt_store(pool, refs, 0, 100, 0);
	/* With a timeout it waits for the writes. */
	assert_int_equal(kvmm_alloc(pool, refs, 100, 1, 30000), 100);
	assert_int_equal(lt_stat(pool).blocks[KVMM_SWAPPED], 100);
	for (i = 0; i < 100; i++) {
		struct kvmm_publish_entry e = lt_entry(refs[i].handle, 100 + i);

		lt_fill(kvmm_addr(pool, &refs[i]), 100 + i, LT_BLOCK);
		assert_int_equal(kvmm_publish(pool, &e, 1, 0), 1);
	}
	/* Without one it says so while they are under way. */
	for (n = 0; n < 100; n += got) {
		got = kvmm_alloc(pool, refs + n, 100 - n, 1, 0);
		if (got == -EAGAIN) {
			got = 0;
			again++;
			assert_true(again < 10000000);
		}
		assert_true(got >= 0);
	}
	assert_int_equal(kvmm_unpin(pool, refs, 100), 100);
	/* All of the 200 are in the area. */
	for (k = 0; k < 200; k += 50) {
		for (i = 0; i < 50; i++)
			assert_int_equal(lt_find(pool, k + i, 0, &refs[i]),
					 KVMM_SWAP);
		assert_int_equal(kvmm_swap_in(pool, refs, 50, KVMM_SWAP_PIN),
				 50);
		for (i = 0; i < 50; i++)
			lt_check(kvmm_addr(pool, &refs[i]), k + i, LT_BLOCK);
		assert_int_equal(kvmm_unpin(pool, refs, 50), 50);
	}
	lt_end(lt, pool, NAME);
}

static void swap_in_makes_room(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = swap_pool(lt, 100, 400, 0);
	struct kvmm_block_ref a[100], b[100];
	struct kvmm_reclaim rc;
	unsigned int i;

	lt_store(pool, a, 0, 100, 0);
	assert_int_equal(kvmm_reclaim(pool, 0, &rc), 0);
	assert_int_equal(rc.evicted, 100);
	assert_int_equal(rc.in_use, 0);
	lt_store(pool, b, 100, 100, 0);
	/* Every frame has a block that must be written out first. */
	assert_int_equal(kvmm_swap_in(pool, a, 100, KVMM_SWAP_PIN), 100);
	for (i = 0; i < 100; i++)
		lt_check(kvmm_addr(pool, &a[i]), i, LT_BLOCK);
	/* And now none can be had. */
	assert_int_equal(kvmm_swap_in(pool, b, 100, 0), 0);
	assert_int_equal(b[0].result, -ENOSPC);
	assert_int_equal(kvmm_unpin(pool, a, 100), 100);
	assert_int_equal(kvmm_swap_in(pool, b, 100, KVMM_SWAP_PIN), 100);
	for (i = 0; i < 100; i++)
		lt_check(kvmm_addr(pool, &b[i]), 100 + i, LT_BLOCK);
	lt_end(lt, pool, NAME);
}

static void reclaim_takes_the_coldest(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = swap_pool(lt, 300, 100, 0);
	struct kvmm_block_ref refs[300];
	struct kvmm_reclaim rc;
	unsigned int i;
	int where;

	for (i = 0; i < 300; i++)
		lt_store(pool, refs + i, i, 1, 0);
	assert_int_equal(kvmm_reclaim(pool, 50, &rc), 0);
	assert_int_equal(rc.in_use, 50);
	/* 250 left memory; the area has room for the youngest 100 of them. */
	for (i = 0; i < 300; i++) {
		where = lt_find(pool, i, KVMM_LOOKUP_PEEK, &refs[i]);
		assert_int_equal(where, i < 150 ? KVMM_MISS :
				 i < 250 ? KVMM_SWAP : KVMM_MEMORY);
	}
	assert_int_equal(lt_stat(pool).slots_evicted, 150);
	assert_int_equal(rc.evicted + rc.purged, 250);
	assert_int_equal(lt_stat(pool).slots_free, 0);
	/* The oldest of them are lost to make room for what is kept. */
	assert_int_equal(kvmm_swap_in(pool, &refs[150], 100, KVMM_SWAP_PIN),
			 100);
	for (i = 150; i < 250; i++)
		lt_check(kvmm_addr(pool, &refs[i]), i, LT_BLOCK);
	lt_end(lt, pool, NAME);
}

/* Those met at the cold end that can't go must not hide those behind them. */
static void reclaim_looks_past_pinned(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, NAME, 400, 0, 0);
	struct kvmm_block_ref refs[400];
	struct kvmm_reclaim rc;

	lt_store(pool, refs, 398, 2, 0);
	/* In a chain the first is the youngest: the last stored go to its end. */
	lt_store(pool, refs, 0, 398, KVMM_PUBLISH_KEEP);
	assert_int_equal(kvmm_touch(pool, refs, 398), 398);
	assert_int_equal(lt_find(pool, 399, 0, &refs[399]), KVMM_MEMORY);
	assert_int_equal(lt_find(pool, 398, 0, &refs[398]), KVMM_MEMORY);
	/* 398 pinned blocks are older than the two that may go. */
	assert_int_equal(kvmm_reclaim(pool, 398, &rc), 0);
	assert_int_equal(rc.in_use, 398);
	assert_int_equal(rc.purged, 2);
	assert_int_equal(kvmm_reclaim(pool, 0, &rc), 0);
	assert_int_equal(rc.in_use, 398);
	assert_int_equal(kvmm_unpin(pool, refs, 398), 398);
	lt_end(lt, pool, NAME);
}

static void reclaim_of_expired(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, NAME, 300, 0,
					 KVMM_POOL_MANUAL_CLOCK);
	struct kvmm_publish_entry e;
	struct kvmm_block_ref ref;
	struct kvmm_reclaim rc;
	unsigned int i;

	for (i = 0; i < 300; i++) {
		assert_int_equal(kvmm_alloc(pool, &ref, 1, 1, 0), 1);
		e = lt_entry(ref.handle, i);
		e.expiry_ms = 10;
		assert_int_equal(kvmm_publish(pool, &e, 1, 0), 1);
	}
	assert_int_equal(kvmm_pool_clock(pool, 1000), 0);
	assert_int_equal(kvmm_reclaim(pool, 0, &rc), 0);
	assert_int_equal(rc.in_use, 0);
	assert_int_equal(lt_stat(pool).expired, 300);
	lt_end(lt, pool, NAME);
}

static void recomputable_is_purged(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = swap_pool(lt, 4, 4, 0);
	struct kvmm_publish_entry e;
	struct kvmm_block_ref ref;
	struct kvmm_reclaim rc;

	/* Nothing reads a block back from a disk in no time at all. */
	assert_int_equal(kvmm_alloc(pool, &ref, 1, 1, 0), 1);
	e = lt_entry(ref.handle, 1);
	e.flags = KVMM_BLOCK_RECOMPUTABLE;
	e.cost_us = 0;
	assert_int_equal(kvmm_publish(pool, &e, 1, 0), 1);
	assert_int_equal(kvmm_reclaim(pool, 0, &rc), 0);
	assert_int_equal(rc.purged, 1);
	assert_int_equal(rc.evicted, 0);
	assert_int_equal(lt_stat(pool).swap_outs, 0);
	lt_end(lt, pool, NAME);
}

static void dropped_while_swapped(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = swap_pool(lt, 8, 8, 0);
	struct kvmm_block_ref refs[8];

	lt_store(pool, refs, 0, 8, 0);
	assert_int_equal(kvmm_swap_out(pool, refs, 8, KVMM_SWAP_DROP), 8);
	assert_int_equal(kvmm_drop(pool, refs, 4), 4);
	assert_int_equal(lt_stat(pool).slots_free, 4);
	assert_int_equal(kvmm_swap_in(pool, refs, 8, 0), 4);
	assert_int_equal(refs[0].result, -ESTALE);
	assert_int_equal(refs[4].result, 0);
	lt_end(lt, pool, NAME);
}

int main(void)
{
	static const struct lt_test tests[] = {
		LT_TEST(out_and_in),
		LT_TEST(out_and_in_without_checksums),
		LT_TEST(one_block),
		LT_TEST(odd_lengths),
		LT_TEST(block_sizes),
		LT_TEST(entry_results),
		LT_TEST(same_block_twice),
		LT_TEST(alloc_makes_room),
		LT_TEST(swap_in_makes_room),
		LT_TEST(reclaim_takes_the_coldest),
		LT_TEST(reclaim_looks_past_pinned),
		LT_TEST(reclaim_of_expired),
		LT_TEST(recomputable_is_purged),
		LT_TEST(dropped_while_swapped),
	};

	return LT_RUN("swap", tests);
}
