// SPDX-License-Identifier: MIT
/*
 * The state machine: the table of legal transitions is DESIGN's, and every
 * legal one is one that some command makes.
 */
#include "fixture.h"

#include "core/internal.h"

/* Row: from; column: to.  Anything else is a bug. */
static const char *const machine[KVMM_NR_STATES] = {
	/*		  FREE FILL RES WRI CLE SWA REA */
	[KVMM_FREE]	= ".f.....",
	[KVMM_FILLING]	= "f.r....",
	[KVMM_RESIDENT]	= "f..w...",
	[KVMM_WRITING]	= "..r.c..",
	[KVMM_CLEAN]	= "f.r..s.",
	[KVMM_SWAPPED]	= "f.....r",
	[KVMM_READING]	= "f...cs.",
};

static void the_table_is_the_machine(void **state)
{
	u32 from, to;

	(void)state;
	for (from = 0; from < KVMM_NR_STATES; from++)
		for (to = 0; to < KVMM_NR_STATES; to++)
			if (core_transition_ok(from, to) !=
			    (machine[from][to] != '.'))
				fail_msg("from %u to %u", from, to);
	assert_false(core_transition_ok(KVMM_NR_STATES, 0));
	assert_false(core_transition_ok(0, KVMM_NR_STATES));
	assert_false(core_transition_ok(0xffffffffU, 0xffffffffU));
}

static void frames_and_slots_go_with_states(void **state)
{
	static const struct {
		bool frame, slot;
	} has[KVMM_NR_STATES] = {
		[KVMM_FILLING] = { true, false },
		[KVMM_RESIDENT] = { true, false },
		[KVMM_WRITING] = { true, true },
		[KVMM_CLEAN] = { true, true },
		[KVMM_SWAPPED] = { false, true },
		[KVMM_READING] = { true, true },
	};
	struct kvmm_io io;
	struct fx f;
	u64 h;
	int step;

	(void)state;
	fx_open(&f, 1, 1);
	h = fx_alloc(&f);
	for (step = 0; step < 7; step++) {
		struct kvmm_pool_stat st = fx_stat(&f);
		int s = fx_query(&f, h);

		assert_int_equal(st.blocks[s], 1);
		assert_int_equal(st.blocks[KVMM_FREE], 1);
		assert_int_equal(st.frames_free, !has[s].frame);
		assert_int_equal(st.slots_free, !has[s].slot);
		switch (step) {
		case 0:
			assert_int_equal(s, KVMM_FILLING);
			assert_int_equal(fx_publish(&f, h, 1), 0);
			break;
		case 1:
			assert_int_equal(s, KVMM_RESIDENT);
			fx_out_start(&f, h, 0, &io);
			break;
		case 2:
			assert_int_equal(s, KVMM_WRITING);
			fx_out_end(&f, h, 0);
			break;
		case 3:
			assert_int_equal(s, KVMM_CLEAN);
			fx_out_start(&f, h, KVMM_SWAP_DROP, &io);
			break;
		case 4:
			assert_int_equal(s, KVMM_SWAPPED);
			fx_in_start(&f, h, 0, &io);
			break;
		case 5:
			assert_int_equal(s, KVMM_READING);
			fx_in_end(&f, h, 0);
			break;
		case 6:
			assert_int_equal(s, KVMM_CLEAN);
			assert_int_equal(fx_detach(&f, false), 0);
			assert_int_equal(fx_query(&f, h), KVMM_RESIDENT);
			break;
		}
	}
	fx_close(&f);
}

/* What a host must not do is reported, and nothing happens. */
static void done_calls_that_nobody_waits_for(void **state)
{
	struct kvmm_pool_stat before, after;
	struct kvmm_io io;
	struct fx f;
	u64 h[6];
	int i;

	(void)state;
	fx_open(&f, 6, 6);
	h[0] = fx_alloc(&f);
	for (i = 1; i < 6; i++)
		h[i] = fx_block(&f, i);
	fx_out_start(&f, h[2], 0, &io);
	fx_out(&f, h[3], 0);
	fx_out(&f, h[4], KVMM_SWAP_DROP);
	fx_out(&f, h[5], KVMM_SWAP_DROP);
	fx_in_start(&f, h[5], 0, &io);
	before = fx_stat(&f);
	fx_reports = 0;
	for (i = 0; i < 6; i++) {
		if (i != 2)
			kvmm_core_write_done(&f.c, h[i], 0, 0);
		if (i != 5)
			kvmm_core_read_done(&f.c, h[i], i ? 0 : -EIO);
		fx_check(&f);
	}
	kvmm_core_write_done(&f.c, 4711, -EIO, 0);
	kvmm_core_read_done(&f.c, 0, 0);
	kvmm_core_write_done(&f.c, h[2] + (1ULL << 32), 0, 0);
	assert_int_equal(fx_reports, 13);
	fx_reports = -1;
	after = fx_stat(&f);
	assert_memory_equal(&before, &after, sizeof(before));
	assert_int_equal(fx_query(&f, h[0]), KVMM_FILLING);
	assert_int_equal(fx_query(&f, h[1]), KVMM_RESIDENT);
	fx_out_end(&f, h[2], 0);
	fx_in_end(&f, h[5], 0);
	fx_close(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(the_table_is_the_machine),
	cmocka_unit_test(frames_and_slots_go_with_states),
	cmocka_unit_test(done_calls_that_nobody_waits_for),
};

FX_TESTS(state_tests, tests);
