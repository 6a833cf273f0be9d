// SPDX-License-Identifier: MIT
/*
 * Swapping through the ioctls: what is written out and read back is the same
 * to the byte, whichever way a block went, from a file and from a disk.
 */
#include <fcntl.h>
#include <pthread.h>

#include "kt_harness.h"

#define FRAMES	16
#define SLOTS	32
#define AREA	"swap-area"

FIXTURE(swap) {
	struct kt t;
	int area;
};

FIXTURE_VARIANT(swap) {
	bool disk;		/* a block device, not a file */
	uint64_t offset;	/* in blocks */
};

FIXTURE_VARIANT_ADD(swap, file) { };
FIXTURE_VARIANT_ADD(swap, file_offset) { .offset = 3 };
FIXTURE_VARIANT_ADD(swap, disk) { .disk = true };

FIXTURE_SETUP(swap)
{
	kt_wipe();
	if (variant->disk) {
		ASSERT_NE(NULL, kt_disk_dev());
		self->area = open(kt_disk_dev(), O_RDWR | O_CLOEXEC);
	} else {
		ASSERT_NE(NULL, kt_disk_dir());
		self->area = kt_area_file(AREA, KT_BLOCK,
					  SLOTS + variant->offset);
	}
	ASSERT_LE(0, self->area);
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, SLOTS));
	ASSERT_EQ(0, kt_attach(&self->t, self->area, 0,
			       variant->offset * KT_BLOCK, 0, NULL));
}

FIXTURE_TEARDOWN(swap)
{
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	close(self->area);
	kt_area_unlink(AREA);
}

/* Overwrites every free frame, so that nothing right is left in memory. */
static int scribble(struct kt *t)
{
	struct kvmm_block_ref refs[FRAMES];
	uint32_t n = kt_stat_of(t).frames_free, i;
	int ret;

	if (!n)
		return 0;
	ret = kt_alloc(t, refs, n);
	if (ret)
		return ret;
	for (i = 0; i < n; i++)
		kt_fill(t, refs[i].frame, 0xbad + i);
	return kt_batch(t, KVMM_UNPIN, refs, n, NULL);
}

TEST_F(swap, there_and_back)
{
	struct kvmm_block_ref refs[FRAMES];
	struct kvmm_pool_stat st;
	int i;

	ASSERT_EQ(0, kt_store(&self->t, 1, FRAMES, refs));
	ASSERT_EQ(FRAMES, kt_swap(&self->t, KVMM_SWAP_OUT, refs, FRAMES,
				  KVMM_SWAP_DROP));
	for (i = 0; i < FRAMES; i++) {
		EXPECT_EQ(0, refs[i].result);
		EXPECT_EQ(KVMM_NO_FRAME, refs[i].frame);
		EXPECT_EQ(KVMM_SWAPPED, kt_query1(&self->t, refs[i].handle));
		EXPECT_EQ(KVMM_SWAP, kt_where1(&self->t, 1 + i, NULL));
	}
	st = kt_stat_of(&self->t);
	EXPECT_EQ(SLOTS, st.nr_slots);
	EXPECT_EQ(1, st.checksums);
	EXPECT_EQ(FRAMES, st.swap_outs);
	EXPECT_EQ(FRAMES * (uint64_t)KT_BLOCK, st.swap_out_bytes);
	EXPECT_EQ(FRAMES, st.blocks[KVMM_SWAPPED]);
	EXPECT_EQ(FRAMES, st.frames_free);
	EXPECT_EQ(SLOTS - FRAMES, st.slots_free);
	ASSERT_EQ(0, scribble(&self->t));

	ASSERT_EQ(FRAMES, kt_swap(&self->t, KVMM_SWAP_IN, refs, FRAMES,
				  KVMM_SWAP_PIN));
	for (i = 0; i < FRAMES; i++) {
		EXPECT_EQ(0, refs[i].result);
		EXPECT_TRUE(kt_good(&self->t, refs[i].frame, 1 + i));
		EXPECT_EQ(KVMM_CLEAN, kt_query1(&self->t, refs[i].handle));
	}
	st = kt_stat_of(&self->t);
	EXPECT_EQ(FRAMES, st.pins);
	EXPECT_EQ(FRAMES, st.swap_ins);
	EXPECT_EQ(FRAMES * (uint64_t)KT_BLOCK, st.swap_in_bytes);
	EXPECT_EQ(0, st.checksum_errors + st.read_errors + st.write_errors);
	EXPECT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, FRAMES, NULL));
	EXPECT_EQ(FRAMES, kt_load_all(&self->t, 1, FRAMES));
}

