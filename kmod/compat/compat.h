/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Differences between kernels, bridged towards the newest of them.  What a
 * kernel has was found by probe.sh.
 */
#ifndef KVMM_COMPAT_H
#define KVMM_COMPAT_H

#include <linux/blkdev.h>
#include <linux/fs.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/shmem_fs.h>
#include <linux/workqueue.h>

#include "compat_config.h"

#ifdef KVMM_HAVE_IO_URING_CMD_H
#include <linux/io_uring/cmd.h>
#else
#include <linux/io_uring.h>
#endif

#ifdef KVMM_HAVE_CRC32C_H
#include <linux/crc32c.h>
#else
#include <linux/crc32.h>
#endif

#ifndef KVMM_HAVE_VM_FLAGS_SET
static inline void vm_flags_set(struct vm_area_struct *vma,
				unsigned long flags)
{
	vma->vm_flags |= flags;
}

static inline void vm_flags_clear(struct vm_area_struct *vma,
				  unsigned long flags)
{
	vma->vm_flags &= ~flags;
}
#endif

/* A queue of each CPU's own had to be asked for; before, it was what one got. */
#ifndef KVMM_HAVE_WQ_PERCPU
#define WQ_PERCPU	0
#endif

/* The name of a namespace became a string. */
#ifdef KVMM_HAVE_IMPORT_NS_TOKEN
#define KVMM_IMPORT_DMA_BUF	MODULE_IMPORT_NS(DMA_BUF)
#else
#define KVMM_IMPORT_DMA_BUF	MODULE_IMPORT_NS("DMA_BUF")
#endif

/** kvmm_vfs_mmap() - let @file's own code set a mapping up */
static inline int kvmm_vfs_mmap(struct file *file, struct vm_area_struct *vma)
{
#ifdef KVMM_HAVE_VFS_MMAP
	return vfs_mmap(file, vma);
#else
	return call_mmap(file, vma);
#endif
}

/** kvmm_shmem_setup() - a file on a tmpfs, its size not accounted for */
static inline struct file *kvmm_shmem_setup(struct vfsmount *mnt,
					    const char *name, loff_t size)
{
#ifdef KVMM_HAVE_SHMEM_VMA_FLAGS
	return shmem_file_setup_with_mnt(mnt, name, size,
					 mk_vma_flags(VMA_NORESERVE_BIT));
#else
	return shmem_file_setup_with_mnt(mnt, name, size, VM_NORESERVE);
#endif
}

/**
 * kvmm_shmem_begin() - a page of a tmpfs file, as if to write to it
 * @file: the file; its mapping says how memory is allocated
 * @pos: where the page is, bytes
 * @len: what will be written, bytes
 *
 * Return: its folio, locked, with a reference; not cleared by the file system
 * if it is not up to date.
 */
static inline struct folio *kvmm_shmem_begin(struct file *file, loff_t pos,
					     unsigned int len)
{
	struct address_space *mapping = file->f_mapping;
	void *fsdata = NULL;
#ifdef KVMM_HAVE_WRITE_BEGIN_KIOCB
	struct folio *folio;
	struct kiocb iocb;
	int ret;

	init_sync_kiocb(&iocb, file);
	ret = mapping->a_ops->write_begin(&iocb, mapping, pos, len, &folio,
					  &fsdata);
	return ret ? ERR_PTR(ret) : folio;
#elif defined(KVMM_HAVE_WRITE_BEGIN_FOLIO)
	struct folio *folio;
	int ret;

	ret = mapping->a_ops->write_begin(file, mapping, pos, len, &folio,
					  &fsdata);
	return ret ? ERR_PTR(ret) : folio;
#else
	struct page *page;
	int ret;

	ret = mapping->a_ops->write_begin(file, mapping, pos, len, &page,
					  &fsdata);
	return ret ? ERR_PTR(ret) : page_folio(page);
#endif
}

/** kvmm_uring_sqe_cmd() - the command's bytes in the submission entry */
static inline const void *kvmm_uring_sqe_cmd(const struct io_uring_cmd *ioucmd)
{
#ifdef KVMM_HAVE_IO_URING_CMD_SQE
	return ioucmd->sqe->cmd;
#else
	return ioucmd->cmd;
#endif
}

