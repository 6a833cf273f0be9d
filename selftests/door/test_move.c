// SPDX-License-Identifier: MIT
/*
 * Blocks out and back: in memory, in the area, missing, shared, by handle; and
 * what a job says of itself.
 */
#include "door.h"

#include <fcntl.h>
#include <poll.h>

#define TOKENS	16

/* A device with a small layout of two groups, and a pool. */
static struct seq *begin(struct door *d, void **state, unsigned int frames,
			 unsigned int slots)
{
	door_start(d, *state, NULL);
	door_simple(d, 4, 2, TOKENS, 32, 2, 512);
	door_pool(d, frames, slots);
	return malloc(sizeof(struct seq));
}

static struct kvmm_job_info one(struct door *d, const struct kvmm_transfer *t,
				bool out, struct kvmm_block_ref *refs)
{
	struct kvmm_job_info info;
	uint64_t job;

	assert_int_equal(out ? kvmm_offload(d->eng, t, &job)
			     : kvmm_restore(d->eng, t, &job), 0);
	kvmm_job_wait(d->eng, job, -1);
	assert_int_equal(kvmm_job_info(d->eng, job, &info), 0);
	assert_int_equal(kvmm_job_blocks(d->eng, job, refs, refs ? t->n : 0),
			 t->n);
	assert_int_equal(kvmm_job_end(d->eng, job), 0);
	return info;
}

static void out_and_in(void **state)
{
	struct door d;
	struct seq *s = begin(&d, state, 64, 0);

	d.eng = door_open(&d, d.pool, NULL);
	assert_string_equal(kvmm_engine_device(d.eng),
			    d.cuda ? "cuda" : "host");
	seq_new(&d, s, 40, 100, 0);
	s->tokens = 3;
	seq_fill(&d, s);
	assert_int_equal(door_offload(&d, s), 40);
	door_no_pins(d.pool);
	seq_clear(&d, s);
	assert_int_equal(door_restore(&d, s), 40);
	seq_check(&d, s, 0, 40);
	/* more than there is: the longest prefix */
	seq_new(&d, s, 50, 61, 100);
	assert_int_equal(door_restore(&d, s), 0);
	seq_new(&d, s, 50, 110, 100);
	s->tokens = 0;
	seq_clear(&d, s);
	assert_int_equal(door_restore(&d, s), 30);
	seq_check(&d, s, 0, 29);
	door_end(&d);
	free(s);
}

/* A sequence and its fork share their host copies: nothing is copied twice. */
static void fork_copies_nothing(void **state)
{
	struct door d;
	struct seq *s = begin(&d, state, 64, 0);
	struct kvmm_block_ref refs[16], again[16];
	struct kvmm_pool_stat before, after;
	struct kvmm_job_info info;
	struct kvmm_transfer t;
	unsigned int i;

	d.eng = door_open(&d, d.pool, NULL);
	seq_new(&d, s, 12, 100, 0);
	seq_fill(&d, s);
	t = seq_transfer(&d, s);
	info = one(&d, &t, true, refs);
	assert_int_equal(info.bytes, 12 * kvmm_layout_bytes(&d.lay, 0));
	before = lt_stat(d.pool);

	/* the fork: eight blocks in common, then its own */
	for (i = 8; i < 12; i++)
		lt_key(s->keys[i], 1000 + i);
	info = one(&d, &t, true, again);
	after = lt_stat(d.pool);
	assert_int_equal(info.good, 12);
	assert_int_equal(info.prefix, 12);
	assert_int_equal(info.bytes, 4 * kvmm_layout_bytes(&d.lay, 0));
	assert_int_equal(after.allocs - before.allocs, 4);
	for (i = 0; i < 12; i++) {
		assert_int_equal(again[i].result, i < 8 ? KVMM_BLOCK_THERE
							: KVMM_BLOCK_COPIED);
		if (i < 8)
			assert_int_equal(again[i].handle, refs[i].handle);
	}
	/* all of it again: no byte moves */
	info = one(&d, &t, true, again);
	assert_int_equal(info.bytes, 0);
	assert_int_equal(info.good, 12);
	assert_int_equal(lt_stat(d.pool).allocs, after.allocs);
	door_end(&d);
	free(s);
}

