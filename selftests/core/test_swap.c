// SPDX-License-Identifier: MIT
/*
 * Moving a block out and in: every state it can be asked in, what may happen
 * to it on the way, and how a move can fail.
 */
#include "fixture.h"

static void out_and_in(void **state)
{
	struct kvmm_pool_stat st;
	struct kvmm_io io;
	struct fx f;
	u32 slot;
	u64 h;

	(void)state;
	fx_open(&f, 2, 2);
	h = fx_block(&f, 1);
	assert_int_equal(fx_out_start(&f, h, 0, &io), KVMM_IO_ISSUE);
	assert_int_equal(io.length, FX_BLOCK_SIZE);
	slot = io.slot;
	assert_int_equal(fx_query(&f, h), KVMM_WRITING);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MEMORY);
	fx_out_end(&f, h, 0);
	assert_int_equal(fx_query(&f, h), KVMM_CLEAN);
	assert_int_equal(fx_out_start(&f, h, 0, &io), KVMM_IO_NONE);
	assert_int_equal(fx_out_start(&f, h, KVMM_SWAP_DROP, &io),
			 KVMM_IO_NONE);
	assert_int_equal(fx_query(&f, h), KVMM_SWAPPED);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_SWAP);
	assert_int_equal(fx_out_start(&f, h, KVMM_SWAP_DROP, &io),
			 KVMM_IO_NONE);
	assert_int_equal(fx_stat(&f).frames_free, 2);

	assert_int_equal(fx_in_start(&f, h, 0, &io), KVMM_IO_ISSUE);
	assert_int_equal(io.slot, slot);
	assert_int_equal(io.length, FX_BLOCK_SIZE);
	assert_int_equal(fx_query(&f, h), KVMM_READING);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_PENDING);
	assert_int_equal(fx_in_start(&f, h, 0, &io), KVMM_IO_JOIN);
	fx_in_end(&f, h, 0);
	assert_int_equal(fx_query(&f, h), KVMM_CLEAN);
	assert_int_equal(fx_in_start(&f, h, 0, &io), KVMM_IO_NONE);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MEMORY);
	st = fx_stat(&f);
	assert_int_equal(st.swap_outs, 1);
	assert_int_equal(st.swap_ins, 1);
	assert_int_equal(st.swap_out_bytes, FX_BLOCK_SIZE);
	assert_int_equal(st.swap_in_bytes, FX_BLOCK_SIZE);
	assert_int_equal(st.slots_free, 1);
	fx_close(&f);
}

static void only_its_length_is_moved(void **state)
{
	struct kvmm_publish_entry e;
	struct kvmm_io io;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 2, 2);
	h = fx_alloc(&f);
	e = fx_entry(h, 1);
	e.length = 100;
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), 0);
	assert_int_equal(fx_out_start(&f, h, KVMM_SWAP_DROP, &io),
			 KVMM_IO_ISSUE);
	assert_int_equal(io.length, 100);
	fx_out_end(&f, h, 0);
	assert_int_equal(fx_in_start(&f, h, 0, &io), KVMM_IO_ISSUE);
	assert_int_equal(io.length, 100);
	fx_in_end(&f, h, 0);
	assert_int_equal(fx_stat(&f).swap_in_bytes, 100);
	fx_close(&f);
}

static void drop_gives_up_the_frame(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 2, 2);
	h = fx_block(&f, 1);
	assert_int_equal(fx_out_start(&f, h, KVMM_SWAP_DROP, &io),
			 KVMM_IO_ISSUE);
	/* readable to the end */
	assert_int_equal(fx_query(&f, h), KVMM_WRITING);
	assert_int_equal(fx_stat(&f).frames_free, 1);
	fx_out_end(&f, h, 0);
	assert_int_equal(fx_query(&f, h), KVMM_SWAPPED);
	assert_int_equal(fx_stat(&f).frames_free, 2);
	assert_int_equal(fx_stat(&f).evicted, 1);
	fx_close(&f);
}

static void drop_joins_a_write(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 2, 2);
	h = fx_block(&f, 1);
	assert_int_equal(fx_out_start(&f, h, 0, &io), KVMM_IO_ISSUE);
	assert_int_equal(fx_out_start(&f, h, 0, &io), KVMM_IO_JOIN);
	assert_int_equal(fx_out_start(&f, h, KVMM_SWAP_DROP, &io),
			 KVMM_IO_JOIN);
	assert_int_equal(fx_out_start(&f, h, KVMM_SWAP_DROP, &io),
			 KVMM_IO_JOIN);
	fx_out_end(&f, h, 0);
	assert_int_equal(fx_query(&f, h), KVMM_SWAPPED);
	fx_close(&f);
}

