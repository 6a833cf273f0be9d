// SPDX-License-Identifier: GPL-2.0
/*
 * Swap areas: attaching a file or block device to a pool, and letting go.
 */
#include <linux/blkdev.h>
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/magic.h>
#include <linux/slab.h>
#include <linux/time64.h>
#include <linux/workqueue.h>

#include "compat/compat.h"
#include "kvmm_mod.h"
#include "swap.h"

/* A deadline where none was asked for. */
#define KVMM_IO_TIMEOUT_MS	30000

/* All areas of all pools: no file is used twice.  Taken inside area_lock. */
static DEFINE_MUTEX(kvmm_areas_lock);
static LIST_HEAD(kvmm_areas);

/**
 * kvmm_area_start_write() - keep the file system from freezing
 * @area: the area
 *
 * Return: false: it is frozen, or about to be.
 */
bool kvmm_area_start_write(struct kvmm_area *area)
{
	struct super_block *sb = file_inode(area->file)->i_sb;

	if (!area->regular)
		return true;
	if (!sb_start_write_trylock(sb))
		return false;
	/* It is given up by another thread: see kiocb_start_write(). */
	__sb_writers_release(sb, SB_FREEZE_WRITE);
	return true;
}

/** kvmm_area_start_writes() - the same up to @n times; returns how often */
u32 kvmm_area_start_writes(struct kvmm_area *area, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++)
		if (!kvmm_area_start_write(area))
			break;
	return i;
}

/** kvmm_area_end_write() - undo kvmm_area_start_write() */
void kvmm_area_end_write(struct kvmm_area *area)
{
	struct super_block *sb = file_inode(area->file)->i_sb;

	if (!area->regular)
		return;
	__sb_writers_acquired(sb, SB_FREEZE_WRITE);
	sb_end_write(sb);
}

/** kvmm_area_checksums() - is data of the pool's area checked; pool locked */
bool kvmm_area_checksums(const struct kvmm_pool *pool)
{
	return pool->area && pool->area->checksums;
}

static int kvmm_area_claim(struct kvmm_area *area)
{
	struct inode *inode = area->file->f_mapping->host;
	struct kvmm_area *other;
	void *claim;
	int ret = 0;

	mutex_lock(&kvmm_areas_lock);
	list_for_each_entry(other, &kvmm_areas, node)
		if (other->file->f_mapping->host == inode)
			ret = -EBUSY;
	if (!ret && S_ISBLK(inode->i_mode)) {
		claim = kvmm_bdev_claim(I_BDEV(inode)->bd_dev, area);
		if (IS_ERR(claim))
			ret = PTR_ERR(claim);
		else
			area->claim = claim;
	}
	if (!ret)
		list_add_tail(&area->node, &kvmm_areas);
	mutex_unlock(&kvmm_areas_lock);
	return ret;
}

/** kvmm_area_unclaim() - others may use the file */
void kvmm_area_unclaim(struct kvmm_area *area)
{
	mutex_lock(&kvmm_areas_lock);
	list_del(&area->node);
	if (area->claim)
		kvmm_bdev_release(area->claim);
	mutex_unlock(&kvmm_areas_lock);
}

/** kvmm_area_free() - an area that nobody claims or uses */
void kvmm_area_free(struct kvmm_area *area)
{
	if (area->issue_wq)
		destroy_workqueue(area->issue_wq);
	put_cred(area->cred);
	/*
	 * A pool ends in a worker, where fput() lets go of the file a moment
	 * later; but who destroyed the pool may use the area at once.
	 */
	if (current->flags & PF_KTHREAD)
		__fput_sync(area->file);
	else
		fput(area->file);
	kfree(area);
}

/* What direct I/O to the file has to be a multiple of. */
static u32 kvmm_area_alignment(struct file *file, u32 block_size)
{
	struct inode *inode = file->f_mapping->host;
	u32 align = PAGE_SIZE;

	if (S_ISBLK(inode->i_mode))
		return bdev_logical_block_size(I_BDEV(inode));
	if (inode->i_sb->s_bdev)
		align = bdev_logical_block_size(inode->i_sb->s_bdev);
	/* Parts of a file system's block are slow to write. */
	if (i_blocksize(inode) <= block_size)
		align = max_t(u32, align, i_blocksize(inode));
	return align;
}

