// SPDX-License-Identifier: MIT
/*
 * Blocks: allocate, publish, look up, pin, drop, query, enumerate.
 */
#include "lt.h"

#include <stdlib.h>

static struct kvmm_block_ref one_filling(struct kvmm_pool *pool,
					 unsigned int parts)
{
	struct kvmm_block_ref ref;

	assert_int_equal(kvmm_alloc(pool, &ref, 1, parts, 0), 1);
	return ref;
}

static int publish_one(struct kvmm_pool *pool, struct kvmm_publish_entry *e,
		       unsigned int flags)
{
	long good = kvmm_publish(pool, e, 1, flags);

	assert_int_equal(good, e->result >= 0);
	return e->result;
}

static void arguments_are_checked(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-args", 4, 0, 0);
	struct kvmm_publish_entry e = lt_entry(1, 1);
	struct kvmm_block_ref ref = { 0 };
	struct kvmm_key_entry ke;
	uint8_t key[KVMM_KEY_LEN];
	uint64_t cursor = 0;

	lt_key(key, 1);
	assert_fails(kvmm_alloc(pool, &ref, 0, 1, 0), EINVAL);
	assert_fails(kvmm_alloc(pool, NULL, 1, 1, 0), EFAULT);
	assert_fails(kvmm_alloc(pool, &ref, 1, KVMM_MAX_PARTS + 1, 0), EINVAL);
	assert_fails(kvmm_alloc(pool, &ref, 1, 1, KVMM_MAX_WAIT_MS + 1),
		     EINVAL);
	assert_fails(kvmm_publish(pool, &e, 0, 0), EINVAL);
	assert_fails(kvmm_publish(pool, NULL, 1, 0), EFAULT);
	assert_fails(kvmm_publish(pool, &e, 1, 2), EINVAL);
	assert_fails(kvmm_lookup(pool, key, &ref, 0, 0), EINVAL);
	assert_fails(kvmm_lookup(pool, NULL, &ref, 1, 0), EFAULT);
	assert_fails(kvmm_lookup(pool, key, NULL, 1, 0), EFAULT);
	assert_fails(kvmm_lookup(pool, key, &ref, 1, 8), EINVAL);
	assert_fails(kvmm_touch(pool, &ref, 0), EINVAL);
	assert_fails(kvmm_touch(pool, NULL, 1), EFAULT);
	assert_fails(kvmm_pin(pool, &ref, 0), EINVAL);
	assert_fails(kvmm_unpin(pool, NULL, 1), EFAULT);
	assert_fails(kvmm_drop(pool, &ref, 0), EINVAL);
	assert_fails(kvmm_query(pool, NULL, 1), EFAULT);
	assert_fails(kvmm_swap_out(pool, &ref, 0, 0), EINVAL);
	assert_fails(kvmm_swap_out(pool, &ref, 1, KVMM_SWAP_PIN), EINVAL);
	assert_fails(kvmm_swap_out(pool, &ref, 1, KVMM_SWAP_ONE), EINVAL);
	assert_fails(kvmm_swap_in(pool, NULL, 1, 0), EFAULT);
	assert_fails(kvmm_swap_in(pool, &ref, 1, KVMM_SWAP_DROP), EINVAL);
	assert_fails(kvmm_keys(pool, &cursor, &ke, 0), EINVAL);
	assert_fails(kvmm_keys(pool, NULL, &ke, 1), EFAULT);
	assert_fails(kvmm_keys(pool, &cursor, NULL, 1), EFAULT);
	assert_fails(kvmm_hint(pool, 1, 1001, 0), EINVAL);
	assert_fails(kvmm_hint(pool, 1, 0, 0), ESTALE);
	assert_fails(kvmm_request_end(pool, 1, 0), ESTALE);
	lt_end(lt, pool, "lt-args");
}

static void alloc_until_full(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-full", 100, 0, 0);
	struct kvmm_block_ref refs[120];
	bool used[100] = { false };
	unsigned int i;

	assert_int_equal(kvmm_alloc(pool, refs, 120, 1, 0), 100);
	for (i = 0; i < 100; i++) {
		assert_true(refs[i].handle);
		assert_true(refs[i].frame < 100);
		assert_false(used[refs[i].frame]);
		used[refs[i].frame] = true;
	}
	assert_fails(kvmm_alloc(pool, refs + 100, 1, 1, 0), ENOSPC);
	/* Waiting does not help when everything is pinned. */
	assert_fails(kvmm_alloc(pool, refs + 100, 1, 1, 200), ENOSPC);
	/* A FILLING block without a pin is freed. */
	assert_int_equal(kvmm_unpin(pool, refs, 3), 3);
	assert_int_equal(kvmm_query(pool, refs, 3), 0);
	assert_int_equal(refs[0].result, -ESTALE);
	assert_int_equal(kvmm_alloc(pool, refs, 4, 1, 0), 3);
	lt_end(lt, pool, "lt-full");
}

