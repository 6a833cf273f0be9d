// SPDX-License-Identifier: MIT
/*
 * Writing ahead: which blocks, with which slots, and how the walk goes on.
 */
#include "fixture.h"

/* One call, whose writes end at once; returns how many there were. */
static u32 clean(struct fx *f, u32 want, u32 n, u64 *first, bool *more)
{
	struct kvmm_io io[KVMM_CORE_BATCH];
	bool unused;
	u32 k, got;

	got = kvmm_core_clean(&f->c, want, f->now, io, n, more ? more : &unused);
	fx_check(f);
	assert_true(got <= n);
	if (first)
		*first = got ? io[0].handle : 0;
	for (k = 0; k < got; k++)
		fx_out_end(f, io[k].handle, 0);
	return got;
}

static void coldest_first_until_enough(void **state)
{
	struct kvmm_io io[8];
	struct fx f;
	bool more;
	u64 h[6];
	u32 i;

	(void)state;
	fx_open(&f, 8, 8);
	fx_fill(&f, h, 1, 6);
	assert_int_equal(kvmm_core_ready(&f.c), 2);
	assert_int_equal(clean(&f, 2, 8, NULL, NULL), 0);
	assert_int_equal(kvmm_core_clean(&f.c, 5, f.now, io, 2, &more), 2);
	fx_check(&f);
	assert_true(more);
	assert_true(io[0].handle == h[0] && io[1].handle == h[1]);
	assert_int_equal(fx_query(&f, h[0]), KVMM_WRITING);
	/* writes in flight are not ready, but are not asked for again */
	assert_int_equal(kvmm_core_ready(&f.c), 2);
	assert_int_equal(kvmm_core_clean(&f.c, 5, f.now, io + 2, 6, &more), 1);
	fx_check(&f);
	assert_false(more);
	assert_true(io[2].handle == h[2]);
	for (i = 0; i < 3; i++)
		fx_out_end(&f, io[i].handle, 0);
	assert_int_equal(kvmm_core_ready(&f.c), 5);
	assert_int_equal(clean(&f, 5, 8, NULL, NULL), 0);
	/* they are where they were in the order, and can be had at once */
	for (i = 0; i < 5; i++)
		fx_alloc(&f);
	for (i = 0; i < 3; i++)
		assert_int_equal(fx_query(&f, h[i]), KVMM_SWAPPED);
	assert_int_equal(fx_alloc_fails(&f), -EAGAIN);
	fx_close(&f);
}

static void only_what_needs_a_write(void **state)
{
	u64 pinned, cheap, late, plain, first;
	struct fx f;

	(void)state;
	fx_open(&f, 8, 8);
	f.c.load_us = 100;
	pinned = fx_block(&f, 1);
	assert_int_equal(fx_pin(&f, pinned), 0);
	cheap = fx_block_with(&f, 2, 0, 0, 50, KVMM_BLOCK_RECOMPUTABLE);
	late = fx_block_with(&f, 3, 0, 10, 0, 0);
	plain = fx_block(&f, 4);
	fx_alloc(&f);
	f.now += 10;
	assert_int_equal(clean(&f, 8, 8, &first, NULL), 1);
	assert_true(first == plain);
	assert_int_equal(fx_query(&f, cheap), KVMM_RESIDENT);
	assert_int_equal(fx_query(&f, pinned), KVMM_RESIDENT);
	/* that one was left to who meets it */
	assert_int_equal(fx_stat(&f).expired, 0);
	assert_int_equal(fx_query(&f, late), -ESTALE);
	/* nor what a reset has ended */
	assert_int_equal(fx_unpin(&f, pinned), 0);
	kvmm_core_reset(&f.c);
	assert_int_equal(clean(&f, 8, 8, NULL, NULL), 0);
	fx_close(&f);
}

