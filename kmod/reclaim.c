// SPDX-License-Identifier: GPL-2.0
/*
 * Making room: the coldest blocks are written out or given up.
 *
 * Batches go in lockstep: the next one is asked for when the one before has
 * ended.  So which blocks go depends on the calls alone, not on the device.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "kvmm_mod.h"
#include "swap.h"
#include "trace.h"

/* Ends of others' I/O that a reclaim waits for in vain. */
#define KVMM_MAX_IDLE	64

/**
 * struct kvmm_reclaim_batch - one batch of writes
 * @cmd: the command
 * @io: the core's decisions
 */
struct kvmm_reclaim_batch {
	struct kvmm_cmd cmd;
	struct kvmm_io io[KVMM_CORE_BATCH];
};

/*
 * Have the core pick blocks and start their writes, until the frames in use are
 * down to @keep, or fewer by @down where that is not 0.  Returns how many, 0
 * when there is nothing to write now; or -errno.
 */
static int kvmm_reclaim_issue(struct kvmm_reclaim_batch *b, u32 keep, u32 down,
			      struct kvmm_reclaim_count *count)
{
	struct kvmm_pool *pool = b->cmd.pool;
	struct kvmm_op *op;
	int ret = 0;
	u32 evicted = count->evicted;
	u32 purged = count->purged;
	u32 had, may, used, n, i;
	LIST_HEAD(ops);
	LIST_HEAD(submit);

	had = kvmm_ops_alloc(pool, &ops, down ?: KVMM_CORE_BATCH);
	if (!had)
		return -ENOMEM;

	mutex_lock(&pool->lock);
	if (pool->dead) {
		ret = -ENODEV;
		goto out;
	}
	may = had;
	if (pool->area) {
		may = kvmm_area_start_writes(pool->area, had);
		/* Frozen: what could be written now stays where it is. */
		if (!may)
			goto out;
	}
	if (down) {
		used = kvmm_core_frames_used(&pool->core);
		keep = used - min(used, down);
	}
	n = kvmm_core_reclaim(&pool->core, keep, kvmm_pool_now(pool), b->io,
			      may, count);
	for (i = 0; i < n; i++) {
		op = list_first_entry(&ops, struct kvmm_op, submit);
		list_del(&op->submit);
		op->io = b->io[i];
		kvmm_op_begin(op, &b->cmd, i, true, &submit);
	}
	for (; pool->area && i < may; i++)
		kvmm_area_end_write(pool->area);
	ret = n;
	trace_kvmm_reclaim(pool, keep, n, count->evicted - evicted,
			   count->purged - purged);
out:
	mutex_unlock(&pool->lock);
	kvmm_ops_submit(&submit);
	kvmm_ops_free(&ops);
	return ret;
}

static void kvmm_reclaim_end(struct kvmm_cmd *cmd)
{
	kfree(container_of(cmd, struct kvmm_reclaim_batch, cmd));
}

/**
 * kvmm_reclaim_start() - start to make room, and don't wait
 * @pool: the pool
 * @want: frames wanted
 *
 * Return: frames that came free at once.
 */
u32 kvmm_reclaim_start(struct kvmm_pool *pool, u32 want)
{
	struct kvmm_reclaim_count count = {};
	struct kvmm_reclaim_batch *b;

	b = kmalloc(sizeof(*b), GFP_KERNEL | __GFP_NOWARN);
	if (!b)
		return 0;
	kvmm_cmd_init(&b->cmd, pool, kvmm_reclaim_end);
	kvmm_reclaim_issue(b, 0, min_t(u32, want, KVMM_CORE_BATCH), &count);
	if (kvmm_cmd_issued(&b->cmd))
		kvmm_reclaim_end(&b->cmd);
	return count.evicted + count.purged;
}

/*
 * Nothing more to hand out, but the end of I/O that others began may help: it
 * frees frames, and slots to write to.
 */
static int kvmm_reclaim_wait(struct kvmm_pool *pool, u32 keep, bool *more)
{
	u64 seq;

	mutex_lock(&pool->lock);
	*more = !pool->dead && kvmm_core_moving(&pool->core) &&
		kvmm_core_frames_used(&pool->core) > keep;
	seq = pool->io_seq;
	mutex_unlock(&pool->lock);
	if (!*more)
		return 0;
	return kvmm_pool_wait(pool, READ_ONCE(pool->io_seq) != seq ||
				    READ_ONCE(pool->dead));
}

int kvmm_do_reclaim(struct kvmm_client *client, struct file *file, void *arg)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_reclaim *a = arg;
	struct kvmm_reclaim_count count = {};
	struct kvmm_reclaim_batch *b;
	unsigned int idle = 0;
	bool more = true;
	int ret = 0;

	if (a->flags)
		return -EINVAL;
	b = kmalloc(sizeof(*b), GFP_KERNEL);
	if (!b)
		return -ENOMEM;
	while (more) {
		kvmm_cmd_init(&b->cmd, pool, NULL);
		count.more = false;
		ret = kvmm_reclaim_issue(b, a->keep, 0, &count);
		kvmm_cmd_wait(&b->cmd);
		count.evicted += b->cmd.evicted;
		if (ret > 0 || count.more)
			idle = 0;
		else if (!ret && idle++ < KVMM_MAX_IDLE)
			ret = kvmm_reclaim_wait(pool, a->keep, &more);
		else
			more = false;
		if (ret < 0)
			break;
		ret = more && task_sigpending(current) ? -EINTR : 0;
		if (ret)
			break;
	}
	kfree(b);

	mutex_lock(&pool->lock);
	if (pool->dead)
		ret = -ENODEV;
	else
		a->in_use = kvmm_core_frames_used(&pool->core);
	mutex_unlock(&pool->lock);
	a->evicted = count.evicted;
	a->purged = count.purged;
	return ret;
}