/** kvmm_uring_done() - post a command's completion entry */
static inline void kvmm_uring_done(struct io_uring_cmd *ioucmd, s32 res,
				   unsigned int issue_flags)
{
#ifdef KVMM_HAVE_IO_URING_CMD_DONE3
	io_uring_cmd_done(ioucmd, res, issue_flags);
#else
	io_uring_cmd_done(ioucmd, res, 0, issue_flags);
#endif
}

/*
 * KVMM_URING_TASK_WORK() - define NAME as what io_uring_cmd_complete_in_task()
 * takes, which calls FN(ioucmd, issue_flags)
 */
#ifdef KVMM_HAVE_IO_TW_REQ
#define KVMM_URING_TASK_WORK(name, fn)					\
static void name(struct io_tw_req req, io_tw_token_t tw)		\
{									\
	fn(io_uring_cmd_from_tw(req),					\
	   IO_URING_CMD_TASK_WORK_ISSUE_FLAGS);				\
}
#else
#define KVMM_URING_TASK_WORK(name, fn)					\
static void name(struct io_uring_cmd *ioucmd, unsigned int issue_flags)	\
{									\
	fn(ioucmd, issue_flags);					\
}
#endif

/** kvmm_bdev_claim() - hold a block device exclusively; ERR_PTR on error */
static inline void *kvmm_bdev_claim(dev_t dev, void *holder)
{
#ifdef KVMM_HAVE_BDEV_FILE
	return bdev_file_open_by_dev(dev, BLK_OPEN_READ | BLK_OPEN_WRITE,
				     holder, NULL);
#else
	return blkdev_get_by_dev(dev, FMODE_READ | FMODE_WRITE | FMODE_EXCL,
				 holder);
#endif
}

/** kvmm_bdev_release() - undo kvmm_bdev_claim() */
static inline void kvmm_bdev_release(void *claim)
{
#ifdef KVMM_HAVE_BDEV_FILE
	bdev_fput(claim);
#else
	blkdev_put(claim, FMODE_READ | FMODE_WRITE | FMODE_EXCL);
#endif
}

/*
 * The memory cgroup of the current task, to charge to later.  Where the kernel
 * does not let modules have it, each populate is charged to who does it.
 */
#if defined(CONFIG_MEMCG) && defined(KVMM_HAVE_GET_MEM_CGROUP_FROM_MM)
static inline struct mem_cgroup *kvmm_memcg_get(void)
{
	return get_mem_cgroup_from_mm(current->mm);
}

static inline void kvmm_memcg_put(struct mem_cgroup *memcg)
{
	mem_cgroup_put(memcg);
}

/** kvmm_memcg_enter() - what is allocated from now on is charged to @memcg */
static inline struct mem_cgroup *kvmm_memcg_enter(struct mem_cgroup *memcg)
{
	return set_active_memcg(memcg);
}

/** kvmm_memcg_leave() - as it was before kvmm_memcg_enter(), which gave @old */
static inline void kvmm_memcg_leave(struct mem_cgroup *old)
{
	set_active_memcg(old);
}
#else
static inline struct mem_cgroup *kvmm_memcg_get(void)
{
	return NULL;
}

static inline void kvmm_memcg_put(struct mem_cgroup *memcg)
{
}

static inline struct mem_cgroup *kvmm_memcg_enter(struct mem_cgroup *memcg)
{
	return NULL;
}

static inline void kvmm_memcg_leave(struct mem_cgroup *old)
{
}
#endif

/** kvmm_remove_folio() - a folio, locked, leaves a file of shmem */
static inline int kvmm_remove_folio(struct address_space *mapping,
				    struct folio *folio)
{
#ifdef KVMM_HAVE_REMOVE_FOLIO
	return generic_error_remove_folio(mapping, folio);
#else
	return generic_error_remove_page(mapping, &folio->page);
#endif
}

#endif /* KVMM_COMPAT_H */