/* A CLEAN block that is pinned is no victim. */
static void pinned_blocks_are_not_ready(void **state)
{
	struct fx f;
	u64 h[2];

	(void)state;
	fx_open(&f, 2, 4);
	fx_fill(&f, h, 1, 2);
	fx_out(&f, h[0], 0);
	assert_int_equal(kvmm_core_ready(&f.c), 1);
	assert_int_equal(fx_pin(&f, h[0]), 0);
	assert_int_equal(kvmm_core_ready(&f.c), 0);
	assert_int_equal(fx_pin(&f, h[1]), 0);
	fx_out(&f, h[1], 0);
	assert_int_equal(kvmm_core_ready(&f.c), 0);
	assert_int_equal(fx_unpin(&f, h[1]), 0);
	assert_int_equal(kvmm_core_ready(&f.c), 1);
	assert_int_equal(fx_drop(&f, h[0]), 0);
	assert_int_equal(fx_unpin(&f, h[0]), 0);
	/* free now */
	assert_int_equal(kvmm_core_ready(&f.c), 2);
	fx_close(&f);
}

static void needs_an_area_that_works(void **state)
{
	struct kvmm_io io;
	struct fx f;
	bool more;
	u64 h[2];

	(void)state;
	fx_open(&f, 2, 0);
	fx_fill(&f, h, 1, 2);
	assert_int_equal(clean(&f, 2, 2, NULL, NULL), 0);
	fx_close(&f);

	fx_open(&f, 2, 2);
	fx_fill(&f, h, 1, 2);
	assert_int_equal(kvmm_core_clean(&f.c, 1, f.now, &io, 1, &more), 1);
	fx_out_end(&f, io.handle, -EIO);
	assert_int_equal(clean(&f, 2, 2, NULL, &more), 0);
	assert_false(more);
	/* a new one: all of it has to be written, from the oldest on */
	assert_int_equal(fx_detach(&f, false), 0);
	assert_int_equal(kvmm_core_attach(&f.c, 2), 0);
	assert_int_equal(kvmm_core_clean(&f.c, 1, f.now, &io, 1, &more), 1);
	assert_true(io.handle == h[0]);
	assert_int_equal(kvmm_core_detach(&f.c, false, f.now), -EAGAIN);
	assert_int_equal(clean(&f, 2, 2, NULL, NULL), 0);
	kvmm_core_detach_cancel(&f.c);
	fx_out_end(&f, h[0], 0);
	fx_close(&f);
}

/* Free slots; then those of swapped blocks that are no younger; no others. */
static void slots_it_takes(void **state)
{
	struct fx f;
	u64 h[5];

	(void)state;
	fx_open(&f, 5, 2);
	fx_fill(&f, h, 1, 4);
	fx_out(&f, h[0], KVMM_SWAP_DROP);
	f.now++;
	assert_int_equal(fx_touch(&f, h[2]), 0);
	assert_int_equal(clean(&f, 3, 1, NULL, NULL), 1);
	assert_int_equal(fx_query(&f, h[1]), KVMM_CLEAN);
	/* h[0] is older than h[3], which goes next: it is lost for it */
	assert_int_equal(clean(&f, 4, 1, NULL, NULL), 1);
	assert_int_equal(fx_query(&f, h[0]), -ESTALE);
	assert_int_equal(fx_stat(&f).slots_evicted, 1);
	assert_int_equal(fx_query(&f, h[3]), KVMM_CLEAN);
	/* both slots belong to blocks in memory */
	assert_int_equal(clean(&f, 5, 1, NULL, NULL), 0);
	assert_int_equal(fx_query(&f, h[1]), KVMM_CLEAN);
	assert_int_equal(fx_query(&f, h[3]), KVMM_CLEAN);
	fx_close(&f);

	fx_open(&f, 3, 1);
	fx_fill(&f, h, 1, 2);
	fx_out(&f, h[0], KVMM_SWAP_DROP);
	/* one that was used later than what would be written */
	f.now++;
	assert_int_equal(fx_touch(&f, h[0]), 0);
	assert_int_equal(clean(&f, 3, 1, NULL, NULL), 0);
	assert_int_equal(fx_query(&f, h[0]), KVMM_SWAPPED);
	assert_int_equal(fx_touch(&f, h[1]), 0);
	assert_int_equal(clean(&f, 3, 1, NULL, NULL), 1);
	assert_int_equal(fx_query(&f, h[0]), -ESTALE);
	fx_close(&f);
}

