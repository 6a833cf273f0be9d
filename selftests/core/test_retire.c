// SPDX-License-Identifier: MIT
/*
 * Frames whose memory is broken: retired with blocks in every state, and never
 * used again.
 */
#include "fixture.h"

/* All frames that can be had now; none of them is @bad. */
static u32 all_but(struct fx *f, u32 bad)
{
	struct kvmm_block_ref refs[KVMM_CORE_BATCH];
	u32 n = 0;

	while (kvmm_core_alloc(&f->c, f->me, 1, f->now, refs + n, 1) == 1) {
		assert_int_not_equal(refs[n].frame, bad);
		n++;
		assert_true(n < KVMM_CORE_BATCH);
	}
	kvmm_core_unpin(&f->c, f->me, refs, n);
	fx_check(f);
	return n;
}

static u32 frame_of(struct fx *f, u64 handle)
{
	struct kvmm_block_ref ref = { .handle = handle };

	kvmm_core_query(&f->c, f->now, &ref, 1);
	return ref.frame;
}

static void gone(struct fx *f, u32 bad, u32 frames)
{
	fx_check(f);
	assert_int_equal(fx_stat(f).frames_poisoned, 1);
	assert_int_equal(fx_stat(f).frames_online, frames - 1);
	assert_true(kvmm_core_frame_is_online(&f->c, bad));
	/* what has memory already does not come online again */
	assert_int_equal(kvmm_core_frames_online(&f->c, 0, frames), 0);
	assert_int_equal(all_but(f, bad), frames - 1);
}

static void filling(void **state)
{
	struct kvmm_block_ref ref = { 0 };
	struct fx f;
	u32 bad;

	(void)state;
	fx_open(&f, 4, 4);
	assert_int_equal(kvmm_core_alloc(&f.c, f.me, 1, f.now, &ref, 1), 1);
	bad = ref.frame;
	assert_int_equal(kvmm_core_frame_retire(&f.c, ref.handle), 0);
	assert_int_equal(kvmm_core_frame_retire(&f.c, ref.handle), 0);
	fx_check(&f);
	/* it can't be published, and stays until it is let go of */
	assert_int_equal(fx_stat(&f).frames_online, 4);
	kvmm_core_unpin(&f.c, f.me, &ref, 1);
	assert_int_equal(kvmm_core_frame_retire(&f.c, ref.handle), -ESTALE);
	gone(&f, bad, 4);
	fx_close(&f);
}

static void resident(void **state)
{
	struct fx f;
	u64 h;
	u32 bad;

	(void)state;
	fx_open(&f, 4, 4);
	h = fx_block(&f, 1);
	bad = frame_of(&f, h);
	assert_int_equal(kvmm_core_frame_retire(&f.c, h), 0);
	assert_int_equal(fx_query(&f, h), -ESTALE);
	gone(&f, bad, 4);
	fx_close(&f);
}

static void pinned(void **state)
{
	struct fx f;
	u64 h;
	u32 bad;

	(void)state;
	fx_open(&f, 4, 4);
	h = fx_block(&f, 1);
	bad = frame_of(&f, h);
	assert_int_equal(fx_pin(&f, h), 0);
	assert_int_equal(kvmm_core_frame_retire(&f.c, h), 0);
	fx_check(&f);
	assert_int_equal(fx_stat(&f).frames_online, 4);
	{
		struct kvmm_block_ref ref = { .handle = h };

		kvmm_core_unpin(&f.c, f.me, &ref, 1);
		assert_int_equal(ref.result, 0);
	}
	gone(&f, bad, 4);
	fx_close(&f);
}

/* What is in its slot as well is not lost. */
static void clean(void **state)
{
	struct fx f;
	u64 h;
	u32 bad;

	(void)state;
	fx_open(&f, 4, 4);
	h = fx_block(&f, 1);
	fx_out(&f, h, 0);
	bad = frame_of(&f, h);
	assert_int_equal(kvmm_core_frame_retire(&f.c, h), 0);
	assert_int_equal(fx_query(&f, h), KVMM_SWAPPED);
	assert_int_equal(kvmm_core_frame_retire(&f.c, h), -ESTALE);
	gone(&f, bad, 4);
	fx_close(&f);
}