static void publish_and_find(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-find", 8, 0, 0);
	struct kvmm_block_ref refs[3], found;

	lt_store(pool, refs, 10, 3, 0);
	assert_int_equal(lt_find(pool, 11, KVMM_LOOKUP_PIN, &found),
			 KVMM_MEMORY);
	assert_int_equal(found.handle, refs[1].handle);
	lt_check(kvmm_addr(pool, &found), 11, LT_BLOCK);
	assert_int_equal(lt_find(pool, 13, KVMM_LOOKUP_PIN, &found),
			 KVMM_MISS);
	assert_int_equal(found.handle, 0);
	assert_int_equal(found.frame, KVMM_NO_FRAME);
	assert_int_equal(lt_stat(pool).pins, 1);
	lt_end(lt, pool, "lt-find");
}

static void publish_errors(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-puberr", 8, 0, 0), *other;
	struct kvmm_block_ref ref = one_filling(pool, 1), found;
	struct kvmm_publish_entry e = lt_entry(ref.handle, 1);

	e.length = 0;
	assert_int_equal(publish_one(pool, &e, 0), -EINVAL);
	e.length = LT_BLOCK + 1;
	assert_int_equal(publish_one(pool, &e, 0), -EINVAL);
	e.length = LT_BLOCK;
	e.flags = 4;
	assert_int_equal(publish_one(pool, &e, 0), -EINVAL);
	e.flags = 0;
	e.part = 1;
	assert_int_equal(publish_one(pool, &e, 0), -EINVAL);
	e.part = 0;
	memset(e.key, 0, sizeof(e.key));
	assert_int_equal(publish_one(pool, &e, 0), -EINVAL);
	e = lt_entry(ref.handle + (1ULL << 32), 1);
	assert_int_equal(publish_one(pool, &e, 0), -ESTALE);

	/* Not the client that has it pinned. */
	assert_int_equal(kvmm_pool_open(lt->kv, "lt-puberr", 0, &other), 0);
	e = lt_entry(ref.handle, 1);
	assert_int_equal(publish_one(other, &e, 0), -EACCES);
	kvmm_pool_close(other);

	assert_int_equal(publish_one(pool, &e, KVMM_PUBLISH_KEEP), 0);
	assert_int_equal(publish_one(pool, &e, 0), -EBUSY);

	/* The first one wins; the second costs nothing. */
	ref = one_filling(pool, 1);
	e = lt_entry(ref.handle, 1);
	assert_int_equal(publish_one(pool, &e, 0), -EEXIST);
	lt_find(pool, 1, 0, &found);
	assert_int_equal(e.existing, found.handle);
	assert_int_equal(kvmm_query(pool, &ref, 1), 0);
	assert_int_equal(lt_stat(pool).frames_free, 7);
	assert_int_equal(lt_stat(pool).publish_dups, 1);
	/* Kept on request: it can be published under another key. */
	ref = one_filling(pool, 1);
	e = lt_entry(ref.handle, 1);
	assert_int_equal(publish_one(pool, &e, KVMM_PUBLISH_KEEP), -EEXIST);
	e = lt_entry(ref.handle, 2);
	assert_int_equal(publish_one(pool, &e, 0), 0);
	lt_end(lt, pool, "lt-puberr");
}

static void parts(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-parts", 8, 0, 0);
	struct kvmm_block_ref ref = one_filling(pool, KVMM_MAX_PARTS);
	struct kvmm_publish_entry e = lt_entry(ref.handle, 5);
	unsigned int i;

	for (i = 0; i < KVMM_MAX_PARTS - 1; i++) {
		e.part = (i * 7) % KVMM_MAX_PARTS;
		assert_int_equal(publish_one(pool, &e, KVMM_PUBLISH_KEEP), 1);
		assert_int_equal(lt_find(pool, 5, 0, NULL), KVMM_MISS);
	}
	assert_int_equal(publish_one(pool, &e, KVMM_PUBLISH_KEEP), -EALREADY);
	e.part = KVMM_MAX_PARTS;
	assert_int_equal(publish_one(pool, &e, KVMM_PUBLISH_KEEP), -EINVAL);
	e.part = (i * 7) % KVMM_MAX_PARTS;
	lt_key(e.key, 6);
	assert_int_equal(publish_one(pool, &e, KVMM_PUBLISH_KEEP), -EINVAL);
	lt_key(e.key, 5);
	assert_int_equal(publish_one(pool, &e, 0), 0);
	assert_int_equal(lt_find(pool, 5, 0, NULL), KVMM_MEMORY);
	assert_int_equal(lt_stat(pool).publishes, 1);
	lt_end(lt, pool, "lt-parts");
}

