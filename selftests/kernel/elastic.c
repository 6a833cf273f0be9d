// SPDX-License-Identifier: MIT
/*
 * Elastic pools: when the system wants memory the last frames give theirs back,
 * those of blocks that can do without; nothing else is lost, and it can be
 * taken again.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "kt_harness.h"

#define UNITS	4			/* of 2 MiB: one stays, three may go */
#define ELASTIC	3
#define UNIT	(KT_UNIT / KT_BLOCK)
#define FRAMES	(UNITS * UNIT)
#define AREA	"elastic-area"

FIXTURE(elastic) {
	struct kt t;
	int area;
	long pressure;
	struct kvmm_pool_stat st;
};

FIXTURE_SETUP(elastic)
{
	struct kvmm_pool_create spec =
		kt_elastic_spec("elastic", KT_BLOCK, UNITS, ELASTIC, 2 * FRAMES);

	kt_wipe();
	self->area = -1;
	self->pressure = kt_pressure_ms(600000);
	ASSERT_LE(0, self->pressure);
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
}

FIXTURE_TEARDOWN(elastic)
{
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	if (self->area >= 0) {
		close(self->area);
		kt_area_unlink(AREA);
	}
	EXPECT_LE(0, kt_pressure_ms(self->pressure));
}

#define STAT() ASSERT_EQ(0, kt_stat(&self->t, &self->st))

static int attach(FIXTURE_DATA(elastic) *self)
{
	self->area = kt_area_file(AREA, KT_BLOCK, 2 * FRAMES);
	return self->area < 0 ? self->area :
		kt_attach(&self->t, self->area, 0, 0, 0, NULL);
}

/* Does all of the unit have memory (1), or nothing of it (0); else -1. */
static int mapped(struct kt *t, uint32_t unit)
{
	unsigned char *mem = t->arena + (size_t)unit * KT_UNIT;
	int bus = 0, n = 0, at;

	for (at = 0; at < (int)KT_UNIT; at += 65536 - 4096, n++)
		bus += kt_sigbus(mem + at, false);
	if (bus == n)
		return kt_sigbus(mem + KT_UNIT / 2, true) ? 0 : -1;
	return bus ? -1 : 1;
}

TEST_F(elastic, what_it_is)
{
	struct kvmm_pool_open arg = { .size = sizeof(arg), .name = "elastic" };
	struct kvmm_info info;
	int fd;

	STAT();
	EXPECT_EQ(ELASTIC * UNIT, self->st.nr_elastic);
	EXPECT_EQ(UNIT, self->st.chunk_frames);
	EXPECT_EQ(FRAMES, self->st.frames_online);
	ASSERT_EQ(0, kt_info(&info));
	EXPECT_NE(0, info.features & KVMM_FEATURE_ELASTIC);
	fd = kt_dev(O_RDONLY);
	EXPECT_EQ(0, kt_ioctl(fd, KVMM_POOL_OPEN, &arg));
	EXPECT_EQ(ELASTIC * UNIT, arg.nr_elastic);
	EXPECT_EQ(UNIT, arg.chunk_frames);
	close(fd);
}

TEST_F(elastic, geometry)
{
	static const struct {
		uint32_t block_size, frames, elastic, chunk;
		int ret;
		uint32_t got;
	} c[] = {
		{ 65536, 64, 0, 0, 0, 64 },
		{ 65536, 64, 0, 32, 0, 32 },
		{ 65536, 64, 32, 0, 0, 32 },
		{ 65536, 64, 64, 0, 0, 64 },
		{ 65536, 64, 64, 64, 0, 64 },
		{ 65536, 65, 32, 0, -EINVAL, 0 },	/* not whole chunks */
		{ 65536, 64, 33, 0, -EINVAL, 0 },
		{ 65536, 64, 96, 0, -EINVAL, 0 },	/* more than all */
		{ 65536, 64, 32, 64, -EINVAL, 0 },
		{ 65536, 64, 32, 16, -EINVAL, 0 },	/* under a huge page */
		{ 65536, 64, 0, 48, -EINVAL, 0 },	/* no power of two */
		{ 4 << 20, 3, 2, 0, 0, 1 },
		{ 4096, 1024, 512, 0, 0, 512 },
	};
	struct kvmm_pool_create spec;
	unsigned int i;
	int fd, ret;

	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		spec = kt_spec("geometry", c[i].block_size, c[i].frames, 0);
		spec.nr_elastic = c[i].elastic;
		spec.chunk_frames = c[i].chunk;
		fd = kt_dev(O_RDWR);
		ret = kt_ioctl(fd, KVMM_POOL_CREATE, &spec);
		EXPECT_EQ(c[i].ret, ret) {
			TH_LOG("case %u", i);
		}
		if (!ret) {
			EXPECT_EQ(c[i].got, spec.chunk_frames) {
				TH_LOG("case %u", i);
			}
		}
		close(fd);
		if (!ret)
			EXPECT_EQ(0, kt_destroy("geometry", 0));
	}
}

