// SPDX-License-Identifier: MIT
/*
 * Pools: create, open, destroy, list, reset, counters, clock, memory.
 */
#include "lt.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static struct kvmm_pool_opts small(const char *name)
{
	struct kvmm_pool_opts o = {
		.size = sizeof(o),
		.name = name,
		.block_size = LT_BLOCK,
		.nr_frames = 8,
		.nr_slots = 8,
	};

	return o;
}

static void create_refuses(struct lt *lt, struct kvmm_pool_opts o, int err)
{
	struct kvmm_pool *pool = NULL;

	assert_fails(kvmm_pool_create(lt->kv, &o, &pool), err);
	assert_null(pool);
}

static void create_checks_options(void **state)
{
	struct lt *lt = *state;
	char name[KVMM_NAME_LEN + 1];
	struct kvmm_pool_opts o;
	struct kvmm_pool *pool;
	static const char *const bad[] = { "", ".a", "-a", "a/b", "a b", "\xe4" };
	unsigned int i;

	o = small("x");
	o.size--;
	create_refuses(lt, o, EINVAL);
	assert_fails(kvmm_pool_create(lt->kv, NULL, &pool), EINVAL);
	o = small("x");
	assert_fails(kvmm_pool_create(lt->kv, &o, NULL), EINVAL);
	o.flags = 0x100;
	create_refuses(lt, o, EINVAL);
	create_refuses(lt, small(NULL), EINVAL);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		create_refuses(lt, small(bad[i]), EINVAL);
	memset(name, 'n', sizeof(name));
	name[KVMM_NAME_LEN] = 0;
	create_refuses(lt, small(name), ENAMETOOLONG);

	o = small("x");
	o.clean_high = 1001;
	create_refuses(lt, o, EINVAL);
	o.clean_high = 200;
	o.clean_low = 201;
	create_refuses(lt, o, EINVAL);

	o = small("x");
	o.mode = 01000;
	create_refuses(lt, o, EINVAL);
	o = small("x");
	o.policy = 31;
	create_refuses(lt, o, EOPNOTSUPP);
	o = small("x");
	o.block_size = 0;
	create_refuses(lt, o, EINVAL);
	o.block_size = 2048;
	create_refuses(lt, o, EINVAL);
	o.block_size = 3 * 4096;
	create_refuses(lt, o, EINVAL);
	o.block_size = KVMM_MAX_BLOCK_SIZE * 2u;
	create_refuses(lt, o, EINVAL);
	o = small("x");
	o.nr_frames = 0;
	create_refuses(lt, o, EINVAL);
	o.nr_frames = KVMM_MAX_BLOCKS;
	o.nr_slots = 1;
	create_refuses(lt, o, EINVAL);
	o = small("x");
	o.quarantine_ms = KVMM_MAX_QUARANTINE_MS + 1;
	create_refuses(lt, o, EINVAL);
	o = small("x");
	o.populate_threads = -2;
	create_refuses(lt, o, EINVAL);

	/* The longest name there is. */
	name[KVMM_NAME_LEN - 1] = 0;
	pool = lt_pool(lt, name, 1, 0, 0);
	create_refuses(lt, small(name), EEXIST);
	lt_end(lt, pool, name);
}

static void arena_is_mapped(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-arena", 40, 0, 0);
	struct kvmm_block_ref ref = { .frame = 39 };
	size_t bytes = 0, i;
	unsigned char *mem, *other;

	mem = kvmm_pool_arena(pool, &bytes);
	assert_int_equal(bytes, 40 * LT_BLOCK);
	assert_ptr_equal(kvmm_pool_arena(pool, NULL), mem);
	assert_int_equal((uintptr_t)mem % (2 << 20), 0);
	assert_int_equal(kvmm_pool_block_size(pool), LT_BLOCK);
	assert_ptr_equal(kvmm_addr(pool, &ref), mem + 39 * LT_BLOCK);
	ref.frame = 40;
	assert_null(kvmm_addr(pool, &ref));
	ref.frame = KVMM_NO_FRAME;
	assert_null(kvmm_addr(pool, &ref));
	for (i = 0; i < bytes; i++)
		if (mem[i])
			fail_msg("byte %zu is not zero", i);
	/* The fd can be mapped again: the same bytes. */
	other = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		     kvmm_pool_fd(pool), 0);
	assert_true(other != MAP_FAILED);
	mem[12345] = 77;
	assert_int_equal(other[12345], 77);
	munmap(other, bytes);
	lt_end(lt, pool, "lt-arena");
}

