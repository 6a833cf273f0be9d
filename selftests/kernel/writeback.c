// SPDX-License-Identifier: MIT
/*
 * Background writeback: watermarks, which blocks and slots, what it leaves to
 * others, and its end with the disk, the area and the pool.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>

#include "kt_harness.h"
#include "kt_ring.h"

#define POOL	"writeback"
#define FRAMES	64
#define SLOTS	256
#define AREA	"writeback-area"
#define LOW	250
#define HIGH	500
#define DEPTH	16	/* writes that it may have in flight */

FIXTURE(writeback) {
	struct kt t;
	struct kvmm_block_ref refs[FRAMES];
	int area;		/* -1: none */
	bool nullb;
};

/* Each test makes its pool; what is stored lies on @slots of a file. */
static int make(FIXTURE_DATA(writeback) *self, uint32_t low, uint32_t high,
		uint32_t slots)
{
	struct kvmm_pool_create spec = kt_spec(POOL, 4096, FRAMES, slots);
	int ret;

	spec.clean_low = low;
	spec.clean_high = high;
	ret = kt_create_spec(&self->t, &spec);
	return ret ? ret : kt_attach(&self->t, self->area, slots, 0, 0, NULL);
}

FIXTURE_SETUP(writeback)
{
	kt_wipe();
	self->t.fd = -1;
	ASSERT_NE(NULL, kt_disk_dir());
	self->area = kt_area_file(AREA, 4096, SLOTS);
	ASSERT_LE(0, self->area);
}

FIXTURE_TEARDOWN(writeback)
{
	if (self->t.fd >= 0) {
		EXPECT_EQ(0, kt_wait_unpinned(&self->t));
		KT_CONSISTENT(&self->t);
		KT_FINISH(&self->t);
	}
	close(self->area);
	kt_area_unlink(AREA);
	if (self->nullb)
		kt_nullb_end();
}

static uint64_t ready(struct kt *t)
{
	struct kvmm_pool_stat st = kt_stat_of(t);

	return st.frames_free + st.blocks[KVMM_CLEAN];
}

/* Until so many frames are free or clean, and no write is in flight. */
static bool comes_to(struct kt *t, uint64_t n)
{
	int i;

	for (i = 0; i < 6000; i++) {
		if (ready(t) >= n && !kt_stat_of(t).blocks[KVMM_WRITING])
			return true;
		kt_sleep_ms(10);
	}
	return false;
}

/* Writes are counted when all that began together have ended; until there are @n. */
static uint64_t clean_outs(struct kt *t, uint64_t n)
{
	uint64_t outs;
	int i;

	for (i = 0; i < 1000; i++) {
		outs = kt_stat_of(t).clean_outs;
		if (outs >= n)
			break;
		kt_sleep_ms(10);
	}
	return outs;
}

