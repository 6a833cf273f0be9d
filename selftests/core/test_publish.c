// SPDX-License-Identifier: MIT
/*
 * Publishing: refusals, duplicates, parts, metadata.
 */
#include "fixture.h"

static void refuses_malformed_entries(void **state)
{
	struct kvmm_publish_entry e;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 4, 0);
	h = fx_alloc_by(&f, f.me, 3);

	e = fx_entry(h, 1);
	memset(e.key, 0, sizeof(e.key));
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), -EINVAL);
	e = fx_entry(h, 1);
	e.length = 0;
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), -EINVAL);
	e = fx_entry(h, 1);
	e.length = FX_BLOCK_SIZE + 1;
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), -EINVAL);
	e = fx_entry(h, 1);
	e.part = 3;
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), -EINVAL);
	e = fx_entry(h, 1);
	e.part = 0xffff;
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), -EINVAL);
	e = fx_entry(h, 1);
	e.flags = 4;
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), -EINVAL);
	e = fx_entry(h, 1);
	e.flags = KVMM_B_DOOMED;
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), -EINVAL);

	/* nothing was done: it is pinned and can be published still */
	assert_int_equal(fx_query(&f, h), KVMM_FILLING);
	assert_int_equal(fx_stat(&f).pins, 1);
	assert_false(fx_has(&f, 1));
	assert_int_equal(fx_stat(&f).publishes, 0);
	fx_close(&f);
}

static void refuses_what_is_not_the_callers(void **state)
{
	struct kvmm_publish_entry e;
	struct fx f;
	u32 other;
	u64 h;

	(void)state;
	fx_open(&f, 4, 0);
	other = kvmm_core_client_add(&f.c);
	h = fx_alloc(&f);
	e = fx_entry(h, 1);
	assert_int_equal(fx_publish_entry(&f, other, 0, &e), -EACCES);
	assert_int_equal(fx_query(&f, h), KVMM_FILLING);
	/* whoever pins it may */
	assert_int_equal(fx_pin_by(&f, other, h), 0);
	assert_int_equal(fx_publish_entry(&f, other, 0, &e), 0);
	assert_int_equal(fx_query(&f, h), KVMM_RESIDENT);
	assert_int_equal(fx_stat(&f).pins, 1);
	assert_int_equal(fx_unpin(&f, h), 0);
	fx_close(&f);
}

static void refuses_a_second_time(void **state)
{
	struct kvmm_publish_entry e;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 4, 0);
	h = fx_alloc(&f);
	e = fx_entry(h, 1);
	assert_int_equal(fx_publish_entry(&f, f.me, KVMM_PUBLISH_KEEP, &e), 0);
	e = fx_entry(h, 1);
	assert_int_equal(fx_publish_entry(&f, f.me, KVMM_PUBLISH_KEEP, &e),
			 -EBUSY);
	e = fx_entry(h, 2);
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), -EBUSY);
	assert_int_equal(fx_stat(&f).pins, 1);
	assert_int_equal(fx_stat(&f).publishes, 1);
	fx_close(&f);
}

static void keep_keeps_the_pin(void **state)
{
	struct kvmm_publish_entry e;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 1, 0);
	h = fx_alloc(&f);
	e = fx_entry(h, 1);
	assert_int_equal(fx_publish_entry(&f, f.me, KVMM_PUBLISH_KEEP, &e), 0);
	assert_int_equal(fx_stat(&f).pins, 1);
	assert_int_equal(fx_alloc_fails(&f), -ENOSPC);
	assert_int_equal(fx_unpin(&f, h), 0);
	assert_int_equal(fx_unpin(&f, h), -EINVAL);
	fx_alloc(&f);
	fx_close(&f);
}

static void the_first_publisher_wins(void **state)
{
	struct kvmm_publish_entry e;
	struct fx f;
	u64 a, b;

	(void)state;
	fx_open(&f, 4, 0);
	a = fx_alloc(&f);
	b = fx_alloc(&f);
	assert_int_equal(fx_publish(&f, a, 1), 0);

	e = fx_entry(b, 1);
	assert_int_equal(fx_publish_entry(&f, f.me, KVMM_PUBLISH_KEEP, &e),
			 -EEXIST);
	assert_true(e.existing == a);
	assert_int_equal(fx_query(&f, b), KVMM_FILLING);
	assert_int_equal(fx_stat(&f).pins, 1);

	/* a duplicate costs nothing: its block is gone with its pin */
	e = fx_entry(b, 1);
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), -EEXIST);
	assert_true(e.existing == a);
	assert_int_equal(fx_query(&f, b), -ESTALE);
	assert_int_equal(fx_stat(&f).frames_free, 3);
	assert_int_equal(fx_stat(&f).publish_dups, 2);
	assert_int_equal(fx_stat(&f).publishes, 1);
	fx_close(&f);
}

