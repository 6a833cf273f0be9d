// SPDX-License-Identifier: MIT
/*
 * Moves that do not end by their deadline: what becomes of the block, of those
 * who hold it, and of frame and slot until the device lets go of them.
 */
#include "fixture.h"

static void late(struct fx *f, u64 handle)
{
	kvmm_core_io_late(&f->c, handle);
	fx_check(f);
	assert_true(kvmm_core_is_late(&f->c, handle) || fx_reports >= 0);
}

static void a_late_read_is_a_miss(void **state)
{
	static const int end[] = { 0, -EIO };
	struct kvmm_pool_stat st;
	struct kvmm_io io;
	struct fx f;
	u64 h, other;
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		fx_open(&f, 2, 2);
		h = fx_block(&f, 1);
		fx_out(&f, h, KVMM_SWAP_DROP);
		assert_int_equal(fx_in_start(&f, h, KVMM_SWAP_PIN, &io),
				 KVMM_IO_ISSUE);
		assert_int_equal(fx_lookup(&f, 1, KVMM_LOOKUP_PIN),
				 KVMM_PENDING);
		late(&f, h);
		st = fx_stat(&f);
		assert_int_equal(st.io_timeouts, 1);
		assert_int_equal(st.degraded, 1);
		assert_int_equal(st.pins, 0);
		assert_int_equal(kvmm_core_moving(&f.c), 0);
		assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MISS);
		assert_int_equal(fx_query(&f, h), -ESTALE);
		assert_int_equal(fx_unpin(&f, h), -ESTALE);
		assert_int_equal(fx_pin(&f, h), -ESTALE);
		assert_int_equal(fx_in_start(&f, h, 0, &io), -ESTALE);
		/* frame and slot are the device's until it is through */
		assert_int_equal(st.frames_free, 1);
		assert_int_equal(st.slots_free, 1);
		assert_int_equal(st.blocks[KVMM_READING], 1);
		other = fx_block(&f, 1);
		assert_int_equal(fx_pin(&f, other), 0);
		assert_int_equal(fx_alloc_fails(&f), -EAGAIN);
		fx_in_end(&f, h, end[i]);
		st = fx_stat(&f);
		assert_int_equal(st.frames_free, 1);
		assert_int_equal(st.slots_free, 2);
		assert_int_equal(st.swap_ins, 0);
		assert_int_equal(st.read_errors, 0);
		assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MEMORY);
		fx_close(&f);
	}
}

static void a_late_write_stays_in_memory(void **state)
{
	static const int end[] = { 0, -EIO };
	struct kvmm_pool_stat st;
	struct kvmm_io io;
	struct fx f;
	size_t i;
	u64 h;

	(void)state;
	for (i = 0; i < 2; i++) {
		fx_open(&f, 2, 2);
		h = fx_block(&f, 1);
		assert_int_equal(fx_out_start(&f, h, KVMM_SWAP_DROP, &io),
				 KVMM_IO_ISSUE);
		late(&f, h);
		st = fx_stat(&f);
		assert_int_equal(st.io_timeouts, 1);
		assert_int_equal(st.degraded, 1);
		assert_int_equal(st.slots_free, 1);
		assert_int_equal(kvmm_core_moving(&f.c), 0);
		assert_int_equal(fx_query(&f, h), KVMM_WRITING);
		assert_int_equal(fx_lookup(&f, 1, KVMM_LOOKUP_PIN),
				 KVMM_MEMORY);
		/* nobody else is made to wait for it */
		assert_int_equal(fx_out_start(&f, h, 0, &io), -EIO);
		assert_int_equal(fx_out_start(&f, h, KVMM_SWAP_DROP, &io),
				 -EIO);
		assert_int_equal(fx_unpin(&f, h), 0);
		fx_out_end(&f, h, end[i]);
		assert_false(kvmm_core_is_late(&f.c, h));
		st = fx_stat(&f);
		/* what arrived after all is as good as any */
		assert_int_equal(fx_query(&f, h),
				 i ? KVMM_RESIDENT : KVMM_CLEAN);
		assert_int_equal(st.slots_free, i ? 2 : 1);
		assert_int_equal(st.swap_outs, !i);
		assert_int_equal(st.write_errors, i);
		assert_int_equal(st.degraded, 1);
		fx_close(&f);
	}
}