static int set(const char *name, const char *value)
{
	char path[256];
	int fd, ret;

	snprintf(path, sizeof(path), KT_SYSFS "/pools/" POOL "/%s", name);
	fd = open(path, O_WRONLY);
	if (fd < 0)
		return -errno;
	ret = write(fd, value, strlen(value)) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

static int get(const char *name)
{
	char path[256], value[32] = "";
	int fd;

	snprintf(path, sizeof(path), KT_SYSFS "/pools/" POOL "/%s", name);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return -errno;
	if (read(fd, value, sizeof(value) - 1) < 0)
		value[0] = 0;
	close(fd);
	return atoi(value);
}

TEST_F(writeback, choosing)
{
	struct kvmm_info info;

	ASSERT_EQ(0, kt_info(&info));
	EXPECT_NE(0, info.features & KVMM_FEATURE_WRITEBACK);
	EXPECT_EQ(-EINVAL, make(self, 1, 0, SLOTS));
	EXPECT_EQ(-EINVAL, make(self, 0, 1001, SLOTS));
	EXPECT_EQ(-EINVAL, make(self, 1001, 1001, SLOTS));
	ASSERT_EQ(0, make(self, LOW, HIGH, SLOTS));
	EXPECT_EQ(LOW, get("clean_low"));
	EXPECT_EQ(HIGH, get("clean_high"));
	EXPECT_EQ(-EINVAL, set("clean_high", "249"));
	EXPECT_EQ(-EINVAL, set("clean_high", "1001"));
	EXPECT_EQ(-EINVAL, set("clean_low", "501"));
	EXPECT_EQ(-EINVAL, set("clean_low", "much"));
	EXPECT_EQ(LOW, get("clean_low"));
	EXPECT_EQ(HIGH, get("clean_high"));
	EXPECT_EQ(0, set("clean_low", "500"));
	EXPECT_EQ(0, set("clean_high", "1000"));
	EXPECT_EQ(0, set("clean_low", "0"));
	EXPECT_EQ(0, set("clean_high", "0"));
}

static int set_as(void *arg)
{
	return set(arg, "10");
}

TEST_F(writeback, root_only)
{
	ASSERT_EQ(0, make(self, LOW, HIGH, SLOTS));
	EXPECT_EQ(-EACCES, kt_child_as(1000, 1000, 0, set_as, "clean_low"));
	EXPECT_EQ(LOW, get("clean_low"));
}

TEST_F(writeback, off)
{
	ASSERT_EQ(0, make(self, 0, 0, SLOTS));
	ASSERT_EQ(0, kt_store_each(&self->t, 1, FRAMES, self->refs));
	kt_sleep_ms(100);
	EXPECT_EQ(FRAMES, kt_stat_of(&self->t).blocks[KVMM_RESIDENT]);
	EXPECT_EQ(0, kt_stat_of(&self->t).swap_outs);
	EXPECT_EQ(-EAGAIN, kt_alloc(&self->t, self->refs, 1));
}

/* From the coldest up, to the upper mark; then there are victims at once. */
TEST_F(writeback, keeps_victims_at_hand)
{
	struct kvmm_block_ref refs[FRAMES];
	struct kvmm_pool_stat st;
	uint32_t half = FRAMES * HIGH / 1000, i;

	/* on when the pool is full: else it would begin, and end, on the way */
	ASSERT_EQ(0, make(self, 0, HIGH, SLOTS));
	ASSERT_EQ(0, kt_store_each(&self->t, 1, FRAMES, self->refs));
	ASSERT_EQ(0, set("clean_low", "250"));
	ASSERT_TRUE(comes_to(&self->t, half));
	st = kt_stat_of(&self->t);
	EXPECT_EQ(half, st.blocks[KVMM_CLEAN]);
	EXPECT_EQ(half, clean_outs(&self->t, half));
	EXPECT_EQ(half, st.swap_outs);
	EXPECT_EQ(0, st.evicted);
	for (i = 0; i < FRAMES; i++) {
		EXPECT_EQ(i < half ? KVMM_CLEAN : KVMM_RESIDENT,
			  kt_query1(&self->t, self->refs[i].handle));
	}
	/* no -EAGAIN, and it is the coldest that go */
	ASSERT_EQ(0, kt_alloc(&self->t, refs, half));
	for (i = 0; i < half; i++) {
		EXPECT_EQ(KVMM_SWAPPED,
			  kt_query1(&self->t, self->refs[i].handle));
	}
	EXPECT_EQ(half, kt_stat_of(&self->t).evicted);
	/* the next of them are written, and so on */
	ASSERT_TRUE(comes_to(&self->t, half));
	EXPECT_EQ(2 * half, clean_outs(&self->t, 2 * half));
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, half, NULL));
	EXPECT_EQ(FRAMES, kt_load_all(&self->t, 1, FRAMES));
	EXPECT_EQ(0, kt_stat_of(&self->t).checksum_errors);
}

/* What is pinned can't be a victim, so it is not counted. */
TEST_F(writeback, pins)
{
	uint32_t half = FRAMES * HIGH / 1000, i;

	ASSERT_EQ(0, make(self, 0, HIGH, SLOTS));
	ASSERT_EQ(0, kt_store_each(&self->t, 1, FRAMES, self->refs));
	for (i = 0; i < half; i++)
		ASSERT_EQ(0, kt_pin1(&self->t, self->refs[i].handle));
	ASSERT_EQ((int)half,
		  kt_swap(&self->t, KVMM_SWAP_OUT, self->refs, half, 0));
	ASSERT_EQ(0, set("clean_low", "250"));
	ASSERT_TRUE(comes_to(&self->t, FRAMES));
	EXPECT_EQ(half, clean_outs(&self->t, half));
	for (i = half; i < FRAMES; i++)
		EXPECT_EQ(KVMM_CLEAN,
			  kt_query1(&self->t, self->refs[i].handle));
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, self->refs, half, NULL));
}