static void memfd_is_sealed(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-seal", 4, 0, 0);
	int fd = kvmm_pool_fd(pool);

	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, 100 * LT_BLOCK), -1);
	assert_true(fcntl(fd, F_GET_SEALS) & F_SEAL_SEAL);
	lt_end(lt, pool, "lt-seal");
}

static void populate_in_parts(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool_opts o = small("lt-populate");
	struct kvmm_block_ref refs[40];
	struct kvmm_pool *pool, *ro;

	o.nr_frames = 40;
	o.populate_threads = -1;
	assert_int_equal(kvmm_pool_create(lt->kv, &o, &pool), 0);
	assert_int_equal(lt_stat(pool).frames_online, 0);
	assert_fails(kvmm_alloc(pool, refs, 1, 1, 0), ENOSPC);

	assert_fails(kvmm_pool_populate(pool, 0, 0), EINVAL);
	assert_fails(kvmm_pool_populate(pool, 40, 1), EINVAL);
	assert_fails(kvmm_pool_populate(pool, 39, 2), EINVAL);
	assert_fails(kvmm_pool_populate(pool, 1, ~0u), EINVAL);
	assert_int_equal(kvmm_pool_open(lt->kv, o.name, KVMM_POOL_RDONLY, &ro),
			 0);
	assert_fails(kvmm_pool_populate(ro, 0, 1), EACCES);
	kvmm_pool_close(ro);

	assert_int_equal(kvmm_pool_populate(pool, 3, 5), 5);
	assert_int_equal(lt_stat(pool).frames_online, 5);
	assert_int_equal(kvmm_alloc(pool, refs, 40, 1, 0), 5);
	assert_int_equal(kvmm_pool_populate(pool, 0, 10), 10);
	assert_int_equal(lt_stat(pool).frames_online, 10);
	assert_int_equal(kvmm_pool_populate(pool, 0, 40), 40);
	assert_int_equal(kvmm_pool_populate(pool, 0, 40), 40);
	assert_int_equal(lt_stat(pool).frames_online, 40);
	assert_int_equal(kvmm_alloc(pool, refs + 5, 40, 1, 0), 35);
	lt_end(lt, pool, o.name);
}

static void too_much_memory(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool_opts o = small("lt-big");
	struct kvmm_pool *pool;

	/* 4 TiB: refused without a signal, and the pool is gone again. */
	o.block_size = 256 << 20;
	o.nr_frames = 1 << 14;
	o.nr_slots = 0;
	create_refuses(lt, o, ENOMEM);
	assert_fails(kvmm_pool_open(lt->kv, o.name, 0, &pool), ENOENT);
	assert_true(lt->nr_logs > 0);
}

static void file_size_limit(void **state)
{
	struct rlimit old, low = { .rlim_cur = 1 << 20 };
	struct lt *lt = *state;
	struct kvmm_pool_opts o = small("lt-limit");
	struct kvmm_pool *pool;
	int err;

	getrlimit(RLIMIT_FSIZE, &old);
	low.rlim_max = old.rlim_max;
	o.nr_frames = 32;
	setrlimit(RLIMIT_FSIZE, &low);
	err = kvmm_pool_create(lt->kv, &o, &pool);
	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(err, -ENOMEM);
}

static void too_many_pools(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool[KVMM_MAX_POOLS], *more;
	struct kvmm_pool_opts o = small(NULL);
	unsigned int i;
	char name[16];

	o.name = name;
	o.nr_frames = 1;
	o.block_size = 4096;
	o.populate_threads = -1;
	for (i = 0; i < KVMM_MAX_POOLS; i++) {
		sprintf(name, "p%u", i);
		assert_int_equal(kvmm_pool_create(lt->kv, &o, &pool[i]), 0);
	}
	strcpy(name, "more");
	assert_fails(kvmm_pool_create(lt->kv, &o, &more), EUSERS);
	for (i = 0; i < KVMM_MAX_POOLS; i++)
		kvmm_pool_close(pool[i]);
}

