// SPDX-License-Identifier: MIT
/*
 * Pins: counted for each client, in the block and in the table of holds.
 */
#include "fixture.h"

static void pins_count(void **state)
{
	struct fx f;
	u64 h;
	int i;

	(void)state;
	fx_open(&f, 2, 0);
	h = fx_block(&f, 1);
	for (i = 0; i < 5; i++)
		assert_int_equal(fx_pin(&f, h), 0);
	assert_int_equal(fx_stat(&f).pins, 5);
	assert_int_equal(fx_stat(&f).blocks_pinned, 1);
	for (i = 0; i < 5; i++)
		assert_int_equal(fx_unpin(&f, h), 0);
	assert_int_equal(fx_unpin(&f, h), -EINVAL);
	assert_int_equal(fx_stat(&f).blocks_pinned, 0);
	assert_int_equal(fx_query(&f, h), KVMM_RESIDENT);
	fx_close(&f);
}

static void a_pin_is_its_clients(void **state)
{
	struct fx f;
	u32 other;
	u64 h;

	(void)state;
	fx_open(&f, 2, 0);
	other = kvmm_core_client_add(&f.c);
	h = fx_block(&f, 1);
	assert_int_equal(fx_pin(&f, h), 0);
	assert_int_equal(fx_unpin_by(&f, other, h), -EINVAL);
	assert_int_equal(fx_pin_by(&f, other, h), 0);
	assert_int_equal(fx_unpin(&f, h), 0);
	assert_int_equal(fx_unpin(&f, h), -EINVAL);
	assert_int_equal(fx_unpin_by(&f, other, h), 0);
	assert_int_equal(fx_unpin_by(&f, other, h), -EINVAL);
	fx_close(&f);
}

static void a_pinned_block_stays(void **state)
{
	struct fx f;
	u64 h;
	u32 i;

	(void)state;
	fx_open(&f, 3, 0);
	h = fx_block(&f, 1);
	assert_int_equal(fx_pin(&f, h), 0);
	for (i = 0; i < 10; i++)
		fx_block(&f, 10 + i);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MEMORY);
	assert_int_equal(fx_reclaim(&f, 0, NULL), 1);
	assert_int_equal(fx_query(&f, h), KVMM_RESIDENT);
	fx_close(&f);
}

static void holds_of_many_clients(void **state)
{
	u32 id[FX_CLIENTS];
	u64 h[3];
	struct fx f;
	u32 i, k;

	(void)state;
	fx_open(&f, 4, 0);
	id[0] = f.me;
	for (i = 1; i < FX_CLIENTS; i++)
		id[i] = kvmm_core_client_add(&f.c);
	fx_fill(&f, h, 1, 3);
	/* (clients - 1) * 3 holds more than FX_HOLDS + 3: the last ones fail */
	for (i = 0; i < FX_CLIENTS; i++)
		for (k = 0; k < 2; k++)
			assert_int_equal(fx_pin_by(&f, id[i], h[k]), 0);
	assert_int_equal(fx_pin_by(&f, id[0], h[2]), 0);
	assert_int_equal(fx_pin_by(&f, id[1], h[2]), 0);
	assert_int_equal(fx_pin_by(&f, id[2], h[2]), 0);
	assert_int_equal(fx_pin_by(&f, id[3], h[2]), -ENOBUFS);
	assert_int_equal(fx_lookup_by(&f, id[3], 3, KVMM_LOOKUP_PIN).result,
			 -ENOBUFS);
	/* a second pin of the same client wants no further hold */
	assert_int_equal(fx_pin_by(&f, id[2], h[2]), 0);
	assert_int_equal(fx_stat(&f).pins, 2 * FX_CLIENTS + 4);

	/* one that falls makes room, whoever had it */
	assert_int_equal(fx_unpin_by(&f, id[1], h[0]), 0);
	assert_int_equal(fx_pin_by(&f, id[3], h[2]), 0);
	/* the one inside the block, too */
	assert_int_equal(fx_unpin_by(&f, id[0], h[1]), 0);
	assert_int_equal(fx_pin_by(&f, id[0], h[1]), 0);
	for (i = 0; i < FX_CLIENTS; i++) {
		for (k = 0; k < 3; k++)
			fx_unpin_by(&f, id[i], h[k]);
	}
	assert_int_equal(fx_unpin_by(&f, id[2], h[2]), 0);
	assert_int_equal(fx_stat(&f).pins, 0);
	assert_int_equal(fx_stat(&f).blocks_pinned, 0);
	fx_close(&f);
}

