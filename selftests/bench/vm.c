// SPDX-License-Identifier: MIT
/*
 * kvmm.ko's swap path against what a process can do by itself: io_uring with
 * O_DIRECT, registered buffers and file.  Runs in the VM of selftests/vm.
 *
 * usage: vm [--bytes N] [--rounds N] [--json] PATH
 *
 * PATH is a block device, or a file that is made.  All contenders move the same
 * memory, the pool's, to and from the same place; io_uring and uring_cmd run the
 * same loop and keep DEPTH blocks in flight, the ioctl has the kernel's 64.  With
 * uring_cmd each block is a command, as it is with io_uring, or each 16, as an
 * engine moves what belongs together.
 * They take turns, who begins changes; checksums are off.  Memory and disk are
 * written before, every page is stamped and what comes back is checked, both
 * outside the clock.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../kernel/kt_ring.h"

#define DEPTH		64U
#define WAIT_BATCH	16U	/* blocks to wait for: the library's number */
#define GROUP		16U	/* blocks in a command of URING_16 */
#define MAX_ROUNDS	33U
#define UNIT		(2U << 20)	/* bytes of a registered buffer */
#define PAGE		4096U

enum who { IO_URING, URING_CMD, URING_16, IOCTL, NR_WHO };
static const char *const who_name[NR_WHO] = {
	"io_uring", "uring_cmd", "uring x16", "ioctl",
};

enum way { OUT, IN, NR_WAY };
static const char *const way_name[NR_WAY] = { "out", "in" };

/* Seconds: on the wall, of this process, of the whole machine; requests. */
struct took {
	double wall;
	double cpu;
	double all;
	double requests;
};

struct bench {
	const char *path;
	size_t bytes;
	unsigned int rounds;
	unsigned int turn;
	struct kt t;
	int area;		/* the pool's file */
	int file;		/* the same one, for io_uring */
	uint32_t n;		/* blocks */
	struct kvmm_block_ref *refs;
	struct kt_ring ring[IOCTL];	/* of those before it */
	struct took took[NR_WHO][NR_WAY][MAX_ROUNDS];
};

static void die(const char *what, long err)
{
	fprintf(stderr, "vm: %s: %s\n", what,
		err < 0 ? strerror((int)-err) : "not all of it");
	exit(1);
}

/* ---- time ---- */

static double tv_seconds(const struct timeval *tv)
{
	return (double)tv->tv_sec + (double)tv->tv_usec * 1e-6;
}

/* What all CPUs did that was not idling or waiting for a disk. */
static double machine_seconds(void)
{
	unsigned long long v[8];
	FILE *f = fopen("/proc/stat", "r");

	if (!f || fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu",
			 &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6],
			 &v[7]) != 8)
		die("/proc/stat", -EIO);
	fclose(f);
	return (double)(v[0] + v[1] + v[2] + v[5] + v[6] + v[7]) /
	       (double)sysconf(_SC_CLK_TCK);
}

/* What all disks were asked for: neighbours may have been merged into one. */
static double disk_requests(void)
{
	unsigned long long reads, writes, all = 0;
	FILE *f = fopen("/proc/diskstats", "r");
	char line[512];

	if (!f)
		die("/proc/diskstats", -errno);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%*u %*u vd%*s %llu %*u %*u %*u %llu", &reads,
			   &writes) == 2)
			all += reads + writes;
	fclose(f);
	return (double)all;
}

