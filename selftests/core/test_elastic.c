// SPDX-License-Identifier: MIT
/*
 * Frames that go offline again: which may, what becomes of their blocks, and in
 * which order frames are used so that whole units stay free.
 */
#include "fixture.h"

#define FLOOR	4U

static int offline(struct fx *f, u32 first, u32 n, u32 flags,
		   struct kvmm_reclaim_count *done)
{
	struct kvmm_reclaim_count mine = { 0 };
	int ret = kvmm_core_frames_offline(&f->c, first, n, flags, f->now,
					   done ? done : &mine);

	fx_check(f);
	return ret;
}

static u32 frame_of(struct fx *f, u64 handle)
{
	struct kvmm_block_ref ref = { .handle = handle };

	kvmm_core_query(&f->c, f->now, &ref, 1);
	return ref.frame;
}

/* Four blocks that keep the floor busy. */
static void fill_floor(struct fx *f)
{
	u32 i;

	for (i = 0; i < FLOOR; i++)
		assert_true(frame_of(f, fx_alloc(f)) < FLOOR);
}

static void geometry(void **state)
{
	static const u32 bad[][3] = {
		/* frames, elastic, unit */
		{ 8, 4, 0 }, { 8, 4, 3 }, { 8, 9, 1 }, { 8, 2, 4 },
		{ 6, 4, 4 }, { 8, 6, 4 },
	};
	struct fx f;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fx_config(&f, bad[i][0], 0);
		f.cfg.nr_elastic = bad[i][1];
		f.cfg.unit_frames = bad[i][2];
		assert_int_equal(kvmm_core_init(&f.c, &f.cfg), -EINVAL);
	}
	fx_open_elastic(&f, 8, 0, 8, 8);
	assert_int_equal(fx_stat(&f).nr_elastic, 8);
	fx_close(&f);
	/* without elastic frames the unit does not matter */
	fx_open_elastic(&f, 7, 0, 0, 3);
	assert_int_equal(offline(&f, 0, 1, 0, NULL), -EINVAL);
	assert_int_equal(kvmm_core_free_unit(&f.c, 7), KVMM_NONE);
	fx_close(&f);
}

static void floor_first_then_lowest(void **state)
{
	struct fx f;
	u64 h[12];
	u32 i;

	(void)state;
	fx_open_elastic(&f, 12, 0, 8, 4);
	for (i = 0; i < 12; i++) {
		h[i] = fx_alloc(&f);
		assert_int_equal(frame_of(&f, h[i]) < FLOOR, i < FLOOR);
		if (i >= FLOOR)
			assert_int_equal(frame_of(&f, h[i]), i);
	}
	/* given up in any order, the lowest goes first */
	fx_unpin(&f, h[11]);
	fx_unpin(&f, h[5]);
	fx_unpin(&f, h[8]);
	assert_int_equal(frame_of(&f, fx_alloc(&f)), 5);
	fx_unpin(&f, h[2]);
	assert_int_equal(frame_of(&f, fx_alloc(&f)), 2);
	assert_int_equal(frame_of(&f, fx_alloc(&f)), 8);
	assert_int_equal(frame_of(&f, fx_alloc(&f)), 11);
	fx_close(&f);
}

/* More than a word of bits, and more than a word of words. */
static void many_frames(void **state)
{
	u32 unit = 128, nr = 64 * 64 * 2 + unit, i, below;
	struct fx f;
	u64 h;

	(void)state;
	fx_config(&f, nr, 0);
	f.cfg.nr_elastic = nr;
	f.cfg.unit_frames = unit;
	f.lazy = true;
	assert_int_equal(kvmm_core_init(&f.c, &f.cfg), 0);
	f.me = kvmm_core_client_add(&f.c);
	for (i = 0; i < nr; i += 64)
		assert_int_equal(kvmm_core_frames_online(&f.c, i, 64), 64);
	f.lazy = false;
	fx_check(&f);
	for (below = nr; below; below -= unit)
		assert_int_equal(kvmm_core_free_unit(&f.c, below),
				 below - unit);
	h = fx_alloc(&f);
	assert_int_equal(frame_of(&f, h), 0);
	assert_int_equal(kvmm_core_free_unit(&f.c, unit), KVMM_NONE);
	assert_int_equal(kvmm_core_free_unit(&f.c, 2 * unit), unit);
	/* all but the last: it is found through three levels */
	for (i = 64; i < nr - 64; i += 64)
		assert_int_equal(offline(&f, i, 64, 0, NULL), 64);
	assert_int_equal(offline(&f, 1, 63, 0, NULL), 63);
	assert_int_equal(kvmm_core_free_unit(&f.c, nr), KVMM_NONE);
	assert_int_equal(frame_of(&f, fx_alloc(&f)), nr - 64);
	fx_unpin(&f, h);
	assert_int_equal(frame_of(&f, fx_alloc(&f)), 0);
	fx_close(&f);
}

