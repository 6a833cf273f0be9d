// SPDX-License-Identifier: MIT
/*
 * Reading the histograms of a pool, and what they say in few numbers.
 */
#include "hist.h"

#include "kvmmctl.h"
#include "size.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYSFS	"/sys/kernel/kvmm/pools"

/**
 * struct hist_file - one of them
 * @file: in sysfs, and in text
 * @json: in JSON
 * @bytes: values are sizes, else microseconds
 * @text: of what they are
 */
static const struct hist_file {
	const char *file;
	const char *json;
	bool bytes;
	const char *text;
} files[] = {
	{ "latency_out", "latency_out_us", false, "blocks written out" },
	{ "latency_in", "latency_in_us", false, "blocks read back" },
	{ "bytes_out", "bytes_out", true, "commands that wrote" },
	{ "bytes_in", "bytes_in", true, "commands that read" },
	{ "alloc_wait", "alloc_wait_us", false, "allocations" },
};

bool hist_parse(const char *line, struct hist *h)
{
	char *end;

	for (int i = 0; i < HIST_BUCKETS; i++) {
		if (!isdigit((unsigned char)*line))
			return false;
		h->bucket[i] = strtoull(line, &end, 10);
		line = end + (*end == ' ');
	}
	return !*line || !strcmp(line, "\n");
}

uint64_t hist_count(const struct hist *h)
{
	uint64_t n = 0;

	for (int i = 0; i < HIST_BUCKETS; i++)
		n += h->bucket[i];
	return n;
}

uint64_t hist_percentile(const struct hist *h, unsigned int percent)
{
	uint64_t n = hist_count(h), seen = 0;
	/* rounded up, without overflow: the value of that rank */
	uint64_t rank = n / 100 * percent + (n % 100 * percent + 99) / 100;
	int i;

	if (!n)
		return 0;
	for (i = 0; i < HIST_BUCKETS - 1; i++) {
		seen += h->bucket[i];
		if (seen >= rank)
			break;
	}
	return ((uint64_t)1 << i) - 1;
}

static bool hist_read(const char *name, const char *file, struct hist *h)
{
	char path[256], line[2048];
	bool good;
	FILE *f;

	snprintf(path, sizeof(path), SYSFS "/%s/%s", name, file);
	f = fopen(path, "r");
	if (!f)
		return false;
	good = fgets(line, sizeof(line), f) && hist_parse(line, h);
	fclose(f);
	return good;
}

int hists_json(json_t *obj, const char *name)
{
	struct hist h;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		json_t *one;

		if (!hist_read(name, files[i].file, &h))
			continue;
		one = json_pack("{s:I, s:I, s:I, s:I}",
				"count", (json_int_t)hist_count(&h),
				"p50", (json_int_t)hist_percentile(&h, 50),
				"p90", (json_int_t)hist_percentile(&h, 90),
				"p99", (json_int_t)hist_percentile(&h, 99));
		if (json_object_set_new(obj, files[i].json, one))
			return -1;
	}
	return 0;
}

/* The bounds are one less than a power of two, so bytes go by that. */
static const char *value_text(const struct hist_file *f, uint64_t value,
			      char buf[SIZE_TEXT])
{
	char number[SIZE_TEXT];

	if (f->bytes)
		return size_text(value ? value + 1 : 0, buf);
	snprintf(buf, SIZE_TEXT, "%s us", count_text(value, number));
	return buf;
}

void hists_text(const char *name)
{
	char n[SIZE_TEXT], a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT];
	struct hist h;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		const struct hist_file *f = &files[i];

		if (!hist_read(name, f->file, &h))
			continue;
		printf("%-20s %12s %s", f->file,
		       count_text(hist_count(&h), n), f->text);
		if (hist_count(&h))
			printf(": p50 %s %s, p90 %s, p99 %s",
			       f->bytes ? "below" : "at most",
			       value_text(f, hist_percentile(&h, 50), a),
			       value_text(f, hist_percentile(&h, 90), b),
			       value_text(f, hist_percentile(&h, 99), c));
		printf("\n");
	}
}
