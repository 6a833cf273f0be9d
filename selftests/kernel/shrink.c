// SPDX-License-Identifier: MIT
/*
 * Memory pressure while everything else goes on, for some seconds
 * (KVMM_RACE_SECONDS): threads of several processes store, load, swap, lease,
 * populate and touch a pool whose memory is taken away again and again.
 * Whatever is read back is checked.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include "kt_crowd.h"
#include "kt_harness.h"

#define BLOCK	32768U
#define UNIT	(KT_UNIT / BLOCK)
#define UNITS	5
#define FRAMES	(UNITS * UNIT)
#define SLOTS	(2 * FRAMES)
#define IDS	(3 * FRAMES)
#define THREADS	3
#define POOL	"squeezed"
#define AREA	"shrink-area"

/* Counted over all processes. */
struct tally {
	uint64_t stores, hits, misses, swaps, leases, faults, bad;
};

static struct tally *tally;

#define COUNT(what)	KT_COUNT(tally->what)
#define CHECK(ret)	KT_CHECK(ret, true)

static __thread sigjmp_buf bus_env;
static __thread bool may_fault;

static void on_bus(int sig)
{
	/* a block that is pinned, or being filled, has its memory */
	if (!may_fault)
		_exit(70);
	siglongjmp(bus_env, sig);
}

static void load(struct kt *t, uint64_t id)
{
	int ret = kt_load(t, id);

	if (ret == -EBADMSG)
		COUNT(bad);
	else
		CHECK(ret);
	if (ret > 0)
		COUNT(hits);
	else
		COUNT(misses);
}

/* Any frame, whether it has memory or not; nothing is in the last byte. */
static void touch(struct kt *t, uint32_t frame)
{
	volatile unsigned char *mem = t->arena + (size_t)frame * BLOCK;

	may_fault = true;
	if (sigsetjmp(bus_env, 1))
		COUNT(faults);
	else
		(void)mem[BLOCK / 2];
	may_fault = false;
}

static void *worker(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	struct kvmm_block_ref refs[8];
	uint32_t unit, n;
	struct kt t;
	uint64_t id;
	int ret;

	ret = kt_join(&t, POOL, 0);
	if (ret) {
		kt_wrong(ret, __LINE__);
		return NULL;
	}
	while (!kt_over()) {
		id = 1 + kt_rnd(&seed, IDS);
		n = 1 + kt_rnd(&seed, 8);
		unit = kt_rnd(&seed, UNITS);
		switch (kt_rnd(&seed, 12)) {
		case 0 ... 2:
			ret = kt_store(&t, id, 1, refs);
			CHECK(ret);
			if (!ret)
				COUNT(stores);
			else if (ret == -EAGAIN || ret == -ENOSPC)
				CHECK(kt_reclaim(&t, FRAMES / 4, NULL));
			break;
		case 3 ... 5:
			load(&t, id);
			break;
		case 6:
			CHECK(kt_lookup(&t, id, n, KVMM_LOOKUP_PEEK, refs));
			CHECK(kt_swap(&t, KVMM_SWAP_OUT, refs, n,
				      kt_rnd(&seed, 2) ? KVMM_SWAP_DROP : 0));
			COUNT(swaps);
			break;
		case 7:
			CHECK(kt_lookup(&t, id, n, KVMM_LOOKUP_PEEK, refs));
			CHECK(kt_swap(&t, KVMM_SWAP_IN, refs, n, 0));
			COUNT(swaps);
			break;
		case 8:
			CHECK(kt_populate(&t, unit * UNIT + kt_rnd(&seed, UNIT / 2),
					  kt_rnd(&seed, 2) ? UNIT / 2 : 3, NULL));
			break;
		case 9:
			n = kt_rnd(&seed, 2) ? KVMM_LEASE_END : 0;
			ret = kt_lease(&t, unit, 1, n, NULL);
			CHECK(ret);
			if (!ret)
				COUNT(leases);
			break;
		case 10:
			for (n = 0; n < 20; n++)
				touch(&t, kt_rnd(&seed, FRAMES));
			break;
		case 11:
			if (kt_rnd(&seed, 8))
				break;
			kt_close(&t);
			ret = kt_join(&t, POOL, 0);
			if (ret) {
				kt_wrong(ret, __LINE__);
				return NULL;
			}
			break;
		}
	}
	kt_close(&t);
	return NULL;
}

