// SPDX-License-Identifier: MIT
/*
 * TAP, time and medians.
 */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static unsigned int nr, failed;

double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double median(double *v, unsigned int n)
{
	if (!n)
		return 0;
	qsort(v, n, sizeof(*v), by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

bool tap_ok(bool good, const char *fmt, ...)
{
	va_list ap;

	nr++;
	failed += !good;
	printf("%sok %u - ", good ? "" : "not ", nr);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	return good;
}

void tap_skip(const char *why, const char *fmt, ...)
{
	va_list ap;

	printf("ok %u - ", ++nr);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf(" # SKIP %s\n", why);
	fflush(stdout);
}

void tap_note(const char *fmt, ...)
{
	va_list ap;

	fputs("# ", stdout);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

int tap_done(void)
{
	printf("1..%u\n", nr);
	return failed ? 1 : 0;
}