static void a_pinned_block_is_written_and_stays(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 2, 2);
	h = fx_block(&f, 1);
	assert_int_equal(fx_pin(&f, h), 0);
	assert_int_equal(fx_out_start(&f, h, KVMM_SWAP_DROP, &io),
			 KVMM_IO_ISSUE);
	fx_out_end(&f, h, 0);
	assert_int_equal(fx_query(&f, h), KVMM_CLEAN);
	assert_int_equal(fx_out_start(&f, h, KVMM_SWAP_DROP, &io),
			 KVMM_IO_NONE);
	assert_int_equal(fx_query(&f, h), KVMM_CLEAN);
	fx_close(&f);
}

/* Who pins or uses a block that is on its way out keeps it in memory. */
static void wanted_while_leaving(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 h[3];
	int i;

	(void)state;
	fx_open(&f, 4, 4);
	fx_fill(&f, h, 1, 3);
	for (i = 0; i < 3; i++)
		assert_int_equal(fx_out_start(&f, h[i], KVMM_SWAP_DROP, &io),
				 KVMM_IO_ISSUE);
	assert_int_equal(fx_pin(&f, h[0]), 0);
	assert_int_equal(fx_lookup(&f, 2, 0), KVMM_MEMORY);
	assert_int_equal(fx_lookup(&f, 3, KVMM_LOOKUP_PEEK), KVMM_MEMORY);
	for (i = 2; i >= 0; i--)
		fx_out_end(&f, h[i], 0);
	assert_int_equal(fx_query(&f, h[0]), KVMM_CLEAN);
	assert_int_equal(fx_query(&f, h[1]), KVMM_CLEAN);
	assert_int_equal(fx_query(&f, h[2]), KVMM_SWAPPED);
	assert_int_equal(fx_unpin(&f, h[0]), 0);
	assert_int_equal(fx_query(&f, h[0]), KVMM_CLEAN);
	fx_close(&f);
}

static void filling_and_reading_are_busy(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 2, 2);
	h = fx_alloc(&f);
	assert_int_equal(fx_out_start(&f, h, 0, &io), -EBUSY);
	assert_int_equal(fx_in_start(&f, h, 0, &io), -EBUSY);
	assert_int_equal(fx_publish(&f, h, 1), 0);
	fx_out(&f, h, KVMM_SWAP_DROP);
	assert_int_equal(fx_in_start(&f, h, 0, &io), KVMM_IO_ISSUE);
	assert_int_equal(fx_out_start(&f, h, 0, &io), -EBUSY);
	assert_int_equal(fx_out_start(&f, h, KVMM_SWAP_DROP, &io), -EBUSY);
	fx_in_end(&f, h, 0);
	fx_close(&f);
}

static void no_area_no_writes(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 h;

	(void)state;
	fx_config(&f, 2, 2);
	assert_int_equal(kvmm_core_init(&f.c, &f.cfg), 0);
	kvmm_core_frames_online(&f.c, 0, 2);
	f.me = kvmm_core_client_add(&f.c);
	h = fx_block(&f, 1);
	assert_int_equal(fx_out_start(&f, h, 0, &io), -EOPNOTSUPP);
	assert_int_equal(kvmm_core_attach(&f.c, 1), 0);
	assert_int_equal(fx_out_start(&f, h, 0, &io), KVMM_IO_ISSUE);
	fx_out_end(&f, h, 0);
	fx_close(&f);
}

static void a_failed_write_keeps_the_block(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 a, b;

	(void)state;
	fx_open(&f, 2, 2);
	a = fx_block(&f, 1);
	b = fx_block(&f, 2);
	fx_out(&f, b, KVMM_SWAP_DROP);
	assert_int_equal(fx_out_start(&f, a, KVMM_SWAP_DROP, &io),
			 KVMM_IO_ISSUE);
	fx_out_end(&f, a, -EIO);
	assert_int_equal(fx_query(&f, a), KVMM_RESIDENT);
	assert_int_equal(fx_stat(&f).degraded, 1);
	assert_int_equal(fx_stat(&f).write_errors, 1);
	assert_int_equal(fx_stat(&f).slots_free, 1);
	/* no more writes, but what is there can be read */
	assert_int_equal(fx_out_start(&f, a, 0, &io), -EIO);
	fx_in(&f, b, 0);
	assert_int_equal(fx_query(&f, b), KVMM_CLEAN);
	/* victims are purged */
	fx_alloc(&f);
	assert_false(fx_has(&f, 1));
	/* another area, another chance */
	assert_int_equal(fx_detach(&f, true), 0);
	assert_int_equal(kvmm_core_attach(&f.c, 2), 0);
	assert_int_equal(fx_stat(&f).degraded, 0);
	fx_out(&f, b, 0);
	fx_close(&f);
}

