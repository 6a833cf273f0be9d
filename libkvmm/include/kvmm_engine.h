/* SPDX-License-Identifier: MIT */
/*
 * libkvmm's high door: blocks go from the GPU into a pool, and come back.
 *
 * A struct kvmm_engine joins a client of a pool with a device (a CUDA GPU, or
 * host memory) and with the layout of the engine's KV cache.  Moving blocks is
 * asynchronous: kvmm_offload() and kvmm_restore() return the number of a job,
 * which can be waited for, polled, put in order with the engine's streams, and
 * cancelled.  The low door is <kvmm.h>, and may be used beside this.
 *
 * Errors and threads: as in <kvmm.h>.  The hooks are called from threads of the
 * library; they may call everything here but kvmm_engine_close() and what waits
 * (kvmm_job_wait(), kvmm_job_fence()).
 */
#ifndef KVMM_ENGINE_H
#define KVMM_ENGINE_H

#include <kvmm.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kvmm_engine;

/* Limits. */
#define KVMM_MAX_RUNS		4096	/* runs of a layout */
#define KVMM_MAX_GROUPS		256	/* groups of runs */
#define KVMM_MAX_GPU_BLOCKS	256	/* GPU blocks that make one block */
#define KVMM_MAX_JOBS		65536	/* jobs of one engine at a time */

/* ---- layout ---- */

/**
 * enum kvmm_run_by - what of a run a block that isn't full has
 * @KVMM_BY_BYTES: of each fragment the front: @bytes is that of all tokens
 * @KVMM_BY_COUNT: of the fragments the first ones: @count is a multiple of the
 *	tokens
 * @KVMM_WHOLE: all of it, like a scale that all tokens share
 */
enum kvmm_run_by {
	KVMM_BY_BYTES,
	KVMM_BY_COUNT,
	KVMM_WHOLE,
};

/**
 * struct kvmm_run - a piece of every GPU block, in one tensor
 * @base: device address of the tensor
 * @block_stride: bytes from one GPU block to the next in it
 * @offset: bytes from the start of a block to the first fragment
 * @bytes: of one fragment, at least 1
 * @stride: bytes from one fragment to the next; at least @bytes where there are
 *	several
 * @count: fragments, at least 1
 * @by: enum kvmm_run_by
 * @group: 0 or more, never less than that of the run before, without a gap.
 *	Groups arrive in this order: those of layer 0 should be the first
 *
 * Fragment j of GPU block b is at @base + b * @block_stride + @offset +
 * j * @stride.
 */
struct kvmm_run {
	uint64_t base;
	uint64_t block_stride;
	uint64_t offset;
	uint64_t bytes;
	uint64_t stride;
	uint32_t count;
	uint16_t by;
	uint16_t group;
};

/**
 * struct kvmm_layout - where the data of a block is on the device
 * @size: sizeof(struct kvmm_layout)
 * @runs: in the order in which they are packed into a frame
 * @nr_runs: at most KVMM_MAX_RUNS
 * @block_tokens: tokens of a GPU block
 * @gpu_blocks: GPU blocks that make one block of the pool; 0: 1
 * @nr_gpu_blocks: GPU block numbers are below this; 0: not checked
 *
 * A frame has run after run, and in each the GPU blocks one after another, with
 * nothing between.  A pool has blocks of one layout: it belongs into the keys'
 * domain.
 */
struct kvmm_layout {
	size_t size;
	const struct kvmm_run *runs;
	unsigned int nr_runs;
	unsigned int block_tokens;
	unsigned int gpu_blocks;
	uint64_t nr_gpu_blocks;
};

/**
 * kvmm_layout_bytes() - bytes in a frame of a block with @tokens tokens
 * @layout: is checked, too
 * @tokens: 1 to block_tokens * gpu_blocks; 0: as many as there can be
 *
 * Return: bytes; -EINVAL: the layout is not possible, or too many tokens.
 */