/* Free frames go, the floor stays, and what is gone is gone for everyone. */
TEST_F(elastic, free_frames)
{
	struct kvmm_info before, after;
	unsigned char *mem = self->t.arena;
	long shmem, had;
	uint32_t u;

	kt_fill(&self->t, 3, 33);
	for (u = 0; u < UNITS; u++)
		EXPECT_EQ(1, mapped(&self->t, u));
	shmem = kt_meminfo("Shmem");
	ASSERT_EQ(0, kt_info(&before));
	ASSERT_EQ(0, kt_squeeze());
	STAT();
	EXPECT_EQ(UNIT, self->st.frames_online);
	EXPECT_EQ(UNIT, self->st.frames_free);
	EXPECT_EQ(ELASTIC * UNIT, self->st.given_back);
	EXPECT_LE(1, self->st.shrinks);
	ASSERT_EQ(0, kt_info(&after));
	EXPECT_EQ(ELASTIC * KT_UNIT, before.pinned_bytes - after.pinned_bytes);
	had = kt_meminfo("Shmem");
	EXPECT_LE((long)(ELASTIC * KT_UNIT >> 10), shmem - had) {
		TH_LOG("Shmem was %ld, is %ld KiB", shmem, had);
	}
	EXPECT_EQ(1, mapped(&self->t, 0));
	EXPECT_TRUE(kt_good(&self->t, 3, 33));
	for (u = 1; u < UNITS; u++)
		EXPECT_EQ(0, mapped(&self->t, u));
	EXPECT_NE(0, madvise(mem + KT_UNIT, ELASTIC * KT_UNIT,
			     MADV_POPULATE_WRITE));
	ASSERT_EQ(0, kt_info(&after));
	EXPECT_EQ(ELASTIC * KT_UNIT, before.pinned_bytes - after.pinned_bytes);
	EXPECT_GE(shmem - (long)(ELASTIC * KT_UNIT >> 10),
		  kt_meminfo("Shmem"));
}

/* A client can have it all back: zeroed, and as often as it likes. */
TEST_F(elastic, populate_again)
{
	struct kvmm_block_ref refs[FRAMES];
	unsigned char *mem = self->t.arena;
	uint32_t i, round;
	size_t at, dirty;

	for (round = 1; round <= 3; round++) {
		memset(mem, round, self->t.arena_size);
		ASSERT_EQ(0, kt_squeeze());
		STAT();
		EXPECT_EQ(UNIT, self->st.frames_online);
		EXPECT_EQ(round * ELASTIC * UNIT, self->st.given_back);
		ASSERT_EQ(0, kt_populate(&self->t, UNIT, 1, NULL));
		ASSERT_EQ(0, kt_populate(&self->t, 0, FRAMES, NULL));
		STAT();
		EXPECT_EQ(FRAMES, self->st.frames_online);
		EXPECT_EQ(round * ELASTIC * UNIT, self->st.taken_again);
		for (dirty = 0, at = KT_UNIT; at < self->t.arena_size; at += 8)
			dirty += !!*(uint64_t *)(mem + at);
		EXPECT_EQ(0, dirty);
	}
	ASSERT_EQ(0, kt_alloc(&self->t, refs, FRAMES));
	for (i = 0; i < FRAMES; i++)
		kt_fill(&self->t, refs[i].frame, i);
	for (i = 0; i < FRAMES; i++)
		EXPECT_TRUE(kt_good(&self->t, refs[i].frame, i));
	EXPECT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, FRAMES, NULL));
}

/*
 * CLEAN blocks give their frames, all of a unit or none; what is in memory only
 * stays, byte for byte.
 */
