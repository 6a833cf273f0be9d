/* SPDX-License-Identifier: MIT */
/*
 * A pool's counters as text and as JSON, from one table.
 */
#ifndef KVMMCTL_COUNTERS_H
#define KVMMCTL_COUNTERS_H

#include <jansson.h>
#include <kvmm.h>

/** counters_json() - all of them, named as in struct kvmm_pool_stat */
json_t *counters_json(const struct kvmm_pool_stat *st);

/** counters_text() - a row each, on stdout */
void counters_text(const struct kvmm_pool_stat *st);

/** frames_used() - frames that hold a block */
uint64_t frames_used(const struct kvmm_pool_stat *st);

/** slots_used() - slots that hold a block */
uint64_t slots_used(const struct kvmm_pool_stat *st);

#endif /* KVMMCTL_COUNTERS_H */