/* Many times through few slots and frames, in an order that mixes both. */
TEST_F(swap, churn)
{
	struct kvmm_block_ref refs[8];
	int round, i, hits = 0, ret;

	for (round = 0; round < 12; round++) {
		ASSERT_EQ(0, kt_reclaim(&self->t, round % 3 * 4, NULL));
		ASSERT_EQ(0, kt_store(&self->t, round * 8, 8, refs));
		for (i = 0; i < 10; i++) {
			ret = kt_load(&self->t, (i * 37 + round * 11) %
				      ((round + 1) * 8));
			if (ret == -EAGAIN || ret == -ENOSPC) {
				ASSERT_EQ(0, kt_reclaim(&self->t, 4, NULL));
				ret = 0;
			}
			ASSERT_LE(0, ret);
			hits += ret;
		}
		KT_CONSISTENT(&self->t);
	}
	EXPECT_LT(20, hits);
	EXPECT_EQ(0, kt_stat_of(&self->t).checksum_errors);
}

/* More blocks than slots: the swapped ones that are oldest are lost. */
TEST_F(swap, overflow)
{
	struct kvmm_block_ref ref;
	struct kvmm_reclaim out;
	struct kvmm_pool_stat st;
	int i;

	for (i = 1; i <= SLOTS + 8; i++) {
		ASSERT_EQ(0, kt_store(&self->t, i, 1, &ref));
		ASSERT_EQ(0, kt_reclaim(&self->t, 0, &out));
		EXPECT_EQ(0, out.in_use);
	}
	st = kt_stat_of(&self->t);
	EXPECT_EQ(SLOTS, st.blocks[KVMM_SWAPPED]);
	EXPECT_EQ(8, st.slots_evicted);
	EXPECT_EQ(0, st.slots_free);
	for (i = 1; i <= 8; i++)
		EXPECT_EQ(0, kt_load(&self->t, i));
	for (; i <= SLOTS + 8; i++) {
		EXPECT_EQ(1, kt_load(&self->t, i)) {
			TH_LOG("block %d", i);
		}
		ASSERT_EQ(0, kt_reclaim(&self->t, 4, NULL));
	}
	EXPECT_EQ(SLOTS, kt_stat_of(&self->t).hits_swap);
}

/* Out without DROP: the block is CLEAN, and its frame goes with no I/O. */
TEST_F(swap, clean)
{
	struct kvmm_block_ref refs[4];
	struct kvmm_reclaim out;
	int i;

	ASSERT_EQ(0, kt_store(&self->t, 1, 4, refs));
	ASSERT_EQ(4, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 4, 0));
	for (i = 0; i < 4; i++) {
		EXPECT_EQ(KVMM_CLEAN, kt_query1(&self->t, refs[i].handle));
		EXPECT_TRUE(kt_good(&self->t, refs[i].frame, 1 + i));
		EXPECT_EQ(KVMM_MEMORY, kt_where1(&self->t, 1 + i, NULL));
	}
	EXPECT_EQ(4, kt_stat_of(&self->t).swap_outs);
	/* done already */
	ASSERT_EQ(4, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 4, 0));
	EXPECT_EQ(4, kt_stat_of(&self->t).swap_outs);
	ASSERT_EQ(0, kt_reclaim(&self->t, 1, &out));
	EXPECT_EQ(3, out.evicted);
	EXPECT_EQ(1, out.in_use);
	EXPECT_EQ(4, kt_stat_of(&self->t).swap_outs);
	ASSERT_EQ(4, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 4,
			     KVMM_SWAP_DROP));
	EXPECT_EQ(4, kt_stat_of(&self->t).blocks[KVMM_SWAPPED]);
	ASSERT_EQ(0, scribble(&self->t));
	EXPECT_EQ(4, kt_load_all(&self->t, 1, 4));
	/* read back, it keeps its slot */
	EXPECT_EQ(4, kt_stat_of(&self->t).blocks[KVMM_CLEAN]);
	EXPECT_EQ(4, kt_stat_of(&self->t).swap_outs);
}