long kvmm_layout_bytes(const struct kvmm_layout *layout, unsigned int tokens);

/**
 * struct kvmm_shape - the caches that engines use
 * @size: sizeof(struct kvmm_shape)
 * @layers: layers
 * @layers_per_group: layers that arrive together; 0: all
 * @block_tokens: tokens of a GPU block
 * @heads: 0 or 1: all of a token is in one place; else a block has, for each of
 *	so many heads, all its tokens ("HND")
 * @k: for each layer the device address of its keys
 * @v: the same of its values; NULL: one latent for both (MLA)
 * @k_token: bytes of a token's keys, of all heads
 * @v_token: bytes of a token's values; 0: as @k_token
 * @k_stride: bytes from one GPU block's keys to the next one's
 * @v_stride: 0: as @k_stride
 * @v_rows: 0, or: values are transposed, so many rows of one value a token
 * @v_row_stride: bytes from one row to the next
 * @k_scale: NULL, or for each layer the address of the keys' scales
 * @v_scale: the same of the values' scales
 * @scale_token: bytes of a token's scales
 * @scale_stride: bytes from one GPU block's scales to the next one's
 *
 * ========================  =================================================
 * [2][blocks][tokens][..]   @v[i] = @k[i] + blocks * @k_stride  (FlashAttention)
 * [blocks][2][tokens][..]   @v[i] = @k[i] + tokens * @k_token, @k_stride twice
 *                           that  (FlashInfer, fused)
 * [blocks][tokens][latent]  @v = NULL  (MLA)
 * llama.cpp                 GPU block b begins at cell b: @k_stride = @k_token;
 *                           with transposed values @v_stride is one value,
 *                           @v_rows their number, @v_row_stride that of all
 *                           cells
 * ========================  =================================================
 */
struct kvmm_shape {
	size_t size;
	unsigned int layers;
	unsigned int layers_per_group;
	unsigned int block_tokens;
	unsigned int heads;
	const uint64_t *k;
	const uint64_t *v;
	uint64_t k_token;
	uint64_t v_token;
	uint64_t k_stride;
	uint64_t v_stride;
	uint64_t v_rows;
	uint64_t v_row_stride;
	const uint64_t *k_scale;
	const uint64_t *v_scale;
	uint64_t scale_token;
	uint64_t scale_stride;
};

/**
 * kvmm_shape_runs() - the runs of a shape
 * @shape: the cache
 * @runs: set; NULL: only count
 * @room: runs there is room for
 *
 * Return: runs; -EINVAL; -ENOBUFS: no room.
 */
long kvmm_shape_runs(const struct kvmm_shape *shape, struct kvmm_run *runs,
		     unsigned int room);

/* ---- load or compute ---- */

/**
 * struct kvmm_cost - what computing takes on this engine
 * @fixed_us: for each call
 * @token_us: for each token
 * @token2_us: for each pair of a token and one before it (attention)
 *
 * Tokens p to p + n - 1, with those before them present, take
 * @fixed_us + @token_us * n + @token2_us * (n * p + n * n / 2) microseconds.
 * It follows from counting operations: a forward pass takes about two for each
 * weight and token, and attention a number that grows with the tokens before
 * it (Kaplan et al., arXiv:2001.08361, section 2.1).  Fit it to three prefills.
 */
struct kvmm_cost {
	double fixed_us;
	double token_us;
	double token2_us;
};

/**
 * struct kvmm_speed - a way between two tiers
 * @latency_us: of a transfer, whatever its size
 * @bytes_per_us: megabytes a second; 0: nothing comes through
 * @samples: transfers it was learnt from; 0: it is a guess
 */
struct kvmm_speed {
	double latency_us;
	double bytes_per_us;
	uint64_t samples;
};

/* kvmm_plan_input.flags, and those of kvmm_plan() */
#define KVMM_PLAN_BOTH	(1U << 0)	/* can compute the front meanwhile */