static int process(void *arg)
{
	static void *(*const fn[THREADS])(void *seed) = {
		worker, worker, worker,
	};

	signal(SIGBUS, on_bus);
	return kt_threads(fn, THREADS, (unsigned int)(uintptr_t)arg);
}

FIXTURE(shrink) {
	struct kt t;
	int area;
	long pressure;
};

FIXTURE_SETUP(shrink)
{
	struct kvmm_pool_create spec =
		kt_elastic_spec(POOL, BLOCK, UNITS, UNITS - 1, SLOTS);

	kt_wipe();
	ASSERT_NE(NULL, kt_disk_dir());
	self->pressure = kt_pressure_ms(20);
	self->area = kt_area_file(AREA, BLOCK, SLOTS);
	ASSERT_LE(0, self->area);
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
	ASSERT_EQ(0, kt_attach(&self->t, self->area, 0, 0, 0, NULL));
}

FIXTURE_TEARDOWN(shrink)
{
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	close(self->area);
	kt_area_unlink(AREA);
	EXPECT_LE(0, kt_pressure_ms(self->pressure));
}

TEST_F_TIMEOUT(shrink, all_at_once, 1800)
{
	unsigned int seed = kt_seed();
	int err, line, i;
	struct kt *t = &self->t;
	struct kvmm_pool_stat st;
	pid_t pid[2];
	int fd;

	tally = kt_crowd(sizeof(*tally), "KVMM_RACE_SECONDS", 10);
	ASSERT_NE(NULL, tally);
	TH_LOG("seed %u, %u seconds", seed, kt_crowd_seconds());
	fd = open("/proc/sys/vm/drop_caches", O_WRONLY);
	ASSERT_LE(0, fd);
	for (i = 0; i < 2; i++)
		pid[i] = kt_spawn(process, (void *)(uintptr_t)(seed + i));
	while (!kt_over()) {
		KT_CONSISTENT(t);
		EXPECT_EQ(1, write(fd, "2", 1));
		kt_sleep_ms(30);
	}
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, kt_reap(pid[i]));
	close(fd);
	ASSERT_EQ(0, kt_stat(t, &st));
	TH_LOG("%llu stores, %llu hits, %llu misses, %llu swaps, %llu leases, %llu faults",
	       (unsigned long long)tally->stores,
	       (unsigned long long)tally->hits,
	       (unsigned long long)tally->misses,
	       (unsigned long long)tally->swaps,
	       (unsigned long long)tally->leases,
	       (unsigned long long)tally->faults);
	TH_LOG("%llu frames given back, %llu taken again",
	       (unsigned long long)st.given_back,
	       (unsigned long long)st.taken_again);
	err = kt_wrong_was(&line);
	EXPECT_EQ(0, err) {
		TH_LOG("error %d in line %d", err, line);
	}
	EXPECT_EQ(0, tally->bad);
	EXPECT_LT(0, st.given_back);
	EXPECT_LT(0, st.taken_again);
	EXPECT_EQ(0, st.chunks_leased);

	/* and it still works: all its memory, for any block */
	ASSERT_EQ(0, kt_populate(t, 0, FRAMES, NULL));
	for (i = 1; i <= (int)IDS; i++) {
		int ret = kt_load(t, i);

		if (ret == -EAGAIN || ret == -ENOSPC) {
			ASSERT_EQ(0, kt_reclaim(t, FRAMES / 2, NULL));
			ret = kt_load(t, i);
		}
		EXPECT_LE(0, ret);
	}
}

KT_MAIN
