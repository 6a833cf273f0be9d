// SPDX-License-Identifier: MIT
/*
 * The shape of the interface: for every ioctl the sizes it takes and refuses,
 * unknown flags, reserved fields, counts out of range, addresses that can't be
 * read or written, and that a refused call did nothing.
 */
#include <fcntl.h>
#include <sys/ioctl.h>

#include "kt_harness.h"

#define FRAMES	256
#define NONE	0xffff
#define STALE	0x100000001ULL	/* well formed, but of no block */

/* What the commands' arrays point to. */
static struct kvmm_block_ref refs[KVMM_MAX_BATCH + 1];
static struct kvmm_publish_entry pubs[KVMM_MAX_BATCH + 1];
static struct kvmm_pool_entry pools[KVMM_MAX_BATCH + 1];
static struct kvmm_key_entry keys[KVMM_MAX_BATCH + 1];
static uint8_t names[KVMM_MAX_BATCH + 1][KVMM_KEY_LEN];

/* A call that is well formed, and what it gives. */
union arg {
	uint32_t size;
	uint32_t head[2];	/* size and flags */
	struct kvmm_info info;
	struct kvmm_pool_create create;
	struct kvmm_pool_open open;
	struct kvmm_pool_destroy destroy;
	struct kvmm_pool_list list;
	struct kvmm_pool_reset reset;
	struct kvmm_pool_clock clock;
	struct kvmm_pool_stat stat;
	struct kvmm_populate populate;
	struct kvmm_swap_attach attach;
	struct kvmm_swap_detach detach;
	struct kvmm_alloc alloc;
	struct kvmm_publish publish;
	struct kvmm_lookup lookup;
	struct kvmm_batch batch;
	struct kvmm_keys keys;
	struct kvmm_request_end end;
	struct kvmm_hint hint;
	struct kvmm_reclaim reclaim;
	struct kvmm_swap swap;
	unsigned char bytes[8192];
};

static void set_create(union arg *a)
{
	a->create = kt_spec("abi-new", 4096, 4, 0);
}

static void set_open(union arg *a)
{
	strcpy(a->open.name, "abi");
}

static void set_destroy(union arg *a)
{
	strcpy(a->destroy.name, "abi");
}

static void set_list(union arg *a)
{
	a->list.entries = (uintptr_t)pools;
	a->list.count = 8;
}

static void set_clock(union arg *a)
{
	a->clock.now_ms = 5;
}

static void set_populate(union arg *a)
{
	a->populate.count = 1;
}

static void set_attach(union arg *a)
{
	a->attach.fd = -1;
}

static void set_alloc(union arg *a)
{
	a->alloc.refs = (uintptr_t)refs;
	a->alloc.count = 2;
}

static void set_publish(union arg *a)
{
	a->publish.entries = (uintptr_t)pubs;
	a->publish.count = 2;
}

static void set_lookup(union arg *a)
{
	a->lookup.keys = (uintptr_t)names;
	a->lookup.refs = (uintptr_t)refs;
	a->lookup.count = 2;
}

static void set_batch(union arg *a)
{
	a->batch.refs = (uintptr_t)refs;
	a->batch.count = 2;
}

static void set_keys(union arg *a)
{
	a->keys.entries = (uintptr_t)keys;
	a->keys.count = 2;
}

static void set_end(union arg *a)
{
	a->end.handle = STALE;
}

static void set_reclaim(union arg *a)
{
	a->reclaim.keep = FRAMES;
}

static void set_swap(union arg *a)
{
	a->swap.cmd.addr = (uintptr_t)refs;
	a->swap.cmd.count = 2;
}

/**
 * struct call - one ioctl
 * @name: for messages
 * @cmd: its number
 * @size: of its struct
 * @bound: wants a client that is bound to a pool
 * @out: writes to its struct
 * @set: makes the struct well formed
 * @want: what the well formed call gives
 * @flags: flags it knows
 * @more_flags: offset of a second set of flags, NONE: has none
 * @reserved: offset of a reserved field, NONE: has none
 * @count: offset of a count of 1 to KVMM_MAX_BATCH, NONE: has none
 * @addr: offset of the address of its array, NONE: has none
 * @addr2: offset of a second one
 */
struct call {
	const char *name;
	unsigned long cmd;
	size_t size;
	bool bound, out;
	void (*set)(union arg *a);
	int want;
	uint32_t flags;
	uint16_t more_flags, reserved, count, addr, addr2;
};

