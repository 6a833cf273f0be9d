// SPDX-License-Identifier: MIT
/*
 * The order of eviction, seen through who goes: publish, lookup, touch, chains,
 * hints, over the batches of one command.
 */
#include "fixture.h"

/*
 * The ids in the order in which they go, oldest first: the pool of @n frames
 * and no slot is emptied by reclaim, one by one.
 */
static void assert_order(struct fx *f, const u64 *ids, u32 n)
{
	u32 left = kvmm_core_frames_used(&f->c), i, k;

	assert_int_equal(left, n);
	for (i = 0; i < n; i++) {
		for (k = i; k < n; k++)
			if (!fx_has(f, ids[k]))
				fail_msg("%llu went before %llu",
					 (unsigned long long)ids[k],
					 (unsigned long long)ids[i]);
		assert_int_equal(fx_reclaim(f, n - 1 - i, NULL), n - 1 - i);
		if (fx_has(f, ids[i]))
			fail_msg("%llu stayed", (unsigned long long)ids[i]);
	}
}

#define ORDER(f, ...) do {						\
	const u64 __ids[] = { __VA_ARGS__ };				\
	assert_order(f, __ids, sizeof(__ids) / sizeof(__ids[0]));	\
} while (0)

static void oldest_first(void **state)
{
	struct fx f;
	u64 h[4];

	(void)state;
	fx_open(&f, 4, 0);
	fx_fill(&f, h, 1, 4);
	ORDER(&f, 1, 2, 3, 4);
	fx_close(&f);
}

static void alloc_takes_the_oldest(void **state)
{
	struct fx f;
	u64 h[4];

	(void)state;
	fx_open(&f, 4, 0);
	fx_fill(&f, h, 1, 4);
	assert_int_equal(fx_touch(&f, h[0]), 0);
	fx_block(&f, 5);
	assert_false(fx_has(&f, 2));
	fx_block(&f, 6);
	assert_false(fx_has(&f, 3));
	ORDER(&f, 4, 1, 5, 6);
	assert_int_equal(fx_stat(&f).purged, 6);
	fx_close(&f);
}

static void lookup_touches(void **state)
{
	struct fx f;
	u64 h[4];

	(void)state;
	fx_open(&f, 4, 0);
	fx_fill(&f, h, 1, 4);
	fx_lookup(&f, 2, 0);
	fx_lookup(&f, 1, KVMM_LOOKUP_PEEK);
	ORDER(&f, 1, 3, 4, 2);
	fx_close(&f);
}

static void query_does_not_touch(void **state)
{
	struct fx f;
	u64 h[3];

	(void)state;
	fx_open(&f, 3, 0);
	fx_fill(&f, h, 1, 3);
	assert_int_equal(fx_query(&f, h[0]), KVMM_RESIDENT);
	ORDER(&f, 1, 2, 3);
	fx_close(&f);
}

static void a_prefix_is_younger_than_its_extension(void **state)
{
	struct kvmm_block_ref refs[3] = { { 0 } };
	struct kvmm_cursor cur = { 0 };
	struct fx f;
	u64 h[5];

	(void)state;
	fx_open(&f, 5, 0);
	fx_fill(&f, h, 1, 5);
	refs[0].handle = h[0];
	refs[1].handle = h[3];
	refs[2].handle = h[1];
	kvmm_core_touch(&f.c, f.now, &cur, refs, 3);
	fx_check(&f);
	ORDER(&f, 3, 5, 2, 4, 1);
	fx_close(&f);
}

static void also_over_batches(void **state)
{
	struct kvmm_block_ref ref = { 0 };
	struct kvmm_cursor cur = { 0 };
	struct fx f;
	u64 h[6];
	int i;

	(void)state;
	fx_open(&f, 6, 0);
	fx_fill(&f, h, 1, 6);
	for (i = 0; i < 4; i++) {
		ref.handle = h[i];
		kvmm_core_touch(&f.c, f.now, &cur, &ref, 1);
		fx_check(&f);
	}
	ORDER(&f, 5, 6, 4, 3, 2, 1);
	fx_close(&f);
}

