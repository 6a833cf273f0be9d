// SPDX-License-Identifier: MIT
/*
 * Every allocation fails once, of the commands on blocks, on the area, and of
 * moving blocks; by ioctl and by io_uring.  See failnth.h.
 */
#include "failnth.h"

/* ---- the area ---- */

static int before_attach(FIXTURE_DATA(failnth) *self)
{
	return kt_detach(&self->t, KVMM_SWAP_DISCARD);
}

static int do_attach(FIXTURE_DATA(failnth) *self)
{
	return kt_attach(&self->t, self->area, 0, 0, 0, NULL);
}

/* Not attached: then the file is nobody's, and can be. */
static int after_attach(FIXTURE_DATA(failnth) *self, int ret)
{
	ret = kt_attach(&self->t, self->area, 0, 0, 0, NULL);
	return ret == -EBUSY ? 0 : ret;
}

TEST_F(failnth, attach)
{
	sweep(_metadata, self, &(struct command){
		before_attach, do_attach, after_attach });
}

static int do_detach(FIXTURE_DATA(failnth) *self)
{
	return kt_detach(&self->t, KVMM_SWAP_DISCARD);
}

TEST_F(failnth, detach)
{
	sweep(_metadata, self, &(struct command){
		nothing, do_detach, after_attach });
}

/* ---- blocks ---- */

static int do_alloc(FIXTURE_DATA(failnth) *self)
{
	return kt_alloc(&self->c, self->refs, N);
}

TEST_F(failnth, alloc)
{
	sweep(_metadata, self, &(struct command){
		before_client, do_alloc, after_client });
}

static int before_publish(FIXTURE_DATA(failnth) *self)
{
	int ret = before_client(self);

	return ret ? ret : kt_alloc(&self->c, self->refs, N);
}

static int do_publish(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_publish_entry e[N];
	int i;

	for (i = 0; i < N; i++)
		e[i] = kt_entry(&self->c, self->refs[i].handle, 1 + i);
	return kt_publish(&self->c, e, N, 0);
}

static int after_publish(FIXTURE_DATA(failnth) *self, int ret)
{
	int i;

	for (i = 0; i < N; i++) {
		uint64_t handle;
		int where = kt_where1(&self->t, 1 + i, &handle);

		/* all or none of a batch */
		if (where < 0 || (!ret && where == KVMM_MISS))
			return -ENODATA;
		if (where != KVMM_MISS && kt_drop1(&self->t, handle))
			return -EBUSY;
	}
	return after_client(self, 0);
}

TEST_F(failnth, publish)
{
	sweep(_metadata, self, &(struct command){
		before_publish, do_publish, after_publish });
}

/* N blocks, in memory; and a client. */
static int before_blocks(FIXTURE_DATA(failnth) *self)
{
	int ret = before_client(self);

	ret = ret ? ret : kt_reset(&self->t, NULL);
	return ret ? ret : kt_store(&self->t, 1, N, self->refs);
}

/* Still there and right, whatever failed. */
static int after_blocks(FIXTURE_DATA(failnth) *self, int ret)
{
	(void)ret;
	kt_close(&self->c);
	ret = kt_wait_unpinned(&self->t);
	if (ret)
		return ret;
	ret = kt_load_all(&self->t, 1, N);
	return ret == N ? 0 : ret < 0 ? ret : -ENODATA;
}

static int do_lookup(FIXTURE_DATA(failnth) *self)
{
	int ret = kt_lookup(&self->c, 1, N, KVMM_LOOKUP_PIN, self->refs);

	return ret < 0 || ret == N ? ret : -ENODATA;
}

TEST_F(failnth, lookup)
{
	sweep(_metadata, self, &(struct command){
		before_blocks, do_lookup, after_blocks });
}

static int do_pin(FIXTURE_DATA(failnth) *self)
{
	return kt_batch(&self->c, KVMM_PIN, self->refs, N, NULL);
}

TEST_F(failnth, pin)
{
	sweep(_metadata, self, &(struct command){
		before_blocks, do_pin, after_blocks });
}

static int do_touch(FIXTURE_DATA(failnth) *self)
{
	return kt_batch(&self->c, KVMM_TOUCH, self->refs, N, NULL);
}

TEST_F(failnth, touch)
{
	sweep(_metadata, self, &(struct command){
		before_blocks, do_touch, after_blocks });
}

static int do_keys(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_key_entry e[N * 2];
	struct kvmm_keys arg = {
		.size = sizeof(arg), .entries = (uintptr_t)e, .count = N * 2,
	};

	return kt_ioctl(self->c.fd, KVMM_KEYS, &arg);
}

TEST_F(failnth, keys)
{
	sweep(_metadata, self, &(struct command){
		before_blocks, do_keys, after_blocks });
}

static int do_stat(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_pool_stat st;

	return kt_stat(&self->c, &st);
}

TEST_F(failnth, stat)
{
	sweep(_metadata, self, &(struct command){
		before_blocks, do_stat, after_blocks });
}

/* ---- moving ---- */

/* Of a whole call: those blocks that there was no memory for say so. */
static int entries(FIXTURE_DATA(failnth) *self, int ret)
{
	int i;

	for (i = 0; i < N && ret >= 0; i++)
		if (self->refs[i].result && self->refs[i].result != -ENOMEM)
			return self->refs[i].result;
	return ret < 0 || ret == N ? ret : -ENOMEM;
}

