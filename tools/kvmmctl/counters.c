// SPDX-License-Identifier: MIT
/*
 * The table of counters: where each is, what it counts, and its unit.
 */
#include "counters.h"
#include "kvmmctl.h"
#include "output.h"
#include "size.h"

#include <stddef.h>
#include <stdio.h>

#define AT(field)	offsetof(struct kvmm_pool_stat, field)

/**
 * struct counter - one 64-bit field of struct kvmm_pool_stat
 * @name: in JSON
 * @offset: where it is
 * @unit: what is counted; "bytes" is written as a size
 * @text: for people
 */
struct counter {
	const char *name;
	size_t offset;
	const char *unit;
	const char *text;
};

static const struct counter table[] = {
	{ "frames_online", AT(frames_online), "frames", "with memory" },
	{ "frames_free", AT(frames_free), "frames", "unused" },
	{ "frames_quarantined", AT(frames_quarantined), "frames",
	  "resting after a client's death" },
	{ "slots_free", AT(slots_free), "slots", "unused" },
	{ "blocks_filling", AT(blocks[KVMM_FILLING]), "blocks",
	  "being filled" },
	{ "blocks_resident", AT(blocks[KVMM_RESIDENT]), "blocks",
	  "in memory only" },
	{ "blocks_writing", AT(blocks[KVMM_WRITING]), "blocks",
	  "being written out" },
	{ "blocks_clean", AT(blocks[KVMM_CLEAN]), "blocks",
	  "in memory and in the swap area" },
	{ "blocks_swapped", AT(blocks[KVMM_SWAPPED]), "blocks",
	  "in the swap area only" },
	{ "blocks_reading", AT(blocks[KVMM_READING]), "blocks",
	  "being read back" },
	{ "blocks_pinned", AT(blocks_pinned), "blocks", "pinned" },
	{ "pins", AT(pins), "pins", "held by clients" },
	{ "allocs", AT(allocs), "blocks", "allocated" },
	{ "alloc_fails", AT(alloc_fails), "blocks", "asked for and not had" },
	{ "publishes", AT(publishes), "blocks", "published" },
	{ "publish_dups", AT(publish_dups), "blocks",
	  "published by someone else before" },
	{ "lookups", AT(lookups), "keys", "looked up" },
	{ "hits_memory", AT(hits_memory), "keys", "found in memory" },
	{ "hits_swap", AT(hits_swap), "keys", "found in the swap area" },
	{ "hits_pending", AT(hits_pending), "keys",
	  "found while being read back" },
	{ "misses", AT(misses), "keys", "not found" },
	{ "evicted", AT(evicted), "blocks", "that gave up their frame" },
	{ "purged", AT(purged), "blocks", "lost for want of room" },
	{ "slots_evicted", AT(slots_evicted), "blocks",
	  "swapped out, then lost for want of room" },
	{ "expired", AT(expired), "blocks", "whose time ran out" },
	{ "dropped", AT(dropped), "blocks", "dropped by clients or a reset" },
	{ "swap_outs", AT(swap_outs), "blocks", "written out" },
	{ "swap_ins", AT(swap_ins), "blocks", "read back" },
	{ "swap_out_bytes", AT(swap_out_bytes), "bytes", "written out" },
	{ "swap_in_bytes", AT(swap_in_bytes), "bytes", "read back" },
	{ "write_errors", AT(write_errors), "writes", "that failed" },
	{ "read_errors", AT(read_errors), "reads", "that failed" },
	{ "checksum_errors", AT(checksum_errors), "reads",
	  "with a wrong checksum" },
	{ "io_timeouts", AT(io_timeouts), "blocks",
	  "whose I/O did not end in time" },
	{ "requests", AT(requests), "requests", "finished" },
	{ "output_tokens", AT(output_tokens), "tokens", "generated" },
	{ "clients_dead", AT(clients_dead), "clients",
	  "that died holding blocks" },
	{ "chunks_leased", AT(chunks_leased), "chunks",
	  "registered with devices" },
	{ "chunks_wanted", AT(chunks_wanted), "chunks",
	  "of those, asked back" },
	{ "given_back", AT(given_back), "frames",
	  "given back to the system" },
	{ "taken_again", AT(taken_again), "frames",
	  "of those, taken again" },
	{ "shrinks", AT(shrinks), "times", "memory was given back" },
	{ "clean_outs", AT(clean_outs), "blocks",
	  "written out in the background" },
	{ "events", AT(events), "events", "queued for clients" },
	{ "events_lost", AT(events_lost), "events",
	  "that a client had no room for" },
	{ "exports", AT(exports), "dma-bufs", "that hold frames" },
};

static uint64_t value(const struct kvmm_pool_stat *st, const struct counter *c)
{
	return *(const __u64 *)((const char *)st + c->offset);
}

json_t *counters_json(const struct kvmm_pool_stat *st)
{
	json_t *obj = json_pack("{s:I, s:I, s:I, s:I, s:I, s:b, s:b}",
				"epoch", (json_int_t)st->epoch,
				"block_size", (json_int_t)st->block_size,
				"frames", (json_int_t)st->nr_frames,
				"slots", (json_int_t)st->nr_slots,
				"clients", (json_int_t)st->nr_clients,
				"degraded", (int)st->degraded,
				"checksums", (int)st->checksums);

	for (size_t i = 0; obj && i < ARRAY_SIZE(table); i++) {
		if (json_object_set_new(obj, table[i].name,
					json_integer((json_int_t)
						     value(st, &table[i])))) {
			json_decref(obj);
			obj = NULL;
		}
	}
	return obj;
}

void counters_text(const struct kvmm_pool_stat *st)
{
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT];

	printf("%-20s %12s frames and %s slots of %s\n", "size",
	       count_text(st->nr_frames, a), count_text(st->nr_slots, b),
	       size_text(st->block_size, c));
	printf("%-20s %12s clients\n", "clients",
	       count_text(st->nr_clients, a));
	printf("%-20s %12s resets\n", "epoch", count_text(st->epoch, a));
	printf("%-20s %12s\n", "swap area",
	       !st->nr_slots ? "none" : st->degraded ? "failed" : "in use");
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const struct counter *t = &table[i];
		bool bytes = t->unit[0] == 'b' && t->unit[1] == 'y';

		if (bytes)
			printf("%-20s %12s %s\n", t->name,
			       size_text(value(st, t), a), t->text);
		else
			printf("%-20s %12s %s %s\n", t->name,
			       count_text(value(st, t), a), t->unit, t->text);
	}
}

uint64_t frames_used(const struct kvmm_pool_stat *st)
{
	return st->frames_online - st->frames_free - st->frames_quarantined;
}

uint64_t slots_used(const struct kvmm_pool_stat *st)
{
	return st->nr_slots - st->slots_free;
}
