// SPDX-License-Identifier: MIT
/*
 * Swapping through io_uring: 64 commands in flight on every kind of ring, one
 * block or many a command, linked commands, and what a bad command gives.
 */
#include <fcntl.h>
#include <signal.h>

#include "kt_harness.h"
#include "kt_ring.h"

#define FRAMES	64
#define SLOTS	96
#define DEPTH	64
#define AREA	"ring-area"

FIXTURE(uring) {
	struct kt t;
	struct kt_ring r;
	int area;
};

FIXTURE_VARIANT(uring) {
	unsigned int setup;	/* IORING_SETUP_* */
	unsigned int sqe;	/* IOSQE_* */
	bool fixed;		/* registered file */
	bool disk;		/* area on a block device */
};

FIXTURE_VARIANT_ADD(uring, plain) { };
FIXTURE_VARIANT_ADD(uring, disk) { .disk = true };
FIXTURE_VARIANT_ADD(uring, fixed) { .fixed = true };
FIXTURE_VARIANT_ADD(uring, sqpoll) { .setup = IORING_SETUP_SQPOLL };
FIXTURE_VARIANT_ADD(uring, defer) {
	.setup = IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SINGLE_ISSUER,
};
FIXTURE_VARIANT_ADD(uring, coop) {
	.setup = IORING_SETUP_COOP_TASKRUN, .fixed = true,
};
FIXTURE_VARIANT_ADD(uring, sqe128) { .setup = IORING_SETUP_SQE128 };
FIXTURE_VARIANT_ADD(uring, io_wq) { .sqe = IOSQE_ASYNC };

FIXTURE_SETUP(uring)
{
	kt_wipe();
	if (variant->disk) {
		ASSERT_NE(NULL, kt_disk_dev());
		self->area = open(kt_disk_dev(), O_RDWR | O_CLOEXEC);
	} else {
		ASSERT_NE(NULL, kt_disk_dir());
		self->area = kt_area_file(AREA, KT_BLOCK, SLOTS);
	}
	ASSERT_LE(0, self->area);
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, SLOTS));
	ASSERT_EQ(0, kt_attach(&self->t, self->area, 0, 0, 0, NULL));
	ASSERT_EQ(0, kt_ring_init(&self->r, &self->t, DEPTH * 2,
				  variant->setup, variant->fixed));
	self->r.sqe_flags |= variant->sqe;
}

FIXTURE_TEARDOWN(uring)
{
	kt_ring_exit(&self->r);
	EXPECT_EQ(0, kt_wait_unpinned(&self->t));
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	close(self->area);
	kt_area_unlink(AREA);
}

/* Overwrites all free frames. */
static int scribble(struct kt *t)
{
	struct kvmm_block_ref refs[FRAMES];
	uint32_t n = kt_stat_of(t).frames_free, i;
	int ret = n ? kt_alloc(t, refs, n) : 0;

	for (i = 0; i < n && !ret; i++)
		kt_fill(t, refs[i].frame, 0xbad + i);
	return ret || !n ? ret : kt_batch(t, KVMM_UNPIN, refs, n, NULL);
}

TEST_F(uring, in_flight_64)
{
	struct kvmm_block_ref refs[DEPTH], found[DEPTH];
	bool seen[DEPTH];
	uint64_t data;
	int round, i;

	ASSERT_EQ(0, kt_store(&self->t, 1, DEPTH, refs));
	for (round = 0; round < 2; round++) {
		for (i = 0; i < DEPTH; i++) {
			ASSERT_EQ(0, kt_ring_one(&self->r, KVMM_URING_SWAP_OUT,
						 refs[i].handle,
						 KVMM_SWAP_DROP, i));
		}
		ASSERT_EQ(DEPTH, kt_ring_submit(&self->r));
		memset(seen, 0, sizeof(seen));
		for (i = 0; i < DEPTH; i++) {
			EXPECT_EQ(1, kt_ring_wait(&self->r, &data));
			ASSERT_GT(DEPTH, data);
			EXPECT_FALSE(seen[data]);
			seen[data] = true;
		}
		EXPECT_EQ(DEPTH, kt_stat_of(&self->t).blocks[KVMM_SWAPPED]);
		ASSERT_EQ(0, scribble(&self->t));

		for (i = 0; i < DEPTH; i++) {
			ASSERT_EQ(0, kt_ring_one(&self->r, KVMM_URING_SWAP_IN,
						 refs[i].handle,
						 KVMM_SWAP_PIN, i));
		}
		ASSERT_EQ(DEPTH, kt_ring_submit(&self->r));
		for (i = 0; i < DEPTH; i++) {
			EXPECT_EQ(1, kt_ring_wait(&self->r, &data));
			/* the frame is there when the completion is */
			ASSERT_GT(DEPTH, data);
			found[data] = refs[data];
			ASSERT_EQ(0, kt_batch(&self->t, KVMM_QUERY,
					      &found[data], 1, NULL));
			EXPECT_EQ(KVMM_CLEAN, found[data].result);
			EXPECT_TRUE(kt_good(&self->t, found[data].frame,
					    1 + data));
		}
		EXPECT_EQ(DEPTH, kt_stat_of(&self->t).pins);
		ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, DEPTH,
				      NULL));
	}
	EXPECT_EQ(0, kt_stat_of(&self->t).checksum_errors);
}

