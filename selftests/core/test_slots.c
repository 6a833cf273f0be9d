// SPDX-License-Identifier: MIT
/*
 * Slots running short: those of blocks that are also in memory go first, then
 * the oldest swapped block is lost; a slot in I/O is never taken.
 */
#include "fixture.h"

static void swapped(struct fx *f, u64 id)
{
	fx_out(f, fx_block(f, id), KVMM_SWAP_DROP);
}

static void clean_slots_go_first(void **state)
{
	struct fx f;
	u64 clean, h;

	(void)state;
	fx_open(&f, 3, 3);
	swapped(&f, 1);
	swapped(&f, 2);
	clean = fx_block(&f, 3);
	fx_out(&f, clean, 0);
	assert_int_equal(fx_stat(&f).slots_free, 0);

	h = fx_block(&f, 4);
	fx_out(&f, h, 0);
	assert_int_equal(fx_query(&f, clean), KVMM_RESIDENT);
	assert_int_equal(fx_query(&f, h), KVMM_CLEAN);
	assert_int_equal(fx_stat(&f).slots_evicted, 0);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_SWAP);
	assert_int_equal(fx_lookup(&f, 2, 0), KVMM_SWAP);
	fx_close(&f);
}

/* Also of a pinned block: its data stays where it is. */
static void clean_slots_of_pinned_blocks_too(void **state)
{
	struct fx f;
	u64 clean;

	(void)state;
	fx_open(&f, 3, 1);
	clean = fx_block(&f, 1);
	fx_out(&f, clean, 0);
	assert_int_equal(fx_pin(&f, clean), 0);
	swapped(&f, 2);
	assert_int_equal(fx_query(&f, clean), KVMM_RESIDENT);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MEMORY);
	assert_int_equal(fx_stat(&f).pins, 1);
	fx_close(&f);
}

static void then_the_oldest_swapped(void **state)
{
	struct fx f;

	(void)state;
	fx_open(&f, 2, 3);
	swapped(&f, 1);
	swapped(&f, 2);
	swapped(&f, 3);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_SWAP);	/* young again */
	swapped(&f, 4);
	assert_false(fx_has(&f, 2));
	assert_true(fx_has(&f, 1));
	assert_int_equal(fx_stat(&f).slots_evicted, 1);
	swapped(&f, 5);
	assert_false(fx_has(&f, 3));
	swapped(&f, 6);
	assert_false(fx_has(&f, 1));
	assert_true(fx_has(&f, 4) && fx_has(&f, 5) && fx_has(&f, 6));
	assert_int_equal(fx_stat(&f).slots_evicted, 3);
	fx_close(&f);
}

/* The order of swapped blocks is theirs, not that of their writes' ends. */
static void order_does_not_depend_on_completions(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 h[3];
	int i;

	(void)state;
	fx_open(&f, 4, 3);
	fx_fill(&f, h, 1, 3);
	for (i = 0; i < 3; i++)
		assert_int_equal(fx_out_start(&f, h[i], KVMM_SWAP_DROP, &io),
				 KVMM_IO_ISSUE);
	for (i = 2; i >= 0; i--)
		fx_out_end(&f, h[i], 0);
	swapped(&f, 4);
	assert_false(fx_has(&f, 1));
	swapped(&f, 5);
	assert_false(fx_has(&f, 2));
	assert_true(fx_has(&f, 3));
	fx_close(&f);
}

static void touch_reaches_swapped_blocks(void **state)
{
	struct kvmm_block_ref refs[3] = { { 0 } };
	struct kvmm_cursor cur = { 0 };
	struct fx f;
	int i;

	(void)state;
	fx_open(&f, 2, 3);
	for (i = 0; i < 3; i++) {
		refs[i].handle = fx_block(&f, 1 + i);
		fx_out(&f, refs[i].handle, KVMM_SWAP_DROP);
	}
	/* in prefix order 1, 2, 3: the oldest is 3 */
	kvmm_core_touch(&f.c, f.now, &cur, refs, 3);
	fx_check(&f);
	for (i = 0; i < 3; i++) {
		assert_int_equal(refs[i].result, 0);
		assert_int_equal(refs[i].frame, KVMM_NO_FRAME);
	}
	swapped(&f, 4);
	assert_false(fx_has(&f, 3));
	swapped(&f, 5);
	assert_false(fx_has(&f, 2));
	assert_true(fx_has(&f, 1));
	fx_close(&f);
}

static void a_hint_reaches_swapped_blocks(void **state)
{
	struct fx f;
	u64 root, leaf, at;

	(void)state;
	fx_open(&f, 3, 3);
	swapped(&f, 9);
	root = fx_block(&f, 1);
	leaf = fx_block_with(&f, 2, root, 0, 0, 0);
	fx_out(&f, root, KVMM_SWAP_DROP);
	fx_out(&f, leaf, KVMM_SWAP_DROP);
	at = leaf;
	assert_int_equal(fx_hint(&f, 0, &at), 2);
	swapped(&f, 4);
	assert_false(fx_has(&f, 2));
	swapped(&f, 5);
	assert_false(fx_has(&f, 1));
	assert_true(fx_has(&f, 9));
	fx_close(&f);
}

static void slots_in_use_by_io_are_not_taken(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 a, b, h;

	(void)state;
	fx_open(&f, 4, 2);
	a = fx_block(&f, 1);
	fx_out(&f, a, KVMM_SWAP_DROP);
	b = fx_block(&f, 2);
	h = fx_block(&f, 3);
	assert_int_equal(fx_in_start(&f, a, 0, &io), KVMM_IO_ISSUE);
	assert_int_equal(fx_out_start(&f, b, KVMM_SWAP_DROP, &io),
			 KVMM_IO_ISSUE);
	assert_int_equal(fx_out_start(&f, h, 0, &io), -ENOSPC);
	assert_int_equal(fx_query(&f, h), KVMM_RESIDENT);
	fx_out_end(&f, b, 0);
	/* now the one that was written is the only one to take */
	assert_int_equal(fx_out_start(&f, h, 0, &io), KVMM_IO_ISSUE);
	assert_int_equal(fx_query(&f, b), -ESTALE);
	fx_in_end(&f, a, 0);
	fx_out_end(&f, h, 0);
	assert_int_equal(fx_query(&f, a), KVMM_CLEAN);
	fx_close(&f);
}

static void a_dropped_block_keeps_its_slot_while_pinned(void **state)
{
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 2, 1);
	h = fx_block(&f, 1);
	fx_out(&f, h, 0);
	assert_int_equal(fx_pin(&f, h), 0);
	assert_int_equal(fx_drop(&f, h), 0);
	/* its slot may be taken: nobody will read it */
	swapped(&f, 2);
	assert_int_equal(fx_lookup(&f, 2, 0), KVMM_SWAP);
	assert_int_equal(fx_unpin(&f, h), 0);
	assert_int_equal(fx_lookup(&f, 2, 0), KVMM_SWAP);
	fx_close(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(clean_slots_go_first),
	cmocka_unit_test(clean_slots_of_pinned_blocks_too),
	cmocka_unit_test(then_the_oldest_swapped),
	cmocka_unit_test(order_does_not_depend_on_completions),
	cmocka_unit_test(touch_reaches_swapped_blocks),
	cmocka_unit_test(a_hint_reaches_swapped_blocks),
	cmocka_unit_test(slots_in_use_by_io_are_not_taken),
	cmocka_unit_test(a_dropped_block_keeps_its_slot_while_pinned),
};

FX_TESTS(slot_tests, tests);
