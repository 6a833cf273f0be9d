// SPDX-License-Identifier: MIT
/*
 * Blocks from allocation to their end: publishing whole and in parts, looking
 * up, pins, drops, queries and the listing of keys.
 */
#include <signal.h>

#include "kt_harness.h"

#define FRAMES	64
#define STALE	0x7fff00000001ULL

FIXTURE(block) {
	struct kt t;		/* the client under test */
	struct kt u;		/* another client of the same pool */
};

FIXTURE_SETUP(block)
{
	struct kvmm_pool_create spec = kt_spec("blocks", 4096, FRAMES, 0);

	kt_wipe();
	spec.flags = KVMM_POOL_MANUAL_CLOCK;
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
	ASSERT_EQ(0, kt_join(&self->u, self->t.name, 0));
}

FIXTURE_TEARDOWN(block)
{
	KT_CONSISTENT(&self->t);
	kt_close(&self->u);
	KT_FINISH(&self->t);
}

static uint64_t pins(struct kt *t)
{
	struct kvmm_pool_stat st;

	return kt_stat(t, &st) ? ~0ULL : st.pins;
}

static uint64_t in_state(struct kt *t, enum kvmm_state state)
{
	struct kvmm_pool_stat st;

	return kt_stat(t, &st) ? ~0ULL : st.blocks[state];
}

TEST_F(block, alloc)
{
	struct kvmm_block_ref refs[FRAMES + 8];
	bool seen[FRAMES] = { 0 };
	uint32_t done = 0, i, j;

	EXPECT_EQ(-ENOSPC, kt_alloc_wait(&self->t, refs, FRAMES + 8, 0,
					 &done));
	EXPECT_EQ(FRAMES, done);
	for (i = 0; i < done; i++) {
		ASSERT_GT(FRAMES, refs[i].frame);
		EXPECT_FALSE(seen[refs[i].frame]);
		seen[refs[i].frame] = true;
		EXPECT_EQ(0, refs[i].result);
		EXPECT_NE(0, refs[i].handle);
		for (j = 0; j < i; j++)
			ASSERT_NE(refs[j].handle, refs[i].handle);
	}
	EXPECT_EQ(FRAMES, pins(&self->t));
	EXPECT_EQ(FRAMES, in_state(&self->t, KVMM_FILLING));
	EXPECT_EQ(KVMM_FILLING, kt_query1(&self->t, refs[5].handle));
	EXPECT_EQ(-ENOSPC, kt_alloc(&self->t, refs, 1));
	EXPECT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, FRAMES, &done));
	EXPECT_EQ(FRAMES, done);
	EXPECT_EQ(0, in_state(&self->t, KVMM_FILLING));
	EXPECT_EQ(-ESTALE, kt_query1(&self->t, refs[5].handle));
}

TEST_F(block, alloc_values)
{
	struct kvmm_block_ref ref;
	struct kvmm_alloc arg = {
		.size = sizeof(arg), .refs = (uintptr_t)&ref, .count = 1,
	};

	arg.nr_parts = KVMM_MAX_PARTS + 1;
	EXPECT_EQ(-EINVAL, kt_ioctl(self->t.fd, KVMM_ALLOC, &arg));
	arg.nr_parts = KVMM_MAX_PARTS;
	EXPECT_EQ(0, kt_ioctl(self->t.fd, KVMM_ALLOC, &arg));
	EXPECT_EQ(1, arg.done);
	arg.nr_parts = 1;
	arg.flags = KVMM_ALLOC_WAIT;
	EXPECT_EQ(-EINVAL, kt_ioctl(self->t.fd, KVMM_ALLOC, &arg));
	arg.timeout_ms = KVMM_MAX_WAIT_MS + 1;
	EXPECT_EQ(-EINVAL, kt_ioctl(self->t.fd, KVMM_ALLOC, &arg));
	arg.timeout_ms = KVMM_MAX_WAIT_MS;
	EXPECT_EQ(0, kt_ioctl(self->t.fd, KVMM_ALLOC, &arg));
}