/**
 * struct kvmm_plan_input - what the choice depends on
 * @flags: KVMM_PLAN_*
 * @n: blocks of the prefix that the pool has
 * @block_tokens: tokens of a block
 * @tokens: of the whole request; what is beyond the @n blocks is computed in
 *	any case
 * @where: for each block enum kvmm_where; NULL: all in memory
 * @block_bytes: bytes of a block
 * @cost: of computing
 * @copy: from host to device
 * @disk: from the area to memory
 * @disk_busy_us: what the disk has to do before
 * @lot: blocks that are read at a time, and copied when they are there; 0: all
 * @lots: of these in flight at a time; 0: 1
 */
struct kvmm_plan_input {
	unsigned int flags;
	unsigned int n;
	unsigned int block_tokens;
	unsigned int tokens;
	const unsigned char *where;
	uint64_t block_bytes;
	struct kvmm_cost cost;
	struct kvmm_speed copy;
	struct kvmm_speed disk;
	double disk_busy_us;
	unsigned int lot;
	unsigned int lots;
};

/**
 * struct kvmm_plan - how much of a prefix to load
 * @hits: blocks of the prefix that the pool has
 * @in_memory: of those, in memory
 * @first: load from this block on; those before are computed meanwhile, which
 *	is more than 0 only with KVMM_PLAN_BOTH
 * @count: blocks to load; 0: compute all
 * @us: time until all tokens of the request are there
 * @load_us: of that, the load's
 * @compute_us: time if nothing were loaded
 * @all_us: time if all hits were loaded, front to back
 * @limit_us: how long the load may take before computing is the better choice;
 *	for kvmm_transfer.timeout_us
 */
struct kvmm_plan {
	unsigned int hits;
	unsigned int in_memory;
	unsigned int first;
	unsigned int count;
	double us;
	double load_us;
	double compute_us;
	double all_us;
	double limit_us;
};

/**
 * kvmm_plan_choose() - the choice itself: a function of its input alone
 * @in: the state
 * @plan: set
 *
 * Loading k blocks takes the longer of copying all of them, and of reading those
 * that are in the area and copying the last lot of them; a read whose latency is
 * not hidden by the others in flight holds up the next.  Then the rest is
 * computed.  With KVMM_PLAN_BOTH the front is computed while the back is loaded, as in
 * "Compute Or Load KV Cache? Why Not Both?" (Jin et al., arXiv:2410.03065).
 * Every split is tried: the plan is never slower than loading all or nothing.
 *
 * Return: 0 or -EINVAL.
 */
int kvmm_plan_choose(const struct kvmm_plan_input *in, struct kvmm_plan *plan);

/* ---- which blocks are stored ---- */

/**
 * struct kvmm_filter - blocks that are worth storing; all zero: each is
 * @min_uses: a block is stored when it is offered for the so-many-th time
 * @min_blocks: chains of fewer blocks are not stored
 * @slower_than: permille: not stored where computing it takes less than so much
 *	of the time to load it from the area (from memory, without an area)
 * @entries: keys that are remembered, a power of two; 0: 65536 (8 bytes each)
 *
 * What is not stored ends its chain: a block without those before it is never
 * found.
 */
struct kvmm_filter {
	unsigned int min_uses;
	unsigned int min_blocks;
	unsigned int slower_than;
	unsigned int entries;
};

/* ---- the engine ---- */

/**
 * enum kvmm_device - where the KV cache is
 * @KVMM_DEVICE_AUTO: CUDA where there is a driver with a device, else the host
 * @KVMM_DEVICE_CUDA: a GPU of the CUDA driver
 * @KVMM_DEVICE_HOST: host memory, for engines that compute on CPUs
 */
enum kvmm_device {
	KVMM_DEVICE_AUTO,
	KVMM_DEVICE_CUDA,
	KVMM_DEVICE_HOST,
};