static double wall(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static double own(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return tv_seconds(&ru.ru_utime) + tv_seconds(&ru.ru_stime);
}

/* The slow ones outside of the quick ones, there and in since(). */
static struct took now(void)
{
	struct took t;

	t.requests = disk_requests();
	t.all = machine_seconds();
	t.cpu = own();
	t.wall = wall();
	return t;
}

static struct took since(const struct took *start)
{
	struct took t;

	t.wall = wall() - start->wall;
	t.cpu = own() - start->cpu;
	t.all = machine_seconds() - start->all;
	t.requests = disk_requests() - start->requests;
	return t;
}

/* ---- memory ---- */

static uint64_t stamp(const struct bench *b, uint32_t block, uint32_t page)
{
	return ((uint64_t)b->turn << 52 | (uint64_t)block << 20 | page) *
	       0x9e3779b97f4a7c15ULL;
}

static unsigned char *frame(const struct bench *b, uint32_t i)
{
	return b->t.arena + (size_t)i * b->t.block_size;
}

/* The first word of each page, and the last. */
static void stamp_block(const struct bench *b, uint32_t f, uint32_t block)
{
	uint32_t i;

	for (i = 0; i < b->t.block_size / PAGE; i++) {
		uint64_t *p = (uint64_t *)(frame(b, f) + (size_t)i * PAGE);

		p[0] = stamp(b, block, i);
		p[PAGE / 8 - 1] = ~stamp(b, block, i);
	}
}

static void check_block(const struct bench *b, uint32_t f, uint32_t block)
{
	uint32_t i;

	if (f >= b->t.nr_frames)
		die("a block is not in memory", -EIO);
	for (i = 0; i < b->t.block_size / PAGE; i++) {
		uint64_t *p = (uint64_t *)(frame(b, f) + (size_t)i * PAGE);

		if (p[0] != stamp(b, block, i) ||
		    p[PAGE / 8 - 1] != ~stamp(b, block, i)) {
			fprintf(stderr, "vm: block %u is corrupt\n", block);
			exit(1);
		}
	}
}

/* So that what is found afterwards has been read. */
static void wipe(const struct bench *b)
{
	size_t at;

	for (at = 0; at < b->t.arena_size; at += PAGE) {
		memset(b->t.arena + at, 0xa5, 8);
		memset(b->t.arena + at + PAGE - 8, 0xa5, 8);
	}
}

/* ---- moving ---- */

static void prep_rw(struct bench *b, struct kt_ring *r, enum way way,
		    uint32_t i)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
	size_t at = (size_t)i * b->t.block_size;

	if (!sqe)
		die("the ring is full", -EBUSY);
	if (way == OUT)
		io_uring_prep_write_fixed(sqe, r->fd, b->t.arena + at,
					  b->t.block_size, at,
					  (int)(at / UNIT));
	else
		io_uring_prep_read_fixed(sqe, r->fd, b->t.arena + at,
					 b->t.block_size, at, (int)(at / UNIT));
	sqe->flags |= r->sqe_flags;
}

/* Blocks in the command that begins with @i. */
static uint32_t group(const struct bench *b, enum who who, uint32_t i)
{
	if (who != URING_16)
		return 1;
	return b->n - i < GROUP ? b->n - i : GROUP;
}

static void prep(struct bench *b, enum who who, enum way way, uint32_t i)
{
	struct kt_ring *r = &b->ring[who];
	uint32_t op = way == OUT ? KVMM_URING_SWAP_OUT : KVMM_URING_SWAP_IN;
	struct kvmm_swap_cmd cmd = {
		.addr = b->refs[i].handle, .count = group(b, who, i),
		.flags = way == OUT ? KVMM_SWAP_DROP : KVMM_SWAP_PIN,
	};

	if (who == IO_URING) {
		prep_rw(b, r, way, i);
		return;
	}
	if (who == URING_CMD)
		cmd.flags |= KVMM_SWAP_ONE;
	else
		cmd.addr = (uintptr_t)&b->refs[i];
	if (!kt_ring_cmd(r, op, &cmd, i))
		die("the ring is full", -EBUSY);
}

/* Return: blocks that are through. */
static uint32_t reap(struct bench *b, enum who who)
{
	struct io_uring *ring = &b->ring[who].ring;
	struct io_uring_cqe *cqe[WAIT_BATCH];
	uint32_t n, i, blocks, all = 0;
	int want;

	while ((n = io_uring_peek_batch_cqe(ring, cqe, WAIT_BATCH))) {
		for (i = 0; i < n; i++) {
			blocks = group(b, who, (uint32_t)cqe[i]->user_data);
			want = who == IO_URING ? (int)b->t.block_size :
						 (int)blocks;
			if (cqe[i]->res != want)
				die("a block", cqe[i]->res);
			all += blocks;
		}
		io_uring_cq_advance(ring, n);
	}
	return all;
}