#define MANY (4 * KVMM_SCAN_MAX)

/* Behind many that are clean it finds the next one in one look. */
static void goes_on_where_it_stopped(void **state)
{
	static u64 h[MANY];
	u64 first, young;
	struct fx f;
	u32 done = 0;
	bool more;

	(void)state;
	fx_open(&f, MANY + 8, 2 * MANY);
	f.lazy = true;
	fx_fill(&f, h, 1, MANY);
	while (done < MANY)
		done += clean(&f, MANY + 8, KVMM_CORE_BATCH, NULL, NULL);
	/* the last call that found none came to the end */
	assert_int_equal(clean(&f, MANY + 8, 1, NULL, &more), 0);
	f.c.clean_at = f.c.lru.head;
	young = fx_block(&f, MANY + 1);
	assert_int_equal(clean(&f, MANY + 8, 1, &first, &more), 1);
	assert_true(first == young);
	/* from the oldest on it would take some calls */
	young = fx_block(&f, MANY + 2);
	f.c.clean_at = KVMM_NONE;
	f.c.clean_began = 0;
	for (done = 0; done < 4; done++) {
		assert_int_equal(clean(&f, MANY + 8, 1, &first, &more), 0);
		assert_true(more);
	}
	assert_int_equal(clean(&f, MANY + 8, 1, &first, &more), 1);
	assert_true(first == young);
	fx_close(&f);
}

/* What it passed by is looked at again, but not at every call. */
static void begins_anew(void **state)
{
	static u64 h[MANY];
	struct fx f;
	u64 first;
	bool more;
	u32 k;

	(void)state;
	fx_open(&f, MANY, 2 * MANY);
	f.lazy = true;
	fx_fill(&f, h, 1, MANY);
	assert_int_equal(fx_pin(&f, h[0]), 0);
	while (clean(&f, MANY, KVMM_CORE_BATCH, NULL, &more) || more)
		;
	assert_int_equal(kvmm_core_ready(&f.c), MANY - 1);
	/* in vain once more, and then not at all */
	while (clean(&f, MANY, 1, NULL, &more) || more)
		;
	assert_int_equal(f.c.clean_at, KVMM_NONE);
	for (k = 0; k < 3; k++) {
		assert_int_equal(clean(&f, MANY, 1, NULL, &more), 0);
		assert_false(more);
		assert_int_equal(f.c.clean_at, KVMM_NONE);
	}
	assert_int_equal(fx_unpin(&f, h[0]), 0);
	for (k = 0; k < MANY / 64 - 1; k++) {
		assert_int_equal(clean(&f, MANY, 1, NULL, &more), 0);
		assert_int_equal(fx_pin(&f, h[1]), 0);
		assert_int_equal(fx_unpin(&f, h[1]), 0);
	}
	assert_int_equal(clean(&f, MANY, 1, &first, NULL), 1);
	assert_true(first == h[0]);
	fx_close(&f);
}

/* A chain that is made the oldest comes before all that was found clean. */
static void hint_is_minded(void **state)
{
	static u64 h[MANY];
	struct fx f;
	u64 at, first;
	u32 done = 0;

	(void)state;
	fx_open(&f, MANY + 1, 2 * MANY);
	f.lazy = true;
	fx_fill(&f, h, 1, MANY);
	while (done < MANY - 10)
		done += clean(&f, MANY - 9, KVMM_CORE_BATCH, NULL, NULL);
	at = h[MANY - 1];
	assert_int_equal(fx_hint(&f, 0, &at), 1);
	assert_int_equal(clean(&f, MANY + 1, 1, &first, NULL), 1);
	assert_true(first == h[MANY - 1]);
	fx_close(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(coldest_first_until_enough),
	cmocka_unit_test(only_what_needs_a_write),
	cmocka_unit_test(pinned_blocks_are_not_ready),
	cmocka_unit_test(needs_an_area_that_works),
	cmocka_unit_test(slots_it_takes),
	cmocka_unit_test(goes_on_where_it_stopped),
	cmocka_unit_test(begins_anew),
	cmocka_unit_test(hint_is_minded),
};

FX_TESTS(clean_tests, tests);