#define AT(type, field) offsetof(struct type, field)
#define CALL(cmd_, type, ...) {						\
	.name = #cmd_, .cmd = cmd_, .size = sizeof(struct type),	\
	.out = true, .more_flags = NONE, .reserved = NONE,		\
	.count = NONE, .addr = NONE, .addr2 = NONE, ##__VA_ARGS__ }
#define BATCH(cmd_) CALL(cmd_, kvmm_batch, .bound = true,		\
	.set = set_batch, .count = AT(kvmm_batch, count),		\
	.addr = AT(kvmm_batch, refs))
#define SWAP(cmd_) CALL(cmd_, kvmm_swap, .bound = true,			\
	.set = set_swap, .count = AT(kvmm_swap, cmd.count),		\
	.addr = AT(kvmm_swap, cmd.addr),				\
	.more_flags = AT(kvmm_swap, cmd.flags))

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
#ifdef __clang__
#pragma GCC diagnostic ignored "-Winitializer-overrides"
#endif
static const struct call calls[] = {
	CALL(KVMM_INFO, kvmm_info),
	CALL(KVMM_POOL_CREATE, kvmm_pool_create, .set = set_create,
	     .flags = KVMM_POOL_MANUAL_CLOCK,
	     .reserved = AT(kvmm_pool_create, __reserved)),
	CALL(KVMM_POOL_OPEN, kvmm_pool_open, .set = set_open,
	     .flags = KVMM_POOL_RDONLY),
	CALL(KVMM_POOL_DESTROY, kvmm_pool_destroy, .set = set_destroy,
	     .out = false, .flags = KVMM_POOL_FORCE),
	CALL(KVMM_POOL_LIST, kvmm_pool_list, .set = set_list,
	     .count = AT(kvmm_pool_list, count),
	     .addr = AT(kvmm_pool_list, entries)),
	CALL(KVMM_POOL_RESET, kvmm_pool_reset, .bound = true),
	CALL(KVMM_POOL_CLOCK, kvmm_pool_clock, .bound = true,
	     .set = set_clock, .out = false),
	CALL(KVMM_POOL_STAT, kvmm_pool_stat, .bound = true),
	CALL(KVMM_POPULATE, kvmm_populate, .bound = true,
	     .set = set_populate, .reserved = AT(kvmm_populate, __reserved)),
	CALL(KVMM_SWAP_ATTACH, kvmm_swap_attach, .bound = true,
	     .set = set_attach, .want = -EBADF,
	     .flags = KVMM_SWAP_NO_CHECKSUM),
	CALL(KVMM_SWAP_DETACH, kvmm_swap_detach, .bound = true, .out = false,
	     .want = -ENOENT, .flags = KVMM_SWAP_DISCARD),
	CALL(KVMM_ALLOC, kvmm_alloc, .bound = true, .set = set_alloc,
	     .flags = KVMM_ALLOC_WAIT, .count = AT(kvmm_alloc, count),
	     .addr = AT(kvmm_alloc, refs)),
	CALL(KVMM_PUBLISH, kvmm_publish, .bound = true, .set = set_publish,
	     .flags = KVMM_PUBLISH_KEEP, .count = AT(kvmm_publish, count),
	     .addr = AT(kvmm_publish, entries)),
	CALL(KVMM_LOOKUP, kvmm_lookup, .bound = true, .set = set_lookup,
	     .flags = KVMM_LOOKUP_PIN | KVMM_LOOKUP_PREFIX | KVMM_LOOKUP_PEEK,
	     .count = AT(kvmm_lookup, count), .addr = AT(kvmm_lookup, refs),
	     .addr2 = AT(kvmm_lookup, keys)),
	BATCH(KVMM_TOUCH),
	BATCH(KVMM_PIN),
	BATCH(KVMM_UNPIN),
	BATCH(KVMM_DROP),
	BATCH(KVMM_QUERY),
	CALL(KVMM_KEYS, kvmm_keys, .bound = true, .set = set_keys,
	     .count = AT(kvmm_keys, count), .addr = AT(kvmm_keys, entries)),
	CALL(KVMM_REQUEST_END, kvmm_request_end, .bound = true,
	     .set = set_end, .want = -ESTALE),
	CALL(KVMM_HINT, kvmm_hint, .bound = true, .set = set_end,
	     .want = -ESTALE, .reserved = AT(kvmm_hint, __reserved)),
	CALL(KVMM_RECLAIM, kvmm_reclaim, .bound = true, .set = set_reclaim),
	SWAP(KVMM_SWAP_OUT),
	SWAP(KVMM_SWAP_IN),
};
#pragma GCC diagnostic pop