/* Nothing can be had: the wait is no longer than was asked for. */
TEST_F(block, alloc_wait)
{
	struct kvmm_block_ref refs[FRAMES], ref;
	uint64_t start = kt_now_ms();
	uint32_t done;
	int ret;

	ASSERT_EQ(0, kt_alloc(&self->t, refs, FRAMES));
	ret = kt_alloc_wait(&self->t, &ref, 1, 200, &done);
	EXPECT_TRUE(ret == -ETIMEDOUT || ret == -ENOSPC) {
		TH_LOG("%d", ret);
	}
	EXPECT_EQ(0, done);
	EXPECT_GT(10000, kt_now_ms() - start);
}

TEST_F(block, publish)
{
	struct kvmm_block_ref refs[4], found;
	struct kvmm_publish_entry e;

	ASSERT_EQ(0, kt_alloc(&self->t, refs, 4));
	kt_fill(&self->t, refs[0].frame, 1);
	EXPECT_EQ(KVMM_MISS, kt_where1(&self->t, 1, NULL));
	EXPECT_EQ(0, kt_publish1(&self->t, refs[0].handle, 1, 0));
	EXPECT_EQ(3, pins(&self->t));
	EXPECT_EQ(1, kt_load(&self->t, 1));
	EXPECT_EQ(KVMM_RESIDENT, kt_query1(&self->t, refs[0].handle));

	/* KEEP keeps the pin, once */
	EXPECT_EQ(0, kt_publish1(&self->t, refs[1].handle, 2,
				 KVMM_PUBLISH_KEEP));
	EXPECT_EQ(3, pins(&self->t));
	/* published, and pinned by us: not FILLING any more */
	EXPECT_EQ(-EBUSY, kt_publish1(&self->t, refs[1].handle, 3, 0));
	EXPECT_EQ(0, kt_unpin1(&self->t, refs[1].handle));
	EXPECT_EQ(-EINVAL, kt_unpin1(&self->t, refs[1].handle));

	/* a second block of the same content costs nothing */
	e = kt_entry(&self->t, refs[2].handle, 1);
	EXPECT_EQ(0, kt_publish(&self->t, &e, 1, 0));
	EXPECT_EQ(-EEXIST, e.result);
	EXPECT_EQ(refs[0].handle, e.existing);
	EXPECT_EQ(-ESTALE, kt_query1(&self->t, refs[2].handle));
	EXPECT_EQ(1, pins(&self->t));
	ASSERT_EQ(1, kt_lookup(&self->t, 1, 1, 0, &found));
	EXPECT_EQ(refs[0].handle, found.handle);

	/* with KEEP the duplicate stays, FILLING, to be used another way */
	e = kt_entry(&self->t, refs[3].handle, 1);
	EXPECT_EQ(0, kt_publish(&self->t, &e, 1, KVMM_PUBLISH_KEEP));
	EXPECT_EQ(-EEXIST, e.result);
	EXPECT_EQ(1, pins(&self->t));
	EXPECT_EQ(0, kt_unpin1(&self->t, refs[3].handle));
}