/* Many blocks in one command, and several such at once. */
TEST_F(uring, arrays)
{
	struct kvmm_block_ref refs[FRAMES];
	struct kvmm_swap_cmd cmd = {
		.addr = (uintptr_t)refs, .count = FRAMES,
		.flags = KVMM_SWAP_DROP,
	};
	int i;

	ASSERT_EQ(0, kt_store(&self->t, 1, FRAMES, refs));
	EXPECT_EQ(FRAMES, kt_ring_do(&self->r, KVMM_URING_SWAP_OUT, &cmd));
	EXPECT_EQ(FRAMES, kt_stat_of(&self->t).blocks[KVMM_SWAPPED]);
	ASSERT_EQ(0, scribble(&self->t));
	cmd.flags = KVMM_SWAP_PIN;
	cmd.count = FRAMES / 4;
	for (i = 0; i < 4; i++) {
		cmd.addr = (uintptr_t)(refs + i * FRAMES / 4);
		ASSERT_NE(NULL, kt_ring_cmd(&self->r, KVMM_URING_SWAP_IN, &cmd,
					    i));
	}
	ASSERT_EQ(4, kt_ring_submit(&self->r));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(FRAMES / 4, kt_ring_wait(&self->r, NULL));
	EXPECT_EQ(FRAMES, kt_stat_of(&self->t).pins);
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, FRAMES, NULL));
	EXPECT_EQ(FRAMES, kt_load_all(&self->t, 1, FRAMES));
	/* and of those that are where they should be, nothing is moved */
	cmd = (struct kvmm_swap_cmd) { (uintptr_t)refs, FRAMES, 0 };
	EXPECT_EQ(FRAMES, kt_ring_do(&self->r, KVMM_URING_SWAP_OUT, &cmd));
	EXPECT_EQ(FRAMES, kt_stat_of(&self->t).swap_outs);
}

/* The count tells how many are well; an error only where none is. */
TEST_F(uring, partly)
{
	struct kvmm_block_ref refs[8];
	struct kvmm_swap_cmd cmd = {
		.addr = (uintptr_t)refs, .count = 8, .flags = KVMM_SWAP_DROP,
	};

	ASSERT_EQ(0, kt_store(&self->t, 1, 8, refs));
	ASSERT_EQ(0, kt_drop1(&self->t, refs[2].handle));
	ASSERT_EQ(0, kt_drop1(&self->t, refs[7].handle));
	EXPECT_EQ(6, kt_ring_do(&self->r, KVMM_URING_SWAP_OUT, &cmd));
	cmd.flags = 0;
	EXPECT_EQ(6, kt_ring_do(&self->r, KVMM_URING_SWAP_IN, &cmd));
	cmd.addr = (uintptr_t)&refs[7];
	cmd.count = 1;
	EXPECT_EQ(-ESTALE, kt_ring_do(&self->r, KVMM_URING_SWAP_IN, &cmd));
	EXPECT_EQ(-ESTALE, kt_ring_do(&self->r, KVMM_URING_SWAP_OUT, &cmd));
}

/* Out, in, out and in again, each after the one before. */
TEST_F(uring, linked)
{
	static const uint32_t op[] = { KVMM_URING_SWAP_OUT, KVMM_URING_SWAP_IN };
	struct kvmm_block_ref ref;
	struct kvmm_swap_cmd cmd = { .count = 1 };
	struct io_uring_sqe *sqe;
	uint64_t data;
	int i;

	ASSERT_EQ(0, kt_store(&self->t, 1, 1, &ref));
	cmd.addr = ref.handle;
	for (i = 0; i < 6; i++) {
		cmd.flags = KVMM_SWAP_ONE | (i % 2 ? 0 : KVMM_SWAP_DROP);
		sqe = kt_ring_cmd(&self->r, op[i % 2], &cmd, i);
		ASSERT_NE(NULL, sqe);
		sqe->flags |= i < 5 ? IOSQE_IO_LINK : 0;
	}
	ASSERT_EQ(6, kt_ring_submit(&self->r));
	for (i = 0; i < 6; i++) {
		EXPECT_EQ(1, kt_ring_wait(&self->r, &data));
		EXPECT_EQ(i, (int)data);
	}
	EXPECT_EQ(KVMM_CLEAN, kt_query1(&self->t, ref.handle));
	EXPECT_EQ(3, kt_stat_of(&self->t).swap_ins);
	EXPECT_EQ(1, kt_load(&self->t, 1));

	/* one that fails ends the chain */
	for (i = 0; i < 3; i++) {
		cmd.addr = i ? ref.handle : 0x123400000000ULL;
		cmd.flags = KVMM_SWAP_ONE;
		sqe = kt_ring_cmd(&self->r, KVMM_URING_SWAP_OUT, &cmd, i);
		ASSERT_NE(NULL, sqe);
		sqe->flags |= i < 2 ? IOSQE_IO_LINK : 0;
	}
	ASSERT_EQ(3, kt_ring_submit(&self->r));
	EXPECT_EQ(-ESTALE, kt_ring_wait(&self->r, NULL));
	EXPECT_EQ(-ECANCELED, kt_ring_wait(&self->r, NULL));
	EXPECT_EQ(-ECANCELED, kt_ring_wait(&self->r, NULL));
}