/* Chains are known to the pool by their parents. */
static void chain_is_told(void **state)
{
	struct door d;
	struct seq *s = begin(&d, state, 64, 0);
	struct kvmm_block_ref refs[8];
	struct kvmm_transfer t;

	d.eng = door_open(&d, d.pool, NULL);
	seq_new(&d, s, 4, 100, 0);
	seq_fill(&d, s);
	t = seq_transfer(&d, s);
	one(&d, &t, true, refs);
	seq_new(&d, s, 4, 104, 20);
	seq_fill(&d, s);
	t = seq_transfer(&d, s);
	t.parent = refs[3].handle;
	t.position = 4;
	t.priority = 9;
	t.cost_us = 77;
	t.expiry_ms = 100000;
	t.block_flags = KVMM_BLOCK_RECOMPUTABLE;
	one(&d, &t, true, refs + 4);
	assert_int_equal(kvmm_request_end(d.pool, refs[7].handle, 1), 8);
	{
		struct kvmm_key_entry e[16];
		uint64_t cursor = 0;
		long i, n = kvmm_keys(d.pool, &cursor, e, 16);

		assert_int_equal(n, 8);
		for (i = 0; i < n; i++) {
			if (e[i].handle != refs[6].handle)
				continue;
			assert_int_equal(e[i].position, 6);
			assert_int_equal(e[i].parent, refs[5].handle);
			assert_int_equal(e[i].priority, 9);
			assert_int_equal(e[i].cost_us, 77);
			assert_int_equal(e[i].expiry_ms, 100000);
			assert_true(e[i].flags & KVMM_BLOCK_RECOMPUTABLE);
			break;
		}
		assert_true(i < n);
	}
	door_end(&d);
	free(s);
}

static void from_the_area(void **state)
{
	struct door d;
	struct seq *s = begin(&d, state, 64, 128);
	const char *path;
	struct kvmm_speed speed;

	d.eng = door_open(&d, d.pool, NULL);
	path = lt_path(d.lt);
	lt_attach(d.pool, path, KVMM_SWAP_UNLINK);
	seq_new(&d, s, 60, 100, 0);
	seq_fill(&d, s);
	assert_int_equal(door_offload(&d, s), 60);
	assert_int_equal(kvmm_engine_speed(d.eng, KVMM_WAY_DISK, &speed), 0);
	assert_int_equal(speed.samples, 0);
	assert_int_equal(kvmm_reclaim(d.pool, 0, NULL), 0);
	assert_int_equal(lt_stat(d.pool).blocks[KVMM_SWAPPED], 60);
	seq_clear(&d, s);
	assert_int_equal(door_restore(&d, s), 60);
	seq_check(&d, s, 0, 60);
	/* half of it in memory, the other half not */
	assert_int_equal(kvmm_reclaim(d.pool, 30, NULL), 0);
	seq_clear(&d, s);
	assert_int_equal(door_restore(&d, s), 60);
	seq_check(&d, s, 0, 60);
	/* what it took was measured */
	assert_int_equal(kvmm_engine_speed(d.eng, KVMM_WAY_DISK, &speed), 0);
	assert_true(speed.samples >= 2);
	assert_true(speed.bytes_per_us > 0);
	assert_int_equal(kvmm_engine_speed(d.eng, KVMM_WAY_OUT, &speed), 0);
	assert_int_equal(speed.samples, 1);
	door_end(&d);
	free(s);
}

/* ---- what is missing ---- */

struct told {
	unsigned int calls;
	unsigned int first[8], n[8];
	uint64_t tag;
};

static void on_recompute(void *ctx, uint64_t job, uint64_t tag,
			 unsigned int first, unsigned int n)
{
	struct told *told = ctx;

	assert_true(job);
	assert_true(told->calls < 8);
	told->tag = tag;
	told->first[told->calls] = first;
	told->n[told->calls++] = n;
}

