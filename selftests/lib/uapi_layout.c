// SPDX-License-Identifier: MIT
/*
 * Compile-time test: the interface has this layout, for 64-bit and for 32-bit
 * programs alike.  Built with -m64 and -m32; there is nothing to run.
 *
 * The numbers are the binding ones: a change of the header that breaks this
 * file breaks every program that was compiled before.
 */
#include <linux/kvmm.h>
#include <stddef.h>

#define SIZE(s, n) \
	_Static_assert(sizeof(struct s) == (n), "size of " #s)
#define AT(s, f, n) \
	_Static_assert(offsetof(struct s, f) == (n), #s "." #f)
#define NUMBER(name, n) \
	_Static_assert((name) == (n), #name)

SIZE(kvmm_block_ref, 16);
AT(kvmm_block_ref, handle, 0);
AT(kvmm_block_ref, frame, 8);
AT(kvmm_block_ref, result, 12);

SIZE(kvmm_batch, 24);
AT(kvmm_batch, size, 0);
AT(kvmm_batch, flags, 4);
AT(kvmm_batch, refs, 8);
AT(kvmm_batch, count, 16);
AT(kvmm_batch, done, 20);

SIZE(kvmm_info, 80);
AT(kvmm_info, size, 0);
AT(kvmm_info, flags, 4);
AT(kvmm_info, abi, 8);
AT(kvmm_info, nr_pools, 12);
AT(kvmm_info, features, 16);
AT(kvmm_info, policies, 24);
AT(kvmm_info, max_block_size, 32);
AT(kvmm_info, max_batch, 36);
AT(kvmm_info, pinned_bytes, 40);
AT(kvmm_info, version, 48);

SIZE(kvmm_pool_create, 136);
AT(kvmm_pool_create, size, 0);
AT(kvmm_pool_create, flags, 4);
AT(kvmm_pool_create, name, 8);
AT(kvmm_pool_create, mode, 72);
AT(kvmm_pool_create, policy, 76);
AT(kvmm_pool_create, block_size, 80);
AT(kvmm_pool_create, nr_frames, 84);
AT(kvmm_pool_create, nr_slots, 88);
AT(kvmm_pool_create, nr_holds, 92);
AT(kvmm_pool_create, quarantine_ms, 96);
AT(kvmm_pool_create, __reserved, 100);
AT(kvmm_pool_create, arena_size, 104);
AT(kvmm_pool_create, nodes, 112);
AT(kvmm_pool_create, nr_elastic, 120);
AT(kvmm_pool_create, chunk_frames, 124);
AT(kvmm_pool_create, clean_low, 128);
AT(kvmm_pool_create, clean_high, 130);
AT(kvmm_pool_create, __reserved2, 132);

SIZE(kvmm_pool_open, 104);
AT(kvmm_pool_open, size, 0);
AT(kvmm_pool_open, flags, 4);
AT(kvmm_pool_open, name, 8);
AT(kvmm_pool_open, block_size, 72);
AT(kvmm_pool_open, nr_frames, 76);
AT(kvmm_pool_open, nr_slots, 80);
AT(kvmm_pool_open, policy, 84);
AT(kvmm_pool_open, arena_size, 88);
AT(kvmm_pool_open, nr_elastic, 96);
AT(kvmm_pool_open, chunk_frames, 100);

SIZE(kvmm_pool_destroy, 72);
AT(kvmm_pool_destroy, size, 0);
AT(kvmm_pool_destroy, flags, 4);
AT(kvmm_pool_destroy, name, 8);

SIZE(kvmm_pool_entry, 96);
AT(kvmm_pool_entry, name, 0);
AT(kvmm_pool_entry, mode, 64);
AT(kvmm_pool_entry, uid, 68);
AT(kvmm_pool_entry, gid, 72);
AT(kvmm_pool_entry, block_size, 76);
AT(kvmm_pool_entry, nr_frames, 80);
AT(kvmm_pool_entry, nr_slots, 84);
AT(kvmm_pool_entry, policy, 88);
AT(kvmm_pool_entry, nr_clients, 92);

SIZE(kvmm_pool_list, 32);
AT(kvmm_pool_list, size, 0);
AT(kvmm_pool_list, flags, 4);
AT(kvmm_pool_list, cursor, 8);
AT(kvmm_pool_list, entries, 16);
AT(kvmm_pool_list, count, 24);
AT(kvmm_pool_list, done, 28);

SIZE(kvmm_pool_reset, 16);
AT(kvmm_pool_reset, size, 0);
AT(kvmm_pool_reset, flags, 4);
AT(kvmm_pool_reset, epoch, 8);

SIZE(kvmm_pool_clock, 16);
AT(kvmm_pool_clock, size, 0);
AT(kvmm_pool_clock, flags, 4);
AT(kvmm_pool_clock, now_ms, 8);

SIZE(kvmm_pool_stat, 448);
AT(kvmm_pool_stat, size, 0);
AT(kvmm_pool_stat, flags, 4);
AT(kvmm_pool_stat, epoch, 8);
AT(kvmm_pool_stat, block_size, 16);
AT(kvmm_pool_stat, nr_frames, 20);
AT(kvmm_pool_stat, nr_slots, 24);
AT(kvmm_pool_stat, nr_clients, 28);
AT(kvmm_pool_stat, degraded, 32);
AT(kvmm_pool_stat, checksums, 36);
AT(kvmm_pool_stat, frames_online, 40);
AT(kvmm_pool_stat, frames_free, 48);
AT(kvmm_pool_stat, frames_quarantined, 56);
AT(kvmm_pool_stat, slots_free, 64);
AT(kvmm_pool_stat, blocks, 72);
AT(kvmm_pool_stat, blocks_pinned, 128);
AT(kvmm_pool_stat, pins, 136);
AT(kvmm_pool_stat, allocs, 144);
AT(kvmm_pool_stat, alloc_fails, 152);
AT(kvmm_pool_stat, publishes, 160);
AT(kvmm_pool_stat, publish_dups, 168);
AT(kvmm_pool_stat, lookups, 176);
AT(kvmm_pool_stat, hits_memory, 184);
AT(kvmm_pool_stat, hits_swap, 192);
AT(kvmm_pool_stat, hits_pending, 200);
AT(kvmm_pool_stat, misses, 208);
AT(kvmm_pool_stat, evicted, 216);
AT(kvmm_pool_stat, purged, 224);
AT(kvmm_pool_stat, slots_evicted, 232);
AT(kvmm_pool_stat, expired, 240);
AT(kvmm_pool_stat, dropped, 248);
AT(kvmm_pool_stat, swap_outs, 256);
AT(kvmm_pool_stat, swap_ins, 264);
AT(kvmm_pool_stat, swap_out_bytes, 272);
AT(kvmm_pool_stat, swap_in_bytes, 280);
AT(kvmm_pool_stat, write_errors, 288);
AT(kvmm_pool_stat, read_errors, 296);
AT(kvmm_pool_stat, checksum_errors, 304);
AT(kvmm_pool_stat, requests, 312);
AT(kvmm_pool_stat, output_tokens, 320);
AT(kvmm_pool_stat, clients_dead, 328);
AT(kvmm_pool_stat, nr_elastic, 336);
AT(kvmm_pool_stat, chunk_frames, 340);
AT(kvmm_pool_stat, frames_poisoned, 344);
AT(kvmm_pool_stat, frames_misplaced, 352);
AT(kvmm_pool_stat, frames_populating, 360);
AT(kvmm_pool_stat, chunks_leased, 368);
AT(kvmm_pool_stat, chunks_wanted, 376);
AT(kvmm_pool_stat, given_back, 384);
AT(kvmm_pool_stat, taken_again, 392);
AT(kvmm_pool_stat, shrinks, 400);
AT(kvmm_pool_stat, clean_outs, 408);
AT(kvmm_pool_stat, io_timeouts, 416);
AT(kvmm_pool_stat, events, 424);
AT(kvmm_pool_stat, events_lost, 432);
AT(kvmm_pool_stat, exports, 440);

SIZE(kvmm_populate, 24);
AT(kvmm_populate, size, 0);
AT(kvmm_populate, flags, 4);
AT(kvmm_populate, first, 8);
AT(kvmm_populate, count, 12);
AT(kvmm_populate, done, 16);
AT(kvmm_populate, workers, 20);

SIZE(kvmm_swap_attach, 32);
AT(kvmm_swap_attach, size, 0);
AT(kvmm_swap_attach, flags, 4);
AT(kvmm_swap_attach, fd, 8);
AT(kvmm_swap_attach, nr_slots, 12);
AT(kvmm_swap_attach, offset, 16);
AT(kvmm_swap_attach, timeout_ms, 24);
AT(kvmm_swap_attach, __reserved, 28);

SIZE(kvmm_swap_detach, 8);
AT(kvmm_swap_detach, size, 0);
AT(kvmm_swap_detach, flags, 4);

SIZE(kvmm_alloc, 32);
AT(kvmm_alloc, size, 0);
AT(kvmm_alloc, flags, 4);
AT(kvmm_alloc, refs, 8);
AT(kvmm_alloc, count, 16);
AT(kvmm_alloc, nr_parts, 20);
AT(kvmm_alloc, timeout_ms, 24);
AT(kvmm_alloc, done, 28);

SIZE(kvmm_publish_entry, 80);
AT(kvmm_publish_entry, key, 0);
AT(kvmm_publish_entry, handle, 32);
AT(kvmm_publish_entry, existing, 40);
AT(kvmm_publish_entry, parent, 48);
AT(kvmm_publish_entry, position, 56);
AT(kvmm_publish_entry, length, 60);
AT(kvmm_publish_entry, expiry_ms, 64);
AT(kvmm_publish_entry, cost_us, 68);
AT(kvmm_publish_entry, part, 72);
AT(kvmm_publish_entry, priority, 74);
AT(kvmm_publish_entry, flags, 75);
AT(kvmm_publish_entry, result, 76);

SIZE(kvmm_publish, 24);
AT(kvmm_publish, size, 0);
AT(kvmm_publish, flags, 4);
AT(kvmm_publish, entries, 8);
AT(kvmm_publish, count, 16);
AT(kvmm_publish, done, 20);

SIZE(kvmm_lookup, 32);
AT(kvmm_lookup, size, 0);
AT(kvmm_lookup, flags, 4);
AT(kvmm_lookup, keys, 8);
AT(kvmm_lookup, refs, 16);
AT(kvmm_lookup, count, 24);
AT(kvmm_lookup, prefix, 28);

SIZE(kvmm_key_entry, 88);
AT(kvmm_key_entry, key, 0);
AT(kvmm_key_entry, handle, 32);
AT(kvmm_key_entry, parent, 40);
AT(kvmm_key_entry, position, 48);
AT(kvmm_key_entry, length, 52);
AT(kvmm_key_entry, expiry_ms, 56);
AT(kvmm_key_entry, cost_us, 60);
AT(kvmm_key_entry, frame, 64);
AT(kvmm_key_entry, slot, 68);
AT(kvmm_key_entry, pins, 72);
AT(kvmm_key_entry, uses, 76);
AT(kvmm_key_entry, state, 80);
AT(kvmm_key_entry, priority, 81);
AT(kvmm_key_entry, flags, 82);
AT(kvmm_key_entry, __reserved, 83);

SIZE(kvmm_keys, 32);
AT(kvmm_keys, size, 0);
AT(kvmm_keys, flags, 4);
AT(kvmm_keys, cursor, 8);
AT(kvmm_keys, entries, 16);
AT(kvmm_keys, count, 24);
AT(kvmm_keys, done, 28);

SIZE(kvmm_request_end, 24);
AT(kvmm_request_end, size, 0);
AT(kvmm_request_end, flags, 4);
AT(kvmm_request_end, handle, 8);
AT(kvmm_request_end, output_tokens, 16);
AT(kvmm_request_end, done, 20);

SIZE(kvmm_hint, 32);
AT(kvmm_hint, size, 0);
AT(kvmm_hint, flags, 4);
AT(kvmm_hint, handle, 8);
AT(kvmm_hint, permille, 16);
AT(kvmm_hint, delay_ms, 20);
AT(kvmm_hint, done, 24);
AT(kvmm_hint, __reserved, 28);

SIZE(kvmm_reclaim, 24);
AT(kvmm_reclaim, size, 0);
AT(kvmm_reclaim, flags, 4);
AT(kvmm_reclaim, keep, 8);
AT(kvmm_reclaim, in_use, 12);
AT(kvmm_reclaim, evicted, 16);
AT(kvmm_reclaim, purged, 20);

SIZE(kvmm_swap_cmd, 16);
AT(kvmm_swap_cmd, addr, 0);
AT(kvmm_swap_cmd, count, 8);
AT(kvmm_swap_cmd, flags, 12);

SIZE(kvmm_swap, 32);
AT(kvmm_swap, size, 0);
AT(kvmm_swap, flags, 4);
AT(kvmm_swap, cmd, 8);
AT(kvmm_swap, done, 24);
AT(kvmm_swap, result, 28);

SIZE(kvmm_lease, 24);
AT(kvmm_lease, size, 0);
AT(kvmm_lease, flags, 4);
AT(kvmm_lease, first, 8);
AT(kvmm_lease, count, 12);
AT(kvmm_lease, done, 16);
AT(kvmm_lease, __reserved, 20);

SIZE(kvmm_event, 64);
AT(kvmm_event, type, 0);
AT(kvmm_event, flags, 4);
AT(kvmm_event, time_ms, 8);
AT(kvmm_event, handle, 16);
AT(kvmm_event, value, 24);
AT(kvmm_event, key, 32);

SIZE(kvmm_events, 24);
AT(kvmm_events, size, 0);
AT(kvmm_events, flags, 4);
AT(kvmm_events, mask, 8);
AT(kvmm_events, count, 16);
AT(kvmm_events, __reserved, 20);

SIZE(kvmm_export, 24);
AT(kvmm_export, size, 0);
AT(kvmm_export, flags, 4);
AT(kvmm_export, first, 8);
AT(kvmm_export, count, 12);
AT(kvmm_export, fd, 16);
AT(kvmm_export, __reserved, 20);

NUMBER(KVMM_ABI, 0x1);
NUMBER(KVMM_NAME_LEN, 0x40);
NUMBER(KVMM_KEY_LEN, 0x20);
NUMBER(KVMM_MIN_BLOCK_SIZE, 0x1000);
NUMBER(KVMM_MAX_BLOCK_SIZE, 0x10000000);
NUMBER(KVMM_MAX_BLOCKS, 0x10000000);
NUMBER(KVMM_MAX_BATCH, 0x1000);
NUMBER(KVMM_MAX_PARTS, 0x40);
NUMBER(KVMM_MAX_CLIENTS, 0x400);
NUMBER(KVMM_MAX_POOLS, 0x100);
NUMBER(KVMM_MAX_WAIT_MS, 0xea60);
NUMBER(KVMM_MAX_QUARANTINE_MS, 0x927c0);
NUMBER(KVMM_MAX_IO_TIMEOUT_MS, 0x927c0);
NUMBER(KVMM_MAX_EVENTS, 0x1000);
NUMBER(KVMM_MAX_LISTENERS, 64);
NUMBER(KVMM_MAX_WORKERS, 0x40);
NUMBER(KVMM_MAX_EXPORTS, 0x400);
NUMBER(KVMM_NO_FRAME, 0xffffffff);
NUMBER(KVMM_NO_SLOT, 0xffffffff);
NUMBER(KVMM_FEATURE_URING, 0x1);
NUMBER(KVMM_FEATURE_CHECKSUM, 0x2);
NUMBER(KVMM_FEATURE_ELASTIC, 0x4);
NUMBER(KVMM_FEATURE_EVENTS, 0x8);
NUMBER(KVMM_FEATURE_EXPORT, 0x10);
NUMBER(KVMM_FEATURE_WRITEBACK, 0x20);
NUMBER(KVMM_FEATURE_NUMA, 0x40);
NUMBER(KVMM_FEATURE_DEADLINE, 0x80);
NUMBER(KVMM_FEATURE_WORKERS, 0x100);
NUMBER(KVMM_POOL_MANUAL_CLOCK, 0x1);
NUMBER(KVMM_POOL_NODES_PREFER, 0x2);
NUMBER(KVMM_POOL_RDONLY, 0x1);
NUMBER(KVMM_POOL_FORCE, 0x1);
NUMBER(KVMM_POPULATE_ASYNC, 0x1);
NUMBER(KVMM_POPULATE_CANCEL, 0x2);
NUMBER(KVMM_SWAP_NO_CHECKSUM, 0x1);
NUMBER(KVMM_SWAP_DISCARD, 0x1);
NUMBER(KVMM_ALLOC_WAIT, 0x1);
NUMBER(KVMM_BLOCK_PARTIAL, 0x1);
NUMBER(KVMM_BLOCK_RECOMPUTABLE, 0x2);
NUMBER(KVMM_PUBLISH_KEEP, 0x1);
NUMBER(KVMM_LOOKUP_PIN, 0x1);
NUMBER(KVMM_LOOKUP_PREFIX, 0x2);
NUMBER(KVMM_LOOKUP_PEEK, 0x4);
NUMBER(KVMM_LEASE_END, 0x1);
NUMBER(KVMM_EXPORT_RDONLY, 0x1);
NUMBER(KVMM_SWAP_ONE, 0x1);
NUMBER(KVMM_SWAP_DROP, 0x2);
NUMBER(KVMM_SWAP_PIN, 0x4);
NUMBER(KVMM_IOCTL_TYPE, 0xbd);
NUMBER(KVMM_INFO, 0xbd00);
NUMBER(KVMM_POOL_CREATE, 0xbd01);
NUMBER(KVMM_POOL_OPEN, 0xbd02);
NUMBER(KVMM_POOL_DESTROY, 0xbd03);
NUMBER(KVMM_POOL_LIST, 0xbd04);
NUMBER(KVMM_POOL_RESET, 0xbd05);
NUMBER(KVMM_POOL_STAT, 0xbd06);
NUMBER(KVMM_POOL_CLOCK, 0xbd07);
NUMBER(KVMM_POPULATE, 0xbd08);
NUMBER(KVMM_SWAP_ATTACH, 0xbd09);
NUMBER(KVMM_SWAP_DETACH, 0xbd0a);
NUMBER(KVMM_ALLOC, 0xbd10);
NUMBER(KVMM_PUBLISH, 0xbd11);
NUMBER(KVMM_LOOKUP, 0xbd12);
NUMBER(KVMM_TOUCH, 0xbd13);
NUMBER(KVMM_PIN, 0xbd14);
NUMBER(KVMM_UNPIN, 0xbd15);
NUMBER(KVMM_DROP, 0xbd16);
NUMBER(KVMM_QUERY, 0xbd17);
NUMBER(KVMM_KEYS, 0xbd18);
NUMBER(KVMM_REQUEST_END, 0xbd19);
NUMBER(KVMM_HINT, 0xbd1a);
NUMBER(KVMM_RECLAIM, 0xbd1b);
NUMBER(KVMM_SWAP_OUT, 0xbd1c);
NUMBER(KVMM_SWAP_IN, 0xbd1d);
NUMBER(KVMM_LEASE, 0xbd1e);
NUMBER(KVMM_EVENTS, 0xbd1f);
NUMBER(KVMM_EXPORT, 0xbd20);
NUMBER(KVMM_URING_SWAP_OUT, 0x1);
NUMBER(KVMM_URING_SWAP_IN, 0x2);
NUMBER(KVMM_FREE, 0x0);
NUMBER(KVMM_FILLING, 0x1);
NUMBER(KVMM_RESIDENT, 0x2);
NUMBER(KVMM_WRITING, 0x3);
NUMBER(KVMM_CLEAN, 0x4);
NUMBER(KVMM_SWAPPED, 0x5);
NUMBER(KVMM_READING, 0x6);
NUMBER(KVMM_NR_STATES, 0x7);
NUMBER(KVMM_POLICY_LRU, 0x0);
NUMBER(KVMM_EVENT_LOST, 0x0);
NUMBER(KVMM_EVENT_PRESSURE, 0x1);
NUMBER(KVMM_EVENT_CHUNK_WANTED, 0x2);
NUMBER(KVMM_EVENT_EVICTED, 0x3);
NUMBER(KVMM_EVENT_PURGED, 0x4);
NUMBER(KVMM_EVENT_DEGRADED, 0x5);
NUMBER(KVMM_EVENT_POPULATED, 0x6);
NUMBER(KVMM_EVENT_GIVEN_BACK, 0x7);
NUMBER(KVMM_NR_EVENTS, 0x8);
NUMBER(KVMM_MISS, 0x0);
NUMBER(KVMM_MEMORY, 0x1);
NUMBER(KVMM_SWAP, 0x2);
NUMBER(KVMM_PENDING, 0x3);
