// SPDX-License-Identifier: MIT
/*
 * Order on both sides: a job's copies wait for the engine's streams and events,
 * and the engine's streams wait for the job's copies, group by group.
 */
#include "door.h"

#define N	6

struct side {
	struct door d;
	struct seq s;
	cu_stream_t stream, other;
	cu_event_t event;
};

static struct side *begin(void **state, const char *const *env)
{
	struct side *f = calloc(1, sizeof(*f));
	struct door *d = &f->d;

	door_start(d, *state, env);
	door_simple(d, 4, 4, 8, 32, 1, 64);
	door_pool(d, 32, 0);
	d->eng = door_open(d, d->pool, NULL);
	seq_new(d, &f->s, N, 100, 0);
	seq_fill(d, &f->s);
	if (!d->cuda)
		return f;
	assert_int_equal(fake.api.stream_create(&f->stream, 1), 0);
	assert_int_equal(fake.api.stream_create(&f->other, 1), 0);
	assert_int_equal(fake.api.event_create(&f->event, 2), 0);
	return f;
}

static void end(struct side *f)
{
	kvmm_engine_close(f->d.eng);
	f->d.eng = NULL;
	if (f->d.cuda) {
		assert_int_equal(fake.api.event_destroy(f->event), 0);
		assert_int_equal(fake.api.stream_destroy(f->stream), 0);
		assert_int_equal(fake.api.stream_destroy(f->other), 0);
	}
	door_end(&f->d);
	free(f);
}

/* Not done, however long one waits. */
static void assert_waits(struct side *f, uint64_t job)
{
	assert_int_equal(kvmm_job_wait(f->d.eng, job, 60), -ETIMEDOUT);
}

/* Fence, and then the group's data is there. */
static void fence_then_data(void **state)
{
	static const char *const env[] = { "DELAY_US=2000", NULL };
	struct side *f = begin(state, env);
	struct kvmm_transfer t = seq_transfer(&f->d, &f->s);
	uint8_t want[256], is[256];
	unsigned int g, i, round;
	uint64_t job;

	assert_int_equal(door_offload(&f->d, &f->s), N);
	for (round = 0; round < 5; round++) {
		seq_clear(&f->d, &f->s);
		t.stream = f->stream;
		assert_int_equal(kvmm_restore(f->d.eng, &t, &job), 0);
		for (g = 0; g < 4; g++) {
			assert_int_equal(kvmm_job_fence(f->d.eng, job, g,
							f->stream, -1), N);
			if (f->d.cuda)
				assert_int_equal(
					fake.api.stream_sync(f->stream), 0);
			for (i = 0; i < N; i++) {
				uint8_t frame[LT_BLOCK];

				/* runs 2g and 2g + 1 of the packed block */
				lt_fill(frame, f->s.first + i, LT_BLOCK);
				memcpy(want, frame + g * 2 * 256, 256);
				door_read(&f->d, f->d.runs[2 * g].base +
						  f->s.ids[i] * 256ULL,
					  is, 256);
				assert_memory_equal(is, want, 256);
			}
		}
		assert_fails(kvmm_job_fence(f->d.eng, job, 4, f->stream, -1),
			     EINVAL);
		assert_int_equal(door_done(f->d.eng, job, NULL), 0);
	}
	end(f);
}

/* The copies see what the stream's work left, not what was there before. */
static void offload_after_stream(void **state)
{
	struct side *f = begin(state, NULL);
	struct kvmm_transfer t = seq_transfer(&f->d, &f->s);
	uint64_t job;

	fake.hold(f->stream, 1);
	assert_int_equal(fake.api.event_record(f->event, f->stream), 0);
	seq_clear(&f->d, &f->s);
	t.stream = f->stream;
	assert_int_equal(kvmm_offload(f->d.eng, &t, &job), 0);
	assert_waits(f, job);
	seq_fill(&f->d, &f->s);
	fake.hold(f->stream, 0);
	assert_int_equal(door_done(f->d.eng, job, NULL), 0);
	seq_clear(&f->d, &f->s);
	assert_int_equal(door_restore(&f->d, &f->s), N);
	seq_check(&f->d, &f->s, 0, N);
	end(f);
}

