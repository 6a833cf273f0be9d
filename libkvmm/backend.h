/* SPDX-License-Identifier: MIT */
/*
 * What the low door (open.c, pool.c, block.c, area.c) and its two backends
 * share: the objects behind the opaque handles and the table of operations.
 *
 * The front checks pointers, options and flags that both backends treat alike;
 * a backend checks what depends on the pool.  Operations return -errno; only
 * the front sets errno.
 */
#ifndef LIBKVMM_BACKEND_H
#define LIBKVMM_BACKEND_H

/* Everything is hidden but what the public header declares. */
#pragma GCC visibility push(default)
#include <kvmm.h>
#pragma GCC visibility pop

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct kvmm_ops;

/* Messages that are said once in the life of a struct kvmm. */
enum kvmm_once {
	ONCE_NO_URING,
	ONCE_NO_REGISTER,
	ONCE_NO_HUGE,
	ONCE_NO_DROP,
	ONCE_SLOW_AREA,
};

/**
 * struct kvmm - one use of the library
 * @ops: the backend
 * @priv: the backend's own
 * @no_uring: KVMM_OPEN_NO_URING
 * @log: may be NULL
 * @log_ctx: argument of @log
 * @said: bit N: the message enum kvmm_once N was given; atomic
 */
struct kvmm {
	const struct kvmm_ops *ops;
	void *priv;
	bool no_uring;
	void (*log)(void *ctx, enum kvmm_log_level level, const char *text);
	void *log_ctx;
	unsigned int said;
};

/**
 * struct kvmm_pool - one client of a pool; backends embed it
 * @kv: where it was opened
 * @arena: its mapping
 * @arena_bytes: length of the mapping
 * @block_shift: log2 of the block size
 * @nr_frames: frames of the arena
 * @nr_slots: the most slots
 * @fd: the device file, or the memfd
 * @rdonly: may not change data
 *
 * Constant from open to close, so it is read without a lock.
 */
struct kvmm_pool {
	struct kvmm *kv;
	void *arena;
	size_t arena_bytes;
	unsigned int block_shift;
	unsigned int nr_frames;
	unsigned int nr_slots;
	int fd;
	bool rdonly;
};

/**
 * struct kvmm_ops - a backend
 *
 * The calls are those of kvmm.h after the front's checks: @n is at least 1 and
 * unbounded, flags are known ones, arrays are not NULL.
 */
struct kvmm_ops {
	const char *name;

	int (*open)(struct kvmm *kv, const char *device);
	void (*close)(struct kvmm *kv);
	const char *(*io_name)(const struct kvmm *kv);
	int (*info)(struct kvmm *kv, struct kvmm_info *info);

	int (*pool_create)(struct kvmm *kv, struct kvmm_pool_create *arg,
			   struct kvmm_pool **out);
	int (*pool_open)(struct kvmm *kv, struct kvmm_pool_open *arg,
			 struct kvmm_pool **out);
	void (*pool_close)(struct kvmm_pool *pool);
	int (*pool_destroy)(struct kvmm *kv, struct kvmm_pool_destroy *arg);
	long (*pool_list)(struct kvmm *kv, uint64_t *cursor,
			  struct kvmm_pool_entry *entries, unsigned int n);
	int (*pool_reset)(struct kvmm_pool *pool, uint64_t *epoch);
	int (*pool_stat)(struct kvmm_pool *pool, struct kvmm_pool_stat *st);
	int (*pool_clock)(struct kvmm_pool *pool, uint64_t now_ms);
	/* arg->done: as asked for now, also with an error */
	int (*lease)(struct kvmm_pool *pool, struct kvmm_lease *arg);
	/* Is there memory for all of it, as far as can be told; may be NULL */
	int (*room)(struct kvmm_pool *pool);
	/* *done: online from @first on without a gap, also with an error */
	int (*populate)(struct kvmm_pool *pool, unsigned int first,
			unsigned int count, unsigned int *done);

	/* In the background; -EBUSY: so is another one already */
	int (*populate_start)(struct kvmm_pool *pool, unsigned int first,
			      unsigned int count, unsigned int threads);
	/* Until none is in progress: 0, how the last one ended, -ETIMEDOUT */
	int (*populate_wait)(struct kvmm_pool *pool, int timeout_ms);
	int (*populate_cancel)(struct kvmm_pool *pool);