static void too_many_clients(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool **c = calloc(KVMM_MAX_CLIENTS, sizeof(*c));
	struct kvmm_pool *more;
	unsigned int i;

	c[0] = lt_pool(lt, "lt-clients", 2, 0, 0);
	for (i = 1; i < KVMM_MAX_CLIENTS; i++)
		assert_int_equal(kvmm_pool_open(lt->kv, "lt-clients", 0, &c[i]),
				 0);
	assert_fails(kvmm_pool_open(lt->kv, "lt-clients", 0, &more), EUSERS);
	assert_int_equal(lt_stat(c[0]).nr_clients, KVMM_MAX_CLIENTS);
	kvmm_pool_close(c[7]);
	assert_int_equal(kvmm_pool_open(lt->kv, "lt-clients", 0, &c[7]), 0);
	for (i = 0; i < KVMM_MAX_CLIENTS; i++)
		kvmm_pool_close(c[i]);
	free(c);
	assert_int_equal(kvmm_pool_destroy(lt->kv, "lt-clients", 0), 0);
}

static void open_checks(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-open", 2, 0, 0), *p;
	char name[KVMM_NAME_LEN + 1];

	assert_fails(kvmm_pool_open(lt->kv, "lt-none", 0, &p), ENOENT);
	assert_fails(kvmm_pool_open(lt->kv, "lt-open", 2, &p), EINVAL);
	assert_fails(kvmm_pool_open(lt->kv, "lt-open", 0, NULL), EINVAL);
	assert_fails(kvmm_pool_open(lt->kv, NULL, 0, &p), EINVAL);
	assert_fails(kvmm_pool_open(lt->kv, "a/b", 0, &p), EINVAL);
	memset(name, 'n', KVMM_NAME_LEN);
	name[KVMM_NAME_LEN] = 0;
	assert_fails(kvmm_pool_open(lt->kv, name, 0, &p), ENAMETOOLONG);
	lt_end(lt, pool, "lt-open");
}

static void mode_is_checked(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool_opts o = small("lt-mode");
	struct kvmm_pool *pool, *p = NULL;
	int ro, rw, destroy;

	o.mode = 0644;
	assert_int_equal(kvmm_pool_create(lt->kv, &o, &pool), 0);
	assert_int_equal(seteuid(12345), 0);
	ro = kvmm_pool_open(lt->kv, o.name, KVMM_POOL_RDONLY, &p);
	kvmm_pool_close(p);
	rw = kvmm_pool_open(lt->kv, o.name, 0, &p);
	destroy = kvmm_pool_destroy(lt->kv, o.name, KVMM_POOL_FORCE);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(ro, 0);
	assert_int_equal(rw, -EACCES);
	assert_int_equal(destroy, -EPERM);
	lt_end(lt, pool, o.name);

	o.mode = 0600;
	assert_int_equal(kvmm_pool_create(lt->kv, &o, &pool), 0);
	assert_int_equal(seteuid(12345), 0);
	ro = kvmm_pool_open(lt->kv, o.name, KVMM_POOL_RDONLY, &p);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(ro, -EACCES);
	lt_end(lt, pool, o.name);
}

static void destroy_checks(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-destroy", 2, 0, 0);

	assert_fails(kvmm_pool_destroy(lt->kv, "lt-none", 0), ENOENT);
	assert_fails(kvmm_pool_destroy(lt->kv, NULL, 0), EINVAL);
	assert_fails(kvmm_pool_destroy(lt->kv, "lt-destroy", 2), EINVAL);
	assert_fails(kvmm_pool_destroy(lt->kv, "lt-destroy", 0), EBUSY);
	lt_end(lt, pool, "lt-destroy");
	assert_fails(kvmm_pool_destroy(lt->kv, "lt-destroy", 0), ENOENT);
}

