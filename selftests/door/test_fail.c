// SPDX-License-Identifier: MIT
/*
 * What fails: copies, reads, publishing, any call of the driver, the device.
 * Whatever it is, data is right or reported, and nothing is left behind.
 */
#include "door.h"

static struct {
	unsigned int copy_at;	/* this copy fails, from 1; 0: none */
	bool copy_half;		/* after it was put into the stream */
	unsigned int copies;
	int swap_call;		/* swap-in fails as a whole */
	unsigned int swap_every;/* each so many-th block fails */
	int publish;
} inject;

long __real_kvmm_swap_in(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
			 unsigned int n, unsigned int flags);
long __wrap_kvmm_swap_in(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
			 unsigned int n, unsigned int flags);
int __real_kvmm_gpu_copy(struct kvmm_gpu_stream *stream, enum kvmm_gpu_dir dir,
			 const struct kvmm_gpu_copy *copies, size_t nr);
int __wrap_kvmm_gpu_copy(struct kvmm_gpu_stream *stream, enum kvmm_gpu_dir dir,
			 const struct kvmm_gpu_copy *copies, size_t nr);
long __real_kvmm_publish(struct kvmm_pool *pool, struct kvmm_publish_entry *e,
			 unsigned int n, unsigned int flags);
long __wrap_kvmm_publish(struct kvmm_pool *pool, struct kvmm_publish_entry *e,
			 unsigned int n, unsigned int flags);

long __wrap_kvmm_swap_in(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
			 unsigned int n, unsigned int flags)
{
	struct kvmm_block_ref pin;
	unsigned int i;
	long ret;

	if (inject.swap_call)
		return inject.swap_call;
	ret = __real_kvmm_swap_in(pool, refs, n, flags);
	for (i = 0; i < n && inject.swap_every; i++) {
		if ((i + 1) % inject.swap_every || refs[i].result < 0)
			continue;
		pin = refs[i];
		kvmm_unpin(pool, &pin, 1);
		refs[i].result = -ESTALE;
		ret--;
	}
	return ret;
}

int __wrap_kvmm_gpu_copy(struct kvmm_gpu_stream *stream, enum kvmm_gpu_dir dir,
			 const struct kvmm_gpu_copy *copies, size_t nr)
{
	if (++inject.copies != inject.copy_at)
		return __real_kvmm_gpu_copy(stream, dir, copies, nr);
	if (inject.copy_half)
		__real_kvmm_gpu_copy(stream, dir, copies, nr);
	return -EIO;
}

long __wrap_kvmm_publish(struct kvmm_pool *pool, struct kvmm_publish_entry *e,
			 unsigned int n, unsigned int flags)
{
	if (inject.publish)
		return inject.publish;
	return __real_kvmm_publish(pool, e, n, flags);
}

#define N	10

static unsigned int told_first, told_n;

static void on_recompute(void *ctx, uint64_t job, uint64_t tag,
			 unsigned int first, unsigned int n)
{
	(void)ctx;
	(void)job;
	(void)tag;
	told_first = first;
	told_n = n;
}

static struct seq *begin(struct door *d, void **state, const char *const *env)
{
	static const struct kvmm_hooks hooks = { .recompute = on_recompute };
	struct kvmm_engine_opts o = { .hooks = &hooks };
	struct seq *s = malloc(sizeof(*s));

	memset(&inject, 0, sizeof(inject));
	door_start(d, *state, env);
	door_simple(d, 3, 3, 8, 64, 1, 64);
	door_pool(d, 32, 64);
	lt_attach(d->pool, lt_path(d->lt), KVMM_SWAP_UNLINK);
	d->eng = door_open(d, d->pool, &o);
	seq_new(d, s, N, 100, 0);
	return s;
}

static int run(struct door *d, struct seq *s, bool out,
	       struct kvmm_job_info *info)
{
	struct kvmm_transfer t = seq_transfer(d, s);
	uint64_t job;
	int ret;

