// SPDX-License-Identifier: MIT
/*
 * The fixture of the high door's tests.
 */
#include "door.h"

#include <dlfcn.h>
#include <libgen.h>

struct fake fake;

bool door_cuda(void)
{
	const char *name = getenv("KVMM_TEST_DEVICE");

	return name && !strcmp(name, "cuda");
}

unsigned int door_seed(void)
{
	const char *seed = getenv("KVMM_TEST_SEED");

	return seed ? (unsigned int)atoi(seed) : 1;
}

static void symbol(void *dl, const char *name, void *field)
{
	void *fn = dlsym(dl, name);

	if (!fn) {
		fprintf(stderr, "%s: not in the stand-in\n", name);
		exit(1);
	}
	memcpy(field, &fn, sizeof(fn));
}

static void load_fake(void)
{
	const char *path = getenv("KVMM_TEST_LIBCUDA");
	char exe[2048];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	void *dl;

	if (fake.reset)
		return;
	assert_true(n > 0);
	exe[n] = 0;
	if (path)
		snprintf(fake.path, sizeof(fake.path), "%s", path);
	else
		snprintf(fake.path, sizeof(fake.path),
			 "%s/../fakecuda/libcuda-fake.so.1", dirname(exe));
	dl = dlopen(fake.path, RTLD_NOW | RTLD_LOCAL);
	if (!dl) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
#define X(name) symbol(dl, "fakecuda_" #name, &fake.name);
	X(reset) X(leaks) X(violations) X(failed) X(peek) X(poke) X(hold)
	X(lose)
#undef X
	symbol(dl, "fakecuda_fail", &fake.fail_call);
	symbol(dl, "cuInit", &fake.api.init);
	symbol(dl, "cuDevicePrimaryCtxRetain", &fake.api.primary_retain);
	symbol(dl, "cuDevicePrimaryCtxRelease_v2", &fake.api.primary_release);
	symbol(dl, "cuCtxSetCurrent", &fake.ctx_set);
	symbol(dl, "cuMemAlloc_v2", &fake.api.mem_alloc);
	symbol(dl, "cuMemFree_v2", &fake.api.mem_free);
	symbol(dl, "cuStreamCreate", &fake.api.stream_create);
	symbol(dl, "cuStreamDestroy_v2", &fake.api.stream_destroy);
	symbol(dl, "cuStreamSynchronize", &fake.api.stream_sync);
	symbol(dl, "cuStreamWaitEvent", &fake.api.stream_wait);
	symbol(dl, "cuEventCreate", &fake.api.event_create);
	symbol(dl, "cuEventDestroy_v2", &fake.api.event_destroy);
	symbol(dl, "cuEventRecord", &fake.api.event_record);
	symbol(dl, "cuEventQuery", &fake.api.event_query);
	symbol(dl, "cuMemcpyHtoDAsync_v2", &fake.api.copy_in);
	symbol(dl, "cuMemcpyDtoHAsync_v2", &fake.api.copy_out);
	symbol(dl, "cuMemHostRegister_v2", &fake.api.host_register);
	symbol(dl, "cuMemHostUnregister", &fake.api.host_unregister);
}

static void set_env(const char *const *env)
{
	static const char *const names[] = {
		"SEED", "DELAY_US", "DEVICES", "VERSION", "PAGEABLE", "MEMORY",
		"MISSING", "FAIL", "RDONLY",
	};
	char name[64], option[512], *value;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(name, sizeof(name), "FAKECUDA_%s", names[i]);
		unsetenv(name);
	}
	for (; env && *env; env++) {
		snprintf(option, sizeof(option), "FAKECUDA_%s", *env);
		value = strchr(option, '=');
		*value++ = 0;
		setenv(option, value, 1);
	}
}

void door_start(struct door *d, struct lt *lt, const char *const *env)
{
	memset(d, 0, sizeof(*d));
	d->lt = lt;
	d->cuda = door_cuda();
	d->delay_us = 200;
	d->lay.size = sizeof(d->lay);
	d->lay.runs = d->runs;
	if (!d->cuda)
		return;
	load_fake();
	set_env(env);
	assert_int_equal(fake.reset(), 0);
	assert_int_equal(fake.api.init(0), 0);
	assert_int_equal(fake.api.primary_retain(&d->ctx, 0), 0);
	assert_int_equal(fake.ctx_set(d->ctx), 0);
}

void door_pool(struct door *d, unsigned int frames, unsigned int slots)
{
	d->pool = lt_pool(d->lt, "door", frames, slots, 0);
}

