// SPDX-License-Identifier: MIT
/*
 * How results and progress reach the reader.  Results go to stdout, progress
 * to stderr and only where that is a terminal.
 */
#include "output.h"
#include "kvmmctl.h"
#include "size.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH	24

double now_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

int output_json(json_t *value, bool lines)
{
	size_t flags = JSON_REAL_PRECISION(6);
	int rc;

	if (!value)
		return fail("no memory for the output");
	rc = json_dumpf(value, stdout, flags | (lines ? JSON_INDENT(2) : 0));
	putchar('\n');
	json_decref(value);
	return rc ? fail("can't write the output") : 0;
}

json_t *output_text(const char *text)
{
	json_t *value = text ? json_string(text) : NULL;
	char *copy;

	if (value || !text)
		return value;
	copy = strdup(text);
	if (!copy)
		return NULL;
	for (char *p = copy; *p; p++)
		if (*p & 0x80)
			*p = '?';
	value = json_string(copy);
	free(copy);
	return value;
}

void output_row(const char *label, const char *fmt, ...)
{
	va_list ap;

	printf("%-16s", label);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

void progress_start(struct progress *p, const char *unit, uint64_t total)
{
	*p = (struct progress){
		.unit = unit,
		.total = total,
		.start = now_seconds(),
		.on = isatty(STDERR_FILENO),
	};
}

void progress_step(struct progress *p, uint64_t done, uint64_t bytes)
{
	char bar[BAR_WIDTH + 1], a[SIZE_TEXT], b[SIZE_TEXT], rate[SIZE_TEXT];
	double now, spent, share;

	if (!p->on || !p->total)
		return;
	now = now_seconds();
	if (now - p->shown < 0.1 && done < p->total)
		return;
	p->shown = now;
	spent = now - p->start;
	share = (double)done / (double)p->total;
	memset(bar, '.', BAR_WIDTH);
	memset(bar, '#', (size_t)(share * BAR_WIDTH));
	bar[BAR_WIDTH] = 0;
	fprintf(stderr, "\r[%s] %3.0f %%  %s of %s %s  %s", bar,
		floor(share * 100), count_text(done, a),
		count_text(p->total, b), p->unit,
		rate_text(bytes, spent, rate));
	if (done && spent > 1)
		fprintf(stderr, "  %.0f s left",
			ceil(spent / share - spent));
	fputs("\033[K", stderr);
}

void progress_end(struct progress *p)
{
	if (p->on && p->shown > 0)
		fputs("\r\033[K", stderr);
}