static void all_calls_fail(struct kvmm_pool *pool)
{
	struct kvmm_publish_entry e = lt_entry(1, 1);
	struct kvmm_block_ref ref = { .handle = 1ULL << 32 };
	struct kvmm_swap_opts so = { .size = sizeof(so), .path = "/dev/zero" };
	struct kvmm_key_entry ke;
	struct kvmm_pool_stat st;
	uint64_t cursor = 0;
	uint8_t key[KVMM_KEY_LEN];

	lt_key(key, 1);
	assert_fails(kvmm_pool_reset(pool, NULL), ENODEV);
	assert_fails(kvmm_pool_stat(pool, &st), ENODEV);
	assert_fails(kvmm_pool_clock(pool, 1), ENODEV);
	assert_fails(kvmm_swap_attach(pool, &so), ENODEV);
	assert_fails(kvmm_swap_detach(pool, 0), ENODEV);
	assert_fails(kvmm_alloc(pool, &ref, 1, 1, 0), ENODEV);
	assert_fails(kvmm_publish(pool, &e, 1, 0), ENODEV);
	assert_fails(kvmm_lookup(pool, key, &ref, 1, 0), ENODEV);
	assert_fails(kvmm_touch(pool, &ref, 1), ENODEV);
	assert_fails(kvmm_pin(pool, &ref, 1), ENODEV);
	assert_fails(kvmm_unpin(pool, &ref, 1), ENODEV);
	assert_fails(kvmm_drop(pool, &ref, 1), ENODEV);
	assert_fails(kvmm_query(pool, &ref, 1), ENODEV);
	assert_fails(kvmm_swap_out(pool, &ref, 1, 0), ENODEV);
	assert_fails(kvmm_swap_in(pool, &ref, 1, 0), ENODEV);
	assert_fails(kvmm_keys(pool, &cursor, &ke, 1), ENODEV);
	assert_fails(kvmm_request_end(pool, 1, 0), ENODEV);
	assert_fails(kvmm_hint(pool, 1, 0, 0), ENODEV);
	assert_fails(kvmm_reclaim(pool, 0, NULL), ENODEV);
}

static void forced_destroy(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-force", 4, 4,
					 KVMM_POOL_MANUAL_CLOCK);
	struct kvmm_pool *again;

	assert_int_equal(kvmm_pool_destroy(lt->kv, "lt-force",
					   KVMM_POOL_FORCE), 0);
	all_calls_fail(pool);
	/* The name is free, and the new pool is another one. */
	again = lt_pool(lt, "lt-force", 4, 4, 0);
	assert_int_equal(lt_stat(again).nr_clients, 1);
	all_calls_fail(pool);
	kvmm_pool_close(pool);
	lt_end(lt, again, "lt-force");
}

static void list_in_steps(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool[3];
	struct kvmm_pool_entry e;
	unsigned int found = 0, i;
	uint64_t cursor = 0;
	char name[16];
	long n;

	for (i = 0; i < 3; i++) {
		sprintf(name, "lt-list%u", i);
		pool[i] = lt_pool(lt, name, i + 1, i + 10, 0);
	}
	assert_fails(kvmm_pool_list(lt->kv, NULL, &e, 1), EFAULT);
	assert_fails(kvmm_pool_list(lt->kv, &cursor, NULL, 1), EFAULT);
	assert_fails(kvmm_pool_list(lt->kv, &cursor, &e, 0), EINVAL);
	while ((n = kvmm_pool_list(lt->kv, &cursor, &e, 1))) {
		assert_int_equal(n, 1);
		if (sscanf(e.name, "lt-list%u", &i) != 1)
			continue;
		found |= 1u << i;
		assert_int_equal(e.nr_frames, i + 1);
		assert_int_equal(e.nr_slots, i + 10);
		assert_int_equal(e.block_size, LT_BLOCK);
		assert_int_equal(e.mode, 0600);
		assert_int_equal(e.uid, geteuid());
		assert_int_equal(e.gid, getegid());
		assert_int_equal(e.nr_clients, 1);
	}
	assert_int_equal(found, 7);
	for (i = 0; i < 3; i++) {
		sprintf(name, "lt-list%u", i);
		lt_end(lt, pool[i], name);
	}
}

