// SPDX-License-Identifier: MIT
/*
 * Blocks: allocation, handles, generations, lookup, expiry, epochs, drop,
 * enumeration.
 */
#include "fixture.h"

static void allocates_distinct_frames(void **state)
{
	struct kvmm_block_ref refs[KVMM_CORE_BATCH];
	bool seen[10] = { 0 };
	struct fx f;
	int i, n;

	(void)state;
	fx_open(&f, 10, 0);
	n = kvmm_core_alloc(&f.c, f.me, 1, f.now, refs, KVMM_CORE_BATCH);
	assert_int_equal(n, 10);
	fx_check(&f);
	for (i = 0; i < n; i++) {
		assert_int_equal(refs[i].result, 0);
		assert_in_range(refs[i].frame, 0, 9);
		assert_false(seen[refs[i].frame]);
		seen[refs[i].frame] = true;
		assert_int_equal(fx_query(&f, refs[i].handle), KVMM_FILLING);
	}
	assert_int_equal(fx_stat(&f).allocs, 10);
	assert_int_equal(fx_stat(&f).alloc_fails, 54);
	assert_int_equal(fx_stat(&f).pins, 10);
	assert_int_equal(fx_stat(&f).blocks_pinned, 10);
	assert_int_equal(fx_alloc_fails(&f), -ENOSPC);
	fx_close(&f);
}

static void an_unpinned_filling_block_is_freed(void **state)
{
	u64 a, b;
	struct fx f;

	(void)state;
	fx_open(&f, 1, 0);
	a = fx_alloc(&f);
	assert_int_equal(fx_unpin(&f, a), 0);
	assert_int_equal(fx_query(&f, a), -ESTALE);
	assert_int_equal(fx_stat(&f).frames_free, 1);
	b = fx_alloc(&f);
	assert_true(a != b);
	assert_int_equal(fx_query(&f, a), -ESTALE);
	assert_int_equal(fx_query(&f, b), KVMM_FILLING);
	fx_close(&f);
}

/* What every call says to a handle that means nothing. */
static void stale_everywhere(struct fx *f, u64 handle)
{
	struct kvmm_publish_entry e = fx_entry(handle, 4711);
	struct kvmm_io io;
	u64 h;

	assert_int_equal(fx_query(f, handle), -ESTALE);
	assert_int_equal(fx_touch(f, handle), -ESTALE);
	assert_int_equal(fx_pin(f, handle), -ESTALE);
	assert_int_equal(fx_unpin(f, handle), -ESTALE);
	assert_int_equal(fx_drop(f, handle), -ESTALE);
	assert_int_equal(fx_publish_entry(f, f->me, 0, &e), -ESTALE);
	assert_int_equal(fx_out_start(f, handle, 0, &io), -ESTALE);
	assert_int_equal(fx_out_start(f, handle, KVMM_SWAP_DROP, &io), -ESTALE);
	assert_int_equal(fx_in_start(f, handle, 0, &io), -ESTALE);
	assert_int_equal(fx_in_start(f, handle, KVMM_SWAP_PIN, &io), -ESTALE);
	h = handle;
	assert_int_equal(fx_chain(f, &h), -ESTALE);
	h = handle;
	assert_int_equal(fx_hint(f, 0, &h), -ESTALE);
	h = handle;
	assert_int_equal(fx_hint(f, 500, &h), -ESTALE);
	fx_check(f);
}

static void stale_handles_are_refused(void **state)
{
	u64 good, old;
	struct fx f;

	(void)state;
	fx_open(&f, 4, 4);
	good = fx_block(&f, 1);
	old = fx_block(&f, 2);
	assert_int_equal(fx_drop(&f, old), 0);
	stale_everywhere(&f, old);
	stale_everywhere(&f, 0);
	stale_everywhere(&f, good + (1ULL << 32));	/* a later generation */
	stale_everywhere(&f, good - (1ULL << 32));	/* an earlier one */
	stale_everywhere(&f, good & 0xffffffffULL);	/* generation 0 */
	stale_everywhere(&f, (good & ~0xffffffffULL) | 8); /* past the end */
	stale_everywhere(&f, ~0ULL);
	stale_everywhere(&f, 0xffffffffULL);
	stale_everywhere(&f, (1ULL << 32) | 7);		/* never used */
	assert_int_equal(fx_query(&f, good), KVMM_RESIDENT);
	fx_close(&f);
}