static void prefix_is_counted(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-prefix", 200, 0, 0);
	struct kvmm_block_ref refs[200], found[200];
	uint8_t keys[200][KVMM_KEY_LEN];
	unsigned int i;

	lt_store(pool, refs, 0, 150, 0);
	lt_store(pool, refs + 150, 160, 40, 0);
	for (i = 0; i < 200; i++)
		lt_key(keys[i], i);
	assert_int_equal(kvmm_lookup(pool, keys, found, 200, 0), 150);
	assert_int_equal(found[149].result, KVMM_MEMORY);
	assert_int_equal(found[150].result, KVMM_MISS);
	assert_int_equal(found[160].result, KVMM_MEMORY);
	assert_int_equal(found[199].result, KVMM_MEMORY);
	assert_int_equal(lt_stat(pool).lookups, 200);

	memset(found, 0xee, sizeof(found));
	assert_int_equal(kvmm_lookup(pool, keys, found, 200,
				     KVMM_LOOKUP_PREFIX | KVMM_LOOKUP_PIN), 150);
	for (i = 150; i < 200; i++) {
		assert_int_equal(found[i].result, KVMM_MISS);
		assert_int_equal(found[i].handle, 0);
		assert_int_equal(found[i].frame, KVMM_NO_FRAME);
	}
	assert_int_equal(lt_stat(pool).pins, 150);
	/* The first miss is counted, what comes after was not looked up. */
	assert_int_equal(lt_stat(pool).lookups, 351);
	assert_int_equal(kvmm_unpin(pool, found, 150), 150);
	lt_end(lt, pool, "lt-prefix");
}

static void pins_count(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-pin", 2, 0, 0);
	struct kvmm_block_ref refs[2], more;

	lt_store(pool, refs, 0, 2, 0);
	assert_int_equal(kvmm_pin(pool, refs, 2), 2);
	assert_int_equal(kvmm_pin(pool, refs, 1), 1);
	assert_fails(kvmm_alloc(pool, &more, 1, 1, 0), ENOSPC);
	assert_int_equal(kvmm_unpin(pool, refs, 1), 1);
	assert_fails(kvmm_alloc(pool, &more, 1, 1, 0), ENOSPC);
	assert_int_equal(kvmm_unpin(pool, refs, 1), 1);
	assert_int_equal(kvmm_unpin(pool, refs, 1), 0);
	assert_int_equal(refs[0].result, -EINVAL);
	assert_int_equal(kvmm_alloc(pool, &more, 1, 1, 0), 1);
	assert_int_equal(kvmm_pin(pool, refs, 2), 1);
	assert_int_equal(refs[0].result, -ESTALE);
	assert_int_equal(refs[0].frame, KVMM_NO_FRAME);
	assert_int_equal(kvmm_unpin(pool, refs, 1), 0);
	assert_int_equal(refs[0].result, -ESTALE);
	lt_end(lt, pool, "lt-pin");
}

static void holds_run_out(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool_opts o = {
		.size = sizeof(o),
		.name = "lt-holds",
		.block_size = LT_BLOCK,
		.nr_frames = 4,
		.nr_holds = 2,
	};
	struct kvmm_block_ref refs[4], found;
	struct kvmm_pool *pool, *other;

	pool = lt_create(lt, &o);
	assert_int_equal(kvmm_pool_open(lt->kv, o.name, 0, &other), 0);
	lt_store(pool, refs, 0, 4, KVMM_PUBLISH_KEEP);
	assert_int_equal(kvmm_pin(other, refs, 4), 2);
	assert_int_equal(refs[2].result, -ENOBUFS);
	assert_int_equal(lt_find(other, 3, KVMM_LOOKUP_PIN, &found), -ENOBUFS);
	kvmm_pool_close(other);
	lt_end(lt, pool, o.name);
}

