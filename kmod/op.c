// SPDX-License-Identifier: GPL-2.0
/*
 * Block I/O: one op from the core's decision to the end of its I/O.
 *
 * begin (under the pool's lock) -> submit (by who asked, or by a worker where
 * that would block) -> kvmm_op_ended() (any context) -> done.c
 */
#include <linux/blkdev.h>
#include <linux/cred.h>
#include <linux/ktime.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "arena.h"
#include "compat/compat.h"
#include "kvmm_mod.h"
#include "poison.h"
#include "swap.h"
#include "trace.h"

/* More pieces than this and a frame is moved in several parts. */
#define KVMM_MAX_SEGS	256

/* Ops with room for this many, most of all there are, come from a cache. */
#define KVMM_FEW_SEGS	4
static struct kmem_cache *kvmm_op_cache;

/** kvmm_cmd_ctor() - make what stays in a command from one use to the next */
void kvmm_cmd_ctor(struct kvmm_cmd *cmd)
{
	INIT_LIST_HEAD(&cmd->ops);
	INIT_LIST_HEAD(&cmd->ready);
	init_completion(&cmd->done);
}

/**
 * kvmm_cmd_start() - begin a command, with the caller as its issuer
 * @cmd: the command; nobody has waited for an earlier use of it
 * @pool: the pool
 * @end: called when it has ended after kvmm_cmd_issued(); NULL: someone waits
 */
void kvmm_cmd_start(struct kvmm_cmd *cmd, struct kvmm_pool *pool,
		    void (*end)(struct kvmm_cmd *cmd))
{
	cmd->pool = pool;
	cmd->pending = 1;
	cmd->wake_at = 0;
	cmd->good = 0;
	cmd->err = 0;
	cmd->err_entry = 0;
	cmd->evicted = 0;
	cmd->bytes = 0;
	cmd->out = false;
	cmd->results = NULL;
	cmd->ioprio = 0;
	cmd->end = end;
}

/**
 * kvmm_cmd_init() - make a command and begin it
 * @cmd: the command
 * @pool: as kvmm_cmd_start()
 * @end: as kvmm_cmd_start()
 */
void kvmm_cmd_init(struct kvmm_cmd *cmd, struct kvmm_pool *pool,
		   void (*end)(struct kvmm_cmd *cmd))
{
	kvmm_cmd_ctor(cmd);
	kvmm_cmd_start(cmd, pool, end);
}

/** kvmm_cmd_drop() - one less to wait for; returns: it was the last one */
bool kvmm_cmd_drop(struct kvmm_cmd *cmd)
{
	struct kvmm_hist *h = &cmd->pool->hist[cmd->out ? KVMM_HIST_BYTES_OUT :
						KVMM_HIST_BYTES_IN];

	if (--cmd->pending) {
		if (cmd->pending == cmd->wake_at) {
			cmd->wake_at = 0;
			complete(&cmd->done);
		}
		return false;
	}
	if (cmd->bytes)
		kvmm_hist_add(h, cmd->bytes);
	return true;
}

/**
 * kvmm_cmd_issued() - the issuer is through with a command
 * @cmd: the command
 *
 * Return: true: it has ended and is the caller's; false: its end will be told,
 * and it may be gone already.
 */
bool kvmm_cmd_issued(struct kvmm_cmd *cmd)
{
	struct kvmm_pool *pool = cmd->pool;
	bool ended;

	mutex_lock(&pool->lock);
	ended = kvmm_cmd_drop(cmd);
	mutex_unlock(&pool->lock);
	return ended;
}

/**
 * kvmm_cmd_throttle() - let a command without an end get along
 * @cmd: the command, which the caller goes on issuing
 * @n: of its entries no more than this are under way when it returns
 */
void kvmm_cmd_throttle(struct kvmm_cmd *cmd, u32 n)
{
	struct kvmm_pool *pool = cmd->pool;
	bool wait;

	if (READ_ONCE(cmd->pending) <= n + 1)
		return;
	mutex_lock(&pool->lock);
	wait = cmd->pending > n + 1;
	if (wait)
		cmd->wake_at = n + 1;
	mutex_unlock(&pool->lock);
	if (wait)
		wait_for_completion(&cmd->done);
}

/** kvmm_cmd_wait() - wait for a command without an end; its I/O ends it */
void kvmm_cmd_wait(struct kvmm_cmd *cmd)
{
	if (!kvmm_cmd_issued(cmd))
		wait_for_completion(&cmd->done);
}

/**
 * kvmm_cmd_entry() - an entry of a command is settled
 * @cmd: the command; the pool is locked
 * @entry: which
 * @err: 0 or why it is not where it was asked to be
 */
void kvmm_cmd_entry(struct kvmm_cmd *cmd, u32 entry, int err)
{
	if (cmd->results)
		cmd->results[entry] = err;
	if (!err) {
		cmd->good++;
	} else if (!cmd->err || entry < cmd->err_entry) {
		cmd->err = err;
		cmd->err_entry = entry;
	}
}

static void kvmm_op_issue_work(struct work_struct *work);

