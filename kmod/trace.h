/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints, system "kvmm".  Each is described in abi/tracepoints-kvmm.  A
 * key is shown by its first 8 bytes, as they would be written.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM kvmm

#if !defined(KVMM_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define KVMM_TRACE_H

#include <linux/string.h>
#include <linux/tracepoint.h>

#include "kvmm_mod.h"
#include "swap.h"

TRACE_DEFINE_ENUM(KVMM_MEMORY);
TRACE_DEFINE_ENUM(KVMM_SWAP);
TRACE_DEFINE_ENUM(KVMM_PENDING);
TRACE_DEFINE_ENUM(KVMM_NOTE_PURGED);
TRACE_DEFINE_ENUM(KVMM_NOTE_SLOT);
TRACE_DEFINE_ENUM(KVMM_NOTE_EXPIRED);
TRACE_DEFINE_ENUM(KVMM_NOTE_UNREADABLE);

#ifndef KVMM_TRACE_HELPERS
#define KVMM_TRACE_HELPERS
static inline u64 kvmm_trace_key(const u8 *key)
{
	__be64 first;

	memcpy(&first, key, sizeof(first));
	return be64_to_cpu(first);
}
#endif

/* A pool's name.  __string() is not the same in all kernels; this is. */
#define kvmm_pool_entry(p)						\
	__dynamic_array(char, pool, strlen((p)->name) + 1)
#define kvmm_pool_assign(p)						\
	memcpy(__get_dynamic_array(pool), (p)->name,			\
	       __get_dynamic_array_len(pool))

TRACE_EVENT(kvmm_alloc,
	TP_PROTO(const struct kvmm_pool *p, u32 client,
		 const struct kvmm_alloc *a, u64 us, int err),
	TP_ARGS(p, client, a, us, err),
	TP_STRUCT__entry(
		kvmm_pool_entry(p)
		__field(u32, client)
		__field(u32, count)
		__field(u32, done)
		__field(u64, us)
		__field(int, err)
	),
	TP_fast_assign(
		kvmm_pool_assign(p);
		__entry->client = client;
		__entry->count = a->count;
		__entry->done = a->done;
		__entry->us = us;
		__entry->err = err;
	),
	TP_printk("pool=%s client=%u count=%u done=%u us=%llu err=%d",
		  __get_str(pool), __entry->client, __entry->count,
		  __entry->done, __entry->us, __entry->err)
);

TRACE_EVENT(kvmm_publish,
	TP_PROTO(const struct kvmm_pool *p, u32 client,
		 const struct kvmm_publish_entry *e),
	TP_ARGS(p, client, e),
	TP_STRUCT__entry(
		kvmm_pool_entry(p)
		__field(u32, client)
		__field(u64, key)
		__field(u64, handle)
		__field(u32, position)
		__field(u32, length)
		__field(int, result)
	),
	TP_fast_assign(
		kvmm_pool_assign(p);
		__entry->client = client;
		__entry->key = kvmm_trace_key(e->key);
		__entry->handle = e->handle;
		__entry->position = e->position;
		__entry->length = e->length;
		__entry->result = e->result;
	),
	TP_printk("pool=%s client=%u key=%016llx handle=%llx position=%u length=%u result=%d",
		  __get_str(pool), __entry->client, __entry->key,
		  __entry->handle, __entry->position, __entry->length,
		  __entry->result)
);

TRACE_EVENT(kvmm_hit,
	TP_PROTO(const struct kvmm_pool *p, u32 client, const u8 *key,
		 const struct kvmm_block_ref *ref),
	TP_ARGS(p, client, key, ref),
	TP_STRUCT__entry(
		kvmm_pool_entry(p)
		__field(u32, client)
		__field(u64, key)
		__field(u64, handle)
		__field(u32, frame)
		__field(int, where)
	),
	TP_fast_assign(
		kvmm_pool_assign(p);
		__entry->client = client;
		__entry->key = kvmm_trace_key(key);
		__entry->handle = ref->handle;
		__entry->frame = ref->frame;
		__entry->where = ref->result;
	),
	TP_printk("pool=%s client=%u key=%016llx handle=%llx frame=%d where=%s",
		  __get_str(pool), __entry->client, __entry->key,
		  __entry->handle, (int)__entry->frame,
		  __print_symbolic(__entry->where, { KVMM_MEMORY, "memory" },
				   { KVMM_SWAP, "swap" },
				   { KVMM_PENDING, "pending" }))
);

