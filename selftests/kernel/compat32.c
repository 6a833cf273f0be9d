// SPDX-License-Identifier: MIT
/*
 * A 32-bit program that goes all the way of a block: pool, mapping, frames, keys,
 * the area by ioctl and by io_uring, events, an export.  It has no C library, for
 * which 64-bit machines seldom have the 32-bit one; compat.c runs it and looks
 * at the same pool from a 64-bit process.
 *
 * Ends with status 0, or says which line went wrong.  What it points to is on
 * its stack, above 2 GiB.
 */
#include <asm/unistd_32.h>
#include <linux/fcntl.h>
#include <linux/io_uring.h>
#include <linux/kvmm.h>
#include <linux/mman.h>
#include <linux/poll.h>

#include "compat.h"
#include "kt_pattern.h"

_Static_assert(sizeof(void *) == 4, "this is the 32-bit half");

/* ---- what a C library does ---- */

/* The sixth argument goes where the frame pointer is. */
static long sys6(long nr, const long *s)
{
	long ret;

	asm volatile("push %%ebp\n\t"
		     "push %%ebx\n\t"
		     "mov 20(%[s]), %%ebp\n\t"
		     "mov (%[s]), %%ebx\n\t"
		     "mov 4(%[s]), %%ecx\n\t"
		     "mov 8(%[s]), %%edx\n\t"
		     "mov 16(%[s]), %%edi\n\t"
		     "mov 12(%[s]), %%esi\n\t"
		     "int $0x80\n\t"
		     "pop %%ebx\n\t"
		     "pop %%ebp"
		     : "=a"(ret), [s] "+S"(s)
		     : "a"(nr)
		     : "ecx", "edx", "edi", "memory", "cc");
	return ret;
}

#define SYS(nr, ...)	sys6(__NR_##nr, (long[6]){ __VA_ARGS__ })

void *memcpy(void *to, const void *from, size_t n);
void *memset(void *to, int c, size_t n);
int memcmp(const void *x, const void *y, size_t n);

void *memcpy(void *to, const void *from, size_t n)
{
	void *at = to;

	asm volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(n) : : "memory");
	return to;
}

void *memset(void *to, int c, size_t n)
{
	void *at = to;

	asm volatile("rep stosb" : "+D"(at), "+c"(n) : "a"(c) : "memory");
	return to;
}

int memcmp(const void *x, const void *y, size_t n)
{
	const unsigned char *p = x, *q = y;
	size_t i;

	for (i = 0; i < n; i++)
		if (p[i] != q[i])
			return p[i] - q[i];
	return 0;
}

static void say_number(int n)
{
	char text[12];
	unsigned int u = n < 0 ? 0U - n : (unsigned int)n;
	int at = sizeof(text);

	do {
		text[--at] = '0' + u % 10;
		u /= 10;
	} while (u);
	if (n < 0)
		text[--at] = '-';
	SYS(write, 2, (long)(text + at), sizeof(text) - at);
}

static _Noreturn void leave(int status)
{
	for (;;)
		SYS(exit_group, status);
}

static void expect(int line, int want, int got)
{
	static const char where[] = "# compat32.c:", is[] = ": ";

	if (want == got)
		return;
	SYS(write, 2, (long)where, sizeof(where) - 1);
	say_number(line);
	SYS(write, 2, (long)is, sizeof(is) - 1);
	say_number(got);
	SYS(write, 2, (long)"\n", 1);
	leave(1);
}

#define IS(want, got)	expect(__LINE__, want, got)
#define YES(what)	expect(__LINE__, 1, !!(what))

static void *map(int fd, size_t bytes, unsigned long page)
{
	long at = SYS(mmap2, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		      page);

	return (unsigned long)at > -4096UL ? NULL : (void *)at;
}

/* ---- commands ---- */

static int dev;
static unsigned char *arena;

static int ioctl(unsigned int cmd, void *arg)
{
	return SYS(ioctl, dev, cmd, (long)arg);
}

static unsigned long long address(const void *p)
{
	return (unsigned long)p;
}

static unsigned char *frame(uint32_t nr)
{
	return arena + nr * COMPAT_BLOCK;
}