#define NR_CALLS (sizeof(calls) / sizeof(calls[0]))

FIXTURE(abi) {
	struct kt owner;	/* made the pool */
	union arg arg;
};

FIXTURE_SETUP(abi)
{
	uint32_t i;

	kt_wipe();
	self->owner.fd = -1;
	for (i = 0; i <= KVMM_MAX_BATCH; i++) {
		refs[i].handle = STALE;
		pubs[i].handle = STALE;
		pubs[i].length = 1;
		kt_key(pubs[i].key, i + 1);
		kt_key(names[i], i + 1);
	}
}

FIXTURE_TEARDOWN(abi)
{
	struct kvmm_info info;

	kt_close(&self->owner);
	kt_wipe();
	ASSERT_EQ(0, kt_info(&info));
	EXPECT_EQ(0, info.nr_pools);
	EXPECT_EQ(0, info.pinned_bytes);
}

/*
 * A client in the state that @c wants, the argument well formed, and the pool
 * "abi" there with nobody else in it, so that each call stands alone.
 */
static int ready(FIXTURE_DATA(abi) *self, const struct call *c)
{
	struct kvmm_pool_create spec = kt_spec("abi", 4096, FRAMES, 8);
	int ret;

	kt_close(&self->owner);
	kt_wipe();
	spec.flags = KVMM_POOL_MANUAL_CLOCK;
	ret = kt_create_spec(&self->owner, &spec);
	if (ret)
		return ret;
	if (!c->bound) {
		kt_close(&self->owner);
		self->owner.fd = kt_dev(O_RDWR);
	}
	memset(&self->arg, 0, sizeof(self->arg));
	if (c->set)
		c->set(&self->arg);
	self->arg.size = c->size;
	return self->owner.fd < 0 ? self->owner.fd : 0;
}

static int issue(FIXTURE_DATA(abi) *self, const struct call *c,
		 const void *arg)
{
	return kt_ioctl(self->owner.fd, c->cmd, arg);
}

/* One case of one call: made ready, changed by @change, and what it must give */
#define CASE(c, must, change) do {					\
	int got_;							\
									\
	ASSERT_EQ(0, ready(self, c));					\
	change;								\
	got_ = issue(self, c, &self->arg);				\
	EXPECT_EQ(must, got_) {						\
		TH_LOG("%s: %s", (c)->name, #change);			\
	}								\
} while (0)

TEST_F(abi, well_formed)
{
	const struct call *c;

	for (c = calls; c < calls + NR_CALLS; c++)
		CASE(c, c->want, (void)0);
}

TEST_F(abi, size_too_small)
{
	const struct call *c;

	for (c = calls; c < calls + NR_CALLS; c++) {
		CASE(c, -EINVAL, self->arg.size = 0);
		CASE(c, -EINVAL, self->arg.size = 4);
		CASE(c, -EINVAL, self->arg.size = c->size - 1);
	}
}

TEST_F(abi, size_too_large)
{
	const struct call *c;

	for (c = calls; c < calls + NR_CALLS; c++) {
		CASE(c, c->want, self->arg.size = c->size + 1);
		CASE(c, c->want, self->arg.size = c->size + 64);
		CASE(c, -E2BIG, self->arg.size = c->size + 1;
		     self->arg.bytes[c->size] = 1);
		CASE(c, -E2BIG, self->arg.size = c->size + 64;
		     self->arg.bytes[c->size + 63] = 0x80);
	}
}

/* A size that runs past the memory, or that is not a size at all. */
TEST_F(abi, size_absurd)
{
	const struct call *c;
	int ret;

	for (c = calls; c < calls + NR_CALLS; c++) {
		ASSERT_EQ(0, ready(self, c));
		self->arg.size = 0xffffffff;
		ret = issue(self, c, &self->arg);
		EXPECT_TRUE(ret == -E2BIG || ret == -EFAULT) {
			TH_LOG("%s: %d", c->name, ret);
		}
	}
}

