// SPDX-License-Identifier: MIT
/*
 * Memory errors: a frame that one has struck is not handed out, not written to
 * the area, and its block is a miss.  The errors are the kernel's own simulated
 * ones; what it says about them is expected.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

#include "kt_export.h"
#include "kt_harness.h"
#include "kt_poison.h"

#define FRAMES	64			/* of 64 KiB: two huge pages */
#define AREA	"poison-area"
#define HUGE	(2 << 20)

#ifndef MADV_HWPOISON
#define MADV_HWPOISON	100
#endif

FIXTURE(hwpoison) {
	struct kt t;
	struct kvmm_pool_stat st;
	struct kvmm_block_ref refs[FRAMES + 1];
};

FIXTURE_SETUP(hwpoison)
{
	kt_wipe();
	self->t.fd = -1;
}

FIXTURE_TEARDOWN(hwpoison)
{
	if (self->t.fd >= 0) {
		KT_CONSISTENT(&self->t);
		KT_FINISH(&self->t);
	}
	kt_area_unlink(AREA);
}

struct victim {
	struct kt *t;
	uint32_t frame;
};

static void told(int sig)
{
	(void)sig;
}

/*
 * In a process of its own: who has the page mapped may be told by a signal, and
 * is since 6.11, where a huge page can't be split.
 */
static int strike(void *arg)
{
	struct victim *v = arg;
	unsigned char *at = v->t->arena + (size_t)v->frame * v->t->block_size;
	struct sigaction act = { .sa_handler = told };

	sigaction(SIGBUS, &act, NULL);
	*(volatile unsigned char *)at;
	/* the page can't be taken away, which is no failure of the mark */
	if (madvise(at, 4096, MADV_HWPOISON) && errno != EBUSY &&
	    errno != EHWPOISON && errno != EIO)
		return -errno;
	return 0;
}

static int poison(struct kt *t, uint32_t frame)
{
	struct victim v = { t, frame };

	return kt_child(strike, &v);
}

static int attach(struct kt *t, uint32_t slots)
{
	int fd = kt_area_file(AREA, KT_BLOCK, slots);
	int ret = fd < 0 ? fd : kt_attach(t, fd, slots, 0, 0, NULL);

	if (fd >= 0)
		close(fd);
	return ret;
}

#define POISON(frame) do {						\
	int ret_ = poison(&self->t, frame);				\
									\
	if (ret_ == -EINVAL)						\
		SKIP(return, "no memory errors in this kernel");	\
	ASSERT_EQ(0, ret_);						\
} while (0)

/* Every frame can be had once, but for @bad. */
static void all_but(struct __test_metadata *_metadata,
		    FIXTURE_DATA(hwpoison) *self, uint32_t frames, uint32_t bad)
{
	uint32_t done = 0, i;
	int round;

	for (round = 0; round < 2; round++) {
		EXPECT_EQ(-ENOSPC, kt_alloc_wait(&self->t, self->refs, frames,
						 0, &done));
		EXPECT_EQ(frames - 1, done);
		for (i = 0; i < done; i++)
			EXPECT_NE(bad, self->refs[i].frame);
		ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, self->refs, done,
				      NULL));
	}
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(1, self->st.frames_poisoned);
	EXPECT_EQ(frames - 1, self->st.frames_online);
	EXPECT_EQ(frames - 1, self->st.frames_free);
	/* nor does populating bring it back */
	EXPECT_EQ(0, kt_populate(&self->t, 0, frames, NULL));
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(frames - 1, self->st.frames_online);
}

TEST_F(hwpoison, not_handed_out)
{
	char value[32];

	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, 0));
	POISON(5);
	all_but(_metadata, self, FRAMES, 5);
	{
		char path[128];

		snprintf(path, sizeof(path), KT_SYSFS
			 "/pools/%s/frames_poisoned", self->t.name);
		EXPECT_EQ(0, kt_file_get(path, value, sizeof(value)));
		EXPECT_STREQ("1", value);
	}
}

/* Pages that are not huge: the kernel takes them from who has them mapped. */
TEST_F(hwpoison, small_pages)
{
	ASSERT_EQ(0, kt_create(&self->t, 4096, 16, 0));
	POISON(7);
	all_but(_metadata, self, 16, 7);
}

/* The last page of a large frame. */
TEST_F(hwpoison, anywhere_in_a_frame)
{
	struct kt t = {};

	ASSERT_EQ(0, kt_create(&self->t, 1 << 20, 4, 0));
	t = self->t;
	t.arena += (1 << 20) - 4096;
	{
		struct victim v = { &t, 2 };
		int ret = kt_child(strike, &v);

		if (ret == -EINVAL)
			SKIP(return, "no memory errors in this kernel");
		ASSERT_EQ(0, ret);
	}
	all_but(_metadata, self, 4, 2);
}

