// SPDX-License-Identifier: GPL-2.0
/*
 * A device that imports dma-bufs, for tests: it looks at a buffer by way of the
 * scatter list that a real device would get, and of a mapping of the kernel's.
 * vgem, the kernel's own, does neither.  Not for production use.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/iosys-map.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/platform_device.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "kvmm_importer.h"

/* Locking moved into the dma-buf core, and namespaces became strings. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
#define map_attachment dma_buf_map_attachment_unlocked
#define unmap_attachment dma_buf_unmap_attachment_unlocked
#define vmap_buffer dma_buf_vmap_unlocked
#define vunmap_buffer dma_buf_vunmap_unlocked
#else
#define map_attachment dma_buf_map_attachment
#define unmap_attachment dma_buf_unmap_attachment
#define vmap_buffer dma_buf_vmap
#define vunmap_buffer dma_buf_vunmap
#endif

static struct platform_device *importer_dev;

struct importer {
	struct mutex lock;			/* the buffer */
	struct dma_buf *buf;
	struct dma_buf_attachment *attach;
	struct sg_table *sgt;
	enum dma_data_direction dir;
};

static void importer_detach(struct importer *im)
{
	if (!im->buf)
		return;
	if (im->sgt)
		unmap_attachment(im->attach, im->sgt, im->dir);
	if (im->attach)
		dma_buf_detach(im->buf, im->attach);
	dma_buf_put(im->buf);
	im->buf = NULL;
	im->attach = NULL;
	im->sgt = NULL;
}

static int importer_attach(struct importer *im, struct importer_attach *a)
{
	struct device *dev = &importer_dev->dev;
	struct scatterlist *sg;
	int ret;
	u32 i;

	if (im->buf)
		return -EBUSY;
	im->buf = dma_buf_get(a->fd);
	if (IS_ERR(im->buf)) {
		ret = PTR_ERR(im->buf);
		im->buf = NULL;
		return ret;
	}
	if (a->dir < 0)
		return 0;
	dma_set_max_seg_size(dev, a->max_seg);
	im->attach = dma_buf_attach(im->buf, dev);
	if (IS_ERR(im->attach)) {
		ret = PTR_ERR(im->attach);
		im->attach = NULL;
		goto err;
	}
	im->dir = a->dir;
	im->sgt = map_attachment(im->attach, im->dir);
	if (IS_ERR(im->sgt)) {
		ret = PTR_ERR(im->sgt);
		im->sgt = NULL;
		goto err;
	}
	a->longest = 0;
	a->nents = im->sgt->orig_nents;
	for_each_sgtable_sg(im->sgt, sg, i)
		a->longest = max_t(u64, a->longest, sg->length);
	return 0;
err:
	importer_detach(im);
	return ret;
}

static int importer_copy_sg(struct importer *im, void *mem,
			    const struct importer_copy *c)
{
	size_t n;

	if (!im->sgt)
		return -EINVAL;
	if (c->write)
		n = sg_pcopy_from_buffer(im->sgt->sgl, im->sgt->orig_nents,
					 mem, c->len, c->offset);
	else
		n = sg_pcopy_to_buffer(im->sgt->sgl, im->sgt->orig_nents,
				       mem, c->len, c->offset);
	return n == c->len ? 0 : -EIO;
}

static int importer_copy_vmap(struct importer *im, void *mem,
			      const struct importer_copy *c)
{
	struct iosys_map map;
	int ret;

	ret = vmap_buffer(im->buf, &map);
	if (ret)
		return ret;
	if (c->write)
		iosys_map_memcpy_to(&map, c->offset, mem, c->len);
	else
		iosys_map_memcpy_from(mem, &map, c->offset, c->len);
	vunmap_buffer(im->buf, &map);
	return 0;
}

static int importer_copy(struct importer *im, const struct importer_copy *c)
{
	enum dma_data_direction dir = c->write ? DMA_TO_DEVICE :
						 DMA_FROM_DEVICE;
	void __user *user = u64_to_user_ptr(c->addr);
	void *mem;
	int ret;

	if (!im->buf || c->offset > im->buf->size ||
	    c->len > im->buf->size - c->offset)
		return -EINVAL;
	mem = kvmalloc(c->len, GFP_KERNEL);
	if (!mem)
		return -ENOMEM;
	ret = -EFAULT;
	if (c->write && copy_from_user(mem, user, c->len))
		goto out;
	ret = dma_buf_begin_cpu_access(im->buf, dir);
	if (ret)
		goto out;
	ret = c->vmap ? importer_copy_vmap(im, mem, c) :
			importer_copy_sg(im, mem, c);
	dma_buf_end_cpu_access(im->buf, dir);
	if (!ret && !c->write && copy_to_user(user, mem, c->len))
		ret = -EFAULT;
out:
	kvfree(mem);
	return ret;
}

static long importer_ioctl(struct file *file, unsigned int cmd,
			   unsigned long uarg)
{
	struct importer *im = file->private_data;
	void __user *user = (void __user *)uarg;
	struct importer_attach a;
	struct importer_copy c;
	long ret = -ENOTTY;

	mutex_lock(&im->lock);
	switch (cmd) {
	case IMPORTER_ATTACH:
		ret = -EFAULT;
		if (copy_from_user(&a, user, sizeof(a)))
			break;
		ret = importer_attach(im, &a);
		if (!ret && copy_to_user(user, &a, sizeof(a)))
			ret = -EFAULT;
		break;
	case IMPORTER_COPY:
		ret = -EFAULT;
		if (!copy_from_user(&c, user, sizeof(c)))
			ret = importer_copy(im, &c);
		break;
	case IMPORTER_DETACH:
		importer_detach(im);
		ret = 0;
		break;
	}
	mutex_unlock(&im->lock);
	return ret;
}

static int importer_open(struct inode *inode, struct file *file)
{
	struct importer *im = kzalloc(sizeof(*im), GFP_KERNEL);

	if (!im)
		return -ENOMEM;
	mutex_init(&im->lock);
	file->private_data = im;
	return 0;
}

static int importer_release(struct inode *inode, struct file *file)
{
	struct importer *im = file->private_data;

	importer_detach(im);
	kfree(im);
	return 0;
}

static const struct file_operations importer_fops = {
	.owner = THIS_MODULE,
	.open = importer_open,
	.release = importer_release,
	.unlocked_ioctl = importer_ioctl,
};

static struct miscdevice importer_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "kvmm-importer",
	.fops = &importer_fops,
	.mode = 0600,
};

static int __init importer_init(void)
{
	int ret;

	importer_dev = platform_device_register_simple("kvmm-importer", -1,
						       NULL, 0);
	if (IS_ERR(importer_dev))
		return PTR_ERR(importer_dev);
	dma_coerce_mask_and_coherent(&importer_dev->dev, DMA_BIT_MASK(64));
	ret = misc_register(&importer_misc);
	if (ret)
		platform_device_unregister(importer_dev);
	return ret;
}

static void __exit importer_exit(void)
{
	misc_deregister(&importer_misc);
	platform_device_unregister(importer_dev);
}

module_init(importer_init);
module_exit(importer_exit);

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
MODULE_IMPORT_NS("DMA_BUF");
#else
MODULE_IMPORT_NS(DMA_BUF);
#endif
MODULE_DESCRIPTION("Imports dma-bufs, to test kvmm's");
MODULE_AUTHOR("the kvmm authors");
MODULE_LICENSE("GPL");