/* The same for all rings: only what is prepared differs. */
static void move_ring(struct bench *b, enum who who, enum way way)
{
	struct io_uring *ring = &b->ring[who].ring;
	unsigned int wait = who == URING_16 ? WAIT_BATCH / GROUP : WAIT_BATCH;
	uint32_t next = 0, inflight = 0;
	int ret;

	while (next < b->n || inflight) {
		uint32_t n = 0;

		for (; next < b->n && inflight < DEPTH; inflight += n) {
			prep(b, who, way, next);
			n = group(b, who, next);
			next += n;
		}
		ret = io_uring_submit_and_wait(ring, inflight < wait ?
						     inflight : wait);
		if (ret < 0 && ret != -EINTR)
			die("submit", ret);
		inflight -= reap(b, who);
	}
}

static void move_ioctl(struct bench *b, enum way way)
{
	int got;

	if (way == OUT)
		got = kt_swap(&b->t, KVMM_SWAP_OUT, b->refs, b->n,
			      KVMM_SWAP_DROP);
	else
		got = kt_swap(&b->t, KVMM_SWAP_IN, b->refs, b->n,
			      KVMM_SWAP_PIN);
	if (got != (int)b->n)
		die("swap", got);
}

static struct took move(struct bench *b, enum who who, enum way way)
{
	struct took start = now();

	if (who == IOCTL)
		move_ioctl(b, way);
	else
		move_ring(b, who, way);
	return since(&start);
}

/* ---- turns ---- */

/* Blocks that are in no slot yet; what was there before is forgotten. */
static void make_blocks(struct bench *b)
{
	struct kvmm_publish_entry *e = calloc(b->n, sizeof(*e));
	uint32_t i;
	int ret;

	if (!e)
		die("blocks", -ENOMEM);
	ret = kt_reset(&b->t, NULL);
	if (!ret)
		ret = kt_alloc(&b->t, b->refs, b->n);
	for (i = 0; i < b->n && !ret; i++) {
		stamp_block(b, b->refs[i].frame, i);
		e[i] = kt_entry(&b->t, b->refs[i].handle, i);
		e[i].position = i;
	}
	if (!ret)
		ret = kt_publish(&b->t, e, b->n, 0);
	for (i = 0; i < b->n && !ret; i++)
		ret = e[i].result;
	if (ret)
		die("blocks", ret);
	free(e);
}

static void begin_turn(struct bench *b, enum who who)
{
	uint32_t i;

	b->turn++;
	if (who != IO_URING) {
		make_blocks(b);
		return;
	}
	for (i = 0; i < b->n; i++)
		stamp_block(b, i, i);
}

static void end_turn(struct bench *b, enum who who)
{
	uint32_t i, done = 0;
	int ret;

	if (who == IO_URING) {
		for (i = 0; i < b->n; i++)
			check_block(b, i, i);
		return;
	}
	ret = kt_batch(&b->t, KVMM_QUERY, b->refs, b->n, NULL);
	if (ret)
		die("query", ret);
	for (i = 0; i < b->n; i++)
		check_block(b, b->refs[i].frame, i);
	ret = kt_batch(&b->t, KVMM_UNPIN, b->refs, b->n, &done);
	if (ret || done != b->n)
		die("unpin", ret);
}

static void one_turn(struct bench *b, enum who who, struct took took[NR_WAY])
{
	begin_turn(b, who);
	took[OUT] = move(b, who, OUT);
	wipe(b);
	took[IN] = move(b, who, IN);
	end_turn(b, who);
}

/* The first round is not counted. */
static void all_rounds(struct bench *b)
{
	struct took took[NR_WAY];
	unsigned int r, k;

	for (r = 0; r <= b->rounds; r++) {
		for (k = 0; k < NR_WHO; k++) {
			enum who who = (r + k) % NR_WHO;

			one_turn(b, who, took);
			if (!r)
				continue;
			b->took[who][OUT][r - 1] = took[OUT];
			b->took[who][IN][r - 1] = took[IN];
		}
	}
}