/* It is told to begin by unpins, too: nothing else happens here. */
TEST_F(writeback, begins_with_unpin)
{
	uint32_t i;

	ASSERT_EQ(0, make(self, LOW, HIGH, SLOTS));
	ASSERT_EQ(0, kt_alloc(&self->t, self->refs, FRAMES));
	for (i = 0; i < FRAMES; i++) {
		kt_fill(&self->t, self->refs[i].frame, 1 + i);
		ASSERT_EQ(0, kt_publish1(&self->t, self->refs[i].handle, 1 + i,
					 KVMM_PUBLISH_KEEP));
	}
	EXPECT_EQ(0, kt_stat_of(&self->t).swap_outs);
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, self->refs, FRAMES, NULL));
	EXPECT_TRUE(comes_to(&self->t, FRAMES * HIGH / 1000));
}

/* Set while the pool is in use, and off again. */
TEST_F(writeback, switched)
{
	struct kvmm_block_ref refs[8];

	ASSERT_EQ(0, make(self, 0, 0, SLOTS));
	ASSERT_EQ(0, kt_store_each(&self->t, 1, FRAMES, self->refs));
	ASSERT_EQ(0, set("clean_high", "125"));
	ASSERT_EQ(0, set("clean_low", "125"));
	ASSERT_TRUE(comes_to(&self->t, 8));
	ASSERT_EQ(0, set("clean_low", "0"));
	ASSERT_EQ(0, kt_alloc(&self->t, refs, 8));
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, 8, NULL));
	ASSERT_EQ(0, kt_store_each(&self->t, 100, 8, refs));
	EXPECT_EQ(8, clean_outs(&self->t, 8));
	EXPECT_EQ(0, kt_stat_of(&self->t).blocks[KVMM_WRITING]);
}

/* With an area that comes later, it begins then. */
TEST_F(writeback, area_comes_later)
{
	struct kvmm_pool_create spec = kt_spec(POOL, 4096, FRAMES, SLOTS);

	spec.clean_low = LOW;
	spec.clean_high = HIGH;
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
	ASSERT_EQ(0, kt_store_each(&self->t, 1, FRAMES, self->refs));
	ASSERT_EQ(0, kt_attach(&self->t, self->area, 0, 0, 0, NULL));
	EXPECT_TRUE(comes_to(&self->t, FRAMES * HIGH / 1000));
	/* it does not come in the way of a detach, and ends with it */
	ASSERT_EQ(0, kt_detach(&self->t, 0));
	EXPECT_EQ(FRAMES, kt_stat_of(&self->t).blocks[KVMM_RESIDENT]);
}

/* Too few slots: it uses those there are, and takes none away. */
TEST_F(writeback, few_slots)
{
	ASSERT_EQ(0, make(self, LOW, HIGH, 8));
	ASSERT_EQ(0, kt_store_each(&self->t, 1, FRAMES, self->refs));
	ASSERT_TRUE(comes_to(&self->t, 8));
	kt_sleep_ms(50);
	EXPECT_EQ(8, kt_stat_of(&self->t).swap_outs);
	EXPECT_EQ(0, kt_stat_of(&self->t).slots_evicted);
	EXPECT_EQ(FRAMES, kt_load_all(&self->t, 1, FRAMES));
}

/* A full area of cold blocks: the oldest make room for those that follow. */
TEST_F(writeback, full_area)
{
	struct kvmm_block_ref refs[FRAMES];
	uint32_t round;

	ASSERT_EQ(0, make(self, LOW, HIGH, FRAMES));
	for (round = 0; round < 4; round++) {
		ASSERT_EQ(0, kt_alloc_wait(&self->t, refs, 48, 60000, NULL));
		ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, 48, NULL));
		ASSERT_EQ(0, kt_store_each(&self->t, 1 + round * 48, 48, refs));
		ASSERT_TRUE(comes_to(&self->t, FRAMES * LOW / 1000));
	}
	EXPECT_LT(0, kt_stat_of(&self->t).slots_evicted);
	EXPECT_EQ(0, kt_stat_of(&self->t).purged);
	EXPECT_EQ(48, kt_load_all(&self->t, 1 + 3 * 48, 48));
}

/* ---- a slow disk ---- */

static int slow_pool(FIXTURE_DATA(writeback) *self, uint32_t low, uint32_t high,
		     uint32_t delay_us)
{
	close(self->area);
	self->area = kt_nullb(8, delay_us);
	if (self->area < 0)
		return self->area;
	self->nullb = true;
	return make(self, low, high, SLOTS);
}