static void filling_blocks_are_shared(void **state)
{
	struct kvmm_block_ref ref = { 0 };
	struct fx f;
	u32 other;
	u64 h;

	(void)state;
	fx_open(&f, 2, 0);
	other = kvmm_core_client_add(&f.c);
	h = fx_alloc(&f);
	/* not by a read-only client */
	ref.handle = h;
	kvmm_core_pin(&f.c, other, false, &ref, 1);
	assert_int_equal(ref.result, -EACCES);
	assert_int_equal(fx_pin_by(&f, other, h), 0);
	/* freed when its last holder is gone */
	assert_int_equal(fx_unpin(&f, h), 0);
	assert_int_equal(fx_query(&f, h), KVMM_FILLING);
	assert_int_equal(fx_unpin_by(&f, other, h), 0);
	assert_int_equal(fx_query(&f, h), -ESTALE);
	fx_close(&f);
}

static void pin_sets_the_frame(void **state)
{
	struct kvmm_block_ref ref = { 0 }, found;
	struct fx f;

	(void)state;
	fx_open(&f, 2, 0);
	fx_block(&f, 1);
	ref.handle = fx_block(&f, 2);
	found = fx_lookup_by(&f, f.me, 2, 0);
	ref.frame = KVMM_NO_FRAME;
	kvmm_core_pin(&f.c, f.me, true, &ref, 1);
	assert_int_equal(ref.result, 0);
	assert_int_equal(ref.frame, found.frame);
	fx_close(&f);
}

static void lookup_pins(void **state)
{
	struct kvmm_block_ref ref;
	struct kvmm_io io;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 2, 2);
	h = fx_block(&f, 1);
	ref = fx_lookup_by(&f, f.me, 1, KVMM_LOOKUP_PIN);
	assert_int_equal(ref.result, KVMM_MEMORY);
	assert_int_equal(fx_stat(&f).pins, 1);
	assert_int_equal(fx_unpin(&f, h), 0);
	fx_out(&f, h, KVMM_SWAP_DROP);
	/* nothing to pin in the area */
	ref = fx_lookup_by(&f, f.me, 1, KVMM_LOOKUP_PIN);
	assert_int_equal(ref.result, KVMM_SWAP);
	assert_int_equal(ref.frame, KVMM_NO_FRAME);
	assert_int_equal(fx_stat(&f).pins, 0);
	/* being read: pinned */
	assert_int_equal(fx_in_start(&f, h, 0, &io), KVMM_IO_ISSUE);
	ref = fx_lookup_by(&f, f.me, 1, KVMM_LOOKUP_PIN);
	assert_int_equal(ref.result, KVMM_PENDING);
	assert_int_equal(ref.frame, io.frame);
	assert_int_equal(fx_stat(&f).pins, 1);
	fx_in_end(&f, h, 0);
	assert_int_equal(fx_stat(&f).pins, 1);
	assert_int_equal(fx_stat(&f).hits_memory, 1);
	assert_int_equal(fx_stat(&f).hits_swap, 1);
	assert_int_equal(fx_stat(&f).hits_pending, 1);
	fx_close(&f);
}

static void pin_needs_memory(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 2, 2);
	h = fx_block(&f, 1);
	fx_out(&f, h, KVMM_SWAP_DROP);
	assert_int_equal(fx_pin(&f, h), -EAGAIN);
	assert_int_equal(fx_in_start(&f, h, 0, &io), KVMM_IO_ISSUE);
	assert_int_equal(fx_pin(&f, h), -EAGAIN);
	fx_in_end(&f, h, 0);
	assert_int_equal(fx_pin(&f, h), 0);
	fx_close(&f);
}

static void a_batch_has_a_result_each(void **state)
{
	struct kvmm_block_ref refs[4] = { { 0 } };
	struct fx f;

	(void)state;
	fx_open(&f, 4, 4);
	refs[0].handle = fx_block(&f, 1);
	refs[1].handle = 12345;
	refs[2].handle = fx_block(&f, 2);
	fx_out(&f, refs[2].handle, KVMM_SWAP_DROP);
	refs[3].handle = refs[0].handle;
	kvmm_core_pin(&f.c, f.me, true, refs, 4);
	fx_check(&f);
	assert_int_equal(refs[0].result, 0);
	assert_int_equal(refs[1].result, -ESTALE);
	assert_int_equal(refs[1].frame, KVMM_NO_FRAME);
	assert_int_equal(refs[2].result, -EAGAIN);
	assert_int_equal(refs[3].result, 0);
	kvmm_core_unpin(&f.c, f.me, refs, 4);
	fx_check(&f);
	assert_int_equal(refs[0].result, 0);
	assert_int_equal(refs[1].result, -ESTALE);
	assert_int_equal(refs[2].result, -EINVAL);
	assert_int_equal(refs[3].result, 0);
	fx_close(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(pins_count),
	cmocka_unit_test(a_pin_is_its_clients),
	cmocka_unit_test(a_pinned_block_stays),
	cmocka_unit_test(holds_of_many_clients),
	cmocka_unit_test(filling_blocks_are_shared),
	cmocka_unit_test(pin_sets_the_frame),
	cmocka_unit_test(lookup_pins),
	cmocka_unit_test(pin_needs_memory),
	cmocka_unit_test(a_batch_has_a_result_each),
};

FX_TESTS(pin_tests, tests);
