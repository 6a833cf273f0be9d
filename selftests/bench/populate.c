// SPDX-License-Identifier: MIT
/*
 * How fast does a pool get its memory?  Against writing zeroes to that much
 * memory that is there already, which no way to get it can beat, and against
 * locking as much in 4 KiB pages.  All with a thread for each CPU, taking turns
 * round by round; the first round is not counted, since a virtual machine gets
 * its own memory from its host then.
 *
 *	populate [BYTES [ROUNDS]]
 *
 * Wants /dev/kvmm and the right to make pools; 128 MiB to be free beside BYTES.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvmm.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BLOCK	(2UL << 20)
#define MAX_THREADS	64
#define MAX_ROUNDS	101

static size_t bytes = 1UL << 30;
static int rounds = 5;
static int threads;

struct part {
	void (*fn)(struct part *p);
	unsigned char *mem;
	size_t size;
	int fd;
	uint32_t first, count;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void *run(void *arg)
{
	struct part *p = arg;

	p->fn(p);
	return NULL;
}

/* Each thread does @fn on its part of @mem, or of the pool behind @fd. */
static void in_parallel(void (*fn)(struct part *p), unsigned char *mem, int fd)
{
	uint32_t blocks = bytes / BLOCK, at = 0;
	struct part part[MAX_THREADS];
	pthread_t thread[MAX_THREADS];
	int i;

	for (i = 0; i < threads; i++) {
		uint32_t n = (blocks - at) / (threads - i);

		part[i] = (struct part) {
			fn, mem ? mem + at * BLOCK : NULL, n * BLOCK, fd, at, n,
		};
		at += n;
		if (pthread_create(&thread[i], NULL, run, &part[i]))
			die("pthread_create");
	}
	for (i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
}

static void do_populate(struct part *p)
{
	struct kvmm_populate a = {
		.size = sizeof(a), .first = p->first, .count = p->count,
	};

	if (p->count && ioctl(p->fd, KVMM_POPULATE, &a))
		die("KVMM_POPULATE");
}

static void do_zero(struct part *p)
{
	memset(p->mem, 0, p->size);
}

/* As the kernel clears pages: what an emulator makes of it is another matter. */
static void do_clear(struct part *p)
{
#ifdef __x86_64__
	void *at = p->mem;
	size_t n = p->size / 8;

	asm volatile("rep stosq" : "+D"(at), "+c"(n) : "a"(0) : "memory");
#else
	do_zero(p);
#endif
}

static void do_lock(struct part *p)
{
	if (p->size && mlock(p->mem, p->size))
		die("mlock");
}

static int make_pool(void)
{
	struct kvmm_pool_create spec = {
		.size = sizeof(spec), .name = "bench-populate", .mode = 0600,
		.block_size = BLOCK, .nr_frames = bytes / BLOCK,
	};
	struct kvmm_events ev = {
		.size = sizeof(ev), .mask = 1ULL << KVMM_EVENT_POPULATED,
	};
	int fd = open("/dev/kvmm", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die("/dev/kvmm");
	if (ioctl(fd, KVMM_POOL_CREATE, &spec))
		die("KVMM_POOL_CREATE");
	if (ioctl(fd, KVMM_EVENTS, &ev))
		die("KVMM_EVENTS");
	return fd;
}

static void end_pool(int fd)
{
	struct kvmm_pool_destroy a = {
		.size = sizeof(a), .name = "bench-populate",
	};

	if (ioctl(fd, KVMM_POOL_DESTROY, &a))
		die("KVMM_POOL_DESTROY");
	close(fd);
}

/* Creation is a part of it; then all of it is written to, once more. */
static void pool_round(bool async, double *made, double *zeroed,
		       double *cleared)
{
	struct kvmm_populate a = {
		.size = sizeof(a), .flags = KVMM_POPULATE_ASYNC,
		.count = bytes / BLOCK, .workers = threads,
	};
	struct kvmm_event ev;
	double t = now();
	int fd = make_pool();
	void *mem;

	if (async) {
		if (ioctl(fd, KVMM_POPULATE, &a))
			die("KVMM_POPULATE_ASYNC");
		if (read(fd, &ev, sizeof(ev)) != sizeof(ev) || ev.flags)
			die("KVMM_EVENT_POPULATED");
	} else {
		in_parallel(do_populate, NULL, fd);
	}
	mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED)
		die("mmap");
	*made = now() - t;
	in_parallel(do_zero, mem, -1);		/* its page table */
	t = now();
	in_parallel(do_zero, mem, -1);
	*zeroed = now() - t;
	t = now();
	in_parallel(do_clear, mem, -1);
	*cleared = now() - t;
	munmap(mem, bytes);
	end_pool(fd);
}

static double lock_round(void)
{
	double t = now();
	void *mem;

	mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		die("mmap");
	madvise(mem, bytes, MADV_NOHUGEPAGE);
	in_parallel(do_lock, mem, -1);
	t = now() - t;
	munmap(mem, bytes);
	return t;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v)
{
	qsort(v, rounds, sizeof(*v), by_value);
	return v[rounds / 2];
}

static void row(const char *name, double secs, double best)
{
	printf("%-28s %8.3f s %8.2f GiB/s   %.2f of memset\n", name, secs,
	       bytes / secs / (1 << 30), best / secs);
}

int main(int argc, char **argv)
{
	static double pool[MAX_ROUNDS], workers[MAX_ROUNDS], zero[MAX_ROUNDS],
		lock[MAX_ROUNDS], clear[MAX_ROUNDS];
	double z1, z2, c1, c2, best;
	int r;

	if (argc > 1)
		bytes = strtoull(argv[1], NULL, 0) / BLOCK * BLOCK;
	if (argc > 2)
		rounds = atoi(argv[2]);
	threads = sysconf(_SC_NPROCESSORS_ONLN);
	if (threads > MAX_THREADS)
		threads = MAX_THREADS;
	if (!bytes || rounds < 1 || rounds > MAX_ROUNDS) {
		fprintf(stderr, "usage: populate [BYTES [ROUNDS]]\n");
		return 2;
	}
	for (r = -1; r < rounds; r++) {
		int k = r < 0 ? 0 : r;

		pool_round(false, &pool[k], &z1, &c1);
		pool_round(true, &workers[k], &z2, &c2);
		zero[k] = (z1 + z2) / 2;
		clear[k] = (c1 + c2) / 2;
		lock[k] = lock_round();
	}
	best = median(zero);
	printf("%zu MiB, %d threads, median of %d rounds\n", bytes >> 20,
	       threads, rounds);
	row("memset of memory that is there", best, best);
	row("the same by rep stosq", median(clear), best);
	row("pool, by threads", median(pool), best);
	row("pool, by workers", median(workers), best);
	row("mmap and mlock, 4 KiB pages", median(lock), best);
	return 0;
}