static void a_duplicate_can_take_another_key(void **state)
{
	struct kvmm_publish_entry e;
	struct fx f;
	u64 a, b;

	(void)state;
	fx_open(&f, 4, 0);
	a = fx_block(&f, 1);
	b = fx_alloc(&f);
	e = fx_entry(b, 1);
	assert_int_equal(fx_publish_entry(&f, f.me, KVMM_PUBLISH_KEEP, &e),
			 -EEXIST);
	assert_true(e.existing == a);
	assert_int_equal(fx_publish(&f, b, 2), 0);
	assert_true(fx_lookup_by(&f, f.me, 2, 0).handle == b);
	fx_close(&f);
}

static void a_duplicate_of_a_swapped_block(void **state)
{
	struct kvmm_publish_entry e;
	struct fx f;
	u64 a, b;

	(void)state;
	fx_open(&f, 4, 4);
	a = fx_block(&f, 1);
	fx_out(&f, a, KVMM_SWAP_DROP);
	b = fx_alloc(&f);
	e = fx_entry(b, 1);
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), -EEXIST);
	assert_true(e.existing == a);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_SWAP);
	fx_close(&f);
}

static void two_of_one_key_in_one_call(void **state)
{
	struct kvmm_publish_entry e[2];
	struct kvmm_cursor cur = { 0 };
	struct fx f;
	u64 a, b;

	(void)state;
	fx_open(&f, 4, 0);
	a = fx_alloc(&f);
	b = fx_alloc(&f);
	e[0] = fx_entry(a, 1);
	e[1] = fx_entry(b, 1);
	kvmm_core_publish(&f.c, f.me, 0, f.now, &cur, e, 2);
	fx_check(&f);
	assert_int_equal(e[0].result, 0);
	assert_int_equal(e[1].result, -EEXIST);
	assert_true(e[1].existing == a);
	fx_close(&f);
}

static void parts_complete_in_any_order(void **state)
{
	struct kvmm_publish_entry e;
	u32 rank[3];
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 4, 0);
	rank[0] = f.me;
	rank[1] = kvmm_core_client_add(&f.c);
	rank[2] = kvmm_core_client_add(&f.c);
	h = fx_alloc_by(&f, f.me, 3);
	assert_int_equal(fx_pin_by(&f, rank[1], h), 0);
	assert_int_equal(fx_pin_by(&f, rank[2], h), 0);

	e = fx_entry(h, 1);
	e.part = 2;
	e.length = 123;
	assert_int_equal(fx_publish_entry(&f, rank[2], 0, &e), 1);
	assert_int_equal(fx_query(&f, h), KVMM_FILLING);
	assert_false(fx_has(&f, 1));
	assert_int_equal(fx_stat(&f).pins, 2);

	/* the same part again, and a part of something else */
	assert_int_equal(fx_pin_by(&f, rank[2], h), 0);
	assert_int_equal(fx_publish_entry(&f, rank[2], 0, &e), -EALREADY);
	e = fx_entry(h, 2);
	e.part = 0;
	assert_int_equal(fx_publish_entry(&f, rank[2], 0, &e), -EINVAL);
	assert_int_equal(fx_stat(&f).pins, 3);
	assert_int_equal(fx_unpin_by(&f, rank[2], h), 0);

	e = fx_entry(h, 1);
	e.part = 0;
	assert_int_equal(fx_publish_entry(&f, rank[0], 0, &e), 1);
	e.part = 1;
	assert_int_equal(fx_publish_entry(&f, rank[1], 0, &e), 0);
	assert_int_equal(fx_query(&f, h), KVMM_RESIDENT);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MEMORY);
	assert_int_equal(fx_stat(&f).pins, 0);
	assert_int_equal(fx_stat(&f).publishes, 1);
	fx_close(&f);
}

static void the_most_parts(void **state)
{
	struct kvmm_publish_entry e;
	struct fx f;
	u64 h;
	int i;

	(void)state;
	fx_open(&f, 4, 0);
	h = fx_alloc_by(&f, f.me, KVMM_MAX_PARTS);
	for (i = 0; i < KVMM_MAX_PARTS; i++) {
		e = fx_entry(h, 1);
		e.part = (i * 7) % KVMM_MAX_PARTS;
		assert_int_equal(fx_publish_entry(&f, f.me, KVMM_PUBLISH_KEEP,
						  &e),
				 i == KVMM_MAX_PARTS - 1 ? 0 : 1);
	}
	assert_int_equal(fx_unpin(&f, h), 0);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MEMORY);
	fx_close(&f);
}