/* Found before it was written: nothing is said of the area. */
static void writing(void **state)
{
	static const u32 flags[] = { 0, KVMM_SWAP_DROP };
	struct kvmm_io io;
	struct fx f;
	size_t k;
	u64 h;

	(void)state;
	for (k = 0; k < 2; k++) {
		fx_open(&f, 4, 4);
		h = fx_block(&f, 1);
		assert_int_equal(kvmm_core_swap_out(&f.c, h, flags[k], f.now,
						    &io), KVMM_IO_ISSUE);
		assert_int_equal(kvmm_core_frame_retire(&f.c, h), 0);
		fx_check(&f);
		kvmm_core_write_done(&f.c, h, -EHWPOISON, 0);
		assert_int_equal(fx_query(&f, h), -ESTALE);
		assert_int_equal(fx_stat(&f).degraded, 0);
		assert_int_equal(fx_stat(&f).write_errors, 0);
		assert_int_equal(fx_stat(&f).swap_outs, 0);
		assert_int_equal(fx_stat(&f).slots_free, 4);
		gone(&f, io.frame, 4);
		fx_close(&f);
	}
}

/* The block of key @id, which is SWAPPED. */
static u64 swapped(struct fx *f, u32 id)
{
	struct kvmm_block_ref ref = fx_lookup_by(f, f->me, id, 0);

	assert_int_equal(ref.result, KVMM_SWAP);
	return ref.handle;
}

/* Its slot is good: read into a broken frame it is not lost, nor is it held. */
static void reading(void **state)
{
	static const int err[] = { -EHWPOISON, 0, -EBADMSG };
	struct kvmm_block_ref ref;
	struct kvmm_io io;
	struct fx f;
	size_t k;
	u64 h;

	(void)state;
	for (k = 0; k < 3; k++) {
		fx_open(&f, 4, 4);
		h = fx_block(&f, 1);
		fx_out(&f, h, KVMM_SWAP_DROP);
		assert_int_equal(kvmm_core_swap_in(&f.c, f.me, h,
						   KVMM_SWAP_PIN, f.now, &io),
				 KVMM_IO_ISSUE);
		assert_int_equal(kvmm_core_frame_retire(&f.c, h), 0);
		assert_true(kvmm_core_frame_retired(&f.c, io.frame));
		fx_check(&f);
		kvmm_core_read_done(&f.c, h, err[k]);
		/* who thinks that it is pinned learns that it is not */
		assert_int_equal(fx_query(&f, h), -ESTALE);
		ref.handle = h;
		kvmm_core_unpin(&f.c, f.me, &ref, 1);
		assert_int_equal(ref.result, -ESTALE);
		assert_int_equal(fx_stat(&f).read_errors, 0);
		assert_int_equal(fx_stat(&f).checksum_errors, 0);
		assert_int_equal(fx_stat(&f).swap_ins, 0);
		assert_int_equal(fx_stat(&f).pins, 0);
		h = swapped(&f, 1);
		gone(&f, io.frame, 4);
		assert_int_equal(fx_query(&f, h), KVMM_SWAPPED);
		assert_int_equal(kvmm_core_swap_in(&f.c, f.me, h, 0, f.now,
						   &io), KVMM_IO_ISSUE);
		kvmm_core_read_done(&f.c, h, 0);
		assert_int_equal(fx_query(&f, h), KVMM_CLEAN);
		fx_check(&f);
		fx_close(&f);
	}
}

/* Dropped or late meanwhile: then it is lost whatever becomes of its frame. */
static void reading_doomed(void **state)
{
	struct kvmm_block_ref ref;
	struct kvmm_io io;
	struct fx f;
	int late;
	u64 h;

	(void)state;
	for (late = 0; late < 2; late++) {
		fx_open(&f, 4, 4);
		h = fx_block(&f, 1);
		fx_out(&f, h, KVMM_SWAP_DROP);
		assert_int_equal(kvmm_core_swap_in(&f.c, f.me, h, 0, f.now,
						   &io), KVMM_IO_ISSUE);
		assert_int_equal(kvmm_core_frame_retire(&f.c, h), 0);
		ref.handle = h;
		if (late)
			kvmm_core_io_late(&f.c, h);
		else
			kvmm_core_drop(&f.c, f.me, &ref, 1);
		kvmm_core_read_done(&f.c, h, -EHWPOISON);
		assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MISS);
		assert_int_equal(fx_stat(&f).slots_free, 4);
		gone(&f, io.frame, 4);
		fx_close(&f);
	}
}