static void drop_forgets(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-drop", 4, 0, 0), *other;
	struct kvmm_block_ref refs[2], filling = one_filling(pool, 1);
	void *mem;

	lt_store(pool, refs, 0, 2, 0);
	assert_int_equal(kvmm_pin(pool, refs, 1), 1);
	mem = kvmm_addr(pool, refs);
	assert_int_equal(kvmm_drop(pool, refs, 2), 2);
	assert_int_equal(lt_find(pool, 0, 0, NULL), KVMM_MISS);
	assert_int_equal(lt_find(pool, 1, 0, NULL), KVMM_MISS);
	/* The pinned one is there until it is let go. */
	assert_int_equal(lt_stat(pool).frames_free, 2);
	lt_check(mem, 0, LT_BLOCK);
	assert_int_equal(kvmm_unpin(pool, refs, 1), 1);
	assert_int_equal(lt_stat(pool).frames_free, 3);
	assert_int_equal(kvmm_drop(pool, refs, 2), 0);
	assert_int_equal(refs[1].result, -ESTALE);

	assert_int_equal(kvmm_pool_open(lt->kv, "lt-drop", 0, &other), 0);
	assert_int_equal(kvmm_drop(other, &filling, 1), 0);
	assert_int_equal(filling.result, -EACCES);
	kvmm_pool_close(other);
	assert_int_equal(kvmm_drop(pool, &filling, 1), 1);
	lt_end(lt, pool, "lt-drop");
}

static void query_tells_states(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-query", 4, 0, 0);
	struct kvmm_block_ref refs[3];

	lt_store(pool, refs, 0, 1, 0);
	refs[1] = one_filling(pool, 1);
	refs[2].handle = 77;
	assert_int_equal(kvmm_query(pool, refs, 3), 2);
	assert_int_equal(refs[0].result, KVMM_RESIDENT);
	assert_int_equal(refs[1].result, KVMM_FILLING);
	assert_int_equal(refs[2].result, -ESTALE);
	assert_true(refs[0].frame < 4);
	lt_end(lt, pool, "lt-query");
}

static void keys_are_enumerated(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-keys", 100, 0, 0);
	struct kvmm_publish_entry e;
	struct kvmm_block_ref refs[80];
	struct kvmm_key_entry ke[7];
	bool seen[80] = { false };
	unsigned int total = 0;
	uint64_t cursor = 0, id;
	uint8_t key[KVMM_KEY_LEN];
	long n, i;

	lt_store(pool, refs, 0, 79, 0);
	refs[79] = one_filling(pool, 1);
	e = lt_entry(refs[79].handle, 79);
	e.parent = refs[3].handle;
	e.position = 4;
	e.length = 100;
	e.expiry_ms = 1000000;
	e.cost_us = 55;
	e.priority = 200;
	e.flags = KVMM_BLOCK_PARTIAL | KVMM_BLOCK_RECOMPUTABLE;
	assert_int_equal(publish_one(pool, &e, KVMM_PUBLISH_KEEP), 0);
	one_filling(pool, 1);
	while ((n = kvmm_keys(pool, &cursor, ke, 7)) > 0) {
		for (i = 0; i < n; i++) {
			memcpy(&id, ke[i].key, sizeof(id));
			assert_true(id < 80);
			assert_false(seen[id]);
			seen[id] = true;
			lt_key(key, id);
			assert_memory_equal(key, ke[i].key, sizeof(key));
			assert_int_equal(ke[i].handle, refs[id].handle);
			assert_int_equal(ke[i].state, KVMM_RESIDENT);
			assert_int_equal(ke[i].slot, KVMM_NO_SLOT);
			if (id != 79)
				continue;
			assert_int_equal(ke[i].parent, refs[3].handle);
			assert_int_equal(ke[i].position, 4);
			assert_int_equal(ke[i].length, 100);
			assert_int_equal(ke[i].expiry_ms, 1000000);
			assert_int_equal(ke[i].cost_us, 55);
			assert_int_equal(ke[i].priority, 200);
			assert_int_equal(ke[i].flags, e.flags);
			assert_int_equal(ke[i].pins, 1);
			assert_int_equal(ke[i].uses, 1);
		}
		total += n;
	}
	assert_int_equal(n, 0);
	assert_int_equal(total, 80);
	lt_end(lt, pool, "lt-keys");
}

int main(void)
{
	static const struct lt_test tests[] = {
		LT_TEST(arguments_are_checked),
		LT_TEST(alloc_until_full),
		LT_TEST(publish_and_find),
		LT_TEST(publish_errors),
		LT_TEST(parts),
		LT_TEST(prefix_is_counted),
		LT_TEST(pins_count),
		LT_TEST(holds_run_out),
		LT_TEST(drop_forgets),
		LT_TEST(query_tells_states),
		LT_TEST(keys_are_enumerated),
	};

	return LT_RUN("block", tests);
}
