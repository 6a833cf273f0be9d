// SPDX-License-Identifier: MIT
/*
 * How fast the bookkeeping is: alloc, publish, lookup and unpin of blocks in
 * batches of 64, one thread, in a pool that is full, so that every block
 * allocated evicts another.  What is counted is a block that went through all
 * four.
 *
 * usage: core [--blocks N] [--rounds N] [--ms MILLISECONDS] [--json]
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "core/core.h"

#define BATCH		KVMM_CORE_BATCH
#define MAX_ROUNDS	99
#define PREFIX		1000
#define HUGE		((size_t)2 << 20)

struct bench {
	struct kvmm_core c;
	u32 blocks;
	u32 client;
	u64 now;
	u64 id;
	u64 random;
	u64 bytes;
};

struct result {
	u32 blocks;
	u32 rounds;
	double mops[MAX_ROUNDS];
	double fill;
	double median;
	double prefix_us;
	double bytes_per_block;
};

void kvmm_core_report(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: %s\n", file, line, what);
	abort();
}

/*
 * As the library's: huge pages where they are to be had.  Touched at once: the
 * first touch of a page is not what is measured.
 */
static void *bench_alloc(void *ctx, size_t bytes)
{
	struct bench *b = ctx;
	size_t align = bytes >= HUGE ? HUGE : 64;
	void *mem = aligned_alloc(align, (bytes + align - 1) / align * align);

	if (!mem)
		return NULL;
	if (bytes >= HUGE)
		madvise(mem, bytes, MADV_HUGEPAGE);
	memset(mem, 0, bytes);
	b->bytes += bytes;
	return mem;
}

static void bench_free(void *ctx, void *mem, size_t bytes)
{
	(void)ctx;
	(void)bytes;
	free(mem);
}

/* CPU time: nothing here waits, and the machine may have other work to do. */
static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void die(const char *what)
{
	fprintf(stderr, "core: %s\n", what);
	exit(1);
}

static void open_pool(struct bench *b, u32 blocks)
{
	struct kvmm_core_config cfg = {
		.nr_frames = blocks,
		.max_clients = 64,
		.block_size = 65536,
		.secret = { 0x243f6a8885a308d3ULL, 0x13198a2e03707344ULL },
		.alloc = bench_alloc,
		.free = bench_free,
		.ctx = b,
	};
	u32 first;

	memset(b, 0, sizeof(*b));
	b->blocks = blocks;
	b->now = 1;
	if (kvmm_core_init(&b->c, &cfg))
		die("out of memory");
	for (first = 0; first < blocks; first += BATCH)
		kvmm_core_frames_online(&b->c, first,
					blocks - first < BATCH ?
					blocks - first : BATCH);
	b->client = kvmm_core_client_add(&b->c);
}

static void set_key(u8 *key, u64 id)
{
	u64 word[KVMM_KEY_LEN / 8] = {
		id * 0x9e3779b97f4a7c15ULL, id, ~id, id ^ 0x5bd1e9955bd1e995ULL
	};

	memcpy(key, word, KVMM_KEY_LEN);
}

/* One batch through alloc, publish, lookup (which pins), unpin. */
static void batch(struct bench *b)
{
	static struct kvmm_publish_entry e[BATCH];
	static struct kvmm_block_ref refs[BATCH];
	static u8 keys[BATCH * KVMM_KEY_LEN];
	struct kvmm_cursor cur = { 0 };
	u64 parent = 0;
	u32 k;

	if (kvmm_core_alloc(&b->c, b->client, 1, b->now, refs, BATCH) != BATCH)
		die("alloc failed");
	for (k = 0; k < BATCH; k++) {
		set_key(keys + k * KVMM_KEY_LEN, ++b->id);
		memcpy(e[k].key, keys + k * KVMM_KEY_LEN, KVMM_KEY_LEN);
		e[k].handle = refs[k].handle;
		e[k].parent = parent;
		e[k].position = k;
		e[k].length = 65536;
		parent = refs[k].handle;
	}
	kvmm_core_publish(&b->c, b->client, 0, b->now, &cur, e, BATCH);
	memset(&cur, 0, sizeof(cur));
	if (kvmm_core_lookup(&b->c, b->client,
			     KVMM_LOOKUP_PIN | KVMM_LOOKUP_PREFIX, b->now, &cur,
			     keys, refs, BATCH) != BATCH)
		die("lookup missed");
	kvmm_core_unpin(&b->c, b->client, refs, BATCH);
	for (k = 0; k < BATCH; k++)
		if (e[k].result || refs[k].result)
			die("a call failed");
	b->now++;
}