/**
 * struct kvmm_hooks - what the engine wants to be told; each may be NULL
 * @ctx: first argument of each
 * @recompute: blocks @first to @first + @n - 1 of a restore can't be loaded: it
 *	is known before the job is done, and computing them may begin
 * @evicted: the block of @key lost its memory; @gone: it is not in the area
 *	either.  NULL: more happened than could be told
 * @pressure: the system wants memory; @level is how many frames of the pool.
 *	The kernel backend alone tells of it
 * @bad: the area failed with errno @err: blocks are no longer written to it
 *
 * For all but @recompute the engine takes the events of the client, see
 * kvmm_events(), which is then not for the program to call; also where the pool
 * has elastic frames, whose leases it sees to.
 */
struct kvmm_hooks {
	void *ctx;
	void (*recompute)(void *ctx, uint64_t job, uint64_t tag,
			  unsigned int first, unsigned int n);
	void (*evicted)(void *ctx, const void *key, int gone);
	void (*pressure)(void *ctx, uint64_t level);
	void (*bad)(void *ctx, int err);
};

/* kvmm_engine_opts.flags */
#define KVMM_ENGINE_BY_INDEX	(1U << 0)	/* @index says which device */
#define KVMM_ENGINE_LAZY	(1U << 1)	/* register memory when used */

/**
 * struct kvmm_engine_opts - how to open an engine
 * @size: sizeof(struct kvmm_engine_opts)
 * @flags: KVMM_ENGINE_*
 * @device: enum kvmm_device
 * @index: CUDA ordinal
 * @pci: PCI address, "0000:65:00.0"; NULL: the current context's device, or the
 *	only one
 * @libcuda: library to load; NULL: "libcuda.so.1"
 * @layout: the KV cache's; copied
 * @part: which part of each block this engine has, below @nr_parts
 * @nr_parts: parts of a block (tensor-parallel ranks), each of the same number
 *	of bytes; 0: 1
 * @max_jobs: jobs that may exist at a time; 0: 1024
 * @io_threads: threads that wait for the disk and for memory; 0: 2
 * @hooks: copied; NULL: none
 * @cost: copied; NULL: not known, everything is loaded
 * @filter: copied; NULL: store all
 */
struct kvmm_engine_opts {
	size_t size;
	unsigned int flags;
	enum kvmm_device device;
	int index;
	const char *pci;
	const char *libcuda;
	const struct kvmm_layout *layout;
	unsigned int part;
	unsigned int nr_parts;
	unsigned int max_jobs;
	unsigned int io_threads;
	const struct kvmm_hooks *hooks;
	const struct kvmm_cost *cost;
	const struct kvmm_filter *filter;
};

/**
 * kvmm_device_node() - the NUMA node that a device is on
 * @kv: an open kvmm; what goes wrong is said to its log
 * @opts: which device, as for kvmm_engine_open(); the rest is not looked at.
 *	NULL: all defaults
 *
 * For the pool that its engine will use: kvmm_pool_opts.nodes = 1ULL << node.
 * Return: the node; -ENODATA: it is not known, as of host memory, or there is
 * one only; or why there is no device, as kvmm_engine_open().
 */
int kvmm_device_node(struct kvmm *kv, const struct kvmm_engine_opts *opts);

/**
 * kvmm_engine_open() - join a pool and a device
 * @pool: stays the caller's, and open until the engine is closed
 * @opts: how
 * @out: set on success
 *
 * The pool's memory is registered with the device, in pieces of at most 1 GiB:
 * what is online now, and what comes later when it is first used.  What went
 * wrong is said to the log of the pool's struct kvmm.
 *
 * Return: 0; -EINVAL: a bad option or layout, or several devices and none
 * named; -E2BIG: the layout's blocks don't fit into the pool's; -ENOENT: no
 * driver; -ENODEV: no such device; -EPROTONOSUPPORT, -ENOSYS: the driver is too
 * old; -EOPNOTSUPP: the device can't read the arena of a pool that was opened
 * with KVMM_POOL_RDONLY; -EBUSY; -EIO; -EPERM; -ENOMEM.
 */
