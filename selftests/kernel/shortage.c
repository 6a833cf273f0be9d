// SPDX-License-Identifier: MIT
/*
 * A machine that is short of memory for real, most of it in a pool: a process
 * that needs more than there is gets it from there, and nobody is killed.  For
 * a machine of its own, a small one (suite vm-shortage).
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "kt_harness.h"

#define AREA	"shortage-area"
#define SLOTS	4
#define DEAR	1000000000U		/* us to compute: never the cheaper way */

FIXTURE(shortage) {
	struct kt t;
	int area;
	long pressure;
	long victims;
};

/* A counter of /proc/vmstat. */
static long vmstat(const char *name)
{
	FILE *f = fopen("/proc/vmstat", "r");
	char line[128], field[64];
	long value, found = -1;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%63s %ld", field, &value) == 2 &&
		    !strcmp(field, name))
			found = value;
	if (f)
		fclose(f);
	return found;
}

/* Half of what is available, all of it elastic but one frame. */
FIXTURE_SETUP(shortage)
{
	uint32_t units = kt_meminfo("MemAvailable") / 2 / (KT_UNIT >> 10);
	struct kvmm_pool_create spec;

	kt_wipe();
	self->area = -1;
	if (kt_meminfo("MemTotal") > 1 << 20)
		SKIP(return, "not a small machine");
	self->victims = vmstat("oom_kill");
	ASSERT_LE(0, self->victims);
	self->pressure = kt_pressure_ms(5000);
	ASSERT_LE(0, self->pressure);
	spec = kt_elastic_spec("shortage", KT_UNIT, units, units - 1, SLOTS);
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
}

FIXTURE_TEARDOWN(shortage)
{
	if (!self->t.nr_frames)
		return;
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	if (self->area >= 0) {
		close(self->area);
		kt_area_unlink(AREA);
	}
	EXPECT_LE(0, kt_pressure_ms(self->pressure));
}

/* Every frame holds a block; one in 16 stays pinned, and may not go. */
static int fill_pool(struct kt *t, struct kvmm_block_ref *refs)
{
	struct kvmm_publish_entry e;
	uint32_t i;
	int ret;

	for (i = 0; i < t->nr_frames; i++) {
		ret = kt_alloc(t, &refs[i], 1);
		if (ret)
			return ret;
		kt_fill(t, refs[i].frame, 1 + i);
		e = kt_entry(t, refs[i].handle, 1 + i);
		e.flags = KVMM_BLOCK_RECOMPUTABLE;
		e.cost_us = DEAR;
		ret = kt_publish(t, &e, 1, i % 16 ? 0 : KVMM_PUBLISH_KEEP);
		if (ret || e.result)
			return ret ? ret : e.result;
	}
	return 0;
}

/* Takes @arg KiB and uses all of it; the first one to be killed, if any. */
static int needs_memory(void *arg)
{
	size_t bytes = (size_t)(uintptr_t)arg << 10, at;
	unsigned char *mem;
	int fd = open("/proc/self/oom_score_adj", O_WRONLY);

	if (fd < 0 || write(fd, "1000", 4) != 4)
		return 2;
	close(fd);
	mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mem == MAP_FAILED)
		return 3;
	for (at = 0; at < bytes; at += 4096)
		mem[at] = (unsigned char)(at >> 12);
	for (at = 0; at < bytes; at += 4096)
		if (mem[at] != (unsigned char)(at >> 12))
			return 4;
	return 0;
}

static void shortage(struct __test_metadata *_metadata,
		     FIXTURE_DATA(shortage) *self)
{
	struct kvmm_block_ref *refs;
	struct kt *t = &self->t;
	struct kvmm_pool_stat st;
	uint64_t deadline, id;
	uint32_t i, pinned = 0;
	long kib;

	refs = calloc(t->nr_frames, sizeof(*refs));
	ASSERT_NE(NULL, refs);
	ASSERT_EQ(0, fill_pool(t, refs));
	kib = kt_meminfo("MemAvailable") +
		(long)(t->arena_size >> 10) / 2;
	TH_LOG("%u frames of 2 MiB; a process takes %ld KiB of %ld available",
	       t->nr_frames, kib, kt_meminfo("MemAvailable"));
	EXPECT_EQ(0, kt_child(needs_memory, (void *)(uintptr_t)kib));
	EXPECT_EQ(self->victims, vmstat("oom_kill"));
	ASSERT_EQ(0, kt_stat(t, &st));
	TH_LOG("%llu frames given back, %llu blocks purged",
	       (unsigned long long)st.given_back,
	       (unsigned long long)st.purged);
	EXPECT_LE(t->nr_frames / 4, st.given_back);
	EXPECT_LE(st.given_back - 1, st.purged);

	/* what is pinned is where it was; the rest is right, or a miss */
	for (i = 0; i < t->nr_frames; i += 16, pinned++) {
		EXPECT_TRUE(kt_good(t, refs[i].frame, 1 + i));
		EXPECT_EQ(0, kt_unpin1(t, refs[i].handle));
	}
	EXPECT_LE((int)pinned, kt_load_all(t, 1, t->nr_frames));

	/* there is memory now, and the pool has use for it */
	ASSERT_LE(0, kt_pressure_ms(100));
	deadline = kt_now_ms() + 60000;
	for (id = 100000; kt_now_ms() < deadline; id++) {
		int ret = kt_store(t, id, 1, refs);

		if (ret == -EAGAIN || ret == -ENOSPC)
			ret = kt_reclaim(t, t->nr_frames / 4, NULL);
		ASSERT_EQ(0, ret);
		ASSERT_EQ(0, kt_stat(t, &st));
		if (st.taken_again)
			break;
	}
	EXPECT_LT(0, st.taken_again);
	free(refs);
}

/* Without an area all blocks are a cache: the shrinker is enough. */
TEST_F(shortage, cache)
{
	if (self->t.nr_frames)
		shortage(_metadata, self);
}

/*
 * With one these are too dear to be purged as long as it can be helped: only
 * before the OOM killer comes.
 */
TEST_F(shortage, last_resort)
{
	if (!self->t.nr_frames)
		return;
	self->area = kt_area_file(AREA, KT_UNIT, SLOTS);
	ASSERT_LE(0, self->area);
	ASSERT_EQ(0, kt_attach(&self->t, self->area, 0, 0, 0, NULL));
	shortage(_metadata, self);
}

KT_MAIN