TEST_F(abi, unknown_flags)
{
	const struct call *c;
	uint32_t bit;

	for (c = calls; c < calls + NR_CALLS; c++) {
		CASE(c, -EINVAL, self->arg.head[1] = 1U << 31);
		CASE(c, -EINVAL, self->arg.head[1] = c->flags | 1U << 30);
		for (bit = 1; bit & c->flags; bit <<= 1)
			;
		CASE(c, -EINVAL, self->arg.head[1] = bit);
		if (c->more_flags == NONE)
			continue;
		CASE(c, -EINVAL, self->arg.bytes[c->more_flags] = 0x80);
		CASE(c, -EINVAL, self->arg.bytes[c->more_flags + 3] = 0x80);
	}
}

TEST_F(abi, reserved)
{
	const struct call *c;

	for (c = calls; c < calls + NR_CALLS; c++) {
		if (c->reserved == NONE)
			continue;
		CASE(c, -EINVAL, self->arg.bytes[c->reserved] = 1);
		CASE(c, -EINVAL, self->arg.bytes[c->reserved + 3] = 0x80);
	}
}

static void set_u32(union arg *a, uint16_t at, uint32_t value)
{
	memcpy(a->bytes + at, &value, sizeof(value));
}

static void set_addr(union arg *a, uint16_t at, const void *addr)
{
	uint64_t value = (uintptr_t)addr;

	memcpy(a->bytes + at, &value, sizeof(value));
}

TEST_F(abi, counts)
{
	const struct call *c;

	for (c = calls; c < calls + NR_CALLS; c++) {
		if (c->count == NONE)
			continue;
		CASE(c, -EINVAL, set_u32(&self->arg, c->count, 0));
		CASE(c, -EINVAL,
		     set_u32(&self->arg, c->count, KVMM_MAX_BATCH + 1));
		CASE(c, -EINVAL, set_u32(&self->arg, c->count, 0xffffffff));
		/* as many as there may be: all arrays here are so long */
		CASE(c, c->cmd == KVMM_ALLOC ? -ENOSPC : c->want,
		     set_u32(&self->arg, c->count, KVMM_MAX_BATCH));
	}
}

TEST_F(abi, unknown_commands)
{
	const struct call query = { .bound = true };
	int fd;

	ASSERT_EQ(0, ready(self, &query));
	fd = self->owner.fd;
	self->arg.size = sizeof(struct kvmm_info);
	EXPECT_EQ(-ENOTTY, kt_ioctl(fd, _IO(KVMM_IOCTL_TYPE, 0x0b),
				    &self->arg));
	EXPECT_EQ(-ENOTTY, kt_ioctl(fd, _IO(KVMM_IOCTL_TYPE, 0x0f),
				    &self->arg));
	EXPECT_EQ(-ENOTTY, kt_ioctl(fd, _IO(KVMM_IOCTL_TYPE, 0x1e),
				    &self->arg));
	EXPECT_EQ(-ENOTTY, kt_ioctl(fd, _IO(KVMM_IOCTL_TYPE, 0xff),
				    &self->arg));
	EXPECT_EQ(-ENOTTY, kt_ioctl(fd, _IO('k', 0), &self->arg));
	EXPECT_EQ(-ENOTTY, kt_ioctl(fd, 0, &self->arg));
	/* numbers don't encode a size or a direction */
	EXPECT_EQ(-ENOTTY, kt_ioctl(fd, _IOWR(KVMM_IOCTL_TYPE, 0,
					      struct kvmm_info), &self->arg));
}

/* The struct itself in memory that is not there. */
TEST_F(abi, struct_address)
{
	const struct call *c;
	char *page;

	page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, page);
	for (c = calls; c < calls + NR_CALLS; c++) {
		ASSERT_EQ(0, ready(self, c));
		EXPECT_EQ(-EFAULT, issue(self, c, NULL)) {
			TH_LOG("%s: NULL", c->name);
		}
		EXPECT_EQ(-EFAULT, issue(self, c, page)) {
			TH_LOG("%s: no access", c->name);
		}
		EXPECT_EQ(-EFAULT, issue(self, c, (void *)-4096L)) {
			TH_LOG("%s: kernel address", c->name);
		}
	}
}