struct kvmm_engine *door_open(struct door *d, struct kvmm_pool *pool,
			      const struct kvmm_engine_opts *more)
{
	struct kvmm_engine_opts o = { .size = sizeof(o) };
	struct kvmm_gpu_opts gpu = {
		.backend = d->cuda ? KVMM_GPU_CUDA : KVMM_GPU_HOST,
		.flags = KVMM_GPU_NO_CALIBRATION,
		.libcuda = fake.path,
		.host_delay_us = d->cuda ? 0 : d->delay_us,
		.max_chunk = 1 << 20,
	};
	struct kvmm_engine *eng = NULL;
	int err;

	if (more)
		o = *more;
	o.size = sizeof(o);
	o.layout = &d->lay;
	err = eng_open_on(pool, &o, &gpu, &eng);
	if (err)
		fail_msg("no engine: %s\n%s", strerror(-err), d->lt->log);
	return eng;
}

void door_no_pins(struct kvmm_pool *pool)
{
	struct kvmm_pool_stat st = lt_stat(pool);

	assert_int_equal(st.pins, 0);
	assert_int_equal(st.blocks_pinned, 0);
	assert_int_equal(st.blocks[KVMM_FILLING], 0);
}

void door_end(struct door *d)
{
	unsigned int i;

	kvmm_engine_close(d->eng);
	if (d->pool) {
		door_no_pins(d->pool);
		lt_end(d->lt, d->pool, "door");
	}
	for (i = 0; i < d->nr_mems; i++) {
		if (d->cuda)
			assert_int_equal(fake.api.mem_free(d->mem[i]), 0);
		else
			free((void *)(uintptr_t)d->mem[i]);
	}
	if (!d->cuda)
		return;
	assert_int_equal(fake.api.primary_release(0), 0);
	assert_int_equal(fake.violations(), 0);
	assert_int_equal(fake.leaks(1), 0);
}

uint64_t door_mem(struct door *d, size_t bytes)
{
	cu_deviceptr_t p = 0;
	void *zero = calloc(1, bytes);

	assert_true(d->nr_mems < MAX_TEST_MEMS);
	assert_non_null(zero);
	if (!d->cuda) {
		p = (uintptr_t)zero;
	} else {
		assert_int_equal(fake.api.mem_alloc(&p, bytes), 0);
		door_write(d, p, zero, bytes);
		free(zero);
	}
	d->mem[d->nr_mems++] = p;
	return p;
}

void door_read(struct door *d, uint64_t dev, void *to, size_t n)
{
	if (d->cuda)
		assert_int_equal(fake.peek(to, dev, n), 0);
	else
		memcpy(to, (void *)(uintptr_t)dev, n);
}

void door_write(struct door *d, uint64_t dev, const void *from, size_t n)
{
	if (d->cuda)
		assert_int_equal(fake.poke(dev, from, n), 0);
	else
		memcpy((void *)(uintptr_t)dev, from, n);
}

/* ---- the model ---- */

unsigned int door_tokens(const struct door *d)
{
	return d->lay.block_tokens *
	       (d->lay.gpu_blocks ? d->lay.gpu_blocks : 1);
}

void door_simple(struct door *d, unsigned int layers, unsigned int groups,
		 unsigned int tokens, unsigned int token_bytes,
		 unsigned int gpu_blocks, unsigned int nr_gpu_blocks)
{
	size_t bytes = (size_t)tokens * token_bytes;
	unsigned int i;

	d->lay.block_tokens = tokens;
	d->lay.gpu_blocks = gpu_blocks;
	d->lay.nr_gpu_blocks = nr_gpu_blocks;
	d->lay.nr_runs = 2 * layers;
	for (i = 0; i < 2 * layers; i++)
		d->runs[i] = (struct kvmm_run){
			.base = door_mem(d, bytes * nr_gpu_blocks),
			.block_stride = bytes,
			.bytes = bytes,
			.count = 1,
			.group = (uint16_t)(i / 2 * groups / layers),
		};
}

typedef void (*visit_t)(struct door *d, uint64_t dev, uint8_t *at, size_t n);

/* Byte by byte as the header says it, and not as the library does it. */
static size_t visit(struct door *d, const uint32_t *ids, unsigned int tokens,
		    uint8_t *frame, visit_t fn)
{
	unsigned int bt = d->lay.block_tokens, r, b, j;
	unsigned int blocks = d->lay.gpu_blocks ? d->lay.gpu_blocks : 1;
	size_t at = 0;

	for (r = 0; r < d->lay.nr_runs; r++) {
		const struct kvmm_run *run = &d->runs[r];

		for (b = 0; b < blocks && b * bt < tokens; b++) {
			unsigned int have = tokens - b * bt;
			uint64_t count = run->count, bytes = run->bytes;

			if (have > bt)
				have = bt;
			if (run->by == KVMM_BY_BYTES)
				bytes = bytes * have / bt;
			if (run->by == KVMM_BY_COUNT)
				count = count * have / bt;
			for (j = 0; j < count; j++) {
				fn(d, run->base + ids[b] * run->block_stride +
					      run->offset + j * run->stride,
				   frame + at, bytes);
				at += bytes;
			}
		}
	}
	return at;
}

static void do_read(struct door *d, uint64_t dev, uint8_t *at, size_t n)
{
	door_read(d, dev, at, n);
}

