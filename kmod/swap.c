// SPDX-License-Identifier: GPL-2.0
/*
 * Swap commands: what ioctls and io_uring commands have in common, and the
 * ioctls.
 */
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "kvmm_mod.h"
#include "swap.h"

/** kvmm_swap_check() - is a command well-formed; 0 or -EINVAL */
int kvmm_swap_check(const struct kvmm_swap_cmd *sc, bool out)
{
	u32 flags = KVMM_SWAP_ONE | (out ? KVMM_SWAP_DROP : KVMM_SWAP_PIN);

	if (sc->flags & ~flags || !sc->count || sc->count > KVMM_MAX_BATCH)
		return -EINVAL;
	if (sc->flags & KVMM_SWAP_ONE && sc->count != 1)
		return -EINVAL;
	return 0;
}

static int kvmm_swap_out_one(struct kvmm_cmd *cmd, struct kvmm_op *op,
			     u64 handle, u32 flags)
{
	struct kvmm_pool *pool = cmd->pool;
	bool writing = false;
	int ret;

	if (pool->area) {
		/* Frozen: the block is as it was, and nobody is kept waiting. */
		if (!kvmm_area_start_write(pool->area))
			return -EBUSY;
		writing = true;
	}
	ret = kvmm_core_swap_out(&pool->core, handle, flags & KVMM_SWAP_DROP,
				 kvmm_pool_now(pool), &op->io);
	if (writing && ret != KVMM_IO_ISSUE)
		kvmm_area_end_write(pool->area);
	return ret;
}

/**
 * kvmm_swap_issue() - start moving blocks
 * @cmd: the command
 * @client: client id
 * @out: to the area, else from it
 * @flags: KVMM_SWAP_DROP or KVMM_SWAP_PIN
 * @handles: the blocks
 * @n: how many, at most KVMM_CORE_BATCH
 * @first: number of the first entry
 */
void kvmm_swap_issue(struct kvmm_cmd *cmd, u32 client, bool out, u32 flags,
		     const u64 *handles, u32 n, u32 first)
{
	struct kvmm_pool *pool = cmd->pool;
	u32 no_room = 0;
	u32 had, i;
	LIST_HEAD(ops);
	LIST_HEAD(submit);

	had = kvmm_ops_alloc(pool, &ops, n);

	mutex_lock(&pool->lock);
	for (i = 0; i < n; i++) {
		struct kvmm_op *op;
		int ret;

		if (pool->dead || i >= had) {
			kvmm_cmd_entry(cmd, first + i,
				       pool->dead ? -ENODEV : -ENOMEM);
			continue;
		}
		op = list_first_entry(&ops, struct kvmm_op, submit);
		if (out)
			ret = kvmm_swap_out_one(cmd, op, handles[i], flags);
		else
			ret = kvmm_core_swap_in(&pool->core, client, handles[i],
						flags & KVMM_SWAP_PIN,
						kvmm_pool_now(pool), &op->io);
		switch (ret) {
		case KVMM_IO_ISSUE:
			list_del(&op->submit);
			kvmm_op_begin(op, cmd, first + i, out, &submit);
			break;
		case KVMM_IO_JOIN:
			list_del(&op->submit);
			kvmm_op_join(op, cmd, first + i);
			break;
		default:
			/* KVMM_IO_NONE or an error: the op serves the next. */
			no_room += !out && ret == -EAGAIN;
			kvmm_cmd_entry(cmd, first + i, min(ret, 0));
		}
	}
	if (!pool->dead)
		kvmm_writeback_kick(pool);
	mutex_unlock(&pool->lock);

	kvmm_ops_submit(&submit);
	kvmm_ops_free(&ops);
	if (no_room)
		kvmm_reclaim_start(pool, no_room);
}

struct kvmm_swap_chunk {
	struct kvmm_cmd cmd;
	struct kvmm_block_ref refs[KVMM_CORE_BATCH];
	u64 handles[KVMM_CORE_BATCH];
	s32 results[KVMM_CORE_BATCH];
};

/* Move the blocks of @c->refs, wait, and fill in where they are. */
static u32 kvmm_swap_chunk(struct kvmm_client *client,
			   struct kvmm_swap_chunk *c, bool out, u32 flags,
			   u32 n)
{
	struct kvmm_pool *pool = client->pool;
	bool dead;
	u32 i;

	for (i = 0; i < n; i++)
		c->handles[i] = c->refs[i].handle;
	kvmm_cmd_init(&c->cmd, pool, NULL);
	c->cmd.results = c->results;
	kvmm_swap_issue(&c->cmd, client->id, out, flags, c->handles, n, 0);
	kvmm_cmd_wait(&c->cmd);

	mutex_lock(&pool->lock);
	dead = pool->dead;
	if (!dead)
		kvmm_core_query(&pool->core, kvmm_pool_now(pool), c->refs, n);
	mutex_unlock(&pool->lock);
	for (i = 0; i < n; i++) {
		/* What was moved is gone with the pool. */
		if (dead)
			c->results[i] = -ENODEV;
		if (dead || c->refs[i].result < 0)
			c->refs[i].frame = KVMM_NO_FRAME;
		c->refs[i].result = c->results[i];
	}
	return dead ? 0 : c->cmd.good;
}

static int kvmm_do_swap(struct kvmm_client *client, struct kvmm_swap *a,
			bool out)
{
	struct kvmm_block_ref __user *user = u64_to_user_ptr(a->cmd.addr);
	struct kvmm_swap_chunk *c;
	u32 done = 0;
	int ret;

	a->done = 0;
	a->result = 0;
	if (a->flags)
		return -EINVAL;
	ret = kvmm_swap_check(&a->cmd, out);
	if (ret)
		return ret;
	c = kmalloc(sizeof(*c), GFP_KERNEL);
	if (!c)
		return -ENOMEM;

	if (a->cmd.flags & KVMM_SWAP_ONE) {
		c->refs[0].handle = a->cmd.addr;
		a->done = kvmm_swap_chunk(client, c, out, a->cmd.flags, 1);
		a->result = c->refs[0].result;
		goto out;
	}
	while (done < a->cmd.count) {
		u32 n = min_t(u32, a->cmd.count - done, KVMM_CORE_BATCH);
		size_t bytes = n * sizeof(*user);

		/* Written back first: pins could not be taken back later. */
		if (copy_from_user(c->refs, user + done, bytes) ||
		    copy_to_user(user + done, c->refs, bytes)) {
			ret = -EFAULT;
			break;
		}
		a->done += kvmm_swap_chunk(client, c, out, a->cmd.flags, n);
		if (copy_to_user(user + done, c->refs, bytes)) {
			ret = -EFAULT;
			break;
		}
		done += n;
		cond_resched();
	}
out:
	if (!ret && !a->done && READ_ONCE(client->pool->dead))
		ret = -ENODEV;
	kfree(c);
	return ret;
}

int kvmm_do_swap_out(struct kvmm_client *client, struct file *file, void *arg)
{
	return kvmm_do_swap(client, arg, true);
}

int kvmm_do_swap_in(struct kvmm_client *client, struct file *file, void *arg)
{
	return kvmm_do_swap(client, arg, false);
}