static void free_units(void **state)
{
	struct fx f;
	u64 h;

	(void)state;
	fx_open_elastic(&f, 12, 0, 8, 4);
	assert_int_equal(kvmm_core_free_unit(&f.c, 12), 8);
	assert_int_equal(kvmm_core_free_unit(&f.c, 11), 4);
	assert_int_equal(kvmm_core_free_unit(&f.c, 8), 4);
	assert_int_equal(kvmm_core_free_unit(&f.c, 7), KVMM_NONE);
	assert_int_equal(kvmm_core_free_unit(&f.c, 13), KVMM_NONE);
	fill_floor(&f);
	h = fx_alloc(&f);
	assert_int_equal(kvmm_core_free_unit(&f.c, 8), KVMM_NONE);
	assert_int_equal(offline(&f, 8, 4, 0, NULL), 4);
	assert_int_equal(fx_stat(&f).frames_online, 8);
	assert_int_equal(fx_stat(&f).frames_free, 3);
	/* what is offline is not free */
	assert_int_equal(kvmm_core_free_unit(&f.c, 12), KVMM_NONE);
	fx_unpin(&f, h);
	assert_int_equal(kvmm_core_free_unit(&f.c, 12), 4);
	/* offline again is no news; and it can come back */
	assert_int_equal(offline(&f, 8, 4, 0, NULL), 0);
	assert_int_equal(kvmm_core_frames_online(&f.c, 8, 4), 4);
	assert_int_equal(kvmm_core_free_unit(&f.c, 12), 8);
	fx_close(&f);
}

static void bad_ranges(void **state)
{
	struct fx f;

	(void)state;
	fx_open_elastic(&f, 200, 0, 100, 1);
	assert_int_equal(offline(&f, 99, 1, 0, NULL), -EINVAL);
	assert_int_equal(offline(&f, 200, 1, 0, NULL), -EINVAL);
	assert_int_equal(offline(&f, 190, 11, 0, NULL), -EINVAL);
	assert_int_equal(offline(&f, 110, 65, 0, NULL), -EINVAL);
	assert_int_equal(offline(&f, KVMM_NONE, 1, 0, NULL), -EINVAL);
	assert_int_equal(offline(&f, 190, 10, 0, NULL), 10);
	fx_close(&f);
}

static void all_or_nothing(void **state)
{
	struct kvmm_reclaim_count done = { 0 };
	struct fx f;
	u64 h[4];

	(void)state;
	fx_open_elastic(&f, 8, 8, 4, 4);
	fill_floor(&f);
	fx_fill(&f, h, 1, 4);
	fx_out(&f, h[0], 0);
	fx_out(&f, h[1], 0);
	fx_out(&f, h[2], 0);
	/* the last one is in memory only */
	assert_int_equal(offline(&f, 4, 4, 0, &done), -EBUSY);
	assert_int_equal(offline(&f, 4, 4, KVMM_OFFLINE_HARD, &done), -EBUSY);
	assert_int_equal(fx_query(&f, h[0]), KVMM_CLEAN);
	assert_int_equal(done.evicted, 0);
	fx_out(&f, h[3], 0);
	assert_int_equal(offline(&f, 4, 4, KVMM_OFFLINE_TRY, &done), 4);
	assert_int_equal(fx_query(&f, h[0]), KVMM_CLEAN);
	assert_int_equal(fx_pin(&f, h[2]), 0);
	assert_int_equal(offline(&f, 4, 4, 0, &done), -EBUSY);
	assert_int_equal(fx_unpin(&f, h[2]), 0);
	assert_int_equal(offline(&f, 4, 4, 0, &done), 4);
	assert_int_equal(done.evicted, 4);
	assert_int_equal(done.purged, 0);
	assert_int_equal(fx_query(&f, h[3]), KVMM_SWAPPED);
	assert_int_equal(fx_stat(&f).evicted, 4);
	assert_int_equal(fx_stat(&f).frames_online, 4);
	assert_int_equal(fx_alloc_fails(&f), -ENOSPC);
	/* they are read back when there is memory again */
	assert_int_equal(kvmm_core_frames_online(&f.c, 4, 4), 4);
	fx_in(&f, h[3], 0);
	assert_int_equal(fx_query(&f, h[3]), KVMM_CLEAN);
	fx_close(&f);
}

