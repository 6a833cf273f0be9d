// SPDX-License-Identifier: GPL-2.0
/*
 * The arena: a pool's memory, one file on a tmpfs of its own.
 *
 * Clients map that very file, so that their mappings outlive the device file,
 * come in huge pages and can be registered with io_uring and GPU drivers.  It
 * has to be defended against them:
 *
 * - the inode is immutable and sealed: no truncation, no MADV_REMOVE;
 * - the file system's block limit always equals the blocks of the frames that
 *   are online, so that touching any other frame is SIGBUS, not new memory;
 * - the pages don't move and are not reclaimed: the pool holds references.
 */
#include <linux/fs_context.h>
#include <linux/mm.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include <linux/percpu_counter.h>
#include <linux/sched/task.h>
#include <linux/shmem_fs.h>
#include <linux/sizes.h>
#include <uapi/linux/fcntl.h>

#include "arena.h"
#include "compat/compat.h"
#include "export.h"
#include "kvmm_mod.h"
#include "limit.h"
#include "place.h"
#include "poison.h"

#ifndef CONFIG_64BIT
#error kvmm needs a 64-bit kernel: the arena is used through its linear address
#endif

/*
 * Mounted as root of the initial namespace, else the pool would keep the
 * namespace of a container that made it.
 */
static struct vfsmount *kvmm_arena_mount(const struct kvmm_pool *pool)
{
	static const char huge[] = "huge=always,";
	char options[sizeof(huge) + KVMM_PLACE_LEN];
	char *place = options + sizeof(huge) - 1;
	struct file_system_type *type = get_fs_type("tmpfs");
	struct vfsmount *mnt;

	if (!type)
		return ERR_PTR(-ENODEV);
	/* Mounting takes the string apart. */
	strscpy(options, huge, sizeof(options));
	kvmm_place_option(pool, place, KVMM_PLACE_LEN);
	mnt = vfs_kern_mount(type, SB_KERNMOUNT, "kvmm", options);
	if (mnt == ERR_PTR(-EINVAL)) {
		/* A kernel or processor without huge pages refuses that. */
		kvmm_place_option(pool, place, KVMM_PLACE_LEN);
		mnt = vfs_kern_mount(type, SB_KERNMOUNT, "kvmm", place);
	}
	module_put(type->owner);
	return mnt;
}

static int kvmm_arena_open(struct kvmm_pool *pool)
{
	struct kvmm_arena *arena = &pool->arena;
	struct shmem_sb_info *sbinfo;
	char name[KVMM_NAME_LEN + 8];
	struct vfsmount *mnt;
	struct inode *inode;
	struct file *file;

	mnt = kvmm_arena_mount(pool);
	if (IS_ERR(mnt))
		return PTR_ERR(mnt);
	/* 0 would mean no limit, so one block counts as used from the start. */
	sbinfo = kvmm_arena_sbinfo(mnt);
	percpu_counter_add(&sbinfo->used_blocks, 1);
	sbinfo->max_blocks = 1;

	snprintf(name, sizeof(name), "kvmm:%s", pool->name);
	file = kvmm_shmem_setup(mnt, name, arena->size);
	if (IS_ERR(file)) {
		mntput(mnt);
		/* It says so as well when there is no memory for an inode. */
		return file == ERR_PTR(-ENOSPC) ? -ENOMEM : PTR_ERR(file);
	}
	inode = file_inode(file);
	inode->i_mode = S_IFREG;
	inode->i_flags |= S_IMMUTABLE;
	SHMEM_I(inode)->seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;
	/* Not movable: long-term pins must succeed where the page is. */
	mapping_set_gfp_mask(inode->i_mapping, KVMM_ARENA_GFP);
	mapping_set_unevictable(inode->i_mapping);
	arena->mnt = mnt;
	arena->file = file;
	arena->ino = inode->i_ino;
	return 0;
}

/**
 * kvmm_arena_init() - make the arena, without memory
 * @pool: name and arena.size are set
 */
int kvmm_arena_init(struct kvmm_pool *pool)
{
	struct kvmm_arena *arena = &pool->arena;
	const struct cred *old;
	struct cred *cred;
	unsigned int i;
	int ret;

	if (arena->size > MAX_LFS_FILESIZE)
		return -EINVAL;
	init_rwsem(&arena->sem);
	mutex_init(&arena->turn);
	for (i = 0; i < ARRAY_SIZE(arena->unit); i++)
		mutex_init(&arena->unit[i]);
	arena->max_segs = 1;

	cred = prepare_kernel_cred(&init_task);
	if (!cred)
		return -ENOMEM;
	old = override_creds(cred);
	ret = kvmm_arena_open(pool);
	revert_creds(old);
	put_cred(cred);
	return ret;
}

/**
 * kvmm_arena_exit() - let go of the file; mappings may keep it
 * @pool: the pool, revoked, or without a file
 */
