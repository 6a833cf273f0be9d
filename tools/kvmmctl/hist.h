/* SPDX-License-Identifier: MIT */
/*
 * A pool's histograms, which the kernel counts by powers of two, as
 * percentiles.
 */
#ifndef KVMMCTL_HIST_H
#define KVMMCTL_HIST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define HIST_BUCKETS	48

/**
 * struct hist - how many values of each size there were
 * @bucket: 0: zeros; N: at least 2^(N-1) and less than 2^N
 */
struct hist {
	uint64_t bucket[HIST_BUCKETS];
};

/** hist_parse() - the line of a file in sysfs; returns: it is one */
bool hist_parse(const char *line, struct hist *h);

/** hist_count() - values counted */
uint64_t hist_count(const struct hist *h);

/**
 * hist_percentile() - what @percent of the values do not exceed
 *
 * The greatest value of the bucket that the percentile is in: the true one is
 * no more than that, and more than half of it.  0 where there are no values.
 */
uint64_t hist_percentile(const struct hist *h, unsigned int percent);

/**
 * hists_json() - add those of pool @name to @obj
 *
 * Nothing is added where sysfs has none.  Return: 0, or -1: out of memory.
 */
int hists_json(json_t *obj, const char *name);

/** hists_text() - a row each, on stdout */
void hists_text(const char *name);

#endif /* KVMMCTL_HIST_H */