static void not_while_moving(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 h;

	(void)state;
	fx_open_elastic(&f, 1, 2, 1, 1);
	h = fx_alloc(&f);
	assert_int_equal(offline(&f, 0, 1, 0, NULL), -EBUSY);
	assert_int_equal(fx_publish(&f, h, 1), 0);
	assert_int_equal(fx_out_start(&f, h, 0, &io), KVMM_IO_ISSUE);
	assert_int_equal(offline(&f, 0, 1, 1, NULL), -EBUSY);
	fx_out_end(&f, h, 0);
	assert_int_equal(fx_out_start(&f, h, KVMM_SWAP_DROP, &io),
			 KVMM_IO_NONE);
	assert_int_equal(fx_in_start(&f, h, 0, &io), KVMM_IO_ISSUE);
	assert_int_equal(offline(&f, 0, 1, 1, NULL), -EBUSY);
	fx_in_end(&f, h, 0);
	assert_int_equal(offline(&f, 0, 1, 0, NULL), 1);
	fx_close(&f);
}

static void what_may_be_purged(void **state)
{
	struct kvmm_reclaim_count done = { 0 };
	struct fx f;
	u64 h;

	(void)state;
	fx_open_elastic(&f, 3, 8, 3, 1);
	f.c.load_us = 100;
	fx_block_with(&f, 1, 0, 0, 50, 0);
	h = fx_block_with(&f, 2, 0, 0, 150, KVMM_BLOCK_RECOMPUTABLE);
	fx_block_with(&f, 3, 0, 0, 50, KVMM_BLOCK_RECOMPUTABLE);
	assert_int_equal(offline(&f, 0, 1, 0, &done), -EBUSY);
	assert_int_equal(offline(&f, 1, 1, 0, &done), -EBUSY);
	assert_int_equal(offline(&f, 2, 1, 0, &done), 1);
	assert_int_equal(done.purged, 1);
	assert_false(fx_has(&f, 3));
	/* hard: at any price, where it can be had again */
	assert_int_equal(offline(&f, 0, 1, KVMM_OFFLINE_HARD, &done), -EBUSY);
	assert_int_equal(fx_pin(&f, h), 0);
	assert_int_equal(offline(&f, 1, 1, KVMM_OFFLINE_HARD, &done), -EBUSY);
	assert_int_equal(fx_unpin(&f, h), 0);
	assert_int_equal(offline(&f, 1, 1, KVMM_OFFLINE_HARD, &done), 1);
	assert_false(fx_has(&f, 2));
	assert_true(fx_has(&f, 1));
	assert_int_equal(fx_stat(&f).purged, 2);
	/* with no area all is a cache */
	assert_int_equal(fx_detach(&f, true), 0);
	assert_int_equal(offline(&f, 0, 1, 0, &done), 1);
	assert_int_equal(done.purged, 3);
	assert_int_equal(fx_stat(&f).frames_online, 0);
	fx_close(&f);
}

static void expired_ones_go(void **state)
{
	struct kvmm_reclaim_count done = { 0 };
	struct fx f;

	(void)state;
	fx_open_elastic(&f, 2, 4, 2, 1);
	fx_block_with(&f, 1, 0, 100, 0, 0);
	fx_block(&f, 2);
	assert_int_equal(offline(&f, 0, 1, 0, &done), -EBUSY);
	f.now += 100;
	assert_int_equal(offline(&f, 0, 1, 0, &done), 1);
	assert_int_equal(offline(&f, 1, 1, 0, &done), -EBUSY);
	kvmm_core_reset(&f.c);
	assert_int_equal(offline(&f, 1, 1, 0, &done), 1);
	/* lost anyway, so nothing was evicted or purged for it */
	assert_int_equal(done.evicted + done.purged, 0);
	assert_int_equal(fx_stat(&f).expired, 1);
	assert_int_equal(fx_stat(&f).dropped, 1);
	fx_close(&f);
}

static void quarantined_ones_stay(void **state)
{
	struct fx f;
	u32 other;

	(void)state;
	fx_open_elastic(&f, 2, 0, 2, 1);
	other = kvmm_core_client_add(&f.c);
	fx_alloc_by(&f, other, 1);
	fx_client_del(&f, other);
	assert_int_equal(offline(&f, 0, 1, 1, NULL), -EBUSY);
	assert_int_equal(offline(&f, 1, 1, 1, NULL), 1);
	/* it comes free when someone wants it, and can go then */
	f.now += FX_QUARANTINE;
	assert_int_equal(fx_unpin(&f, fx_alloc(&f)), 0);
	assert_int_equal(offline(&f, 0, 1, 0, NULL), 1);
	fx_close(&f);
}

