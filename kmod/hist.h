/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How many values of each size there were: a pool's histograms.
 */
#ifndef KVMM_HIST_H
#define KVMM_HIST_H

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/types.h>

/* What is counted by size, for each pool. */
enum kvmm_hist_id {
	KVMM_HIST_LATENCY_OUT,	/* us, of each block written */
	KVMM_HIST_LATENCY_IN,	/* us, of each block read back */
	KVMM_HIST_BYTES_OUT,	/* bytes, of each swap command that wrote */
	KVMM_HIST_BYTES_IN,	/* bytes, of each swap command that read */
	KVMM_HIST_ALLOC_WAIT,	/* us, of each alloc: without a frame */
	KVMM_NR_HISTS,
};

#define KVMM_HIST_BUCKETS	48

/**
 * struct kvmm_hist - how many values of each size there were
 * @bucket: 0: zeros; N: at least 2^(N-1), less than 2^N; the last: and more
 */
struct kvmm_hist {
	atomic64_t bucket[KVMM_HIST_BUCKETS];
};

static inline void kvmm_hist_add(struct kvmm_hist *h, u64 value)
{
	atomic64_inc(&h->bucket[min(fls64(value), KVMM_HIST_BUCKETS - 1)]);
}

/* Since @ns of ktime_get_ns(). */
static inline u64 kvmm_us_since(u64 ns)
{
	return div_u64(ktime_get_ns() - ns, NSEC_PER_USEC);
}

#endif /* KVMM_HIST_H */
