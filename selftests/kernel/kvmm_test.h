/* SPDX-License-Identifier: MIT */
/*
 * What the kernel tests share: one client of /dev/kvmm and thin wrappers of its
 * commands.  They go straight to <linux/kvmm.h>; nothing here knows libkvmm.
 *
 * Every function that returns int gives 0 or more, or -errno.  Functions with
 * a trailing 1 act on one block and give its result.
 */
#ifndef KVMM_TEST_H
#define KVMM_TEST_H

#include <linux/kvmm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KT_DEVICE	"/dev/kvmm"
#define KT_SYSFS	"/sys/kernel/kvmm"
#define KT_BLOCK	65536U		/* block size of tests that move data */

/* Emulated machines are slow: seconds that one test may take. */
#define KT_TIMEOUT	150

/**
 * struct kt - one client: an open file, its mapping, its pool's geometry
 * @fd: the file, -1: closed
 * @name: name of the pool
 * @block_size: bytes
 * @nr_frames: frames of the arena
 * @arena: the mapping, NULL: none
 * @arena_size: its bytes
 */
struct kt {
	int fd;
	char name[KVMM_NAME_LEN];
	uint32_t block_size;
	uint32_t nr_frames;
	unsigned char *arena;
	size_t arena_size;
};

/* ---- files and clients (kt_pool.c) ---- */

/* ioctl() that returns -errno */
int kt_ioctl(int fd, unsigned long cmd, const void *arg);

/* Opens the device; -errno. */
int kt_dev(int flags);

/* A struct to create a pool with: populated later, private, LRU. */
struct kvmm_pool_create kt_spec(const char *name, uint32_t block_size,
				uint32_t nr_frames, uint32_t nr_slots);

/* Creates the pool of @spec, brings all its memory in and maps it. */
int kt_create_spec(struct kt *t, struct kvmm_pool_create *spec);
int kt_create(struct kt *t, uint32_t block_size, uint32_t nr_frames,
	      uint32_t nr_slots);

/* Opens the pool @name as a further client, and maps it. */
int kt_join(struct kt *t, const char *name, uint32_t flags);

/* Unmaps and closes; fine to call twice. */
void kt_close(struct kt *t);

int kt_destroy(const char *name, uint32_t flags);
int kt_populate(struct kt *t, uint32_t first, uint32_t count, uint32_t *done);
int kt_stat(struct kt *t, struct kvmm_pool_stat *st);

/* The same as a value; where it can't be had no number in it is a good one. */
struct kvmm_pool_stat kt_stat_of(struct kt *t);

/* Blocks that are being written or read. */
uint64_t kt_moving(struct kt *t);

int kt_info(struct kvmm_info *info);
int kt_clock(struct kt *t, uint64_t now_ms);
int kt_reset(struct kt *t, uint64_t *epoch);

/* Pools that exist; at most @max entries are written. */
int kt_list(struct kvmm_pool_entry *entries, uint32_t max);

/* Destroys every pool there is: what an earlier, failed test left. */
void kt_wipe(void);

/*
 * NULL where the gauges of @st agree with each other: frames and slots are all
 * accounted for.  Else what does not fit.
 */
const char *kt_inconsistent(const struct kvmm_pool_stat *st);

/*
 * Ends @t's pool and checks through counters that nothing leaked: closes @t,
 * which must be the last client, looks at the pool, destroys it, looks at the
 * module.  NULL where all is well, else what leaked.
 */
const char *kt_finish(struct kt *t);

/* Waits until the pool has no pin, at most 20 s: clients that were killed. */
int kt_wait_unpinned(struct kt *t);

/* ---- blocks (kt_block.c) ---- */

void kt_key(uint8_t key[KVMM_KEY_LEN], uint64_t id);

/* A block's bytes are a function of its id, different in every word. */
void kt_fill(struct kt *t, uint32_t frame, uint64_t id);
bool kt_good(struct kt *t, uint32_t frame, uint64_t id);
void kt_fill_mem(void *mem, size_t bytes, uint64_t id);
bool kt_good_mem(const void *mem, size_t bytes, uint64_t id);

int kt_alloc(struct kt *t, struct kvmm_block_ref *refs, uint32_t n);
int kt_alloc_parts(struct kt *t, struct kvmm_block_ref *refs, uint32_t n,
		   uint32_t nr_parts);
int kt_alloc_wait(struct kt *t, struct kvmm_block_ref *refs, uint32_t n,
		  uint32_t timeout_ms, uint32_t *done);