/* The device may be writing from it: its frame can't be had by anyone. */
static void a_late_write_is_no_victim(void **state)
{
	struct kvmm_reclaim_count count = { 0 };
	struct kvmm_io io;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 2, 2);
	h = fx_block(&f, 1);
	assert_int_equal(fx_out_start(&f, h, 0, &io), KVMM_IO_ISSUE);
	late(&f, h);
	fx_block(&f, 2);
	/* the other one is purged: there is nowhere to write it to */
	fx_alloc(&f);
	assert_false(fx_has(&f, 2));
	assert_true(fx_has(&f, 1));
	assert_int_equal(fx_alloc_fails(&f), -EAGAIN);
	assert_int_equal(fx_reclaim(&f, 0, &count), 2);
	assert_int_equal(count.purged, 0);
	assert_false(count.more);
	fx_out_end(&f, h, 0);
	assert_int_equal(fx_reclaim(&f, 0, &count), 1);
	assert_int_equal(fx_query(&f, h), KVMM_SWAPPED);
	fx_close(&f);
}

static void dropped_and_late(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 out, in;

	(void)state;
	fx_open(&f, 2, 2);
	in = fx_block(&f, 1);
	fx_out(&f, in, KVMM_SWAP_DROP);
	out = fx_block(&f, 2);
	assert_int_equal(fx_out_start(&f, out, 0, &io), KVMM_IO_ISSUE);
	assert_int_equal(fx_in_start(&f, in, KVMM_SWAP_PIN, &io),
			 KVMM_IO_ISSUE);
	assert_int_equal(fx_drop(&f, in), 0);
	late(&f, in);
	late(&f, out);
	assert_int_equal(fx_drop(&f, in), -ESTALE);
	assert_int_equal(fx_drop(&f, out), 0);
	assert_false(fx_has(&f, 2));
	assert_int_equal(fx_stat(&f).frames_free, 0);
	fx_in_end(&f, in, 0);
	fx_out_end(&f, out, 0);
	assert_int_equal(fx_stat(&f).frames_free, 2);
	assert_int_equal(fx_stat(&f).slots_free, 2);
	fx_close(&f);
}

static void detach_waits_for_the_late(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 2, 2);
	h = fx_block(&f, 1);
	assert_int_equal(fx_out_start(&f, h, 0, &io), KVMM_IO_ISSUE);
	late(&f, h);
	assert_int_equal(fx_detach(&f, true), -EAGAIN);
	kvmm_core_detach_cancel(&f.c);
	assert_int_equal(fx_query(&f, h), KVMM_WRITING);
	assert_int_equal(fx_detach(&f, true), -EAGAIN);
	fx_out_end(&f, h, 0);
	assert_int_equal(fx_detach(&f, true), 0);
	assert_int_equal(fx_query(&f, h), KVMM_RESIDENT);
	assert_int_equal(fx_stat(&f).degraded, 0);
	fx_close(&f);
}

/* A client died while it filled a block that another published. */
static void an_orphan_is_not_late(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u32 other;
	u64 h;

	(void)state;
	fx_open(&f, 2, 2);
	other = kvmm_core_client_add(&f.c);
	h = fx_alloc_by(&f, other, 1);
	assert_int_equal(fx_pin(&f, h), 0);
	fx_client_del(&f, other);
	assert_int_equal(fx_publish(&f, h, 1), 0);
	assert_int_equal(fx_out_start(&f, h, 0, &io), KVMM_IO_ISSUE);
	assert_int_equal(fx_out_start(&f, h, 0, &io), KVMM_IO_JOIN);
	fx_out_end(&f, h, 0);
	fx_close(&f);
}

static void only_once_and_only_what_moves(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 2, 2);
	h = fx_block(&f, 1);
	fx_reports = 0;
	late(&f, h);
	assert_int_equal(fx_reports, 1);
	assert_int_equal(fx_out_start(&f, h, 0, &io), KVMM_IO_ISSUE);
	late(&f, h);
	assert_int_equal(fx_reports, 1);
	late(&f, h);
	assert_int_equal(fx_reports, 2);
	fx_reports = -1;
	assert_int_equal(fx_stat(&f).io_timeouts, 1);
	fx_out_end(&f, h, 0);
	fx_close(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_late_read_is_a_miss),
	cmocka_unit_test(a_late_write_stays_in_memory),
	cmocka_unit_test(a_late_write_is_no_victim),
	cmocka_unit_test(dropped_and_late),
	cmocka_unit_test(detach_waits_for_the_late),
	cmocka_unit_test(an_orphan_is_not_late),
	cmocka_unit_test(only_once_and_only_what_moves),
};

FX_TESTS(late_tests, tests);
