// SPDX-License-Identifier: MIT
/*
 * What engines are told of the pool: blocks that go, an area that fails.
 */
#include "door.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

static struct seq *begin(struct door *d, void **state, unsigned int frames,
			 unsigned int slots, const struct kvmm_hooks *hooks)
{
	struct kvmm_engine_opts o = { .hooks = hooks };
	struct seq *s = malloc(sizeof(*s));

	door_start(d, *state, NULL);
	door_simple(d, 2, 1, 8, 32, 1, 64);
	door_pool(d, frames, slots);
	lt_attach(d->pool, lt_path(d->lt), KVMM_SWAP_UNLINK);
	d->eng = door_open(d, d->pool, &o);
	return s;
}

static struct {
	pthread_mutex_t lock;
	unsigned int evicted, gone, lost, bad;
	int err;
	bool ids[64];
} seen = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void on_evicted(void *ctx, const void *key, int gone)
{
	uint64_t id;

	assert_ptr_equal(ctx, &seen);
	pthread_mutex_lock(&seen.lock);
	if (!key) {
		seen.lost++;
	} else {
		memcpy(&id, key, sizeof(id));
		if (id >= 100 && id < 164)
			seen.ids[id - 100] = true;
		seen.gone += gone;
		seen.evicted += !gone;
	}
	pthread_mutex_unlock(&seen.lock);
}

static void on_bad(void *ctx, int err)
{
	(void)ctx;
	pthread_mutex_lock(&seen.lock);
	seen.bad++;
	seen.err = err;
	pthread_mutex_unlock(&seen.lock);
}

/* Until so many were told; a busy machine takes its time. */
static void wait_for(const unsigned int *what, unsigned int n)
{
	unsigned int i, is;

	for (i = 0; i < 30000; i++) {
		pthread_mutex_lock(&seen.lock);
		is = *what;
		pthread_mutex_unlock(&seen.lock);
		if (is >= n)
			break;
		usleep(1000);
	}
	assert_int_equal(is, n);
}

static void evictions_are_told(void **state)
{
	struct kvmm_hooks hooks = { .ctx = &seen, .evicted = on_evicted };
	struct kvmm_event e;
	struct door d;
	struct seq *s;
	unsigned int i;

	memset(seen.ids, 0, sizeof(seen.ids));
	seen.evicted = 0;
	seen.gone = 0;
	s = begin(&d, state, 16, 16, &hooks);
	seq_new(&d, s, 12, 100, 0);
	assert_int_equal(door_offload(&d, s), 12);
	assert_int_equal(kvmm_reclaim(d.pool, 4, NULL), 0);
	wait_for(&seen.evicted, 8);
	assert_int_equal(seen.gone, 0);
	for (i = 0; i < 12; i++)
		assert_int_equal(seen.ids[i], i >= 4);
	/* the area goes: what is in it only is lost */
	assert_int_equal(kvmm_swap_detach(d.pool, KVMM_SWAP_DISCARD), 0);
	wait_for(&seen.gone, 8);
	kvmm_engine_close(d.eng);
	d.eng = NULL;
	/* the events are the program's again */
	assert_int_equal(kvmm_event_read(d.pool, &e, 1, 0), -ENOTCONN);
	door_end(&d);
	free(s);
}

/* The area can't be written: RLIMIT_FSIZE does what a full disk does. */
static void failing_area_is_told(void **state)
{
	struct kvmm_hooks hooks = { .ctx = &seen, .bad = on_bad };
	struct kvmm_block_ref refs[8];
	struct rlimit old, low;
	struct door d;
	struct seq *s;

	seen.bad = 0;
	s = begin(&d, state, 16, 16, &hooks);
	seq_new(&d, s, 8, 100, 0);
	assert_int_equal(door_offload(&d, s), 8);
	assert_int_equal(kvmm_lookup(d.pool, s->keys, refs, 8, 0), 8);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	low = old;
	low.rlim_cur = LT_BLOCK;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
	kvmm_swap_out(d.pool, refs, 8, 0);
	setrlimit(RLIMIT_FSIZE, &old);
	signal(SIGXFSZ, SIG_DFL);
	wait_for(&seen.bad, 1);
	assert_int_equal(seen.err, EFBIG);
	/* what is in memory is restored as ever */
	seq_clear(&d, s);
	assert_int_equal(door_restore(&d, s), 8);
	door_end(&d);
	free(s);
}

/* Opened, closed, opened again; destroyed under the engine's feet. */
static void come_and_go(void **state)
{
	struct kvmm_hooks hooks = { .ctx = &seen, .evicted = on_evicted };
	struct kvmm_engine_opts o = { .hooks = &hooks };
	struct kvmm_block_ref refs[4];
	struct kvmm_job_info info;
	struct kvmm_transfer t;
	struct door d;
	struct seq *s;
	unsigned int i;
	uint64_t job;

	s = begin(&d, state, 16, 16, &hooks);
	for (i = 0; i < 10; i++) {
		kvmm_engine_close(d.eng);
		d.eng = door_open(&d, d.pool, &o);
	}
	seq_new(&d, s, 4, 100, 0);
	assert_int_equal(door_offload(&d, s), 4);
	assert_int_equal(kvmm_pool_destroy(d.lt->kv, "door", KVMM_POOL_FORCE),
			 0);
	t = seq_transfer(&d, s);
	assert_int_equal(kvmm_restore(d.eng, &t, &job), 0);
	assert_int_equal(kvmm_job_wait(d.eng, job, -1), -ENODEV);
	assert_int_equal(kvmm_job_blocks(d.eng, job, refs, 4), 4);
	assert_int_equal(refs[0].result, -ENODEV);
	assert_int_equal(door_done(d.eng, job, &info), -ENODEV);
	assert_int_equal(kvmm_offload(d.eng, &t, &job), 0);
	assert_int_equal(door_done(d.eng, job, NULL), -ENODEV);
	kvmm_engine_close(d.eng);
	d.eng = NULL;
	kvmm_pool_close(d.pool);
	d.pool = NULL;
	door_end(&d);
	free(s);
}

static const struct lt_test tests[] = {
	LT_TEST(evictions_are_told),
	/* the kernel writes with no such limit */
	LT_TEST_ON(failing_area_is_told, LT_USER),
	LT_TEST(come_and_go),
};

int main(void)
{
	return LT_RUN("hooks", tests);
}
