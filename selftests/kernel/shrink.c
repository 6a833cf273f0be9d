// SPDX-License-Identifier: MIT
/*
 * Memory pressure while everything else goes on, for some seconds
 * (KVMM_RACE_SECONDS): threads of several processes store, load, swap, lease,
 * populate and touch a pool whose memory is taken away again and again.
 * Whatever is read back is checked.
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

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
	int error, line;
};

static struct tally *tally;
static uint64_t until;

#define COUNT(what)	__atomic_add_fetch(&tally->what, 1, __ATOMIC_RELAXED)

static bool over(void)
{
	return kt_now_ms() >= until ||
		__atomic_load_n(&tally->error, __ATOMIC_RELAXED);
}

static void wrong(int err, int line)
{
	if (!__atomic_exchange_n(&tally->error, err, __ATOMIC_RELAXED))
		tally->line = line;
}

/* What can happen to a call when others are busy, or memory is short. */
static bool busy(int ret)
{
	return ret == -EAGAIN || ret == -ENOSPC || ret == -EEXIST ||
		ret == -ESTALE || ret == -EBUSY || ret == -ENOBUFS ||
		ret == -ENOMEM;
}

#define CHECK(ret) do {							\
	int ret_ = (ret);						\
									\
	if (ret_ < 0 && !busy(ret_))					\
		wrong(ret_, __LINE__);					\
} while (0)

static unsigned int rnd(unsigned int *seed, unsigned int below)
{
	return rand_r(seed) / 7 % below;
}

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
		wrong(ret, __LINE__);
		return NULL;
	}
	while (!over()) {
		id = 1 + rnd(&seed, IDS);
		n = 1 + rnd(&seed, 8);
		unit = rnd(&seed, UNITS);
		switch (rnd(&seed, 12)) {
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
				      rnd(&seed, 2) ? KVMM_SWAP_DROP : 0));
			COUNT(swaps);
			break;
		case 7:
			CHECK(kt_lookup(&t, id, n, KVMM_LOOKUP_PEEK, refs));
			CHECK(kt_swap(&t, KVMM_SWAP_IN, refs, n, 0));
			COUNT(swaps);
			break;
		case 8:
			CHECK(kt_populate(&t, unit * UNIT + rnd(&seed, UNIT / 2),
					  rnd(&seed, 2) ? UNIT / 2 : 3, NULL));
			break;
		case 9:
			n = rnd(&seed, 2) ? KVMM_LEASE_END : 0;
			ret = kt_lease(&t, unit, 1, n, NULL);
			CHECK(ret);
			if (!ret)
				COUNT(leases);
			break;
		case 10:
			for (n = 0; n < 20; n++)
				touch(&t, rnd(&seed, FRAMES));
			break;
		case 11:
			if (rnd(&seed, 8))
				break;
			kt_close(&t);
			ret = kt_join(&t, POOL, 0);
			if (ret) {
				wrong(ret, __LINE__);
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
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	pthread_t thread[THREADS];
	int i;

	signal(SIGBUS, on_bus);
	for (i = 0; i < THREADS; i++) {
		if (pthread_create(&thread[i], NULL, worker,
				   (void *)(uintptr_t)(seed + 17 * i)))
			return -ENOMEM;
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	return 0;
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
	const char *text = getenv("KVMM_RACE_SECONDS");
	int seconds = text ? atoi(text) : 10, i;
	struct kt *t = &self->t;
	struct kvmm_pool_stat st;
	unsigned int seed;
	pid_t pid[2];
	int fd;

	text = getenv("KVMM_SEED");
	seed = text ? strtoul(text, NULL, 0) : (unsigned int)kt_now_ms();
	TH_LOG("seed %u, %d seconds", seed, seconds);
	tally = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)tally);
	fd = open("/proc/sys/vm/drop_caches", O_WRONLY);
	ASSERT_LE(0, fd);
	until = kt_now_ms() + seconds * 1000;
	for (i = 0; i < 2; i++)
		pid[i] = kt_spawn(process, (void *)(uintptr_t)(seed + i));
	while (!over()) {
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
	EXPECT_EQ(0, tally->error) {
		TH_LOG("error %d in line %d", tally->error, tally->line);
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