TEST_F(uring, refused)
{
	struct kvmm_block_ref refs[2];
	struct kvmm_swap_cmd good = {
		.addr = (uintptr_t)refs, .count = 2,
	}, cmd;

	ASSERT_EQ(0, kt_store(&self->t, 1, 1, refs));
	ASSERT_EQ(0, kt_alloc(&self->t, refs + 1, 1));
#define GIVES(must, op, change) do {					\
	cmd = good;							\
	change;								\
	EXPECT_EQ(must, kt_ring_do(&self->r, op, &cmd)) {		\
		TH_LOG("%s %s", #op, #change);				\
	}								\
} while (0)
	GIVES(-ENOTTY, 0, (void)0);
	GIVES(-ENOTTY, 3, (void)0);
	GIVES(-ENOTTY, KVMM_SWAP_OUT, (void)0);
	GIVES(-EINVAL, KVMM_URING_SWAP_OUT, cmd.count = 0);
	GIVES(-EINVAL, KVMM_URING_SWAP_OUT, cmd.count = KVMM_MAX_BATCH + 1);
	GIVES(-EINVAL, KVMM_URING_SWAP_OUT, cmd.flags = 1 << 5);
	GIVES(-EINVAL, KVMM_URING_SWAP_OUT, cmd.flags = KVMM_SWAP_PIN);
	GIVES(-EINVAL, KVMM_URING_SWAP_IN, cmd.flags = KVMM_SWAP_DROP);
	GIVES(-EINVAL, KVMM_URING_SWAP_IN, cmd.flags = KVMM_SWAP_ONE);
	GIVES(-EFAULT, KVMM_URING_SWAP_IN, cmd.addr = 0);
	GIVES(-EFAULT, KVMM_URING_SWAP_IN, cmd.addr = -4096UL);
	GIVES(1, KVMM_URING_SWAP_OUT, (void)0);
	GIVES(-EBUSY, KVMM_URING_SWAP_OUT,
	      (cmd.addr = (uintptr_t)&refs[1], cmd.count = 1));
	EXPECT_EQ(0, kt_unpin1(&self->t, refs[1].handle));
	EXPECT_EQ(1, kt_load(&self->t, 1));
}

/* With the wrong kind of client, or none. */
TEST_F(uring, clients)
{
	struct kvmm_block_ref ref;
	struct kt u = { .fd = kt_dev(O_RDWR) };
	struct kt_ring r;

	ASSERT_EQ(0, kt_store(&self->t, 1, 1, &ref));
	ASSERT_LE(0, u.fd);
	ASSERT_EQ(0, kt_ring_init(&r, &u, 4, 0, false));
	EXPECT_EQ(-ENOTCONN, kt_ring_do1(&r, KVMM_URING_SWAP_OUT, ref.handle,
					 0));
	kt_close(&u);
	ASSERT_EQ(0, kt_join(&u, self->t.name, KVMM_POOL_RDONLY));
	r.fd = u.fd;
	EXPECT_EQ(-EACCES, kt_ring_do1(&r, KVMM_URING_SWAP_OUT, ref.handle,
				       0));
	EXPECT_EQ(1, kt_ring_do1(&self->r, KVMM_URING_SWAP_OUT, ref.handle,
				 KVMM_SWAP_DROP));
	EXPECT_EQ(1, kt_ring_do1(&r, KVMM_URING_SWAP_IN, ref.handle,
				 KVMM_SWAP_PIN));
	/* the pin is that of the client whose file it was */
	EXPECT_EQ(-EINVAL, kt_unpin1(&self->t, ref.handle));
	kt_close(&u);
	kt_ring_exit(&r);
	EXPECT_EQ(0, kt_wait_unpinned(&self->t));

	ASSERT_EQ(0, kt_swap1(&self->t, KVMM_SWAP_OUT, ref.handle,
			      KVMM_SWAP_DROP));
	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	ASSERT_EQ(0, kt_store(&self->t, 2, 1, &ref));
	EXPECT_EQ(-EOPNOTSUPP, kt_ring_do1(&self->r, KVMM_URING_SWAP_OUT,
					   ref.handle, 0));
	EXPECT_EQ(1, kt_ring_do1(&self->r, KVMM_URING_SWAP_IN, ref.handle,
				 0));
}

TEST_F(uring, destroyed)
{
	struct kvmm_block_ref ref;

	ASSERT_EQ(0, kt_store(&self->t, 1, 1, &ref));
	ASSERT_EQ(0, kt_destroy(self->t.name, KVMM_POOL_FORCE));
	EXPECT_EQ(-ENODEV, kt_ring_do1(&self->r, KVMM_URING_SWAP_OUT,
				       ref.handle, 0));
	kt_close(&self->t);
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, 4, 0));
}

KT_MAIN