/* A pinned block is written, and stays where it is. */
TEST_F(swap, pinned)
{
	struct kvmm_block_ref ref, again;

	ASSERT_EQ(0, kt_store(&self->t, 1, 1, &ref));
	ASSERT_EQ(1, kt_lookup(&self->t, 1, 1, KVMM_LOOKUP_PIN, &ref));
	again = ref;
	ASSERT_EQ(1, kt_swap(&self->t, KVMM_SWAP_OUT, &again, 1,
			     KVMM_SWAP_DROP));
	EXPECT_EQ(KVMM_CLEAN, kt_query1(&self->t, ref.handle));
	EXPECT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	EXPECT_EQ(KVMM_CLEAN, kt_query1(&self->t, ref.handle));
	EXPECT_TRUE(kt_good(&self->t, ref.frame, 1));
	EXPECT_EQ(0, kt_unpin1(&self->t, ref.handle));
	EXPECT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	EXPECT_EQ(KVMM_SWAPPED, kt_query1(&self->t, ref.handle));
	/* it can't be pinned where it is */
	EXPECT_EQ(-EAGAIN, kt_pin1(&self->t, ref.handle));
	EXPECT_EQ(0, kt_swap1(&self->t, KVMM_SWAP_IN, ref.handle,
			      KVMM_SWAP_PIN));
	EXPECT_EQ(1, kt_stat_of(&self->t).pins);
	EXPECT_EQ(0, kt_swap1(&self->t, KVMM_SWAP_IN, ref.handle,
			      KVMM_SWAP_PIN));
	EXPECT_EQ(2, kt_stat_of(&self->t).pins);
	EXPECT_EQ(0, kt_unpin1(&self->t, ref.handle));
	EXPECT_EQ(0, kt_unpin1(&self->t, ref.handle));
	EXPECT_EQ(1, kt_load(&self->t, 1));
}

TEST_F(swap, refused)
{
	struct kvmm_block_ref refs[FRAMES + 1];
	struct kvmm_block_ref filling;
	struct kvmm_swap arg = { .size = sizeof(arg) };

	ASSERT_EQ(0, kt_alloc(&self->t, &filling, 1));
	EXPECT_EQ(-EBUSY, kt_swap1(&self->t, KVMM_SWAP_OUT, filling.handle,
				   0));
	EXPECT_EQ(-EBUSY, kt_swap1(&self->t, KVMM_SWAP_IN, filling.handle,
				   0));
	EXPECT_EQ(-ESTALE, kt_swap1(&self->t, KVMM_SWAP_OUT, 0x123400000001,
				    0));
	EXPECT_EQ(-ESTALE, kt_swap1(&self->t, KVMM_SWAP_IN, 0, 0));
	/* flags of the other direction */
	EXPECT_EQ(-EINVAL, kt_swap1(&self->t, KVMM_SWAP_OUT, filling.handle,
				    KVMM_SWAP_PIN));
	EXPECT_EQ(-EINVAL, kt_swap1(&self->t, KVMM_SWAP_IN, filling.handle,
				    KVMM_SWAP_DROP));
	arg.cmd.addr = filling.handle;
	arg.cmd.count = 2;
	arg.cmd.flags = KVMM_SWAP_ONE;
	EXPECT_EQ(-EINVAL, kt_ioctl(self->t.fd, KVMM_SWAP_OUT, &arg));
	EXPECT_EQ(0, kt_unpin1(&self->t, filling.handle));

	/* all frames pinned: nothing can come in */
	ASSERT_EQ(0, kt_store(&self->t, 1, 1, refs));
	ASSERT_EQ(0, kt_swap1(&self->t, KVMM_SWAP_OUT, refs[0].handle,
			      KVMM_SWAP_DROP));
	ASSERT_EQ(0, kt_alloc(&self->t, refs + 1, FRAMES));
	EXPECT_EQ(-ENOSPC, kt_swap1(&self->t, KVMM_SWAP_IN, refs[0].handle,
				    KVMM_SWAP_PIN));
	EXPECT_EQ(FRAMES, kt_stat_of(&self->t).pins);
	EXPECT_EQ(KVMM_SWAPPED, kt_query1(&self->t, refs[0].handle));
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs + 1, FRAMES, NULL));
	EXPECT_EQ(1, kt_load(&self->t, 1));
}