static void a_failed_write_of_a_pinned_block(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 2, 2);
	h = fx_block(&f, 1);
	assert_int_equal(fx_pin(&f, h), 0);
	assert_int_equal(fx_out_start(&f, h, 0, &io), KVMM_IO_ISSUE);
	fx_out_end(&f, h, -ENOSPC);
	assert_int_equal(fx_query(&f, h), KVMM_RESIDENT);
	assert_int_equal(fx_stat(&f).pins, 1);
	fx_close(&f);
}

static void read_errors(void **state)
{
	static const int errors[] = { -EIO, -EBADMSG, -ENODATA };
	struct kvmm_io io;
	struct fx f;
	u32 other;
	size_t i;
	u64 h;

	(void)state;
	fx_open(&f, 2, 2);
	other = kvmm_core_client_add(&f.c);
	for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		h = fx_block(&f, 1);
		fx_out(&f, h, KVMM_SWAP_DROP);
		assert_int_equal(fx_in_start(&f, h, KVMM_SWAP_PIN, &io),
				 KVMM_IO_ISSUE);
		assert_int_equal(kvmm_core_swap_in(&f.c, other, h,
						   KVMM_SWAP_PIN, f.now, &io),
				 KVMM_IO_JOIN);
		assert_int_equal(fx_lookup(&f, 1, KVMM_LOOKUP_PIN),
				 KVMM_PENDING);
		assert_int_equal(fx_stat(&f).pins, 3);
		fx_in_end(&f, h, errors[i]);
		/* lost, and all that held it */
		assert_int_equal(fx_stat(&f).pins, 0);
		assert_int_equal(fx_stat(&f).blocks_pinned, 0);
		assert_int_equal(fx_query(&f, h), -ESTALE);
		assert_int_equal(fx_unpin(&f, h), -ESTALE);
		assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MISS);
		assert_int_equal(fx_stat(&f).frames_free, 2);
		assert_int_equal(fx_stat(&f).slots_free, 2);
	}
	assert_int_equal(fx_stat(&f).read_errors, 2);
	assert_int_equal(fx_stat(&f).checksum_errors, 1);
	assert_int_equal(fx_stat(&f).degraded, 0);
	assert_int_equal(fx_stat(&f).swap_ins, 0);
	fx_close(&f);
}

static void swap_in_pins(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u32 other;
	u64 h;

	(void)state;
	fx_open(&f, 2, 2);
	other = kvmm_core_client_add(&f.c);
	h = fx_block(&f, 1);
	/* in memory */
	assert_int_equal(fx_in_start(&f, h, KVMM_SWAP_PIN, &io), KVMM_IO_NONE);
	assert_int_equal(fx_unpin(&f, h), 0);
	fx_out(&f, h, KVMM_SWAP_DROP);
	/* in the area, joined by another */
	assert_int_equal(fx_in_start(&f, h, KVMM_SWAP_PIN, &io), KVMM_IO_ISSUE);
	assert_int_equal(kvmm_core_swap_in(&f.c, other, h, KVMM_SWAP_PIN, f.now,
					   &io), KVMM_IO_JOIN);
	fx_in_end(&f, h, 0);
	assert_int_equal(fx_unpin_by(&f, other, h), 0);
	assert_int_equal(fx_unpin(&f, h), 0);
	assert_int_equal(fx_unpin(&f, h), -EINVAL);
	fx_close(&f);
}

static void swap_in_finds_no_frame(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 h, k;

	(void)state;
	fx_open(&f, 1, 2);
	h = fx_block(&f, 1);
	fx_out(&f, h, KVMM_SWAP_DROP);
	k = fx_alloc(&f);
	assert_int_equal(fx_in_start(&f, h, KVMM_SWAP_PIN, &io), -ENOSPC);
	assert_int_equal(fx_publish(&f, k, 2), 0);
	/* it has to be written first */
	assert_int_equal(fx_in_start(&f, h, KVMM_SWAP_PIN, &io), -EAGAIN);
	assert_int_equal(fx_stat(&f).pins, 0);
	fx_out(&f, k, 0);
	assert_int_equal(fx_in_start(&f, h, KVMM_SWAP_PIN, &io), KVMM_IO_ISSUE);
	assert_int_equal(fx_query(&f, k), KVMM_SWAPPED);
	fx_in_end(&f, h, 0);
	fx_close(&f);
}