/* What still reads the GPU blocks is not overwritten under its hands. */
static void restore_after_stream(void **state)
{
	struct side *f = begin(state, NULL);
	struct kvmm_transfer t = seq_transfer(&f->d, &f->s);
	uint64_t job;

	assert_int_equal(door_offload(&f->d, &f->s), N);
	seq_clear(&f->d, &f->s);
	fake.hold(f->stream, 1);
	assert_int_equal(fake.api.event_record(f->event, f->stream), 0);
	t.stream = f->stream;
	assert_int_equal(kvmm_restore(f->d.eng, &t, &job), 0);
	assert_waits(f, job);
	assert_false(door_is(&f->d, &f->s.ids[0], 8, 100));
	fake.hold(f->stream, 0);
	assert_int_equal(door_done(f->d.eng, job, NULL), 0);
	seq_check(&f->d, &f->s, 0, N);
	end(f);
}

static void unordered(void **state)
{
	struct side *f = begin(state, NULL);
	struct kvmm_transfer t = seq_transfer(&f->d, &f->s);
	uint64_t job;

	fake.hold(f->stream, 1);
	assert_int_equal(fake.api.event_record(f->event, f->stream), 0);
	t.stream = f->stream;
	t.flags = KVMM_JOB_UNORDERED;
	assert_int_equal(kvmm_offload(f->d.eng, &t, &job), 0);
	assert_int_equal(door_done(f->d.eng, job, NULL), 0);
	/* but for an event that is given */
	seq_clear(&f->d, &f->s);
	t.event = f->event;
	assert_int_equal(kvmm_restore(f->d.eng, &t, &job), 0);
	assert_waits(f, job);
	assert_false(door_is(&f->d, &f->s.ids[0], 8, 100));
	fake.hold(f->stream, 0);
	assert_int_equal(door_done(f->d.eng, job, NULL), 0);
	seq_check(&f->d, &f->s, 0, N);
	end(f);
}

/* The first groups come through while a later one still waits. */
static void groups_overlap(void **state)
{
	struct side *f = begin(state, NULL);
	struct kvmm_transfer t = seq_transfer(&f->d, &f->s);
	void *events[4] = { 0 };
	uint8_t late[64], is[64];
	struct kvmm_block_ref ref;
	uint64_t job;

	memset(late, 0x5c, sizeof(late));
	fake.hold(f->stream, 1);
	assert_int_equal(fake.api.event_record(f->event, f->stream), 0);
	t.stream = f->other;
	t.group_events = events;
	events[2] = f->event;
	assert_int_equal(kvmm_offload(f->d.eng, &t, &job), 0);
	assert_int_equal(kvmm_job_fence(f->d.eng, job, 1, f->other, -1), N);
	assert_int_equal(fake.api.stream_sync(f->other), 0);
	assert_waits(f, job);
	/* nothing is visible before all of it is there */
	assert_int_equal(lt_find(f->d.pool, 100, 0, NULL), KVMM_MISS);
	/* run 4 is of group 2, which is computed only now; 256 bytes a run */
	door_write(&f->d, f->d.runs[4].base, late, sizeof(late));
	fake.hold(f->stream, 0);
	assert_int_equal(door_done(f->d.eng, job, NULL), 0);
	assert_int_equal(lt_find(f->d.pool, 100, KVMM_LOOKUP_PIN, &ref),
			 KVMM_MEMORY);
	memcpy(is, (char *)kvmm_addr(f->d.pool, &ref) + 4 * 256, sizeof(is));
	assert_memory_equal(is, late, sizeof(is));
	kvmm_unpin(f->d.pool, &ref, 1);
	end(f);
}

