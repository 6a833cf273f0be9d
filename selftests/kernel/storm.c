// SPDX-License-Identifier: MIT
/*
 * All features of a pool at once, and the pool destroyed in the middle of it,
 * again and again for some seconds (KVMM_STORM_SECONDS): blocks move, memory is
 * populated by workers, cancelled, exported, leased, asked back by the system;
 * events are read, writeback runs, the area comes and goes; memory errors strike
 * where the kernel can simulate them.  Whatever a call
 * may say is fine but for a few answers that would be wrong; what counts is
 * that nothing is left in the end, and that the kernel has nothing to say.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include "kt_crowd.h"
#include "kt_export.h"
#include "kt_harness.h"
#include "kt_ring.h"

#define PARAMETERS "/sys/module/kvmm/parameters/"

#define POOL	"stormy"
#define AREA	"storm-area"
#define BLOCK	65536U
#define UNIT	((2U << 20) / BLOCK)
#define FRAMES	(8 * UNIT)
#define SLOTS	(2 * FRAMES)
#define IDS	(FRAMES / 2)
#define EVENTS	64
/* Memory errors are for good: the machine has so much less. */
#define STRIKES	100

#ifndef MADV_HWPOISON
#define MADV_HWPOISON	100
#endif

struct tally {
	uint64_t pools, stores, hits, bad, exports, events, populates, leases;
	uint64_t given_back, clean_outs, strikes;
	int area[2];	/* a file, and a disk that hangs at times, if there is one */
	int nr_areas;
};

static struct tally *tally;

#define COUNT(what)	KT_COUNT(tally->what)

/* A frame may lose its memory, or break, under whoever looks at it. */
static __thread sigjmp_buf bus_env;

static void on_bus(int sig)
{
	siglongjmp(bus_env, sig);
}

/* ---- what goes on in a pool; until it is gone ---- */

static void store(struct kt *t, unsigned int *seed)
{
	struct kvmm_block_ref refs[4];
	uint64_t id = 1 + kt_rnd(seed, IDS);
	uint32_t n = 1 + kt_rnd(seed, 4), done = 0, i;

	if (kt_rnd(seed, 2))
		kt_alloc_wait(t, refs, n, 50, &done);
	else if (!kt_alloc(t, refs, n))
		done = n;
	for (i = 0; i < done; i++) {
		struct kvmm_publish_entry e = kt_entry(t, refs[i].handle,
						       id + i);

		kt_fill(t, refs[i].frame, id + i);
		if (kt_rnd(seed, 2))
			e.flags |= KVMM_BLOCK_RECOMPUTABLE;
		if (!kt_publish(t, &e, 1, 0) && e.result >= 0)
			COUNT(stores);
		else
			kt_unpin1(t, refs[i].handle);
	}
}

static void load(struct kt *t, unsigned int *seed)
{
	int ret = kt_load(t, 1 + kt_rnd(seed, IDS));

	if (ret == -EBADMSG)
		COUNT(bad);
	else if (ret == 1)
		COUNT(hits);
}

static void swap(struct kt *t, unsigned int *seed)
{
	uint32_t cmd = kt_rnd(seed, 2) ? KVMM_SWAP_IN : KVMM_SWAP_OUT;
	struct kvmm_block_ref refs[8];
	struct kt_ring r;

	if (kt_lookup(t, 1 + kt_rnd(seed, IDS), 8, KVMM_LOOKUP_PEEK, refs) < 0)
		return;
	if (kt_rnd(seed, 4)) {
		kt_swap(t, cmd, refs, 8, 0);
		return;
	}
	if (kt_ring_init(&r, t, 8, 0, false))
		return;
	cmd = cmd == KVMM_SWAP_IN ? KVMM_URING_SWAP_IN : KVMM_URING_SWAP_OUT;
	/* The ring goes with the commands in flight. */
	if (refs[0].handle)
		kt_ring_do1(&r, cmd, refs[0].handle, 0);
	if (refs[1].handle && !kt_ring_one(&r, cmd, refs[1].handle, 0, 0))
		kt_ring_submit(&r);
	kt_ring_exit(&r);
}

static void mover(struct kt *t, unsigned int *seed)
{
	switch (kt_rnd(seed, 8)) {
	case 0 ... 2:
		store(t, seed);
		break;
	case 3 ... 4:
		load(t, seed);
		break;
	case 5:
		swap(t, seed);
		break;
	case 6:
		kt_reclaim(t, kt_rnd(seed, FRAMES), NULL);
		break;
	default:
		if (!kt_rnd(seed, 20))
			kt_reset(t, NULL);
	}
}

static void populator(struct kt *t, unsigned int *seed)
{
	struct kvmm_populate arg = { .size = sizeof(arg) };

	switch (kt_rnd(seed, 4)) {
	case 0:
		arg.flags = KVMM_POPULATE_CANCEL;
		break;
	case 1 ... 2:
		arg.flags = KVMM_POPULATE_ASYNC;
		arg.workers = kt_rnd(seed, 5);
		/* fallthrough */
	default:
		arg.first = kt_rnd(seed, FRAMES);
		arg.count = 1 + kt_rnd(seed, FRAMES - arg.first);
	}
	if (!kt_ioctl(t->fd, KVMM_POPULATE, &arg))
		COUNT(populates);
	kt_sleep_ms(kt_rnd(seed, 20));
}