static void also_with_lookup(void **state)
{
	u8 keys[4 * KVMM_KEY_LEN];
	struct kvmm_block_ref refs[4];
	struct kvmm_cursor cur = { 0 };
	struct fx f;
	u64 h[5];
	u32 i;

	(void)state;
	fx_open(&f, 5, 0);
	fx_fill(&f, h, 1, 5);
	for (i = 0; i < 4; i++)
		fx_key(keys + i * KVMM_KEY_LEN, 1 + i);
	kvmm_core_lookup(&f.c, f.me, 0, f.now, &cur, keys, refs, 2);
	kvmm_core_lookup(&f.c, f.me, 0, f.now, &cur, keys + 2 * KVMM_KEY_LEN,
			 refs, 2);
	fx_check(&f);
	ORDER(&f, 5, 4, 3, 2, 1);
	fx_close(&f);
}

static void also_with_publish(void **state)
{
	struct kvmm_publish_entry e[4];
	struct kvmm_block_ref refs[4];
	struct kvmm_cursor cur = { 0 };
	struct fx f;
	u32 i;

	(void)state;
	fx_open(&f, 5, 0);
	fx_block(&f, 9);
	assert_int_equal(kvmm_core_alloc(&f.c, f.me, 1, f.now, refs, 4), 4);
	for (i = 0; i < 4; i++)
		e[i] = fx_entry(refs[i].handle, 1 + i);
	kvmm_core_publish(&f.c, f.me, 0, f.now, &cur, e, 3);
	kvmm_core_publish(&f.c, f.me, 0, f.now, &cur, e + 3, 1);
	fx_check(&f);
	ORDER(&f, 9, 4, 3, 2, 1);
	fx_close(&f);
}

/* Read back in prefix order, a chain is in that order in memory too. */
static void also_when_read_back(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 h[4];
	int i;

	(void)state;
	fx_open(&f, 5, 4);
	h[0] = fx_block(&f, 1);
	for (i = 1; i < 4; i++)
		h[i] = fx_block_with(&f, 1 + i, h[i - 1], 0, 0, 0);
	for (i = 3; i >= 0; i--)
		fx_out(&f, h[i], KVMM_SWAP_DROP);
	fx_block(&f, 9);
	for (i = 0; i < 4; i++)
		assert_int_equal(fx_in_start(&f, h[i], 0, &io), KVMM_IO_ISSUE);
	for (i = 0; i < 4; i++)
		fx_in_end(&f, h[i], 0);
	assert_int_equal(fx_detach(&f, false), 0);
	ORDER(&f, 9, 4, 3, 2, 1);
	fx_close(&f);
}

/* The block that the next one follows may go between two batches. */
static void a_cursor_survives_its_block(void **state)
{
	struct kvmm_block_ref ref = { 0 };
	struct kvmm_cursor cur = { 0 };
	struct fx f;
	u64 h[4];

	(void)state;
	fx_open(&f, 4, 0);
	fx_fill(&f, h, 1, 4);
	ref.handle = h[0];
	kvmm_core_touch(&f.c, f.now, &cur, &ref, 1);
	assert_int_equal(fx_drop(&f, h[0]), 0);
	ref.handle = h[1];
	kvmm_core_touch(&f.c, f.now, &cur, &ref, 1);
	fx_check(&f);
	assert_int_equal(ref.result, 0);
	ORDER(&f, 3, 4, 2);
	fx_close(&f);
}