TEST_F(writeback, bounded_in_flight)
{
	uint64_t most = 0, now;
	int ret;

	ret = slow_pool(self, 900, 1000, 20000);
	if (ret == -ENODEV)
		SKIP(return, "no null_blk");
	ASSERT_EQ(0, ret);
	ASSERT_EQ(0, kt_store_each(&self->t, 1, FRAMES, self->refs));
	do {
		now = kt_stat_of(&self->t).blocks[KVMM_WRITING];
		most = now > most ? now : most;
	} while (kt_stat_of(&self->t).clean_outs < FRAMES &&
		 !kt_stat_of(&self->t).degraded);
	EXPECT_GE(DEPTH, most);
	EXPECT_LT(0, most);
	EXPECT_EQ(FRAMES, ready(&self->t));
}

/* While others read nothing is begun, as long as half of the lower mark is
 * left; then it goes on.
 */
TEST_F(writeback, reads_first)
{
	struct kvmm_pool_stat st;
	struct kt_ring r;
	int ret, i, seen = 0;

	ret = slow_pool(self, 0, 1000, 100000);
	if (ret == -ENODEV)
		SKIP(return, "no null_blk");
	ASSERT_EQ(0, ret);
	ASSERT_EQ(0, kt_ring_init(&r, &self->t, FRAMES, 0, false));
	ASSERT_EQ(0, kt_store_each(&self->t, 1, FRAMES, self->refs));
	ASSERT_EQ(48, kt_swap(&self->t, KVMM_SWAP_OUT, self->refs, 48,
			      KVMM_SWAP_DROP));
	for (i = 0; i < 8; i++)
		ASSERT_EQ(0, kt_ring_one(&r, KVMM_URING_SWAP_IN,
					 self->refs[i].handle, 0, i));
	ASSERT_EQ(8, kt_ring_submit(&r));
	ASSERT_EQ(0, set("clean_low", "900"));
	do {
		st = kt_stat_of(&self->t);
		if (st.blocks[KVMM_READING] > 2) {
			EXPECT_EQ(0, st.blocks[KVMM_WRITING]);
			seen++;
		}
	} while (st.blocks[KVMM_READING]);
	TH_LOG("looked at %d times", seen);
	for (i = 0; i < 8; i++)
		EXPECT_EQ(1, kt_ring_wait(&r, NULL));
	EXPECT_TRUE(comes_to(&self->t, FRAMES));
	EXPECT_EQ(16, clean_outs(&self->t, 16));
	kt_ring_exit(&r);
}

/* The disk dies: the worker stops, blocks stay, the pool ends as usual. */
TEST_F(writeback, disk_fails)
{
	struct kvmm_block_ref refs[8];
	uint64_t outs;
	int i, ret;

	ret = slow_pool(self, LOW, HIGH, 0);
	if (ret == -ENODEV)
		SKIP(return, "no null_blk");
	ASSERT_EQ(0, ret);
	ASSERT_EQ(0, kt_nullb_fail(true));
	ASSERT_EQ(0, kt_store_each(&self->t, 1, FRAMES, self->refs));
	for (i = 0; i < 6000 && !(kt_stat_of(&self->t).degraded &&
				  !kt_stat_of(&self->t).blocks[KVMM_WRITING]); i++)
		kt_sleep_ms(10);
	ASSERT_EQ(1, kt_stat_of(&self->t).degraded);
	outs = kt_stat_of(&self->t).write_errors;
	EXPECT_GE(DEPTH, outs);
	EXPECT_EQ(0, kt_stat_of(&self->t).clean_outs);
	EXPECT_EQ(FRAMES, kt_stat_of(&self->t).blocks[KVMM_RESIDENT]);
	/* as without an area: blocks are lost to make room */
	ASSERT_EQ(0, kt_alloc(&self->t, refs, 8));
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, 8, NULL));
	EXPECT_EQ(8, kt_stat_of(&self->t).purged);
	ASSERT_EQ(0, kt_store_each(&self->t, 100, 8, refs));
	EXPECT_EQ(outs, kt_stat_of(&self->t).write_errors);
	/* a new area, and it goes on */
	ASSERT_EQ(0, kt_nullb_fail(false));
	ASSERT_EQ(0, kt_detach(&self->t, 0));
	ASSERT_EQ(0, kt_attach(&self->t, self->area, 0, 0, 0, NULL));
	EXPECT_TRUE(comes_to(&self->t, FRAMES * HIGH / 1000));
	EXPECT_EQ(8, kt_load_all(&self->t, 100, 8));
}

/* Ended with writes in flight. */
TEST_F(writeback, pool_ends)
{
	int ret;

	ret = slow_pool(self, 900, 1000, 50000);
	if (ret == -ENODEV)
		SKIP(return, "no null_blk");
	ASSERT_EQ(0, ret);
	ASSERT_EQ(0, kt_store_each(&self->t, 1, FRAMES, self->refs));
	ASSERT_EQ(0, kt_destroy(POOL, KVMM_POOL_FORCE));
	EXPECT_EQ(-ENODEV, kt_alloc(&self->t, self->refs, 1));
	kt_close(&self->t);
}