static void a_part_without_pins_frees_the_block(void **state)
{
	struct kvmm_publish_entry e;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 1, 0);
	h = fx_alloc_by(&f, f.me, 2);
	e = fx_entry(h, 1);
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), 1);
	assert_int_equal(fx_query(&f, h), -ESTALE);
	assert_int_equal(fx_stat(&f).frames_free, 1);
	/* a new block knows nothing of the old one's parts and key */
	h = fx_alloc_by(&f, f.me, 2);
	e = fx_entry(h, 2);
	e.part = 0;
	assert_int_equal(fx_publish_entry(&f, f.me, KVMM_PUBLISH_KEEP, &e), 1);
	e.part = 1;
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), 0);
	fx_close(&f);
}

static void a_key_taken_between_parts(void **state)
{
	struct kvmm_publish_entry e;
	struct fx f;
	u64 h, other;

	(void)state;
	fx_open(&f, 4, 0);
	h = fx_alloc_by(&f, f.me, 2);
	e = fx_entry(h, 1);
	assert_int_equal(fx_publish_entry(&f, f.me, KVMM_PUBLISH_KEEP, &e), 1);
	other = fx_block(&f, 1);
	e.part = 1;
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), -EEXIST);
	assert_true(e.existing == other);
	assert_int_equal(fx_query(&f, h), -ESTALE);
	assert_true(fx_lookup_by(&f, f.me, 1, 0).handle == other);
	fx_close(&f);
}

static void bad_numbers_of_parts(void **state)
{
	struct kvmm_publish_entry e;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 4, 0);
	/* 0 counts as 1 */
	h = fx_alloc_by(&f, f.me, 0);
	e = fx_entry(h, 1);
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), 0);
	fx_close(&f);
}

static void metadata_is_kept(void **state)
{
	struct kvmm_publish_entry e;
	struct kvmm_key_entry k;
	struct kvmm_block_ref ref;
	u64 cursor = 0;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 4, 4);
	h = fx_alloc(&f);
	e = fx_entry(h, 1);
	e.parent = 0x1234567800000001ULL;	/* stale: allowed */
	e.position = 17;
	e.length = 1;
	e.expiry_ms = 5;
	e.cost_us = 6;
	e.priority = 255;
	e.flags = KVMM_BLOCK_PARTIAL | KVMM_BLOCK_RECOMPUTABLE;
	assert_int_equal(fx_publish_entry(&f, f.me, KVMM_PUBLISH_KEEP, &e), 0);
	assert_int_equal(kvmm_core_keys(&f.c, f.now, &cursor, &k, 1), 1);
	assert_memory_equal(k.key, e.key, KVMM_KEY_LEN);
	assert_true(k.handle == h);
	assert_true(k.parent == e.parent);
	assert_int_equal(k.position, 17);
	assert_int_equal(k.length, 1);
	assert_int_equal(k.expiry_ms, 5);
	assert_int_equal(k.cost_us, 6);
	assert_int_equal(k.priority, 255);
	assert_int_equal(k.flags, e.flags);
	assert_int_equal(k.pins, 1);
	assert_int_equal(k.state, KVMM_RESIDENT);
	assert_int_equal(k.slot, KVMM_NO_SLOT);
	ref = fx_lookup_by(&f, f.me, 1, 0);
	assert_int_equal(k.frame, ref.frame);
	cursor = 0;
	assert_int_equal(kvmm_core_keys(&f.c, f.now, &cursor, &k, 1), 1);
	assert_int_equal(k.uses, 2);
	fx_close(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(refuses_malformed_entries),
	cmocka_unit_test(refuses_what_is_not_the_callers),
	cmocka_unit_test(refuses_a_second_time),
	cmocka_unit_test(keep_keeps_the_pin),
	cmocka_unit_test(the_first_publisher_wins),
	cmocka_unit_test(a_duplicate_can_take_another_key),
	cmocka_unit_test(a_duplicate_of_a_swapped_block),
	cmocka_unit_test(two_of_one_key_in_one_call),
	cmocka_unit_test(parts_complete_in_any_order),
	cmocka_unit_test(the_most_parts),
	cmocka_unit_test(a_part_without_pins_frees_the_block),
	cmocka_unit_test(a_key_taken_between_parts),
	cmocka_unit_test(bad_numbers_of_parts),
	cmocka_unit_test(metadata_is_kept),
};

FX_TESTS(publish_tests, tests);