static void touching_one_twice_in_a_command(void **state)
{
	struct kvmm_block_ref refs[4] = { { 0 } };
	struct kvmm_cursor cur = { 0 };
	struct fx f;
	u64 h[3];

	(void)state;
	fx_open(&f, 3, 0);
	fx_fill(&f, h, 1, 3);
	refs[0].handle = h[0];
	refs[1].handle = h[0];
	refs[2].handle = h[1];
	refs[3].handle = h[1];
	kvmm_core_touch(&f.c, f.now, &cur, refs, 4);
	fx_check(&f);
	ORDER(&f, 3, 2, 1);
	fx_close(&f);
}

/* A block that is touched while pinned keeps that place when let go. */
static void pinned_blocks_keep_their_place(void **state)
{
	struct fx f;
	u64 h[4];

	(void)state;
	fx_open(&f, 4, 0);
	fx_fill(&f, h, 1, 4);
	assert_int_equal(fx_pin(&f, h[3]), 0);
	assert_int_equal(fx_pin(&f, h[0]), 0);
	assert_int_equal(fx_touch(&f, h[0]), 0);
	assert_int_equal(fx_touch(&f, h[1]), 0);
	assert_int_equal(fx_touch(&f, h[2]), 0);
	assert_int_equal(fx_touch(&f, h[3]), 0);
	assert_int_equal(fx_unpin(&f, h[3]), 0);
	assert_int_equal(fx_unpin(&f, h[0]), 0);
	/* pinning is not using; whoever was pinned may be younger, not older */
	assert_int_equal(fx_reclaim(&f, 3, NULL), 3);
	assert_true(fx_has(&f, 4));
	fx_close(&f);
}

static void a_chain_is_touched_from_its_end(void **state)
{
	struct fx f;
	u64 h[5], at;

	(void)state;
	fx_open(&f, 5, 0);
	h[0] = fx_block(&f, 1);
	h[1] = fx_block_with(&f, 2, h[0], 0, 0, 0);
	h[2] = fx_block_with(&f, 3, h[1], 0, 0, 0);
	h[3] = fx_block(&f, 4);
	h[4] = fx_block(&f, 5);
	at = h[2];
	assert_int_equal(fx_chain(&f, &at), 3);
	fx_check(&f);
	assert_true(at == 0);
	ORDER(&f, 4, 5, 3, 2, 1);
	fx_close(&f);
}

static void a_chain_ends_where_a_block_is_gone(void **state)
{
	struct fx f;
	u64 h[4], at;

	(void)state;
	fx_open(&f, 4, 0);
	h[0] = fx_block(&f, 1);
	h[1] = fx_block_with(&f, 2, h[0], 0, 0, 0);
	h[2] = fx_block_with(&f, 3, h[1], 0, 0, 0);
	assert_int_equal(fx_drop(&f, h[1]), 0);
	at = h[2];
	assert_int_equal(fx_chain(&f, &at), 1);
	assert_true(at == 0);
	at = h[1];
	assert_int_equal(fx_chain(&f, &at), -ESTALE);
	fx_close(&f);
}

static void a_long_chain_takes_several_calls(void **state)
{
	u64 h = 0, at;
	struct fx f;
	u32 i, total = 0, calls = 0;

	(void)state;
	fx_open(&f, 200, 0);
	for (i = 0; i < 150; i++)
		h = fx_block_with(&f, 1 + i, h, 0, 0, 0);
	at = h;
	do {
		int n = fx_chain(&f, &at);

		fx_check(&f);
		assert_in_range(n, 1, KVMM_CORE_BATCH);
		total += n;
		calls++;
	} while (at);
	assert_int_equal(total, 150);
	assert_int_equal(calls, 3);
	/* now the deepest is the oldest */
	fx_reclaim(&f, 149, NULL);
	assert_false(fx_has(&f, 150));
	fx_close(&f);
}

