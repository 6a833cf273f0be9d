// SPDX-License-Identifier: MIT
/*
 * Offload and restore against plain memcpy of the same bytes: host memory as
 * the device, blocks of 64 fragments, in turns.
 *
 * usage: door [--fragment BYTES] [--blocks N] [--rounds N] [--json]
 *
 * Both are one thread's copies.  What the library does besides (keys, frames,
 * publishing, pins, jobs) is in its time, from the call to the end of the job.
 * On a machine that has other work the ratio of CPU times says more.
 */
#include <getopt.h>
#include <kvmm_engine.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FRAGMENTS	64
#define MAX_ROUNDS	99

enum what { COPY_OUT, OFFLOAD, COPY_IN, RESTORE, NR };
static const char *const names[NR] = {
	"memcpy out", "offload", "memcpy in", "restore",
};

static void die(const char *doing)
{
	perror(doing);
	exit(1);
}

static double now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Touched, so that no page comes in while the clock runs. */
static unsigned char *memory(size_t bytes)
{
	unsigned char *p = aligned_alloc(2 << 20, bytes);
	size_t i;

	if (!p)
		die("memory");
	for (i = 0; i < bytes; i++)
		p[i] = (unsigned char)(i * 2654435761U >> 13);
	return p;
}

struct bench {
	size_t fragment;
	unsigned int blocks;
	unsigned char *gpu;
	unsigned char *host;
	struct kvmm *kv;
	struct kvmm_pool *pool;
	struct kvmm_engine *engine;
	unsigned char *keys;
	uint32_t *ids;
};

static size_t bytes_of(const struct bench *b)
{
	return b->fragment * FRAGMENTS * b->blocks;
}

/* 32 layers of keys and values, each a tensor with a fragment of each block. */
static void open_all(struct bench *b)
{
	static struct kvmm_run runs[FRAGMENTS];
	struct kvmm_layout layout = {
		.size = sizeof(layout),
		.runs = runs,
		.nr_runs = FRAGMENTS,
		.block_tokens = 16,
	};
	struct kvmm_pool_opts po = {
		.size = sizeof(po),
		.name = "bench-door",
		.block_size = KVMM_MIN_BLOCK_SIZE,
		.nr_frames = b->blocks,
	};
	struct kvmm_open_opts oo = { .size = sizeof(oo),
				     .backend = KVMM_BACKEND_USER };
	struct kvmm_engine_opts eo = {
		.size = sizeof(eo),
		.device = KVMM_DEVICE_HOST,
		.layout = &layout,
	};
	unsigned int i;

	while (po.block_size < b->fragment * FRAGMENTS)
		po.block_size *= 2;
	b->gpu = memory(bytes_of(b));
	b->host = memory(bytes_of(b));
	for (i = 0; i < FRAGMENTS; i++)
		runs[i] = (struct kvmm_run){
			.base = (uintptr_t)b->gpu +
				i * b->fragment * b->blocks,
			.block_stride = b->fragment,
			.bytes = b->fragment,
			.count = 1,
		};
	if (kvmm_open(&b->kv, &oo) || kvmm_pool_create(b->kv, &po, &b->pool))
		die("pool");
	memset(kvmm_pool_arena(b->pool, NULL), 1,
	       (size_t)po.block_size * b->blocks);
	if (kvmm_engine_open(b->pool, &eo, &b->engine))
		die("engine");
	b->keys = calloc(b->blocks, KVMM_KEY_LEN);
	b->ids = calloc(b->blocks, sizeof(*b->ids));
	if (!b->keys || !b->ids)
		die("memory");
	for (i = 0; i < b->blocks; i++) {
		/* scattered, as block tables are; 7919 is a prime */
		b->ids[i] = (uint32_t)(i * 7919ULL % b->blocks);
		memcpy(b->keys + (size_t)i * KVMM_KEY_LEN, &i, sizeof(i));
		b->keys[(size_t)i * KVMM_KEY_LEN + 31] = 1;
	}
}

static void job(struct bench *b, bool out)
{
	struct kvmm_transfer t = {
		.size = sizeof(t),
		.n = b->blocks,
		.keys = b->keys,
		.gpu_blocks = b->ids,
	};
	struct kvmm_job_info info;
	uint64_t id;

	if (out ? kvmm_offload(b->engine, &t, &id)
		: kvmm_restore(b->engine, &t, &id))
		die("job");
	if (kvmm_job_wait(b->engine, id, -1) ||
	    kvmm_job_info(b->engine, id, &info) || info.good != b->blocks ||
	    info.bytes != bytes_of(b)) {
		fprintf(stderr, "door: a job did not move all blocks\n");
		exit(1);
	}
	kvmm_job_end(b->engine, id);
}

struct took {
	double wall;
	double cpu;
};

static struct took once(struct bench *b, enum what what)
{
	struct took t;

