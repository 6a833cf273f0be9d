// SPDX-License-Identifier: MIT
/*
 * Attaching an area and letting go of it, with blocks in every state.
 */
#include "fixture.h"

static void attach_wants_a_size(void **state)
{
	struct fx f;

	(void)state;
	fx_config(&f, 2, 4);
	assert_int_equal(kvmm_core_init(&f.c, &f.cfg), 0);
	assert_int_equal(kvmm_core_attach(&f.c, 0), -EINVAL);
	assert_int_equal(kvmm_core_attach(&f.c, 5), -EINVAL);
	assert_int_equal(kvmm_core_detach(&f.c, true, f.now), -ENOENT);
	assert_int_equal(kvmm_core_attach(&f.c, 3), 0);
	fx_check(&f);
	assert_int_equal(fx_stat(&f).nr_slots, 3);
	assert_int_equal(fx_stat(&f).slots_free, 3);
	assert_int_equal(kvmm_core_attach(&f.c, 1), -EBUSY);
	assert_int_equal(kvmm_core_detach(&f.c, false, f.now), 0);
	fx_check(&f);
	assert_int_equal(fx_stat(&f).nr_slots, 0);
	assert_int_equal(kvmm_core_attach(&f.c, 4), 0);
	fx_close(&f);
}

static void detach_keeps_what_is_in_memory(void **state)
{
	struct fx f;
	u64 clean, resident, pinned;

	(void)state;
	fx_open(&f, 4, 4);
	clean = fx_block(&f, 1);
	fx_out(&f, clean, 0);
	pinned = fx_block(&f, 2);
	fx_out(&f, pinned, 0);
	assert_int_equal(fx_pin(&f, pinned), 0);
	resident = fx_block(&f, 3);
	assert_int_equal(fx_detach(&f, false), 0);
	assert_int_equal(fx_query(&f, clean), KVMM_RESIDENT);
	assert_int_equal(fx_query(&f, pinned), KVMM_RESIDENT);
	assert_int_equal(fx_query(&f, resident), KVMM_RESIDENT);
	assert_int_equal(fx_stat(&f).pins, 1);
	fx_close(&f);
}

static void detach_does_not_lose_blocks_unasked(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 clean, out;

	(void)state;
	fx_open(&f, 4, 4);
	clean = fx_block(&f, 1);
	fx_out(&f, clean, 0);
	out = fx_block(&f, 2);
	fx_out(&f, out, KVMM_SWAP_DROP);
	assert_int_equal(fx_detach(&f, false), -EBUSY);
	/* nothing changed, and the area works */
	assert_int_equal(fx_query(&f, clean), KVMM_CLEAN);
	assert_int_equal(fx_query(&f, out), KVMM_SWAPPED);
	assert_int_equal(fx_in_start(&f, out, 0, &io), KVMM_IO_ISSUE);
	fx_in_end(&f, out, 0);
	fx_out(&f, fx_block(&f, 3), 0);

	/* after the swap-in nothing is lost */
	assert_int_equal(fx_detach(&f, false), 0);
	assert_true(fx_has(&f, 1) && fx_has(&f, 2) && fx_has(&f, 3));
	fx_close(&f);
}

static void detach_may_discard(void **state)
{
	struct fx f;
	u64 h[100];
	int i;

	(void)state;
	fx_open(&f, 4, 100);
	for (i = 0; i < 100; i++) {
		h[i] = fx_block(&f, 1 + i);
		fx_out(&f, h[i], KVMM_SWAP_DROP);
	}
	assert_int_equal(fx_detach(&f, true), 0);
	for (i = 0; i < 100; i++)
		assert_int_equal(fx_query(&f, h[i]), -ESTALE);
	assert_int_equal(fx_stat(&f).slots_evicted, 100);
	assert_int_equal(fx_stat(&f).blocks[KVMM_SWAPPED], 0);
	fx_close(&f);
}

static void blocks_of_an_old_epoch_are_no_loss(void **state)
{
	struct fx f;

	(void)state;
	fx_open(&f, 4, 4);
	fx_out(&f, fx_block(&f, 1), KVMM_SWAP_DROP);
	fx_out(&f, fx_block_with(&f, 2, 0, 100, 0, 0), KVMM_SWAP_DROP);
	kvmm_core_reset(&f.c);
	fx_out(&f, fx_block_with(&f, 3, 0, 100, 0, 0), KVMM_SWAP_DROP);
	assert_int_equal(fx_detach(&f, false), -EBUSY);
	f.now += 100;
	assert_int_equal(fx_detach(&f, false), 0);
	fx_close(&f);
}