static struct kvmm_block *descriptor(struct fx *f, u32 index)
{
	struct kvmm_table *t = &f->c.blocks;
	struct kvmm_block *chunk = t->chunk[index >> t->shift];

	return &chunk[index & ((1U << t->shift) - 1)];
}

static void generations_wrap_past_zero(void **state)
{
	u64 a, b;
	struct fx f;
	int i;

	(void)state;
	fx_open(&f, 1, 0);
	a = fx_alloc(&f);
	assert_int_equal(fx_unpin(&f, a), 0);
	descriptor(&f, (u32)a)->gen = 0xfffffffeU;
	for (i = 0; i < 4; i++) {
		a = fx_alloc(&f);
		assert_int_not_equal(a >> 32, 0);
		assert_int_equal(fx_query(&f, a), KVMM_FILLING);
		assert_int_equal(fx_unpin(&f, a), 0);
		b = fx_alloc(&f);
		assert_int_not_equal(b >> 32, 0);
		assert_true(a != b);
		assert_int_equal(fx_query(&f, a), -ESTALE);
		assert_int_equal(fx_unpin(&f, b), 0);
	}
	fx_close(&f);
}

static void lookup_finds_a_prefix(void **state)
{
	u8 keys[5 * KVMM_KEY_LEN];
	struct kvmm_block_ref refs[5];
	struct kvmm_cursor cur = { 0 };
	struct kvmm_pool_stat st;
	u64 h[3];
	struct fx f;
	u32 i;

	(void)state;
	fx_open(&f, 8, 0);
	fx_fill(&f, h, 1, 3);
	/* 1, 2, 99, 3, 98: a prefix of two, and one hit behind a gap */
	fx_key(keys + 0 * KVMM_KEY_LEN, 1);
	fx_key(keys + 1 * KVMM_KEY_LEN, 2);
	fx_key(keys + 2 * KVMM_KEY_LEN, 99);
	fx_key(keys + 3 * KVMM_KEY_LEN, 3);
	fx_key(keys + 4 * KVMM_KEY_LEN, 98);

	assert_int_equal(kvmm_core_lookup(&f.c, f.me, 0, f.now, &cur, keys,
					  refs, 5), 2);
	fx_check(&f);
	assert_int_equal(refs[0].result, KVMM_MEMORY);
	assert_true(refs[0].handle == h[0]);
	assert_int_equal(refs[1].result, KVMM_MEMORY);
	assert_true(refs[1].handle == h[1]);
	assert_int_equal(refs[2].result, KVMM_MISS);
	assert_int_equal(refs[2].handle, 0);
	assert_int_equal(refs[2].frame, KVMM_NO_FRAME);
	assert_int_equal(refs[3].result, KVMM_MEMORY);
	assert_true(refs[3].handle == h[2]);
	assert_int_equal(refs[4].result, KVMM_MISS);
	st = fx_stat(&f);
	assert_int_equal(st.lookups, 5);
	assert_int_equal(st.hits_memory, 3);
	assert_int_equal(st.misses, 2);

	memset(refs, 0xff, sizeof(refs));
	memset(&cur, 0, sizeof(cur));
	assert_int_equal(kvmm_core_lookup(&f.c, f.me, KVMM_LOOKUP_PREFIX, f.now,
					  &cur, keys, refs, 5), 2);
	for (i = 2; i < 5; i++) {
		assert_int_equal(refs[i].result, KVMM_MISS);
		assert_int_equal(refs[i].handle, 0);
		assert_int_equal(refs[i].frame, KVMM_NO_FRAME);
	}
	/* entries behind the first miss are not counted */
	st = fx_stat(&f);
	assert_int_equal(st.lookups, 8);
	assert_int_equal(st.hits_memory, 5);
	assert_int_equal(st.misses, 3);
	fx_close(&f);
}