/* The struct ends in memory that is not there. */
TEST_F(abi, struct_cut)
{
	const struct call *c;
	char *page;

	page = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, page);
	ASSERT_EQ(0, mprotect(page + 4096, 4096, PROT_NONE));
	for (c = calls; c < calls + NR_CALLS; c++) {
		ASSERT_EQ(0, ready(self, c));
		memcpy(page + 4096 - (c->size - 4), &self->arg, c->size - 4);
		EXPECT_EQ(-EFAULT,
			  issue(self, c, page + 4096 - (c->size - 4))) {
			TH_LOG("%s", c->name);
		}
	}
}

/*
 * The struct in memory that can only be read: a call that writes to it fails,
 * and has left nothing behind: no pool, no binding, no block, no pin.
 */
TEST_F(abi, struct_read_only)
{
	struct kvmm_pool_entry entry[4];
	const struct call *c;
	struct kt watch;
	char *page;
	int ret;

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, page);
	for (c = calls; c < calls + NR_CALLS; c++) {
		ASSERT_EQ(0, ready(self, c));
		ASSERT_EQ(0, mprotect(page, 4096, PROT_READ | PROT_WRITE));
		memcpy(page, &self->arg, c->size);
		ASSERT_EQ(0, mprotect(page, 4096, PROT_READ));
		ret = issue(self, c, page);
		/* what fails for its own reason may say so before it writes */
		EXPECT_TRUE(ret == (c->out ? -EFAULT : c->want) ||
			    (c->want && ret == c->want)) {
			TH_LOG("%s: %d", c->name, ret);
		}
		if (c->cmd == KVMM_POOL_CREATE) {
			EXPECT_EQ(1, kt_list(entry, 4)) {
				TH_LOG("a pool was made all the same");
			}
		}
		if (c->cmd == KVMM_POOL_OPEN) {
			EXPECT_EQ(1, kt_list(entry, 4));
			EXPECT_EQ(0, entry[0].nr_clients) {
				TH_LOG("the client was bound all the same");
			}
		}
		if (c->cmd == KVMM_ALLOC) {
			struct kvmm_pool_stat st;

			ASSERT_EQ(0, kt_join(&watch, "abi", 0));
			ASSERT_EQ(0, kt_stat(&watch, &st));
			EXPECT_EQ(0, st.pins) {
				TH_LOG("blocks that nobody was told of");
			}
			kt_close(&watch);
		}
	}
}

/* The arrays in memory that is not there. */
TEST_F(abi, array_address)
{
	const struct call *c;
	char *page;

	page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, page);
	for (c = calls; c < calls + NR_CALLS; c++) {
		if (c->addr == NONE)
			continue;
		/* KVMM_KEYS writes nothing where there is no block */
		if (c->cmd == KVMM_KEYS)
			continue;
		CASE(c, -EFAULT, set_addr(&self->arg, c->addr, NULL));
		CASE(c, -EFAULT, set_addr(&self->arg, c->addr, page));
		CASE(c, -EFAULT,
		     set_addr(&self->arg, c->addr, (void *)-4096L));
		CASE(c, -EFAULT, set_addr(&self->arg, c->addr,
					  (void *)(1UL << 47)));
		if (c->addr2 == NONE)
			continue;
		CASE(c, -EFAULT, set_addr(&self->arg, c->addr2, NULL));
		CASE(c, -EFAULT, set_addr(&self->arg, c->addr2, page));
	}
}

/*
 * An array whose second half is not there.  Entries before it may have been
 * done; of those that were not reported nothing may stay.
 */
TEST_F(abi, array_cut)
{
	struct kvmm_block_ref *cut, stored[128];
	struct kvmm_pool_stat st;
	struct kt t;
	uint32_t done = 0;
	char *page;
	int ret;

	page = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, page);
	ASSERT_EQ(0, mprotect(page + 4096, 4096, PROT_NONE));
	/* 100 entries are there, 28 are not */
	cut = (struct kvmm_block_ref *)(page + 4096) - 100;

	ASSERT_EQ(0, kt_create(&t, 4096, FRAMES, 0));
	ret = kt_alloc_wait(&t, cut, 128, 0, &done);
	EXPECT_EQ(-EFAULT, ret);
	ASSERT_EQ(0, kt_stat(&t, &st));
	EXPECT_EQ(done, st.pins);
	EXPECT_LE(done, 100);
	if (done)
		EXPECT_EQ(0, kt_batch(&t, KVMM_UNPIN, cut, done, NULL));

	ASSERT_EQ(0, kt_store(&t, 1, 128, stored));
	ret = kt_lookup(&t, 1, 128, KVMM_LOOKUP_PIN, cut);
	EXPECT_EQ(-EFAULT, ret);
	ASSERT_EQ(0, kt_stat(&t, &st));
	EXPECT_EQ(0, st.pins) {
		TH_LOG("pins that nobody was told of");
	}
	KT_CONSISTENT(&t);
	KT_FINISH(&t);
	munmap(page, 8192);
}