/* An entry that publishes @handle under the key of @id. */
struct kvmm_publish_entry kt_entry(struct kt *t, uint64_t handle, uint64_t id);
int kt_publish(struct kt *t, struct kvmm_publish_entry *e, uint32_t n,
	       uint32_t flags);
int kt_publish1(struct kt *t, uint64_t handle, uint64_t id, uint32_t flags);

/* Allocates, fills and publishes the blocks id, id + 1 ...; no pin is left. */
int kt_store(struct kt *t, uint64_t id, uint32_t n,
	     struct kvmm_block_ref *refs);

/* The same one by one: each is younger than the one before it. */
int kt_store_each(struct kt *t, uint64_t id, uint32_t n,
		  struct kvmm_block_ref *refs);

/* Looks up id, id + 1 ...; returns the prefix found. */
int kt_lookup(struct kt *t, uint64_t id, uint32_t n, uint32_t flags,
	      struct kvmm_block_ref *refs);

/* enum kvmm_where of one key; @handle may be NULL. */
int kt_where1(struct kt *t, uint64_t id, uint64_t *handle);

/* KVMM_TOUCH, PIN, UNPIN, DROP and QUERY: 0, and *done where not NULL. */
int kt_batch(struct kt *t, unsigned long cmd, struct kvmm_block_ref *refs,
	     uint32_t n, uint32_t *done);
int kt_batch1(struct kt *t, unsigned long cmd, uint64_t handle);

#define kt_touch1(t, handle)	kt_batch1(t, KVMM_TOUCH, handle)
#define kt_pin1(t, handle)	kt_batch1(t, KVMM_PIN, handle)
#define kt_unpin1(t, handle)	kt_batch1(t, KVMM_UNPIN, handle)
#define kt_drop1(t, handle)	kt_batch1(t, KVMM_DROP, handle)
#define kt_query1(t, handle)	kt_batch1(t, KVMM_QUERY, handle)

int kt_reclaim(struct kt *t, uint32_t keep, struct kvmm_reclaim *out);

/* ---- processes (kt_proc.c) ---- */

/*
 * Runs @fn in a child and waits for it.  Returns what @fn returned: 0 or more,
 * or -errno; -ECHILD where a signal ended the child.
 */
int kt_child(int (*fn)(void *arg), void *arg);

/* The same as user @uid of group @gid, and of group @extra where not 0. */
int kt_child_as(uid_t uid, gid_t gid, gid_t extra, int (*fn)(void *arg),
		void *arg);

/* Starts a child that exits with what @fn returns; killed with its parent. */
pid_t kt_spawn(int (*fn)(void *arg), void *arg);

/* Waits for it; as kt_child(). */
int kt_reap(pid_t pid);

/* Does touching @addr raise SIGBUS?  Not for several threads at once. */
bool kt_sigbus(volatile void *addr, bool write);

void kt_sleep_ms(unsigned int ms);
uint64_t kt_now_ms(void);

/* How many times slower than usual this machine is, as KVMM_SLOW says. */
unsigned int kt_slow(void);

/* ---- files and cgroups (kt_cgroup.c) ---- */

/* The first line of a file, or a value for it. */
int kt_file_get(const char *path, char *value, size_t size);
int kt_file_put(const char *path, const char *value);

/* The number that follows the word @name, one such line each; or -1. */
long long kt_file_field(const char *path, const char *name);

/* A cgroup by its path below the root, which is "". */
int kt_cgroup_make(const char *group);
int kt_cgroup_end(const char *group);
int kt_cgroup_join(const char *group);
int kt_cgroup_put(const char *group, const char *file, const char *value);
long long kt_cgroup_get(const char *group, const char *file);
long long kt_cgroup_field(const char *group, const char *file,
			  const char *name);

/* ---- swapping (kt_swap.c) ---- */

/* The folder on the ext4 disk, and the spare disk; NULL where there is none. */
const char *kt_disk_dir(void);
const char *kt_disk_dev(void);

/* A new file of written zeroes for @slots blocks, open O_RDWR. */
int kt_area_file(const char *name, uint32_t block_size, uint32_t slots);
void kt_area_unlink(const char *name);

/* A file takes all the space there is where it is; -ENODATA: there was none. */
int kt_fill_disk(int fd);

int kt_attach(struct kt *t, int fd, uint32_t nr_slots, uint64_t offset,
	      uint32_t flags, uint32_t *got);