	memset(info, 0, sizeof(*info));
	ret = out ? kvmm_offload(d->eng, &t, &job)
		  : kvmm_restore(d->eng, &t, &job);
	if (ret)
		return ret;
	ret = kvmm_job_wait(d->eng, job, -1);
	assert_int_equal(kvmm_job_info(d->eng, job, info), 0);
	assert_int_equal(kvmm_job_end(d->eng, job), 0);
	return ret;
}

/* Each of the copies of a job fails once, with nothing or half of it done. */
static void copy_fails(void **state)
{
	struct kvmm_job_info info;
	struct door d;
	struct seq *s = begin(&d, state, NULL);
	unsigned int at, half;

	for (half = 0; half < 2; half++) {
		for (at = 1; at <= 3; at++) {
			seq_fill(&d, s);
			inject.copies = 0;
			inject.copy_at = at;
			inject.copy_half = half;
			assert_int_equal(run(&d, s, true, &info), -EIO);
			assert_int_equal(info.good, 0);
			assert_int_equal(info.prefix, 0);
			assert_int_equal(lt_find(d.pool, 100, 0, NULL),
					 KVMM_MISS);
			door_no_pins(d.pool);
			/* the engine goes on */
			inject.copy_at = 0;
			assert_int_equal(run(&d, s, true, &info), 0);
			assert_int_equal(info.good, N);

			seq_clear(&d, s);
			told_n = 0;
			inject.copies = 0;
			inject.copy_at = at;
			assert_int_equal(run(&d, s, false, &info), -EIO);
			assert_int_equal(info.prefix, 0);
			assert_int_equal(told_first, 0);
			assert_int_equal(told_n, N);
			door_no_pins(d.pool);
			inject.copy_at = 0;
			assert_int_equal(run(&d, s, false, &info), 0);
			assert_int_equal(info.prefix, N);
			seq_check(&d, s, 0, N);
			assert_int_equal(kvmm_pool_reset(d.pool, NULL), 0);
		}
	}
	door_end(&d);
	free(s);
}

/* What a failed call has put into the stream must end before the job does. */
static void failed_copy_drains(void **state)
{
	struct kvmm_job_info info;
	struct kvmm_transfer t;
	struct door d;
	struct seq *s = begin(&d, state, NULL);
	void *lane = kvmm_gpu_stream_native(d.eng->lane[KVMM_WAY_OUT].stream);
	uint64_t job;

	seq_fill(&d, s);
	t = seq_transfer(&d, s);
	inject.copy_at = 2;
	inject.copy_half = true;
	fake.hold(lane, 1);
	assert_int_equal(kvmm_offload(d.eng, &t, &job), 0);
	assert_int_equal(kvmm_job_wait(d.eng, job, 60), -ETIMEDOUT);
	assert_int_equal(lt_stat(d.pool).blocks[KVMM_FILLING], N);
	fake.hold(lane, 0);
	assert_int_equal(door_done(d.eng, job, &info), -EIO);
	door_end(&d);
	free(s);
}

static void read_fails(void **state)
{
	struct kvmm_job_info info;
	struct door d;
	struct seq *s = begin(&d, state, NULL);
	struct kvmm_plan plan;

	seq_fill(&d, s);
	assert_int_equal(run(&d, s, true, &info), 0);
	assert_int_equal(kvmm_reclaim(d.pool, 0, NULL), 0);
	seq_clear(&d, s);
	/* block 5 of each lot is lost */
	inject.swap_every = 6;
	assert_int_equal(run(&d, s, false, &info), 0);
	assert_int_equal(info.prefix, 5);
	/* nor is the rest: it would be of no use */
	assert_int_equal(info.good, 5);
	assert_int_equal(told_first, 5);
	assert_int_equal(told_n, N - 5);
	seq_check(&d, s, 0, 5);
	door_no_pins(d.pool);

	assert_int_equal(kvmm_reclaim(d.pool, 0, NULL), 0);
	inject.swap_every = 0;
	inject.swap_call = -EIO;
	assert_int_equal(run(&d, s, false, &info), 0);
	assert_int_equal(info.prefix, 0);
	assert_int_equal(told_n, N);
	/* a disk that failed is not planned with, memory is */
	assert_int_equal(kvmm_plan(d.eng, s->keys, N, 80, 0, &plan), 0);
	assert_int_equal(plan.hits, N);
	assert_int_equal(plan.count, 0);
	inject.swap_call = 0;
	assert_int_equal(run(&d, s, false, &info), 0);
	assert_int_equal(info.prefix, N);
	seq_check(&d, s, 0, N);
	assert_int_equal(kvmm_reclaim(d.pool, 0, NULL), 0);
	assert_int_equal(kvmm_plan(d.eng, s->keys, N, 80, 0, &plan), 0);
	assert_int_equal(plan.count, N);
	door_end(&d);
	free(s);
}