TEST_F(block, publish_refused)
{
	struct kvmm_block_ref refs[2];
	struct kvmm_publish_entry e, ok;
	uint64_t before;

	ASSERT_EQ(0, kt_alloc(&self->t, refs, 2));
	before = pins(&self->t);
	ok = kt_entry(&self->t, refs[0].handle, 1);
#define REFUSED(must, change) do {					\
	e = ok;								\
	change;								\
	EXPECT_EQ(0, kt_publish(&self->t, &e, 1, 0));			\
	EXPECT_EQ(must, e.result) {					\
		TH_LOG("%s", #change);					\
	}								\
	EXPECT_EQ(before, pins(&self->t));				\
} while (0)
	REFUSED(-EINVAL, memset(e.key, 0, sizeof(e.key)));
	REFUSED(-EINVAL, e.length = 0);
	REFUSED(-EINVAL, e.length = 4097);
	REFUSED(-EINVAL, e.part = 1);
	REFUSED(-EINVAL, e.part = KVMM_MAX_PARTS);
	REFUSED(-EINVAL, e.flags = 0x80);
	REFUSED(-EINVAL, e.flags = 1 << 4);
	REFUSED(-ESTALE, e.handle = STALE);
	REFUSED(-ESTALE, e.handle = 0);
	REFUSED(-ESTALE, e.handle = refs[0].handle + (1ULL << 32));
	REFUSED(-ESTALE, e.handle = refs[0].handle | 0xffffffff);
	/* another client's block */
	e = ok;
	EXPECT_EQ(0, kt_publish(&self->u, &e, 1, 0));
	EXPECT_EQ(-EACCES, e.result);
	EXPECT_EQ(KVMM_MISS, kt_where1(&self->t, 1, NULL));
	/* and after all that it can still be published */
	EXPECT_EQ(0, kt_publish(&self->t, &ok, 1, 0));
	EXPECT_EQ(0, ok.result);
}

/* Bad entries in the middle of a call do not keep others from being done. */
TEST_F(block, publish_mixed)
{
	struct kvmm_publish_entry e[6];
	struct kvmm_publish arg = {
		.size = sizeof(arg), .entries = (uintptr_t)e, .count = 6,
	};
	struct kvmm_block_ref refs[6];
	uint32_t i;

	ASSERT_EQ(0, kt_alloc(&self->t, refs, 6));
	for (i = 0; i < 6; i++)
		e[i] = kt_entry(&self->t, refs[i].handle, i + 1);
	e[2].handle = STALE;
	e[4].length = 0;
	EXPECT_EQ(0, kt_ioctl(self->t.fd, KVMM_PUBLISH, &arg));
	EXPECT_EQ(4, arg.done);
	EXPECT_EQ(-ESTALE, e[2].result);
	EXPECT_EQ(-EINVAL, e[4].result);
	EXPECT_EQ(0, e[5].result);
	EXPECT_EQ(2, kt_lookup(&self->t, 1, 6, 0, refs));
	EXPECT_EQ(2, pins(&self->t));
}

TEST_F(block, parts)
{
	struct kvmm_publish_entry e;
	struct kvmm_block_ref ref;

	ASSERT_EQ(0, kt_alloc_parts(&self->t, &ref, 1, 3));
	ASSERT_EQ(0, kt_pin1(&self->u, ref.handle));
	kt_fill(&self->t, ref.frame, 1);

	e = kt_entry(&self->t, ref.handle, 1);
	e.part = 2;
	e.cost_us = 77;
	EXPECT_EQ(0, kt_publish(&self->t, &e, 1, KVMM_PUBLISH_KEEP));
	EXPECT_EQ(1, e.result);
	EXPECT_EQ(KVMM_MISS, kt_where1(&self->t, 1, NULL));
	EXPECT_EQ(0, kt_publish(&self->t, &e, 1, KVMM_PUBLISH_KEEP));
	EXPECT_EQ(-EALREADY, e.result);
	EXPECT_EQ(2, pins(&self->t));

	/* the other worker's part, under another key, then the right one */
	e = kt_entry(&self->u, ref.handle, 2);
	EXPECT_EQ(0, kt_publish(&self->u, &e, 1, 0));
	EXPECT_EQ(-EINVAL, e.result);
	e = kt_entry(&self->u, ref.handle, 1);
	e.part = 3;
	EXPECT_EQ(0, kt_publish(&self->u, &e, 1, 0));
	EXPECT_EQ(-EINVAL, e.result);
	e.part = 0;
	EXPECT_EQ(0, kt_publish(&self->u, &e, 1, 0));
	EXPECT_EQ(1, e.result);
	EXPECT_EQ(1, pins(&self->t));
	EXPECT_EQ(KVMM_MISS, kt_where1(&self->u, 1, NULL));

	e = kt_entry(&self->t, ref.handle, 1);
	e.part = 1;
	EXPECT_EQ(0, kt_publish(&self->t, &e, 1, 0));
	EXPECT_EQ(0, e.result);
	EXPECT_EQ(0, pins(&self->t));
	EXPECT_EQ(1, kt_load(&self->u, 1));
}

