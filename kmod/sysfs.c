// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/kvmm: what is measured and what is set, one value a file.  Each
 * file is described in abi/sysfs-kernel-kvmm.
 */
#include <linux/kobject.h>
#include <linux/stat.h>
#include <linux/sysfs.h>

#include "kvmm_mod.h"
#include "swap.h"

static struct kobject *kvmm_kobj;
static struct kobject *kvmm_pools_kobj;

/* ---- the module ---- */

static ssize_t version_show(struct kobject *kobj, struct kobj_attribute *attr,
			    char *buf)
{
	return sysfs_emit(buf, "%s\n", KVMM_VERSION);
}

static ssize_t nr_pools_show(struct kobject *kobj, struct kobj_attribute *attr,
			     char *buf)
{
	return sysfs_emit(buf, "%u\n", kvmm_pools_count());
}

static ssize_t pinned_bytes_show(struct kobject *kobj,
				 struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lld\n", atomic64_read(&kvmm_pinned_bytes));
}

static struct kobj_attribute version_attr = __ATTR_RO(version);
static struct kobj_attribute nr_pools_attr = __ATTR_RO(nr_pools);
static struct kobj_attribute pinned_bytes_attr = __ATTR_RO(pinned_bytes);

static struct attribute *kvmm_attrs[] = {
	&version_attr.attr,
	&nr_pools_attr.attr,
	&pinned_bytes_attr.attr,
	NULL,
};

static const struct attribute_group kvmm_group = {
	.attrs = kvmm_attrs,
};

/* ---- a pool ---- */

/**
 * struct kvmm_pool_attr - a file of a pool
 * @attr: the file
 * @offset: of a counter in struct kvmm_pool_stat
 * @size: of that counter
 * @show: or what prints something else; the pool is locked and not dead
 */
struct kvmm_pool_attr {
	struct attribute attr;
	u32 offset;
	u32 size;
	ssize_t (*show)(struct kvmm_pool *pool, char *buf);
};

#define KVMM_STAT_FIELD(_name, _field)					\
	static struct kvmm_pool_attr pool_##_name##_attr = {		\
		.attr = { .name = #_name, .mode = 0444 },		\
		.offset = offsetof(struct kvmm_pool_stat, _field),	\
		.size = sizeof_field(struct kvmm_pool_stat, _field),	\
	}
#define KVMM_STAT(_name)	KVMM_STAT_FIELD(_name, _name)

KVMM_STAT(epoch);
KVMM_STAT(block_size);
KVMM_STAT(nr_frames);
KVMM_STAT(nr_slots);
KVMM_STAT(nr_clients);
KVMM_STAT(degraded);
KVMM_STAT(checksums);
KVMM_STAT(frames_online);
KVMM_STAT(frames_free);
KVMM_STAT(frames_quarantined);
KVMM_STAT(slots_free);
KVMM_STAT_FIELD(blocks_free, blocks[KVMM_FREE]);
KVMM_STAT_FIELD(blocks_filling, blocks[KVMM_FILLING]);
KVMM_STAT_FIELD(blocks_resident, blocks[KVMM_RESIDENT]);
KVMM_STAT_FIELD(blocks_writing, blocks[KVMM_WRITING]);
KVMM_STAT_FIELD(blocks_clean, blocks[KVMM_CLEAN]);
KVMM_STAT_FIELD(blocks_swapped, blocks[KVMM_SWAPPED]);
KVMM_STAT_FIELD(blocks_reading, blocks[KVMM_READING]);
KVMM_STAT(blocks_pinned);
KVMM_STAT(pins);
KVMM_STAT(allocs);
KVMM_STAT(alloc_fails);
KVMM_STAT(publishes);
KVMM_STAT(publish_dups);
KVMM_STAT(lookups);
KVMM_STAT(hits_memory);
KVMM_STAT(hits_swap);
KVMM_STAT(hits_pending);
KVMM_STAT(misses);
KVMM_STAT(evicted);
KVMM_STAT(purged);
KVMM_STAT(slots_evicted);
KVMM_STAT(expired);
KVMM_STAT(dropped);
KVMM_STAT(swap_outs);
KVMM_STAT(swap_ins);
KVMM_STAT(swap_out_bytes);
KVMM_STAT(swap_in_bytes);
KVMM_STAT(write_errors);
KVMM_STAT(read_errors);
KVMM_STAT(checksum_errors);
KVMM_STAT(requests);
KVMM_STAT(output_tokens);
KVMM_STAT(clients_dead);

