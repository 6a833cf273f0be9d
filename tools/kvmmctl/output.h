/* SPDX-License-Identifier: MIT */
/*
 * Output: JSON objects, tables for people, and progress on a terminal.
 */
#ifndef KVMMCTL_OUTPUT_H
#define KVMMCTL_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** now_seconds() - monotonic time */
double now_seconds(void);

/**
 * output_json() - print @value and a newline, and drop the reference
 * @lines: over several lines, for people too
 *
 * Return: 0 or EXIT_ERROR, told.
 */
int output_json(json_t *value, bool lines);

/**
 * output_text() - a string of JSON
 *
 * Names of files and control groups are any bytes, and JSON is UTF-8: what is
 * not has a '?' for each of its bytes beyond ASCII.  Return: NULL for NULL.
 */
json_t *output_text(const char *text);

/** output_row() - "label   text" */
void output_row(const char *label, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/**
 * struct progress - how far a long job is; shown where stderr is a terminal
 * @unit: what is counted, "requests"
 * @total: how many there are
 * @start: when it began
 * @shown: when it was last drawn
 * @on: stderr is a terminal
 */
struct progress {
	const char *unit;
	uint64_t total;
	double start;
	double shown;
	bool on;
};

/** progress_start() - the clock starts now */
void progress_start(struct progress *p, const char *unit, uint64_t total);

/** progress_step() - @done of the total are done, @bytes were moved */
void progress_step(struct progress *p, uint64_t done, uint64_t bytes);

/** progress_end() - take the line away */
void progress_end(struct progress *p);

#endif /* KVMMCTL_OUTPUT_H */
