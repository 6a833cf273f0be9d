// SPDX-License-Identifier: MIT
/*
 * Parts of kvmmctl that need no pool: sizes, block bytes, keys, histograms, the
 * demo's workload.
 */
#include "../../tools/kvmmctl/content.h"
#include "../../tools/kvmmctl/hist.h"
#include "../../tools/kvmmctl/key.h"
#include "../../tools/kvmmctl/kvmmctl.h"
#include "../../tools/kvmmctl/size.h"
#include "../../tools/kvmmctl/workload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* cmocka's macro of that name would hide ours */
#include <cmocka.h>
#undef fail

/* What trace.c takes from main.c. */
int fail(const char *fmt, ...)
{
	(void)fmt;
	return EXIT_ERROR;
}

int signal_seen(void)
{
	return 0;
}

static void sizes_are_read(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{ "0", 0 }, { "1", 1 }, { "7B", 7 }, { "7b", 7 },
		{ "1K", 1024 }, { "1k", 1024 }, { "1KiB", 1024 },
		{ "1kib", 1024 }, { "1KB", 1000 }, { "1kb", 1000 },
		{ "3M", 3 << 20 }, { "3MiB", 3 << 20 }, { "3MB", 3000000 },
		{ "2G", 2ULL << 30 }, { "2GiB", 2ULL << 30 },
		{ "2GB", 2000000000 }, { "5T", 5ULL << 40 },
		{ "5TiB", 5ULL << 40 }, { "5TB", 5000000000000 },
		{ "64 K", 65536 }, { "64 MiB", 64 << 20 },
		{ "18446744073709551615", UINT64_MAX },
		{ "16777215T", 16777215ULL << 40 },
	};
	uint64_t v;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_null(size_parse(good[i].text, &v));
		assert_int_equal(v, good[i].bytes);
	}
}

static void bad_sizes_are_refused(void **state)
{
	static const char *const bad[] = {
		"", " ", "K", "-1", "+1", "1.5G", "1e3", "0x10", "1KK", "1KBs",
		"1Ki", "1P", "1 ", "1  K", " 1", "1K ", "16777216T",
		"18446744073709551616", "1,000", "ten",
	};
	uint64_t v;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_non_null(size_parse(bad[i], &v));
	assert_null(count_parse("12", &v));
	assert_int_equal(v, 12);
	assert_non_null(count_parse("12K", &v));
	assert_non_null(count_parse("", &v));
	assert_non_null(count_parse("-3", &v));
}

static void sizes_are_written(void **state)
{
	char buf[SIZE_TEXT];

	(void)state;
	assert_string_equal(size_text(0, buf), "0 bytes");
	assert_string_equal(size_text(1, buf), "1 byte");
	assert_string_equal(size_text(1023, buf), "1023 bytes");
	assert_string_equal(size_text(65536, buf), "64 KiB");
	assert_string_equal(size_text(1536 << 10, buf), "1.50 MiB");
	assert_string_equal(size_text(1ULL << 40, buf), "1 TiB");
	assert_string_equal(size_text(UINT64_MAX, buf), "16 EiB");
	assert_string_equal(count_text(0, buf), "0");
	assert_string_equal(count_text(999, buf), "999");
	assert_string_equal(count_text(1000, buf), "1,000");
	assert_string_equal(count_text(UINT64_MAX, buf),
			    "18,446,744,073,709,551,615");
	assert_string_equal(rate_text(5000000, 2, buf), "3 MB/s");
	assert_string_equal(rate_text(5000000, 0, buf), "-");
	assert_string_equal(percent_text(1, 8, buf), "12.50 %");
	assert_string_equal(percent_text(0, 0, buf), "-");
}

