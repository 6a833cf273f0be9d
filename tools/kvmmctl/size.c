// SPDX-License-Identifier: MIT
/*
 * Reading and writing sizes, counts and rates; no state, no output.
 */
#include "size.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *digits(const char **text, uint64_t *value)
{
	const char *p = *text;
	uint64_t v = 0;

	if (*p == '-')
		return "is negative";
	if (!isdigit((unsigned char)*p))
		return "does not start with a digit";
	for (; isdigit((unsigned char)*p); p++) {
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return "is too large";
	}
	*text = p;
	*value = v;
	return NULL;
}

const char *count_parse(const char *text, uint64_t *value)
{
	const char *why;

	if (!*text)
		return "is empty";
	why = digits(&text, value);
	if (why)
		return why;
	return *text ? "is not a whole number" : NULL;
}

const char *size_parse(const char *text, uint64_t *bytes)
{
	static const char letters[] = "kmgt";
	const char *letter, *why;
	uint64_t v, base = 1024, unit = 1;

	if (!*text)
		return "is empty";
	why = digits(&text, &v);
	if (why)
		return why;
	if (*text == '.')
		return "has a fraction: use a smaller unit";
	if (*text == ' ' && text[1])
		text++;
	letter = *text ? strchr(letters, tolower((unsigned char)*text)) : NULL;
	if (letter) {
		text++;
		if (!strcasecmp(text, "b"))
			base = 1000;
		else if (*text && strcasecmp(text, "ib"))
			letter = NULL;
	}
	if (letter) {
		for (const char *l = letters; l <= letter; l++)
			unit *= base;
	} else if (*text && strcasecmp(text, "b")) {
		return "has an unknown unit: use K, M, G, T (powers of 1024), "
		       "KiB, MiB, GiB, TiB (the same) or KB, MB, GB, TB "
		       "(powers of 1000)";
	}
	if (__builtin_mul_overflow(v, unit, bytes))
		return "is too large";
	return NULL;
}

const char *size_text(uint64_t bytes, char buf[SIZE_TEXT])
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB",
					     "PiB", "EiB" };
	unsigned int i = 0;
	double v = (double)bytes / 1024;

	if (bytes < 1024) {
		snprintf(buf, SIZE_TEXT, "%" PRIu64 " byte%s", bytes,
			 bytes == 1 ? "" : "s");
		return buf;
	}
	while (v >= 1024 && i < 5) {
		v /= 1024;
		i++;
	}
	if (v == (double)(uint64_t)v)
		snprintf(buf, SIZE_TEXT, "%.0f %s", v, units[i]);
	else
		snprintf(buf, SIZE_TEXT, v < 100 ? "%.2f %s" : "%.0f %s", v,
			 units[i]);
	return buf;
}

const char *count_text(uint64_t n, char buf[SIZE_TEXT])
{
	char plain[24], *out = buf;
	int len = snprintf(plain, sizeof(plain), "%" PRIu64, n);

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			*out++ = ',';
		*out++ = plain[i];
	}
	*out = 0;
	return buf;
}

const char *rate_text(uint64_t bytes, double seconds, char buf[SIZE_TEXT])
{
	if (seconds <= 0) {
		strcpy(buf, "-");
		return buf;
	}
	count_text((uint64_t)((double)bytes / 1e6 / seconds + 0.5), buf);
	strcat(buf, " MB/s");
	return buf;
}

const char *percent_text(uint64_t part, uint64_t whole, char buf[SIZE_TEXT])
{
	if (!whole)
		strcpy(buf, "-");
	else
		snprintf(buf, SIZE_TEXT, "%.2f %%",
			 100.0 * (double)part / (double)whole);
	return buf;
}
