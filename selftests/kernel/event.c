// SPDX-License-Identifier: MIT
/*
 * Events: choosing them, what is told of whom, what a read gives, and what is
 * lost.
 */
#include <sys/mman.h>
#include <sys/uio.h>

#include "event.h"

#define AREA	"event-area"
#define EVICTED	BIT(KVMM_EVENT_EVICTED)
#define DEGRADED	BIT(KVMM_EVENT_DEGRADED)

TEST_F(event, offered)
{
	struct kvmm_info info;

	ASSERT_EQ(0, kt_info(&info));
	EXPECT_NE(0, info.features & KVMM_FEATURE_EVENTS);
}

TEST_F(event, nothing_chosen)
{
	struct kt other = { .fd = kt_dev(O_RDWR) };

	ASSERT_LE(0, other.fd);
	EXPECT_EQ(-ENOTCONN, take(&other, self->ev, 1));
	EXPECT_EQ(0, ready(&other));
	close(other.fd);
	EXPECT_EQ(-ENOTCONN, take(&self->t, self->ev, 1));
	EXPECT_EQ(0, ready(&self->t));
	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, choose(&self->t, 0, 0));
	EXPECT_EQ(-ENOTCONN, take(&self->t, self->ev, 1));
}

TEST_F(event, refused)
{
	EXPECT_EQ(-EINVAL, choose(&self->t, BIT(KVMM_NR_EVENTS), 0));
	EXPECT_EQ(-EINVAL, choose(&self->t, BIT(63), 0));
	EXPECT_EQ(-EINVAL, choose(&self->t, PURGED, KVMM_MAX_EVENTS + 1));
	EXPECT_EQ(-ENOTCONN, take(&self->t, self->ev, 1));
	EXPECT_EQ(0, choose(&self->t, BIT(KVMM_NR_EVENTS) - 1,
			    KVMM_MAX_EVENTS));
}

TEST_F(event, purged)
{
	struct kvmm_block_ref refs[FRAMES + 3];
	int i;

	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, kt_store_each(&self->t, 1, FRAMES, refs));
	EXPECT_EQ(0, ready(&self->t));
	ASSERT_EQ(0, kt_store_each(&self->t, 1 + FRAMES, 3, refs + FRAMES));
	EXPECT_EQ(POLLIN, ready(&self->t));
	ASSERT_EQ(3, take(&self->t, self->ev, MAX));
	for (i = 0; i < 3; i++) {
		EXPECT_TRUE(is_block(&self->ev[i], KVMM_EVENT_PURGED,
				     refs[i].handle, 1 + i));
		EXPECT_EQ(5, self->ev[i].time_ms);
	}
	EXPECT_EQ(0, ready(&self->t));
	EXPECT_EQ(3, kt_stat_of(&self->t).events);
	EXPECT_EQ(0, kt_stat_of(&self->t).events_lost);
}

TEST_F(event, expired)
{
	struct kvmm_publish_entry e;
	struct kvmm_block_ref ref;

	ASSERT_EQ(0, choose(&self->t, PURGED | EVICTED, 0));
	ASSERT_EQ(0, kt_alloc(&self->t, &ref, 1));
	e = kt_entry(&self->t, ref.handle, 7);
	e.expiry_ms = 10;
	ASSERT_EQ(0, kt_publish(&self->t, &e, 1, 0));
	ASSERT_EQ(0, kt_clock(&self->t, 15));
	EXPECT_EQ(KVMM_MISS, kt_where1(&self->t, 7, NULL));
	ASSERT_EQ(1, take(&self->t, self->ev, MAX));
	EXPECT_TRUE(is_block(self->ev, KVMM_EVENT_PURGED, ref.handle, 7));
	EXPECT_EQ(15, self->ev->time_ms);
}