static void make_pool(void)
{
	struct kvmm_pool_create spec = {
		.size = sizeof(spec), .name = COMPAT_POOL, .mode = 0600,
		.policy = KVMM_POLICY_LRU, .block_size = COMPAT_BLOCK,
		.nr_frames = COMPAT_FRAMES, .nr_slots = COMPAT_SLOTS,
	};
	struct kvmm_populate fill = {
		.size = sizeof(fill), .count = COMPAT_FRAMES,
	};
	struct kvmm_swap_attach area = {
		.size = sizeof(area), .fd = COMPAT_AREA,
	};

	dev = SYS(open, (long)"/dev/kvmm", O_RDWR);
	YES(dev >= 0);
	IS(0, ioctl(KVMM_POOL_CREATE, &spec));
	IS(COMPAT_FRAMES * COMPAT_BLOCK, spec.arena_size);
	IS(0, ioctl(KVMM_POPULATE, &fill));
	IS(COMPAT_FRAMES, fill.done);
	arena = map(dev, spec.arena_size, 0);
	YES(arena);
	IS(0, ioctl(KVMM_SWAP_ATTACH, &area));
	IS(COMPAT_SLOTS, area.nr_slots);
}

static void store(struct kvmm_block_ref *refs)
{
	struct kvmm_publish_entry entries[COMPAT_N] = { 0 };
	struct kvmm_alloc alloc = {
		.size = sizeof(alloc), .refs = address(refs),
		.count = COMPAT_N,
	};
	struct kvmm_publish publish = {
		.size = sizeof(publish), .entries = address(entries),
		.count = COMPAT_N,
	};
	int i;

	IS(0, ioctl(KVMM_ALLOC, &alloc));
	for (i = 0; i < COMPAT_N; i++) {
		YES(refs[i].frame < COMPAT_FRAMES);
		kt_pattern_fill(frame(refs[i].frame), COMPAT_BLOCK, 1 + i);
		kt_pattern_key(entries[i].key, 1 + i);
		entries[i].handle = refs[i].handle;
		entries[i].parent = i ? refs[i - 1].handle : 0;
		entries[i].position = i;
		entries[i].length = COMPAT_BLOCK;
		entries[i].cost_us = 1000 + i;
		entries[i].priority = 100 + i;
	}
	IS(0, ioctl(KVMM_PUBLISH, &publish));
	IS(COMPAT_N, publish.done);
}

/* Where the blocks from @id on are; returns what @n of them have in common. */
static int where(uint64_t id, int n, uint32_t flags,
		 struct kvmm_block_ref *refs)
{
	uint8_t keys[COMPAT_N][KVMM_KEY_LEN];
	struct kvmm_lookup lookup = {
		.size = sizeof(lookup), .flags = flags, .keys = address(keys),
		.refs = address(refs), .count = n,
	};
	int i;

	for (i = 0; i < n; i++)
		kt_pattern_key(keys[i], id + i);
	IS(0, ioctl(KVMM_LOOKUP, &lookup));
	for (i = 1; i < n; i++)
		if (refs[i].result != refs[0].result)
			return -1;
	return refs[0].result;
}

static int swap(unsigned int cmd, struct kvmm_block_ref *refs, int n,
		uint32_t flags)
{
	struct kvmm_swap arg = {
		.size = sizeof(arg),
		.cmd = {
			.addr = address(refs), .count = n, .flags = flags,
		},
	};
	int ret = ioctl(cmd, &arg);

	return ret ? ret : (int)arg.done;
}

static void good_and_unpin(uint64_t id, struct kvmm_block_ref *refs, int n)
{
	struct kvmm_batch unpin = {
		.size = sizeof(unpin), .refs = address(refs), .count = n,
	};
	int i;

	for (i = 0; i < n; i++) {
		YES(refs[i].frame < COMPAT_FRAMES);
		YES(kt_pattern_good(frame(refs[i].frame), COMPAT_BLOCK,
				    id + i));
	}
	IS(0, ioctl(KVMM_UNPIN, &unpin));
	IS(n, unpin.done);
}

/* ---- io_uring ---- */

static struct {
	int fd;
	unsigned char *sq, *cq;
	struct io_uring_sqe *sqe;
	struct io_uring_params p;
} ring;