static void peek_leaves_no_trace(void **state)
{
	struct kvmm_pool_stat before, after;
	struct fx f;

	(void)state;
	fx_open(&f, 2, 0);
	fx_block(&f, 1);
	fx_block(&f, 2);
	before = fx_stat(&f);
	assert_int_equal(fx_lookup(&f, 1, KVMM_LOOKUP_PEEK), KVMM_MEMORY);
	assert_int_equal(fx_lookup(&f, 3, KVMM_LOOKUP_PEEK), KVMM_MISS);
	after = fx_stat(&f);
	assert_memory_equal(&before, &after, sizeof(before));
	/* 1 is still the oldest */
	fx_alloc(&f);
	assert_false(fx_has(&f, 1));
	assert_true(fx_has(&f, 2));
	fx_close(&f);
}

static void a_block_expires(void **state)
{
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 4, 0);
	h = fx_block_with(&f, 1, 0, 100, 0, 0);
	fx_block(&f, 2);
	f.now += 99;
	assert_int_equal(fx_lookup(&f, 1, KVMM_LOOKUP_PEEK), KVMM_MEMORY);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MEMORY);	/* refreshes */
	f.now += 99;
	assert_int_equal(fx_touch(&f, h), 0);			/* so does this */
	f.now += 99;
	assert_int_equal(fx_lookup(&f, 1, KVMM_LOOKUP_PEEK), KVMM_MEMORY);
	f.now += 2;
	assert_int_equal(fx_lookup(&f, 1, KVMM_LOOKUP_PEEK), KVMM_MISS);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MISS);
	assert_int_equal(fx_query(&f, h), -ESTALE);
	assert_int_equal(fx_stat(&f).expired, 1);
	/* one without an expiry stays */
	f.now += 1000000000;
	assert_int_equal(fx_lookup(&f, 2, 0), KVMM_MEMORY);
	/* its key is free again */
	fx_block(&f, 1);
	fx_close(&f);
}

static void an_expired_block_gives_way_to_a_publisher(void **state)
{
	struct kvmm_publish_entry e;
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 4, 0);
	fx_block_with(&f, 1, 0, 100, 0, 0);
	f.now += 200;
	h = fx_alloc(&f);
	e = fx_entry(h, 1);
	assert_int_equal(fx_publish_entry(&f, f.me, 0, &e), 0);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MEMORY);
	assert_true(fx_lookup_by(&f, f.me, 1, 0).handle == h);
	assert_int_equal(fx_stat(&f).expired, 1);
	fx_close(&f);
}

static void a_pinned_block_expires_when_let_go(void **state)
{
	struct fx f;
	u64 h;

	(void)state;
	fx_open(&f, 4, 0);
	h = fx_block_with(&f, 1, 0, 100, 0, 0);
	assert_int_equal(fx_pin(&f, h), 0);
	f.now += 200;
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MISS);
	/* its bytes stay until the pin falls */
	assert_int_equal(fx_stat(&f).frames_free, 3);
	assert_int_equal(fx_unpin(&f, h), 0);
	assert_int_equal(fx_query(&f, h), -ESTALE);
	assert_false(fx_has(&f, 1));
	fx_close(&f);
}

static void reset_starts_an_epoch(void **state)
{
	u64 resident, pinned, filling, swapped;
	struct fx f;

	(void)state;
	fx_open(&f, 4, 4);
	resident = fx_block(&f, 1);
	pinned = fx_block(&f, 2);
	swapped = fx_block(&f, 3);
	fx_out(&f, swapped, KVMM_SWAP_DROP);
	assert_int_equal(fx_query(&f, swapped), KVMM_SWAPPED);
	assert_int_equal(fx_pin(&f, pinned), 0);
	filling = fx_alloc(&f);

	assert_int_equal(kvmm_core_reset(&f.c), 1);
	fx_check(&f);
	assert_int_equal(fx_stat(&f).epoch, 1);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MISS);
	assert_int_equal(fx_lookup(&f, 2, 0), KVMM_MISS);
	assert_int_equal(fx_lookup(&f, 3, 0), KVMM_MISS);
	assert_int_equal(fx_publish(&f, filling, 4), -ESTALE);
	assert_int_equal(fx_query(&f, resident), -ESTALE);
	/* a pin is good until dropped, the frame is nobody else's till then */
	assert_int_equal(fx_unpin(&f, pinned), 0);
	assert_int_equal(fx_unpin(&f, pinned), -ESTALE);

	/* the keys are free, the memory too */
	assert_int_equal(fx_block(&f, 1) != 0, 1);
	fx_block(&f, 2);
	fx_block(&f, 3);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MEMORY);
	assert_int_equal(kvmm_core_reset(&f.c), 2);
	assert_false(fx_has(&f, 1));
	fx_close(&f);
}