/* What clients do themselves is no event. */
TEST_F(event, dropped)
{
	struct kvmm_block_ref refs[2];

	ASSERT_EQ(0, choose(&self->t, BIT(KVMM_NR_EVENTS) - 1, 0));
	ASSERT_EQ(0, kt_store_each(&self->t, 1, 2, refs));
	ASSERT_EQ(0, kt_drop1(&self->t, refs[0].handle));
	ASSERT_EQ(0, kt_reset(&self->t, NULL));
	EXPECT_EQ(KVMM_MISS, kt_where1(&self->t, 2, NULL));
	EXPECT_EQ(0, ready(&self->t));
}

TEST_F(event, evicted)
{
	struct kvmm_block_ref refs[FRAMES];
	int area, i;

	ASSERT_NE(NULL, kt_disk_dir());
	area = kt_area_file(AREA, 4096, SLOTS);
	ASSERT_LE(0, area);
	ASSERT_EQ(0, kt_attach(&self->t, area, 0, 0, 0, NULL));
	ASSERT_EQ(0, choose(&self->t, PURGED | EVICTED, 0));
	ASSERT_EQ(0, kt_store_each(&self->t, 1, FRAMES, refs));
	/* written, but still in memory */
	ASSERT_EQ(FRAMES, kt_swap(&self->t, KVMM_SWAP_OUT, refs, FRAMES, 0));
	EXPECT_EQ(0, ready(&self->t));
	ASSERT_EQ(2, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 2,
			     KVMM_SWAP_DROP));
	ASSERT_EQ(0, kt_reclaim(&self->t, FRAMES - 4, NULL));
	ASSERT_EQ(4, take(&self->t, self->ev, MAX));
	for (i = 0; i < 4; i++) {
		EXPECT_TRUE(is_block(&self->ev[i], KVMM_EVENT_EVICTED,
				     refs[i].handle, 1 + i));
	}
	/* with the area goes what is only there */
	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	ASSERT_EQ(4, take(&self->t, self->ev, MAX));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(KVMM_EVENT_PURGED, self->ev[i].type);
	close(area);
	kt_area_unlink(AREA);
}

/* Only what was chosen, by each client for itself; read-only ones, too. */
TEST_F(event, mask)
{
	struct kt reader, deaf;
	int area;

	ASSERT_NE(NULL, kt_disk_dir());
	area = kt_area_file(AREA, 4096, SLOTS);
	ASSERT_LE(0, area);
	ASSERT_EQ(0, kt_attach(&self->t, area, 0, 0, 0, NULL));
	ASSERT_EQ(0, kt_join(&reader, "event", KVMM_POOL_RDONLY));
	ASSERT_EQ(0, kt_join(&deaf, "event", 0));
	ASSERT_EQ(0, choose(&reader, EVICTED, 0));
	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, choose(&deaf, DEGRADED, 0));
	ASSERT_EQ(0, store(&self->t, 1, 2));
	ASSERT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	EXPECT_EQ(0, ready(&self->t));
	EXPECT_EQ(0, ready(&deaf));
	EXPECT_EQ(2, take(&reader, self->ev, MAX));
	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	EXPECT_EQ(0, ready(&reader));
	EXPECT_EQ(0, ready(&deaf));
	EXPECT_EQ(2, take(&self->t, self->ev, MAX));
	EXPECT_EQ(4, kt_stat_of(&self->t).events);
	kt_close(&reader);
	kt_close(&deaf);
	close(area);
	kt_area_unlink(AREA);
}

/* Whole events, as many as fit. */
TEST_F(event, sizes)
{
	struct iovec iov[3] = {
		{ &self->ev[0], 100 }, { (char *)self->ev + 100, 28 },
		{ &self->ev[2], sizeof(self->ev[0]) + 10 },
	};

	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, nonblock(&self->t, true));
	EXPECT_EQ(-1, read(self->t.fd, self->ev, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, read(self->t.fd, self->ev, sizeof(self->ev[0]) - 1));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-EAGAIN, take(&self->t, self->ev, 1));
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 8));
	EXPECT_EQ(2 * 64, read(self->t.fd, self->ev, 3 * 64 - 1));
	EXPECT_EQ(64, read(self->t.fd, self->ev, 64));
	/* in pieces that are no events */
	EXPECT_EQ(3 * 64, readv(self->t.fd, iov, 3));
	EXPECT_EQ(2, take(&self->t, self->ev, MAX));
	EXPECT_EQ(-EAGAIN, take(&self->t, self->ev, MAX));
}

