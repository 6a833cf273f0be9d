// SPDX-License-Identifier: GPL-2.0
/*
 * Background writeback: cold blocks are written while nobody waits for it, so
 * that allocations find frames that they can have at once.
 *
 * The core says which blocks; this says when.  A pool's worker runs when fewer
 * frames than @low are free or clean, until there are @high.  It is queued by
 * whatever changes that - allocations, unpins, ends of I/O - and never by the
 * clock, so an idle pool costs nothing.  Explicit commands come first: few
 * writes are in flight, of the lowest priority, and none is added while others
 * read, unless it gets tight.
 */
#include <linux/ioprio.h>
#include <linux/math64.h>
#include <linux/slab.h>

#include "kvmm_mod.h"
#include "swap.h"

/* Writes in flight, a quarter of a full batch, and how many begin together. */
#define KVMM_CLEAN_DEPTH	16
#define KVMM_CLEAN_BATCH	8

/* Reads in flight that the device is left to. */
#define KVMM_CLEAN_READS	2

/*
 * The lowest that still makes progress on a busy device: a block on its way may
 * be waited for, by a detach or by who swaps it out.
 */
#define KVMM_CLEAN_IOPRIO	IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 7)

/**
 * struct kvmm_clean - some writes
 * @cmd: the command
 * @n: how many there are
 * @io: the core's decisions
 */
struct kvmm_clean {
	struct kvmm_cmd cmd;
	u32 n;
	struct kvmm_io io[KVMM_CLEAN_BATCH];
};

/* So many of the frames online; one where that is none. */
static u32 kvmm_clean_share(const struct kvmm_pool *pool, u32 permille)
{
	return div_u64((u64)pool->core.frames_online * permille + 999, 1000);
}

/* Is there something to begin now? */
static bool kvmm_clean_wanted(struct kvmm_pool *pool)
{
	struct kvmm_writeback *wb = &pool->writeback;
	struct kvmm_core *core = &pool->core;
	u32 low, ready;

	if (!wb->low || pool->dead || !kvmm_core_may_clean(core)) {
		wb->active = false;
		return false;
	}
	low = kvmm_clean_share(pool, wb->low);
	ready = kvmm_core_ready(core);
	if (ready < low)
		wb->active = true;
	else if (ready + core->writing >= kvmm_clean_share(pool, wb->high))
		wb->active = false;
	if (!wb->active || wb->inflight + KVMM_CLEAN_BATCH > KVMM_CLEAN_DEPTH)
		return false;
	return core->reading <= KVMM_CLEAN_READS || ready < low / 2;
}

/**
 * kvmm_writeback_kick() - something changed that writeback may want to know
 * @pool: the pool, locked
 */
void kvmm_writeback_kick(struct kvmm_pool *pool)
{
	lockdep_assert_held(&pool->lock);
	if (pool->writeback.low && kvmm_clean_wanted(pool))
		queue_work(kvmm_clean_wq, &pool->writeback.work);
}

/*
 * Called in the worker that makes the done calls, which the end of a pool waits
 * for, or in our own: so the pool is there.
 */
static void kvmm_clean_end(struct kvmm_cmd *cmd)
{
	struct kvmm_clean *b = container_of(cmd, struct kvmm_clean, cmd);
	struct kvmm_pool *pool = cmd->pool;

	mutex_lock(&pool->lock);
	pool->writeback.inflight -= b->n;
	pool->writeback.outs += cmd->good;
	kvmm_writeback_kick(pool);
	mutex_unlock(&pool->lock);
	kfree(b);
}

/* Ask the core; @ops has room for all that may begin. */
static void kvmm_clean_begin(struct kvmm_clean *b, struct list_head *ops,
			     u32 had, struct list_head *submit, bool *more)
{
	struct kvmm_pool *pool = b->cmd.pool;
	struct kvmm_op *op;
	u32 may, want, i;

	/* Frozen: the next allocation finds out whether it still is. */
	may = kvmm_area_start_writes(pool->area, had);
	if (!may)
		return;
	want = kvmm_clean_share(pool, pool->writeback.high);
	b->n = kvmm_core_clean(&pool->core, want, kvmm_pool_now(pool), b->io,
			       may, more);
	for (i = 0; i < b->n; i++) {
		op = list_first_entry(ops, struct kvmm_op, submit);
		list_del(&op->submit);
		op->io = b->io[i];
		kvmm_op_begin(op, &b->cmd, i, true, submit);
	}
	for (; i < may; i++)
		kvmm_area_end_write(pool->area);
	pool->writeback.inflight += b->n;
}

/* Return: false: there is nothing more to begin now. */
static bool kvmm_clean_some(struct kvmm_pool *pool)
{
	struct kvmm_clean *b;
	bool more = false;
	u32 had;
	LIST_HEAD(ops);
	LIST_HEAD(submit);

	b = kmalloc(sizeof(*b), GFP_KERNEL | __GFP_NOWARN);
	if (!b)
		return false;
	kvmm_cmd_init(&b->cmd, pool, kvmm_clean_end);
	b->cmd.ioprio = KVMM_CLEAN_IOPRIO;
	b->n = 0;
	had = kvmm_ops_alloc(pool, &ops, KVMM_CLEAN_BATCH);

	mutex_lock(&pool->lock);
	if (had && kvmm_clean_wanted(pool))
		kvmm_clean_begin(b, &ops, had, &submit, &more);
	more |= b->n;
	mutex_unlock(&pool->lock);

	kvmm_ops_submit(&submit);
	kvmm_ops_free(&ops);
	if (kvmm_cmd_issued(&b->cmd))
		kvmm_clean_end(&b->cmd);
	return more;
}

static void kvmm_clean_work(struct work_struct *work)
{
	struct kvmm_pool *pool = container_of(work, struct kvmm_pool,
					      writeback.work);

	while (kvmm_clean_some(pool))
		cond_resched();
}

/**
 * kvmm_writeback_set() - choose the watermarks
 * @pool: the pool, locked or not known to anyone yet
 * @low: permille of the frames online, 0: off
 * @high: at least @low, at most 1000
 *
 * Return: 0 or -EINVAL.
 */
int kvmm_writeback_set(struct kvmm_pool *pool, u32 low, u32 high)
{
	if (low > high || high > 1000)
		return -EINVAL;
	pool->writeback.low = low;
	pool->writeback.high = high;
	return 0;
}

/** kvmm_writeback_init() - get a new pool ready for it */
void kvmm_writeback_init(struct kvmm_pool *pool)
{
	INIT_WORK(&pool->writeback.work, kvmm_clean_work);
}

/**
 * kvmm_writeback_exit() - the worker is gone
 * @pool: the pool, dead, with no I/O in flight
 */
void kvmm_writeback_exit(struct kvmm_pool *pool)
{
	cancel_work_sync(&pool->writeback.work);
}
