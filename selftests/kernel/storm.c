// SPDX-License-Identifier: MIT
/*
 * All features of a pool at once, and the pool destroyed in the middle of it,
 * again and again for some seconds (KVMM_STORM_SECONDS): blocks move, memory is
 * populated by workers, cancelled, exported, leased, asked back by the system;
 * events are read, writeback runs, the area comes and goes.  Whatever a call
 * may say is fine but for a few answers that would be wrong; what counts is
 * that nothing is left in the end, and that the kernel has nothing to say.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

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

struct tally {
	uint64_t pools, stores, hits, bad, exports, events, populates, leases;
	uint64_t given_back, clean_outs;
	int area[2];	/* a file, and a disk that hangs at times, if there is one */
	int nr_areas;
	bool stop;
};

static struct tally *tally;

#define COUNT(what)	__atomic_add_fetch(&tally->what, 1, __ATOMIC_RELAXED)

static bool over(void)
{
	return __atomic_load_n(&tally->stop, __ATOMIC_RELAXED);
}

static unsigned int rnd(unsigned int *seed, unsigned int below)
{
	return rand_r(seed) / 7 % below;
}

/* A frame may lose its memory under whoever looks at it. */
static __thread sigjmp_buf bus_env;

static void on_bus(int sig)
{
	siglongjmp(bus_env, sig);
}

/* ---- what goes on in a pool; until it is gone ---- */

static void store(struct kt *t, unsigned int *seed)
{
	struct kvmm_block_ref refs[4];
	uint64_t id = 1 + rnd(seed, IDS);
	uint32_t n = 1 + rnd(seed, 4), done = 0, i;

	if (rnd(seed, 2))
		kt_alloc_wait(t, refs, n, 50, &done);
	else if (!kt_alloc(t, refs, n))
		done = n;
	for (i = 0; i < done; i++) {
		struct kvmm_publish_entry e = kt_entry(t, refs[i].handle,
						       id + i);

		kt_fill(t, refs[i].frame, id + i);
		if (rnd(seed, 2))
			e.flags |= KVMM_BLOCK_RECOMPUTABLE;
		if (!kt_publish(t, &e, 1, 0) && e.result >= 0)
			COUNT(stores);
		else
			kt_unpin1(t, refs[i].handle);
	}
}

static void load(struct kt *t, unsigned int *seed)
{
	int ret = kt_load(t, 1 + rnd(seed, IDS));

	if (ret == -EBADMSG)
		COUNT(bad);
	else if (ret == 1)
		COUNT(hits);
}

static void swap(struct kt *t, unsigned int *seed)
{
	uint32_t cmd = rnd(seed, 2) ? KVMM_SWAP_IN : KVMM_SWAP_OUT;
	struct kvmm_block_ref refs[8];
	struct kt_ring r;

	if (kt_lookup(t, 1 + rnd(seed, IDS), 8, KVMM_LOOKUP_PEEK, refs) < 0)
		return;
	if (rnd(seed, 4)) {
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
	if (sigsetjmp(bus_env, 1))
		return;
	switch (rnd(seed, 8)) {
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
		kt_reclaim(t, rnd(seed, FRAMES), NULL);
		break;
	default:
		if (!rnd(seed, 20))
			kt_reset(t, NULL);
	}
}

static void populator(struct kt *t, unsigned int *seed)
{
	struct kvmm_populate arg = { .size = sizeof(arg) };

	switch (rnd(seed, 4)) {
	case 0:
		arg.flags = KVMM_POPULATE_CANCEL;
		break;
	case 1 ... 2:
		arg.flags = KVMM_POPULATE_ASYNC;
		arg.workers = rnd(seed, 5);
		/* fallthrough */
	default:
		arg.first = rnd(seed, FRAMES);
		arg.count = 1 + rnd(seed, FRAMES - arg.first);
	}
	if (!kt_ioctl(t->fd, KVMM_POPULATE, &arg))
		COUNT(populates);
	kt_sleep_ms(rnd(seed, 20));
}

static void exporter(struct kt *t, unsigned int *seed)
{
	uint32_t first = rnd(seed, FRAMES), count = 1 + rnd(seed, 3);
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
	kt_sleep_ms(rnd(seed, 30));
	/* The memory of an export stays, whatever became of the pool. */
	if (mem)
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
		.count = 1 + rnd(seed, EVENTS),
	};
	struct pollfd p = { .fd = t->fd, .events = POLLIN };
	struct kvmm_event ev[8];
	ssize_t n;
	int i;

	if (!rnd(seed, 16))
		arg.mask = 0;
	if (kt_ioctl(t->fd, KVMM_EVENTS, &arg))
		return;
	for (i = 0; i < 8 && poll(&p, 1, 20) > 0; i++) {
		if (!(p.revents & POLLIN))
			break;
		n = read(t->fd, ev, sizeof(ev[0]) * (1 + rnd(seed, 8)));
		if (n > 0)
			COUNT(events);
	}
}