#define KVMM_SHOW(_name)						\
	static struct kvmm_pool_attr pool_##_name##_attr = {		\
		.attr = { .name = #_name, .mode = 0444 },		\
		.show = pool_##_name##_show,				\
	}

static ssize_t pool_uid_show(struct kvmm_pool *pool, char *buf)
{
	return sysfs_emit(buf, "%u\n", from_kuid_munged(&init_user_ns,
							pool->uid));
}

static ssize_t pool_gid_show(struct kvmm_pool *pool, char *buf)
{
	return sysfs_emit(buf, "%u\n", from_kgid_munged(&init_user_ns,
							pool->gid));
}

static ssize_t pool_mode_show(struct kvmm_pool *pool, char *buf)
{
	return sysfs_emit(buf, "%04o\n", pool->mode);
}

static ssize_t pool_policy_show(struct kvmm_pool *pool, char *buf)
{
	return sysfs_emit(buf, "lru\n");
}

static ssize_t pool_max_slots_show(struct kvmm_pool *pool, char *buf)
{
	return sysfs_emit(buf, "%u\n", pool->core.cfg.nr_slots);
}

static ssize_t pool_quarantine_ms_show(struct kvmm_pool *pool, char *buf)
{
	return sysfs_emit(buf, "%u\n", pool->core.cfg.quarantine_ms);
}

static ssize_t pool_area_show(struct kvmm_pool *pool, char *buf)
{
	ssize_t len;
	char *path;

	if (!pool->area)
		return sysfs_emit(buf, "\n");
	path = file_path(pool->area->file, buf, PAGE_SIZE - 1);
	if (IS_ERR(path))
		return PTR_ERR(path);
	len = strlen(path);
	memmove(buf, path, len);
	buf[len++] = '\n';
	buf[len] = '\0';
	return len;
}

static ssize_t pool_area_offset_show(struct kvmm_pool *pool, char *buf)
{
	return sysfs_emit(buf, "%lld\n", pool->area ? pool->area->offset : 0);
}

KVMM_SHOW(uid);
KVMM_SHOW(gid);
KVMM_SHOW(mode);
KVMM_SHOW(policy);
KVMM_SHOW(max_slots);
KVMM_SHOW(quarantine_ms);
KVMM_SHOW(area);
KVMM_SHOW(area_offset);

static struct attribute *kvmm_pool_attrs[] = {
	&pool_uid_attr.attr,
	&pool_gid_attr.attr,
	&pool_mode_attr.attr,
	&pool_policy_attr.attr,
	&pool_max_slots_attr.attr,
	&pool_quarantine_ms_attr.attr,
	&pool_area_attr.attr,
	&pool_area_offset_attr.attr,
	&pool_epoch_attr.attr,
	&pool_block_size_attr.attr,
	&pool_nr_frames_attr.attr,
	&pool_nr_slots_attr.attr,
	&pool_nr_clients_attr.attr,
	&pool_degraded_attr.attr,
	&pool_checksums_attr.attr,
	&pool_frames_online_attr.attr,
	&pool_frames_free_attr.attr,
	&pool_frames_quarantined_attr.attr,
	&pool_slots_free_attr.attr,
	&pool_blocks_free_attr.attr,
	&pool_blocks_filling_attr.attr,
	&pool_blocks_resident_attr.attr,
	&pool_blocks_writing_attr.attr,
	&pool_blocks_clean_attr.attr,
	&pool_blocks_swapped_attr.attr,
	&pool_blocks_reading_attr.attr,
	&pool_blocks_pinned_attr.attr,
	&pool_pins_attr.attr,
	&pool_allocs_attr.attr,
	&pool_alloc_fails_attr.attr,
	&pool_publishes_attr.attr,
	&pool_publish_dups_attr.attr,
	&pool_lookups_attr.attr,
	&pool_hits_memory_attr.attr,
	&pool_hits_swap_attr.attr,
	&pool_hits_pending_attr.attr,
	&pool_misses_attr.attr,
	&pool_evicted_attr.attr,
	&pool_purged_attr.attr,
	&pool_slots_evicted_attr.attr,
	&pool_expired_attr.attr,
	&pool_dropped_attr.attr,
	&pool_swap_outs_attr.attr,
	&pool_swap_ins_attr.attr,
	&pool_swap_out_bytes_attr.attr,
	&pool_swap_in_bytes_attr.attr,
	&pool_write_errors_attr.attr,
	&pool_read_errors_attr.attr,
	&pool_checksum_errors_attr.attr,
	&pool_requests_attr.attr,
	&pool_output_tokens_attr.attr,
	&pool_clients_dead_attr.attr,
	NULL,
};
ATTRIBUTE_GROUPS(kvmm_pool);