static void publish_fails(void **state)
{
	struct kvmm_job_info info;
	struct door d;
	struct seq *s = begin(&d, state, NULL);

	seq_fill(&d, s);
	inject.publish = -ENODEV;
	assert_int_equal(run(&d, s, true, &info), -ENODEV);
	assert_int_equal(info.good, 0);
	door_no_pins(d.pool);
	inject.publish = 0;
	/* a new epoch begins while blocks are on their way: they are lost */
	assert_int_equal(run(&d, s, true, &info), 0);
	assert_int_equal(info.good, N);
	door_end(&d);
	free(s);
}

/* The weights are updated while blocks are on their way: all are refused. */
static void new_epoch(void **state)
{
	struct kvmm_job_info info;
	struct kvmm_block_ref refs[N];
	struct kvmm_transfer t;
	struct door d;
	struct seq *s = begin(&d, state, NULL);
	void *lane = kvmm_gpu_stream_native(d.eng->lane[KVMM_WAY_OUT].stream);
	uint64_t job;

	t = seq_transfer(&d, s);
	fake.hold(lane, 1);
	assert_int_equal(kvmm_offload(d.eng, &t, &job), 0);
	do {
		assert_int_equal(kvmm_job_info(d.eng, job, &info), 0);
	} while (info.state < KVMM_JOB_DRAINING);
	assert_int_equal(kvmm_pool_reset(d.pool, NULL), 0);
	fake.hold(lane, 0);
	assert_int_equal(kvmm_job_wait(d.eng, job, -1), 0);
	assert_int_equal(kvmm_job_blocks(d.eng, job, refs, N), N);
	assert_int_equal(refs[0].result, -ESTALE);
	assert_int_equal(door_done(d.eng, job, &info), 0);
	assert_int_equal(lt_find(d.pool, 100, 0, NULL), KVMM_MISS);
	door_no_pins(d.pool);
	door_end(&d);
	free(s);
}

/*
 * Any call of the driver fails, early or late.  What can't be told to have
 * ended on the device loses it, which is said; it is never taken for good.
 */
static void driver_fails(void **state)
{
	static const char *const calls[] = {
		"cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuLaunchKernel",
		"cuEventRecord", "cuEventCreate", "cuStreamWaitEvent",
		"cuEventSynchronize", "cuEventQuery", "cuCtxPushCurrent",
		"cuStreamSynchronize", "cuStreamGetCtx",
	};
	unsigned int c, at, failed = 0, good = 0;
	struct kvmm_job_info info;

	for (c = 0; c < ARRAY_SIZE(calls); c++) {
		for (at = 1; at < 12; at += 2) {
			struct door d;
			struct seq *s = begin(&d, state, NULL);

			fake.fail_call(calls[c], at, 999);
			seq_fill(&d, s);
			if (!run(&d, s, true, &info)) {
				assert_int_equal(info.good, N);
				good++;
			} else {
				assert_int_equal(lt_find(d.pool, 100, 0, NULL),
						 KVMM_MISS);
			}
			door_no_pins(d.pool);
			seq_clear(&d, s);
			if (!run(&d, s, false, &info)) {
				seq_check(&d, s, 0, info.prefix);
				good++;
			}
			failed += fake.failed() > 0;
			door_end(&d);
			free(s);
		}
	}
	assert_true(failed > 15);
	assert_true(good > 40);
}