int kvmm_engine_open(struct kvmm_pool *pool,
		     const struct kvmm_engine_opts *opts,
		     struct kvmm_engine **out);

/**
 * kvmm_engine_close() - cancel all jobs, wait for their copies, let go
 * @engine: NULL is fine
 */
void kvmm_engine_close(struct kvmm_engine *engine);

/** kvmm_engine_device() - "cuda" or "host" */
const char *kvmm_engine_device(const struct kvmm_engine *engine);

/** kvmm_engine_fd() - readable while kvmm_job_next() has something; it stays
 * the library's
 */
int kvmm_engine_fd(const struct kvmm_engine *engine);

/**
 * kvmm_engine_cost() - new figures for computing
 * @engine: the engine
 * @cost: NULL: not known
 */
int kvmm_engine_cost(struct kvmm_engine *engine, const struct kvmm_cost *cost);

/**
 * enum kvmm_way - between which tiers
 * @KVMM_WAY_OUT: device to host
 * @KVMM_WAY_IN: host to device
 * @KVMM_WAY_DISK: area to host
 */
enum kvmm_way {
	KVMM_WAY_OUT,
	KVMM_WAY_IN,
	KVMM_WAY_DISK,
};

/** kvmm_engine_speed() - as measured by now; never blocks */
int kvmm_engine_speed(struct kvmm_engine *engine, enum kvmm_way way,
		      struct kvmm_speed *speed);

/**
 * kvmm_plan() - how much of a request's prefix to load; waits for no I/O
 * @engine: the engine
 * @keys: @n keys in prefix order
 * @n: how many
 * @tokens: tokens of the whole request
 * @flags: KVMM_PLAN_*
 * @plan: set
 *
 * Disk that has failed, or answers no more, counts as what it is: its blocks
 * are computed, and tried again after a while with a few.
 * Return: 0 or -errno.
 */
int kvmm_plan(struct kvmm_engine *engine, const void *keys, unsigned int n,
	      unsigned int tokens, unsigned int flags, struct kvmm_plan *plan);

/* ---- jobs ---- */

/* kvmm_transfer.flags */
#define KVMM_JOB_UNORDERED	(1U << 0)	/* don't wait for @stream */
#define KVMM_JOB_HOLES		(1U << 1)	/* restore: go on after a miss */
#define KVMM_JOB_BACKWARDS	(1U << 2)	/* restore: the last blocks first */

/**
 * struct kvmm_transfer - blocks to move
 * @size: sizeof(struct kvmm_transfer)
 * @flags: KVMM_JOB_*
 * @n: blocks
 * @tokens: that they have in all; only the last block may have less than it can;
 *	0: all are full
 * @keys: @n keys in prefix order; a restore by @handles needs none
 * @handles: NULL, or blocks that another client of the pool has allocated
 *	(offload) or found (restore) and holds until the job is done
 * @gpu_blocks: for each block layout.gpu_blocks numbers; those beyond the tokens
 *	of the last block are not used
 * @stream: the engine's CUstream, NULL: the default one.  The job's copies wait
 *	for what is in it now: for the computation that fills the blocks, or for
 *	the last one that reads what they held before.  Host devices have no
 *	streams and no events
 * @event: NULL, or a recorded CUevent to wait for as well
 * @group_events: NULL, or for each group of the layout such an event, or NULL:
 *	offload: the group's computation
 * @tag: the caller's own
 * @timeout_us: restore: blocks that are not in memory by then are misses; 0: no
 *	limit.  Offload: how long to wait for frames
 * @parent: offload: handle of the block before the first one; 0: none, or not
 *	known
 * @position: index of the first block in its chain
 * @expiry_ms: offload: see struct kvmm_publish_entry, as those below
 * @cost_us: of each block
 * @priority: 0 to 255
 * @block_flags: KVMM_BLOCK_RECOMPUTABLE or 0; KVMM_BLOCK_PARTIAL is set for a
 *	block that isn't full
 */