TRACE_EVENT(kvmm_miss,
	TP_PROTO(const struct kvmm_pool *p, u32 client, const u8 *key),
	TP_ARGS(p, client, key),
	TP_STRUCT__entry(
		kvmm_pool_entry(p)
		__field(u32, client)
		__field(u64, key)
	),
	TP_fast_assign(
		kvmm_pool_assign(p);
		__entry->client = client;
		__entry->key = kvmm_trace_key(key);
	),
	TP_printk("pool=%s client=%u key=%016llx", __get_str(pool),
		  __entry->client, __entry->key)
);

TRACE_EVENT(kvmm_evict,
	TP_PROTO(const struct kvmm_pool *p, u64 handle,
		 const struct kvmm_block *b),
	TP_ARGS(p, handle, b),
	TP_STRUCT__entry(
		kvmm_pool_entry(p)
		__field(u64, key)
		__field(u64, handle)
		__field(u32, frame)
		__field(u32, slot)
	),
	TP_fast_assign(
		kvmm_pool_assign(p);
		__entry->key = kvmm_trace_key(b->key);
		__entry->handle = handle;
		__entry->frame = b->frame;
		__entry->slot = b->slot;
	),
	TP_printk("pool=%s key=%016llx handle=%llx frame=%u slot=%u",
		  __get_str(pool), __entry->key, __entry->handle,
		  __entry->frame, __entry->slot)
);

TRACE_EVENT(kvmm_purge,
	TP_PROTO(const struct kvmm_pool *p, u64 handle,
		 const struct kvmm_block *b, int why),
	TP_ARGS(p, handle, b, why),
	TP_STRUCT__entry(
		kvmm_pool_entry(p)
		__field(u64, key)
		__field(u64, handle)
		__field(int, why)
	),
	TP_fast_assign(
		kvmm_pool_assign(p);
		__entry->key = kvmm_trace_key(b->key);
		__entry->handle = handle;
		__entry->why = why;
	),
	TP_printk("pool=%s key=%016llx handle=%llx why=%s", __get_str(pool),
		  __entry->key, __entry->handle,
		  __print_symbolic(__entry->why, { KVMM_NOTE_PURGED, "room" },
				   { KVMM_NOTE_SLOT, "slot" },
				   { KVMM_NOTE_EXPIRED, "expired" },
				   { KVMM_NOTE_UNREADABLE, "unreadable" }))
);

DECLARE_EVENT_CLASS(kvmm_op,
	TP_PROTO(const struct kvmm_pool *p, const struct kvmm_op *op, u64 us),
	TP_ARGS(p, op, us),
	TP_STRUCT__entry(
		kvmm_pool_entry(p)
		__field(u64, handle)
		__field(u32, frame)
		__field(u32, slot)
		__field(u32, length)
		__field(u32, depth)
		__field(u64, us)
		__field(int, err)
		__field(bool, write)
		__field(bool, late)
	),
	TP_fast_assign(
		kvmm_pool_assign(p);
		__entry->handle = op->io.handle;
		__entry->frame = op->io.frame;
		__entry->slot = op->io.slot;
		__entry->length = op->io.length;
		__entry->depth = op->depth;
		__entry->us = us;
		__entry->err = op->err;
		__entry->write = op->write;
		__entry->late = op->late;
	),
	TP_printk("pool=%s %s handle=%llx frame=%u slot=%u length=%u depth=%u us=%llu err=%d late=%d",
		  __get_str(pool), __entry->write ? "out" : "in",
		  __entry->handle, __entry->frame, __entry->slot,
		  __entry->length, __entry->depth, __entry->us, __entry->err,
		  __entry->late)
);