/* An event that can't be handed over stays. */
TEST_F(event, bad_address)
{
	char *mem = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_EQ(0, mprotect(mem + 4096, 4096, PROT_NONE));
	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 3));
	EXPECT_EQ(-1, read(self->t.fd, mem + 4096, 64));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(-1, read(self->t.fd, mem + 4096 - 32, 64));
	EXPECT_EQ(EFAULT, errno);
	/* the second one hits the page that isn't there */
	EXPECT_EQ(64, read(self->t.fd, mem + 4096 - 96, 3 * 64));
	ASSERT_EQ(2, take(&self->t, self->ev, MAX));
	EXPECT_TRUE(is_block(self->ev, KVMM_EVENT_PURGED, self->ev->handle, 2));
	munmap(mem, 2 * 4096);
}

/* A full queue keeps the oldest, and counts the others. */
TEST_F(event, lost)
{
	struct kvmm_event *ev = self->ev;

	ASSERT_EQ(0, choose(&self->t, PURGED, 4));
	ASSERT_EQ(0, nonblock(&self->t, true));
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 4));
	ASSERT_EQ(0, kt_clock(&self->t, 6));
	ASSERT_EQ(0, store(&self->t, 100, 3));
	EXPECT_EQ(4, kt_stat_of(&self->t).events);
	EXPECT_EQ(3, kt_stat_of(&self->t).events_lost);
	/* with room comes the count, where the lost ones would be */
	ASSERT_EQ(1, take(&self->t, ev, 1));
	ASSERT_EQ(0, kt_clock(&self->t, 7));
	ASSERT_EQ(0, store(&self->t, 200, 1));
	ASSERT_EQ(5, take(&self->t, ev, MAX));
	EXPECT_EQ(KVMM_EVENT_PURGED, ev[2].type);
	EXPECT_EQ(KVMM_EVENT_LOST, ev[3].type);
	EXPECT_EQ(3, ev[3].value);
	EXPECT_EQ(6, ev[3].time_ms);
	EXPECT_EQ(0, ev[3].handle);
	/* the next one found it full again */
	EXPECT_EQ(KVMM_EVENT_LOST, ev[4].type);
	EXPECT_EQ(1, ev[4].value);
	EXPECT_EQ(7, ev[4].time_ms);
	EXPECT_EQ(-EAGAIN, take(&self->t, ev, MAX));
	/* and then all is well again */
	ASSERT_EQ(0, store(&self->t, 300, 2));
	ASSERT_EQ(2, take(&self->t, ev, MAX));
	EXPECT_EQ(KVMM_EVENT_PURGED, ev[0].type);
	EXPECT_EQ(KVMM_EVENT_PURGED, ev[1].type);
}

TEST_F(event, room_for_one)
{
	ASSERT_EQ(0, choose(&self->t, PURGED, 1));
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 5));
	ASSERT_EQ(2, take(&self->t, self->ev, MAX));
	EXPECT_EQ(KVMM_EVENT_PURGED, self->ev[0].type);
	EXPECT_EQ(KVMM_EVENT_LOST, self->ev[1].type);
	EXPECT_EQ(4, self->ev[1].value);
	EXPECT_EQ(0, ready(&self->t));
}

/* Another choice replaces the one before, and what it had collected. */
TEST_F(event, chosen_again)
{
	ASSERT_EQ(0, choose(&self->t, PURGED, 2));
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 5));
	EXPECT_EQ(POLLIN, ready(&self->t));
	ASSERT_EQ(0, choose(&self->t, PURGED, 8));
	EXPECT_EQ(0, ready(&self->t));
	ASSERT_EQ(0, store(&self->t, 100, 6));
	EXPECT_EQ(6, take(&self->t, self->ev, MAX));
	ASSERT_EQ(0, choose(&self->t, EVICTED, 8));
	ASSERT_EQ(0, store(&self->t, 200, 6));
	EXPECT_EQ(0, ready(&self->t));
}