static int kvmm_area_check_file(struct file *file)
{
	struct inode *inode = file->f_mapping->host;

	if ((file->f_mode & (FMODE_READ | FMODE_WRITE)) !=
	    (FMODE_READ | FMODE_WRITE))
		return -EBADF;
	if (!S_ISREG(inode->i_mode) && !S_ISBLK(inode->i_mode))
		return -EINVAL;
	if (IS_SWAPFILE(inode))
		return -EBUSY;
	if (!(file->f_mode & FMODE_CAN_ODIRECT) || !file->f_op->read_iter ||
	    !file->f_op->write_iter)
		return -EOPNOTSUPP;
	/* Newer ones say they can, but it would be from memory to memory. */
	if (inode->i_sb->s_magic == TMPFS_MAGIC)
		return -EOPNOTSUPP;
	return 0;
}

/* Where the slots are. */
static int kvmm_area_measure(struct kvmm_area *area, struct kvmm_pool *pool,
			     const struct kvmm_swap_attach *a)
{
	u32 block_size = 1U << pool->block_shift;
	u32 nr_slots = a->nr_slots;
	u64 size, fit;

	if (a->offset > MAX_LFS_FILESIZE || a->offset & (block_size - 1))
		return -EINVAL;
	if (nr_slots > pool->core.cfg.nr_slots)
		return -EINVAL;
	size = i_size_read(area->file->f_mapping->host);
	fit = size > a->offset ? (size - a->offset) >> pool->block_shift : 0;
	if (!nr_slots)
		nr_slots = min_t(u64, fit, pool->core.cfg.nr_slots);
	if (!nr_slots || nr_slots > fit)
		return -ENOSPC;
	area->align = kvmm_area_alignment(area->file, block_size);
	if (area->align > block_size)
		return -EOPNOTSUPP;
	area->offset = a->offset;
	area->nr_slots = nr_slots;
	area->end = a->offset + ((u64)nr_slots << pool->block_shift);
	return 0;
}

static struct kvmm_area *kvmm_area_open(struct kvmm_pool *pool,
					const struct kvmm_swap_attach *a)
{
	struct kvmm_area *area;
	int ret;

	area = kzalloc(sizeof(*area), GFP_KERNEL_ACCOUNT);
	if (!area)
		return ERR_PTR(-ENOMEM);
	area->file = fget(a->fd);
	if (!area->file) {
		kfree(area);
		return ERR_PTR(-EBADF);
	}
	area->cred = get_current_cred();
	INIT_LIST_HEAD(&area->node);
	area->checksums = !(a->flags & KVMM_SWAP_NO_CHECKSUM);
	area->regular = S_ISREG(area->file->f_mapping->host->i_mode);
	area->nowait = area->file->f_mode & FMODE_NOWAIT;
	area->timeout_ns = NSEC_PER_MSEC *
			   (u64)(a->timeout_ms ?: KVMM_IO_TIMEOUT_MS);
	ret = kvmm_area_check_file(area->file);
	if (ret)
		goto err_free;
	ret = kvmm_area_measure(area, pool, a);
	if (ret)
		goto err_free;
	ret = rw_verify_area(WRITE, area->file, &area->offset, PAGE_SIZE);
	if (!ret)
		ret = rw_verify_area(READ, area->file, &area->offset,
				     PAGE_SIZE);
	if (ret)
		goto err_free;
	ret = -ENOMEM;
	area->issue_wq = alloc_workqueue("kvmm_io/%llu",
					 WQ_UNBOUND | WQ_MEM_RECLAIM, 0,
					 pool->id);
	if (!area->issue_wq)
		goto err_free;
	ret = kvmm_area_claim(area);
	if (ret)
		goto err_free;
	ret = kvmm_area_probe(&area);
	/* Too slow: it goes when the device has answered. */
	if (!area)
		return ERR_PTR(ret);
	if (ret)
		goto err_unclaim;
	if (file_inode(area->file)->i_sb->s_magic == BTRFS_SUPER_MAGIC)
		pr_warn("kvmm: pool %s swaps to a copy-on-write file system: each write takes new blocks of it\n",
			pool->name);
	return area;

err_unclaim:
	kvmm_area_unclaim(area);
err_free:
	kvmm_area_free(area);
	return ERR_PTR(ret);
}

