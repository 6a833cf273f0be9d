/* SPDX-License-Identifier: MIT */
/*
 * libkvmm: pools of key/value blocks for inference engines.
 *
 * Two backends with the same calls: "kernel" talks to /dev/kvmm, "user" keeps
 * the pool in this process.  The structs, limits and errors that commands
 * carry are those of <linux/kvmm.h>; what is said there of a command holds for
 * the call here.
 *
 * Errors: every function that returns int or long returns -errno on failure,
 * with errno set too.  Threads: all functions may be called from several
 * threads at once on the same object, except that closing an object must be
 * the last call on it.  fork(): a child must not use what its parent opened.
 */
#ifndef KVMM_H
#define KVMM_H

#include <linux/kvmm.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kvmm;
struct kvmm_pool;

/**
 * enum kvmm_backend - where pools live
 * @KVMM_BACKEND_AUTO: the kernel's, where its device can be opened, else user
 * @KVMM_BACKEND_KERNEL: /dev/kvmm
 * @KVMM_BACKEND_USER: this process
 */
enum kvmm_backend {
	KVMM_BACKEND_AUTO,
	KVMM_BACKEND_KERNEL,
	KVMM_BACKEND_USER,
};

/** enum kvmm_log_level - how bad a message is */
enum kvmm_log_level {
	KVMM_LOG_ERROR,
	KVMM_LOG_WARNING,
	KVMM_LOG_INFO,
};

/* kvmm_open_opts.flags */
#define KVMM_OPEN_NO_URING	(1U << 0)	/* never use io_uring */

/**
 * struct kvmm_open_opts - how to open
 * @size: sizeof(struct kvmm_open_opts)
 * @flags: KVMM_OPEN_*
 * @backend: enum kvmm_backend
 * @device: the device to open, NULL: /dev/kvmm
 * @log: called with one line of text without a newline, from any thread that
 *	is inside the library; NULL: silent.  It must not call the library
 * @log_ctx: its first argument
 */
struct kvmm_open_opts {
	size_t size;
	unsigned int flags;
	enum kvmm_backend backend;
	const char *device;
	void (*log)(void *ctx, enum kvmm_log_level level, const char *text);
	void *log_ctx;
};

/**
 * kvmm_open() - start using kvmm
 * @out: set on success
 * @opts: NULL: all defaults
 *
 * Return: 0; -EINVAL; -ENOMEM; with KVMM_BACKEND_KERNEL the reason why the
 * device can't be opened (-ENOENT, -EACCES, -EPROTO: it speaks another ABI).
 */
int kvmm_open(struct kvmm **out, const struct kvmm_open_opts *opts);

/**
 * kvmm_close() - stop using kvmm
 * @kv: NULL is fine; all its pools must be closed
 *
 * With the user backend its pools end here.
 */
void kvmm_close(struct kvmm *kv);

/** kvmm_backend_name() - "kernel" or "user" */
const char *kvmm_backend_name(const struct kvmm *kv);

/** kvmm_io_name() - how the area is driven: "io_uring" or "threads" (user),
 * "io_uring" or "ioctl" (kernel)
 */
const char *kvmm_io_name(const struct kvmm *kv);

/** kvmm_version() - version of the library, "X.Y.Z" */
const char *kvmm_version(void);

/** kvmm_info() - see struct kvmm_info */
int kvmm_info(struct kvmm *kv, struct kvmm_info *info);

/* kvmm_pool_opts.flags above those of struct kvmm_pool_create */
#define KVMM_POOL_POPULATE_ASYNC	(1U << 16)	/* memory comes later */

/**
 * struct kvmm_pool_opts - what kind of pool
 * @size: sizeof(struct kvmm_pool_opts)
 * @flags: KVMM_POOL_MANUAL_CLOCK, KVMM_POOL_NODES_PREFER,
 *	KVMM_POOL_POPULATE_ASYNC
 * @name: see struct kvmm_pool_create, as all below
 * @mode: 0: 0600
 * @policy: enum kvmm_policy
 * @block_size: bytes, a power of two
 * @nr_frames: frames
 * @nr_slots: the most slots
 * @nr_holds: 0: default
 * @quarantine_ms: milliseconds
 * @populate_threads: threads that bring the memory in before the call
 *	returns; 0: as many as there are CPUs, at most 16; -1: leave it to
 *	kvmm_pool_populate() or kvmm_populate_start().  With
 *	KVMM_POOL_POPULATE_ASYNC as kvmm_populate_start() has it
 * @clean_low: permille; the user backend has no background writeback:
 *	-EOPNOTSUPP where this or @clean_high is not 0
 * @clean_high: permille
 * @nr_elastic: frames that may be given back; the user backend gives none back:
 *	-EOPNOTSUPP where this is not 0
 * @chunk_frames: frames of a chunk, the unit of kvmm_lease(); 0: default
 * @nodes: bit N: NUMA node N, where the memory is to come from, as near a GPU
 *	(kvmm_device_node() tells its node); 0: the node of who populates.  The user
 *	backend leaves that to numactl(8): -EOPNOTSUPP where this is not 0
 */