static void memory_of_an_old_epoch_goes_first(void **state)
{
	u64 h[4];
	struct fx f;

	(void)state;
	fx_open(&f, 4, 8);
	fx_fill(&f, h, 1, 4);
	kvmm_core_reset(&f.c);
	/* no I/O is needed to have all of it */
	fx_fill(&f, h, 11, 4);
	assert_true(fx_has(&f, 11) && fx_has(&f, 12) && fx_has(&f, 13) &&
		    fx_has(&f, 14));
	fx_close(&f);
}

static void slots_of_an_old_epoch_come_back(void **state)
{
	struct fx f;
	u64 h;
	int i;

	(void)state;
	fx_open(&f, 2, 4);
	for (i = 0; i < 4; i++)
		fx_out(&f, fx_block(&f, 1 + i), KVMM_SWAP_DROP);
	assert_int_equal(fx_stat(&f).slots_free, 0);
	kvmm_core_reset(&f.c);
	for (i = 0; i < 4; i++) {
		h = fx_block(&f, 11 + i);
		fx_out(&f, h, KVMM_SWAP_DROP);
	}
	for (i = 0; i < 4; i++)
		assert_int_equal(fx_lookup(&f, 11 + i, 0), KVMM_SWAP);
	fx_close(&f);
}

static void drop_forgets(void **state)
{
	u64 idle, pinned, swapped, filling;
	struct fx f;

	(void)state;
	fx_open(&f, 4, 4);
	idle = fx_block(&f, 1);
	pinned = fx_block(&f, 2);
	swapped = fx_block(&f, 3);
	fx_out(&f, swapped, KVMM_SWAP_DROP);
	assert_int_equal(fx_pin(&f, pinned), 0);
	filling = fx_alloc(&f);

	assert_int_equal(fx_drop(&f, idle), 0);
	assert_int_equal(fx_drop(&f, pinned), 0);
	assert_int_equal(fx_drop(&f, swapped), 0);
	assert_false(fx_has(&f, 1) || fx_has(&f, 2) || fx_has(&f, 3));
	assert_int_equal(fx_stat(&f).slots_free, 4);
	assert_int_equal(fx_stat(&f).frames_free, 2);
	/* the key of one that is still pinned is free */
	assert_int_equal(fx_unpin(&f, pinned), 0);
	assert_int_equal(fx_stat(&f).frames_free, 3);
	assert_int_equal(fx_stat(&f).dropped, 3);
	assert_int_equal(fx_unpin(&f, filling), 0);
	fx_close(&f);
}

static void a_key_can_be_published_while_its_dropped_block_is_pinned(void **s)
{
	u64 old, new;
	struct fx f;

	(void)s;
	fx_open(&f, 4, 0);
	old = fx_block(&f, 1);
	assert_int_equal(fx_pin(&f, old), 0);
	assert_int_equal(fx_drop(&f, old), 0);
	new = fx_block(&f, 1);
	assert_true(new != old);
	assert_true(fx_lookup_by(&f, f.me, 1, 0).handle == new);
	assert_int_equal(fx_unpin(&f, old), 0);
	assert_true(fx_lookup_by(&f, f.me, 1, 0).handle == new);
	fx_close(&f);
}

