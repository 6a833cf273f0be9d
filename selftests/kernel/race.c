// SPDX-License-Identifier: MIT
/*
 * Everything at once for some seconds (KVMM_RACE_SECONDS): threads of several
 * processes store, load, swap, drop, reclaim and reset on one pool, and open,
 * map, touch, populate, attach, detach, export and destroy another, and try to
 * unload the module.  Whatever is read back is checked.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>

#include "kt_crowd.h"
#include "kt_export.h"
#include "kt_harness.h"
#include "kt_ring.h"

#define FRAMES	48
#define SLOTS	64
#define IDS	128
#define BLOCK	8192U	/* small: more happens in the time there is */
#define THREADS	3
#define POOL	"raced"
#define CHURN	"churned"
#define AREA	"race-area"

/* Counted over all processes. */
struct tally {
	uint64_t stores, hits, misses, swaps, lives, bad;
};

static struct tally *tally;

#define COUNT(what)	KT_COUNT(tally->what)
#define CHECK(ret)	KT_CHECK(ret, false)

/* A lookup of a run, pinned; checks what it got and gives it back. */
static void load_run(struct kt *t, uint64_t id, uint32_t n)
{
	struct kvmm_block_ref refs[16], in;
	uint32_t i;
	int ret;

	ret = kt_lookup(t, id, n, KVMM_LOOKUP_PIN, refs);
	CHECK(ret);
	for (i = 0; ret >= 0 && i < n; i++) {
		in = refs[i];
		switch (refs[i].result) {
		case KVMM_SWAP:
		case KVMM_PENDING:
			CHECK(kt_swap(t, KVMM_SWAP_IN, &in, 1,
				      refs[i].result == KVMM_SWAP ?
				      KVMM_SWAP_PIN : 0));
			if (in.result < 0) {
				CHECK(in.result);
				COUNT(misses);
				continue;
			}
			break;
		case KVMM_MEMORY:
			break;
		default:
			COUNT(misses);
			continue;
		}
		if (kt_good(t, in.frame, id + i))
			COUNT(hits);
		else
			COUNT(bad);
		ret = kt_unpin1(t, in.handle);
		if (ret)
			kt_wrong(ret, __LINE__);
	}
}

static void *worker(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	struct kvmm_block_ref refs[16];
	struct kt_ring r;
	struct kt t;
	uint64_t id, handle;
	uint32_t n;
	int ret;

	ret = kt_join(&t, POOL, 0);
	if (!ret)
		ret = kt_ring_init(&r, &t, 16, 0, false);
	if (ret) {
		kt_wrong(ret, __LINE__);
		return NULL;
	}
	while (!kt_over()) {
		id = 1 + kt_rnd(&seed, IDS);
		n = 1 + kt_rnd(&seed, 8);
		switch (kt_rnd(&seed, 16)) {
		case 0 ... 2:
			ret = kt_store(&t, id, 1, refs);
			CHECK(ret);
			if (!ret)
				COUNT(stores);
			else if (ret == -EAGAIN || ret == -ENOSPC)
				CHECK(kt_reclaim(&t, FRAMES / 2, NULL));
			break;
		case 3 ... 6:
			load_run(&t, id, n);
			break;
		case 7:
			CHECK(kt_lookup(&t, id, n, KVMM_LOOKUP_PEEK, refs));
			CHECK(kt_swap(&t, KVMM_SWAP_OUT, refs, n,
				      kt_rnd(&seed, 2) ? KVMM_SWAP_DROP : 0));
			COUNT(swaps);
			break;
		case 8:
			CHECK(kt_lookup(&t, id, n, KVMM_LOOKUP_PEEK, refs));
			CHECK(kt_swap(&t, KVMM_SWAP_IN, refs, n, 0));
			COUNT(swaps);
			break;
		case 9:
		case 10:
			CHECK(kt_lookup(&t, id, 1, KVMM_LOOKUP_PEEK, refs));
			if (refs[0].handle)
				CHECK(kt_ring_do1(&r, kt_rnd(&seed, 2) ?
						  KVMM_URING_SWAP_IN :
						  KVMM_URING_SWAP_OUT,
						  refs[0].handle, 0));
			COUNT(swaps);
			break;
		case 11:
			CHECK(kt_reclaim(&t, kt_rnd(&seed, FRAMES), NULL));
			break;
		case 12:
			CHECK(kt_where1(&t, id, &handle));
			CHECK(kt_drop1(&t, handle));
			break;
		case 13:
			/* filled, and thought better of */
			ret = kt_alloc(&t, refs, 2);
			CHECK(ret);
			if (!ret) {
				kt_fill(&t, refs[0].frame, 0xdead);
				CHECK(kt_batch(&t, KVMM_UNPIN, refs, 2, NULL));
			}
			break;
		case 14:
			if (!kt_rnd(&seed, 200))
				CHECK(kt_reset(&t, NULL));
			break;
		case 15:
			/* close, with the ring still open on the old file */
			if (kt_rnd(&seed, 8))
				break;
			kt_ring_exit(&r);
			kt_close(&t);
			ret = kt_join(&t, POOL, 0);
			if (!ret)
				ret = kt_ring_init(&r, &t, 16, 0, false);
			if (ret) {
				kt_wrong(ret, __LINE__);
				return NULL;
			}
			break;
		}
	}
	kt_ring_exit(&r);
	kt_close(&t);
	return NULL;
}

static __thread sigjmp_buf bus_env;

static void on_bus(int sig)
{
	siglongjmp(bus_env, sig);
}

