/* SPDX-License-Identifier: MIT */
/*
 * Every ioctl in a call that is well formed, and where its fields are: what
 * the tests of the interface's shape go through and change.
 */
#ifndef ABI_CALLS_H
#define ABI_CALLS_H

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
	struct kvmm_events events;
	struct kvmm_export export;
	struct kvmm_lease lease;
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

static void set_lease(union arg *a)
{
	a->lease.count = 1;
}

static void set_swap(union arg *a)
{
	a->swap.cmd.addr = (uintptr_t)refs;
	a->swap.cmd.count = 2;
}

static void set_export(union arg *a)
{
	a->export.count = 1;
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
	     .flags = KVMM_POOL_MANUAL_CLOCK | KVMM_POOL_NODES_PREFER,
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
	     .flags = KVMM_POPULATE_ASYNC | KVMM_POPULATE_CANCEL,
	     .set = set_populate, .reserved = AT(kvmm_populate, workers)),
	CALL(KVMM_SWAP_ATTACH, kvmm_swap_attach, .bound = true,
	     .set = set_attach, .want = -EBADF,
	     .flags = KVMM_SWAP_NO_CHECKSUM,
	     .reserved = AT(kvmm_swap_attach, __reserved)),
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
	CALL(KVMM_EVENTS, kvmm_events, .bound = true, .out = false,
	     .reserved = AT(kvmm_events, __reserved)),
	CALL(KVMM_EXPORT, kvmm_export, .bound = true, .set = set_export,
	     .flags = KVMM_EXPORT_RDONLY,
	     .reserved = AT(kvmm_export, __reserved)),
	CALL(KVMM_LEASE, kvmm_lease, .bound = true, .set = set_lease,
	     .flags = KVMM_LEASE_END,
	     .reserved = AT(kvmm_lease, __reserved)),
};
#pragma GCC diagnostic pop

#define NR_CALLS (sizeof(calls) / sizeof(calls[0]))

FIXTURE(abi) {
	struct kt owner;	/* made the pool */
	bool bound;		/* still is its client */
	bool refused;		/* the last call was */
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
	EXPECT_EQ(0, kt_info(&info));
	EXPECT_EQ(0, info.nr_pools);
	EXPECT_EQ(0, info.pinned_bytes);
}

/*
 * A client in the state that @c wants, the argument well formed, and the pool
 * "abi" there with nobody else in it, so that each call stands alone.  What a
 * call that was refused has left alone is used again.
 */
static int ready(FIXTURE_DATA(abi) *self, const struct call *c)
{
	struct kvmm_pool_create spec = kt_spec("abi", 4096, FRAMES, 8);
	int ret;

	memset(&self->arg, 0, sizeof(self->arg));
	if (c->set)
		c->set(&self->arg);
	self->arg.size = c->size;
	if (self->refused && self->bound == c->bound)
		return 0;

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
	self->bound = c->bound;
	return self->owner.fd < 0 ? self->owner.fd : 0;
}

static int issue(FIXTURE_DATA(abi) *self, const struct call *c,
		 const void *arg)
{
	int ret = kt_ioctl(self->owner.fd, c->cmd, arg);

	/* what it made would hold the pool's memory */
	if (c->cmd == KVMM_EXPORT && !ret)
		close(((const struct kvmm_export *)arg)->fd);
	self->refused = ret == -EINVAL || ret == -E2BIG;
	return ret;
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

#endif /* ABI_CALLS_H */