static void reset_misses_everything(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-reset", 8, 0, 0);
	struct kvmm_block_ref refs[3], filling;
	struct kvmm_publish_entry e;
	uint64_t epoch = 0;

	lt_store(pool, refs, 0, 3, 0);
	assert_int_equal(kvmm_pin(pool, refs, 1), 1);
	assert_int_equal(kvmm_alloc(pool, &filling, 1, 1, 0), 1);
	assert_int_equal(kvmm_pool_reset(pool, &epoch), 0);
	assert_int_equal(epoch, 1);
	assert_int_equal(lt_find(pool, 0, 0, NULL), KVMM_MISS);
	assert_int_equal(lt_find(pool, 2, 0, NULL), KVMM_MISS);
	/* A pin stays good until it is dropped. */
	lt_check(kvmm_addr(pool, refs), 0, LT_BLOCK);
	assert_int_equal(kvmm_unpin(pool, refs, 1), 1);
	assert_int_equal(kvmm_query(pool, refs, 3), 0);
	assert_int_equal(refs[0].result, -ESTALE);
	e = lt_entry(filling.handle, 9);
	assert_int_equal(kvmm_publish(pool, &e, 1, 0), 0);
	assert_int_equal(e.result, -ESTALE);
	assert_int_equal(kvmm_unpin(pool, &filling, 1), 1);
	assert_int_equal(kvmm_pool_reset(pool, NULL), 0);
	assert_int_equal(lt_stat(pool).epoch, 2);
	lt_store(pool, refs, 0, 3, 0);
	assert_int_equal(lt_find(pool, 0, 0, NULL), KVMM_MEMORY);
	lt_end(lt, pool, "lt-reset");
}

static void clock_goes_forward(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-clock", 4, 0, 0);

	assert_fails(kvmm_pool_clock(pool, 1), EINVAL);
	lt_end(lt, pool, "lt-clock");
	pool = lt_pool(lt, "lt-clock", 4, 0, KVMM_POOL_MANUAL_CLOCK);
	assert_int_equal(kvmm_pool_clock(pool, 5), 0);
	assert_int_equal(kvmm_pool_clock(pool, 5), 0);
	assert_fails(kvmm_pool_clock(pool, 4), EINVAL);
	lt_end(lt, pool, "lt-clock");
}

static void counters_add_up(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "lt-stat", 8, 0, 0);
	struct kvmm_block_ref refs[5];
	struct kvmm_pool_stat st;

	assert_fails(kvmm_pool_stat(pool, NULL), EFAULT);
	lt_store(pool, refs, 0, 5, 0);
	lt_find(pool, 1, KVMM_LOOKUP_PIN, NULL);
	lt_find(pool, 99, 0, NULL);
	lt_find(pool, 2, KVMM_LOOKUP_PEEK, NULL);
	st = lt_stat(pool);
	assert_int_equal(st.size, sizeof(st));
	assert_int_equal(st.block_size, LT_BLOCK);
	assert_int_equal(st.nr_frames, 8);
	assert_int_equal(st.nr_slots, 0);
	assert_int_equal(st.nr_clients, 1);
	assert_int_equal(st.frames_online, 8);
	assert_int_equal(st.frames_free, 3);
	assert_int_equal(st.blocks[KVMM_RESIDENT], 5);
	assert_int_equal(st.blocks[KVMM_FREE], 3);
	assert_int_equal(st.pins, 1);
	assert_int_equal(st.blocks_pinned, 1);
	assert_int_equal(st.allocs, 5);
	assert_int_equal(st.publishes, 5);
	assert_int_equal(st.lookups, 2);
	assert_int_equal(st.hits_memory, 1);
	assert_int_equal(st.misses, 1);
	lt_end(lt, pool, "lt-stat");
}

static void background_writeback_is_the_kernels(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool_opts o = small("lt-clean");
	struct kvmm_pool *pool;
	struct kvmm_info info;

	assert_int_equal(kvmm_info(lt->kv, &info), 0);
	assert_int_equal(!!(info.features & KVMM_FEATURE_WRITEBACK),
			 lt->kernel);
	o.clean_low = 100;
	o.clean_high = 200;
	if (!lt->kernel) {
		create_refuses(lt, o, EOPNOTSUPP);
		return;
	}
	pool = lt_create(lt, &o);
	lt_end(lt, pool, "lt-clean");
}

