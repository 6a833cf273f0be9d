// SPDX-License-Identifier: MIT
/*
 * One process of the fuzzer, and what its steps are made of.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "fuzz.h"

#define STEPS		400	/* of one process in a round */

struct fz_shared *fz_shared;
bool fz_trace, fz_inject_works;

static struct fz *self;		/* of this process, for the handler */

/* ---- random numbers ---- */

uint64_t fz_rnd(struct fz *z)
{
	uint64_t x = z->rng += 0x9e3779b97f4a7c15ULL;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

uint32_t fz_below(struct fz *z, uint32_t n)
{
	return (fz_rnd(z) >> 32) % n;
}

/* Bit N: something of the fuzzer's own is at 2^N. */
static uint64_t taken;

/*
 * What is made up is often a power of two, or next to one, and where it is taken
 * for an address the module writes there, as told.  The fuzzer's own memory can
 * be at one: its heap, or the first mapping of a User Mode Linux, 2^30.  So what
 * is free there is shut, before anything else is mapped; the first byte faults.
 */
void fz_shut(void)
{
	const long page = sysconf(_SC_PAGESIZE);
	int bit;

	for (bit = 16; bit < 63; bit++) {
		uint64_t at = 1ULL << bit;
		void *mem = mmap((void *)(uintptr_t)(at - page), 2 * page,
				 PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
				 MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

		if (mem == MAP_FAILED && errno == EEXIST)
			taken |= at;
	}
}

uint64_t fz_junk(struct fz *z)
{
	uint64_t one = 1;

	switch (fz_below(z, 6)) {
	case 0:
		return 0;
	case 1:
		return ~0ULL;
	case 2:
		return fz_rnd(z);
	case 3:
		return fz_below(z, 300);
	default:
		one <<= fz_below(z, 64);
		return (one & taken ? 0 : one) + fz_below(z, 3) - 1;
	}
}

struct fz_client *fz_client(struct fz *z, bool bound)
{
	uint32_t first = fz_below(z, FZ_CLIENTS), i;
	struct fz_client *c = &z->c[first];

	if (fz_one_in(z, 20))
		return c;
	for (i = 0; i < FZ_CLIENTS; i++) {
		struct fz_client *next = &z->c[(first + i) % FZ_CLIENTS];

		if (next->fd >= 0 && !next->size == !bound)
			return next;
		if (c->fd < 0)
			c = next;
	}
	return c;
}

uint64_t fz_handle(struct fz *z)
{
	uint64_t h = fz_shared->pot[fz_below(z, FZ_POT)];

	switch (fz_below(z, 40)) {
	case 0:
		return fz_junk(z);
	case 1:
		return h ^ 1ULL << fz_below(z, 64);
	default:
		return h;
	}
}

void fz_seen(struct fz *z, uint64_t handle)
{
	(void)z;
	fz_shared->pot[__atomic_fetch_add(&fz_shared->pos, 1, __ATOMIC_RELAXED) %
		    FZ_POT] = handle;
}

void *fz_place(struct fz *z, size_t bytes, bool *plain)
{
	struct fz_client *c;
	size_t room;

	*plain = false;
	switch (fz_below(z, 50)) {
	case 0:
		return (void *)fz_junk(z);
	case 1:
		return z->ro;
	case 2:
		/* the end of it is missing */
		return z->rw + FZ_RW - bytes / 2;
	case 3:
		/* the module writes to memory that it serves */
		c = fz_client(z, true);
		return c->map && c->len > bytes ?
			c->map + fz_below(z, c->len - bytes) : NULL;
	case 4 ... 10:
		*plain = bytes <= FZ_RW;
		return z->rw + FZ_RW - bytes;
	default:
		*plain = bytes <= FZ_RW;
		room = *plain ? FZ_RW - bytes : 0;
		/* mostly aligned as the struct is */
		return z->rw + (fz_below(z, room + 1) &
				(fz_one_in(z, 20) ? ~0UL : ~7UL));
	}
}

/* ---- one process ---- */

static void on_alarm(int sig)
{
	(void)sig;
}

static void inject(struct fz *z, int nth)
{
	char text[16];

	if (nth == z->injected)
		return;
	z->injected = nth;
	if (z->inject >= 0 &&
	    write(z->inject, text, snprintf(text, sizeof(text), "%d", nth)) < 0)
		z->inject = -1;
}

static void on_fault(int sig)
{
	/* else the signal might stay blocked */
	inject(self, 0);
	siglongjmp(self->back, sig);
}

void fz_say(struct fz *z, const char *what, long ret)
{
	uint64_t now;

	/* what comes now is not of the step */
	inject(z, 0);
	if (!z->trace)
		return;
	now = kt_now_ms();
	printf("# p%d %s = %ld (%llu ms)\n", z->who, what, ret,
	       (unsigned long long)(now - z->then));
	z->then = now;
}

static void step(struct fz *z)
{
	if (fz_one_in(z, 12))
		inject(z, 1 + fz_below(z, 24));
	switch (fz_below(z, 40)) {
	case 0:
		fz_open_close(z);
		break;
	case 1 ... 4:
		fz_memory(z);
		break;
	case 5 ... 7:
		fz_file(z);
		break;
	case 8 ... 12:
		fz_ring(z);
		break;
	default:
		fz_ioctl(z);
	}
	inject(z, 0);
}

static void join(struct fz *z, int i, const char *name, bool rdonly)
{
	struct kt t;

	if (kt_join(&t, name, rdonly ? KVMM_POOL_RDONLY : 0))
		return;
	fcntl(t.fd, F_SETFL, O_NONBLOCK);
	z->c[i].fd = t.fd;
	z->c[i].map = t.arena;
	z->c[i].len = z->c[i].size = t.arena_size;
}

static void prepare(struct fz *z)
{
	static const char *const names[] = { "fz0", "fz0", "fz1", "fz2" };
	char path[64];
	int i;

	z->rw = mmap(NULL, FZ_RW + FZ_GUARD, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(z->rw + FZ_RW, FZ_GUARD, PROT_NONE);
	z->ro = mmap(NULL, FZ_GUARD, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS,
		     -1, 0);
	for (i = 0; i < FZ_EXPORTS; i++)
		z->exports[i] = -1;
	for (i = 0; i < FZ_CLIENTS; i++) {
		z->c[i].fd = -1;
		join(z, i, names[i], i == 1 && fz_one_in(z, 3));
	}
	if (z->c[0].fd < 0)
		z->c[0].fd = kt_dev(O_RDWR | O_NONBLOCK);
	z->inject = fz_inject_works ? open("/proc/self/fail-nth", O_WRONLY) : -1;
	for (i = 0; i < FZ_AREAS; i++) {
		snprintf(path, sizeof(path), "%s/fuzz-%d", kt_disk_dir(), i);
		z->area[i] = open(path, O_RDWR | O_CLOEXEC);
		z->area_direct[i] = open(path, O_RDWR | O_CLOEXEC | O_DIRECT);
	}
}

int fz_process(void *arg)
{
	struct itimerval often = { { 0, 3000 }, { 0, 3000 } };
	const struct fz_part *p = arg;
	static struct fz z;
	int i;

	setpgid(0, 0);
	self = &z;
	z.rng = p->seed * 1000003 + p->who;
	z.who = p->who;
	z.trace = fz_trace;
	z.shared = fz_shared;
	prepare(&z);
	signal(SIGBUS, on_fault);
	signal(SIGSEGV, on_fault);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	z.alarms = !p->alone && fz_one_in(&z, 3);
	if (z.alarms) {
		struct sigaction act = { .sa_handler = on_alarm };

		sigaction(SIGALRM, &act, NULL);
		setitimer(ITIMER_REAL, &often, NULL);
	}
	/* unprivileged, with the files that are open */
	if (!p->alone && fz_one_in(&z, 4) &&
	    (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)))
		return 98;
	z.then = kt_now_ms();
	for (i = 0; i < STEPS; i++) {
		if (sigsetjmp(z.back, 1))
			inject(&z, 0);
		else
			step(&z);
		__atomic_fetch_add(&fz_shared->ops, 1, __ATOMIC_RELAXED);
	}
	if (fz_one_in(&z, 2))
		fz_ring_end(&z);
	return 0;
}