TEST_F(block, lookup)
{
	struct kvmm_block_ref stored[8], refs[12];
	uint32_t i;

	ASSERT_EQ(0, kt_store(&self->t, 1, 4, stored));
	ASSERT_EQ(0, kt_store(&self->t, 6, 3, stored + 4));
	/* 1 2 3 4 - 6 7 8 - */
	EXPECT_EQ(4, kt_lookup(&self->u, 1, 9, 0, refs));
	for (i = 0; i < 9; i++) {
		EXPECT_EQ(i == 4 || i == 8 ? KVMM_MISS : KVMM_MEMORY,
			  refs[i].result);
	}
	EXPECT_EQ(stored[4].handle, refs[5].handle);
	EXPECT_EQ(stored[4].frame, refs[5].frame);
	EXPECT_EQ(4, kt_lookup(&self->u, 1, 9, KVMM_LOOKUP_PREFIX, refs));
	for (i = 4; i < 9; i++)
		EXPECT_EQ(KVMM_MISS, refs[i].result);
	EXPECT_EQ(0, pins(&self->t));

	EXPECT_EQ(4, kt_lookup(&self->u, 1, 9, KVMM_LOOKUP_PREFIX |
			       KVMM_LOOKUP_PIN, refs));
	EXPECT_EQ(4, pins(&self->t));
	for (i = 0; i < 4; i++) {
		EXPECT_TRUE(kt_good(&self->u, refs[i].frame, 1 + i));
		EXPECT_EQ(0, kt_unpin1(&self->u, refs[i].handle));
	}
	EXPECT_EQ(0, pins(&self->t));
	EXPECT_EQ(0, kt_lookup(&self->u, 5, 4, KVMM_LOOKUP_PREFIX, refs));
	EXPECT_EQ(0, kt_lookup(&self->u, 5, 4, KVMM_LOOKUP_PIN, refs));
	EXPECT_EQ(3, pins(&self->t));
	EXPECT_EQ(0, kt_batch(&self->u, KVMM_UNPIN, refs + 1, 3, NULL));
}

TEST_F(block, pins)
{
	struct kvmm_block_ref refs[2];
	uint64_t h;

	ASSERT_EQ(0, kt_store(&self->t, 1, 2, refs));
	h = refs[0].handle;
	EXPECT_EQ(-EINVAL, kt_unpin1(&self->t, h));
	EXPECT_EQ(0, kt_pin1(&self->t, h));
	EXPECT_EQ(0, kt_pin1(&self->t, h));
	EXPECT_EQ(0, kt_pin1(&self->u, h));
	EXPECT_EQ(3, pins(&self->t));
	EXPECT_EQ(0, kt_unpin1(&self->u, h));
	EXPECT_EQ(-EINVAL, kt_unpin1(&self->u, h));
	EXPECT_EQ(2, pins(&self->t));
	/* purges what is not pinned */
	EXPECT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	EXPECT_EQ(1, kt_load(&self->u, 1));
	EXPECT_EQ(0, kt_load(&self->u, 2));
	EXPECT_EQ(-ESTALE, kt_pin1(&self->t, refs[1].handle));
	EXPECT_EQ(-ESTALE, kt_unpin1(&self->t, refs[1].handle));
	EXPECT_EQ(0, kt_unpin1(&self->t, h));
	EXPECT_EQ(0, kt_unpin1(&self->t, h));
	EXPECT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	EXPECT_EQ(0, kt_load(&self->u, 1));
	EXPECT_EQ(-ESTALE, kt_pin1(&self->t, 0));
	EXPECT_EQ(-ESTALE, kt_pin1(&self->t, ~0ULL));
}