static void misses(void **state)
{
	struct kvmm_hooks hooks = { .recompute = on_recompute };
	struct kvmm_engine_opts o = { .hooks = &hooks };
	struct kvmm_block_ref refs[20], lost;
	struct kvmm_job_info info;
	struct kvmm_transfer t;
	struct told told = { 0 };
	struct door d;
	struct seq *s = begin(&d, state, 64, 0);
	unsigned int i;

	hooks.ctx = &told;
	d.eng = door_open(&d, d.pool, &o);
	seq_new(&d, s, 20, 100, 0);
	seq_fill(&d, s);
	t = seq_transfer(&d, s);
	t.tag = 4711;
	assert_int_equal(one(&d, &t, true, refs).good, 20);
	lost = refs[7];
	assert_int_equal(kvmm_drop(d.pool, &lost, 1), 1);
	lost = refs[12];
	assert_int_equal(kvmm_drop(d.pool, &lost, 1), 1);

	/* the prefix ends before the first miss */
	seq_clear(&d, s);
	info = one(&d, &t, false, refs);
	assert_int_equal(info.prefix, 7);
	assert_int_equal(info.good, 7);
	seq_check(&d, s, 0, 7);
	assert_int_equal(refs[6].result, 0);
	for (i = 7; i < 20; i++)
		assert_int_equal(refs[i].result, -ENOENT);
	assert_int_equal(told.calls, 1);
	assert_int_equal(told.first[0], 7);
	assert_int_equal(told.n[0], 13);
	assert_int_equal(told.tag, 4711);

	/* an engine that can deal with holes */
	told.calls = 0;
	seq_clear(&d, s);
	t.flags = KVMM_JOB_HOLES;
	info = one(&d, &t, false, refs);
	assert_int_equal(info.prefix, 7);
	assert_int_equal(info.good, 18);
	seq_check(&d, s, 0, 7);
	seq_check(&d, s, 8, 4);
	seq_check(&d, s, 13, 7);
	assert_int_equal(told.calls, 2);
	assert_int_equal(told.first[0], 7);
	assert_int_equal(told.n[0], 1);
	assert_int_equal(told.first[1], 12);
	assert_int_equal(told.n[1], 1);

	/* one that computes the front, and loads from the back */
	told.calls = 0;
	seq_clear(&d, s);
	t.flags = KVMM_JOB_BACKWARDS;
	info = one(&d, &t, false, refs);
	assert_int_equal(info.prefix, 7);
	seq_check(&d, s, 13, 7);
	assert_int_equal(told.calls, 1);
	assert_int_equal(told.first[0], 0);
	assert_int_equal(told.n[0], 13);

	/* nothing at all */
	told.calls = 0;
	seq_new(&d, s, 5, 900, 0);
	t = seq_transfer(&d, s);
	info = one(&d, &t, false, refs);
	assert_int_equal(info.prefix, 0);
	assert_int_equal(info.bytes, 0);
	assert_int_equal(told.n[0], 5);
	door_end(&d);
	free(s);
}

/* The area gives back something else than was put into it. */
static void wrong_checksum(void **state)
{
	struct kvmm_hooks hooks = { .recompute = on_recompute };
	struct kvmm_engine_opts o = { .hooks = &hooks };
	struct told told = { 0 };
	struct kvmm_key_entry e[32];
	struct door d;
	struct seq *s = begin(&d, state, 64, 64);
	uint64_t cursor = 0;
	char path[512], junk[64];
	long i, n;
	int fd;

	hooks.ctx = &told;
	d.eng = door_open(&d, d.pool, &o);
	snprintf(path, sizeof(path), "%s", lt_path(d.lt));
	lt_attach(d.pool, path, 0);
	seq_new(&d, s, 16, 100, 0);
	seq_fill(&d, s);
	assert_int_equal(door_offload(&d, s), 16);
	assert_int_equal(kvmm_reclaim(d.pool, 0, NULL), 0);
	n = kvmm_keys(d.pool, &cursor, e, 32);
	assert_int_equal(n, 16);
	memset(junk, 0x77, sizeof(junk));
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	for (i = 0; i < n; i++)
		if (e[i].position == 9)
			assert_int_equal(pwrite(fd, junk, sizeof(junk),
						(off_t)e[i].slot * LT_BLOCK +
							17),
					 sizeof(junk));
	assert_int_equal(fsync(fd), 0);
	close(fd);
	seq_clear(&d, s);
	assert_int_equal(door_restore(&d, s), 9);
	seq_check(&d, s, 0, 9);
	assert_int_equal(told.calls, 1);
	assert_int_equal(told.first[0], 9);
	assert_int_equal(told.n[0], 7);
	assert_int_equal(lt_stat(d.pool).checksum_errors, 1);
	door_no_pins(d.pool);
	door_end(&d);
	unlink(path);
	free(s);
}

