/* SPDX-License-Identifier: MIT */
/*
 * The fuzzer of /dev/kvmm: what its files share.  fuzz.c has the rounds and the
 * checks, fuzz_proc.c one process, fuzz_ioctl.c the ioctls, fuzz_mem.c mappings
 * and files, fuzz_ring.c io_uring.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <liburing.h>
#include <setjmp.h>

#include "kvmm_test.h"

#define FZ_POOLS	3		/* names of pools in use */
#define FZ_CLIENTS	4		/* open files of a process */
#define FZ_EXPORTS	8		/* dma-bufs of a process */
#define FZ_AREAS	2		/* swap files */
#define FZ_AREA_BYTES	(4U << 20)
#define FZ_IDS		48		/* keys in use */
#define FZ_POT		128		/* handles that processes share */
#define FZ_CMDS		48		/* ioctls counted, by number */
#define FZ_OURS		0x6b766d6d6f757273ULL
#define FZ_RW		(512U << 10)	/* writable memory for arguments */
#define FZ_GUARD	(64U << 10)	/* not accessible, right behind it */

/**
 * struct fz_shared - what the processes of a round have in common
 * @pot: handles that were seen, of any pool
 * @pos: where the next one goes
 * @calls: ioctls made, by number; the last: io_uring commands
 * @good: of those, that gave no error
 * @ops: steps done by all processes of all rounds
 * @first: FZ_OURS, as long as nobody else writes here
 * @last: the same
 */
struct fz_shared {
	uint64_t first;
	uint64_t pot[FZ_POT];
	uint32_t pos;
	uint64_t calls[FZ_CMDS];
	uint64_t good[FZ_CMDS];
	uint64_t ops;
	uint64_t last;
};

/**
 * struct fz_client - one open file of the device, maybe with a mapping
 * @fd: the file, -1: none
 * @map: its mapping, or NULL
 * @len: of the mapping
 * @size: of the arena, 0: not bound
 */
struct fz_client {
	int fd;
	unsigned char *map;
	size_t len;
	uint64_t size;
};

/**
 * struct fz - one process
 * @rng: state of its random numbers
 * @who: its number in the round
 * @trace: say each step on stdout
 * @then: when the last step was said
 * @alarms: a timer interrupts what waits, so it may
 * @inject: /proc/self/fail-nth or -1
 * @injected: what was last written there
 * @shared: see there
 * @c: clients
 * @exports: dma-bufs, -1: none
 * @area: swap files
 * @area_direct: the same, open O_DIRECT
 * @rw: FZ_RW bytes, then the guard
 * @ro: a page that can't be written
 * @ring: io_uring, where @ring_up
 * @ring_up: there is one
 * @registered: a mapping is registered with it
 * @back: where a fault goes on
 */
struct fz {
	uint64_t rng;
	int who;
	bool trace, alarms;
	uint64_t then;
	int inject, injected;
	struct fz_shared *shared;
	struct fz_client c[FZ_CLIENTS];
	int exports[FZ_EXPORTS];
	int area[FZ_AREAS], area_direct[FZ_AREAS];
	unsigned char *rw, *ro;
	struct io_uring ring;
	bool ring_up, registered;
	sigjmp_buf back;
};

/* One process of a round; @alone: there is no other, so nothing is left to chance */
struct fz_part {
	uint64_t seed;
	int who;
	bool alone;
};

/* ---- fuzz_proc.c ---- */

extern struct fz_shared *fz_shared;
extern bool fz_trace, fz_inject_works;

/* To be called before anything is mapped. */
void fz_shut(void);

int fz_process(void *part);

uint64_t fz_rnd(struct fz *z);
uint32_t fz_below(struct fz *z, uint32_t n);
static inline bool fz_one_in(struct fz *z, uint32_t n)
{
	return !fz_below(z, n);
}

/* A number that is often an edge of something. */
uint64_t fz_junk(struct fz *z);

/* A client that is bound, or one that isn't, as far as there is one. */
struct fz_client *fz_client(struct fz *z, bool bound);

/* Mostly a handle that was seen. */
uint64_t fz_handle(struct fz *z);
void fz_seen(struct fz *z, uint64_t handle);

/*
 * An address for @bytes of argument or array; mostly good memory, then *plain
 * is set and it may be touched.
 */
void *fz_place(struct fz *z, size_t bytes, bool *plain);

void fz_say(struct fz *z, const char *what, long ret);

/* ---- the steps ---- */

void fz_ioctl(struct fz *z);
void fz_ring(struct fz *z);
void fz_ring_end(struct fz *z);
void fz_memory(struct fz *z);
void fz_file(struct fz *z);
void fz_open_close(struct fz *z);
void fz_unmap(struct fz_client *c);

/* What io_uring and the swap ioctls share. */
struct kvmm_swap_cmd fz_swap_cmd(struct fz *z);

#endif /* FUZZ_H */