static void detach_waits_for_io(void **state)
{
	static const int end[] = { 0, -EIO };
	struct kvmm_io io;
	struct fx f;
	u64 in, out, leaving;
	int i;

	(void)state;
	for (i = 0; i < 2; i++) {
		fx_open(&f, 4, 4);
		in = fx_block(&f, 1);
		fx_out(&f, in, KVMM_SWAP_DROP);
		out = fx_block(&f, 2);
		leaving = fx_block(&f, 3);
		assert_int_equal(fx_in_start(&f, in, 0, &io), KVMM_IO_ISSUE);
		assert_int_equal(fx_out_start(&f, out, 0, &io), KVMM_IO_ISSUE);
		assert_int_equal(fx_out_start(&f, leaving, KVMM_SWAP_DROP, &io),
				 KVMM_IO_ISSUE);
		assert_int_equal(kvmm_core_detach(&f.c, false, f.now), -EAGAIN);
		fx_check(&f);
		/* nothing more is handed out */
		assert_true(fx_out_start(&f, fx_block(&f, 4), 0, &io) < 0);
		fx_in_end(&f, in, end[i]);
		assert_int_equal(kvmm_core_detach(&f.c, false, f.now), -EAGAIN);
		fx_out_end(&f, out, end[i]);
		assert_int_equal(kvmm_core_detach(&f.c, false, f.now), -EAGAIN);
		fx_out_end(&f, leaving, end[i]);
		assert_int_equal(fx_detach(&f, false), 0);
		assert_int_equal(fx_query(&f, out), KVMM_RESIDENT);
		assert_int_equal(fx_query(&f, leaving), KVMM_RESIDENT);
		assert_int_equal(fx_query(&f, in),
				 end[i] ? -ESTALE : KVMM_RESIDENT);
		assert_int_equal(kvmm_core_attach(&f.c, 2), 0);
		fx_out(&f, out, 0);
		fx_close(&f);
	}
}

static void detach_of_doomed_blocks(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 out, pinned;

	(void)state;
	fx_open(&f, 4, 4);
	out = fx_block(&f, 1);
	pinned = fx_block(&f, 2);
	fx_out(&f, pinned, 0);
	assert_int_equal(fx_pin(&f, pinned), 0);
	assert_int_equal(fx_drop(&f, pinned), 0);
	assert_int_equal(fx_out_start(&f, out, KVMM_SWAP_DROP, &io),
			 KVMM_IO_ISSUE);
	assert_int_equal(fx_drop(&f, out), 0);
	assert_int_equal(kvmm_core_detach(&f.c, false, f.now), -EAGAIN);
	fx_out_end(&f, out, 0);
	assert_int_equal(fx_detach(&f, false), 0);
	assert_int_equal(fx_unpin(&f, pinned), 0);
	assert_int_equal(fx_stat(&f).frames_free, 4);
	fx_close(&f);
}

static void the_areas_size_may_change(void **state)
{
	struct fx f;
	u32 n, i;

	(void)state;
	fx_open(&f, 8, 5);
	for (n = 1; n <= 5; n++) {
		assert_int_equal(fx_detach(&f, true), 0);
		assert_int_equal(kvmm_core_attach(&f.c, n), 0);
		for (i = 0; i < 7; i++) {
			struct kvmm_io io;
			u64 h = fx_block(&f, 100 * n + i);

			assert_int_equal(fx_out_start(&f, h, KVMM_SWAP_DROP,
						      &io), KVMM_IO_ISSUE);
			assert_true(io.slot < n);
			fx_out_end(&f, h, 0);
		}
		assert_int_equal(fx_stat(&f).slots_free, 0);
	}
	fx_close(&f);
}

static void detach_can_be_given_up(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 in, out;

	(void)state;
	fx_open(&f, 4, 4);
	in = fx_block(&f, 1);
	fx_out(&f, in, KVMM_SWAP_DROP);
	out = fx_block(&f, 2);
	assert_int_equal(fx_in_start(&f, in, 0, &io), KVMM_IO_ISSUE);
	assert_int_equal(kvmm_core_detach(&f.c, false, f.now), -EAGAIN);
	assert_true(fx_out_start(&f, out, 0, &io) < 0);
	kvmm_core_detach_cancel(&f.c);
	fx_check(&f);
	/* The area is in use again, with what it had. */
	fx_out(&f, out, KVMM_SWAP_DROP);
	fx_in_end(&f, in, 0);
	fx_in(&f, out, 0);
	assert_int_equal(fx_query(&f, in), KVMM_CLEAN);
	assert_int_equal(fx_query(&f, out), KVMM_CLEAN);
	fx_close(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(attach_wants_a_size),
	cmocka_unit_test(detach_keeps_what_is_in_memory),
	cmocka_unit_test(detach_does_not_lose_blocks_unasked),
	cmocka_unit_test(detach_may_discard),
	cmocka_unit_test(blocks_of_an_old_epoch_are_no_loss),
	cmocka_unit_test(detach_waits_for_io),
	cmocka_unit_test(detach_can_be_given_up),
	cmocka_unit_test(detach_of_doomed_blocks),
	cmocka_unit_test(the_areas_size_may_change),
};

FX_TESTS(detach_tests, tests);