TEST_F(hwpoison, not_written)
{
	uint32_t bad;
	int fd, i;

	if (!kt_disk_dir())
		SKIP(return, "no disk to test on");
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, 16));
	fd = kt_area_file(AREA, KT_BLOCK, 16);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, kt_attach(&self->t, fd, 16, 0, 0, NULL));
	close(fd);
	ASSERT_EQ(0, kt_store(&self->t, 1, 8, self->refs));
	/* one is in its slot already, and its frame breaks, too */
	ASSERT_EQ(0, kt_swap1(&self->t, KVMM_SWAP_OUT, self->refs[6].handle,
			      0));
	bad = self->refs[3].frame;
	POISON(bad);
	EXPECT_EQ(7, kt_swap(&self->t, KVMM_SWAP_OUT, self->refs, 8,
			     KVMM_SWAP_DROP));
	for (i = 0; i < 8; i++)
		EXPECT_EQ(i == 3 ? -ESTALE : 0, self->refs[i].result);
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(7 * KT_BLOCK, self->st.swap_out_bytes);
	EXPECT_EQ(0, self->st.degraded);
	EXPECT_EQ(0, self->st.write_errors);
	EXPECT_EQ(9, self->st.slots_free);
	EXPECT_EQ(1, self->st.frames_poisoned);
	/* a miss, and the others are as they were */
	EXPECT_EQ(KVMM_MISS, kt_where1(&self->t, 4, NULL));
	EXPECT_EQ(3, kt_load_all(&self->t, 1, 3));
	EXPECT_EQ(4, kt_load_all(&self->t, 5, 4));
	/* its key can be had again, in another frame */
	ASSERT_EQ(0, kt_store(&self->t, 4, 1, self->refs));
	EXPECT_NE(bad, self->refs[0].frame);
	EXPECT_EQ(1, kt_load(&self->t, 4));
	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
}

/* Nobody has come upon it yet: it must not go to the system as if it were good. */
TEST_F(hwpoison, not_given_back)
{
	struct kvmm_pool_create spec =
		kt_elastic_spec("poisoned", KT_BLOCK, 4, 2, 0);
	uint32_t unit = spec.nr_frames / 4;

	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
	POISON(3 * unit + 5);
	ASSERT_EQ(0, kt_squeeze());
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(unit, self->st.given_back);
	EXPECT_EQ(3 * unit, self->st.frames_online);
}

/* ---- hits ---- */

/* Looked up, pinned or swapped in: what is in a struck frame is never had. */
TEST_F(hwpoison, no_hit)
{
	struct kvmm_block_ref refs[4] = {};
	int i;

	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, 0));
	ASSERT_EQ(0, kt_store(&self->t, 1, 4, self->refs));
	EXPECT_EQ(4, kt_load_all(&self->t, 1, 4));
	POISON(self->refs[1].frame);
	EXPECT_EQ(1, kt_lookup(&self->t, 1, 4, KVMM_LOOKUP_PIN, refs));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(i == 1 ? KVMM_MISS : KVMM_MEMORY, refs[i].result);
	refs[1] = refs[3];
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, 3, NULL));
	EXPECT_EQ(-ESTALE, kt_query1(&self->t, self->refs[1].handle));
	POISON(self->refs[2].frame);
	EXPECT_EQ(-ESTALE, kt_pin1(&self->t, self->refs[2].handle));
	POISON(self->refs[3].frame);
	EXPECT_EQ(-ESTALE, kt_swap1(&self->t, KVMM_SWAP_IN,
				    self->refs[3].handle, KVMM_SWAP_PIN));
	EXPECT_EQ(1, kt_load_all(&self->t, 1, 4));
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(3, self->st.frames_poisoned);
	EXPECT_EQ(FRAMES - 3, self->st.frames_online);
}

/* One that is in its slot as well is a hit there. */
TEST_F(hwpoison, hit_in_area)
{
	uint32_t bad[3];
	int i;

	if (!kt_disk_dir())
		SKIP(return, "no disk to test on");
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, 16));
	ASSERT_EQ(0, attach(&self->t, 16));
	ASSERT_EQ(0, kt_store(&self->t, 1, 4, self->refs));
	ASSERT_EQ(4, kt_swap(&self->t, KVMM_SWAP_OUT, self->refs, 4, 0));
	for (i = 0; i < 3; i++) {
		bad[i] = self->refs[i].frame;
		POISON(bad[i]);
	}
	EXPECT_EQ(KVMM_SWAP, kt_where1(&self->t, 1, NULL));
	EXPECT_EQ(-EAGAIN, kt_pin1(&self->t, self->refs[1].handle));
	ASSERT_EQ(0, kt_swap1(&self->t, KVMM_SWAP_IN, self->refs[2].handle,
			      KVMM_SWAP_PIN));
	EXPECT_EQ(KVMM_CLEAN, kt_query1(&self->t, self->refs[2].handle));
	EXPECT_EQ(0, kt_unpin1(&self->t, self->refs[2].handle));
	EXPECT_EQ(4, kt_load_all(&self->t, 1, 4));
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(3, self->st.frames_poisoned);
	EXPECT_EQ(0, self->st.read_errors);
	ASSERT_EQ(0, kt_lookup(&self->t, 1, 4, 0, self->refs) < 0);
	for (i = 0; i < 4; i++) {
		EXPECT_NE(bad[0], self->refs[i].frame);
		EXPECT_NE(bad[1], self->refs[i].frame);
		EXPECT_NE(bad[2], self->refs[i].frame);
	}
	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
}