static void exporter(struct kt *t, unsigned int *seed)
{
	uint32_t first = kt_rnd(seed, FRAMES), count = 1 + kt_rnd(seed, 3);
	int fd = kt_export(t, first, count, 0);
	uint8_t *mem;
	int im;

	if (fd < 0)
		return;
	COUNT(exports);
	mem = kt_buf_map(fd, BLOCK * (size_t)count, PROT_READ | PROT_WRITE);
	im = kt_importer_open();
	if (im >= 0)
		kt_importer_attach(im, fd, KT_BOTH, 0, NULL, NULL);
	kt_sleep_ms(kt_rnd(seed, 30));
	/*
	 * The memory of an export stays, whatever became of the pool; unless it
	 * has an error.
	 */
	if (mem && !sigsetjmp(bus_env, 1))
		(void)*(volatile uint8_t *)(mem + BLOCK * (size_t)(count - 1));
	if (im >= 0)
		close(im);
	close(fd);
	if (mem)
		munmap(mem, BLOCK * (size_t)count);
}

static void listener(struct kt *t, unsigned int *seed)
{
	struct kvmm_events arg = {
		.size = sizeof(arg),
		.mask = ~0ULL >> (64 - KVMM_NR_EVENTS),
		.count = 1 + kt_rnd(seed, EVENTS),
	};
	struct pollfd p = { .fd = t->fd, .events = POLLIN };
	struct kvmm_event ev[8];
	ssize_t n;
	int i;

	if (!kt_rnd(seed, 16))
		arg.mask = 0;
	if (kt_ioctl(t->fd, KVMM_EVENTS, &arg))
		return;
	for (i = 0; i < 8 && poll(&p, 1, 20) > 0; i++) {
		if (!(p.revents & POLLIN))
			break;
		n = read(t->fd, ev, sizeof(ev[0]) * (1 + kt_rnd(seed, 8)));
		if (n > 0)
			COUNT(events);
	}
}

static void leaser(struct kt *t, unsigned int *seed)
{
	struct kvmm_lease arg = {
		.size = sizeof(arg), .first = kt_rnd(seed, 8), .count = 1,
		.flags = kt_rnd(seed, 2) ? KVMM_LEASE_END : 0,
	};

	if (!kt_ioctl(t->fd, KVMM_LEASE, &arg))
		COUNT(leases);
	kt_sleep_ms(kt_rnd(seed, 10));
}

static void attacher(struct kt *t, unsigned int *seed)
{
	struct kvmm_pool_stat st;

	if (kt_rnd(seed, 8))
		kt_attach_timeout(t, tally->area[kt_rnd(seed, tally->nr_areas)],
				  1 + kt_rnd(seed, 4) * 500);
	else
		kt_detach(t, kt_rnd(seed, 2) ? KVMM_SWAP_DISCARD : 0);
	if (!kt_stat(t, &st)) {
		/* the most that one pool had */
		if (tally->given_back < st.given_back)
			tally->given_back = st.given_back;
		if (tally->clean_outs < st.clean_outs)
			tally->clean_outs = st.clean_outs;
	}
	kt_sleep_ms(kt_rnd(seed, 40));
}

static void squeezer(struct kt *t, unsigned int *seed)
{
	(void)t;
	kt_file_put("/proc/sys/vm/drop_caches", "2");
	/* At times there is no room for more. */
	kt_file_put(PARAMETERS "max_bytes", kt_rnd(seed, 8) ? "0" : "8388608");
	kt_sleep_ms(kt_rnd(seed, 40));
}

/* An error in some page, in use or not. */
static void striker(struct kt *t, unsigned int *seed)
{
	size_t page = kt_rnd(seed, FRAMES) * (BLOCK / 4096) +
		kt_rnd(seed, BLOCK / 4096);

	kt_sleep_ms(kt_rnd(seed, 200));
	if (tally->strikes >= STRIKES)
		return;
	/* the mark is there also where the page can't be taken away */
	if (!madvise(t->arena + page * 4096, 4096, MADV_HWPOISON) ||
	    errno == EBUSY || errno == EIO)
		COUNT(strikes);
}

static void (*const parts[])(struct kt *t, unsigned int *seed) = {
	mover, mover, populator, exporter, listener, leaser, attacher, squeezer,
	striker,
};

#define PARTS	(sizeof(parts) / sizeof(parts[0]))

static void step(unsigned int at, struct kt *t, unsigned int *seed)
{
	if (!sigsetjmp(bus_env, 1))
		parts[at](t, seed);
}

static void *part(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	unsigned int at = seed % PARTS, i;
	struct kt t;

	signal(SIGBUS, on_bus);
	while (!kt_over()) {
		if (kt_join(&t, POOL, 0)) {
			kt_sleep_ms(1);
			continue;
		}
		for (i = 0; i < 40 && !kt_over(); i++)
			step(at, &t, &seed);
		kt_close(&t);
	}
	return NULL;
}

