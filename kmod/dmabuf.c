// SPDX-License-Identifier: GPL-2.0
/*
 * What a dma-buf of exported frames can do: be mapped by devices, by processes
 * and into the kernel.
 *
 * The memory never moves and there is nothing to pin, so no pin() and unpin():
 * the core then treats the buffer as static, which suits every importer.
 *
 * Processes map page frame numbers, not pages.  The pages are those of the
 * arena's file, which is truncated when the pool is destroyed; a page that is
 * mapped behind the file's back must not be.  The dma-buf keeps the memory, and
 * the mapping keeps the dma-buf.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/iosys-map.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "compat/compat.h"
#include "export.h"
#include "kvmm_mod.h"

/**
 * struct kvmm_dmabuf_map - one mapping by a device
 * @node: in kvmm_export_mem.maps
 * @dev: the device
 * @dir: direction
 * @sgt: what the importer gets
 */
struct kvmm_dmabuf_map {
	struct list_head node;
	struct device *dev;
	enum dma_data_direction dir;
	struct sg_table sgt;
};

/* ---- devices ---- */

/* Pages that one entry of a scatter list may have. */
static pgoff_t kvmm_dmabuf_max_seg(struct device *dev)
{
	size_t max = dma_get_max_seg_size(dev);
	size_t most = dma_max_mapping_size(dev);

	/* 0: the kernel can't tell */
	if (most)
		max = min(max, most);
	return max_t(pgoff_t, max >> PAGE_SHIFT, 1);
}

static int kvmm_dmabuf_fill(const struct kvmm_export_mem *x, pgoff_t max,
			    struct sg_table *sgt)
{
	struct scatterlist *sg;
	u64 nents = 0;
	int ret;
	u32 i;

	for (i = 0; i < x->nr_pieces; i++)
		nents += DIV_ROUND_UP(kvmm_piece_pages(x, i), max);
	if (nents > INT_MAX)
		return -ENOMEM;
	ret = sg_alloc_table(sgt, nents, GFP_KERNEL | __GFP_NOWARN);
	if (ret)
		return ret;
	sg = sgt->sgl;
	for (i = 0; i < x->nr_pieces; i++) {
		unsigned long pfn = page_to_pfn(x->pieces[i].page);
		pgoff_t left = kvmm_piece_pages(x, i);

		while (left) {
			pgoff_t n = min(left, max);

			sg_set_page(sg, pfn_to_page(pfn), n << PAGE_SHIFT, 0);
			sg = sg_next(sg);
			pfn += n;
			left -= n;
		}
		cond_resched();
	}
	return 0;
}

static struct sg_table *kvmm_dmabuf_map(struct dma_buf_attachment *attach,
					enum dma_data_direction dir)
{
	struct kvmm_export_mem *x = attach->dmabuf->priv;
	struct kvmm_dmabuf_map *m;
	int ret;

	/* A device that may write is one that may write. */
	if (x->rdonly && dir != DMA_TO_DEVICE)
		return ERR_PTR(-EACCES);
	if (kvmm_export_poisoned(x))
		return ERR_PTR(-EHWPOISON);
	m = kzalloc(sizeof(*m), GFP_KERNEL);
	if (!m)
		return ERR_PTR(-ENOMEM);
	m->dev = attach->dev;
	m->dir = dir;
	ret = kvmm_dmabuf_fill(x, kvmm_dmabuf_max_seg(m->dev), &m->sgt);
	if (ret)
		goto err_free;
	ret = dma_map_sgtable(m->dev, &m->sgt, dir, 0);
	if (ret)
		goto err_table;
	mutex_lock(&x->lock);
	list_add_tail(&m->node, &x->maps);
	mutex_unlock(&x->lock);
	return &m->sgt;

err_table:
	sg_free_table(&m->sgt);
err_free:
	kfree(m);
	return ERR_PTR(ret);
}

static void kvmm_dmabuf_unmap(struct dma_buf_attachment *attach,
			      struct sg_table *sgt,
			      enum dma_data_direction dir)
{
	struct kvmm_export_mem *x = attach->dmabuf->priv;
	struct kvmm_dmabuf_map *m = container_of(sgt, struct kvmm_dmabuf_map,
						 sgt);

	mutex_lock(&x->lock);
	list_del(&m->node);
	mutex_unlock(&x->lock);
	dma_unmap_sgtable(m->dev, sgt, m->dir, 0);
	sg_free_table(sgt);
	kfree(m);
}

/* Caches, and bounce buffers of devices that can't reach all memory. */
static int kvmm_dmabuf_begin_cpu(struct dma_buf *buf,
				 enum dma_data_direction dir)
{
	struct kvmm_export_mem *x = buf->priv;
	struct kvmm_dmabuf_map *m;

	mutex_lock(&x->lock);
	list_for_each_entry(m, &x->maps, node)
		dma_sync_sgtable_for_cpu(m->dev, &m->sgt, m->dir);
	mutex_unlock(&x->lock);
	return 0;
}

static int kvmm_dmabuf_end_cpu(struct dma_buf *buf,
			       enum dma_data_direction dir)
{
	struct kvmm_export_mem *x = buf->priv;
	struct kvmm_dmabuf_map *m;

	mutex_lock(&x->lock);
	list_for_each_entry(m, &x->maps, node)
		dma_sync_sgtable_for_device(m->dev, &m->sgt, m->dir);
	mutex_unlock(&x->lock);
	return 0;
}

