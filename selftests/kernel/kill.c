// SPDX-License-Identifier: MIT
/*
 * kill -9 at random moments of processes that give all kinds of commands, by
 * io_uring and by ioctl, again and again, on a pool that lives on: pins, frames,
 * clients and exports come back, and what is found is right.  KVMM_KILL_ROUNDS sets how often; the seed is printed.
 */
#include <fcntl.h>
#include <signal.h>
#include <time.h>

#include "kt_crowd.h"
#include "kt_export.h"
#include "kt_harness.h"
#include "kt_ring.h"

#define FRAMES	96
#define SLOTS	128
#define IDS	160		/* different blocks in use */
#define DEPTH	64
#define POOL	"killed"
#define AREA	"kill-area"

FIXTURE(kill) {
	struct kt t;
	int area;
	unsigned int seed;
	unsigned int setup;
};

FIXTURE_VARIANT(kill) {
	uint32_t delay;		/* us; 0: the file on the ext4 disk */
	unsigned int setup;
};

FIXTURE_VARIANT_ADD(kill, file) { };
FIXTURE_VARIANT_ADD(kill, slow_disk) { .delay = 5000 };
FIXTURE_VARIANT_ADD(kill, sqpoll) {
	.delay = 2000, .setup = IORING_SETUP_SQPOLL,
};
FIXTURE_VARIANT_ADD(kill, defer) {
	.setup = IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SINGLE_ISSUER,
};

FIXTURE_SETUP(kill)
{
	struct kvmm_pool_create spec = kt_spec(POOL, KT_BLOCK, FRAMES, SLOTS);

	kt_wipe();
	if (variant->delay) {
		self->area = kt_nullb(16, variant->delay);
		if (self->area == -ENODEV)
			SKIP(_exit(255), "the kernel has no null_blk");
	} else {
		ASSERT_NE(NULL, kt_disk_dir());
		self->area = kt_area_file(AREA, KT_BLOCK, SLOTS);
	}
	ASSERT_LE(0, self->area);
	self->setup = variant->setup;
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
	ASSERT_EQ(0, kt_attach(&self->t, self->area, 0, 0, 0, NULL));
}

FIXTURE_TEARDOWN(kill)
{
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	close(self->area);
	if (variant->delay)
		kt_nullb_end();
	else
		kt_area_unlink(AREA);
}

/* Puts blocks in where keys miss; what has no frame makes room first. */
static int refill(struct kt *t, unsigned int *seed)
{
	struct kvmm_block_ref ref;
	int i, ret;

	for (i = 0; i < 24; i++) {
		ret = kt_store(t, 1 + kt_rnd(seed, IDS), 1, &ref);
		if (ret == -EAGAIN || ret == -ENOSPC)
			kt_reclaim(t, FRAMES / 2, NULL);
		else if (ret && ret != -EEXIST)
			return ret;
	}
	return 0;
}

/* Until it is killed: a ring full of swaps of whatever there is. */
static int victim(void *arg)
{
	FIXTURE_DATA(kill) *self = arg;
	static struct kvmm_block_ref refs[IDS];
	unsigned int seed = self->seed;
	struct kt_ring r;
	struct kt t;
	int i, flying = 0, ret;

	ret = kt_join(&t, POOL, 0);
	if (!ret)
		ret = kt_ring_init(&r, &t, DEPTH * 2, self->setup, false);
	if (ret)
		return ret;
	/* holds some and fills some, all of it to be given back */
	if (kt_alloc(&t, refs, 4) == 0)
		kt_fill(&t, refs[0].frame, 12345);
	for (;;) {
		if (kt_lookup(&t, 1, IDS, KVMM_LOOKUP_PEEK, refs) < 0)
			return -EIO;
		for (i = 0; i < DEPTH && flying < DEPTH; i++) {
			uint64_t h = refs[kt_rnd(&seed, IDS)].handle;
			bool in = kt_rnd(&seed, 2), flag = kt_rnd(&seed, 2);

			if (!h)
				continue;
			ret = kt_ring_one(&r, in ? KVMM_URING_SWAP_IN :
					  KVMM_URING_SWAP_OUT, h,
					  !flag ? 0 : in ? KVMM_SWAP_PIN :
					  KVMM_SWAP_DROP, 0);
			if (ret)
				break;
			flying++;
		}
		kt_ring_submit(&r);
		while (flying > DEPTH / 2) {
			ret = kt_ring_wait(&r, NULL);
			if (ret == -ETIME)
				return ret;
			flying--;
		}
		/* or it would soon hold every frame there is */
		if (!kt_rnd(&seed, 4))
			for (i = 0; i < IDS; i++)
				while (refs[i].handle &&
				       !kt_unpin1(&t, refs[i].handle))
					;
	}
}