/* Who has it pinned keeps the pin, and nobody else gets one. */
TEST_F(hwpoison, pinned)
{
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, 0));
	ASSERT_EQ(0, kt_store(&self->t, 1, 2, self->refs));
	ASSERT_EQ(0, kt_pin1(&self->t, self->refs[0].handle));
	POISON(self->refs[0].frame);
	EXPECT_EQ(KVMM_MISS, kt_where1(&self->t, 1, NULL));
	EXPECT_EQ(-ESTALE, kt_pin1(&self->t, self->refs[0].handle));
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(FRAMES, self->st.frames_online);
	EXPECT_EQ(1, self->st.pins);
	EXPECT_EQ(0, kt_unpin1(&self->t, self->refs[0].handle));
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(FRAMES - 1, self->st.frames_online);
	EXPECT_EQ(0, self->st.pins);
}

/* ---- reading back ---- */

/* The frame that came free last is taken first, and turns out to be bad. */
TEST_F(hwpoison, read_elsewhere)
{
	uint32_t bad;

	if (!kt_disk_dir())
		SKIP(return, "no disk to test on");
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, 16));
	ASSERT_EQ(0, attach(&self->t, 16));
	ASSERT_EQ(0, kt_store(&self->t, 1, 1, self->refs));
	bad = self->refs[0].frame;
	ASSERT_EQ(0, kt_swap1(&self->t, KVMM_SWAP_OUT, self->refs[0].handle,
			      KVMM_SWAP_DROP));
	POISON(bad);
	ASSERT_EQ(1, kt_swap(&self->t, KVMM_SWAP_IN, self->refs, 1,
			     KVMM_SWAP_PIN));
	EXPECT_EQ(0, self->refs[0].result);
	EXPECT_NE(bad, self->refs[0].frame);
	EXPECT_TRUE(kt_good(&self->t, self->refs[0].frame, 1));
	EXPECT_EQ(0, kt_unpin1(&self->t, self->refs[0].handle));
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(1, self->st.frames_poisoned);
	EXPECT_EQ(1, self->st.swap_ins);
	EXPECT_EQ(0, self->st.read_errors);
	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
}

struct reader {
	struct kt *t;
	uint64_t handle;
	int ret;
};

static void *read_in(void *arg)
{
	struct reader *r = arg;

	r->ret = kt_swap1(r->t, KVMM_SWAP_IN, r->handle, KVMM_SWAP_PIN);
	return NULL;
}

/* While the disk has it: the block is there still, for who looks it up. */
TEST_F(hwpoison, while_read)
{
	struct kvmm_block_ref ref = {};
	struct reader r = { .t = &self->t };
	pthread_t thread;
	int disk = kt_dm();
	int i;

	if (disk == -ENODEV)
		SKIP(return, "the kernel has no device mapper");
	ASSERT_LE(0, disk);
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, 16));
	ASSERT_EQ(0, kt_attach(&self->t, disk, 16, 0, 0, NULL));
	ASSERT_EQ(0, kt_store(&self->t, 1, 1, self->refs));
	r.handle = self->refs[0].handle;
	ASSERT_EQ(0, kt_swap1(&self->t, KVMM_SWAP_OUT, r.handle,
			      KVMM_SWAP_DROP));
	ASSERT_EQ(0, kt_dm_hang(true));
	ASSERT_EQ(0, pthread_create(&thread, NULL, read_in, &r));
	for (i = 0; i < 10000 && ref.result != KVMM_READING; i++) {
		kt_sleep_ms(1);
		ref.handle = r.handle;
		kt_batch(&self->t, KVMM_QUERY, &ref, 1, NULL);
	}
	EXPECT_EQ(KVMM_READING, ref.result);
	i = poison(&self->t, ref.frame);
	EXPECT_EQ(0, kt_dm_hang(false));
	pthread_join(thread, NULL);
	if (i == -EINVAL) {
		kt_unpin1(&self->t, r.handle);
	} else {
		EXPECT_EQ(0, i);
		EXPECT_EQ(-ESTALE, r.ret);
		EXPECT_EQ(-ESTALE, kt_query1(&self->t, r.handle));
		EXPECT_EQ(KVMM_SWAP, kt_where1(&self->t, 1, NULL));
		EXPECT_EQ(1, kt_load(&self->t, 1));
		ASSERT_EQ(0, kt_stat(&self->t, &self->st));
		EXPECT_EQ(1, self->st.frames_poisoned);
		EXPECT_EQ(0, self->st.pins);
		EXPECT_EQ(0, self->st.read_errors);
		EXPECT_EQ(0, self->st.checksum_errors);
		EXPECT_EQ(0, self->st.degraded);
	}
	EXPECT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	close(disk);
	kt_dm_end();
}