/* A scheduler allocates, a worker fills: it holds the block by its handle. */
TEST_F(block, pin_filling)
{
	struct kvmm_block_ref refs[2];

	ASSERT_EQ(0, kt_alloc(&self->t, refs, 2));
	EXPECT_EQ(0, kt_pin1(&self->u, refs[0].handle));
	EXPECT_EQ(0, kt_unpin1(&self->t, refs[0].handle));
	EXPECT_EQ(KVMM_FILLING, kt_query1(&self->t, refs[0].handle));
	kt_fill(&self->u, refs[0].frame, 1);
	EXPECT_EQ(0, kt_publish1(&self->u, refs[0].handle, 1, 0));
	EXPECT_EQ(1, kt_load(&self->t, 1));
	/* freed when its last holder is gone */
	EXPECT_EQ(0, kt_pin1(&self->u, refs[1].handle));
	EXPECT_EQ(0, kt_unpin1(&self->u, refs[1].handle));
	EXPECT_EQ(KVMM_FILLING, kt_query1(&self->t, refs[1].handle));
	EXPECT_EQ(0, kt_unpin1(&self->t, refs[1].handle));
	EXPECT_EQ(-ESTALE, kt_query1(&self->t, refs[1].handle));
}

/* Pins by a second client take from a table of bounded size. */
TEST_F(block, holds_full)
{
	struct kvmm_pool_create spec = kt_spec("holds", 4096, 8, 0);
	struct kvmm_block_ref refs[3];
	struct kt a, b;

	spec.nr_holds = 2;
	ASSERT_EQ(0, kt_create_spec(&a, &spec));
	ASSERT_EQ(0, kt_join(&b, "holds", 0));
	ASSERT_EQ(0, kt_store(&a, 1, 3, refs));
	ASSERT_EQ(0, kt_batch(&a, KVMM_PIN, refs, 3, NULL));
	EXPECT_EQ(0, kt_pin1(&b, refs[0].handle));
	EXPECT_EQ(0, kt_pin1(&b, refs[1].handle));
	EXPECT_EQ(-ENOBUFS, kt_pin1(&b, refs[2].handle));
	EXPECT_LE(2, kt_lookup(&b, 1, 3, KVMM_LOOKUP_PIN, refs));
	EXPECT_EQ(KVMM_MEMORY, refs[0].result);
	EXPECT_EQ(-ENOBUFS, refs[2].result);
	/* a hold once had takes further pins */
	EXPECT_EQ(0, kt_pin1(&b, refs[0].handle));
	kt_close(&b);
	EXPECT_EQ(3, pins(&a));
	ASSERT_EQ(0, kt_batch(&a, KVMM_UNPIN, refs, 3, NULL));
	kt_close(&a);
	EXPECT_EQ(0, kt_destroy("holds", 0));
}

