// SPDX-License-Identifier: MIT
/*
 * Swap ioctls for many blocks, on a disk that takes its time: how much of them
 * is in flight, who is killed in one, and memory for the results that goes.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "kt_harness.h"

#define N	160
#define LIMIT	64		/* blocks that one ioctl has in flight */

FIXTURE(sync) {
	struct kt t;
	int disk;
	struct kvmm_block_ref refs[N];
	struct kvmm_block_ref *gone;
	int ret;
};

FIXTURE_SETUP(sync)
{
	struct kvmm_pool_create spec = kt_spec("sync", KT_BLOCK, N, N);
	int ret;

	kt_wipe();
	ret = kt_create_slow(&self->t, &spec, &self->disk);
	if (ret == -ENODEV)
		SKIP(_exit(255), "the kernel has no null_blk");
	ASSERT_EQ(0, ret);
	ASSERT_EQ(0, kt_store(&self->t, 1, N, self->refs));
}

FIXTURE_TEARDOWN(sync)
{
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	close(self->disk);
	kt_nullb_end();
}

static int all_of_many(void *arg)
{
	FIXTURE_DATA(sync) *self = arg;

	return kt_swap(&self->t, KVMM_SWAP_OUT, self->refs, N,
		       KVMM_SWAP_DROP) == N ? 0 : -EIO;
}

/* One ioctl for many blocks always has some in flight, and never too many. */
TEST_F(sync, many)
{
	uint64_t now, most = 0;
	pid_t pid;

	pid = kt_spawn(all_of_many, self);
	ASSERT_LT(0, pid);
	do {
		now = kt_moving(&self->t);
		if (most < now)
			most = now;
		kt_sleep_ms(1);
	} while (kt_stat_of(&self->t).blocks[KVMM_SWAPPED] < N / 2);
	EXPECT_EQ(0, kt_reap(pid));
	EXPECT_LT(LIMIT / 2, most);
	EXPECT_GE(LIMIT, most);
	EXPECT_EQ(N, kt_stat_of(&self->t).blocks[KVMM_SWAPPED]);
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
}

/* Who is killed in it leaves what has not begun where it is. */
TEST_F(sync, many_killed)
{
	struct kvmm_pool_stat st;
	pid_t pid;

	pid = kt_spawn(all_of_many, self);
	ASSERT_LT(0, pid);
	while (!kt_moving(&self->t))
		kt_sleep_ms(1);
	ASSERT_EQ(0, kill(pid, SIGKILL));
	EXPECT_EQ(-ECHILD, kt_reap(pid));
	st = kt_stat_of(&self->t);
	EXPECT_EQ(0, kt_moving(&self->t));
	EXPECT_LT(0, st.blocks[KVMM_SWAPPED]);
	EXPECT_GE(LIMIT + LIMIT / 2, st.blocks[KVMM_SWAPPED]);
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
}

static void *load_into(void *arg)
{
	FIXTURE_DATA(sync) *self = arg;

	self->ret = kt_swap(&self->t, KVMM_SWAP_IN, self->gone, N,
			    KVMM_SWAP_PIN);
	return NULL;
}

/* Memory for the results that goes meanwhile: no pin is left untold. */
TEST_F(sync, refs_gone)
{
	pthread_t thread;

	ASSERT_EQ(N, kt_swap(&self->t, KVMM_SWAP_OUT, self->refs, N,
			     KVMM_SWAP_DROP));
	self->gone = mmap(NULL, N * sizeof(*self->gone), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)self->gone);
	memcpy(self->gone, self->refs, N * sizeof(*self->gone));
	ASSERT_EQ(0, pthread_create(&thread, NULL, load_into, self));
	while (!kt_moving(&self->t))
		kt_sleep_ms(1);
	ASSERT_EQ(0, munmap(self->gone, N * sizeof(*self->gone)));
	pthread_join(thread, NULL);
	EXPECT_EQ(-EFAULT, self->ret);
	EXPECT_EQ(0, kt_stat_of(&self->t).pins);
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
}

static void *load_one(void *arg)
{
	FIXTURE_DATA(sync) *self = arg;

	self->ret = kt_ioctl(self->t.fd, KVMM_SWAP_IN, self->gone);
	return NULL;
}

/* The same for one block, whose result is in the command itself. */
TEST_F(sync, command_gone)
{
	struct kvmm_swap arg = {
		.size = sizeof(arg),
		.cmd = {
			.addr = self->refs[0].handle,
			.count = 1,
			.flags = KVMM_SWAP_ONE | KVMM_SWAP_PIN,
		},
	};
	pthread_t thread;

	ASSERT_EQ(0, kt_swap1(&self->t, KVMM_SWAP_OUT, self->refs[0].handle,
			      KVMM_SWAP_DROP));
	self->gone = mmap(NULL, sizeof(arg), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)self->gone);
	memcpy(self->gone, &arg, sizeof(arg));
	ASSERT_EQ(0, pthread_create(&thread, NULL, load_one, self));
	while (!kt_moving(&self->t))
		kt_sleep_ms(1);
	ASSERT_EQ(0, munmap(self->gone, sizeof(arg)));
	pthread_join(thread, NULL);
	EXPECT_EQ(-EFAULT, self->ret);
	EXPECT_EQ(0, kt_stat_of(&self->t).pins);
	EXPECT_EQ(1, kt_load_all(&self->t, 1, 1));
}

KT_MAIN