/* Good and bad entries in one call: each gets its own result. */
TEST_F(swap, mixed)
{
	struct kvmm_block_ref refs[4];

	ASSERT_EQ(0, kt_store(&self->t, 1, 3, refs));
	ASSERT_EQ(0, kt_alloc(&self->t, refs + 3, 1));
	ASSERT_EQ(0, kt_drop1(&self->t, refs[1].handle));
	ASSERT_EQ(2, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 4,
			     KVMM_SWAP_DROP));
	EXPECT_EQ(0, refs[0].result);
	EXPECT_EQ(-ESTALE, refs[1].result);
	EXPECT_EQ(0, refs[2].result);
	EXPECT_EQ(-EBUSY, refs[3].result);
	/* the same block twice in one call */
	refs[1] = refs[0];
	ASSERT_EQ(2, kt_swap(&self->t, KVMM_SWAP_IN, refs, 2, KVMM_SWAP_PIN));
	EXPECT_EQ(refs[0].frame, refs[1].frame);
	EXPECT_TRUE(kt_good(&self->t, refs[0].frame, 1));
	EXPECT_EQ(3, kt_stat_of(&self->t).pins);
	EXPECT_EQ(0, kt_unpin1(&self->t, refs[0].handle));
	EXPECT_EQ(0, kt_unpin1(&self->t, refs[0].handle));
	EXPECT_EQ(0, kt_unpin1(&self->t, refs[3].handle));
}

/* Of a block only its length is kept. */
TEST_F(swap, length)
{
	static const uint32_t lengths[] = { 1, 511, 512, 4095, 4097, 65535 };
	struct kvmm_publish_entry e;
	struct kvmm_block_ref refs[6];
	unsigned char *want = malloc(KT_BLOCK);
	int i;

	ASSERT_NE(NULL, want);
	ASSERT_EQ(0, kt_alloc(&self->t, refs, 6));
	for (i = 0; i < 6; i++) {
		kt_fill(&self->t, refs[i].frame, 40 + i);
		e = kt_entry(&self->t, refs[i].handle, 40 + i);
		e.length = lengths[i];
		ASSERT_EQ(0, kt_publish(&self->t, &e, 1, 0));
		ASSERT_EQ(0, e.result);
	}
	ASSERT_EQ(6, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 6,
			     KVMM_SWAP_DROP));
	ASSERT_EQ(0, scribble(&self->t));
	ASSERT_EQ(6, kt_swap(&self->t, KVMM_SWAP_IN, refs, 6, KVMM_SWAP_PIN));
	for (i = 0; i < 6; i++) {
		kt_fill_mem(want, KT_BLOCK, 40 + i);
		EXPECT_EQ(0, memcmp(want, self->t.arena +
				    (size_t)refs[i].frame * KT_BLOCK,
				    lengths[i])) {
			TH_LOG("length %u", lengths[i]);
		}
	}
	EXPECT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, 6, NULL));
	free(want);
}

struct joiner {
	struct kt *t;
	struct kvmm_block_ref refs[4];
	int ret;
};

static void *join_in(void *arg)
{
	struct joiner *j = arg;

	j->ret = kt_swap(j->t, KVMM_SWAP_IN, j->refs, 4, KVMM_SWAP_PIN);
	return NULL;
}

/* Several want the same blocks at once: each is read once, all get it. */
TEST_F(swap, joined)
{
	struct kvmm_block_ref refs[4];
	struct joiner j[6];
	pthread_t thread[6];
	unsigned int round;
	int i, k;

	ASSERT_EQ(0, kt_store(&self->t, 1, 4, refs));
	for (round = 0; round < 8; round++) {
		ASSERT_EQ(4, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 4,
				     KVMM_SWAP_DROP));
		for (i = 0; i < 6; i++) {
			j[i].t = &self->t;
			memcpy(j[i].refs, refs, sizeof(refs));
			ASSERT_EQ(0, pthread_create(&thread[i], NULL, join_in,
						    &j[i]));
		}
		for (i = 0; i < 6; i++) {
			pthread_join(thread[i], NULL);
			EXPECT_EQ(4, j[i].ret);
			for (k = 0; k < 4; k++) {
				EXPECT_EQ(0, j[i].refs[k].result);
				EXPECT_TRUE(kt_good(&self->t,
						    j[i].refs[k].frame,
						    1 + k));
			}
		}
		EXPECT_EQ(24, kt_stat_of(&self->t).pins);
		EXPECT_EQ(4 * (round + 1), kt_stat_of(&self->t).swap_ins);
		for (i = 0; i < 6; i++)
			EXPECT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, 4,
					      NULL));
	}
}

/* Dropping a swapped block frees its slot, and its bytes are never found. */
TEST_F(swap, drop)
{
	struct kvmm_block_ref refs[4];

	ASSERT_EQ(0, kt_store(&self->t, 1, 4, refs));
	ASSERT_EQ(4, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 4,
			     KVMM_SWAP_DROP));
	EXPECT_EQ(0, kt_drop1(&self->t, refs[0].handle));
	EXPECT_EQ(-ESTALE, kt_query1(&self->t, refs[0].handle));
	EXPECT_EQ(0, kt_load(&self->t, 1));
	EXPECT_EQ(SLOTS - 3, kt_stat_of(&self->t).slots_free);
	EXPECT_EQ(3, kt_load_all(&self->t, 2, 3));
}