/* A parent may be any handle, the block's own included: no endless chain. */
static void a_chain_may_not_run_for_ever(void **state)
{
	struct kvmm_publish_entry e;
	struct kvmm_block_ref refs[2];
	struct kvmm_cursor cur = { 0 };
	struct fx f;
	u64 at;
	int calls;

	(void)state;
	fx_open(&f, 4, 0);
	assert_int_equal(kvmm_core_alloc(&f.c, f.me, 1, f.now, refs, 2), 2);
	e = fx_entry(refs[0].handle, 1);
	e.parent = refs[1].handle;
	e.position = 7;
	kvmm_core_publish(&f.c, f.me, 0, f.now, &cur, &e, 1);
	assert_int_equal(e.result, 0);
	e = fx_entry(refs[1].handle, 2);
	e.parent = refs[0].handle;
	e.position = 8;
	kvmm_core_publish(&f.c, f.me, 0, f.now, &cur, &e, 1);
	assert_int_equal(e.result, 0);
	fx_check(&f);
	for (at = refs[0].handle, calls = 0; at; calls++) {
		assert_true(fx_chain(&f, &at) >= 0);
		fx_check(&f);
		if (calls == 1000)
			fail_msg("a cycle of parents is walked for ever");
	}
	for (at = refs[0].handle, calls = 0; at; calls++) {
		assert_true(fx_hint(&f, 0, &at) >= 0);
		fx_check(&f);
		if (calls == 1000)
			fail_msg("a cycle of parents is walked for ever");
	}
	fx_close(&f);
}

static void a_hint_of_zero_makes_old(void **state)
{
	struct fx f;
	u64 h[5], at;

	(void)state;
	fx_open(&f, 5, 0);
	h[3] = fx_block(&f, 4);
	h[0] = fx_block(&f, 1);
	h[1] = fx_block_with(&f, 2, h[0], 0, 0, 0);
	h[2] = fx_block_with(&f, 3, h[1], 0, 0, 0);
	h[4] = fx_block(&f, 5);
	at = h[2];
	assert_int_equal(fx_hint(&f, 500, &at), 0);
	fx_check(&f);
	at = h[2];
	assert_int_equal(fx_hint(&f, 0, &at), 3);
	fx_check(&f);
	assert_true(at == 0);
	/* among them the deepest goes first */
	ORDER(&f, 3, 2, 1, 4, 5);
	fx_close(&f);
}

static void a_hint_spares_what_is_shared(void **state)
{
	struct fx f;
	u64 root, left, right, at;

	(void)state;
	fx_open(&f, 4, 0);
	fx_block(&f, 9);
	root = fx_block(&f, 1);
	left = fx_block_with(&f, 2, root, 0, 0, 0);
	right = fx_block_with(&f, 3, root, 0, 0, 0);
	at = left;
	assert_int_equal(fx_hint(&f, 0, &at), 1);
	fx_check(&f);
	ORDER(&f, 2, 9, 1, 3);
	(void)right;
	fx_close(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(oldest_first),
	cmocka_unit_test(alloc_takes_the_oldest),
	cmocka_unit_test(lookup_touches),
	cmocka_unit_test(query_does_not_touch),
	cmocka_unit_test(a_prefix_is_younger_than_its_extension),
	cmocka_unit_test(also_over_batches),
	cmocka_unit_test(also_with_lookup),
	cmocka_unit_test(also_with_publish),
	cmocka_unit_test(also_when_read_back),
	cmocka_unit_test(a_cursor_survives_its_block),
	cmocka_unit_test(touching_one_twice_in_a_command),
	cmocka_unit_test(pinned_blocks_keep_their_place),
	cmocka_unit_test(a_chain_is_touched_from_its_end),
	cmocka_unit_test(a_chain_ends_where_a_block_is_gone),
	cmocka_unit_test(a_long_chain_takes_several_calls),
	cmocka_unit_test(a_chain_may_not_run_for_ever),
	cmocka_unit_test(a_hint_of_zero_makes_old),
	cmocka_unit_test(a_hint_spares_what_is_shared),
};

FX_TESTS(order_tests, tests);