static void kvmm_op_ctor(void *p)
{
	struct kvmm_op *op = p;

	INIT_LIST_HEAD(&op->node);
	INIT_LIST_HEAD(&op->waiters);
	INIT_LIST_HEAD(&op->age);
	INIT_HLIST_NODE(&op->hash);
}

/* Return: ops at @op, made: @n, or fewer. */
static u32 kvmm_ops_get(struct kvmm_op **op, u32 n, u32 segs)
{
	gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_NOWARN;
	u32 i;

	if (n > 1 && segs <= KVMM_FEW_SEGS &&
	    kmem_cache_alloc_bulk(kvmm_op_cache, gfp, n, (void **)op))
		return n;
	/* Rather some of them than none. */
	for (i = 0; i < n; i++) {
		if (segs <= KVMM_FEW_SEGS)
			op[i] = kmem_cache_alloc(kvmm_op_cache, gfp);
		else
			op[i] = kmalloc(struct_size(op[i], bvec, segs), gfp);
		if (!op[i])
			break;
		if (segs > KVMM_FEW_SEGS)
			kvmm_op_ctor(op[i]);
	}
	return i;
}

/** kvmm_op_free() - give memory back that kvmm_ops_alloc() got */
void kvmm_op_free(struct kvmm_op *op)
{
	if (op->max_segs <= KVMM_FEW_SEGS)
		kmem_cache_free(kvmm_op_cache, op);
	else
		kfree(op);
}

/**
 * kvmm_ops_alloc() - get memory for ops, before the core is asked
 * @pool: the pool
 * @ops: list they are added to, linked by @submit
 * @n: how many, at most KVMM_CORE_BATCH
 *
 * Return: how many there were.
 */
u32 kvmm_ops_alloc(struct kvmm_pool *pool, struct list_head *ops, u32 n)
{
	u32 segs = min_t(u32, READ_ONCE(pool->arena.max_segs), KVMM_MAX_SEGS);
	struct kvmm_op *got[KVMM_CORE_BATCH];
	u32 i;

	n = kvmm_ops_get(got, n, segs);
	for (i = 0; i < n; i++) {
		struct kvmm_op *op = got[i];

		memset_startat(op, 0, pool);
		/* Where objects are debugged, it is forgotten with the op. */
		INIT_WORK(&op->issue, kvmm_op_issue_work);
		op->pool = pool;
		op->max_segs = segs;
		list_add_tail(&op->submit, ops);
	}
	return i;
}

/** kvmm_ops_free() - give ops back that were not begun */
void kvmm_ops_free(struct list_head *ops)
{
	struct kvmm_op *op, *next;

	list_for_each_entry_safe(op, next, ops, submit)
		kvmm_op_free(op);
	INIT_LIST_HEAD(ops);
}

/**
 * kvmm_ops_init() - make the cache
 *
 * What has a constructor is not zeroed by the allocator, as all else is where
 * init_on_alloc is on: it would be zeroed twice.
 *
 * Return: 0 or -ENOMEM.
 */
int kvmm_ops_init(void)
{
	kvmm_op_cache = kmem_cache_create("kvmm_op",
					  offsetof(struct kvmm_op,
						   bvec[KVMM_FEW_SEGS]),
					  0, 0, kvmm_op_ctor);
	return kvmm_op_cache ? 0 : -ENOMEM;
}

/** kvmm_ops_exit() - no op is left */
void kvmm_ops_exit(void)
{
	kmem_cache_destroy(kvmm_op_cache);
}

static u32 kvmm_block_index(u64 handle)
{
	return (u32)handle;
}

/**
 * kvmm_op_begin() - the core has decided on @op->io: the block is in flight
 * @op: with @io; off any list
 * @cmd: whose it is
 * @entry: which of its entries
 * @write: to the area; kvmm_area_start_write() was had, and is given to the op
 * @submit: the list to hand to kvmm_ops_submit() once the pool is unlocked
 */
void kvmm_op_begin(struct kvmm_op *op, struct kvmm_cmd *cmd, u32 entry,
		   bool write, struct list_head *submit)
{
	struct kvmm_pool *pool = cmd->pool;

	lockdep_assert_held(&pool->lock);
	op->cmd = cmd;
	op->area = pool->area;
	op->entry = entry;
	op->write = write;
	op->ioprio = cmd->ioprio;
	op->len = round_up(op->io.length, op->area->align);
	hash_add(pool->inflight, &op->hash, kvmm_block_index(op->io.handle));
	WRITE_ONCE(pool->nr_inflight, pool->nr_inflight + 1);
	op->started = ktime_get_ns();
	op->depth = pool->nr_inflight;
	list_add_tail(&op->age, &pool->ops);
	if (list_is_first(&op->age, &pool->ops))
		kvmm_deadline_arm(pool);
	list_add_tail(&op->node, &cmd->ops);
	cmd->pending++;
	list_add_tail(&op->submit, submit);
	trace_kvmm_swap_issue(pool, op, 0);
}

/**
 * kvmm_op_join() - the block of @op->io.handle is in flight: wait for it
 * @op: stands for the entry that waits; off any list
 * @cmd: whose it is
 * @entry: which of its entries
 */
