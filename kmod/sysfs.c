// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/kvmm: what is measured and what is set, one value a file.  Each
 * file is described in abi/sysfs-kernel-kvmm.
 */
#include <linux/kobject.h>
#include <linux/math64.h>
#include <linux/stat.h>
#include <linux/sysfs.h>

#include "kvmm_mod.h"
#include "limit.h"
#include "poison.h"
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
	return sysfs_emit(buf, "%llu\n", kvmm_limit_held());
}

static ssize_t max_bytes_show(struct kobject *kobj, struct kobj_attribute *attr,
			      char *buf)
{
	return sysfs_emit(buf, "%llu\n", kvmm_limit_bytes());
}

static ssize_t poisoned_bytes_show(struct kobject *kobj,
				   struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n", kvmm_poison_kept());
}

static struct kobj_attribute version_attr = __ATTR_RO(version);
static struct kobj_attribute nr_pools_attr = __ATTR_RO(nr_pools);
static struct kobj_attribute pinned_bytes_attr = __ATTR_RO(pinned_bytes);
static struct kobj_attribute max_bytes_attr = __ATTR_RO(max_bytes);
static struct kobj_attribute poisoned_bytes_attr = __ATTR_RO(poisoned_bytes);

static struct attribute *kvmm_attrs[] = {
	&version_attr.attr,
	&nr_pools_attr.attr,
	&pinned_bytes_attr.attr,
	&max_bytes_attr.attr,
	&poisoned_bytes_attr.attr,
	NULL,
};

static const struct attribute_group kvmm_group = {
	.attrs = kvmm_attrs,
};

/* ---- a pool ---- */

/**
 * struct kvmm_pool_attr - a file of a pool
 * @attr: the file
 * @wide: the counter has 64 bits, else 32
 * @offset: of a counter in struct kvmm_pool_stat
 * @show: or what prints something else; the pool is locked and not dead
 * @store: sets it, likewise; NULL: can't be set
 */
struct kvmm_pool_attr {
	struct attribute attr;
	bool wide;
	u32 offset;
	ssize_t (*show)(struct kvmm_pool *pool, char *buf);
	int (*store)(struct kvmm_pool *pool, u32 value);
};

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

static ssize_t pool_nodes_show(struct kvmm_pool *pool, char *buf)
{
	return sysfs_emit(buf, "%*pbl\n", 64, &pool->nodes);
}