int kt_detach(struct kt *t, uint32_t flags);

/* Attaches all of @fd, with a deadline of @timeout_ms for each block's I/O. */
int kt_attach_timeout(struct kt *t, int fd, uint32_t timeout_ms);

/* KVMM_SWAP_OUT or KVMM_SWAP_IN through the ioctl; returns entries done. */
int kt_swap(struct kt *t, unsigned long cmd, struct kvmm_block_ref *refs,
	    uint32_t n, uint32_t flags);
int kt_swap1(struct kt *t, unsigned long cmd, uint64_t handle, uint32_t flags);

/*
 * What an engine does with a hit: finds the block of @id, brings it in pinned,
 * checks every byte, drops the pin.  1: there and right; 0: a miss; -EBADMSG:
 * wrong bytes; else -errno.
 */
int kt_load(struct kt *t, uint64_t id);

/* Loads id ... id + n - 1: how many were hits, or the first error. */
int kt_load_all(struct kt *t, uint64_t id, uint32_t n);

/* ---- memory pressure (kt_elastic.c) ---- */

/* A pool of units of 2 MiB, the last @elastic of @units may be given back. */
#define KT_UNIT		(2U << 20)
struct kvmm_pool_create kt_elastic_spec(const char *name, uint32_t block_size,
					uint32_t units, uint32_t elastic,
					uint32_t nr_slots);

int kt_lease(struct kt *t, uint32_t first, uint32_t count, uint32_t flags,
	     uint32_t *done);

/*
 * Asks all pools for their memory until each has given what it can: a pool of
 * the caller's own gave all its free memory meanwhile, twice.
 */
int kt_squeeze(void);

/* Asks until @chunks leased chunks of the pool are asked back. */
int kt_want(struct kt *t, uint32_t chunks);

/* Parameter pressure_ms of the module; returns what it was. */
long kt_pressure_ms(long ms);

/* A line of /proc/meminfo in KiB. */
long kt_meminfo(const char *name);

/* ---- a slow or failing disk (kt_nullb.c) ---- */

/*
 * Makes a block device in memory that answers after @delay_us and opens it
 * O_RDWR.  -ENODEV where the kernel has no null_blk.  One at a time.
 */
int kt_nullb(uint32_t megabytes, uint32_t delay_us);

/*
 * A pool as of kt_create_spec() with such a disk as its area, open at @disk,
 * that takes KT_DELAY_US for each I/O: long enough to see it under way.
 */
#define KT_DELAY_US	(200000 * kt_slow())
int kt_create_slow(struct kt *t, struct kvmm_pool_create *spec, int *disk);

/* From now on all I/O of it fails with EIO, or works again. */
int kt_nullb_fail(bool fail);
void kt_nullb_end(void);

/* ---- a disk that hangs, fails or lies (kt_dm.c) ---- */

/*
 * Makes a device-mapper device on the spare disk and opens it O_RDWR.  -ENODEV
 * where there is no disk or no driver.  One at a time.
 */
int kt_dm(void);

/* From now on it answers nothing, or answers again, all there was, too. */
int kt_dm_hang(bool hang);

/*
 * Becomes another target: "linear", "error", "flakey", "delay"; @args follow the
 * name of the disk.  What is in flight ends first.  -ENODEV where the kernel
 * does not have that target.
 */
int kt_dm_become(const char *target, const char *args);
void kt_dm_end(void);

/* ---- a file system of a test's own (kt_loop.c) ---- */

/**
 * struct kt_loop - an ext4 in a file
 * @dir: where it is mounted
 * @image: the file
 * @dev: its loop device, without /dev
 */
struct kt_loop {
	char dir[64];
	char image[128];
	char dev[32];
};

/*
 * Makes one in the new file @image, and mounts it.  -ENODEV where the kernel has
 * no loop device, or the machine no mkfs.ext4.
 */
int kt_loop(struct kt_loop *l, const char *image, uint32_t megabytes,
	    const char *options);

/* Opens a file of it; takes all space there is, and gives it back. */
int kt_loop_file(struct kt_loop *l, const char *name, int flags);
int kt_loop_fill(struct kt_loop *l);
void kt_loop_empty(struct kt_loop *l);

/* Unmounts and removes it: -EBUSY, and out of sight, where it is in use. */
int kt_loop_end(struct kt_loop *l);

#endif /* KVMM_TEST_H */