struct kvmm_transfer {
	size_t size;
	unsigned int flags;
	unsigned int n;
	unsigned int tokens;
	const void *keys;
	const uint64_t *handles;
	const uint32_t *gpu_blocks;
	void *stream;
	void *event;
	void *const *group_events;
	uint64_t tag;
	uint64_t timeout_us;
	uint64_t parent;
	uint32_t position;
	uint32_t expiry_ms;
	uint32_t cost_us;
	uint8_t priority;
	uint8_t block_flags;
};

/**
 * kvmm_offload() - store GPU blocks in the pool
 * @engine: the engine
 * @req: copied
 * @job: set to the job's number
 *
 * Blocks whose key the pool has are not copied: a sequence and its forks share
 * what they have in common.  Frames are had as by kvmm_alloc(); where there are
 * none the rest of the chain is not stored.  Blocks are published when all
 * copies of the job are done, and only then.  With handles each rank copies and
 * publishes its part; the last one to do so makes the block visible.
 *
 * Return: 0, or, with no job: -EINVAL, -EACCES (read-only), -EAGAIN: max_jobs
 * exist, of which one that has ended counts until the engine's threads have let
 * go of it, a moment later, -EIO: the device is lost, -ENOMEM.
 */
int kvmm_offload(struct kvmm_engine *engine, const struct kvmm_transfer *req,
		 uint64_t *job);

/**
 * kvmm_restore() - bring the longest prefix back to the GPU
 * @engine: the engine
 * @req: copied
 * @job: set to the job's number
 *
 * Blocks in memory are copied at once, those in the area as they come in.  What
 * can't be had is a miss: kvmm_job_info.prefix ends before the first one, and
 * the recompute hook is called.  Return: as kvmm_offload().
 */
int kvmm_restore(struct kvmm_engine *engine, const struct kvmm_transfer *req,
		 uint64_t *job);

/**
 * enum kvmm_job_state - how far a job is
 * @KVMM_JOB_WAITING: no copy has begun
 * @KVMM_JOB_COPYING: copies are in the device's queue
 * @KVMM_JOB_DRAINING: it is decided what will be copied
 * @KVMM_JOB_DONE: done: no copy of it is under way any more
 */
enum kvmm_job_state {
	KVMM_JOB_WAITING,
	KVMM_JOB_COPYING,
	KVMM_JOB_DRAINING,
	KVMM_JOB_DONE,
};

/**
 * struct kvmm_job_info - about a job
 * @tag: the caller's
 * @state: enum kvmm_job_state
 * @status: 0; once done: 0 or why all of it failed: -ECANCELED, -EIO (the
 *	device), -ENODEV (the pool), -ENOMEM
 * @n: blocks
 * @prefix: once it is known: restore: blocks in front that are on the device
 *	(or will be, while draining); offload: that are in the pool
 * @good: blocks whose result is not an error
 * @bytes: copied
 */
struct kvmm_job_info {
	uint64_t tag;
	enum kvmm_job_state state;
	int status;
	unsigned int n;
	unsigned int prefix;
	unsigned int good;
	uint64_t bytes;
};

/**
 * kvmm_job_info() - see struct kvmm_job_info
 * @engine: the engine
 * @job: the job
 * @info: set
 *
 * Return: 0; -ESTALE: no such job (any more), here and below.
 */
int kvmm_job_info(struct kvmm_engine *engine, uint64_t job,
		  struct kvmm_job_info *info);