static ssize_t kvmm_pool_stat_show(struct kvmm_pool *pool,
				   const struct kvmm_pool_attr *a, char *buf)
{
	struct kvmm_pool_stat st = {};
	const void *field = (const char *)&st + a->offset;

	kvmm_pool_stat(pool, &st);
	if (a->size == sizeof(u32))
		return sysfs_emit(buf, "%u\n", *(const u32 *)field);
	return sysfs_emit(buf, "%llu\n", *(const u64 *)field);
}

static ssize_t kvmm_pool_attr_show(struct kobject *kobj,
				   struct attribute *attr, char *buf)
{
	struct kvmm_pool *pool = container_of(kobj, struct kvmm_pool, kobj);
	const struct kvmm_pool_attr *a =
		container_of(attr, struct kvmm_pool_attr, attr);
	ssize_t ret;

	mutex_lock(&pool->lock);
	if (pool->dead)
		ret = -ENODEV;
	else if (a->show)
		ret = a->show(pool, buf);
	else
		ret = kvmm_pool_stat_show(pool, a, buf);
	mutex_unlock(&pool->lock);
	return ret;
}

static const struct sysfs_ops kvmm_pool_sysfs_ops = {
	.show = kvmm_pool_attr_show,
};

static void kvmm_pool_kobj_release(struct kobject *kobj)
{
	complete(&container_of(kobj, struct kvmm_pool, kobj)->kobj_gone);
}

static const struct kobj_type kvmm_pool_ktype = {
	.sysfs_ops = &kvmm_pool_sysfs_ops,
	.release = kvmm_pool_kobj_release,
	.default_groups = kvmm_pool_groups,
};

/** kvmm_sysfs_add_pool() - make the pool's directory */
int kvmm_sysfs_add_pool(struct kvmm_pool *pool)
{
	int ret;

	init_completion(&pool->kobj_gone);
	ret = kobject_init_and_add(&pool->kobj, &kvmm_pool_ktype,
				   kvmm_pools_kobj, "%s", pool->name);
	if (ret) {
		kobject_put(&pool->kobj);
		wait_for_completion(&pool->kobj_gone);
	}
	return ret;
}

/** kvmm_sysfs_del_pool() - take it away; nobody reads it any more then */
void kvmm_sysfs_del_pool(struct kvmm_pool *pool)
{
	kobject_del(&pool->kobj);
	kobject_put(&pool->kobj);
	wait_for_completion(&pool->kobj_gone);
}

/** kvmm_sysfs_init() - make /sys/kernel/kvmm */
int kvmm_sysfs_init(void)
{
	int ret = -ENOMEM;

	kvmm_kobj = kobject_create_and_add("kvmm", kernel_kobj);
	if (!kvmm_kobj)
		return -ENOMEM;
	kvmm_pools_kobj = kobject_create_and_add("pools", kvmm_kobj);
	if (!kvmm_pools_kobj)
		goto err_kobj;
	ret = sysfs_create_group(kvmm_kobj, &kvmm_group);
	if (ret)
		goto err_pools;
	return 0;

err_pools:
	kobject_put(kvmm_pools_kobj);
err_kobj:
	kobject_put(kvmm_kobj);
	return ret;
}

/** kvmm_sysfs_exit() - take /sys/kernel/kvmm away */
void kvmm_sysfs_exit(void)
{
	sysfs_remove_group(kvmm_kobj, &kvmm_group);
	kobject_put(kvmm_pools_kobj);
	kobject_put(kvmm_kobj);
}