/* ---- by handle ---- */

static void by_handle(void **state)
{
	struct door d;
	struct seq *s = begin(&d, state, 64, 0);
	struct kvmm_block_ref refs[10], got[10];
	struct kvmm_pool *other = NULL;
	struct kvmm_job_info info;
	struct kvmm_transfer t;
	uint64_t handles[10];
	unsigned int i;

	d.eng = door_open(&d, d.pool, NULL);
	/* the scheduler is another client */
	assert_int_equal(kvmm_pool_open(d.lt->kv, "door", 0, &other), 0);
	assert_int_equal(kvmm_alloc(other, refs, 10, 1, 0), 10);
	for (i = 0; i < 10; i++)
		handles[i] = refs[i].handle;
	seq_new(&d, s, 10, 100, 0);
	seq_fill(&d, s);
	t = seq_transfer(&d, s);
	t.handles = handles;

	/* what is being filled can't be restored */
	info = one(&d, &t, false, got);
	assert_int_equal(info.good, 0);
	assert_int_equal(got[0].result, -EBUSY);

	info = one(&d, &t, true, got);
	assert_int_equal(info.good, 10);
	assert_int_equal(info.prefix, 10);
	assert_int_equal(kvmm_unpin(other, refs, 10), 10);

	/* what is published is never written to */
	seq_clear(&d, s);
	info = one(&d, &t, true, got);
	assert_int_equal(info.good, 0);
	assert_int_equal(got[3].result, -EBUSY);

	t.keys = NULL;
	info = one(&d, &t, false, got);
	assert_int_equal(info.prefix, 10);
	seq_check(&d, s, 0, 10);

	/* one is gone by the time */
	got[4].handle = handles[4];
	assert_int_equal(kvmm_drop(other, &got[4], 1), 1);
	seq_clear(&d, s);
	info = one(&d, &t, false, got);
	assert_int_equal(info.prefix, 4);
	assert_int_equal(got[4].result, -ESTALE);
	seq_check(&d, s, 0, 4);
	kvmm_pool_close(other);
	door_end(&d);
	free(s);
}

/* Evicted between lookup and restore: from memory into the area. */
static void evicted_meanwhile(void **state)
{
	struct door d;
	struct seq *s = begin(&d, state, 16, 32);
	struct kvmm_block_ref refs[8];
	struct kvmm_transfer t;
	uint64_t handles[8];
	unsigned int i;

	d.eng = door_open(&d, d.pool, NULL);
	lt_attach(d.pool, lt_path(d.lt), KVMM_SWAP_UNLINK);
	seq_new(&d, s, 8, 100, 0);
	seq_fill(&d, s);
	assert_int_equal(door_offload(&d, s), 8);
	assert_int_equal(kvmm_lookup(d.pool, s->keys, refs, 8, 0), 8);
	for (i = 0; i < 8; i++)
		handles[i] = refs[i].handle;
	assert_int_equal(kvmm_reclaim(d.pool, 0, NULL), 0);
	seq_clear(&d, s);
	t = seq_transfer(&d, s);
	t.handles = handles;
	assert_int_equal(one(&d, &t, false, NULL).prefix, 8);
	seq_check(&d, s, 0, 8);
	/* and lost altogether */
	assert_int_equal(kvmm_pool_reset(d.pool, NULL), 0);
	assert_int_equal(one(&d, &t, false, refs).prefix, 0);
	assert_int_equal(refs[0].result, -ESTALE);
	door_end(&d);
	free(s);
}

/* ---- no room ---- */