/* False: the kernel does not let us have one. */
static bool ring_open(void)
{
	long ret = SYS(io_uring_setup, 4, (long)&ring.p);

	if (ret < 0)
		return false;
	ring.fd = ret;
	/* offsets are counted in pages */
	ring.sq = map(ring.fd, ring.p.sq_off.array +
		      ring.p.sq_entries * sizeof(uint32_t),
		      IORING_OFF_SQ_RING >> 12);
	ring.cq = map(ring.fd, ring.p.cq_off.cqes + ring.p.cq_entries *
		      sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING >> 12);
	ring.sqe = map(ring.fd, ring.p.sq_entries * sizeof(*ring.sqe),
		       IORING_OFF_SQES >> 12);
	YES(ring.sq);
	YES(ring.cq);
	YES(ring.sqe);
	return true;
}

static int ring_do(uint32_t op, unsigned long long addr, int n, uint32_t flags)
{
	struct kvmm_swap_cmd cmd = { .addr = addr, .count = n, .flags = flags };
	uint32_t *tail = (uint32_t *)(ring.sq + ring.p.sq_off.tail);
	uint32_t *array = (uint32_t *)(ring.sq + ring.p.sq_off.array);
	uint32_t *head = (uint32_t *)(ring.cq + ring.p.cq_off.head);
	uint32_t *cq_tail = (uint32_t *)(ring.cq + ring.p.cq_off.tail);
	struct io_uring_cqe *cqes =
		(struct io_uring_cqe *)(ring.cq + ring.p.cq_off.cqes);
	uint32_t at = *tail & (ring.p.sq_entries - 1), seen = *head;
	int res;

	memset(&ring.sqe[at], 0, sizeof(ring.sqe[at]));
	ring.sqe[at].opcode = IORING_OP_URING_CMD;
	ring.sqe[at].fd = dev;
	ring.sqe[at].cmd_op = op;
	ring.sqe[at].user_data = 4711 + seen;
	memcpy(ring.sqe[at].cmd, &cmd, sizeof(cmd));
	array[at] = at;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	IS(1, SYS(io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS));
	IS(seen + 1, __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE));
	at = seen & (ring.p.cq_entries - 1);
	IS(4711 + seen, cqes[at].user_data);
	res = cqes[at].res;
	__atomic_store_n(head, seen + 1, __ATOMIC_RELEASE);
	return res;
}

/* ---- the way ---- */

/* Half of the blocks by ioctl, the other half by the ring where there is one. */
static void there_and_back(struct kvmm_block_ref *refs)
{
	struct kvmm_block_ref *more = refs + COMPAT_N / 2;
	bool has_ring = ring_open();
	int half = COMPAT_N / 2;

	IS(KVMM_MEMORY, where(1, COMPAT_N, KVMM_LOOKUP_PEEK, refs));
	IS(half, swap(KVMM_SWAP_OUT, refs, half, KVMM_SWAP_DROP));
	if (has_ring)
		IS(half, ring_do(KVMM_URING_SWAP_OUT, address(more), half,
				 KVMM_SWAP_DROP));
	else
		IS(half, swap(KVMM_SWAP_OUT, more, half, KVMM_SWAP_DROP));
	IS(KVMM_SWAP, where(1, COMPAT_N, KVMM_LOOKUP_PEEK, refs));
	/* what comes back is not what was left in the frames */
	memset(arena, 0x5a, COMPAT_FRAMES * COMPAT_BLOCK);

	IS(half, swap(KVMM_SWAP_IN, refs, half, KVMM_SWAP_PIN));
	good_and_unpin(1, refs, half);
	if (has_ring) {
		IS(1, ring_do(KVMM_URING_SWAP_IN, more[0].handle, 1,
			      KVMM_SWAP_ONE));
		IS(half, ring_do(KVMM_URING_SWAP_IN, address(more), half,
				 KVMM_SWAP_PIN));
		/* which writes no frames back */
		IS(KVMM_MEMORY, where(1 + half, half, KVMM_LOOKUP_PEEK, more));
	} else {
		IS(half, swap(KVMM_SWAP_IN, more, half, KVMM_SWAP_PIN));
	}
	good_and_unpin(1 + half, more, half);
	if (!has_ring)
		SYS(write, 2, (long)"# no io_uring\n", 14);
}