/* The caller does not wait for copies: its stream does. */
static void fence_is_asynchronous(void **state)
{
	struct side *f = begin(state, NULL);
	struct kvmm_transfer t = seq_transfer(&f->d, &f->s);
	void *lane = kvmm_gpu_stream_native(
		f->d.eng->lane[KVMM_WAY_IN].stream);
	uint64_t job;

	assert_int_equal(door_offload(&f->d, &f->s), N);
	seq_clear(&f->d, &f->s);
	t.stream = f->stream;
	fake.hold(lane, 1);
	assert_int_equal(kvmm_restore(f->d.eng, &t, &job), 0);
	assert_int_equal(kvmm_job_fence(f->d.eng, job, 3, f->other, -1), N);
	assert_int_equal(fake.api.event_record(f->event, f->other), 0);
	assert_waits(f, job);
	assert_int_not_equal(fake.api.event_query(f->event), 0);
	fake.hold(lane, 0);
	assert_int_equal(fake.api.stream_sync(f->other), 0);
	seq_check(&f->d, &f->s, 0, N);
	assert_int_equal(door_done(f->d.eng, job, NULL), 0);
	end(f);
}

/* Many jobs are under way at a time, and none waits for the caller. */
static void many_in_flight(void **state)
{
	struct side *f = begin(state, NULL);
	void *lane = kvmm_gpu_stream_native(
		f->d.eng->lane[KVMM_WAY_OUT].stream);
	struct kvmm_transfer t;
	uint64_t job[20];
	unsigned int i;

	fake.hold(lane, 1);
	for (i = 0; i < 20; i++) {
		seq_new(&f->d, &f->s, 1, 500 + i, i);
		seq_fill(&f->d, &f->s);
		t = seq_transfer(&f->d, &f->s);
		t.stream = f->stream;
		assert_int_equal(kvmm_offload(f->d.eng, &t, &job[i]), 0);
	}
	for (i = 0; i < 20; i++)
		assert_int_equal(kvmm_job_wait(f->d.eng, job[i], 0),
				 -ETIMEDOUT);
	fake.hold(lane, 0);
	for (i = 0; i < 20; i++)
		assert_int_equal(door_done(f->d.eng, job[i], NULL), 0);
	seq_new(&f->d, &f->s, 20, 500, 30);
	assert_int_equal(door_restore(&f->d, &f->s), 20);
	seq_check(&f->d, &f->s, 0, 20);
	end(f);
}

static void not_a_stream(void **state)
{
	struct side *f = begin(state, NULL);
	struct kvmm_transfer t = seq_transfer(&f->d, &f->s);
	uint64_t job;

	assert_int_equal(fake.api.stream_destroy(f->other), 0);
	t.stream = f->other;
	assert_true(kvmm_offload(f->d.eng, &t, &job) < 0);
	t.stream = NULL;
	assert_int_equal(kvmm_offload(f->d.eng, &t, &job), 0);
	assert_true(kvmm_job_fence(f->d.eng, job, 0, f->other, -1) < 0);
	assert_int_equal(door_done(f->d.eng, job, NULL), 0);
	assert_int_equal(fake.api.stream_create(&f->other, 1), 0);
	end(f);
}

static const struct lt_test host_tests[] = {
	LT_TEST(fence_then_data),
};

static const struct lt_test cuda_tests[] = {
	LT_TEST(fence_then_data),
	LT_TEST(offload_after_stream),
	LT_TEST(restore_after_stream),
	LT_TEST(unordered),
	LT_TEST(groups_overlap),
	LT_TEST(fence_is_asynchronous),
	LT_TEST(many_in_flight),
	LT_TEST(not_a_stream),
};

int main(void)
{
	return door_cuda() ? LT_RUN("fence", cuda_tests)
			   : LT_RUN("fence", host_tests);
}