	/* a dma-buf of frames, all of the range in the arena; NULL: can't */
	int (*export)(struct kvmm_pool *pool, unsigned int first,
		      unsigned int count, unsigned int flags);

	/* arg->fd stays the caller's; arg->nr_slots is updated */
	int (*swap_attach)(struct kvmm_pool *pool,
			   struct kvmm_swap_attach *arg);
	int (*swap_detach)(struct kvmm_pool *pool, unsigned int flags);

	long (*alloc)(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		      unsigned int n, unsigned int nr_parts,
		      unsigned int timeout_ms);
	long (*publish)(struct kvmm_pool *pool, struct kvmm_publish_entry *e,
			unsigned int n, unsigned int flags);
	long (*lookup)(struct kvmm_pool *pool, const uint8_t *keys,
		       struct kvmm_block_ref *refs, unsigned int n,
		       unsigned int flags);
	/* @cmd: KVMM_TOUCH, KVMM_PIN, KVMM_UNPIN, KVMM_DROP or KVMM_QUERY */
	long (*batch)(struct kvmm_pool *pool, unsigned int cmd,
		      struct kvmm_block_ref *refs, unsigned int n);
	long (*swap_out)(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
			 unsigned int n, unsigned int flags);
	long (*swap_in)(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
			unsigned int n, unsigned int flags);
	long (*keys)(struct kvmm_pool *pool, uint64_t *cursor,
		     struct kvmm_key_entry *e, unsigned int n);
	long (*request_end)(struct kvmm_pool *pool, uint64_t handle,
			    unsigned int output_tokens);
	long (*hint)(struct kvmm_pool *pool, uint64_t handle,
		     unsigned int permille, unsigned int delay_ms);
	int (*reclaim)(struct kvmm_pool *pool, struct kvmm_reclaim *arg);

	int (*events)(struct kvmm_pool *pool, uint64_t mask,
		      unsigned int count);
	int (*event_fd)(struct kvmm_pool *pool);
	/* Never waits: -EAGAIN where there is none */
	long (*event_read)(struct kvmm_pool *pool, struct kvmm_event *events,
			   unsigned int n);
};

extern const struct kvmm_ops kvmm_kernel_ops;
extern const struct kvmm_ops kvmm_user_ops;

/** kvmm_log() - one message to the caller's log callback */
void kvmm_log(struct kvmm *kv, enum kvmm_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/** kvmm_log_once() - the same, at most once for each @what */
void kvmm_log_once(struct kvmm *kv, enum kvmm_once what,
		   enum kvmm_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/**
 * kvmm_copy_opts() - take a size-first option struct of any version
 * @to: our struct, @size bytes
 * @from: the caller's; its first field is its size
 * @least: the first published size
 *
 * Return: 0; -EINVAL: too short; -E2BIG: longer, and the tail is not zero.
 */
int kvmm_copy_opts(void *to, size_t size, const void *from, size_t least);

/**
 * kvmm_map_arena() - map all of an arena, at an address fit for huge pages
 *
 * Core dumps leave it out.  Return: NULL, with errno: ENOMEM: there is no room
 * for it; of a device's, ENODEV: the pool was destroyed.
 */
void *kvmm_map_arena(int fd, size_t bytes, bool rdonly);

/** kvmm_pool_unmake() - destroy a pool that was just made, and close it */
void kvmm_pool_unmake(struct kvmm_pool *pool, const char *name);

/* Threads that kvmm_pool_create() waits for, at most. */
#define POPULATE_LIMIT_THREADS	256

/** kvmm_populate_all() - all of a new pool's memory; 0 threads: a default */
int kvmm_populate_all(struct kvmm_pool *pool, unsigned int threads);

/** kvmm_populate_threads() - how many for so many pieces; 0: a default */
unsigned int kvmm_populate_threads(unsigned int asked, unsigned int pieces);

/**
 * kvmm_thread_start() - pthread_create(), or -errno
 *
 * Threads of the library take no signals: those belong to the program.
 */
int kvmm_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg);

/** kvmm_ret() - result of a public function: sets errno on failure */
static inline long kvmm_ret(long ret)
{
	if (ret < 0)
		errno = (int)-ret;
	return ret;
}

#endif /* LIBKVMM_BACKEND_H */