/* What a pool that may go at any moment is also asked for. */
static void disturb(struct kt *t, unsigned int *seed)
{
	char path[256];
	int fd;

	switch (kt_rnd(seed, 6)) {
	case 0:
		kt_populate(t, kt_rnd(seed, t->nr_frames), 1 + kt_rnd(seed, 64),
			    NULL);
		break;
	case 1:
		snprintf(path, sizeof(path), "%s/race-churn", kt_disk_dir());
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0 || ftruncate(fd, 4 * 4096))
			kt_wrong(-errno, __LINE__);
		kt_attach(t, fd, 0, 0, 0, NULL);
		close(fd);
		break;
	case 2:
		kt_detach(t, kt_rnd(seed, 2) ? KVMM_SWAP_DISCARD : 0);
		break;
	case 3:
		kt_reclaim(t, kt_rnd(seed, 8), NULL);
		break;
	case 4:
		/* there are pools, so it must not succeed */
		if (!syscall(SYS_delete_module, "kvmm", O_NONBLOCK))
			kt_wrong(-EBUSY, __LINE__);
		break;
	case 5:
		fd = kt_export(t, 0, 1 + kt_rnd(seed, 8), 0);
		if (fd >= 0)
			close(fd);
		break;
	}
}

/* Lives of a short-lived pool: any step may find it gone. */
static void *churner(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	struct kvmm_pool_create spec;
	struct kvmm_block_ref refs[4];
	struct kt t;
	uint32_t i;
	int ret;

	signal(SIGBUS, on_bus);
	while (!kt_over()) {
		spec = kt_spec(CHURN, 4096, 8 + kt_rnd(&seed, 600), 4);
		spec.mode = 0666;
		ret = kt_rnd(&seed, 2) ? kt_create_spec(&t, &spec) :
			kt_join(&t, CHURN, 0);
		if (!ret) {
			COUNT(lives);
			if (!sigsetjmp(bus_env, 1)) {
				if (!kt_alloc(&t, refs, 4)) {
					for (i = 0; i < 4; i++)
						kt_fill(&t, refs[i].frame, i);
					kt_publish1(&t, refs[0].handle,
						    1 + kt_rnd(&seed, 50), 0);
				}
				for (i = 0; i < t.nr_frames; i += 7)
					(void)*(volatile unsigned char *)
						(t.arena + i * 4096UL);
				disturb(&t, &seed);
				kt_load(&t, 1 + kt_rnd(&seed, 50));
				disturb(&t, &seed);
			}
			if (kt_rnd(&seed, 2))
				kt_destroy(CHURN, KVMM_POOL_FORCE);
			kt_close(&t);
		} else if (ret != -EEXIST && ret != -ENOENT && ret != -ENODEV) {
			kt_wrong(ret, __LINE__);
		}
	}
	return NULL;
}

static int process(void *arg)
{
	static void *(*const fn[THREADS])(void *seed) = {
		churner, worker, worker,
	};

	return kt_threads(fn, THREADS, (unsigned int)(uintptr_t)arg);
}

FIXTURE(race) {
	struct kt t;
	int area;
};

FIXTURE_SETUP(race)
{
	struct kvmm_pool_create spec = kt_spec(POOL, BLOCK, FRAMES, SLOTS);

	kt_wipe();
	ASSERT_NE(NULL, kt_disk_dir());
	self->area = kt_area_file(AREA, BLOCK, SLOTS);
	ASSERT_LE(0, self->area);
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
	ASSERT_EQ(0, kt_attach(&self->t, self->area, 0, 0, 0, NULL));
}

FIXTURE_TEARDOWN(race)
{
	kt_destroy(CHURN, KVMM_POOL_FORCE);
	kt_area_unlink("race-churn");
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	close(self->area);
	kt_area_unlink(AREA);
}

TEST_F_TIMEOUT(race, all_at_once, 1800)
{
	unsigned int seed = kt_seed();
	int err, line, i;
	struct kvmm_pool_stat st;
	struct kt *t = &self->t;
	pid_t pid[3];

	tally = kt_crowd(sizeof(*tally), "KVMM_RACE_SECONDS", 10);
	ASSERT_NE(NULL, tally);
	TH_LOG("seed %u, %u seconds", seed, kt_crowd_seconds());
	for (i = 0; i < 3; i++)
		pid[i] = kt_spawn(process, (void *)(uintptr_t)(seed + i));
	while (!kt_over()) {
		KT_CONSISTENT(t);
		kt_sleep_ms(50);
	}
	for (i = 0; i < 3; i++)
		EXPECT_EQ(0, kt_reap(pid[i]));

	TH_LOG("%llu stores, %llu hits, %llu misses, %llu swaps, %llu lives",
	       (unsigned long long)tally->stores,
	       (unsigned long long)tally->hits,
	       (unsigned long long)tally->misses,
	       (unsigned long long)tally->swaps,
	       (unsigned long long)tally->lives);
	err = kt_wrong_was(&line);
	EXPECT_EQ(0, err) {
		TH_LOG("error %d in line %d", err, line);
	}
	EXPECT_EQ(0, tally->bad) {
		TH_LOG("wrong bytes");
	}
	EXPECT_LT(0, tally->hits);
	ASSERT_EQ(0, kt_wait_unpinned(t));
	ASSERT_EQ(0, kt_stat(t, &st));
	EXPECT_EQ(0, st.checksum_errors + st.read_errors + st.write_errors);
	EXPECT_EQ(0, st.degraded);
	EXPECT_LT(0, st.swap_ins);
	EXPECT_EQ(1, st.nr_clients);
	for (i = 1; i <= IDS; i++) {
		int ret = kt_load(t, i);

		if (ret == -EAGAIN || ret == -ENOSPC) {
			ASSERT_EQ(0, kt_reclaim(t, FRAMES / 2, NULL));
			ret = kt_load(t, i);
		}
		EXPECT_LE(0, ret);
	}
}

KT_MAIN