static void no_frames(void **state)
{
	struct door d;
	struct seq *s = begin(&d, state, 8, 0);
	struct kvmm_block_ref refs[12], hold[4];
	struct kvmm_job_info info;
	struct kvmm_transfer t;
	unsigned int i;

	d.eng = door_open(&d, d.pool, NULL);
	assert_int_equal(kvmm_alloc(d.pool, hold, 4, 1, 0), 4);
	seq_new(&d, s, 12, 100, 0);
	seq_fill(&d, s);
	t = seq_transfer(&d, s);
	info = one(&d, &t, true, refs);
	assert_int_equal(info.status, 0);
	assert_int_equal(info.good, 4);
	assert_int_equal(info.prefix, 4);
	for (i = 4; i < 12; i++) {
		assert_int_equal(refs[i].result, -ENOSPC);
		assert_int_equal(refs[i].handle, 0);
	}
	/* with time to wait it is the same, a little later */
	seq_new(&d, s, 12, 200, 0);
	t = seq_transfer(&d, s);
	t.timeout_us = 20000;
	info = one(&d, &t, true, refs);
	assert_int_equal(info.good, 4);
	assert_true(refs[11].result == -ENOSPC ||
		    refs[11].result == -ETIMEDOUT ||
		    refs[11].result == -EAGAIN);
	kvmm_unpin(d.pool, hold, 4);
	door_end(&d);
	free(s);
}

/* Waits for frames: cold blocks have to be written out first. */
static void waits_for_frames(void **state)
{
	struct door d;
	struct seq *s = begin(&d, state, 16, 64);
	struct kvmm_transfer t;

	d.eng = door_open(&d, d.pool, NULL);
	lt_attach(d.pool, lt_path(d.lt), KVMM_SWAP_UNLINK);
	seq_new(&d, s, 16, 100, 0);
	seq_fill(&d, s);
	assert_int_equal(door_offload(&d, s), 16);
	seq_new(&d, s, 16, 200, 64);
	seq_fill(&d, s);
	t = seq_transfer(&d, s);
	t.timeout_us = 30000000;
	assert_int_equal(one(&d, &t, true, NULL).good, 16);
	seq_new(&d, s, 16, 100, 128);
	assert_int_equal(door_restore(&d, s), 16);
	seq_check(&d, s, 0, 16);
	door_end(&d);
	free(s);
}

/* ---- numbers, descriptors, limits ---- */

static bool readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

static void descriptors(void **state)
{
	struct door d;
	struct seq *s = begin(&d, state, 64, 0);
	struct kvmm_transfer t;
	uint64_t job, other, done[4];
	int fd, late;

	d.eng = door_open(&d, d.pool, NULL);
	seq_new(&d, s, 8, 100, 0);
	seq_fill(&d, s);
	t = seq_transfer(&d, s);
	assert_false(readable(kvmm_engine_fd(d.eng), 0));
	assert_int_equal(kvmm_job_next(d.eng, done, 4), 0);
	assert_int_equal(kvmm_offload(d.eng, &t, &job), 0);
	fd = kvmm_job_fd(d.eng, job);
	assert_true(fd >= 0);
	assert_int_equal(kvmm_job_fd(d.eng, job), fd);
	assert_true(readable(fd, 60000));
	assert_int_equal(kvmm_job_wait(d.eng, job, 0), 0);
	assert_true(readable(kvmm_engine_fd(d.eng), 0));
	assert_int_equal(kvmm_restore(d.eng, &t, &other), 0);
	assert_int_not_equal(other, job);
	assert_int_equal(kvmm_job_wait(d.eng, other, -1), 0);
	late = kvmm_job_fd(d.eng, other);
	assert_true(readable(late, 0));
	assert_int_equal(kvmm_job_next(d.eng, done, 1), 1);
	assert_int_equal(done[0], job);
	assert_true(readable(kvmm_engine_fd(d.eng), 0));
	assert_int_equal(kvmm_job_next(d.eng, done, 4), 1);
	assert_int_equal(done[0], other);
	assert_false(readable(kvmm_engine_fd(d.eng), 0));
	assert_int_equal(kvmm_job_end(d.eng, job), 0);
	assert_int_equal(kvmm_job_end(d.eng, other), 0);

	/* one that nobody asked for goes from the list when it is ended */
	assert_int_equal(kvmm_restore(d.eng, &t, &job), 0);
	assert_int_equal(kvmm_job_wait(d.eng, job, -1), 0);
	assert_true(readable(kvmm_engine_fd(d.eng), 0));
	assert_int_equal(kvmm_job_end(d.eng, job), 0);
	assert_false(readable(kvmm_engine_fd(d.eng), 0));
	assert_int_equal(kvmm_job_next(d.eng, done, 4), 0);
	door_end(&d);
	free(s);
}