/* ---- dma-bufs ---- */

TEST_F(hwpoison, not_exported)
{
	int fd;

	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, 0));
	POISON(5);
	fd = kt_export(&self->t, 0, 8, 0);
	if (fd == -EOPNOTSUPP)
		SKIP(return, "the kernel has no dma-buf");
	EXPECT_EQ(-EHWPOISON, fd);
	EXPECT_EQ(-EHWPOISON, kt_export(&self->t, 5, 1, KVMM_EXPORT_RDONLY));
	fd = kt_export(&self->t, 6, 8, 0);
	ASSERT_LE(0, fd);
	close(fd);
	/* retired */
	all_but(_metadata, self, FRAMES, 5);
	EXPECT_EQ(-EHWPOISON, kt_export(&self->t, 0, FRAMES, 0));
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(0, self->st.exports);
}

/* Struck when it was exported already: nobody comes upon it unawares. */
TEST_F(hwpoison, exported)
{
	unsigned char *mem;
	int fd, im;

	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, 0));
	fd = kt_export(&self->t, 4, 2, 0);
	if (fd == -EOPNOTSUPP)
		SKIP(return, "the kernel has no dma-buf");
	ASSERT_LE(0, fd);
	mem = kt_buf_map(fd, 2 * KT_BLOCK, PROT_READ | PROT_WRITE);
	ASSERT_NE(NULL, mem);
	POISON(5);
	EXPECT_FALSE(kt_sigbus(mem, false));
	EXPECT_TRUE(kt_sigbus(mem + KT_BLOCK, false));
	im = kt_importer_open();
	if (im >= 0) {
		EXPECT_EQ(-EHWPOISON, kt_importer_attach(im, fd, KT_BOTH, 65536,
							 NULL, NULL));
		close(im);
	}
	munmap(mem, 2 * KT_BLOCK);
	close(fd);
}

/* ---- the end ---- */

/* The kernel would hand the bad page out with the others of a huge page. */
TEST_F(hwpoison, not_freed)
{
	long long before = kt_kept();
	int round;

	ASSERT_LE(0, before);
	for (round = 0; round < 4; round++) {
		ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, 0));
		ASSERT_EQ(0, kt_alloc(&self->t, self->refs, FRAMES));
		ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, self->refs, FRAMES,
				      NULL));
		ASSERT_EQ(0, kt_stat(&self->t, &self->st));
		EXPECT_EQ(0, self->st.frames_poisoned) {
			TH_LOG("memory with an error was handed out in round %d",
			       round);
		}
		/* two in the same one are one */
		POISON(round);
		POISON(round + 5);
		kt_close(&self->t);
		ASSERT_EQ(0, kt_destroy(self->t.name, 0));
		EXPECT_EQ((round + 1) * HUGE, kt_kept() - before);
	}
	self->t.fd = -1;
}

/* Nor when it is struck while a dma-buf alone has it. */
TEST_F(hwpoison, not_freed_later)
{
	long long before = kt_kept();
	unsigned char *mem;
	uint64_t at;
	int a, b;

	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, 0));
	a = kt_export(&self->t, 0, 8, 0);
	if (a == -EOPNOTSUPP)
		SKIP(return, "the kernel has no dma-buf");
	ASSERT_LE(0, a);
	b = kt_export(&self->t, 4, 8, 0);
	ASSERT_LE(0, b);
	mem = self->t.arena + 5 * KT_BLOCK;
	*(volatile unsigned char *)mem;
	at = kt_address(mem);
	kt_close(&self->t);
	ASSERT_EQ(0, kt_destroy(self->t.name, 0));
	self->t.fd = -1;
	if (!kt_can_strike())
		SKIP(return, "no memory errors in this kernel");
	kt_strike(at);
	EXPECT_EQ(0, kt_kept() - before);
	close(a);
	close(b);
	EXPECT_EQ(HUGE, kt_kept() - before);
}

KT_MAIN
