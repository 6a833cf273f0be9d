// SPDX-License-Identifier: MIT
/*
 * Who goes first: chains, touches, the end of a request, hints, expiry.
 */
#include "lt.h"

#include <stdlib.h>

static void larger_than_one_command(void **state)
{
	const unsigned int n = KVMM_MAX_BATCH * 2 + 100;
	struct lt *lt = *state;
	struct kvmm_pool_opts o = {
		.size = sizeof(o),
		.name = "lt-large",
		.block_size = 4096,
		.nr_frames = n,
	};
	struct kvmm_block_ref *refs = calloc(n, sizeof(*refs));
	struct kvmm_publish_entry *e = calloc(n, sizeof(*e));
	struct kvmm_key_entry *ke = calloc(n, sizeof(*ke));
	uint8_t *keys = calloc(n, KVMM_KEY_LEN);
	struct kvmm_reclaim rc;
	struct kvmm_pool *pool;
	uint64_t cursor = 0;
	unsigned int i;

	pool = lt_create(lt, &o);
	assert_int_equal(kvmm_alloc(pool, refs, n, 1, 0), n);
	for (i = 0; i < n; i++) {
		e[i] = lt_entry(refs[i].handle, i);
		e[i].length = 4096;
		memcpy(keys + i * KVMM_KEY_LEN, e[i].key, KVMM_KEY_LEN);
	}
	assert_int_equal(kvmm_publish(pool, e, n, 0), n);
	/* Published as one chain: the deepest is the oldest. */
	assert_int_equal(kvmm_reclaim(pool, n - 10, &rc), 0);
	assert_int_equal(rc.purged, 10);
	assert_int_equal(kvmm_lookup(pool, keys, refs, n, KVMM_LOOKUP_PREFIX),
			 n - 10);
	/* Looked up as one chain, too. */
	assert_int_equal(kvmm_reclaim(pool, n - 20, &rc), 0);
	assert_int_equal(kvmm_lookup(pool, keys, refs, n,
				     KVMM_LOOKUP_PREFIX | KVMM_LOOKUP_PEEK),
			 n - 20);
	assert_int_equal(kvmm_touch(pool, refs, n - 20), n - 20);
	assert_int_equal(kvmm_reclaim(pool, n - 30, &rc), 0);
	assert_int_equal(kvmm_lookup(pool, keys, refs, n,
				     KVMM_LOOKUP_PREFIX | KVMM_LOOKUP_PIN),
			 n - 30);
	assert_int_equal(kvmm_keys(pool, &cursor, ke, n), n - 30);
	assert_int_equal(kvmm_keys(pool, &cursor, ke, n), 0);
	assert_int_equal(kvmm_unpin(pool, refs, n - 30), n - 30);
	lt_end(lt, pool, "lt-large");
	free(refs);
	free(keys);
	free(e);
	free(ke);
}

static void touch_makes_young(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-touch", 4, 0, 0);
	struct kvmm_block_ref refs[5];
	unsigned int i;

	for (i = 0; i < 4; i++)
		lt_store(pool, refs + i, i, 1, 0);
	/* 0 is the oldest; after this 2 is. */
	assert_int_equal(kvmm_touch(pool, refs, 2), 2);
	assert_int_equal(refs[0].result, 0);
	assert_true(refs[0].frame < 4);
	lt_store(pool, refs + 4, 4, 1, 0);
	assert_int_equal(lt_find(pool, 2, 0, NULL), KVMM_MISS);
	assert_int_equal(lt_find(pool, 0, 0, NULL), KVMM_MEMORY);
	assert_int_equal(kvmm_touch(pool, refs + 2, 1), 0);
	assert_int_equal(refs[2].result, -ESTALE);
	assert_int_equal(lt_stat(pool).purged, 1);
	lt_end(lt, pool, "lt-touch");
}