	/* all that was stored is forgotten, so that it is stored again */
	if (what == OFFLOAD && kvmm_pool_reset(b->pool, NULL))
		die("reset");
	t.wall = now(CLOCK_MONOTONIC);
	t.cpu = now(CLOCK_PROCESS_CPUTIME_ID);
	switch (what) {
	case COPY_OUT:
		memcpy(b->host, b->gpu, bytes_of(b));
		break;
	case COPY_IN:
		memcpy(b->gpu, b->host, bytes_of(b));
		break;
	default:
		job(b, what == OFFLOAD);
	}
	t.wall = now(CLOCK_MONOTONIC) - t.wall;
	t.cpu = now(CLOCK_PROCESS_CPUTIME_ID) - t.cpu;
	return t;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void cpu_model(char *out, size_t len)
{
	char line[256];
	FILE *f = fopen("/proc/cpuinfo", "r");

	snprintf(out, len, "unknown");
	while (f && fgets(line, sizeof(line), f)) {
		char *value = strstr(line, ": ");

		if (strncmp(line, "model name", 10) || !value)
			continue;
		snprintf(out, len, "%.*s", (int)strcspn(value + 2, "\n"),
			 value + 2);
		break;
	}
	if (f)
		fclose(f);
}

static void print(const struct bench *b, double wall[NR][MAX_ROUNDS],
		  double cpu[NR][MAX_ROUNDS], unsigned int rounds, bool json)
{
	double gb = (double)bytes_of(b) / 1e9, rate[NR], per[NR];
	char model[128];
	unsigned int i;

	cpu_model(model, sizeof(model));
	for (i = 0; i < NR; i++) {
		qsort(wall[i], rounds, sizeof(double), by_value);
		qsort(cpu[i], rounds, sizeof(double), by_value);
		rate[i] = gb / wall[i][rounds / 2];
		per[i] = gb / cpu[i][rounds / 2];
	}
	if (json) {
		printf("{\"cpu\":\"%s\",\"fragment\":%zu,\"blocks\":%u,\"rounds\":%u",
		       model, b->fragment, b->blocks, rounds);
		for (i = 0; i < NR; i++)
			printf(",\"%s_gbps\":%.3f", names[i], rate[i]);
		printf(",\"offload_ratio\":%.3f,\"restore_ratio\":%.3f",
		       rate[OFFLOAD] / rate[COPY_OUT],
		       rate[RESTORE] / rate[COPY_IN]);
		printf(",\"offload_cpu_ratio\":%.3f,\"restore_cpu_ratio\":%.3f}\n",
		       per[OFFLOAD] / per[COPY_OUT],
		       per[RESTORE] / per[COPY_IN]);
		return;
	}
	printf("%s: %u blocks of %u fragments of %zu bytes, median of %u rounds\n",
	       model, b->blocks, FRAGMENTS, b->fragment, rounds);
	for (i = 0; i < NR; i++)
		printf("  %-12s %7.2f GB/s  (%.2f to %.2f), %.2f a CPU second\n",
		       names[i], rate[i], gb / wall[i][rounds - 1],
		       gb / wall[i][0], per[i]);
	printf("  of memcpy: offload %.2f, restore %.2f; by CPU time %.2f, %.2f\n",
	       rate[OFFLOAD] / rate[COPY_OUT], rate[RESTORE] / rate[COPY_IN],
	       per[OFFLOAD] / per[COPY_OUT], per[RESTORE] / per[COPY_IN]);
}

static unsigned int number(const char *arg, unsigned long max)
{
	char *end;
	unsigned long n = strtoul(arg, &end, 10);

	if (*end || end == arg || !n || n > max) {
		fprintf(stderr, "door: bad number '%s'\n", arg);
		exit(2);
	}
	return (unsigned int)n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "fragment", required_argument, NULL, 'f' },
		{ "blocks", required_argument, NULL, 'b' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "json", no_argument, NULL, 'j' },
		{ NULL, 0, NULL, 0 },
	};
	struct bench b = { .fragment = 32768, .blocks = 128 };
	static double wall[NR][MAX_ROUNDS], cpu[NR][MAX_ROUNDS];
	unsigned int rounds = 9, i, r;
	bool json = false;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'f':
			/* whole tokens of 16 */
			b.fragment = number(optarg, 1 << 20) / 16 * 16;
			break;
		case 'b':
			b.blocks = number(optarg, 4096);
			break;
		case 'r':
			rounds = number(optarg, MAX_ROUNDS);
			break;
		case 'j':
			json = true;
			break;
		default:
			fprintf(stderr,
				"usage: door [--fragment BYTES] [--blocks N] [--rounds N] [--json]\n");
			return 2;
		}
	}
	if (!b.fragment)
		b.fragment = 16;
	open_all(&b);
	for (i = 0; i < NR; i++)
		once(&b, (enum what)i);
	for (r = 0; r < rounds; r++)
		for (i = 0; i < NR; i++) {
			struct took t = once(&b, (enum what)i);

			wall[i][r] = t.wall;
			cpu[i][r] = t.cpu;
		}
	print(&b, wall, cpu, rounds, json);
	kvmm_engine_close(b.engine);
	kvmm_pool_close(b.pool);
	kvmm_close(b.kv);
	free(b.keys);
	free(b.ids);
	free(b.gpu);
	free(b.host);
	return 0;
}