/*
 * The number of a job that has ended is free at once, its place when the
 * engine's threads have let go of it.
 */
static int restore_soon(struct kvmm_engine *eng, struct kvmm_transfer *t,
			uint64_t *job)
{
	int ret;

	while ((ret = kvmm_restore(eng, t, job)) == -EAGAIN)
		usleep(100);
	return ret;
}

static void stale_numbers(void **state)
{
	struct kvmm_engine_opts o = { .max_jobs = 2 };
	struct door d;
	struct seq *s = begin(&d, state, 64, 0);
	struct kvmm_job_info info;
	struct kvmm_transfer t;
	uint64_t job, first, second;
	unsigned int i;

	d.eng = door_open(&d, d.pool, &o);
	seq_new(&d, s, 2, 100, 0);
	seq_fill(&d, s);
	t = seq_transfer(&d, s);
	assert_int_equal(kvmm_offload(d.eng, &t, &first), 0);
	assert_int_equal(door_done(d.eng, first, NULL), 0);
	for (i = 0; i < 10; i++) {
		assert_int_equal(restore_soon(d.eng, &t, &job), 0);
		assert_int_not_equal(job, first);
		/* an old number never means the job that came after */
		assert_fails(kvmm_job_info(d.eng, first, &info), ESTALE);
		assert_fails(kvmm_job_wait(d.eng, first, 0), ESTALE);
		assert_fails(kvmm_job_cancel(d.eng, first), ESTALE);
		assert_fails(kvmm_job_end(d.eng, first), ESTALE);
		assert_fails(kvmm_job_fd(d.eng, first), ESTALE);
		assert_fails(kvmm_job_blocks(d.eng, first, NULL, 0), ESTALE);
		assert_fails(kvmm_job_skip(d.eng, first, 0), ESTALE);
		assert_fails(kvmm_job_fence(d.eng, first, 0, NULL, 0), ESTALE);
		assert_int_equal(door_done(d.eng, job, NULL), 0);
	}
	assert_int_equal(restore_soon(d.eng, &t, &first), 0);
	assert_int_equal(restore_soon(d.eng, &t, &second), 0);
	assert_fails(kvmm_restore(d.eng, &t, &job), EAGAIN);
	assert_int_equal(door_done(d.eng, first, NULL), 0);
	assert_int_equal(restore_soon(d.eng, &t, &job), 0);
	assert_int_equal(door_done(d.eng, second, NULL), 0);
	assert_int_equal(door_done(d.eng, job, NULL), 0);
	assert_fails(kvmm_job_info(d.eng, 0, &info), ESTALE);
	assert_fails(kvmm_job_info(d.eng, ~0ULL, &info), ESTALE);
	door_end(&d);
	free(s);
}