TEST_F(block, drop)
{
	struct kvmm_block_ref refs[4], mine;
	struct kvmm_pool_stat st;

	ASSERT_EQ(0, kt_store(&self->t, 1, 4, refs));
	EXPECT_EQ(0, kt_drop1(&self->t, refs[0].handle));
	EXPECT_EQ(0, kt_load(&self->t, 1));
	EXPECT_EQ(-ESTALE, kt_query1(&self->t, refs[0].handle));
	EXPECT_EQ(-ESTALE, kt_drop1(&self->t, refs[0].handle));

	/* pinned: misses at once, its bytes stay until the pin falls */
	ASSERT_EQ(0, kt_pin1(&self->u, refs[1].handle));
	EXPECT_EQ(0, kt_drop1(&self->t, refs[1].handle));
	EXPECT_EQ(0, kt_load(&self->t, 2));
	EXPECT_TRUE(kt_good(&self->u, refs[1].frame, 2));
	ASSERT_EQ(0, kt_store(&self->t, 10, 8, (struct kvmm_block_ref[8]) {}));
	EXPECT_TRUE(kt_good(&self->u, refs[1].frame, 2));
	/* its key is free for another block meanwhile */
	ASSERT_EQ(0, kt_store(&self->t, 2, 1, &mine));
	EXPECT_EQ(0, kt_unpin1(&self->u, refs[1].handle));
	EXPECT_EQ(-ESTALE, kt_query1(&self->t, refs[1].handle));
	EXPECT_EQ(1, kt_load(&self->t, 2));

	/* FILLING: only by who holds it */
	ASSERT_EQ(0, kt_alloc(&self->t, &mine, 1));
	EXPECT_EQ(-EACCES, kt_drop1(&self->u, mine.handle));
	EXPECT_EQ(0, kt_drop1(&self->t, mine.handle));
	EXPECT_GT(0, kt_publish1(&self->t, mine.handle, 99, 0));
	kt_unpin1(&self->t, mine.handle);
	EXPECT_EQ(-ESTALE, kt_query1(&self->t, mine.handle));
	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_LE(2, st.dropped);
	EXPECT_EQ(0, st.pins);
}

TEST_F(block, query)
{
	struct kvmm_block_ref refs[3];
	uint32_t done;

	ASSERT_EQ(0, kt_store(&self->t, 1, 2, refs));
	ASSERT_EQ(0, kt_alloc(&self->t, refs + 2, 1));
	refs[0].frame = 12345;
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_QUERY, refs, 3, &done));
	EXPECT_EQ(3, done);
	EXPECT_EQ(KVMM_RESIDENT, refs[0].result);
	EXPECT_GT(FRAMES, refs[0].frame);
	EXPECT_EQ(KVMM_FILLING, refs[2].result);
	refs[1].handle = STALE;
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_QUERY, refs, 3, &done));
	EXPECT_EQ(2, done);
	EXPECT_EQ(-ESTALE, refs[1].result);
	EXPECT_EQ(KVMM_NO_FRAME, refs[1].frame);
}

/* Every published block is listed exactly once, with what it was given. */
TEST_F(block, keys)
{
	struct kvmm_key_entry e[7];
	struct kvmm_keys arg = {
		.size = sizeof(arg), .entries = (uintptr_t)e, .count = 7,
	};
	struct kvmm_publish_entry p = { 0 };
	struct kvmm_block_ref refs[50], filling;
	bool seen[50] = { 0 };
	uint32_t i, n = 0;

	for (i = 0; i < 50; i++) {
		ASSERT_EQ(0, kt_alloc(&self->t, refs + i, 1));
		p = kt_entry(&self->t, refs[i].handle, i);
		p.parent = i ? refs[i - 1].handle : 0;
		p.position = i;
		p.length = 4096 - i;
		p.expiry_ms = 1000 + i;
		p.cost_us = 2000 + i;
		p.priority = i;
		p.flags = i % 4;
		ASSERT_EQ(0, kt_publish(&self->t, &p, 1, 0));
		ASSERT_EQ(0, p.result);
	}
	ASSERT_EQ(0, kt_alloc(&self->t, &filling, 1));
	ASSERT_EQ(0, kt_pin1(&self->u, refs[3].handle));
	ASSERT_EQ(0, kt_drop1(&self->u, refs[4].handle));
	do {
		memset(e, 0xff, sizeof(e));
		ASSERT_EQ(0, kt_ioctl(self->t.fd, KVMM_KEYS, &arg));
		for (i = 0; i < arg.done; i++) {
			uint32_t at = e[i].position;
			uint8_t key[KVMM_KEY_LEN];

			ASSERT_GT(50, at);
			EXPECT_FALSE(seen[at]);
			seen[at] = true;
			kt_key(key, at);
			EXPECT_EQ(0, memcmp(key, e[i].key, sizeof(key)));
			EXPECT_EQ(refs[at].handle, e[i].handle);
			EXPECT_EQ(at ? refs[at - 1].handle : 0, e[i].parent);
			EXPECT_EQ(4096 - at, e[i].length);
			EXPECT_EQ(1000 + at, e[i].expiry_ms);
			EXPECT_EQ(2000 + at, e[i].cost_us);
			EXPECT_EQ(refs[at].frame, e[i].frame);
			EXPECT_EQ(KVMM_NO_SLOT, e[i].slot);
			EXPECT_EQ(at == 3, e[i].pins);
			EXPECT_EQ(1, e[i].uses);
			EXPECT_EQ(KVMM_RESIDENT, e[i].state);
			EXPECT_EQ(at, e[i].priority);
			EXPECT_EQ(at % 4, e[i].flags);
			EXPECT_EQ(0, e[i].__reserved[0] | e[i].__reserved[4]);
		}
		n += arg.done;
	} while (arg.done && n < 100);
	EXPECT_EQ(49, n);
	EXPECT_FALSE(seen[4]);
	EXPECT_EQ(0, kt_unpin1(&self->u, refs[3].handle));
	EXPECT_EQ(0, kt_unpin1(&self->t, filling.handle));
}