static ssize_t pool_nodes_prefer_show(struct kvmm_pool *pool, char *buf)
{
	return sysfs_emit(buf, "%d\n", pool->nodes_prefer);
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

static ssize_t pool_io_timeout_ms_show(struct kvmm_pool *pool, char *buf)
{
	u64 ns = pool->area ? pool->area->timeout_ns : 0;

	return sysfs_emit(buf, "%llu\n", div_u64(ns, NSEC_PER_MSEC));
}

/*
 * An array of counts in one line, which the rules of sysfs allow for values of
 * one type: debugfs, where tables belong, is not there for everyone.
 */
static ssize_t pool_hist_show(struct kvmm_pool *pool, char *buf,
			      enum kvmm_hist_id id)
{
	const struct kvmm_hist *h = &pool->hist[id];
	ssize_t len = 0;
	unsigned int i;

	for (i = 0; i < KVMM_HIST_BUCKETS; i++)
		len += sysfs_emit_at(buf, len, "%s%lld", i ? " " : "",
				     atomic64_read(&h->bucket[i]));
	return len + sysfs_emit_at(buf, len, "\n");
}

static ssize_t pool_latency_out_show(struct kvmm_pool *pool, char *buf)
{
	return pool_hist_show(pool, buf, KVMM_HIST_LATENCY_OUT);
}

static ssize_t pool_latency_in_show(struct kvmm_pool *pool, char *buf)
{
	return pool_hist_show(pool, buf, KVMM_HIST_LATENCY_IN);
}

static ssize_t pool_bytes_out_show(struct kvmm_pool *pool, char *buf)
{
	return pool_hist_show(pool, buf, KVMM_HIST_BYTES_OUT);
}

static ssize_t pool_bytes_in_show(struct kvmm_pool *pool, char *buf)
{
	return pool_hist_show(pool, buf, KVMM_HIST_BYTES_IN);
}

static ssize_t pool_alloc_wait_show(struct kvmm_pool *pool, char *buf)
{
	return pool_hist_show(pool, buf, KVMM_HIST_ALLOC_WAIT);
}

static ssize_t pool_clean_low_show(struct kvmm_pool *pool, char *buf)
{
	return sysfs_emit(buf, "%u\n", pool->writeback.low);
}

static int pool_clean_low_store(struct kvmm_pool *pool, u32 value)
{
	return kvmm_writeback_set(pool, value, pool->writeback.high);
}

static ssize_t pool_clean_high_show(struct kvmm_pool *pool, char *buf)
{
	return sysfs_emit(buf, "%u\n", pool->writeback.high);
}

static int pool_clean_high_store(struct kvmm_pool *pool, u32 value)
{
	return kvmm_writeback_set(pool, pool->writeback.low, value);
}

#define KVMM_FILE(_name)						\
	.attr = { .name = (_name), .mode = 0444 }
#define KVMM_SHOW(_name, _show)						\
	{ KVMM_FILE(_name), .show = (_show) }
#define KVMM_STORE(_name, _show, _store)				\
	{ .attr = { .name = (_name), .mode = 0644 },			\
	  .show = (_show), .store = (_store) }
#define KVMM_U32(_name, _field)						\
	{ KVMM_FILE(_name),						\
	  .offset = offsetof(struct kvmm_pool_stat, _field) }
#define KVMM_U64(_name, _field)						\
	{ KVMM_FILE(_name), .wide = true,				\
	  .offset = offsetof(struct kvmm_pool_stat, _field) }

static struct kvmm_pool_attr kvmm_pool_files[] = {
	KVMM_SHOW("uid", pool_uid_show),
	KVMM_SHOW("gid", pool_gid_show),
	KVMM_SHOW("mode", pool_mode_show),
	KVMM_SHOW("policy", pool_policy_show),
	KVMM_SHOW("max_slots", pool_max_slots_show),
	KVMM_SHOW("quarantine_ms", pool_quarantine_ms_show),
	KVMM_SHOW("nodes", pool_nodes_show),
	KVMM_SHOW("nodes_prefer", pool_nodes_prefer_show),
	KVMM_STORE("clean_low", pool_clean_low_show, pool_clean_low_store),
	KVMM_STORE("clean_high", pool_clean_high_show, pool_clean_high_store),
	KVMM_SHOW("area", pool_area_show),
	KVMM_SHOW("area_offset", pool_area_offset_show),
	KVMM_SHOW("io_timeout_ms", pool_io_timeout_ms_show),
	KVMM_SHOW("latency_out", pool_latency_out_show),
	KVMM_SHOW("latency_in", pool_latency_in_show),
	KVMM_SHOW("bytes_out", pool_bytes_out_show),
	KVMM_SHOW("bytes_in", pool_bytes_in_show),
	KVMM_SHOW("alloc_wait", pool_alloc_wait_show),
	KVMM_U64("epoch", epoch),
	KVMM_U32("block_size", block_size),
	KVMM_U32("nr_frames", nr_frames),
	KVMM_U32("nr_slots", nr_slots),
	KVMM_U32("nr_clients", nr_clients),
	KVMM_U32("degraded", degraded),
	KVMM_U32("checksums", checksums),
	KVMM_U64("frames_online", frames_online),
	KVMM_U64("frames_free", frames_free),
	KVMM_U64("frames_quarantined", frames_quarantined),
	KVMM_U64("frames_misplaced", frames_misplaced),
	KVMM_U64("frames_populating", frames_populating),
	KVMM_U32("nr_elastic", nr_elastic),
	KVMM_U32("chunk_frames", chunk_frames),
	KVMM_U64("chunks_leased", chunks_leased),
	KVMM_U64("chunks_wanted", chunks_wanted),
	KVMM_U64("given_back", given_back),
	KVMM_U64("taken_again", taken_again),
	KVMM_U64("shrinks", shrinks),
	KVMM_U64("frames_poisoned", frames_poisoned),
	KVMM_U64("slots_free", slots_free),
	KVMM_U64("blocks_free", blocks[KVMM_FREE]),
	KVMM_U64("blocks_filling", blocks[KVMM_FILLING]),
	KVMM_U64("blocks_resident", blocks[KVMM_RESIDENT]),
	KVMM_U64("blocks_writing", blocks[KVMM_WRITING]),
	KVMM_U64("blocks_clean", blocks[KVMM_CLEAN]),
	KVMM_U64("blocks_swapped", blocks[KVMM_SWAPPED]),
	KVMM_U64("blocks_reading", blocks[KVMM_READING]),
	KVMM_U64("blocks_pinned", blocks_pinned),
	KVMM_U64("pins", pins),
	KVMM_U64("allocs", allocs),
	KVMM_U64("alloc_fails", alloc_fails),
	KVMM_U64("publishes", publishes),
	KVMM_U64("publish_dups", publish_dups),
	KVMM_U64("lookups", lookups),
	KVMM_U64("hits_memory", hits_memory),
	KVMM_U64("hits_swap", hits_swap),
	KVMM_U64("hits_pending", hits_pending),
	KVMM_U64("misses", misses),
	KVMM_U64("evicted", evicted),
	KVMM_U64("purged", purged),
	KVMM_U64("slots_evicted", slots_evicted),
	KVMM_U64("expired", expired),
	KVMM_U64("dropped", dropped),
	KVMM_U64("swap_outs", swap_outs),
	KVMM_U64("swap_ins", swap_ins),
	KVMM_U64("swap_out_bytes", swap_out_bytes),
	KVMM_U64("swap_in_bytes", swap_in_bytes),
	KVMM_U64("write_errors", write_errors),
	KVMM_U64("read_errors", read_errors),
	KVMM_U64("checksum_errors", checksum_errors),
	KVMM_U64("io_timeouts", io_timeouts),
	KVMM_U64("requests", requests),
	KVMM_U64("output_tokens", output_tokens),
	KVMM_U64("clients_dead", clients_dead),
	KVMM_U64("clean_outs", clean_outs),
	KVMM_U64("events", events),
	KVMM_U64("events_lost", events_lost),
	KVMM_U64("exports", exports),
};

static struct attribute *kvmm_pool_attrs[ARRAY_SIZE(kvmm_pool_files) + 1];
ATTRIBUTE_GROUPS(kvmm_pool);

static ssize_t kvmm_pool_stat_show(struct kvmm_pool *pool,
				   const struct kvmm_pool_attr *a, char *buf)
{
	struct kvmm_pool_stat st = {};
	const void *field = (const char *)&st + a->offset;

	kvmm_pool_stat(pool, &st);
	if (a->wide)
		return sysfs_emit(buf, "%llu\n", *(const u64 *)field);
	return sysfs_emit(buf, "%u\n", *(const u32 *)field);
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

static ssize_t kvmm_pool_attr_store(struct kobject *kobj,
				    struct attribute *attr, const char *buf,
				    size_t count)
{
	struct kvmm_pool *pool = container_of(kobj, struct kvmm_pool, kobj);
	const struct kvmm_pool_attr *a =
		container_of(attr, struct kvmm_pool_attr, attr);
	u32 value;
	int ret;

	if (!a->store)
		return -EACCES;
	ret = kstrtou32(buf, 10, &value);
	if (ret)
		return ret;
	mutex_lock(&pool->lock);
	ret = pool->dead ? -ENODEV : a->store(pool, value);
	if (!ret)
		kvmm_writeback_kick(pool);
	mutex_unlock(&pool->lock);
	return ret ?: count;
}

static const struct sysfs_ops kvmm_pool_sysfs_ops = {
	.show = kvmm_pool_attr_show,
	.store = kvmm_pool_attr_store,
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
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kvmm_pool_files); i++)
		kvmm_pool_attrs[i] = &kvmm_pool_files[i].attr;
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