void kvmm_arena_exit(struct kvmm_pool *pool)
{
	if (!pool->arena.file)
		return;
	fput(pool->arena.file);
	mntput(pool->arena.mnt);
}

/** kvmm_frames_of() - how many frames pages @start to before @end touch */
unsigned int kvmm_frames_of(const struct kvmm_pool *pool, pgoff_t start,
			    pgoff_t end)
{
	unsigned int shift = kvmm_frame_page_shift(pool);

	return ((end - 1) >> shift) - (start >> shift) + 1;
}

/** kvmm_arena_release() - drop the references to pages @start to before @end */
void kvmm_arena_release(struct kvmm_pool *pool, pgoff_t start, pgoff_t end)
{
	struct address_space *mapping = kvmm_arena_inode(pool)->i_mapping;
	pgoff_t index = start;

	while (index < end) {
		struct page *page = find_get_page(mapping, index);
		struct folio *folio;
		pgoff_t next;

		if (WARN_ON_ONCE(!page)) {
			index++;
			continue;
		}
		folio = page_folio(page);
		next = min(folio_next_index(folio), end);
		kvmm_folio_drop(folio, kvmm_frames_of(pool, index, next) + 1);
		index = next;
		cond_resched();
	}
}

/** kvmm_arena_punch() - unmap and free pages @start to before @end */
void kvmm_arena_punch(struct kvmm_pool *pool, pgoff_t start, pgoff_t end)
{
	struct inode *inode = kvmm_arena_inode(pool);
	loff_t from = (loff_t)start << PAGE_SHIFT;
	loff_t to = (loff_t)end << PAGE_SHIFT;

	unmap_mapping_range(inode->i_mapping, from, to - from, 1);
	shmem_truncate_range(inode, from, to - 1);
	unmap_mapping_range(inode->i_mapping, from, to - from, 1);
}

/** kvmm_folio_poisoned() - has an error struck pages @from to before @to */
bool kvmm_folio_poisoned(struct folio *folio, pgoff_t from, pgoff_t to)
{
	pgoff_t i;

	if (folio_test_large(folio) && !folio_test_has_hwpoisoned(folio))
		return false;
	for (i = from; i < to; i++)
		if (PageHWPoison(folio_page(folio, i)))
			return true;
	return false;
}

/**
 * kvmm_frame_poisoned() - has a memory error struck a frame
 * @pool: the pool
 * @frame: online, and not to be given back meanwhile
 *
 * The kernel's handler marks the page and can do no more: the references that
 * the pool holds keep it from splitting a huge page or taking the page away.
 */
bool kvmm_frame_poisoned(struct kvmm_pool *pool, u32 frame)
{
	struct address_space *mapping = kvmm_arena_inode(pool)->i_mapping;
	unsigned int shift = kvmm_frame_page_shift(pool);
	pgoff_t index = (pgoff_t)frame << shift;
	pgoff_t end = index + (1UL << shift);
	bool bad = false;

	if (!IS_ENABLED(CONFIG_MEMORY_FAILURE))
		return false;
	while (!bad && index < end) {
		struct page *page = find_get_page(mapping, index);
		struct folio *folio;
		pgoff_t next;

		/* Of a pool that is being destroyed. */
		if (!page)
			break;
		folio = page_folio(page);
		next = min(folio_next_index(folio), end);
		bad = kvmm_folio_poisoned(folio, index - folio->index,
					  next - folio->index);
		folio_put(folio);
		index = next;
	}
	return bad;
}

/**
 * kvmm_arena_bvec() - the pages of a piece of the arena, all of it online
 * @pool: the pool
 * @pos: where it starts, bytes
 * @len: its length, bytes
 * @bvec: filled with physically contiguous pieces; may be NULL to count them
 * @max: room in @bvec
 * @bytes: out: bytes in those pieces, less than @len where @max was too few
 *
 * Return: number of pieces.
 */
unsigned int kvmm_arena_bvec(struct kvmm_pool *pool, u64 pos, size_t len,
			     struct bio_vec *bvec, unsigned int max,
			     size_t *bytes)
{
	struct address_space *mapping = kvmm_arena_inode(pool)->i_mapping;
	unsigned long next_pfn = 0;
	unsigned int n = 0;
	size_t sum = 0;

	while (sum < len) {
		pgoff_t index = (pos + sum) >> PAGE_SHIFT;
		unsigned int offset = offset_in_page(pos + sum);
		/* The pool's own reference keeps it. */
		struct folio *folio = xa_load(&mapping->i_pages, index);
		struct page *page;
		size_t part;

		if (WARN_ON_ONCE(!folio || xa_is_value(folio)))
			break;
		page = folio_file_page(folio, index);
		part = ((folio_next_index(folio) - index) << PAGE_SHIFT) -
		       offset;
		part = min(part, len - sum);

		if (n && !offset && page_to_pfn(page) == next_pfn) {
			if (bvec)
				bvec[n - 1].bv_len += part;
		} else {
			if (n == max)
				break;
			if (bvec) {
				bvec[n].bv_page = page;
				bvec[n].bv_offset = offset;
				bvec[n].bv_len = part;
			}
			n++;
		}
		sum += part;
		next_pfn = page_to_pfn(page) + ((offset + part) >> PAGE_SHIFT);
	}
	*bytes = sum;
	return n;
}

