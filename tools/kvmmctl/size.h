/* SPDX-License-Identifier: MIT */
/*
 * Sizes and numbers as people write and read them.  K, M, G, T and KiB, MiB,
 * GiB, TiB are powers of 1024; KB, MB, GB, TB are powers of 1000.
 */
#ifndef KVMMCTL_SIZE_H
#define KVMMCTL_SIZE_H

#include <stddef.h>
#include <stdint.h>

/**
 * size_parse() - read a size: digits and a unit, in upper or lower case
 *
 * Return: NULL, or the end of a sentence that starts with the text in quotes.
 */
const char *size_parse(const char *text, uint64_t *bytes);

/** count_parse() - read digits; returns as size_parse() does */
const char *count_parse(const char *text, uint64_t *value);

#define SIZE_TEXT	32	/* room that the functions below need */

/** size_text() - "2.5 GiB", "64 KiB", "12 bytes" */
const char *size_text(uint64_t bytes, char buf[SIZE_TEXT]);

/** rate_text() - "1,234 MB/s" of @bytes in @seconds; "-" without time */
const char *rate_text(uint64_t bytes, double seconds, char buf[SIZE_TEXT]);

/** count_text() - "1,234,567" */
const char *count_text(uint64_t n, char buf[SIZE_TEXT]);

/** percent_text() - "12.34 %"; "-" of nothing */
const char *percent_text(uint64_t part, uint64_t whole, char buf[SIZE_TEXT]);

#endif /* KVMMCTL_SIZE_H */