TEST_F(event, listeners)
{
	struct kt t[KVMM_MAX_LISTENERS + 1];
	int i;

	for (i = 0; i <= KVMM_MAX_LISTENERS; i++)
		ASSERT_EQ(0, kt_join(&t[i], "event", 0));
	for (i = 0; i < KVMM_MAX_LISTENERS; i++)
		ASSERT_EQ(0, choose(&t[i], i % 2 ? PURGED : EVICTED | PURGED,
				    16));
	EXPECT_EQ(-EUSERS, choose(&t[i], EVICTED, 16));
	EXPECT_EQ(-ENOTCONN, take(&t[i], self->ev, 1));
	/* one that is there may choose again, and others are no trouble */
	EXPECT_EQ(0, choose(&t[0], PURGED, 8));
	EXPECT_EQ(0, choose(&t[i], DEGRADED, 16));
	EXPECT_EQ(-EUSERS, choose(&t[i], DEGRADED | PURGED, 16));
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 2));
	EXPECT_EQ(2 * KVMM_MAX_LISTENERS, kt_stat_of(&self->t).events);
	EXPECT_EQ(0, choose(&t[1], 0, 0));
	EXPECT_EQ(0, choose(&t[i], PURGED, 16));
	kt_close(&t[2]);
	EXPECT_EQ(0, choose(&t[1], PURGED, 16));
	for (i = 0; i <= KVMM_MAX_LISTENERS; i++)
		kt_close(&t[i]);
}

/* A disk that fails. */
TEST_F(event, degraded)
{
	struct kvmm_block_ref refs[4];
	int disk, i;

	disk = kt_nullb(8, 0);
	if (disk == -ENODEV)
		SKIP(return, "no null_blk");
	ASSERT_LE(0, disk);
	ASSERT_EQ(0, kt_attach(&self->t, disk, 0, 0, 0, NULL));
	ASSERT_EQ(0, kt_store_each(&self->t, 1, 4, refs));
	ASSERT_EQ(1, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 1,
			     KVMM_SWAP_DROP));
	ASSERT_EQ(0, choose(&self->t, DEGRADED | PURGED, 0));
	ASSERT_EQ(0, kt_nullb_fail(true));
	EXPECT_EQ(0, kt_swap(&self->t, KVMM_SWAP_OUT, refs + 1, 3, 0));
	/* once, however many writes failed */
	ASSERT_EQ(1, take(&self->t, self->ev, MAX));
	EXPECT_EQ(KVMM_EVENT_DEGRADED, self->ev->type);
	EXPECT_EQ(EIO, self->ev->value);
	EXPECT_EQ(0, self->ev->handle);
	/* and what can't be read back is lost */
	EXPECT_EQ(-ESTALE, kt_swap1(&self->t, KVMM_SWAP_IN, refs[0].handle,
				    0));
	ASSERT_EQ(1, take(&self->t, self->ev, MAX));
	EXPECT_TRUE(is_block(self->ev, KVMM_EVENT_PURGED, refs[0].handle, 1));
	/* a new area: it may fail again */
	ASSERT_EQ(0, kt_nullb_fail(false));
	ASSERT_EQ(0, kt_detach(&self->t, 0));
	ASSERT_EQ(0, kt_attach(&self->t, disk, 0, 0, 0, NULL));
	ASSERT_EQ(0, kt_nullb_fail(true));
	EXPECT_EQ(0, kt_swap(&self->t, KVMM_SWAP_OUT, refs + 1, 3, 0));
	EXPECT_EQ(1, take(&self->t, self->ev, MAX));
	for (i = 1; i < 4; i++)
		EXPECT_EQ(0, kt_drop1(&self->t, refs[i].handle));
	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	close(disk);
	kt_nullb_end();
}

KT_MAIN
