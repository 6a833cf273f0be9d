// SPDX-License-Identifier: MIT
/*
 * Blocks for the kernel tests: their content, and the commands on them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kt_pattern.h"
#include "kvmm_test.h"

void kt_key(uint8_t key[KVMM_KEY_LEN], uint64_t id)
{
	kt_pattern_key(key, id);
}

void kt_fill_mem(void *mem, size_t bytes, uint64_t id)
{
	kt_pattern_fill(mem, bytes, id);
}

bool kt_good_mem(const void *mem, size_t bytes, uint64_t id)
{
	return kt_pattern_good(mem, bytes, id);
}

void kt_fill(struct kt *t, uint32_t frame, uint64_t id)
{
	kt_fill_mem(t->arena + (size_t)frame * t->block_size, t->block_size,
		    id);
}

bool kt_good(struct kt *t, uint32_t frame, uint64_t id)
{
	if (frame >= t->nr_frames)
		return false;
	return kt_good_mem(t->arena + (size_t)frame * t->block_size,
			   t->block_size, id);
}

int kt_alloc_parts(struct kt *t, struct kvmm_block_ref *refs, uint32_t n,
		   uint32_t nr_parts)
{
	struct kvmm_alloc arg = {
		.size = sizeof(arg),
		.refs = (uintptr_t)refs,
		.count = n,
		.nr_parts = nr_parts,
	};

	return kt_ioctl(t->fd, KVMM_ALLOC, &arg);
}

int kt_alloc(struct kt *t, struct kvmm_block_ref *refs, uint32_t n)
{
	return kt_alloc_parts(t, refs, n, 1);
}

int kt_alloc_wait(struct kt *t, struct kvmm_block_ref *refs, uint32_t n,
		  uint32_t timeout_ms, uint32_t *done)
{
	struct kvmm_alloc arg = {
		.size = sizeof(arg),
		.flags = timeout_ms ? KVMM_ALLOC_WAIT : 0,
		.refs = (uintptr_t)refs,
		.count = n,
		.timeout_ms = timeout_ms,
	};
	int ret = kt_ioctl(t->fd, KVMM_ALLOC, &arg);

	if (done)
		*done = arg.done;
	return ret;
}

struct kvmm_publish_entry kt_entry(struct kt *t, uint64_t handle, uint64_t id)
{
	struct kvmm_publish_entry e = {
		.handle = handle, .length = t->block_size,
	};

	kt_key(e.key, id);
	return e;
}

int kt_publish(struct kt *t, struct kvmm_publish_entry *e, uint32_t n,
	       uint32_t flags)
{
	struct kvmm_publish arg = {
		.size = sizeof(arg),
		.flags = flags,
		.entries = (uintptr_t)e,
		.count = n,
	};

	return kt_ioctl(t->fd, KVMM_PUBLISH, &arg);
}

int kt_publish1(struct kt *t, uint64_t handle, uint64_t id, uint32_t flags)
{
	struct kvmm_publish_entry e = kt_entry(t, handle, id);
	int ret = kt_publish(t, &e, 1, flags);

	return ret ? ret : e.result;
}

int kt_store(struct kt *t, uint64_t id, uint32_t n,
	     struct kvmm_block_ref *refs)
{
	struct kvmm_publish_entry *e;
	uint32_t i;
	int ret;

	e = calloc(n, sizeof(*e));
	if (!e)
		return -ENOMEM;
	ret = kt_alloc(t, refs, n);
	if (ret)
		goto out;
	for (i = 0; i < n; i++) {
		kt_fill(t, refs[i].frame, id + i);
		e[i] = kt_entry(t, refs[i].handle, id + i);
		e[i].position = i;
		e[i].parent = i ? refs[i - 1].handle : 0;
	}
	ret = kt_publish(t, e, n, 0);
	for (i = 0; i < n && !ret; i++)
		ret = e[i].result;
out:
	free(e);
	return ret;
}

int kt_store_each(struct kt *t, uint64_t id, uint32_t n,
		  struct kvmm_block_ref *refs)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; i < n && !ret; i++)
		ret = kt_store(t, id + i, 1, &refs[i]);
	return ret;
}

int kt_lookup(struct kt *t, uint64_t id, uint32_t n, uint32_t flags,
	      struct kvmm_block_ref *refs)
{
	struct kvmm_lookup arg = {
		.size = sizeof(arg),
		.flags = flags,
		.refs = (uintptr_t)refs,
		.count = n,
	};
	uint8_t (*keys)[KVMM_KEY_LEN];
	uint32_t i;
	int ret;

	keys = calloc(n, sizeof(*keys));
	if (!keys)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		kt_key(keys[i], id + i);
	arg.keys = (uintptr_t)keys;
	ret = kt_ioctl(t->fd, KVMM_LOOKUP, &arg);
	free(keys);
	return ret ? ret : (int)arg.prefix;
}

int kt_where1(struct kt *t, uint64_t id, uint64_t *handle)
{
	struct kvmm_block_ref ref = { 0 };
	int ret = kt_lookup(t, id, 1, KVMM_LOOKUP_PEEK, &ref);

	if (handle)
		*handle = ref.handle;
	return ret < 0 ? ret : ref.result;
}

int kt_batch(struct kt *t, unsigned long cmd, struct kvmm_block_ref *refs,
	     uint32_t n, uint32_t *done)
{
	struct kvmm_batch arg = {
		.size = sizeof(arg), .refs = (uintptr_t)refs, .count = n,
	};
	int ret = kt_ioctl(t->fd, cmd, &arg);

	if (done)
		*done = arg.done;
	return ret;
}

int kt_batch1(struct kt *t, unsigned long cmd, uint64_t handle)
{
	struct kvmm_block_ref ref = { .handle = handle };
	int ret = kt_batch(t, cmd, &ref, 1, NULL);

	return ret ? ret : ref.result;
}

int kt_reclaim(struct kt *t, uint32_t keep, struct kvmm_reclaim *out)
{
	struct kvmm_reclaim arg = { .size = sizeof(arg), .keep = keep };
	int ret = kt_ioctl(t->fd, KVMM_RECLAIM, &arg);

	if (out)
		*out = arg;
	return ret;
}