static void do_write(struct door *d, uint64_t dev, uint8_t *at, size_t n)
{
	door_write(d, dev, at, n);
}

size_t door_pack(struct door *d, const uint32_t *ids, unsigned int tokens,
		 uint8_t *frame)
{
	return visit(d, ids, tokens, frame, do_read);
}

void door_fill(struct door *d, const uint32_t *ids, unsigned int tokens,
	       uint64_t id)
{
	uint8_t *frame = malloc(LT_BLOCK);

	lt_fill(frame, id, LT_BLOCK);
	visit(d, ids, tokens, frame, do_write);
	free(frame);
}

bool door_is(struct door *d, const uint32_t *ids, unsigned int tokens,
	     uint64_t id)
{
	uint8_t *frame = malloc(LT_BLOCK), *want = malloc(LT_BLOCK);
	size_t n = door_pack(d, ids, tokens, frame);
	bool same;

	lt_fill(want, id, LT_BLOCK);
	same = n && !memcmp(frame, want, n);
	free(frame);
	free(want);
	return same;
}

void door_check(struct door *d, const uint32_t *ids, unsigned int tokens,
		uint64_t id)
{
	if (!door_is(d, ids, tokens, id))
		fail_msg("GPU block %u is not block %llu", ids[0],
			 (unsigned long long)id);
}

/* ---- jobs ---- */

void seq_new(struct door *d, struct seq *s, unsigned int n, uint64_t first,
	     uint32_t gpu)
{
	unsigned int blocks = d->lay.gpu_blocks ? d->lay.gpu_blocks : 1, i;

	assert_true(n <= ARRAY_SIZE(s->keys));
	assert_true(n * blocks <= ARRAY_SIZE(s->ids));
	s->n = n;
	s->tokens = 0;
	s->first = first;
	for (i = 0; i < n * blocks; i++)
		s->ids[i] = gpu + i;
	for (i = 0; i < n; i++)
		lt_key(s->keys[i], first + i);
}

unsigned int seq_tokens(const struct door *d, const struct seq *s,
			unsigned int i)
{
	return s->tokens && i + 1 == s->n ? s->tokens : door_tokens(d);
}

const uint32_t *seq_ids(const struct door *d, const struct seq *s,
			unsigned int i)
{
	return &s->ids[i * (d->lay.gpu_blocks ? d->lay.gpu_blocks : 1)];
}

void seq_fill(struct door *d, const struct seq *s)
{
	unsigned int i;

	for (i = 0; i < s->n; i++)
		door_fill(d, seq_ids(d, s, i), seq_tokens(d, s, i),
			  s->first + i);
}

void seq_clear(struct door *d, const struct seq *s)
{
	unsigned int i;

	for (i = 0; i < s->n; i++)
		door_fill(d, seq_ids(d, s, i), seq_tokens(d, s, i),
			  ~(s->first + i));
}

void seq_check(struct door *d, const struct seq *s, unsigned int first,
	       unsigned int n)
{
	unsigned int i;

	for (i = first; i < first + n; i++)
		door_check(d, seq_ids(d, s, i), seq_tokens(d, s, i),
			   s->first + i);
}

struct kvmm_transfer seq_transfer(const struct door *d, const struct seq *s)
{
	return (struct kvmm_transfer){
		.size = sizeof(struct kvmm_transfer),
		.n = s->n,
		.tokens = s->tokens ? (s->n - 1) * door_tokens(d) + s->tokens
				    : 0,
		.keys = s->keys,
		.gpu_blocks = s->ids,
		.tag = s->first,
	};
}

int door_done(struct kvmm_engine *eng, uint64_t job,
	      struct kvmm_job_info *info)
{
	struct kvmm_job_info own;
	int ret = kvmm_job_wait(eng, job, -1);

	if (!info)
		info = &own;
	assert_int_equal(kvmm_job_info(eng, job, info), 0);
	assert_int_equal(info->state, KVMM_JOB_DONE);
	assert_int_equal(info->status, ret);
	assert_int_equal(kvmm_job_end(eng, job), 0);
	return ret;
}

static struct kvmm_job_info run(struct door *d, const struct seq *s, bool out)
{
	struct kvmm_transfer t = seq_transfer(d, s);
	struct kvmm_job_info info;
	uint64_t job;

	assert_int_equal(out ? kvmm_offload(d->eng, &t, &job)
			     : kvmm_restore(d->eng, &t, &job), 0);
	assert_int_equal(kvmm_job_wait(d->eng, job, -1), 0);
	assert_int_equal(kvmm_job_info(d->eng, job, &info), 0);
	assert_int_equal(info.tag, s->first);
	assert_int_equal(kvmm_job_end(d->eng, job), 0);
	return info;
}

unsigned int door_offload(struct door *d, const struct seq *s)
{
	return run(d, s, true).good;
}

unsigned int door_restore(struct door *d, const struct seq *s)
{
	return run(d, s, false).prefix;
}