#define BYTES	4096
#define WORDS	(BYTES / 8)

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void every_word_is_different(void **state)
{
	static const uint64_t ids[] = { 0, 1, 2, 3, 1000, 1ULL << 32,
					INT64_MAX };
	static uint64_t all[7 * WORDS];

	(void)state;
	for (int i = 0; i < 7; i++)
		content_fill(all + i * WORDS, BYTES, ids[i]);
	qsort(all, 7 * WORDS, sizeof(all[0]), by_value);
	for (int i = 1; i < 7 * WORDS; i++)
		assert_true(all[i] != all[i - 1]);
}

static void any_wrong_bit_is_found(void **state)
{
	struct content_error err;
	uint8_t block[BYTES] __attribute__((aligned(64)));

	(void)state;
	content_fill(block, BYTES, 42);
	assert_true(content_check(block, BYTES, 42, &err));
	assert_false(content_check(block, BYTES, 43, &err));
	assert_int_equal(err.offset, 0);
	for (int bit = 0; bit < BYTES * 8; bit++) {
		uint64_t want, got;

		memcpy(&want, block + bit / 64 * 8, 8);
		block[bit / 8] ^= (uint8_t)(1 << bit % 8);
		memcpy(&got, block + bit / 64 * 8, 8);
		assert_false(content_check(block, BYTES, 42, &err));
		assert_int_equal(err.offset, bit / 64 * 8);
		assert_true(err.expected == want && err.got == got);
		block[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_true(content_check(block, BYTES, 42, &err));
}

/* Computed with another SHA-256: domain, parent's key, id as 8 bytes LE. */
static void keys_are_chained(void **state)
{
	static const uint64_t ids[] = { 0, 5, 5, INT64_MAX };
	static const char *const want[] = {
		"4512c1d0a78ceff7b9b4918385873de2161202c02480d053912badf8b6eb475c",
		"762ec55407049053a69d216260e428c07c07d19f370fddf9fc5689d604b9dad0",
		"199240c77ada9d0c0760539030620221c494578adbd4f7cc64b55056890a9de9",
		"45a2e538492ba48ca16688216fa4bc3c327e1c0457742f3812f8296ccce94314",
	};
	uint8_t keys[4 * KVMM_KEY_LEN];
	struct kvmm_keyer *km;
	char hex[2 * KVMM_KEY_LEN + 1];

	(void)state;
	assert_int_equal(key_maker_new(&km), 0);
	assert_int_equal(key_chain(km, ids, 4, keys), 0);
	for (int k = 0; k < 4; k++) {
		for (int i = 0; i < KVMM_KEY_LEN; i++)
			snprintf(hex + 2 * i, 3, "%02x",
				 keys[k * KVMM_KEY_LEN + i]);
		assert_string_equal(hex, want[k]);
	}
	kvmm_keyer_free(km);
}

/* A line as sysfs has it: 48 numbers of which a few are not 0. */
static const char *hist_line(int zeros, int at, const char *count)
{
	static char line[512];
	size_t n = 0;

	for (int i = 0; i < HIST_BUCKETS; i++)
		n += (size_t)snprintf(line + n, sizeof(line) - n, "%s%s",
				      i ? " " : "", i == at ? count :
				      i < zeros ? "1" : "0");
	snprintf(line + n, sizeof(line) - n, "\n");
	return line;
}

static void histograms_are_read(void **state)
{
	char line[512];
	struct hist h;

	(void)state;
	assert_true(hist_parse(hist_line(0, 47, "18446744073709551615"), &h));
	assert_int_equal(h.bucket[47], UINT64_MAX);
	assert_int_equal(h.bucket[0], 0);
	strcpy(line, hist_line(0, 3, "7"));
	line[strlen(line) - 1] = 0;
	assert_true(hist_parse(line, &h));
	assert_int_equal(h.bucket[3], 7);
	/* one too many, one too few, none, a word */
	strcat(line, " 0\n");
	assert_false(hist_parse(line, &h));
	strcpy(line, hist_line(0, 3, "7"));
	line[strlen(line) - 2] = 0;
	assert_false(hist_parse(line, &h));
	assert_false(hist_parse("", &h));
	assert_false(hist_parse(hist_line(0, 9, "x"), &h));
	assert_false(hist_parse(hist_line(0, 9, "-1"), &h));
}

static void percentiles_are_right(void **state)
{
	struct hist h;

	(void)state;
	assert_true(hist_parse(hist_line(0, 0, "0"), &h));
	assert_int_equal(hist_percentile(&h, 50), 0);
	/* all of one value: zeros; ones; 64 to 127 */
	assert_true(hist_parse(hist_line(0, 0, "9"), &h));
	assert_int_equal(hist_percentile(&h, 99), 0);
	assert_true(hist_parse(hist_line(0, 1, "9"), &h));
	assert_int_equal(hist_percentile(&h, 50), 1);
	assert_true(hist_parse(hist_line(0, 7, "1"), &h));
	assert_int_equal(hist_percentile(&h, 50), 127);
	assert_int_equal(hist_percentile(&h, 99), 127);
	/* 90 of 100, 9, and 1 */
	memset(&h, 0, sizeof(h));
	h.bucket[4] = 90;
	h.bucket[10] = 9;
	h.bucket[20] = 1;
	assert_int_equal(hist_count(&h), 100);
	assert_int_equal(hist_percentile(&h, 50), 15);
	assert_int_equal(hist_percentile(&h, 90), 15);
	assert_int_equal(hist_percentile(&h, 91), 1023);
	assert_int_equal(hist_percentile(&h, 99), 1023);
	assert_int_equal(hist_percentile(&h, 100), (1 << 20) - 1);
	/* of two, the first is the median */
	memset(&h, 0, sizeof(h));
	h.bucket[1] = 1;
	h.bucket[2] = 1;
	assert_int_equal(hist_percentile(&h, 50), 1);
	assert_int_equal(hist_percentile(&h, 51), 3);
	/* numbers that no pool will reach */
	memset(&h, 0, sizeof(h));
	h.bucket[5] = UINT64_MAX / 2;
	h.bucket[47] = UINT64_MAX / 2;
	assert_int_equal(hist_percentile(&h, 50), 31);
	assert_int_equal(hist_percentile(&h, 99), ((uint64_t)1 << 47) - 1);
}

static void workload_is_a_chat_service(void **state)
{
	struct workload w = { .seed = 1, .conversations = 50,
			      .working_set = 500 };
	struct workload again = w;
	struct trace t = { 0 }, u = { 0 };

	(void)state;
	assert_int_equal(workload_make(&w, &t), 0);
	assert_int_equal(workload_make(&again, &u), 0);
	assert_true(t.nr >= 100 && t.nr == w.turns && t.nr == u.nr);
	assert_int_equal(t.nr_ids, u.nr_ids);
	assert_memory_equal(t.ids, u.ids, t.nr_ids * sizeof(*t.ids));
	for (size_t i = 0; i < t.nr; i++) {
		assert_true(t.reqs[i].nr <= t.longest && t.reqs[i].nr > 0);
		assert_true(!i || t.reqs[i].time_ms >= t.reqs[i - 1].time_ms);
	}
	/* much of what is sent was sent before */
	assert_true(w.distinct > 50 && w.distinct < t.nr_ids / 2);
	assert_int_equal(workload_distinct(&t, 1), t.reqs[0].nr);
	trace_free(&t);
	trace_free(&u);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_read),
		cmocka_unit_test(bad_sizes_are_refused),
		cmocka_unit_test(sizes_are_written),
		cmocka_unit_test(every_word_is_different),
		cmocka_unit_test(any_wrong_bit_is_found),
		cmocka_unit_test(keys_are_chained),
		cmocka_unit_test(histograms_are_read),
		cmocka_unit_test(percentiles_are_right),
		cmocka_unit_test(workload_is_a_chat_service),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
