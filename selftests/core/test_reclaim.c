// SPDX-License-Identifier: MIT
/*
 * Making room: victims of allocation, and reclaim with and without an area.
 */
#include "fixture.h"

static void alloc_needs_no_io(void **state)
{
	struct fx f;
	u64 h[4];

	(void)state;
	fx_open(&f, 4, 8);
	fx_fill(&f, h, 1, 4);
	/* all would have to be written first */
	assert_int_equal(fx_alloc_fails(&f), -EAGAIN);
	assert_int_equal(fx_stat(&f).alloc_fails, 1);
	/* a young clean block goes before older ones that are not */
	fx_out(&f, h[2], 0);
	fx_alloc(&f);
	assert_int_equal(fx_query(&f, h[2]), KVMM_SWAPPED);
	assert_int_equal(fx_query(&f, h[0]), KVMM_RESIDENT);
	assert_int_equal(fx_stat(&f).evicted, 1);
	assert_int_equal(fx_alloc_fails(&f), -EAGAIN);
	fx_close(&f);
}

static void alloc_takes_clean_blocks_oldest_first(void **state)
{
	struct fx f;
	u64 h[4];
	int i;

	(void)state;
	fx_open(&f, 4, 8);
	fx_fill(&f, h, 1, 4);
	for (i = 3; i >= 0; i--)
		fx_out(&f, h[i], 0);
	for (i = 0; i < 4; i++) {
		fx_alloc(&f);
		assert_int_equal(fx_query(&f, h[i]), KVMM_SWAPPED);
	}
	assert_int_equal(fx_alloc_fails(&f), -ENOSPC);
	fx_close(&f);
}

static void alloc_purges_what_is_cheap(void **state)
{
	struct fx f;
	u64 dear, cheap, plain;

	(void)state;
	fx_open(&f, 3, 8);
	f.c.load_us = 100;
	plain = fx_block_with(&f, 1, 0, 0, 50, 0);
	dear = fx_block_with(&f, 2, 0, 0, 150, KVMM_BLOCK_RECOMPUTABLE);
	cheap = fx_block_with(&f, 3, 0, 0, 50, KVMM_BLOCK_RECOMPUTABLE);
	fx_alloc(&f);
	assert_int_equal(fx_query(&f, cheap), -ESTALE);
	assert_int_equal(fx_query(&f, dear), KVMM_RESIDENT);
	assert_int_equal(fx_query(&f, plain), KVMM_RESIDENT);
	assert_int_equal(fx_stat(&f).purged, 1);
	assert_int_equal(fx_alloc_fails(&f), -EAGAIN);
	fx_close(&f);
}

static void alloc_takes_the_expired(void **state)
{
	struct fx f;
	u64 h[2];

	(void)state;
	fx_open(&f, 2, 8);
	h[0] = fx_block(&f, 1);
	h[1] = fx_block_with(&f, 2, 0, 100, 0, 0);
	assert_int_equal(fx_alloc_fails(&f), -EAGAIN);
	f.now += 100;
	fx_alloc(&f);
	assert_int_equal(fx_query(&f, h[1]), -ESTALE);
	assert_int_equal(fx_query(&f, h[0]), KVMM_RESIDENT);
	assert_int_equal(fx_stat(&f).expired, 1);
	assert_int_equal(fx_stat(&f).purged, 0);
	fx_close(&f);
}

static void alloc_gives_what_it_has(void **state)
{
	struct kvmm_block_ref refs[4];
	struct fx f;
	u64 h[4];

	(void)state;
	fx_open(&f, 4, 8);
	fx_fill(&f, h, 1, 4);
	fx_out(&f, h[1], 0);
	fx_out(&f, h[3], 0);
	assert_int_equal(kvmm_core_alloc(&f.c, f.me, 1, f.now, refs, 4), 2);
	fx_check(&f);
	assert_int_equal(fx_stat(&f).alloc_fails, 2);
	fx_close(&f);
}

static void reclaim_purges_without_an_area(void **state)
{
	struct kvmm_reclaim_count count = { 0 };
	struct fx f;
	u64 h[6];

	(void)state;
	fx_open(&f, 8, 0);
	fx_fill(&f, h, 1, 6);
	assert_int_equal(fx_pin(&f, h[0]), 0);
	assert_int_equal(fx_reclaim(&f, 6, &count), 6);
	assert_int_equal(count.purged, 0);
	assert_int_equal(fx_reclaim(&f, 4, &count), 4);
	assert_int_equal(count.purged, 2);
	assert_int_equal(count.evicted, 0);
	assert_true(fx_has(&f, 1));
	assert_false(fx_has(&f, 2) || fx_has(&f, 3));
	/* what is pinned or being filled stays */
	fx_alloc(&f);
	assert_int_equal(fx_reclaim(&f, 0, &count), 2);
	assert_int_equal(count.purged, 5);
	fx_close(&f);
}

