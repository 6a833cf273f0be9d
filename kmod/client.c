// SPDX-License-Identifier: GPL-2.0
/*
 * A client: one open file of /dev/kvmm, from open to its last close.
 */
#include <linux/sched.h>
#include <linux/slab.h>

#include "kvmm_mod.h"

int kvmm_open(struct inode *inode, struct file *file)
{
	struct kvmm_client *client;

	client = kzalloc(sizeof(*client), GFP_KERNEL_ACCOUNT);
	if (!client)
		return -ENOMEM;
	mutex_init(&client->lock);
	INIT_LIST_HEAD(&client->node);
	kvmm_event_init(&client->events);
	file->private_data = client;
	/* Reading events honours IOCB_NOWAIT. */
	file->f_mode |= FMODE_NOWAIT;
	return nonseekable_open(inode, file);
}

/**
 * kvmm_client_pool() - the pool a client is bound to
 * @client: the client
 *
 * Return: the pool, which stays as long as the client, or NULL.
 */
struct kvmm_pool *kvmm_client_pool(struct kvmm_client *client)
{
	/* Pairs with the release in kvmm_client_bind(). */
	return smp_load_acquire(&client->pool);
}

/**
 * kvmm_client_bind() - bind a client to a pool, for good
 * @client: not bound, its lock is held
 * @pool: found or made under kvmm_pools_lock, which is still held
 * @rdonly: no command that changes data
 *
 * Return: 0 or -EUSERS.
 */
int kvmm_client_bind(struct kvmm_client *client, struct kvmm_pool *pool,
		     bool rdonly)
{
	lockdep_assert_held(&client->lock);
	lockdep_assert_held(&kvmm_pools_lock);

	mutex_lock(&pool->lock);
	client->id = kvmm_core_client_add(&pool->core);
	if (client->id)
		list_add_tail(&client->node, &pool->clients);
	mutex_unlock(&pool->lock);
	if (!client->id)
		return -EUSERS;

	client->rdonly = rdonly;
	pool->nr_bound++;
	kref_get(&pool->ref);
	/* Pairs with kvmm_client_pool(). */
	smp_store_release(&client->pool, pool);
	return 0;
}

/*
 * The client's pins and unpublished blocks go, a batch at a time so that a
 * large client does not keep the others out.  Its own I/O has ended: the
 * io_uring commands and ioctls that started it held the file.
 */
static void kvmm_client_unbind(struct kvmm_client *client)
{
	struct kvmm_pool *pool = client->pool;
	bool done;

	kvmm_lease_end_all(client);
	mutex_lock(&pool->lock);
	list_del(&client->node);
	kvmm_event_unlisten(client);
	mutex_unlock(&pool->lock);
	do {
		mutex_lock(&pool->lock);
		done = pool->dead ||
		       kvmm_core_client_del(&pool->core, client->id,
					    kvmm_pool_now(pool));
		if (!pool->dead)
			kvmm_writeback_kick(pool);
		mutex_unlock(&pool->lock);
		cond_resched();
	} while (!done);
	wake_up_all(&pool->wait);

	mutex_lock(&kvmm_pools_lock);
	pool->nr_bound--;
	mutex_unlock(&kvmm_pools_lock);
	kvmm_pool_put(pool);
}

int kvmm_release(struct inode *inode, struct file *file)
{
	struct kvmm_client *client = file->private_data;

	if (client->pool)
		kvmm_client_unbind(client);
	kvmm_event_exit(&client->events);
	mutex_destroy(&client->lock);
	kfree(client);
	return 0;
}