static void drop_of_filling_needs_a_pin(void **state)
{
	struct kvmm_block_ref ref = { 0 };
	struct fx f;
	u32 other;

	(void)state;
	fx_open(&f, 4, 0);
	other = kvmm_core_client_add(&f.c);
	ref.handle = fx_alloc(&f);
	kvmm_core_drop(&f.c, other, &ref, 1);
	fx_check(&f);
	assert_int_equal(ref.result, -EACCES);
	assert_int_equal(fx_query(&f, ref.handle), KVMM_FILLING);
	assert_int_equal(fx_drop(&f, ref.handle), 0);
	/* its data can't be published any more */
	assert_int_not_equal(fx_publish(&f, ref.handle, 1), 0);
	assert_false(fx_has(&f, 1));
	fx_close(&f);
}

static void keys_lists_each_block_once(void **state)
{
	struct kvmm_key_entry e[7];
	bool seen[150] = { 0 };
	u64 cursor = 0, h;
	u32 i, n, total = 0, swapped = 0;
	struct fx f;

	(void)state;
	fx_open(&f, 160, 20);
	for (i = 0; i < 150; i++) {
		h = fx_block_with(&f, 1000 + i, i ? 1ULL << 32 : 0, 5000, 77,
				  KVMM_BLOCK_PARTIAL);
		if (i % 10 == 0)
			fx_out(&f, h, KVMM_SWAP_DROP);
	}
	fx_alloc(&f);			/* FILLING: not listed */
	do {
		n = kvmm_core_keys(&f.c, f.now, &cursor, e, 7);
		assert_true(n <= 7);
		for (i = 0; i < n; i++) {
			u64 id;

			memcpy(&id, e[i].key, sizeof(id));
			assert_in_range(id, 1000, 1149);
			assert_false(seen[id - 1000]);
			seen[id - 1000] = true;
			assert_int_equal(e[i].length, FX_BLOCK_SIZE);
			assert_int_equal(e[i].expiry_ms, 5000);
			assert_int_equal(e[i].cost_us, 77);
			assert_int_equal(e[i].flags, KVMM_BLOCK_PARTIAL);
			assert_int_equal(e[i].pins, 0);
			assert_int_equal(e[i].uses, 1);
			if (e[i].state == KVMM_SWAPPED) {
				assert_int_equal(e[i].frame, KVMM_NO_FRAME);
				assert_in_range(e[i].slot, 0, 19);
				swapped++;
			} else {
				assert_int_equal(e[i].state, KVMM_RESIDENT);
				assert_in_range(e[i].frame, 0, 159);
				assert_int_equal(e[i].slot, KVMM_NO_SLOT);
			}
			total++;
		}
	} while (cursor != KVMM_NONE);
	assert_int_equal(total, 150);
	assert_int_equal(swapped, 15);

	/* past the end and nonsense are the end */
	assert_int_equal(kvmm_core_keys(&f.c, f.now, &cursor, e, 7), 0);
	assert_true(cursor == KVMM_NONE);
	cursor = ~0ULL;
	assert_int_equal(kvmm_core_keys(&f.c, f.now, &cursor, e, 7), 0);
	assert_true(cursor == KVMM_NONE);
	/* what has expired is not listed */
	f.now += 10000;
	for (cursor = 0, total = 0; cursor != KVMM_NONE;)
		total += kvmm_core_keys(&f.c, f.now, &cursor, e, 7);
	assert_int_equal(total, 0);
	fx_close(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(allocates_distinct_frames),
	cmocka_unit_test(an_unpinned_filling_block_is_freed),
	cmocka_unit_test(stale_handles_are_refused),
	cmocka_unit_test(generations_wrap_past_zero),
	cmocka_unit_test(lookup_finds_a_prefix),
	cmocka_unit_test(peek_leaves_no_trace),
	cmocka_unit_test(a_block_expires),
	cmocka_unit_test(an_expired_block_gives_way_to_a_publisher),
	cmocka_unit_test(a_pinned_block_expires_when_let_go),
	cmocka_unit_test(reset_starts_an_epoch),
	cmocka_unit_test(memory_of_an_old_epoch_goes_first),
	cmocka_unit_test(slots_of_an_old_epoch_come_back),
	cmocka_unit_test(drop_forgets),
	cmocka_unit_test(a_key_can_be_published_while_its_dropped_block_is_pinned),
	cmocka_unit_test(drop_of_filling_needs_a_pin),
	cmocka_unit_test(keys_lists_each_block_once),
};

FX_TESTS(block_tests, tests);