static void bad_requests(void **state)
{
	struct kvmm_pool *rdonly = NULL;
	struct kvmm_engine *reader;
	struct door d;
	struct seq *s = begin(&d, state, 16, 0);
	struct kvmm_transfer ok, t;
	uint64_t job;

	d.eng = door_open(&d, d.pool, NULL);
	seq_new(&d, s, 4, 100, 0);
	seq_fill(&d, s);
	ok = seq_transfer(&d, s);
#define BAD(what) do {							\
		t = ok;							\
		what;							\
		assert_fails(kvmm_offload(d.eng, &t, &job), EINVAL);	\
	} while (0)
	BAD(t.size = 8);
	BAD(t.flags = 1U << 20);
	BAD(t.flags = KVMM_JOB_HOLES);
	BAD(t.n = 0);
	BAD(t.keys = NULL);
	BAD(t.gpu_blocks = NULL);
	BAD(t.tokens = 3 * 2 * TOKENS);
	BAD(t.tokens = 4 * 2 * TOKENS + 1);
	BAD(t.block_flags = KVMM_BLOCK_PARTIAL);
	BAD(s->ids[7] = 512);
	t = ok;
	assert_fails(kvmm_restore(d.eng, &t, &job), EINVAL);
	/* the second half of the last block isn't used */
	t.tokens = 3 * 2 * TOKENS + TOKENS;
	assert_int_equal(kvmm_offload(d.eng, &t, &job), 0);
	assert_int_equal(door_done(d.eng, job, NULL), 0);
	s->ids[7] = 7;
	assert_fails(kvmm_offload(d.eng, NULL, &job), EINVAL);
	assert_fails(kvmm_offload(d.eng, &ok, NULL), EINVAL);
	assert_fails(kvmm_restore(d.eng, &ok, NULL), EINVAL);
	if (!d.cuda) {
		t = ok;
		t.event = &t;
		assert_fails(kvmm_restore(d.eng, &t, &job), EINVAL);
	}

	/* a client that may only read restores, and stores nothing */
	assert_int_equal(kvmm_pool_open(d.lt->kv, "door", KVMM_POOL_RDONLY,
					&rdonly), 0);
	reader = door_open(&d, rdonly, NULL);
	assert_fails(kvmm_offload(reader, &ok, &job), EACCES);
	t = ok;
	t.tokens = 3 * 2 * TOKENS + TOKENS;
	seq_clear(&d, s);
	assert_int_equal(kvmm_restore(reader, &t, &job), 0);
	assert_int_equal(door_done(reader, job, NULL), 0);
	seq_check(&d, s, 0, 3);
	kvmm_engine_close(reader);
	kvmm_pool_close(rdonly);
	door_end(&d);
	free(s);
}

static void bad_engines(void **state)
{
	struct kvmm_cost cost = { .token_us = -1 };
	struct kvmm_filter filter = { .entries = 3 };
	struct kvmm_engine *eng = NULL;
	struct kvmm_engine_opts ok, o;
	struct door d;
	struct seq *s = begin(&d, state, 16, 0);

	memset(&ok, 0, sizeof(ok));
	ok.size = sizeof(ok);
	ok.device = KVMM_DEVICE_HOST;
	ok.layout = &d.lay;
#define BAD_OPEN(what, error) do {					\
		o = ok;							\
		what;							\
		assert_fails(kvmm_engine_open(d.pool, &o, &eng), error);\
	} while (0)
	BAD_OPEN(o.size = 8, EINVAL);
	BAD_OPEN(o.flags = 1U << 9, EINVAL);
	BAD_OPEN(o.device = 9, EINVAL);
	BAD_OPEN(o.layout = NULL, EINVAL);
	BAD_OPEN(o.part = 1, EINVAL);
	BAD_OPEN(o.nr_parts = KVMM_MAX_PARTS + 1, EINVAL);
	BAD_OPEN(o.max_jobs = KVMM_MAX_JOBS + 1, EINVAL);
	BAD_OPEN(o.io_threads = 1000, EINVAL);
	BAD_OPEN(o.nr_parts = 64, E2BIG);
	BAD_OPEN(o.cost = &cost, EINVAL);
	BAD_OPEN(o.filter = &filter, EINVAL);
	BAD_OPEN((o.device = KVMM_DEVICE_CUDA, o.libcuda = "/none.so"), ENOENT);
	assert_fails(kvmm_engine_open(NULL, &ok, &eng), EINVAL);
	assert_fails(kvmm_engine_open(d.pool, NULL, &eng), EINVAL);
	assert_fails(kvmm_engine_open(d.pool, &ok, NULL), EINVAL);
	assert_int_equal(kvmm_engine_open(d.pool, &ok, &eng), 0);
	assert_fails(kvmm_engine_cost(eng, &cost), EINVAL);
	kvmm_engine_close(eng);
	kvmm_engine_close(NULL);
	door_end(&d);
	free(s);
}

static const struct lt_test tests[] = {
	LT_TEST(out_and_in),
	LT_TEST(fork_copies_nothing),
	LT_TEST(chain_is_told),
	LT_TEST(from_the_area),
	LT_TEST(misses),
	LT_TEST(wrong_checksum),
	LT_TEST(by_handle),
	LT_TEST(evicted_meanwhile),
	LT_TEST(no_frames),
	LT_TEST(waits_for_frames),
	LT_TEST(descriptors),
	LT_TEST(stale_numbers),
	LT_TEST(bad_requests),
	LT_TEST(bad_engines),
};

int main(void)
{
	return LT_RUN("move", tests);
}