/* ---- processes ---- */

/* The piece that page @at is in. */
static u32 kvmm_dmabuf_piece(const struct kvmm_export_mem *x, pgoff_t at)
{
	u32 low = 0;
	u32 high = x->nr_pieces;

	while (high - low > 1) {
		u32 mid = low + (high - low) / 2;

		if (x->pieces[mid].start <= at)
			low = mid;
		else
			high = mid;
	}
	return low;
}

/* Maps what follows as well, up to the end of the page table. */
static vm_fault_t kvmm_dmabuf_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	const struct kvmm_export_mem *x = vma->vm_private_data;
	unsigned long addr = vmf->address & PAGE_MASK;
	unsigned long end = min(pmd_addr_end(addr, vma->vm_end), vma->vm_end);
	unsigned long pfn;
	pgoff_t n;
	u32 piece;
	vm_fault_t first = VM_FAULT_SIGBUS;
	vm_fault_t ret;

	if (vmf->pgoff >= x->nr_pages)
		return VM_FAULT_SIGBUS;
	piece = kvmm_dmabuf_piece(x, vmf->pgoff);
	pfn = page_to_pfn(x->pieces[piece].page) + vmf->pgoff -
	      x->pieces[piece].start;
	n = min((pgoff_t)((end - addr) >> PAGE_SHIFT),
		x->pieces[piece + 1].start - vmf->pgoff);
	for (; n; n--) {
		/* As for any page that a memory error has struck. */
		if (PageHWPoison(pfn_to_page(pfn)))
			ret = VM_FAULT_HWPOISON;
		else
			ret = vmf_insert_pfn(vma, addr, pfn);
		if (first == VM_FAULT_SIGBUS)
			first = ret;
		if (ret != VM_FAULT_NOPAGE)
			break;
		addr += PAGE_SIZE;
		pfn++;
	}
	return first;
}

static const struct vm_operations_struct kvmm_dmabuf_vm_ops = {
	.fault = kvmm_dmabuf_fault,
};

/* The range was checked; @vma is the dma-buf's own, or that of an importer. */
static int kvmm_dmabuf_mmap(struct dma_buf *buf, struct vm_area_struct *vma)
{
	struct kvmm_export_mem *x = buf->priv;

	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	if (x->rdonly) {
		if (vma->vm_flags & VM_WRITE)
			return -EACCES;
		vm_flags_clear(vma, VM_MAYWRITE);
	}
	vma->vm_ops = &kvmm_dmabuf_vm_ops;
	vma->vm_private_data = x;
	vm_flags_set(vma, VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP);
	return 0;
}

/* ---- the kernel ---- */

static int kvmm_dmabuf_vmap(struct dma_buf *buf, struct iosys_map *map)
{
	const struct kvmm_export_mem *x = buf->priv;
	struct page **pages;
	pgoff_t n = 0;
	void *addr;
	u32 i;

	if (x->nr_pages > INT_MAX)
		return -ENOMEM;
	if (kvmm_export_poisoned(x))
		return -EHWPOISON;
	pages = kvmalloc_array(x->nr_pages, sizeof(*pages),
			       GFP_KERNEL | __GFP_NOWARN);
	if (!pages)
		return -ENOMEM;
	for (i = 0; i < x->nr_pieces; i++) {
		unsigned long pfn = page_to_pfn(x->pieces[i].page);

		while (n < x->pieces[i + 1].start)
			pages[n++] = pfn_to_page(pfn++);
		cond_resched();
	}
	addr = vmap(pages, n, VM_MAP,
		    x->rdonly ? PAGE_KERNEL_RO : PAGE_KERNEL);
	kvfree(pages);
	if (!addr)
		return -ENOMEM;
	iosys_map_set_vaddr(map, addr);
	return 0;
}

static void kvmm_dmabuf_vunmap(struct dma_buf *buf, struct iosys_map *map)
{
	vunmap(map->vaddr);
}

static void kvmm_dmabuf_release(struct dma_buf *buf)
{
	kvmm_export_drop(buf->priv);
}

static const struct dma_buf_ops kvmm_dmabuf_ops = {
	.map_dma_buf = kvmm_dmabuf_map,
	.unmap_dma_buf = kvmm_dmabuf_unmap,
	.begin_cpu_access = kvmm_dmabuf_begin_cpu,
	.end_cpu_access = kvmm_dmabuf_end_cpu,
	.mmap = kvmm_dmabuf_mmap,
	.vmap = kvmm_dmabuf_vmap,
	.vunmap = kvmm_dmabuf_vunmap,
	.release = kvmm_dmabuf_release,
};

/**
 * kvmm_dmabuf_make() - make the dma-buf
 * @x: the memory; goes with the dma-buf, unless this fails
 *
 * It holds the module too.  Return: the dma-buf or ERR_PTR().
 */
struct dma_buf *kvmm_dmabuf_make(struct kvmm_export_mem *x)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);

	info.ops = &kvmm_dmabuf_ops;
	info.size = x->nr_pages << PAGE_SHIFT;
	info.flags = x->rdonly ? O_RDONLY : O_RDWR;
	info.priv = x;
	return dma_buf_export(&info);
}

KVMM_IMPORT_DMA_BUF;