TEST_F(writeback, area_ends)
{
	int ret;

	ret = slow_pool(self, 900, 1000, 50000);
	if (ret == -ENODEV)
		SKIP(return, "no null_blk");
	ASSERT_EQ(0, ret);
	ASSERT_EQ(0, kt_store_each(&self->t, 1, FRAMES, self->refs));
	ASSERT_EQ(0, kt_detach(&self->t, 0));
	EXPECT_EQ(FRAMES, kt_stat_of(&self->t).blocks[KVMM_RESIDENT]);
	EXPECT_EQ(FRAMES, kt_load_all(&self->t, 1, FRAMES));
}

/* ---- a frozen file system ---- */

static int thaw(int dir)
{
	return ioctl(dir, FITHAW, 0) ? -errno : 0;
}

static int thaw_later(void *arg)
{
	kt_sleep_ms(60000);
	return thaw(*(int *)arg);
}

TEST_F(writeback, frozen)
{
	int dir = open(kt_disk_dir(), O_RDONLY | O_DIRECTORY);
	pid_t rescue;

	ASSERT_LE(0, dir);
	ASSERT_EQ(0, make(self, LOW, HIGH, SLOTS));
	ASSERT_EQ(0, ioctl(dir, FIFREEZE, 0));
	rescue = kt_spawn(thaw_later, &dir);
	EXPECT_EQ(0, kt_store_each(&self->t, 1, FRAMES, self->refs));
	kt_sleep_ms(50);
	EXPECT_EQ(0, kt_stat_of(&self->t).swap_outs);
	EXPECT_EQ(0, kt_stat_of(&self->t).degraded);
	EXPECT_EQ(0, thaw(dir));
	/* any command that may want it tells it to look again */
	EXPECT_EQ(0, kt_pin1(&self->t, self->refs[0].handle));
	EXPECT_EQ(0, kt_unpin1(&self->t, self->refs[0].handle));
	EXPECT_TRUE(comes_to(&self->t, FRAMES * HIGH / 1000));
	kill(rescue, SIGKILL);
	kt_reap(rescue);
	close(dir);
}

/* ---- everything at once ---- */

#define THREADS	3
#define ROUNDS	60

static struct worker {
	struct kt t;
	uint64_t id;
	int ret;
	pthread_t thread;
} workers[THREADS];

/* Stores, finds, swaps: a block is right or a miss. */
static void *work(void *arg)
{
	struct worker *w = arg;
	struct kvmm_block_ref refs[8];
	int i, ret = 0;

	for (i = 0; i < ROUNDS && ret >= 0; i++) {
		uint64_t id = w->id + i * 8;

		ret = kt_alloc_wait(&w->t, refs, 8, 60000, NULL);
		if (ret)
			break;
		ret = kt_batch(&w->t, KVMM_UNPIN, refs, 8, NULL);
		ret = ret ? ret : kt_store(&w->t, id, 8, refs);
		/* another one was faster */
		if (ret == -EAGAIN)
			continue;
		if (ret)
			break;
		if (i % 3 == 0)
			kt_swap(&w->t, KVMM_SWAP_OUT, refs, 8, i % 2);
		ret = kt_load_all(&w->t, i > 4 ? id - 32 : w->id, 8);
		if (ret == -EAGAIN || ret == -ENOSPC)
			ret = 0;
	}
	w->ret = ret < 0 && ret != -EAGAIN ? ret : 0;
	return NULL;
}

TEST_F(writeback, all_at_once)
{
	int i;

	ASSERT_EQ(0, make(self, LOW, HIGH, 96));
	for (i = 0; i < THREADS; i++) {
		workers[i].id = 1 + i * 100000;
		ASSERT_EQ(0, kt_join(&workers[i].t, POOL, 0));
	}
	for (i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_create(&workers[i].thread, NULL, work,
					    &workers[i]));
	for (i = 0; i < 20; i++) {
		set("clean_low", i % 4 ? "250" : "0");
		kt_reclaim(&self->t, FRAMES / 2, NULL);
		kt_sleep_ms(20);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		EXPECT_EQ(0, workers[i].ret);
		kt_close(&workers[i].t);
	}
	EXPECT_EQ(0, kt_stat_of(&self->t).checksum_errors);
	EXPECT_EQ(0, kt_stat_of(&self->t).read_errors);
}

KT_MAIN