TEST_F(elastic, clean_goes_resident_stays)
{
	struct kvmm_block_ref refs[FRAMES];
	struct kt *t = &self->t;
	uint32_t i;

	ASSERT_EQ(0, attach(self));
	ASSERT_EQ(0, kt_store(t, 1, FRAMES, refs));
	/* unit 1 is clean, of unit 2 all but one block, unit 3 is not */
	for (i = 0; i < FRAMES; i++)
		if (refs[i].frame / UNIT == 1 ||
		    (refs[i].frame / UNIT == 2 && refs[i].frame % UNIT != 5))
			ASSERT_EQ(1, kt_swap(t, KVMM_SWAP_OUT, &refs[i], 1, 0));
	ASSERT_EQ(0, kt_squeeze());
	STAT();
	EXPECT_EQ(FRAMES - UNIT, self->st.frames_online);
	EXPECT_EQ(UNIT, self->st.blocks[KVMM_SWAPPED]);
	EXPECT_EQ(UNIT, self->st.evicted);
	EXPECT_EQ(0, self->st.purged);
	EXPECT_EQ(0, mapped(t, 1));
	for (i = 0; i < FRAMES; i++)
		if (refs[i].frame / UNIT != 1)
			EXPECT_TRUE(kt_good(t, refs[i].frame, i + 1));
	/* the others are read back into what is there */
	for (i = 0; i < FRAMES; i++) {
		int ret = kt_load(t, i + 1);

		if (ret == -EAGAIN) {
			ASSERT_EQ(0, kt_reclaim(t, FRAMES / 2, NULL));
			ret = kt_load(t, i + 1);
		}
		EXPECT_EQ(1, ret) {
			TH_LOG("block %u", i);
		}
	}
}

TEST_F(elastic, pinned_stays)
{
	struct kvmm_block_ref refs[FRAMES];
	struct kt *t = &self->t;
	uint32_t i, held = 0;

	ASSERT_EQ(0, kt_store(t, 1, FRAMES, refs));
	for (i = 0; i < FRAMES; i++)
		if (refs[i].frame == 2 * UNIT + 7) {
			ASSERT_EQ(0, kt_pin1(t, refs[i].handle));
			held = i;
		}
	ASSERT_EQ(0, kt_squeeze());
	STAT();
	EXPECT_EQ(2 * UNIT, self->st.frames_online);
	/* with no area all that is not pinned is a cache */
	EXPECT_EQ(2 * UNIT, self->st.purged);
	EXPECT_EQ(1, mapped(t, 2));
	EXPECT_EQ(0, mapped(t, 1));
	EXPECT_EQ(0, mapped(t, 3));
	EXPECT_TRUE(kt_good(t, refs[held].frame, held + 1));
	EXPECT_EQ(KVMM_MEMORY, kt_where1(t, held + 1, NULL));
	EXPECT_EQ(2 * UNIT, kt_load_all(t, 1, FRAMES));
	ASSERT_EQ(0, kt_unpin1(t, refs[held].handle));
	ASSERT_EQ(0, kt_squeeze());
	STAT();
	EXPECT_EQ(UNIT, self->st.frames_online);
	EXPECT_EQ(UNIT, kt_load_all(t, 1, FRAMES));
}

static int dies_filling(void *arg)
{
	struct kvmm_block_ref refs[FRAMES];
	struct kt u;

	if (kt_join(&u, arg, 0))
		return 1;
	return kt_alloc(&u, refs, UNIT + 1) ? 2 : 0;
}

/* A device may still be writing to the frames of a dead client. */
TEST_F(elastic, quarantined_stays)
{
	struct kvmm_pool_create spec =
		kt_elastic_spec("resting", KT_BLOCK, 3, 2, 0);
	struct kvmm_pool_stat st;
	struct kt u;

	spec.quarantine_ms = KVMM_MAX_QUARANTINE_MS;
	ASSERT_EQ(0, kt_create_spec(&u, &spec));
	ASSERT_EQ(0, kt_child(dies_filling, u.name));
	ASSERT_EQ(0, kt_wait_unpinned(&u));
	ASSERT_EQ(0, kt_squeeze());
	ASSERT_EQ(0, kt_stat(&u, &st));
	/* the floor, and one in the first of the others */
	EXPECT_EQ(UNIT + 1, st.frames_quarantined);
	EXPECT_EQ(2 * UNIT, st.frames_online);
	kt_close(&u);
	EXPECT_EQ(0, kt_destroy("resting", 0));
}

/* Blocks of a page, and blocks larger than a huge page. */
TEST_F(elastic, block_sizes)
{
	static const uint32_t sizes[] = { 4096, 32768, KT_UNIT, 4 * KT_UNIT };
	struct kvmm_block_ref refs[1024];
	struct kvmm_pool_create spec;
	struct kvmm_pool_stat st;
	uint32_t i, f, unit;
	struct kt u;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		spec = kt_elastic_spec("sized", sizes[i], 2, 1, 0);
		unit = spec.chunk_frames;
		ASSERT_EQ(0, kt_create_spec(&u, &spec));
		ASSERT_EQ(0, kt_store(&u, 1, 2 * unit, refs));
		ASSERT_EQ(0, kt_squeeze());
		ASSERT_EQ(0, kt_stat(&u, &st));
		EXPECT_EQ(unit, st.frames_online) {
			TH_LOG("blocks of %u", sizes[i]);
		}
		EXPECT_EQ(unit, st.purged);
		EXPECT_EQ((int)unit, kt_load_all(&u, 1, 2 * unit));
		EXPECT_TRUE(kt_sigbus(u.arena + u.arena_size / 2, true));
		ASSERT_EQ(0, kt_populate(&u, 0, 2 * unit, NULL));
		ASSERT_EQ(0, kt_alloc(&u, refs, unit));
		for (f = 0; f < unit; f++)
			kt_fill(&u, refs[f].frame, 5000 + f);
		for (f = 0; f < unit; f++)
			EXPECT_TRUE(kt_good(&u, refs[f].frame, 5000 + f));
		kt_close(&u);
		EXPECT_EQ(0, kt_destroy("sized", 0));
	}
}