int kvmm_do_swap_attach(struct kvmm_client *client, struct file *file,
			void *arg)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_swap_attach *a = arg;
	struct kvmm_area *area;
	int ret;

	if (a->flags & ~KVMM_SWAP_NO_CHECKSUM || !pool->core.cfg.nr_slots ||
	    a->__reserved)
		return -EINVAL;
	if (a->timeout_ms > KVMM_MAX_IO_TIMEOUT_MS)
		return -EINVAL;
	if (!kvmm_pool_owned(pool))
		return -EPERM;

	ret = mutex_lock_killable(&pool->area_lock);
	if (ret)
		return ret;
	/* Set and cleared under area_lock only. */
	if (pool->area) {
		ret = -EBUSY;
		goto out;
	}
	area = kvmm_area_open(pool, a);
	if (IS_ERR(area)) {
		ret = PTR_ERR(area);
		goto out;
	}
	mutex_lock(&pool->lock);
	ret = pool->dead ? -ENODEV :
			   kvmm_core_attach(&pool->core, area->nr_slots);
	if (!ret) {
		pool->area = area;
		pool->core.load_us = area->probe_us;
		kvmm_writeback_kick(pool);
	}
	mutex_unlock(&pool->lock);
	if (ret) {
		kvmm_area_unclaim(area);
		kvmm_area_free(area);
		goto out;
	}
	a->nr_slots = area->nr_slots;
out:
	mutex_unlock(&pool->area_lock);
	return ret;
}

/* Wait until nothing moves any more: 0 or -EINTR. */
static int kvmm_area_idle(struct kvmm_pool *pool)
{
	return kvmm_pool_wait(pool, !READ_ONCE(pool->nr_inflight) ||
			      READ_ONCE(pool->dead));
}

/*
 * The core lets go of its slots a batch at a time, and hands out no more I/O
 * from the first call on.
 */
static int kvmm_area_detach(struct kvmm_pool *pool, bool discard)
{
	bool busy;
	int ret;

	for (;;) {
		mutex_lock(&pool->lock);
		if (pool->dead)
			ret = -ENODEV;
		else
			ret = kvmm_core_detach(&pool->core, discard,
					       kvmm_pool_now(pool));
		busy = pool->nr_inflight;
		mutex_unlock(&pool->lock);
		if (ret != -EAGAIN)
			return ret;
		if (busy && kvmm_area_idle(pool)) {
			mutex_lock(&pool->lock);
			kvmm_core_detach_cancel(&pool->core);
			mutex_unlock(&pool->lock);
			return -EINTR;
		}
		cond_resched();
	}
}

/**
 * kvmm_area_drop() - let go of the file, if there is one
 * @pool: its area_lock is held; the core has no slots any more
 */
void kvmm_area_drop(struct kvmm_pool *pool)
{
	struct kvmm_area *area;

	lockdep_assert_held(&pool->area_lock);
	mutex_lock(&pool->lock);
	area = pool->area;
	pool->area = NULL;
	mutex_unlock(&pool->lock);
	if (!area)
		return;
	/* The next area may have a shorter deadline. */
	cancel_delayed_work_sync(&pool->late_work);
	kvmm_area_unclaim(area);
	kvmm_area_free(area);
}

int kvmm_do_swap_detach(struct kvmm_client *client, struct file *file,
			void *arg)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_swap_detach *a = arg;
	int ret;

	if (a->flags & ~KVMM_SWAP_DISCARD)
		return -EINVAL;
	if (!kvmm_pool_owned(pool))
		return -EPERM;

	ret = mutex_lock_killable(&pool->area_lock);
	if (ret)
		return ret;
	if (!pool->area) {
		ret = -ENOENT;
		goto out;
	}
	ret = kvmm_area_detach(pool, a->flags & KVMM_SWAP_DISCARD);
	if (!ret)
		kvmm_area_drop(pool);
out:
	mutex_unlock(&pool->area_lock);
	return ret;
}