TEST_F(swap, reset)
{
	struct kvmm_block_ref refs[4];

	ASSERT_EQ(0, kt_store(&self->t, 1, 4, refs));
	ASSERT_EQ(4, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 4,
			     KVMM_SWAP_DROP));
	ASSERT_EQ(0, kt_reset(&self->t, NULL));
	EXPECT_EQ(0, kt_load_all(&self->t, 1, 4));
	EXPECT_EQ(-ESTALE, kt_swap1(&self->t, KVMM_SWAP_IN, refs[1].handle,
				    0));
	ASSERT_EQ(0, kt_store(&self->t, 1, 4, refs));
	EXPECT_EQ(4, kt_load_all(&self->t, 1, 4));
}

TEST_F(swap, detach)
{
	struct kvmm_block_ref refs[8];
	int i;

	ASSERT_EQ(0, kt_store(&self->t, 1, 8, refs));
	ASSERT_EQ(8, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 8, 0));
	ASSERT_EQ(4, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 4,
			     KVMM_SWAP_DROP));
	EXPECT_EQ(-EBUSY, kt_detach(&self->t, 0));
	/* nothing changed */
	EXPECT_EQ(8, kt_load_all(&self->t, 1, 8));
	ASSERT_EQ(4, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 4,
			     KVMM_SWAP_DROP));
	EXPECT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	/* swapped ones are lost, those in memory are not */
	EXPECT_EQ(0, kt_load_all(&self->t, 1, 4));
	EXPECT_EQ(4, kt_load_all(&self->t, 5, 4));
	for (i = 4; i < 8; i++)
		EXPECT_EQ(KVMM_RESIDENT, kt_query1(&self->t, refs[i].handle));
	EXPECT_EQ(0, kt_stat_of(&self->t).nr_slots);
	EXPECT_EQ(-ENOENT, kt_detach(&self->t, 0));
	EXPECT_EQ(-EOPNOTSUPP, kt_swap1(&self->t, KVMM_SWAP_OUT,
					refs[5].handle, 0));
	/* and it can have an area again */
	ASSERT_EQ(0, kt_attach(&self->t, self->area, SLOTS,
			       variant->offset * KT_BLOCK, 0, NULL));
	ASSERT_EQ(4, kt_swap(&self->t, KVMM_SWAP_OUT, refs + 4, 4,
			     KVMM_SWAP_DROP));
	ASSERT_EQ(0, scribble(&self->t));
	EXPECT_EQ(4, kt_load_all(&self->t, 5, 4));
	/* with nothing swapped out, no force is needed */
	EXPECT_EQ(0, kt_detach(&self->t, 0));
	EXPECT_EQ(4, kt_load_all(&self->t, 5, 4));
}

/* The pool holds its area itself: the file may be closed, and even removed. */
TEST_F(swap, file_closed)
{
	struct kvmm_block_ref refs[FRAMES];

	close(self->area);
	kt_area_unlink(AREA);
	ASSERT_EQ(0, kt_store(&self->t, 1, FRAMES, refs));
	ASSERT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	EXPECT_EQ(FRAMES, kt_stat_of(&self->t).blocks[KVMM_SWAPPED]);
	ASSERT_EQ(0, scribble(&self->t));
	EXPECT_EQ(FRAMES, kt_load_all(&self->t, 1, FRAMES));
	self->area = -1;
}

/* Frames run out: a waiting allocation gets those that are written out. */
TEST_F(swap, alloc_waits)
{
	struct kvmm_block_ref refs[FRAMES];
	uint32_t done;
	int ret;

	ASSERT_EQ(0, kt_store(&self->t, 1, FRAMES, refs));
	ret = kt_alloc_wait(&self->t, refs, 8, 0, &done);
	EXPECT_TRUE(!ret || ret == -EAGAIN) {
		TH_LOG("%d", ret);
	}
	if (done)
		ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, done, NULL));
	ASSERT_EQ(0, kt_alloc_wait(&self->t, refs, 8, 30000, &done));
	EXPECT_EQ(8, done);
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, 8, NULL));
	/* what made room is in the area */
	EXPECT_EQ(0, kt_stat_of(&self->t).purged);
	EXPECT_EQ(FRAMES, kt_load_all(&self->t, 1, FRAMES));
}

KT_MAIN