static int do_out(FIXTURE_DATA(failnth) *self)
{
	return entries(self, kt_swap(&self->c, KVMM_SWAP_OUT, self->refs, N,
				     KVMM_SWAP_DROP));
}

TEST_F(failnth, swap_out)
{
	sweep(_metadata, self, &(struct command){
		before_blocks, do_out, after_blocks });
}

static int before_in(FIXTURE_DATA(failnth) *self)
{
	int ret = before_blocks(self);

	if (ret)
		return ret;
	ret = kt_swap(&self->t, KVMM_SWAP_OUT, self->refs, N, KVMM_SWAP_DROP);
	return ret == N ? 0 : -EIO;
}

static int do_in(FIXTURE_DATA(failnth) *self)
{
	return entries(self, kt_swap(&self->c, KVMM_SWAP_IN, self->refs, N,
				     KVMM_SWAP_PIN));
}

TEST_F(failnth, swap_in)
{
	sweep(_metadata, self, &(struct command){
		before_in, do_in, after_blocks });
}

static int before_ring_out(FIXTURE_DATA(failnth) *self)
{
	int ret = before_blocks(self);

	return ret ? ret : kt_ring_init(&self->r, &self->c, 8, 0, false);
}

static int before_ring_in(FIXTURE_DATA(failnth) *self)
{
	int ret = before_in(self);

	return ret ? ret : kt_ring_init(&self->r, &self->c, 8, 0, false);
}

/* What io_uring itself has no memory for never comes to kvmm. */
static int ring_cmd(FIXTURE_DATA(failnth) *self, uint32_t op, uint32_t flags)
{
	struct kvmm_swap_cmd cmd = {
		.addr = (uintptr_t)self->refs, .count = N, .flags = flags,
	};
	int ret;

	if (!kt_ring_cmd(&self->r, op, &cmd, 0))
		return -ENOSPC;
	ret = kt_ring_submit(&self->r);
	if (ret != 1)
		return ret == -EAGAIN || !ret ? -ENOMEM : ret;
	ret = kt_ring_wait(&self->r, NULL);
	return ret < 0 || ret == N ? ret : -ENOMEM;
}

static int do_ring_out(FIXTURE_DATA(failnth) *self)
{
	return ring_cmd(self, KVMM_URING_SWAP_OUT, KVMM_SWAP_DROP);
}

static int do_ring_in(FIXTURE_DATA(failnth) *self)
{
	return ring_cmd(self, KVMM_URING_SWAP_IN, KVMM_SWAP_PIN);
}

static int after_ring(FIXTURE_DATA(failnth) *self, int ret)
{
	kt_ring_exit(&self->r);
	return after_blocks(self, ret);
}

TEST_F(failnth, ring_out)
{
	sweep(_metadata, self, &(struct command){
		before_ring_out, do_ring_out, after_ring });
}

TEST_F(failnth, ring_in)
{
	sweep(_metadata, self, &(struct command){
		before_ring_in, do_ring_in, after_ring });
}

static int do_reclaim(FIXTURE_DATA(failnth) *self)
{
	return kt_reclaim(&self->c, 0, NULL);
}

TEST_F(failnth, reclaim)
{
	sweep(_metadata, self, &(struct command){
		before_blocks, do_reclaim, after_blocks });
}

/* All frames are in use, so the command has to make room. */
static int before_room(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_block_ref refs[FRAMES];
	int ret = before_client(self);

	ret = ret ? ret : kt_reset(&self->t, NULL);
	ret = ret ? ret : kt_reclaim(&self->t, 0, NULL);
	return ret ? ret : kt_store(&self->t, 1, FRAMES, refs);
}

static int do_alloc_wait(FIXTURE_DATA(failnth) *self)
{
	return kt_alloc_wait(&self->c, self->refs, N, 30000, NULL);
}

static int after_room(FIXTURE_DATA(failnth) *self, int ret)
{
	(void)ret;
	kt_close(&self->c);
	ret = kt_wait_unpinned(&self->t);
	if (ret)
		return ret;
	ret = kt_load_all(&self->t, 1, FRAMES);
	return ret == FRAMES ? 0 : ret < 0 ? ret : -ENODATA;
}

TEST_F(failnth, alloc_makes_room)
{
	sweep(_metadata, self, &(struct command){
		before_room, do_alloc_wait, after_room });
}

/* ---- events ---- */

static int do_events(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_events arg = {
		.size = sizeof(arg), .mask = 1 << KVMM_EVENT_EVICTED,
		.count = 64,
	};

	return kt_ioctl(self->c.fd, KVMM_EVENTS, &arg);
}

static int after_events(FIXTURE_DATA(failnth) *self, int ret)
{
	ret = do_events(self);
	kt_close(&self->c);
	return ret;
}

TEST_F(failnth, events)
{
	sweep(_metadata, self, &(struct command){
		before_client, do_events, after_events });
}

static int before_read(FIXTURE_DATA(failnth) *self)
{
	int ret = before_blocks(self);

	ret = ret ? ret : do_events(self);
	return ret ? ret : kt_reclaim(&self->t, 0, NULL);
}

static int do_read(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_event e[N];

	return read(self->c.fd, e, sizeof(e)) < 0 ? -errno : 0;
}

TEST_F(failnth, read)
{
	sweep(_metadata, self, &(struct command){
		before_read, do_read, after_blocks });
}

KT_MAIN