static void elastic_frames_are_the_kernels(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool_opts o = small("lt-elastic");
	struct kvmm_pool *pool;
	struct kvmm_pool_stat st;

	o.block_size = 65536;
	o.nr_frames = 96;
	o.nr_elastic = 33;
	create_refuses(lt, o, EINVAL);
	o.nr_elastic = 64;
	o.chunk_frames = 48;
	create_refuses(lt, o, EINVAL);
	o.chunk_frames = 0;
	if (!lt->kernel) {
		create_refuses(lt, o, EOPNOTSUPP);
		return;
	}
	pool = lt_create(lt, &o);
	assert_int_equal(kvmm_pool_stat(pool, &st), 0);
	assert_int_equal(st.nr_elastic, 64);
	assert_int_equal(st.chunk_frames, 32);
	lt_end(lt, pool, "lt-elastic");
}

static void nodes_are_the_kernels(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool_opts o = small("lt-nodes");
	struct kvmm_pool_stat st;
	struct kvmm_pool *pool;

	o.flags = KVMM_POOL_NODES_PREFER;
	create_refuses(lt, o, EINVAL);
	o.nodes = 1;
	if (!lt->kernel) {
		create_refuses(lt, o, EOPNOTSUPP);
		o.flags = 0;
		create_refuses(lt, o, EOPNOTSUPP);
		return;
	}
	pool = lt_create(lt, &o);
	assert_int_equal(kvmm_pool_stat(pool, &st), 0);
	assert_int_equal(st.frames_misplaced, 0);
	assert_int_equal(st.frames_online, o.nr_frames);
	lt_end(lt, pool, "lt-nodes");
	/* a machine of so many is not what this runs on */
	o.nodes = 1ULL << 63;
	create_refuses(lt, o, EINVAL);
}

static void leases(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool_opts o = small("lt-lease");
	struct kvmm_pool *pool, *reader;
	struct kvmm_pool_stat st;

	o.block_size = 65536;
	o.nr_frames = 96;
	o.chunk_frames = 32;
	pool = lt_create(lt, &o);
	assert_int_equal(kvmm_pool_stat(pool, &st), 0);
	assert_int_equal(st.chunk_frames, 32);
	assert_int_equal(kvmm_lease(pool, 0, 3, 0), 3);
	assert_int_equal(kvmm_lease(pool, 1, 1, 0), 1);
	assert_fails(kvmm_lease(pool, 0, 4, 0), EINVAL);
	assert_fails(kvmm_lease(pool, 3, 1, 0), EINVAL);
	assert_fails(kvmm_lease(pool, 0, 0, 0), EINVAL);
	assert_fails(kvmm_lease(pool, 0, 1, 8), EINVAL);
	assert_int_equal(kvmm_pool_open(lt->kv, "lt-lease", KVMM_POOL_RDONLY,
					&reader), 0);
	assert_int_equal(kvmm_lease(reader, 2, 1, 0), 1);
	assert_int_equal(kvmm_lease(pool, 0, 3, KVMM_LEASE_END), 3);
	assert_int_equal(kvmm_lease(pool, 0, 3, KVMM_LEASE_END), 3);
	kvmm_pool_close(reader);
	assert_int_equal(kvmm_pool_destroy(lt->kv, "lt-lease",
					   KVMM_POOL_FORCE), 0);
	assert_fails(kvmm_lease(pool, 0, 1, 0), ENODEV);
	kvmm_pool_close(pool);
}

int main(void)
{
	static const struct lt_test tests[] = {
		LT_TEST(create_checks_options),
		LT_TEST(background_writeback_is_the_kernels),
		LT_TEST(elastic_frames_are_the_kernels),
		LT_TEST(nodes_are_the_kernels),
		LT_TEST(leases),
		LT_TEST(arena_is_mapped),
		LT_TEST_ON(memfd_is_sealed, LT_USER),
		LT_TEST(populate_in_parts),
		LT_TEST_ON(too_much_memory, LT_USER),
		LT_TEST_ON(file_size_limit, LT_USER),
		LT_TEST_ON(too_many_pools, LT_USER),
		LT_TEST_ON(too_many_clients, LT_USER),
		LT_TEST(open_checks),
		LT_TEST_ON(mode_is_checked, LT_USER_ROOT),
		LT_TEST(destroy_checks),
		LT_TEST(forced_destroy),
		LT_TEST(list_in_steps),
		LT_TEST(reset_misses_everything),
		LT_TEST(clock_goes_forward),
		LT_TEST(counters_add_up),
	};

	return LT_RUN("pool", tests);
}