struct kvmm_pool_opts {
	size_t size;
	unsigned int flags;
	const char *name;
	unsigned int mode;
	unsigned int policy;
	unsigned int block_size;
	unsigned int nr_frames;
	unsigned int nr_slots;
	unsigned int nr_holds;
	unsigned int quarantine_ms;
	int populate_threads;
	unsigned short clean_low;
	unsigned short clean_high;
	unsigned int nr_elastic;
	unsigned int chunk_frames;
	uint64_t nodes;
};

/**
 * kvmm_pool_create() - make a pool and open it
 * @kv: an open kvmm
 * @opts: what is wanted
 * @out: set on success
 *
 * The kernel's outlives the process; the user backend's ends with its struct
 * kvmm.  With KVMM_POOL_POPULATE_ASYNC the call returns before the memory is
 * there: kvmm_alloc() hands out what has come, lowest frames first, and
 * kvmm_populate_wait() tells how it ended.
 * Return: 0 or the errors of struct kvmm_pool_create and
 * struct kvmm_populate; the pool is destroyed again then, but not one that has
 * its name because someone else destroyed it.
 */
int kvmm_pool_create(struct kvmm *kv, const struct kvmm_pool_opts *opts,
		     struct kvmm_pool **out);

/**
 * kvmm_pool_open() - open a pool that exists; a new client of it
 * @kv: an open kvmm
 * @name: the pool's name
 * @out: set on success
 * @flags: KVMM_POOL_RDONLY or 0
 */
int kvmm_pool_open(struct kvmm *kv, const char *name, unsigned int flags,
		   struct kvmm_pool **out);

/**
 * kvmm_pool_close() - end a client: its pins and unpublished blocks go
 * @pool: NULL is fine
 */
void kvmm_pool_close(struct kvmm_pool *pool);

/** kvmm_pool_destroy() - see struct kvmm_pool_destroy */
int kvmm_pool_destroy(struct kvmm *kv, const char *name, unsigned int flags);

/**
 * kvmm_pool_list() - list pools
 * @kv: an open kvmm
 * @entries: room for @n entries
 * @n: how many
 * @cursor: set to 0 before the first call
 *
 * Return: entries written, 0 at the end, or -errno.
 */
long kvmm_pool_list(struct kvmm *kv, uint64_t *cursor,
		    struct kvmm_pool_entry *entries, unsigned int n);

/** kvmm_pool_reset() - new epoch; @epoch may be NULL */
int kvmm_pool_reset(struct kvmm_pool *pool, uint64_t *epoch);

/** kvmm_pool_stat() - counters; @st->size and @st->flags need not be set */
int kvmm_pool_stat(struct kvmm_pool *pool, struct kvmm_pool_stat *st);

/** kvmm_pool_clock() - see struct kvmm_pool_clock */
int kvmm_pool_clock(struct kvmm_pool *pool, uint64_t now_ms);

/**
 * kvmm_pool_populate() - bring in the memory of @count frames from @first
 * @pool: the pool
 * @first: first frame
 * @count: frames
 *
 * Return: frames online in the range from @first on without a gap (@count
 * unless memory ran out), or -errno where that is none.
 */
long kvmm_pool_populate(struct kvmm_pool *pool, unsigned int first,
			unsigned int count);

/**
 * kvmm_populate_start() - the same in the background
 * @pool: the pool
 * @first: first frame
 * @count: frames
 * @threads: at most KVMM_MAX_WORKERS; 0: as many as there are CPUs, at most 16
 *
 * Threads of the kernel's, or with the user backend of the library's, do it.
 * It belongs to the pool: it goes on when the client closes, and ends when the
 * pool is destroyed.  KVMM_EVENT_POPULATED tells of its end.
 * Return: 0; -EBUSY: one is in progress, of this client or another; -EINVAL;
 * -EACCES; -ENODEV; -ENOMEM; -EAGAIN: no thread can be had; -EOPNOTSUPP: the
 * kernel module is too old.
 */