/* A unit of which only a part has memory goes too, and comes back so. */
TEST_F(elastic, parts_of_units)
{
	struct kvmm_pool_create spec = kt_elastic_spec("bare", KT_BLOCK, 2, 1, 0);
	struct kvmm_block_ref refs[UNIT + 8];
	struct kt u = { .fd = kt_dev(O_RDWR), .block_size = KT_BLOCK,
			.nr_frames = 2 * UNIT };
	struct kvmm_pool_stat st;

	ASSERT_EQ(0, kt_ioctl(u.fd, KVMM_POOL_CREATE, &spec));
	u.arena_size = spec.arena_size;
	u.arena = mmap(NULL, u.arena_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		       u.fd, 0);
	ASSERT_NE(MAP_FAILED, (void *)u.arena);
	ASSERT_EQ(0, kt_populate(&u, 0, UNIT, NULL));
	ASSERT_EQ(0, kt_populate(&u, UNIT + 3, 2, NULL));
	ASSERT_EQ(0, kt_populate(&u, UNIT + 9, 1, NULL));
	ASSERT_EQ(0, kt_store(&u, 1, UNIT + 3, refs));
	ASSERT_EQ(0, kt_squeeze());
	ASSERT_EQ(0, kt_stat(&u, &st));
	EXPECT_EQ(UNIT, st.frames_online);
	EXPECT_EQ(3, st.given_back);
	EXPECT_EQ(0, mapped(&u, 1));
	ASSERT_EQ(0, kt_populate(&u, UNIT, UNIT, NULL));
	ASSERT_EQ(0, kt_stat(&u, &st));
	EXPECT_EQ(3, st.taken_again);
	EXPECT_EQ(1, mapped(&u, 1));
	kt_close(&u);
	EXPECT_EQ(0, kt_destroy("bare", 0));
}

/* What was given back is taken again when blocks are lost for want of it. */
TEST_F(elastic, taken_again)
{
	struct kvmm_block_ref refs[8];
	struct kt *t = &self->t;
	uint64_t deadline, id = 1;

	ASSERT_EQ(0, kt_squeeze());
	STAT();
	ASSERT_EQ(UNIT, self->st.frames_online);
	/* not while the system is short */
	for (; id < 10 * UNIT; id += 8)
		ASSERT_EQ(0, kt_store(t, id, 8, refs));
	STAT();
	EXPECT_EQ(UNIT, self->st.frames_online);
	EXPECT_EQ(0, self->st.taken_again);
	EXPECT_LT(0, self->st.purged);
	ASSERT_LE(0, kt_pressure_ms(1));
	deadline = kt_now_ms() + 60000;
	do {
		ASSERT_EQ(0, kt_store(t, id, 8, refs));
		id += 8;
		kt_sleep_ms(10);
		STAT();
	} while (self->st.frames_online < FRAMES && kt_now_ms() < deadline);
	EXPECT_EQ(FRAMES, self->st.frames_online);
	EXPECT_EQ(ELASTIC * UNIT, self->st.taken_again);
	EXPECT_EQ(1, mapped(t, UNITS - 1));
}

/* A pool without elastic frames is not asked. */
TEST_F(elastic, others_stay)
{
	struct kvmm_block_ref refs[2 * UNIT];
	struct kvmm_pool_stat st;
	struct kvmm_pool_create spec =
		kt_elastic_spec("firm", KT_BLOCK, 2, 0, 0);
	struct kt u;

	ASSERT_EQ(0, kt_create_spec(&u, &spec));
	ASSERT_EQ(0, kt_store(&u, 1, 2 * UNIT, refs));
	ASSERT_EQ(0, kt_squeeze());
	ASSERT_EQ(0, kt_stat(&u, &st));
	EXPECT_EQ(2 * UNIT, st.frames_online);
	EXPECT_EQ(2 * UNIT, kt_load_all(&u, 1, 2 * UNIT));
	kt_close(&u);
	EXPECT_EQ(0, kt_destroy("firm", 0));
}

KT_MAIN