/* The device goes away with copies under way. */
static void device_lost(void **state)
{
	struct kvmm_job_info info;
	struct kvmm_transfer t;
	struct door d;
	struct seq *s = begin(&d, state, NULL);
	void *lane = kvmm_gpu_stream_native(d.eng->lane[KVMM_WAY_OUT].stream);
	uint64_t job[3], more;
	unsigned int i;

	seq_fill(&d, s);
	t = seq_transfer(&d, s);
	fake.hold(lane, 1);
	for (i = 0; i < 3; i++)
		assert_int_equal(i ? kvmm_restore(d.eng, &t, &job[i])
				   : kvmm_offload(d.eng, &t, &job[i]), 0);
	do {
		assert_int_equal(kvmm_job_info(d.eng, job[0], &info), 0);
	} while (info.state < KVMM_JOB_DRAINING);
	fake.lose(700);
	fake.hold(lane, 0);
	assert_int_equal(door_done(d.eng, job[0], &info), -EIO);
	for (i = 1; i < 3; i++)
		door_done(d.eng, job[i], NULL);
	assert_int_equal(lt_find(d.pool, 100, 0, NULL), KVMM_MISS);
	door_no_pins(d.pool);
	/* it is said at once from now on */
	assert_fails(kvmm_offload(d.eng, &t, &more), EIO);
	assert_fails(kvmm_restore(d.eng, &t, &more), EIO);
	kvmm_engine_close(d.eng);
	d.eng = NULL;
	fake.lose(0);
	door_end(&d);
	free(s);
}

/* What can't be registered is not copied, and is no reason to fail the rest. */
static void no_registration(void **state)
{
	struct kvmm_engine_opts o = { .flags = KVMM_ENGINE_LAZY };
	struct kvmm_engine *eng = NULL;
	struct kvmm_gpu_opts gpu = {
		.backend = KVMM_GPU_CUDA,
		.flags = KVMM_GPU_NO_CALIBRATION,
	};
	struct kvmm_job_info info;
	struct door d;
	struct seq *s = begin(&d, state, NULL);

	kvmm_engine_close(d.eng);
	gpu.libcuda = fake.path;
	o.size = sizeof(o);
	o.layout = &d.lay;
	fake.fail_call("cuMemHostRegister", 1, 2);
	o.flags = 0;
	assert_fails(eng_open_on(d.pool, &o, &gpu, &eng), ENOMEM);
	fake.fail_call("cuMemHostRegister", 1, 2);
	o.flags = KVMM_ENGINE_LAZY;
	assert_int_equal(eng_open_on(d.pool, &o, &gpu, &d.eng), 0);
	seq_fill(&d, s);
	/* the first block meets the failure, and ends the chain */
	assert_int_equal(run(&d, s, true, &info), 0);
	assert_int_equal(info.good, 0);
	door_no_pins(d.pool);
	assert_int_equal(run(&d, s, true, &info), 0);
	assert_int_equal(info.good, N);
	seq_clear(&d, s);
	assert_int_equal(run(&d, s, false, &info), 0);
	assert_int_equal(info.prefix, N);
	seq_check(&d, s, 0, N);
	door_end(&d);
	free(s);
}

static const struct lt_test host_tests[] = {
	LT_TEST(copy_fails),
	LT_TEST(read_fails),
	LT_TEST(publish_fails),
};

static const struct lt_test cuda_tests[] = {
	LT_TEST(copy_fails),
	LT_TEST(read_fails),
	LT_TEST(publish_fails),
	LT_TEST(failed_copy_drains),
	LT_TEST(new_epoch),
	LT_TEST(driver_fails),
	LT_TEST(device_lost),
	LT_TEST(no_registration),
};

int main(void)
{
	return door_cuda() ? LT_RUN("fail", cuda_tests)
			   : LT_RUN("fail", host_tests);
}