int kvmm_populate_start(struct kvmm_pool *pool, unsigned int first,
			unsigned int count, unsigned int threads);

/**
 * kvmm_populate_left() - how much of the pool's memory is still on its way
 * @pool: the pool
 *
 * Return: frames that populates in progress, whoever asked for them, still have
 * to do; or -errno.  kvmm_pool_stat() tells how many are online.
 */
long kvmm_populate_left(struct kvmm_pool *pool);

/**
 * kvmm_populate_wait() - wait until no populate is in progress
 * @pool: the pool
 * @timeout_ms: how long; 0: only ask; -1: for ever
 *
 * Return: 0; -ETIMEDOUT: one still is; -ENODEV: the pool was destroyed; -EINTR.
 * Else why the last one in the background ended early, of those that this
 * client started or waited for: -ENOMEM, -ECANCELED.  What was brought in until
 * then stays.
 */
int kvmm_populate_wait(struct kvmm_pool *pool, int timeout_ms);

/**
 * kvmm_populate_cancel() - end all populates of the pool that are in progress
 * @pool: the pool
 *
 * What is online stays, and kvmm_populate_start() can do the rest.
 * Return: 0 when they have ended, or when there was none; -EACCES; -ENODEV.
 */
int kvmm_populate_cancel(struct kvmm_pool *pool);

/**
 * kvmm_export() - memory of frames as a dma-buf, see struct kvmm_export
 * @pool: the pool
 * @first: first frame
 * @count: frames
 * @flags: KVMM_EXPORT_RDONLY or 0
 *
 * Return: a file descriptor, with O_CLOEXEC, for kvmm_gpu_import(), DRM and
 * RDMA drivers, and mmap(); or -errno: -EOPNOTSUPP on the user backend.
 */
int kvmm_export(struct kvmm_pool *pool, unsigned int first, unsigned int count,
		unsigned int flags);

/**
 * kvmm_lease() - say which chunks of the arena a device has registered
 * @pool: the pool
 * @first: first chunk
 * @count: chunks
 * @flags: KVMM_LEASE_END, or 0 to take leases
 *
 * See struct kvmm_lease; kvmm_pool_stat() tells how many frames a chunk has.
 * With the user backend, which never gives memory back, it is always granted.
 * Return: chunks that are as asked for, from @first on without a gap, or why
 * none is: -EBUSY, -EINVAL, -ENOMEM, -ENODEV.
 */
long kvmm_lease(struct kvmm_pool *pool, unsigned int first, unsigned int count,
		unsigned int flags);

/** kvmm_pool_arena() - the mapped arena; @bytes may be NULL */
void *kvmm_pool_arena(const struct kvmm_pool *pool, size_t *bytes);

/** kvmm_pool_fd() - what can be mapped or registered: the device file or the
 * memfd; it stays the library's
 */
int kvmm_pool_fd(const struct kvmm_pool *pool);

/** kvmm_pool_block_size() - bytes */
size_t kvmm_pool_block_size(const struct kvmm_pool *pool);

/**
 * kvmm_addr() - address of a block's data in this process
 * @pool: the pool
 * @ref: the block, as alloc, lookup, pin or swap-in filled it
 *
 * Good while the block is pinned.  NULL where @ref has no frame.
 */
void *kvmm_addr(const struct kvmm_pool *pool, const struct kvmm_block_ref *ref);

/* kvmm_swap_opts.flags above those of struct kvmm_swap_attach */
#define KVMM_SWAP_CREATE	(1U << 16)	/* make @path anew */
#define KVMM_SWAP_PREWRITE	(1U << 17)	/* CREATE: write all of it once */
#define KVMM_SWAP_UNLINK	(1U << 18)	/* the file's name goes at once */

/**
 * struct kvmm_swap_opts - a swap area
 * @size: sizeof(struct kvmm_swap_opts)
 * @flags: KVMM_SWAP_NO_CHECKSUM, KVMM_SWAP_CREATE, KVMM_SWAP_PREWRITE,
 *	KVMM_SWAP_UNLINK
 * @path: file or block device; NULL: use @fd
 * @fd: an open file where @path is NULL
 * @nr_slots: 0: what the pool allows (KVMM_SWAP_CREATE), or what fits
 * @offset: bytes into the file
 * @timeout_ms: deadline of one block's I/O; 0: 30 s.  See struct
 *	kvmm_swap_attach
 *
 * KVMM_SWAP_CREATE makes a regular file of the whole size with its room
 * reserved, mode 0600; it refuses to replace what is not a regular file
 * (-EEXIST), and a failure leaves what was there.  KVMM_SWAP_PREWRITE is for new
 * files only.
 */