static double one_round(struct bench *b, double length)
{
	double start = seconds(), end;
	u64 n = 0;
	u32 k;

	do {
		for (k = 0; k < 64; k++)
			batch(b);
		n += 64 * BATCH;
		end = seconds();
	} while (end - start < length);
	return (double)n / (end - start) / 1e6;
}

/*
 * Looking up a prefix of 1,000 blocks, pinning it: microseconds.  The prefix is
 * anywhere in the pool, so little of it is in a cache.
 */
static double prefix_round(struct bench *b)
{
	static struct kvmm_block_ref refs[PREFIX];
	static u8 keys[PREFIX * KVMM_KEY_LEN];
	struct kvmm_cursor cur = { 0 };
	u32 k, n, found = 0;
	double start, end;
	u64 first;

	b->random = b->random * 6364136223846793005ULL + 1442695040888963407ULL;
	first = b->id - b->blocks + 1 +
		((b->random >> 32) * (b->blocks - PREFIX) >> 32);
	for (k = 0; k < PREFIX; k++)
		set_key(keys + k * KVMM_KEY_LEN, first + k);
	start = seconds();
	for (k = 0; k < PREFIX; k += n) {
		n = PREFIX - k < BATCH ? PREFIX - k : BATCH;
		found += kvmm_core_lookup(&b->c, b->client,
					  KVMM_LOOKUP_PIN | KVMM_LOOKUP_PREFIX,
					  b->now, &cur, keys + k * KVMM_KEY_LEN,
					  refs + k, n);
	}
	end = seconds();
	if (found != PREFIX)
		die("a prefix was not found");
	for (k = 0; k < PREFIX; k += n) {
		n = PREFIX - k < BATCH ? PREFIX - k : BATCH;
		kvmm_core_unpin(&b->c, b->client, refs + k, n);
	}
	return (end - start) * 1e6;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median_of(const double *v, u32 n)
{
	double sorted[MAX_ROUNDS];

	memcpy(sorted, v, n * sizeof(*v));
	qsort(sorted, n, sizeof(sorted[0]), by_value);
	return n % 2 ? sorted[n / 2] :
		(sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* An empty pool, until it is full: the four commands and nothing else. */
static double fill_round(u32 blocks)
{
	struct bench b;
	double start, took;
	u32 k;

	open_pool(&b, blocks);
	start = seconds();
	for (k = 0; k < blocks / BATCH; k++)
		batch(&b);
	took = seconds() - start;
	kvmm_core_exit(&b.c);
	return (double)k * BATCH / took / 1e6;
}

static void run(struct result *r, u32 blocks, u32 rounds, double length)
{
	double us[MAX_ROUNDS], fill[MAX_ROUNDS];
	struct bench b;
	u32 k;

	/* Small pools are full in no time: many, of which half were slower. */
	for (k = 0; k < MAX_ROUNDS && (k < rounds || blocks <= 1000000); k++)
		fill[k] = fill_round(blocks);
	r->fill = median_of(fill, k);
	open_pool(&b, blocks);
	r->blocks = blocks;
	r->rounds = rounds;
	r->bytes_per_block = (double)b.bytes / blocks;
	/* fill it, and go round once more */
	for (k = 0; k < 2 * (blocks / BATCH + 1); k++)
		batch(&b);
	for (k = 0; k < rounds; k++)
		r->mops[k] = one_round(&b, length);
	r->median = median_of(r->mops, rounds);
	/* last, since it stirs the order */
	for (k = 0; k < MAX_ROUNDS && blocks > PREFIX; k++)
		us[k] = prefix_round(&b);
	r->prefix_us = blocks > PREFIX ? median_of(us, MAX_ROUNDS) : 0;
	kvmm_core_exit(&b.c);
}

static void cpu_model(char *out, size_t size)
{
	FILE *f = fopen("/proc/cpuinfo", "r");
	char line[256];

	snprintf(out, size, "unknown CPU");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		char *value = strchr(line, ':');

		if (strncmp(line, "model name", 10) || !value)
			continue;
		value[strcspn(value, "\n")] = 0;
		snprintf(out, size, "%s", value + 2);
		break;
	}
	fclose(f);
}

static void print_text(const struct result *r, u32 n, const char *cpu)
{
	u32 i, k;

	printf("core: alloc + publish + lookup + unpin, batches of %d, one thread; medians\n",
	       BATCH);
	printf("filling an empty pool, and in a full one, where each block evicts another\n");
	printf("%s, %s\n", cpu, __VERSION__);
	printf("%10s  %17s  %14s  %11s  %20s  %s\n", "blocks",
	       "filling, M blocks/s", "full, M blocks/s", "bytes/block",
	       "1000-block prefix, us", "rounds of full");
	for (i = 0; i < n; i++) {
		printf("%10u  %19.2f  %16.2f  %11.1f  %21.1f ", r[i].blocks,
		       r[i].fill, r[i].median, r[i].bytes_per_block,
		       r[i].prefix_us);
		for (k = 0; k < r[i].rounds; k++)
			printf(" %.2f", r[i].mops[k]);
		printf("\n");
	}
}

static void print_json(const struct result *r, u32 n, const char *cpu)
{
	u32 i, k;

	printf("{\"bench\":\"core\",\"batch\":%d,\"cpu\":\"%s\",\"compiler\":\"%s\",\"results\":[",
	       BATCH, cpu, __VERSION__);
	for (i = 0; i < n; i++) {
		printf("%s{\"blocks\":%u,\"filling_mblocks_per_second\":%.3f,\"full_mblocks_per_second\":%.3f,\"bytes_per_block\":%.1f,\"prefix_1000_us\":%.1f,\"rounds\":[",
		       i ? "," : "", r[i].blocks, r[i].fill, r[i].median,
		       r[i].bytes_per_block, r[i].prefix_us);
		for (k = 0; k < r[i].rounds; k++)
			printf("%s%.3f", k ? "," : "", r[i].mops[k]);
		printf("]}");
	}
	printf("]}\n");
}

static u32 number(const char *arg, u32 max)
{
	char *end;
	unsigned long n = strtoul(arg, &end, 10);

	if (*end || end == arg || !n || n > max) {
		fprintf(stderr, "core: bad number '%s'\n", arg);
		exit(2);
	}
	return (u32)n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "blocks", required_argument, NULL, 'b' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "ms", required_argument, NULL, 'm' },
		{ "json", no_argument, NULL, 'j' },
		{ NULL, 0, NULL, 0 },
	};
	u32 sizes[2] = { 100000, 8000000 }, n = 2, rounds = 5, ms = 1000, i;
	static struct result results[2];
	bool json = false;
	char cpu[128];
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'b':
			sizes[0] = number(optarg, KVMM_MAX_BLOCKS);
			n = 1;
			break;
		case 'r':
			rounds = number(optarg, MAX_ROUNDS);
			break;
		case 'm':
			ms = number(optarg, 60000);
			break;
		case 'j':
			json = true;
			break;
		default:
			fprintf(stderr,
				"usage: core [--blocks N] [--rounds N] [--ms MILLISECONDS] [--json]\n");
			return 2;
		}
	}
	for (i = 0; i < n; i++)
		run(&results[i], sizes[i], rounds, ms / 1000.0);
	cpu_model(cpu, sizeof(cpu));
	if (json)
		print_json(results, n, cpu);
	else
		print_text(results, n, cpu);
	return 0;
}