static void leaser(struct kt *t, unsigned int *seed)
{
	struct kvmm_lease arg = {
		.size = sizeof(arg), .first = rnd(seed, 8), .count = 1,
		.flags = rnd(seed, 2) ? KVMM_LEASE_END : 0,
	};

	if (!kt_ioctl(t->fd, KVMM_LEASE, &arg))
		COUNT(leases);
	kt_sleep_ms(rnd(seed, 10));
}

static void attacher(struct kt *t, unsigned int *seed)
{
	struct kvmm_pool_stat st;

	if (rnd(seed, 8))
		kt_attach_timeout(t, tally->area[rnd(seed, tally->nr_areas)],
				  1 + rnd(seed, 4) * 500);
	else
		kt_detach(t, rnd(seed, 2) ? KVMM_SWAP_DISCARD : 0);
	if (!kt_stat(t, &st)) {
		/* the most that one pool had */
		if (tally->given_back < st.given_back)
			tally->given_back = st.given_back;
		if (tally->clean_outs < st.clean_outs)
			tally->clean_outs = st.clean_outs;
	}
	kt_sleep_ms(rnd(seed, 40));
}

static void squeezer(struct kt *t, unsigned int *seed)
{
	(void)t;
	kt_file_put("/proc/sys/vm/drop_caches", "2");
	/* At times there is no room for more. */
	kt_file_put(PARAMETERS "max_bytes", rnd(seed, 8) ? "0" : "8388608");
	kt_sleep_ms(rnd(seed, 40));
}

static void (*const parts[])(struct kt *t, unsigned int *seed) = {
	mover, mover, populator, exporter, listener, leaser, attacher, squeezer,
};

#define PARTS	(sizeof(parts) / sizeof(parts[0]))

static void *part(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	unsigned int at = seed % PARTS, i;
	struct kt t;

	signal(SIGBUS, on_bus);
	while (!over()) {
		if (kt_join(&t, POOL, 0)) {
			kt_sleep_ms(1);
			continue;
		}
		for (i = 0; i < 40 && !over(); i++)
			parts[at](&t, &seed);
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

	while (!over()) {
		kt_sleep_ms(rnd(&seed, 300));
		kt_dm_hang(true);
		kt_sleep_ms(rnd(&seed, 300));
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
	spec.quarantine_ms = rnd(seed, 2) * 50;
	spec.clean_low = rnd(seed, 600);
	spec.clean_high = spec.clean_low + rnd(seed, 400);
	spec.nr_elastic = rnd(seed, 4) * 2 * UNIT;
	spec.chunk_frames = UNIT;
	ret = kt_ioctl(t.fd, KVMM_POOL_CREATE, &spec);
	if (!ret) {
		COUNT(pools);
		kt_attach_timeout(&t, tally->area[rnd(seed, tally->nr_areas)],
				  500);
		kt_sleep_ms(rnd(seed, 4) * 500);
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
	const char *text = getenv("KVMM_STORM_SECONDS");
	int seconds = text ? atoi(text) : 10, ret = 0, i;
	struct kvmm_info info;
	unsigned int seed;
	uint64_t until;
	pthread_t thread;
	pid_t pid[2];

	text = getenv("KVMM_SEED");
	seed = text ? strtoul(text, NULL, 0) : (unsigned int)kt_now_ms();
	TH_LOG("seed %u, %d seconds", seed, seconds);
	tally = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)tally);
	kt_file_put(PARAMETERS "pressure_ms", "20");
	tally->area[0] = kt_area_file(AREA, BLOCK, SLOTS);
	ASSERT_LE(0, tally->area[0]);
	tally->area[1] = kt_dm();
	tally->nr_areas = tally->area[1] < 0 ? 1 : 2;
	until = kt_now_ms() + seconds * 1000;
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
	__atomic_store_n(&tally->stop, true, __ATOMIC_RELAXED);
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
	TH_LOG("%llu populates, %llu leases, %llu given back, %llu cleaned",
	       (unsigned long long)tally->populates,
	       (unsigned long long)tally->leases,
	       (unsigned long long)tally->given_back,
	       (unsigned long long)tally->clean_outs);
	EXPECT_EQ(0, tally->bad) {
		TH_LOG("wrong bytes");
	}
	ASSERT_EQ(0, kt_info(&info));
	EXPECT_EQ(0, info.nr_pools);
	EXPECT_EQ(0, info.pinned_bytes);
}

KT_MAIN