/* Results of single blocks that are not errors. */
#define KVMM_BLOCK_COPIED	0	/* restored, or stored by this job */
#define KVMM_BLOCK_PART		1	/* its part is stored, others are not */
#define KVMM_BLOCK_THERE	2	/* offload: the pool had it */

/**
 * kvmm_job_blocks() - each block of a job
 * @engine: the engine
 * @job: the job
 * @refs: room for @n; handle is 0 where there is none, frame is not set, and
 *	result is KVMM_BLOCK_*, or: -EINPROGRESS; -ENOENT: a miss; -ESTALE: lost
 *	meanwhile, or not what was stored; -ETIMEDOUT; -EAGAIN, -ENOSPC: no
 *	frame; -EPERM: the filter; -ECANCELED; -EIO
 * @n: how many, from the first on
 *
 * Return: blocks of the job, or -ESTALE.
 */
long kvmm_job_blocks(struct kvmm_engine *engine, uint64_t job,
		     struct kvmm_block_ref *refs, unsigned int n);

/**
 * kvmm_job_fence() - what is put into @stream from now on waits for a group
 * @engine: the engine
 * @job: the job
 * @group: group of the layout's runs
 * @stream: the engine's CUstream; ignored by host devices
 * @timeout_ms: -1: as long as it takes
 *
 * The caller waits until it is known what will be copied and the group's copies
 * are in the device's queue (host devices: until they are done): for blocks in
 * memory that is at once.  The stream then waits for the copies.
 *
 * Return: the prefix (see struct kvmm_job_info); -ETIMEDOUT; -EINVAL; -ESTALE;
 * or the job's status where it failed.
 */
long kvmm_job_fence(struct kvmm_engine *engine, uint64_t job,
		    unsigned int group, void *stream, int timeout_ms);

/**
 * kvmm_job_wait() - wait until a job is done
 * @engine: the engine
 * @job: the job
 * @timeout_ms: -1: as long as it takes; 0: only look
 *
 * Return: the job's status; -ETIMEDOUT; -ESTALE.
 */
int kvmm_job_wait(struct kvmm_engine *engine, uint64_t job, int timeout_ms);

/**
 * kvmm_job_cancel() - a job is no longer wanted
 * @engine: the engine
 * @job: the job
 *
 * It publishes nothing and leaves no pin.  Copies that have begun end first:
 * the job is done only then, and its GPU blocks are free only then.
 * Return: 0; -EALREADY: too late, it is done or being published; -ESTALE.
 */
int kvmm_job_cancel(struct kvmm_engine *engine, uint64_t job);

/**
 * kvmm_job_skip() - the engine has computed blocks that a restore would load
 * @engine: the engine
 * @job: the job
 * @first: blocks before this one need not be loaded: -ECANCELED, where their
 *	copy has not begun
 */
int kvmm_job_skip(struct kvmm_engine *engine, uint64_t job, unsigned int first);

/**
 * kvmm_job_fd() - a descriptor that is readable when the job is done
 * @engine: the engine
 * @job: the job
 *
 * Don't read it.  It is closed by kvmm_job_end().  Return: fd or -errno.
 */
int kvmm_job_fd(struct kvmm_engine *engine, uint64_t job);

/**
 * kvmm_job_next() - jobs that are done and were not returned before
 * @engine: the engine
 * @jobs: room for @n
 * @n: how many
 *
 * Return: how many there are now; never waits.  Jobs that have ended are left
 * out.
 */
long kvmm_job_next(struct kvmm_engine *engine, uint64_t *jobs, unsigned int n);

/**
 * kvmm_job_end() - forget a job
 * @engine: the engine
 * @job: the job
 *
 * One that is not done is cancelled, and goes when its copies have ended.  Each
 * job must be ended; its number then means nothing any more, and is not used
 * again.
 */
int kvmm_job_end(struct kvmm_engine *engine, uint64_t job);

#ifdef __cplusplus
}
#endif

#endif /* KVMM_ENGINE_H */
