// SPDX-License-Identifier: MIT
/*
 * One round of the swap benchmark: fills a pool of the user backend, moves all
 * of it out to a file and back in, and prints what each way took.  swap.py runs
 * it, in turn with fio on the same file.
 *
 * usage: swap FILE BLOCK-SIZE BLOCKS [checksum]
 *
 * FILE must be there at its whole size, written once.  Memory is touched
 * before the clock starts; afterwards every block's bytes are checked.
 */
#include <errno.h>
#include <kvmm.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

struct bench {
	struct kvmm *kv;
	struct kvmm_pool *pool;
	struct kvmm_block_ref *refs;
	unsigned int n;
	size_t block_size;
};

struct took {
	double seconds;
	double user;
	double sys;
};

static void die(const char *what, long err)
{
	fprintf(stderr, "swap: %s: %s\n", what,
		err < 0 ? strerror((int)-err) : "not all of it");
	exit(1);
}

static void say(void *ctx, enum kvmm_log_level level, const char *text)
{
	(void)ctx;
	if (level != KVMM_LOG_INFO)
		fprintf(stderr, "swap: %s\n", text);
}

static double seconds(const struct timeval *tv)
{
	return (double)tv->tv_sec + (double)tv->tv_usec * 1e-6;
}

static struct took now(void)
{
	struct rusage ru;
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	getrusage(RUSAGE_SELF, &ru);
	return (struct took){
		.seconds = (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9,
		.user = seconds(&ru.ru_utime),
		.sys = seconds(&ru.ru_stime),
	};
}

static struct took since(struct took start)
{
	struct took end = now();

	end.seconds -= start.seconds;
	end.user -= start.user;
	end.sys -= start.sys;
	return end;
}

/* Different in each block and word, and cheap. */
static void fill(uint64_t *word, size_t n, uint64_t block)
{
	uint64_t v = (block + 1) * 0x9e3779b97f4a7c15ULL;
	size_t i;

	for (i = 0; i < n; i++)
		word[i] = v + i * 0xbf58476d1ce4e5b9ULL;
}

static void check(const uint64_t *word, size_t n, uint64_t block)
{
	uint64_t v = (block + 1) * 0x9e3779b97f4a7c15ULL;
	size_t i;

	for (i = 0; i < n; i++) {
		if (word[i] != v + i * 0xbf58476d1ce4e5b9ULL) {
			fprintf(stderr, "swap: block %llu is corrupt\n",
				(unsigned long long)block);
			exit(1);
		}
	}
}

static void open_pool(struct bench *b)
{
	struct kvmm_open_opts open = {
		.size = sizeof(open),
		.backend = KVMM_BACKEND_USER,
		.log = say,
	};
	struct kvmm_pool_opts opts = {
		.size = sizeof(opts),
		.name = "bench",
		.block_size = (unsigned int)b->block_size,
		.nr_frames = b->n,
		.nr_slots = b->n,
	};
	int err = kvmm_open(&b->kv, &open);

	if (err)
		die("open", err);
	err = kvmm_pool_create(b->kv, &opts, &b->pool);
	if (err)
		die("pool", err);
}

static void attach(struct bench *b, const char *path, bool checksum)
{
	struct kvmm_swap_opts opts = {
		.size = sizeof(opts),
		.flags = checksum ? 0 : KVMM_SWAP_NO_CHECKSUM,
		.path = path,
		.nr_slots = b->n,
	};
	long slots = kvmm_swap_attach(b->pool, &opts);

	if (slots != (long)b->n)
		die(path, slots);
}

static void make_blocks(struct bench *b)
{
	struct kvmm_publish_entry *e = calloc(b->n, sizeof(*e));
	unsigned int i;
	long got;

	b->refs = calloc(b->n, sizeof(*b->refs));
	if (!e || !b->refs)
		die("blocks", -ENOMEM);
	got = kvmm_alloc(b->pool, b->refs, b->n, 1, 0);
	if (got != (long)b->n)
		die("alloc", got);
	for (i = 0; i < b->n; i++) {
		fill(kvmm_addr(b->pool, &b->refs[i]), b->block_size / 8, i);
		memcpy(e[i].key, &i, sizeof(i));
		e[i].key[KVMM_KEY_LEN - 1] = 1;
		e[i].handle = b->refs[i].handle;
		e[i].length = (unsigned int)b->block_size;
	}
	got = kvmm_publish(b->pool, e, b->n, 0);
	if (got != (long)b->n)
		die("publish", got);
	free(e);
}

static void check_blocks(struct bench *b)
{
	unsigned int i;

	for (i = 0; i < b->n; i++)
		check(kvmm_addr(b->pool, &b->refs[i]), b->block_size / 8, i);
}

static void print(const char *name, const struct took *t, double bytes)
{
	printf("\"%s\":{\"bytes\":%.0f,\"seconds\":%.6f,\"user\":%.6f,\"sys\":%.6f}",
	       name, bytes, t->seconds, t->user, t->sys);
}

int main(int argc, char **argv)
{
	struct bench b = { 0 };
	struct took out, in;
	double bytes;
	long got;

	if (argc < 4 || (argc > 4 && strcmp(argv[4], "checksum"))) {
		fprintf(stderr, "usage: swap FILE BLOCK-SIZE BLOCKS [checksum]\n");
		return 2;
	}
	b.block_size = strtoul(argv[2], NULL, 0);
	b.n = (unsigned int)strtoul(argv[3], NULL, 0);
	open_pool(&b);
	attach(&b, argv[1], argc > 4);
	make_blocks(&b);

	out = now();
	got = kvmm_swap_out(b.pool, b.refs, b.n, KVMM_SWAP_DROP);
	out = since(out);
	if (got != (long)b.n)
		die("swap-out", got);
	/* what is found afterwards has been read */
	memset(kvmm_pool_arena(b.pool, NULL), 0xa5, b.n * b.block_size);
	in = now();
	got = kvmm_swap_in(b.pool, b.refs, b.n, KVMM_SWAP_PIN);
	in = since(in);
	if (got != (long)b.n)
		die("swap-in", got);
	check_blocks(&b);

	bytes = (double)b.n * (double)b.block_size;
	printf("{\"io\":\"%s\",", kvmm_io_name(b.kv));
	print("out", &out, bytes);
	printf(",");
	print("in", &in, bytes);
	printf("}\n");
	free(b.refs);
	kvmm_pool_close(b.pool);
	kvmm_close(b.kv);
	return 0;
}