/* Found before anyone has seen the frame: there is another, or there is none. */
static void elsewhere(void **state)
{
	struct kvmm_block_ref refs[4] = { { 0 } };
	struct kvmm_io io;
	struct fx f;
	u32 bad, k;
	u64 h;

	(void)state;
	for (k = 0; k < 2; k++) {
		fx_open(&f, 4, 4);
		h = fx_block(&f, 1);
		fx_out(&f, h, KVMM_SWAP_DROP);
		if (k)
			assert_int_equal(kvmm_core_alloc(&f.c, f.me, 1, f.now,
							 refs, 3), 3);
		assert_int_equal(kvmm_core_swap_in(&f.c, f.me, h,
						   KVMM_SWAP_PIN, f.now, &io),
				 KVMM_IO_ISSUE);
		bad = io.frame;
		assert_int_equal(kvmm_core_read_elsewhere(&f.c, h, f.now, &io),
				 k ? -ENOSPC : KVMM_IO_ISSUE);
		fx_check(&f);
		if (k) {
			assert_int_equal(fx_query(&f, h), KVMM_SWAPPED);
			kvmm_core_unpin(&f.c, f.me, refs, 3);
		} else {
			assert_int_not_equal(io.frame, bad);
			kvmm_core_read_done(&f.c, h, 0);
			assert_int_equal(frame_of(&f, h), io.frame);
			refs[0].handle = h;
			kvmm_core_unpin(&f.c, f.me, refs, 1);
			assert_int_equal(refs[0].result, 0);
		}
		assert_int_equal(fx_stat(&f).pins, 0);
		gone(&f, bad, 4);
		fx_close(&f);
	}
}

/* From a frame to its block. */
static void block_of(void **state)
{
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 4, 4);
	h = fx_block(&f, 1);
	assert_int_equal(kvmm_core_frame_block(&f.c, frame_of(&f, h)), h);
	assert_int_equal(kvmm_core_frame_block(&f.c, frame_of(&f, h) ^ 1), 0);
	assert_int_equal(kvmm_core_frame_block(&f.c, 4), 0);
	assert_false(kvmm_core_frame_retired(&f.c, frame_of(&f, h)));
	fx_close(&f);
}

/* Nor is it given back with its unit: nobody else should get it either. */
static void elastic(void **state)
{
	struct kvmm_reclaim_count done = { 0 };
	struct kvmm_block_ref refs[3] = { { 0 } };
	struct fx f;
	u32 bad;

	(void)state;
	fx_open_elastic(&f, 6, 0, 4, 2);
	assert_int_equal(kvmm_core_alloc(&f.c, f.me, 1, f.now, refs, 3), 3);
	bad = refs[2].frame;
	assert_true(bad >= 2);
	assert_int_equal(kvmm_core_frame_retire(&f.c, refs[2].handle), 0);
	fx_check(&f);
	kvmm_core_unpin(&f.c, f.me, refs, 3);
	fx_check(&f);
	assert_int_equal(kvmm_core_frames_offline(&f.c, bad & ~1U, 2, 0, f.now,
						  &done), -EBUSY);
	assert_int_equal(kvmm_core_frames_offline(&f.c, (bad & ~1U) ^ 6, 2, 0,
						  f.now, &done), 2);
	fx_check(&f);
	assert_int_equal(fx_stat(&f).frames_online, 3);
	assert_int_equal(all_but(&f, bad), 3);
	fx_close(&f);
}

static void nothing_there(void **state)
{
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 4, 4);
	assert_int_equal(kvmm_core_frame_retire(&f.c, 0), -ESTALE);
	assert_int_equal(kvmm_core_frame_retire(&f.c, 1ULL << 32), -ESTALE);
	h = fx_block(&f, 1);
	fx_out(&f, h, KVMM_SWAP_DROP);
	assert_int_equal(kvmm_core_frame_retire(&f.c, h), -ESTALE);
	assert_int_equal(fx_stat(&f).frames_poisoned, 0);
	fx_close(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(filling),
	cmocka_unit_test(resident),
	cmocka_unit_test(pinned),
	cmocka_unit_test(clean),
	cmocka_unit_test(writing),
	cmocka_unit_test(reading),
	cmocka_unit_test(reading_doomed),
	cmocka_unit_test(elsewhere),
	cmocka_unit_test(block_of),
	cmocka_unit_test(elastic),
	cmocka_unit_test(nothing_there),
};

FX_TESTS(retire_tests, tests);