static void coldest_first(void **state)
{
	struct fx f;
	u64 h[6], cursor = 0;

	(void)state;
	fx_open_elastic(&f, 10, 10, 6, 2);
	fill_floor(&f);
	fx_fill(&f, h, 1, 6);
	assert_int_equal(kvmm_core_cold_frame(&f.c, 0, f.now, &cursor),
			 KVMM_NONE);
	assert_int_equal(cursor, 0);
	fx_out(&f, h[0], 0);
	fx_out(&f, h[3], 0);
	fx_out(&f, h[1], 0);
	fx_touch(&f, h[0]);
	assert_int_equal(fx_pin(&f, h[1]), 0);
	assert_int_equal(kvmm_core_cold_frame(&f.c, 0, f.now, &cursor),
			 frame_of(&f, h[3]));
	assert_int_not_equal(cursor, 0);
	/* going on where it stood */
	assert_int_equal(kvmm_core_cold_frame(&f.c, 0, f.now, &cursor),
			 frame_of(&f, h[0]));
	assert_int_equal(cursor, 0);
	/* looking changes nothing: the pinned one keeps its place */
	assert_int_equal(fx_unpin(&f, h[1]), 0);
	assert_int_equal(kvmm_core_cold_frame(&f.c, 0, f.now, &cursor),
			 frame_of(&f, h[1]));
	fx_close(&f);
}

static void frames_that_stay_are_not_offered(void **state)
{
	struct fx f;
	u64 h[3], cursor = 0;

	(void)state;
	fx_open_elastic(&f, 5, 0, 1, 1);
	fx_fill(&f, h, 1, 3);
	assert_int_equal(kvmm_core_cold_frame(&f.c, 0, f.now, &cursor),
			 KVMM_NONE);
	fx_block(&f, 4);
	fx_block(&f, 5);
	assert_int_equal(kvmm_core_cold_frame(&f.c, 0, f.now, &cursor), 4);
	fx_close(&f);
}

static void scan_is_bounded(void **state)
{
	u32 n = KVMM_SCAN_MAX + 10;
	u64 h[KVMM_SCAN_MAX + 10], cursor = 0;
	struct fx f;

	(void)state;
	fx_open_elastic(&f, n, n, n, 1);
	f.lazy = true;
	fx_fill(&f, h, 1, n);
	fx_out(&f, h[n - 1], 0);
	assert_int_equal(kvmm_core_cold_frame(&f.c, 0, f.now, &cursor),
			 KVMM_NONE);
	assert_int_not_equal(cursor, 0);
	assert_int_equal(kvmm_core_cold_frame(&f.c, 0, f.now, &cursor), n - 1);
	fx_close(&f);
}

static void chunks(void **state)
{
	static const u32 huge = 2 << 20;
	static const u32 want[][5] = {
		/* block size, frames, elastic, asked for, is */
		{ 65536, 65536, 0, 0, 1024 }, { 65536, 65536, 1024, 0, 1024 },
		{ 65536, 65536, 96, 0, 32 }, { 65536, 1000, 0, 0, 1024 },
		{ 65536, 100, 0, 0, 128 }, { 65536, 3, 0, 0, 32 },
		{ 65536, 96, 64, 0, 32 }, { 65536, 96, 64, 64, 0 },
		{ 65536, 96, 33, 0, 0 }, { 65536, 96, 128, 0, 0 },
		{ 65536, 96, 64, 16, 0 }, { 65536, 128, 128, 64, 64 },
		{ 65536, 128, 128, 48, 0 }, { 4096, 2048, 512, 0, 512 },
		{ 4096, 2048, 256, 0, 0 }, { 256 << 20, 8, 3, 0, 1 },
		{ 2 << 20, 100, 10, 0, 2 }, { 2 << 20, 100, 0, 4, 4 },
		{ 65536, 96, 0, 33, 0 },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		const u32 *w = want[i];
		u32 got = kvmm_core_chunk_frames(w[0], huge, w[1], w[2], w[3]);

		if (got != w[4])
			fail_msg("line %zu: %u", i, got);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(geometry),
	cmocka_unit_test(floor_first_then_lowest),
	cmocka_unit_test(many_frames),
	cmocka_unit_test(free_units),
	cmocka_unit_test(bad_ranges),
	cmocka_unit_test(all_or_nothing),
	cmocka_unit_test(not_while_moving),
	cmocka_unit_test(what_may_be_purged),
	cmocka_unit_test(expired_ones_go),
	cmocka_unit_test(quarantined_ones_stay),
	cmocka_unit_test(coldest_first),
	cmocka_unit_test(frames_that_stay_are_not_offered),
	cmocka_unit_test(scan_is_bounded),
	cmocka_unit_test(chunks),
};

FX_TESTS(elastic_tests, tests);