/**
 * kvmm_arena_crc32c() - checksum of a piece of the arena, all of it online
 * @pool: the pool
 * @pos: where it starts, bytes
 * @len: its length, bytes
 */
u32 kvmm_arena_crc32c(struct kvmm_pool *pool, u64 pos, size_t len)
{
	struct bio_vec bvec;
	u32 crc = ~0U;
	size_t bytes;

	while (len) {
		if (!kvmm_arena_bvec(pool, pos, min_t(size_t, len, SZ_1M),
				     &bvec, 1, &bytes))
			break;
		crc = crc32c(crc, page_address(bvec.bv_page) + bvec.bv_offset,
			     bytes);
		pos += bytes;
		len -= bytes;
		cond_resched();
	}
	return ~crc;
}

/* The first frame from @f on whose being online is not @online. */
static u32 kvmm_skip_frames(struct kvmm_pool *pool, bool online, u32 f,
			    u32 end, bool dead)
{
	bool more = true;
	u32 n;

	while (more) {
		mutex_lock(&pool->lock);
		/* The tables of a dead pool are there for kvmm_arena_revoke(). */
		if (pool->dead != dead)
			f = end;
		for (n = 0; n < KVMM_CORE_BATCH; n++) {
			more = f < end &&
			       kvmm_core_frame_is_online(&pool->core, f) ==
			       online;
			if (!more)
				break;
			f++;
		}
		mutex_unlock(&pool->lock);
		cond_resched();
	}
	return f;
}

/**
 * kvmm_next_run() - find frames that are online, or that are not
 * @pool: the pool; only a dead one is searched for frames that are online
 * @online: which of the two
 * @first: in: where to start; out: the first such frame
 * @last: out: the first frame after it that is not such
 * @end: where to stop
 *
 * Only the holder of the unit's lock or of the arena's semaphore can rely on
 * the answer.  Return: is there any.
 */
bool kvmm_next_run(struct kvmm_pool *pool, bool online, u32 *first, u32 *last,
		   u32 end)
{
	*first = kvmm_skip_frames(pool, !online, *first, end, online);
	*last = kvmm_skip_frames(pool, online, *first, end, online);
	return *first < *last;
}

/**
 * kvmm_arena_revoke() - take the memory away, also from who has it mapped
 * @pool: dead, without I/O in flight
 */
void kvmm_arena_revoke(struct kvmm_pool *pool)
{
	struct inode *inode = kvmm_arena_inode(pool);
	unsigned int shift = kvmm_frame_page_shift(pool);
	u32 nr_frames = pool->core.cfg.nr_frames;
	s64 frames;
	u32 first = 0;
	u32 last;

	down_write(&pool->arena.sem);
	/* What is exported stays pinned until the dma-buf is gone. */
	frames = -(s64)kvmm_export_revoke(pool);
	inode_lock(inode);
	i_size_write(inode, 0);
	inode_unlock(inode);
	unmap_mapping_range(inode->i_mapping, 0, 0, 1);
	while (kvmm_next_run(pool, true, &first, &last, nr_frames)) {
		kvmm_arena_release(pool, (pgoff_t)first << shift,
				   (pgoff_t)last << shift);
		frames += last - first;
		first = last;
	}
	kvmm_limit_uncharge(pool, frames << pool->block_shift);
	shmem_truncate_range(inode, 0, (loff_t)-1);
	unmap_mapping_range(inode->i_mapping, 0, 0, 1);
	up_write(&pool->arena.sem);
}

/**
 * kvmm_arena_mmap() - map the arena in place of the device
 * @pool: the pool
 * @vma: as for mmap
 * @rdonly: the mapping must never become writable
 */
int kvmm_arena_mmap(struct kvmm_pool *pool, struct vm_area_struct *vma,
		    bool rdonly)
{
	struct file *file = pool->arena.file;
	unsigned long pages = pool->arena.size >> PAGE_SHIFT;
	int ret;

	/* A private copy of frames would not be what anyone means. */
	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	if (vma->vm_pgoff >= pages || vma_pages(vma) > pages - vma->vm_pgoff)
		return -EINVAL;
	if (rdonly) {
		if (vma->vm_flags & VM_WRITE)
			return -EACCES;
		vm_flags_clear(vma, VM_MAYWRITE);
	}
	ret = kvmm_vfs_mmap(file, vma);
	if (ret)
		return ret;
	vma_set_file(vma, file);
	/* Growing it maps nothing; dumping it would dump the whole arena. */
	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP);
	return 0;
}