struct kvmm_swap_opts {
	size_t size;
	unsigned int flags;
	const char *path;
	int fd;
	unsigned int nr_slots;
	uint64_t offset;
	unsigned int timeout_ms;
};

/** kvmm_swap_attach() - see struct kvmm_swap_attach; returns slots in use */
long kvmm_swap_attach(struct kvmm_pool *pool,
		      const struct kvmm_swap_opts *opts);

/** kvmm_swap_detach() - see struct kvmm_swap_detach */
int kvmm_swap_detach(struct kvmm_pool *pool, unsigned int flags);

/**
 * kvmm_alloc() - get @n blocks to fill
 * @pool: the pool
 * @refs: the blocks
 * @n: how many
 * @nr_parts: 1, or publishes that complete a block
 * @timeout_ms: 0: don't wait
 *
 * Return: number had, the first entries of @refs; or why none was
 * (struct kvmm_alloc).  @n may exceed KVMM_MAX_BATCH, here and below.
 */
long kvmm_alloc(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		unsigned int n, unsigned int nr_parts, unsigned int timeout_ms);

/**
 * kvmm_publish() - make blocks visible, see struct kvmm_publish
 * @pool: the pool
 * @entries: what to publish
 * @n: how many
 * @flags: see the struct
 *
 * Return: entries whose result is not an error, or -errno.
 */
long kvmm_publish(struct kvmm_pool *pool, struct kvmm_publish_entry *entries,
		  unsigned int n, unsigned int flags);

/**
 * kvmm_lookup() - find blocks, see struct kvmm_lookup
 * @pool: the pool
 * @refs: the blocks
 * @n: how many
 * @flags: see the struct
 * @keys: @n keys of KVMM_KEY_LEN bytes
 *
 * Return: length of the longest prefix found, or -errno.
 */
long kvmm_lookup(struct kvmm_pool *pool, const void *keys,
		 struct kvmm_block_ref *refs, unsigned int n,
		 unsigned int flags);

/*
 * On blocks by handle; see KVMM_TOUCH, KVMM_PIN, KVMM_UNPIN, KVMM_DROP and
 * KVMM_QUERY.  Return: entries whose result is not an error, or -errno.
 */
long kvmm_touch(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		unsigned int n);
long kvmm_pin(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
	      unsigned int n);
long kvmm_unpin(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		unsigned int n);
long kvmm_drop(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
	       unsigned int n);
long kvmm_query(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		unsigned int n);

/**
 * kvmm_swap_out() - write blocks to the area, all at once in flight
 * @pool: the pool
 * @refs: the blocks
 * @n: how many
 * @flags: KVMM_SWAP_DROP or 0
 *
 * Return: entries whose result is not an error, or -errno; see
 * struct kvmm_swap_cmd for the results.
 */
long kvmm_swap_out(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		   unsigned int n, unsigned int flags);

/**
 * kvmm_swap_in() - bring blocks back, all at once in flight
 * @pool: the pool
 * @refs: the blocks
 * @n: how many
 * @flags: KVMM_SWAP_PIN or 0
 *
 * Return: entries whose result is not an error, or -errno; see
 * struct kvmm_swap_cmd for the results.
 */
long kvmm_swap_in(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		  unsigned int n, unsigned int flags);

/** kvmm_keys() - see struct kvmm_keys; returns entries, 0 at the end */
long kvmm_keys(struct kvmm_pool *pool, uint64_t *cursor,
	       struct kvmm_key_entry *entries, unsigned int n);

/** kvmm_request_end() - see struct kvmm_request_end; returns blocks found */
long kvmm_request_end(struct kvmm_pool *pool, uint64_t handle,
		      unsigned int output_tokens);

/** kvmm_hint() - see struct kvmm_hint; returns blocks acted on */
long kvmm_hint(struct kvmm_pool *pool, uint64_t handle, unsigned int permille,
	       unsigned int delay_ms);

/**
 * kvmm_reclaim() - see struct kvmm_reclaim
 * @pool: the pool
 * @keep: frames that may stay in use
 * @result: may be NULL; its @size, @flags and @keep need not be set
 */