static void request_end_keeps_prefix_young(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-request", 210, 0, 0);
	struct kvmm_block_ref refs[200], other[10];
	struct kvmm_reclaim rc;

	lt_store(pool, refs, 0, 200, 0);
	lt_store(pool, other, 1000, 10, 0);
	assert_int_equal(kvmm_request_end(pool, refs[199].handle, 42), 200);
	assert_int_equal(lt_stat(pool).requests, 1);
	assert_int_equal(lt_stat(pool).output_tokens, 42);
	/* Now the others are the oldest, then the deepest of the chain. */
	assert_int_equal(kvmm_reclaim(pool, 199, &rc), 0);
	assert_int_equal(rc.purged, 11);
	assert_int_equal(rc.in_use, 199);
	assert_int_equal(lt_find(pool, 1005, KVMM_LOOKUP_PEEK, NULL),
			 KVMM_MISS);
	assert_int_equal(lt_find(pool, 199, KVMM_LOOKUP_PEEK, NULL),
			 KVMM_MISS);
	assert_int_equal(lt_find(pool, 198, KVMM_LOOKUP_PEEK, NULL),
			 KVMM_MEMORY);
	assert_fails(kvmm_request_end(pool, refs[199].handle, 1), ESTALE);
	assert_int_equal(lt_stat(pool).requests, 1);
	lt_end(lt, pool, "lt-request");
}

static void hint_zero_makes_oldest(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-hint", 6, 0, 0);
	struct kvmm_block_ref a[3], b[3];
	struct kvmm_reclaim rc;

	lt_store(pool, a, 0, 3, 0);
	lt_store(pool, b, 10, 3, 0);
	assert_int_equal(kvmm_hint(pool, b[2].handle, 500, 100), 0);
	assert_int_equal(kvmm_hint(pool, b[2].handle, 0, 0), 3);
	assert_int_equal(kvmm_reclaim(pool, 3, &rc), 0);
	assert_int_equal(lt_find(pool, 0, KVMM_LOOKUP_PEEK, NULL), KVMM_MEMORY);
	assert_int_equal(lt_find(pool, 10, KVMM_LOOKUP_PEEK, NULL), KVMM_MISS);
	assert_fails(kvmm_hint(pool, b[2].handle, 0, 0), ESTALE);
	lt_end(lt, pool, "lt-hint");
}

static void expiry_follows_the_clock(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-expiry", 4, 0,
					 KVMM_POOL_MANUAL_CLOCK);
	struct kvmm_publish_entry e;
	struct kvmm_block_ref ref;

	assert_int_equal(kvmm_alloc(pool, &ref, 1, 1, 0), 1);
	e = lt_entry(ref.handle, 1);
	e.expiry_ms = 100;
	assert_int_equal(kvmm_publish(pool, &e, 1, 0), 1);
	assert_int_equal(kvmm_pool_clock(pool, 99), 0);
	assert_int_equal(lt_find(pool, 1, 0, NULL), KVMM_MEMORY);
	/* A hit refreshes it, a peek does not. */
	assert_int_equal(kvmm_pool_clock(pool, 198), 0);
	assert_int_equal(lt_find(pool, 1, KVMM_LOOKUP_PEEK, NULL),
			 KVMM_MEMORY);
	assert_int_equal(kvmm_pool_clock(pool, 199), 0);
	assert_int_equal(lt_find(pool, 1, 0, NULL), KVMM_MISS);
	assert_int_equal(lt_stat(pool).expired, 1);
	assert_int_equal(lt_stat(pool).frames_free, 4);
	lt_end(lt, pool, "lt-expiry");
}

static void reclaim_keeps_pinned(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-reclaim", 300, 0, 0);
	struct kvmm_block_ref refs[300];
	struct kvmm_reclaim rc;

	lt_store(pool, refs, 0, 300, 0);
	assert_int_equal(kvmm_pin(pool, refs, 7), 7);
	assert_int_equal(kvmm_reclaim(pool, 250, &rc), 0);
	assert_int_equal(rc.in_use, 250);
	assert_int_equal(rc.purged, 50);
	assert_int_equal(rc.evicted, 0);
	assert_int_equal(kvmm_reclaim(pool, 0, &rc), 0);
	assert_int_equal(rc.in_use, 7);
	assert_int_equal(rc.purged, 243);
	assert_int_equal(kvmm_reclaim(pool, 0, NULL), 0);
	lt_check(kvmm_addr(pool, refs + 6), 6, LT_BLOCK);
	assert_int_equal(lt_stat(pool).purged, 293);
	lt_end(lt, pool, "lt-reclaim");
}

int main(void)
{
	static const struct lt_test tests[] = {
		LT_TEST(larger_than_one_command),
		LT_TEST(touch_makes_young),
		LT_TEST(request_end_keeps_prefix_young),
		LT_TEST(hint_zero_makes_oldest),
		LT_TEST(expiry_follows_the_clock),
		LT_TEST(reclaim_keeps_pinned),
	};

	return LT_RUN("order", tests);
}