static int churn(void *arg)
{
	struct kvmm_block_ref refs[8];
	uint64_t id = 1000;
	struct kt t;
	int ret = kt_join(&t, arg, 0);

	while (!ret) {
		ret = kt_store(&t, id, 8, refs);
		if (!ret)
			ret = kt_batch(&t, KVMM_DROP, refs, 8, NULL);
		id += 8;
	}
	return ret;
}

/* What stays while others come and go is listed once in every listing. */
TEST_F(block, keys_while_busy)
{
	struct kvmm_key_entry e[3];
	struct kvmm_keys arg = {
		.size = sizeof(arg), .entries = (uintptr_t)e, .count = 3,
	};
	struct kvmm_block_ref refs[32];
	uint32_t round, i, n;
	uint64_t id;
	int seen[32];
	pid_t pid;

	ASSERT_EQ(0, kt_store(&self->t, 1, 32, refs));
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_PIN, refs, 32, NULL));
	pid = kt_spawn(churn, self->t.name);
	for (round = 0; round < 50; round++) {
		memset(seen, 0, sizeof(seen));
		arg.cursor = 0;
		n = 0;
		do {
			ASSERT_EQ(0, kt_ioctl(self->t.fd, KVMM_KEYS, &arg));
			for (i = 0; i < arg.done; i++) {
				memcpy(&id, e[i].key, sizeof(id));
				if (id >= 1 && id <= 32)
					seen[id - 1]++;
			}
			n += arg.done;
		} while (arg.done && n < 1000);
		for (i = 0; i < 32; i++)
			EXPECT_EQ(1, seen[i]);
	}
	kill(pid, SIGKILL);
	EXPECT_EQ(-ECHILD, kt_reap(pid));
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, 32, NULL));
	EXPECT_EQ(0, kt_wait_unpinned(&self->t));
}

/* A handle outlives its block, and never names another. */
TEST_F(block, stale)
{
	struct kvmm_block_ref refs[FRAMES], old[FRAMES];
	uint32_t round, i;

	ASSERT_EQ(0, kt_store(&self->t, 1, FRAMES, old));
	for (round = 1; round < 5; round++) {
		ASSERT_EQ(0, kt_batch(&self->t, KVMM_DROP, old, FRAMES, NULL));
		ASSERT_EQ(0, kt_store(&self->t, round * 1000, FRAMES, refs));
		for (i = 0; i < FRAMES; i++) {
			EXPECT_EQ(-ESTALE, kt_query1(&self->t, old[i].handle));
			EXPECT_EQ(-ESTALE, kt_pin1(&self->t, old[i].handle));
		}
		EXPECT_EQ(FRAMES, kt_load_all(&self->t, round * 1000, FRAMES));
		memcpy(old, refs, sizeof(old));
	}
}

KT_MAIN