int kvmm_reclaim(struct kvmm_pool *pool, unsigned int keep,
		 struct kvmm_reclaim *result);

/**
 * kvmm_events() - choose what to be told of, see struct kvmm_events
 * @pool: the pool
 * @mask: bit N: enum kvmm_event_type N; 0: nothing more
 * @count: events the queue has room for; 0: 256
 *
 * The user backend tells of evicted and lost blocks, of a failing area and of
 * populates in the background.
 * Return: 0 or -errno.
 */
int kvmm_events(struct kvmm_pool *pool, uint64_t mask, unsigned int count);

/**
 * kvmm_event_fd() - what to poll for events
 * @pool: the pool
 *
 * Readable (POLLIN) while there are events, and readable or hung up (POLLHUP)
 * when the pool was destroyed.  Only to be polled; it stays the library's, and
 * the same for as long as @pool is open.
 * Return: the device file; the user backend: an eventfd, or -ENOTCONN where
 * nothing was chosen.
 */
int kvmm_event_fd(struct kvmm_pool *pool);

/**
 * kvmm_event_read() - take events
 * @pool: the pool
 * @events: room for @n
 * @n: at least 1
 * @timeout_ms: how long to wait for the first one; 0: not at all; -1: for ever
 *
 * Each event is given once, to whichever thread comes first.
 * Return: events taken, 0: none came in time; -ENOTCONN: nothing was chosen;
 * -ENODEV: the pool was destroyed, and nothing is left; -EINTR.
 */
long kvmm_event_read(struct kvmm_pool *pool, struct kvmm_event *events,
		     unsigned int n, int timeout_ms);

/* ---- keys ---- */

struct kvmm_keyer;

/**
 * struct kvmm_key_opts - what all keys of an engine depend on
 * @size: sizeof(struct kvmm_key_opts)
 * @domain: whatever makes KV data of equal tokens different: model, revision
 *	of the weights, data type, layout, block size; a field each, which
 *	never run together
 * @nr_domain: number of fields
 * @salt: keeps tenants apart: equal tokens under different salts have
 *	different keys; NULL: none
 * @salt_len: bytes
 */
struct kvmm_key_opts {
	size_t size;
	const struct iovec *domain;
	unsigned int nr_domain;
	const void *salt;
	size_t salt_len;
};

/**
 * kvmm_keyer_new() - get ready to make keys
 * @out: set on success
 * @opts: copied into a hash; need not stay
 *
 * Return: 0; -EINVAL; -ENOMEM; -EIO: libcrypto has no SHA-256.
 */
int kvmm_keyer_new(struct kvmm_keyer **out, const struct kvmm_key_opts *opts);

/**
 * kvmm_keyer_free() - done making keys
 * @k: NULL is fine
 */
void kvmm_keyer_free(struct kvmm_keyer *k);

/**
 * kvmm_key_chain() - keys of a run of tokens, block by block
 * @k: the keyer
 * @parent: key of the block before the first, NULL: there is none
 * @tokens: the tokens
 * @n: how many
 * @block_tokens: tokens of a block; what is left over makes a partial block,
 *	whose key is never that of a whole one
 * @extra: for each block bytes that its content depends on too (adapter, hash
 *	of an image); NULL: none for any
 * @keys: room for (n + block_tokens - 1) / block_tokens keys
 *
 * Each key depends on all before it: equal keys mean equal prefixes.  The
 * format is fixed: keys made by another process or version are the same.
 * Return: number of keys; -EINVAL; -ENOMEM; -EIO.
 */
long kvmm_key_chain(const struct kvmm_keyer *k, const void *parent,
		    const uint32_t *tokens, size_t n, unsigned int block_tokens,
		    const struct iovec *extra, void *keys);

/**
 * kvmm_key_wrap() - a key from an engine's own hash of a block
 * @k: the keyer: its domain and salt count
 * @group: cache group of a model that has several; else 0
 * @hash: the engine's hash, which must itself depend on the whole prefix
 * @len: bytes, at least 1
 * @key: KVMM_KEY_LEN bytes
 *
 * Return: 0; -EINVAL; -ENOMEM; -EIO.
 */
int kvmm_key_wrap(const struct kvmm_keyer *k, uint64_t group, const void *hash,
		  size_t len, void *key);

#ifdef __cplusplus
}
#endif

#endif /* KVMM_H */