static int process(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg, i;
	pthread_t thread[PARTS];

	for (i = 0; i < PARTS; i++)
		if (pthread_create(&thread[i], NULL, part,
				   (void *)(uintptr_t)(seed * PARTS + i)))
			return -ENOMEM;
	for (i = 0; i < PARTS; i++)
		pthread_join(thread[i], NULL);
	return 0;
}

/* Slower than some deadlines, faster than others. */
static void *hanger(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;

	while (!kt_over()) {
		kt_sleep_ms(kt_rnd(&seed, 300));
		kt_dm_hang(true);
		kt_sleep_ms(kt_rnd(&seed, 300));
		kt_dm_hang(false);
	}
	return NULL;
}

/* One life of the pool. */
static int live(unsigned int *seed)
{
	struct kvmm_pool_create spec = kt_spec(POOL, BLOCK, FRAMES, SLOTS);
	struct kt t = { .fd = kt_dev(O_RDWR) };
	int ret;

	if (t.fd < 0)
		return t.fd;
	spec.quarantine_ms = kt_rnd(seed, 2) * 50;
	spec.clean_low = kt_rnd(seed, 600);
	spec.clean_high = spec.clean_low + kt_rnd(seed, 400);
	spec.nr_elastic = kt_rnd(seed, 4) * 2 * UNIT;
	spec.chunk_frames = UNIT;
	ret = kt_ioctl(t.fd, KVMM_POOL_CREATE, &spec);
	if (!ret) {
		COUNT(pools);
		kt_attach_timeout(&t, tally->area[kt_rnd(seed, tally->nr_areas)],
				  500);
		kt_sleep_ms(kt_rnd(seed, 4) * 500);
		ret = kt_destroy(POOL, KVMM_POOL_FORCE);
	}
	kt_close(&t);
	return ret;
}

FIXTURE(storm) {
	int unused;
};

FIXTURE_SETUP(storm)
{
	kt_wipe();
	ASSERT_NE(NULL, kt_disk_dir());
}

FIXTURE_TEARDOWN(storm)
{
	kt_wipe();
	kt_area_unlink(AREA);
}

TEST_F_TIMEOUT(storm, all_at_once, 1800)
{
	unsigned int seed = kt_seed();
	struct kvmm_info info;
	int ret = 0, i;
	uint64_t until;
	pthread_t thread;
	pid_t pid[2];

	tally = kt_crowd(sizeof(*tally), "KVMM_STORM_SECONDS", 10);
	ASSERT_NE(NULL, tally);
	TH_LOG("seed %u, %u seconds", seed, kt_crowd_seconds());
	kt_file_put(PARAMETERS "pressure_ms", "20");
	tally->area[0] = kt_area_file(AREA, BLOCK, SLOTS);
	ASSERT_LE(0, tally->area[0]);
	tally->area[1] = kt_dm();
	tally->nr_areas = tally->area[1] < 0 ? 1 : 2;
	/* as long as it takes until each has done something */
	until = kt_now_ms() + kt_crowd_seconds() * 1000ULL;
	kt_crowd_goes_on();
	for (i = 0; i < 2; i++)
		pid[i] = kt_spawn(process, (void *)(uintptr_t)(seed + i));
	ASSERT_EQ(0, pthread_create(&thread, NULL, hanger,
				    (void *)(uintptr_t)seed));
	/* -ENOMEM: max_bytes is small just now */
	while ((!ret || ret == -ENOMEM) &&
	       (kt_now_ms() < until || !tally->stores || !tally->exports))
		ret = live(&seed);
	EXPECT_TRUE(!ret || ret == -ENOMEM) {
		TH_LOG("error %d", ret);
	}
	kt_stop();
	pthread_join(thread, NULL);
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, kt_reap(pid[i]));
	close(tally->area[0]);
	if (tally->area[1] >= 0)
		close(tally->area[1]);
	kt_dm_end();
	kt_file_put(PARAMETERS "max_bytes", "0");
	kt_file_put(PARAMETERS "pressure_ms", "5000");

	TH_LOG("%llu pools, %llu stores, %llu hits, %llu exports, %llu reads",
	       (unsigned long long)tally->pools,
	       (unsigned long long)tally->stores,
	       (unsigned long long)tally->hits,
	       (unsigned long long)tally->exports,
	       (unsigned long long)tally->events);
	TH_LOG("%llu populates, %llu leases, %llu given back, %llu cleaned, %llu memory errors",
	       (unsigned long long)tally->populates,
	       (unsigned long long)tally->leases,
	       (unsigned long long)tally->given_back,
	       (unsigned long long)tally->clean_outs,
	       (unsigned long long)tally->strikes);
	EXPECT_EQ(0, tally->bad) {
		TH_LOG("wrong bytes");
	}
	ASSERT_EQ(0, kt_info(&info));
	EXPECT_EQ(0, info.nr_pools);
	EXPECT_EQ(0, info.pinned_bytes);
}

KT_MAIN