/* Refs in memory that can be read but not written. */
TEST_F(abi, array_read_only)
{
	const struct call *c;
	void *page;
	size_t bytes = 2 * sizeof(pubs[0]);

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, page);
	for (c = calls; c < calls + NR_CALLS; c++) {
		if (c->addr == NONE || c->cmd == KVMM_KEYS)
			continue;
		ASSERT_EQ(0, mprotect(page, 4096, PROT_READ | PROT_WRITE));
		memcpy(page, c->cmd == KVMM_PUBLISH ? (void *)pubs : refs,
		       bytes);
		ASSERT_EQ(0, mprotect(page, 4096, PROT_READ));
		CASE(c, -EFAULT, set_addr(&self->arg, c->addr, page));
		if (c->bound)
			KT_CONSISTENT(&self->owner);
	}
}

/* The same commands from a 32-bit program: the structs are the same. */
#ifdef __x86_64__
static int ioctl32(int fd, uint32_t cmd, void *arg)
{
	int ret;

	asm volatile("int $0x80"
		     : "=a"(ret)
		     : "a"(54), "b"(fd), "c"(cmd), "d"((uint32_t)(uintptr_t)arg)
		     : "memory", "r8", "r9", "r10", "r11");
	return ret;
}

TEST_F(abi, compat)
{
	const struct call *c;
	void *low;
	int ret;

	low = mmap(NULL, sizeof(self->arg), PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	ASSERT_NE(MAP_FAILED, low);
	for (c = calls; c < calls + NR_CALLS; c++) {
		ASSERT_EQ(0, ready(self, c));
		memcpy(low, &self->arg, sizeof(self->arg));
		ret = ioctl32(self->owner.fd, c->cmd, low);
		if (ret == -ENOSYS)
			SKIP(return, "no 32-bit system calls");
		EXPECT_EQ(c->want, ret) {
			TH_LOG("%s", c->name);
		}
	}
}
#endif

/* Before a pool is bound, and on one that is bound already. */
TEST_F(abi, binding)
{
	const struct call *c;
	int fd = kt_dev(O_RDWR);

	ASSERT_LE(0, fd);
	for (c = calls; c < calls + NR_CALLS; c++) {
		if (!c->bound)
			continue;
		ASSERT_EQ(0, ready(self, c));
		EXPECT_EQ(-ENOTCONN, kt_ioctl(fd, c->cmd, &self->arg)) {
			TH_LOG("%s", c->name);
		}
	}
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
	EXPECT_EQ(ENOTCONN, errno);
	close(fd);

	memset(&self->arg, 0, sizeof(self->arg));
	set_create(&self->arg);
	EXPECT_EQ(-EISCONN, kt_ioctl(self->owner.fd, KVMM_POOL_CREATE,
				     &self->arg));
	memset(&self->arg, 0, sizeof(self->arg));
	set_open(&self->arg);
	self->arg.size = sizeof(self->arg.open);
	EXPECT_EQ(-EISCONN, kt_ioctl(self->owner.fd, KVMM_POOL_OPEN,
				     &self->arg));
}

TEST_F(abi, info)
{
	struct kvmm_info info;

	ASSERT_EQ(0, kt_info(&info));
	EXPECT_EQ(KVMM_ABI, info.abi);
	EXPECT_EQ(0, info.nr_pools);
	EXPECT_EQ(1, info.policies & 1);
	EXPECT_EQ(KVMM_MAX_BATCH, info.max_batch);
	EXPECT_LE(KVMM_MIN_BLOCK_SIZE, info.max_block_size);
	EXPECT_GE(KVMM_MAX_BLOCK_SIZE, info.max_block_size);
	EXPECT_NE(0, info.features & KVMM_FEATURE_URING);
	EXPECT_NE(0, info.features & KVMM_FEATURE_CHECKSUM);
	EXPECT_NE(0, strnlen(info.version, sizeof(info.version)));
	EXPECT_GT(sizeof(info.version),
		  strnlen(info.version, sizeof(info.version)));
}

KT_MAIN