DEFINE_EVENT(kvmm_op, kvmm_swap_issue,
	TP_PROTO(const struct kvmm_pool *p, const struct kvmm_op *op, u64 us),
	TP_ARGS(p, op, us)
);

DEFINE_EVENT(kvmm_op, kvmm_swap_done,
	TP_PROTO(const struct kvmm_pool *p, const struct kvmm_op *op, u64 us),
	TP_ARGS(p, op, us)
);

DEFINE_EVENT(kvmm_op, kvmm_swap_late,
	TP_PROTO(const struct kvmm_pool *p, const struct kvmm_op *op, u64 us),
	TP_ARGS(p, op, us)
);

TRACE_EVENT(kvmm_reclaim,
	TP_PROTO(const struct kvmm_pool *p, u32 keep, u32 writes, u32 evicted,
		 u32 purged),
	TP_ARGS(p, keep, writes, evicted, purged),
	TP_STRUCT__entry(
		kvmm_pool_entry(p)
		__field(u32, keep)
		__field(u32, writes)
		__field(u32, evicted)
		__field(u32, purged)
	),
	TP_fast_assign(
		kvmm_pool_assign(p);
		__entry->keep = keep;
		__entry->writes = writes;
		__entry->evicted = evicted;
		__entry->purged = purged;
	),
	TP_printk("pool=%s keep=%u writes=%u evicted=%u purged=%u",
		  __get_str(pool), __entry->keep, __entry->writes,
		  __entry->evicted, __entry->purged)
);

DECLARE_EVENT_CLASS(kvmm_frames,
	TP_PROTO(const struct kvmm_pool *p, u32 first, u32 count, u64 us,
		 int err),
	TP_ARGS(p, first, count, us, err),
	TP_STRUCT__entry(
		kvmm_pool_entry(p)
		__field(u32, first)
		__field(u32, count)
		__field(u64, us)
		__field(int, err)
	),
	TP_fast_assign(
		kvmm_pool_assign(p);
		__entry->first = first;
		__entry->count = count;
		__entry->us = us;
		__entry->err = err;
	),
	TP_printk("pool=%s first=%u count=%u us=%llu err=%d", __get_str(pool),
		  __entry->first, __entry->count, __entry->us, __entry->err)
);

DEFINE_EVENT(kvmm_frames, kvmm_populate,
	TP_PROTO(const struct kvmm_pool *p, u32 first, u32 count, u64 us,
		 int err),
	TP_ARGS(p, first, count, us, err)
);

DEFINE_EVENT(kvmm_frames, kvmm_give_back,
	TP_PROTO(const struct kvmm_pool *p, u32 first, u32 count, u64 us,
		 int err),
	TP_ARGS(p, first, count, us, err)
);

TRACE_EVENT(kvmm_shrink,
	TP_PROTO(const struct kvmm_pool *p, u64 asked, u64 freed),
	TP_ARGS(p, asked, freed),
	TP_STRUCT__entry(
		kvmm_pool_entry(p)
		__field(u64, asked)
		__field(u64, freed)
	),
	TP_fast_assign(
		kvmm_pool_assign(p);
		__entry->asked = asked;
		__entry->freed = freed;
	),
	TP_printk("pool=%s asked=%llu freed=%llu", __get_str(pool),
		  __entry->asked, __entry->freed)
);

#endif /* KVMM_TRACE_H */

#ifndef KVMM_TRACE_CALLS
#define KVMM_TRACE_CALLS
void kvmm_trace_lookup(const struct kvmm_client *client, bool prefix,
		       const u8 *keys, const struct kvmm_block_ref *refs,
		       u32 n);
void kvmm_trace_publish(const struct kvmm_client *client,
			const struct kvmm_publish_entry *e, u32 n);
#endif

#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH kmod
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