static void reclaim_writes_in_order(void **state)
{
	struct kvmm_reclaim_count count = { 0 };
	struct kvmm_io io[4];
	struct fx f;
	u64 h[6];
	u32 i;

	(void)state;
	fx_open(&f, 8, 8);
	fx_fill(&f, h, 1, 6);
	fx_out(&f, h[1], 0);
	/* one of the four is clean; the room for three moves is enough */
	assert_int_equal(kvmm_core_reclaim(&f.c, 2, f.now, io, 4, &count), 3);
	fx_check(&f);
	assert_int_equal(count.evicted, 1);
	assert_true(io[0].handle == h[0]);
	assert_true(io[1].handle == h[2]);
	assert_true(io[2].handle == h[3]);
	assert_int_equal(fx_query(&f, h[1]), KVMM_SWAPPED);
	/* frames of writes handed out count as given up */
	assert_int_equal(kvmm_core_reclaim(&f.c, 2, f.now, io, 4, &count), 0);
	assert_int_equal(kvmm_core_frames_used(&f.c), 5);
	for (i = 0; i < 3; i++)
		fx_out_end(&f, io[i].handle, 0);
	assert_int_equal(kvmm_core_frames_used(&f.c), 2);
	for (i = 0; i < 4; i++)
		assert_int_equal(fx_query(&f, h[i]), KVMM_SWAPPED);
	assert_int_equal(kvmm_core_reclaim(&f.c, 2, f.now, io, 4, &count), 0);
	assert_int_equal(fx_stat(&f).evicted, 4);
	assert_int_equal(count.purged, 0);
	fx_close(&f);
}

static void reclaim_hands_out_what_there_is_room_for(void **state)
{
	struct kvmm_reclaim_count count = { 0 };
	struct kvmm_io io[2];
	struct fx f;
	u64 h[6];

	(void)state;
	fx_open(&f, 8, 8);
	fx_fill(&f, h, 1, 6);
	assert_int_equal(kvmm_core_reclaim(&f.c, 0, f.now, io, 2, &count), 2);
	fx_check(&f);
	fx_out_end(&f, io[1].handle, 0);
	fx_out_end(&f, io[0].handle, 0);
	assert_int_equal(fx_reclaim(&f, 0, &count), 0);
	fx_close(&f);
}

static void reclaim_is_overtaken(void **state)
{
	struct kvmm_reclaim_count count = { 0 };
	struct kvmm_io io[4];
	struct fx f;
	u64 h[2];

	(void)state;
	fx_open(&f, 2, 4);
	fx_fill(&f, h, 1, 2);
	assert_int_equal(kvmm_core_reclaim(&f.c, 1, f.now, io, 4, &count), 1);
	assert_true(io[0].handle == h[0]);
	/* it is wanted again: the other one has to go in its place */
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MEMORY);
	fx_out_end(&f, h[0], 0);
	assert_int_equal(fx_query(&f, h[0]), KVMM_CLEAN);
	assert_int_equal(kvmm_core_reclaim(&f.c, 1, f.now, io, 4, &count), 1);
	assert_true(io[0].handle == h[1]);
	fx_out_end(&f, h[1], 0);
	assert_int_equal(kvmm_core_frames_used(&f.c), 1);
	fx_close(&f);
}

static void reclaim_joins_a_write(void **state)
{
	struct kvmm_reclaim_count count = { 0 };
	struct kvmm_io io[4];
	struct fx f;
	u64 h[2];

	(void)state;
	fx_open(&f, 2, 4);
	fx_fill(&f, h, 1, 2);
	assert_int_equal(fx_out_start(&f, h[0], 0, io), KVMM_IO_ISSUE);
	assert_int_equal(kvmm_core_reclaim(&f.c, 1, f.now, io, 4, &count), 0);
	fx_check(&f);
	fx_out_end(&f, h[0], 0);
	assert_int_equal(fx_reclaim(&f, 1, &count), 1);
	assert_int_equal(fx_query(&f, h[0]), KVMM_SWAPPED);
	assert_int_equal(fx_query(&f, h[1]), KVMM_RESIDENT);
	fx_close(&f);
}

static void reclaim_when_slots_run_out(void **state)
{
	struct kvmm_reclaim_count count = { 0 };
	struct fx f;
	u64 h[6];

	(void)state;
	fx_open(&f, 6, 2);
	fx_fill(&f, h, 1, 6);
	/* the two youngest end in the slots, the oldest are lost for them */
	assert_int_equal(fx_reclaim(&f, 0, &count), 0);
	assert_int_equal(fx_lookup(&f, 6, 0), KVMM_SWAP);
	assert_int_equal(fx_lookup(&f, 5, 0), KVMM_SWAP);
	assert_false(fx_has(&f, 1) || fx_has(&f, 2) || fx_has(&f, 3) ||
		     fx_has(&f, 4));
	fx_close(&f);
}