void kvmm_op_join(struct kvmm_op *op, struct kvmm_cmd *cmd, u32 entry)
{
	struct kvmm_pool *pool = cmd->pool;
	u32 index = kvmm_block_index(op->io.handle);
	struct kvmm_op *other;

	lockdep_assert_held(&pool->lock);
	hash_for_each_possible(pool->inflight, other, hash, index) {
		if (kvmm_block_index(other->io.handle) != index)
			continue;
		op->cmd = cmd;
		op->entry = entry;
		list_add_tail(&op->node, &other->waiters);
		cmd->pending++;
		return;
	}
	/* The core says it is under way, so it is in the table. */
	WARN_ON_ONCE(1);
	kvmm_cmd_entry(cmd, entry, -EAGAIN);
	kvmm_op_free(op);
}

/*
 * One of the two that have an op in hand during I/O, who submits it and the I/O
 * itself, is through with it.  A file system goes on using the kiocb and the
 * file after it has queued the I/O, which may be long over by then; so the
 * second one hands the op on.  Any context.  The section keeps the pool until
 * the worker is queued: the worker may already be through with the op then.
 */
static void kvmm_op_put(struct kvmm_op *op)
{
	struct kvmm_pool *pool = op->pool;

	if (!refcount_dec_and_test(&op->hands))
		return;
	rcu_read_lock();
	if (llist_add(&op->done, &pool->done_list))
		queue_work(kvmm_done_wq, &pool->done_work);
	rcu_read_unlock();
}

/* The I/O of an op has ended.  Any context. */
static void kvmm_op_ended(struct kiocb *iocb, long res)
{
	struct kvmm_op *op = container_of(iocb, struct kvmm_op, iocb);

	op->res = res;
	kvmm_op_put(op);
}

static void kvmm_op_submit(struct kvmm_op *op)
{
	struct kvmm_pool *pool = op->pool;
	struct kvmm_area *area = op->area;
	struct file *file = area->file;
	const struct cred *old;
	struct iov_iter iter;
	unsigned int segs;
	size_t bytes;
	ssize_t ret;

	segs = kvmm_arena_bvec(pool,
			       ((u64)op->io.frame << pool->block_shift) +
			       op->pos, op->len - op->pos, op->bvec,
			       op->max_segs, &bytes);
	op->part = bytes;
	op->iocb = (struct kiocb) {
		.ki_filp = file,
		.ki_pos = area->offset + op->pos +
			  ((loff_t)op->io.slot << pool->block_shift),
		.ki_flags = IOCB_DIRECT | (op->write ? IOCB_WRITE : 0) |
			    (op->worker ? 0 : IOCB_NOWAIT),
		.ki_ioprio = op->ioprio ?: get_current_ioprio(),
		.ki_complete = kvmm_op_ended,
	};
	iov_iter_bvec(&iter, op->write ? WRITE : READ, op->bvec, segs, bytes);

	refcount_set(&op->hands, 2);
	/* Nobody waits for it any more, and the device has enough to do. */
	if (READ_ONCE(op->late)) {
		ret = -ETIMEDOUT;
		goto ended;
	}
	if (kvmm_poison_ever() && kvmm_frame_poisoned(pool, op->io.frame)) {
		ret = -EHWPOISON;
		goto ended;
	}
	old = override_creds(area->cred);
	if (op->write)
		ret = file->f_op->write_iter(&op->iocb, &iter);
	else
		ret = file->f_op->read_iter(&op->iocb, &iter);
	revert_creds(old);
ended:
	if (ret != -EIOCBQUEUED)
		kvmm_op_ended(&op->iocb, ret);
	kvmm_op_put(op);
}

static void kvmm_op_issue_work(struct work_struct *work)
{
	kvmm_op_submit(container_of(work, struct kvmm_op, issue));
}

/**
 * kvmm_op_issue_later() - go on with an op in a worker, which may block
 * @op: in the caller's hand
 */
void kvmm_op_issue_later(struct kvmm_op *op)
{
	op->worker = true;
	queue_work(op->area->issue_wq, &op->issue);
}

/*
 * Who asks is never held by the device.  Writing past the caller's limit of
 * file size would kill it with SIGXFSZ; the limit is not meant for the area.
 */
static bool kvmm_op_wants_worker(const struct kvmm_op *op)
{
	if (!READ_ONCE(op->area->nowait))
		return true;
	return op->write && op->area->regular &&
	       rlimit(RLIMIT_FSIZE) < op->area->end;
}

/**
 * kvmm_ops_submit() - start the I/O of ops that were begun
 * @submit: the list; empty afterwards, its ops may be gone
 */
void kvmm_ops_submit(struct list_head *submit)
{
	struct kvmm_op *op, *next;
	struct blk_plug plug;

	blk_start_plug(&plug);
	list_for_each_entry_safe(op, next, submit, submit) {
		if (kvmm_op_wants_worker(op))
			kvmm_op_issue_later(op);
		else
			kvmm_op_submit(op);
	}
	blk_finish_plug(&plug);
	INIT_LIST_HEAD(submit);
}
