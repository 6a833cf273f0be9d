// SPDX-License-Identifier: GPL-2.0
/*
 * Tracepoints: their definitions, and loops that are run while one is on.
 */
#define CREATE_TRACE_POINTS
#include "trace.h"

/**
 * kvmm_trace_lookup() - keys that were looked up
 * @client: who asked
 * @prefix: nothing was looked up after the first miss
 * @keys: the keys
 * @refs: what was found
 * @n: how many
 */
void kvmm_trace_lookup(const struct kvmm_client *client, bool prefix,
		       const u8 *keys, const struct kvmm_block_ref *refs,
		       u32 n)
{
	u32 i;

	for (i = 0; i < n; i++, keys += KVMM_KEY_LEN) {
		if (refs[i].result != KVMM_MISS) {
			trace_kvmm_hit(client->pool, client->id, keys,
				       &refs[i]);
			continue;
		}
		trace_kvmm_miss(client->pool, client->id, keys);
		if (prefix)
			break;
	}
}

/** kvmm_trace_publish() - what was published, or not */
void kvmm_trace_publish(const struct kvmm_client *client,
			const struct kvmm_publish_entry *e, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++)
		trace_kvmm_publish(client->pool, client->id, &e[i]);
}