/* One of the other commands, on whatever there is. */
static int any_command(struct kt *t, struct kvmm_block_ref *refs,
		       unsigned int *seed)
{
	uint32_t at = kt_rnd(seed, IDS - 8), n = 1 + kt_rnd(seed, 8);
	struct kvmm_events ev = {
		.size = sizeof(ev), .mask = (1 << KVMM_NR_EVENTS) - 1,
	};
	struct kvmm_key_entry keys[8];
	struct kvmm_keys list = {
		.size = sizeof(list), .entries = (uintptr_t)keys, .count = 8,
	};
	struct kvmm_event e[8];
	struct kt u;
	int fd;

	switch (kt_rnd(seed, 16)) {
	case 0:
		return kt_alloc(t, refs, n);
	case 1:
		return kt_alloc_wait(t, refs, n, 50, NULL);
	case 2:
		return kt_store(t, 1 + at, n, refs);
	case 3:
		return kt_lookup(t, 1 + at, n, KVMM_LOOKUP_PIN, refs);
	case 4:
		return kt_batch(t, KVMM_PIN, refs + at, n, NULL);
	case 5:
		return kt_batch(t, KVMM_TOUCH, refs + at, n, NULL);
	case 6:
		return kt_batch(t, KVMM_DROP, refs + at, n, NULL);
	case 7:
		return kt_swap(t, KVMM_SWAP_OUT, refs + at, n,
			       kt_rnd(seed, 2) ? KVMM_SWAP_DROP : 0);
	case 8:
		return kt_swap(t, KVMM_SWAP_IN, refs + at, n,
			       kt_rnd(seed, 2) ? KVMM_SWAP_PIN : 0);
	case 9:
		return kt_reclaim(t, FRAMES / 2 + kt_rnd(seed, FRAMES / 2), NULL);
	case 10:
		return kt_ioctl(t->fd, KVMM_KEYS, &list);
	case 11:
		return kt_populate(t, kt_rnd(seed, FRAMES - 8), n, NULL);
	case 12:
		if (kt_ioctl(t->fd, KVMM_EVENTS, &ev))
			return -EIO;
		kt_reclaim(t, FRAMES / 2, NULL);
		return fcntl(t->fd, F_SETFL, O_NONBLOCK) ||
			read(t->fd, e, sizeof(e)) < 0;
	case 13:
		fd = kt_export(t, kt_rnd(seed, FRAMES - 8), n, 0);
		if (fd >= 0 && kt_rnd(seed, 2))
			close(fd);
		return 0;
	case 14:
		if (kt_join(&u, POOL, kt_rnd(seed, 2) ? KVMM_POOL_RDONLY : 0))
			return -EIO;
		if (kt_rnd(seed, 2))
			kt_close(&u);
		return 0;
	default:
		/* or it would soon hold every frame there is */
		for (at = 0; at < IDS; at++)
			while (refs[at].handle &&
			       !kt_unpin1(t, refs[at].handle))
				;
		return kt_lookup(t, 1, IDS, KVMM_LOOKUP_PEEK, refs);
	}
}

/* Until it is killed: all other commands. */
static int caller(void *arg)
{
	FIXTURE_DATA(kill) *self = arg;
	static struct kvmm_block_ref refs[IDS];
	unsigned int seed = self->seed, n = 0;
	struct kt t;
	int ret = kt_join(&t, POOL, 0);

	while (!ret) {
		any_command(&t, refs, &seed);
		/* further clients and buffers that were left open */
		if (n++ % 256 == 255) {
			closefrom(t.fd + 1);
			kt_close(&t);
			ret = kt_join(&t, POOL, 0);
		}
	}
	return ret;
}

TEST_F_TIMEOUT(kill, rounds, 7200)
{
	const char *text = getenv("KVMM_KILL_ROUNDS");
	int rounds = text ? atoi(text) : 8, round, hits, ret;
	struct kvmm_pool_stat st;
	pid_t pid[3];
	int i, found = 0;

	text = getenv("KVMM_SEED");
	self->seed = text ? strtoul(text, NULL, 0) : (unsigned int)time(NULL);
	TH_LOG("seed %u, %d rounds", self->seed, rounds);
	for (round = 0; round < rounds; round++) {
		ASSERT_EQ(0, refill(&self->t, &self->seed));
		for (i = 0; i < 3; i++) {
			kt_rnd(&self->seed, 2);
			pid[i] = kt_spawn(i ? victim : caller, self);
		}
		kt_sleep_ms(5 + kt_rnd(&self->seed, 120));
		for (i = 0; i < 3; i++) {
			ASSERT_EQ(0, kill(pid[i], SIGKILL));
			EXPECT_EQ(-ECHILD, kt_reap(pid[i]));
		}
		ASSERT_EQ(0, kt_wait_unpinned(&self->t)) {
			TH_LOG("round %d: pins or moves stay", round);
		}
		ASSERT_EQ(0, kt_stat(&self->t, &st));
		EXPECT_EQ(1, st.nr_clients);
		EXPECT_EQ(0, st.exports);
		EXPECT_EQ(FRAMES, st.frames_online);
		EXPECT_EQ(0, st.checksum_errors + st.read_errors +
			  st.write_errors);
		KT_CONSISTENT(&self->t);
		for (i = 1, hits = 0; i <= IDS; i++) {
			ret = kt_load(&self->t, i);
			if (ret == -EAGAIN || ret == -ENOSPC) {
				ASSERT_EQ(0, kt_reclaim(&self->t, FRAMES / 2,
							NULL));
				ret = kt_load(&self->t, i);
			}
			ASSERT_LE(0, ret) {
				TH_LOG("round %d, block %d: %d", round, i,
				       ret);
			}
			hits += ret;
		}
		found += hits;
		if (round % 100 == 99)
			TH_LOG("%d rounds", round + 1);
	}
	EXPECT_LT(rounds * 8, found);
	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_LT(0, st.swap_ins);
	EXPECT_LT(0, st.swap_outs);
	/* every frame can be had */
	ASSERT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_EQ(FRAMES, st.frames_free + st.frames_quarantined);
}

KT_MAIN