static void reclaim_of_a_degraded_pool_purges(void **state)
{
	struct kvmm_reclaim_count count = { 0 };
	struct kvmm_io io;
	struct fx f;
	u64 h[3];

	(void)state;
	fx_open(&f, 3, 3);
	fx_fill(&f, h, 1, 3);
	assert_int_equal(fx_out_start(&f, h[0], 0, &io), KVMM_IO_ISSUE);
	fx_out_end(&f, h[0], -EIO);
	assert_int_equal(fx_reclaim(&f, 1, &count), 1);
	assert_int_equal(count.purged, 2);
	fx_close(&f);
}

/* More pinned blocks than are looked at to find a victim. */
static void many_pinned_blocks(void **state)
{
	struct fx f;
	u32 i, n = 3 * KVMM_SCAN_MAX;
	u64 h, first = 0;

	(void)state;
	fx_open(&f, n + 1, 0);
	for (i = 0; i < n; i++) {
		h = fx_block(&f, 1 + i);
		if (!i)
			first = h;
		assert_int_equal(fx_pin(&f, h), 0);
	}
	fx_block(&f, 100000);
	/* one block can be had; it may take some calls to come to it */
	for (i = 0; i < 8; i++) {
		struct kvmm_block_ref ref;
		int ret = kvmm_core_alloc(&f.c, f.me, 1, f.now, &ref, 1);

		if (ret == 1)
			break;
		assert_int_equal(ret, -EAGAIN);
	}
	fx_check(&f);
	assert_true(i < 8);
	assert_int_equal(fx_query(&f, first), KVMM_RESIDENT);
	assert_int_equal(fx_alloc_fails(&f), -ENOSPC);
	fx_close(&f);
}

/* Reclaim comes to what is behind them, in some calls. */
static void reclaim_behind_many_pinned_blocks(void **state)
{
	u32 i, n = 3 * KVMM_SCAN_MAX;
	struct fx f;

	(void)state;
	fx_open(&f, n + 2, 0);
	for (i = 0; i < n; i++)
		assert_int_equal(fx_pin(&f, fx_block(&f, 1 + i)), 0);
	fx_block(&f, 100000);
	fx_block(&f, 100001);
	assert_int_equal(fx_reclaim(&f, n + 1, NULL), n + 1);
	assert_false(fx_has(&f, 100000));
	assert_int_equal(fx_reclaim(&f, 0, NULL), n);
	assert_false(fx_has(&f, 100001));
	fx_close(&f);
}

static void reclaim_behind_many_reads(void **state)
{
	struct kvmm_io io;
	u64 h[300], last;
	struct fx f;
	u32 i;

	(void)state;
	fx_open(&f, 301, 300);
	fx_fill(&f, h, 1, 300);
	for (i = 0; i < 300; i++)
		fx_out(&f, h[i], KVMM_SWAP_DROP);
	for (i = 0; i < 300; i++)
		assert_int_equal(fx_in_start(&f, h[i], i % 2 * KVMM_SWAP_PIN,
					     &io), KVMM_IO_ISSUE);
	last = fx_block_with(&f, 1000, 0, 0, 1, KVMM_BLOCK_RECOMPUTABLE);
	f.c.load_us = 2;
	assert_int_equal(fx_reclaim(&f, 0, NULL), 300);
	assert_int_equal(fx_query(&f, last), -ESTALE);
	for (i = 0; i < 300; i++)
		fx_in_end(&f, h[i], 0);
	assert_int_equal(fx_reclaim(&f, 0, NULL), 150);
	fx_close(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(alloc_needs_no_io),
	cmocka_unit_test(alloc_takes_clean_blocks_oldest_first),
	cmocka_unit_test(alloc_purges_what_is_cheap),
	cmocka_unit_test(alloc_takes_the_expired),
	cmocka_unit_test(alloc_gives_what_it_has),
	cmocka_unit_test(reclaim_purges_without_an_area),
	cmocka_unit_test(reclaim_writes_in_order),
	cmocka_unit_test(reclaim_hands_out_what_there_is_room_for),
	cmocka_unit_test(reclaim_is_overtaken),
	cmocka_unit_test(reclaim_joins_a_write),
	cmocka_unit_test(reclaim_when_slots_run_out),
	cmocka_unit_test(reclaim_of_a_degraded_pool_purges),
	cmocka_unit_test(many_pinned_blocks),
	cmocka_unit_test(reclaim_behind_many_pinned_blocks),
	cmocka_unit_test(reclaim_behind_many_reads),
};

FX_TESTS(reclaim_tests, tests);