/* A dma-buf of one frame has the same bytes, both ways. */
static void export(void)
{
	struct kvmm_info info = { .size = sizeof(info) };
	struct kvmm_export arg = { .size = sizeof(arg), .count = 1 };
	struct kvmm_block_ref ref;
	unsigned char *mem;

	IS(KVMM_MEMORY, where(1, 1, KVMM_LOOKUP_PEEK, &ref));
	arg.first = ref.frame;
	IS(0, ioctl(KVMM_INFO, &info));
	if (!(info.features & KVMM_FEATURE_EXPORT))
		return;
	IS(0, ioctl(KVMM_EXPORT, &arg));
	YES(arg.fd > dev);
	mem = map(arg.fd, COMPAT_BLOCK, 0);
	YES(mem);
	IS(0, memcmp(mem, frame(ref.frame), COMPAT_BLOCK));
	mem[COMPAT_BLOCK - 1] ^= 1;
	IS(mem[COMPAT_BLOCK - 1], frame(ref.frame)[COMPAT_BLOCK - 1]);
	mem[COMPAT_BLOCK - 1] ^= 1;
	IS(0, SYS(munmap, (long)mem, COMPAT_BLOCK));
	IS(0, SYS(close, arg.fd));
}

/* All blocks lose their frames, and it is told of each. */
static void events(struct compat_told *told)
{
	struct kvmm_events choose = {
		.size = sizeof(choose), .mask = 1 << KVMM_EVENT_EVICTED,
		.count = 64,
	};
	struct kvmm_reclaim reclaim = { .size = sizeof(reclaim) };
	struct pollfd p = { .fd = dev, .events = POLLIN };

	IS(0, ioctl(KVMM_EVENTS, &choose));
	IS(0, SYS(poll, (long)&p, 1, 0));
	IS(0, ioctl(KVMM_RECLAIM, &reclaim));
	IS(0, reclaim.in_use);
	IS(1, SYS(poll, (long)&p, 1, 10000));
	IS(POLLIN, p.revents);
	IS(sizeof(told->events), SYS(read, dev, (long)told->events,
				     sizeof(told->events)));
	told->nr_events = COMPAT_N;
}

static void ask(struct compat_told *told)
{
	struct kvmm_pool_list list = {
		.size = sizeof(list), .entries = address(&told->pool),
		.count = 1,
	};
	struct kvmm_keys keys = {
		.size = sizeof(keys), .entries = address(told->keys),
		.count = COMPAT_FRAMES,
	};

	told->info.size = sizeof(told->info);
	told->stat.size = sizeof(told->stat);
	IS(0, ioctl(KVMM_INFO, &told->info));
	IS(0, ioctl(KVMM_POOL_STAT, &told->stat));
	IS(0, ioctl(KVMM_POOL_LIST, &list));
	IS(1, list.done);
	IS(0, ioctl(KVMM_KEYS, &keys));
	told->nr_keys = keys.done;
}

/* The other one has got so far. */
static void meet(void)
{
	char byte = '!';

	IS(1, SYS(write, COMPAT_SOCKET, (long)&byte, 1));
	IS(1, SYS(read, COMPAT_SOCKET, (long)&byte, 1));
}

static void go(void)
{
	struct kvmm_block_ref refs[COMPAT_N] = { 0 };
	struct compat_told told = { 0 };

	make_pool();
	store(refs);
	there_and_back(refs);
	export();
	events(&told);
	meet();
	ask(&told);
	IS(sizeof(told), SYS(write, COMPAT_SOCKET, (long)&told, sizeof(told)));
	meet();
	/* what the 64-bit program stored */
	IS(KVMM_MEMORY, where(COMPAT_THEIRS, COMPAT_M, KVMM_LOOKUP_PIN, refs));
	good_and_unpin(COMPAT_THEIRS, refs, COMPAT_M);
	leave(0);
}

/* The kernel begins here; gcc wants the stack aligned as after a call. */
void _start(void);

__attribute__((force_align_arg_pointer)) void _start(void)
{
	go();
	leave(2);
}