static void swap_in_without_a_hold(void **state)
{
	struct kvmm_io io;
	u32 id[3];
	u64 h[6];
	struct fx f;
	u32 i;

	(void)state;
	fx_open(&f, 6, 2);
	for (i = 0; i < 3; i++)
		id[i] = kvmm_core_client_add(&f.c);
	fx_fill(&f, h, 1, 6);
	/* eight further holds: none is left */
	for (i = 0; i < 6; i++)
		assert_int_equal(fx_pin(&f, h[i]), 0);
	for (i = 0; i < FX_HOLDS; i++)
		assert_int_equal(fx_pin_by(&f, id[i / 4], h[i % 4]), 0);
	assert_int_equal(kvmm_core_swap_in(&f.c, id[2], h[5], KVMM_SWAP_PIN,
					   f.now, &io), -ENOBUFS);
	assert_int_equal(kvmm_core_swap_in(&f.c, id[2], h[5], 0, f.now, &io),
			 KVMM_IO_NONE);
	fx_check(&f);
	fx_close(&f);
}

/* Forgotten while its I/O is under way: freed when that has ended. */
static void dropped_while_moving(void **state)
{
	static const int end[] = { 0, -EIO };
	struct kvmm_io io;
	struct fx f;
	size_t i;
	u64 h;

	(void)state;
	for (i = 0; i < 2; i++) {
		fx_open(&f, 2, 2);
		h = fx_block(&f, 1);
		assert_int_equal(fx_out_start(&f, h, i ? KVMM_SWAP_DROP : 0,
					      &io), KVMM_IO_ISSUE);
		assert_int_equal(fx_drop(&f, h), 0);
		assert_false(fx_has(&f, 1));
		/* frame and slot are the I/O's till the end */
		assert_int_equal(fx_stat(&f).frames_free, 1);
		assert_int_equal(fx_stat(&f).slots_free, 1);
		fx_block(&f, 1);
		fx_out_end(&f, h, end[i]);
		assert_int_equal(fx_query(&f, h), -ESTALE);
		assert_int_equal(fx_stat(&f).frames_free, 1);
		assert_int_equal(fx_stat(&f).slots_free, 2);
		assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MEMORY);
		fx_close(&f);

		fx_open(&f, 2, 2);
		h = fx_block(&f, 1);
		fx_out(&f, h, KVMM_SWAP_DROP);
		assert_int_equal(fx_in_start(&f, h, KVMM_SWAP_PIN, &io),
				 KVMM_IO_ISSUE);
		assert_int_equal(fx_drop(&f, h), 0);
		assert_false(fx_has(&f, 1));
		assert_int_equal(fx_stat(&f).frames_free, 1);
		assert_int_equal(fx_stat(&f).slots_free, 1);
		fx_in_end(&f, h, end[i]);
		/* read well it is still pinned, and goes with the pin */
		assert_int_equal(fx_unpin(&f, h), i ? -ESTALE : 0);
		assert_int_equal(fx_stat(&f).frames_free, 2);
		assert_int_equal(fx_stat(&f).slots_free, 2);
		assert_int_equal(fx_stat(&f).pins, 0);
		fx_close(&f);
	}
}

static void reset_while_moving(void **state)
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
	assert_int_equal(fx_in_start(&f, in, 0, &io), KVMM_IO_ISSUE);
	kvmm_core_reset(&f.c);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MISS);
	assert_int_equal(fx_lookup(&f, 2, 0), KVMM_MISS);
	fx_out_end(&f, out, 0);
	fx_in_end(&f, in, 0);
	fx_block(&f, 1);
	fx_block(&f, 2);
	fx_close(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(out_and_in),
	cmocka_unit_test(only_its_length_is_moved),
	cmocka_unit_test(drop_gives_up_the_frame),
	cmocka_unit_test(drop_joins_a_write),
	cmocka_unit_test(a_pinned_block_is_written_and_stays),
	cmocka_unit_test(wanted_while_leaving),
	cmocka_unit_test(filling_and_reading_are_busy),
	cmocka_unit_test(no_area_no_writes),
	cmocka_unit_test(a_failed_write_keeps_the_block),
	cmocka_unit_test(a_failed_write_of_a_pinned_block),
	cmocka_unit_test(read_errors),
	cmocka_unit_test(swap_in_pins),
	cmocka_unit_test(swap_in_finds_no_frame),
	cmocka_unit_test(swap_in_without_a_hold),
	cmocka_unit_test(dropped_while_moving),
	cmocka_unit_test(reset_while_moving),
};

FX_TESTS(swap_tests, tests);