/* ---- what there is to run on ---- */

/* Written whole: its extents are there, and the host has it. */
static void write_all(struct bench *b, int fd)
{
	static unsigned char buf[1 << 20];
	size_t at;

	for (at = 0; at < b->bytes; at += sizeof(buf))
		if (pwrite(fd, buf, sizeof(buf), (off_t)at) !=
		    (ssize_t)sizeof(buf))
			die(b->path, -errno);
	if (fsync(fd))
		die(b->path, -errno);
}

static void open_file(struct bench *b)
{
	int fd = open(b->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		die(b->path, -errno);
	write_all(b, fd);
	close(fd);
	b->area = open(b->path, O_RDWR | O_DIRECT | O_CLOEXEC);
	b->file = open(b->path, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (b->area < 0 || b->file < 0)
		die(b->path, -errno);
}

static void open_rings(struct bench *b)
{
	unsigned int i, units = (unsigned int)(b->bytes / UNIT);
	struct kt file = { .fd = b->file };
	struct iovec *iov = calloc(units, sizeof(*iov));
	int ret;

	if (!iov)
		die("rings", -ENOMEM);
	for (i = 0, ret = 0; i < IOCTL && !ret; i++)
		ret = kt_ring_init(&b->ring[i], i == IO_URING ? &file : &b->t,
				   DEPTH, IORING_SETUP_COOP_TASKRUN, true);
	for (i = 0; i < units; i++)
		iov[i] = (struct iovec){ b->t.arena + (size_t)i * UNIT, UNIT };
	if (!ret)
		ret = io_uring_register_buffers(&b->ring[IO_URING].ring, iov,
						units);
	if (ret)
		die("rings", ret);
	free(iov);
}

static void open_all(struct bench *b, uint32_t block_size)
{
	uint32_t got;
	int ret;

	b->n = (uint32_t)(b->bytes / block_size);
	if (b->n > KVMM_MAX_BATCH)
		b->n = KVMM_MAX_BATCH;
	b->refs = calloc(b->n, sizeof(*b->refs));
	if (!b->refs)
		die("blocks", -ENOMEM);
	open_file(b);
	ret = kt_create(&b->t, block_size, (uint32_t)(b->bytes / block_size),
			b->n);
	if (ret)
		die("pool", ret);
	memset(b->t.arena, 1, b->t.arena_size);
	ret = kt_attach(&b->t, b->area, b->n, 0, KVMM_SWAP_NO_CHECKSUM, &got);
	if (ret || got != b->n)
		die("attach", ret);
	open_rings(b);
}

static void close_all(struct bench *b)
{
	char name[KVMM_NAME_LEN];
	unsigned int i;

	for (i = 0; i < IOCTL; i++)
		kt_ring_exit(&b->ring[i]);
	memcpy(name, b->t.name, sizeof(name));
	kt_close(&b->t);
	kt_destroy(name, KVMM_POOL_FORCE);
	close(b->area);
	close(b->file);
	free(b->refs);
}

/* ---- what came out ---- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, unsigned int n)
{
	qsort(v, n, sizeof(*v), by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

struct line {
	double mib_s;
	double cpu;	/* ms of this process a round, and of the machine */
	double all;
	double ratio;	/* median of the rounds' ratios to io_uring; 1: as fast */
	double lo, hi;
	double cpu_ratio;	/* of the machine's CPU time; below 1: less */
	double requests;	/* of the disk, a round */
};

static struct line sum_up(const struct bench *b, enum who who, enum way way)
{
	const struct took *t = b->took[who][way], *u = b->took[IO_URING][way];
	double secs[MAX_ROUNDS], ratio[MAX_ROUNDS], other = 0;
	struct line l = { 0 };
	unsigned int r;

	for (r = 0; r < b->rounds; r++) {
		secs[r] = t[r].wall;
		ratio[r] = u[r].wall / t[r].wall;
		/* ticks are coarse: sums, not medians */
		l.cpu += t[r].cpu * 1e3 / b->rounds;
		l.all += t[r].all * 1e3 / b->rounds;
		other += u[r].all * 1e3 / b->rounds;
		l.requests += t[r].requests / b->rounds;
	}
	l.mib_s = (double)b->n * b->t.block_size / median(secs, b->rounds) /
		  (1 << 20);
	l.ratio = median(ratio, b->rounds);
	l.lo = ratio[0];
	l.hi = ratio[b->rounds - 1];
	l.cpu_ratio = other > 0 ? l.all / other : 0;
	return l;
}

static void print(const struct bench *b, bool json)
{
	uint32_t kib = b->t.block_size >> 10;
	unsigned int way, who;

	for (way = 0; way < NR_WAY; way++) {
		for (who = 0; who < NR_WHO; who++) {
			struct line l = sum_up(b, who, way);

			if (json)
				printf("{\"bench\":\"vm\",\"path\":\"%s\",\"block_kib\":%u,\"way\":\"%s\",\"who\":\"%s\",\"blocks\":%u,\"depth\":%u,\"rounds\":%u,\"mib_per_second\":%.1f,\"process_cpu_ms\":%.1f,\"machine_cpu_ms\":%.1f,\"ratio\":%.3f,\"ratio_min\":%.3f,\"ratio_max\":%.3f,\"machine_cpu_ratio\":%.3f,\"requests\":%.0f}\n",
				       b->path, kib, way_name[way],
				       who_name[who], b->n, DEPTH, b->rounds,
				       l.mib_s, l.cpu, l.all, l.ratio, l.lo,
				       l.hi, l.cpu_ratio, l.requests);
			else
				printf("%8u  %-3s  %-9s  %8.1f  %5.2f (%.2f to %.2f)  %10.0f  %10.0f  %9.2f  %8.0f\n",
				       kib, way_name[way], who_name[who],
				       l.mib_s, l.ratio, l.lo, l.hi, l.cpu,
				       l.all, l.cpu_ratio, l.requests);
		}
	}
	fflush(stdout);
}

static unsigned long number(const char *arg, unsigned long max)
{
	char *end;
	unsigned long n = strtoul(arg, &end, 10);

	if (*end || end == arg || !n || n > max) {
		fprintf(stderr, "vm: bad number '%s'\n", arg);
		exit(2);
	}
	return n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "bytes", required_argument, NULL, 'b' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "json", no_argument, NULL, 'j' },
		{ NULL, 0, NULL, 0 },
	};
	static const uint32_t sizes[] = { 64 << 10, 2 << 20 };
	static struct bench b;
	unsigned long bytes = 256UL << 20, rounds = 7;
	bool json = false;
	unsigned int i;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'b':
			bytes = number(optarg, 1UL << 30) / UNIT * UNIT;
			break;
		case 'r':
			rounds = number(optarg, MAX_ROUNDS);
			break;
		case 'j':
			json = true;
			break;
		default:
			optind = argc;
		}
	}
	if (optind != argc - 1 || !bytes) {
		fprintf(stderr, "usage: vm [--bytes N] [--rounds N] [--json] PATH\n");
		return 2;
	}
	if (!json)
		printf("%s: %lu MiB, %u in flight, no checksums; medians of %lu rounds; ratios to io_uring in the same round\n%8s  %-3s  %-9s  %8s  %-21s  %10s  %10s  %9s  %8s\n",
		       argv[optind], bytes >> 20, DEPTH, rounds, "KiB", "way",
		       "", "MiB/s", "speed ratio", "own CPU ms", "all CPU ms",
		       "CPU ratio", "requests");
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		memset(&b, 0, sizeof(b));
		b.path = argv[optind];
		b.bytes = bytes;
		b.rounds = (unsigned int)rounds;
		open_all(&b, sizes[i]);
		all_rounds(&b);
		print(&b, json);
		close_all(&b);
	}
	return 0;
}
