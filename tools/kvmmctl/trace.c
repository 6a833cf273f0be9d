// SPDX-License-Identifier: MIT
/*
 * Reading a trace.  A line is a JSON object:
 *
 *   timestamp      ms since the start, whole, never less than the line before
 *   hash_ids       block ids of the prompt in order, whole, 0 to 2^63 - 1;
 *                  an empty list is a request without blocks
 *   input_length, output_length   tokens, whole; may be missing
 *
 * Other members are passed over, and so are blank lines.  All else is an error
 * that names the line; nothing has been replayed by then.
 */
#include "trace.h"
#include "kvmmctl.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE	(64 << 20)	/* bytes */

/**
 * struct reader - the file being read
 * @in: the file
 * @name: as shown in errors
 * @line: number of the line in @buf, from 1
 * @buf: the line, without its newline
 * @len: bytes in @buf
 * @room: bytes that @buf has room for
 */
struct reader {
	FILE *in;
	const char *name;
	uint64_t line;
	char *buf;
	size_t len;
	size_t room;
};

/* The first of FILE:LINE: what is wrong; returns EXIT_ERROR. */
static int bad(const struct reader *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static int bad(const struct reader *r, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s:%" PRIu64 ": ", r->name, r->line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return EXIT_ERROR;
}

static int grow(void **mem, size_t *room, size_t need, size_t size)
{
	size_t n = *room ? *room : 64;
	void *p;

	if (need <= *room)
		return 0;
	while (n < need)
		n *= 2;
	p = reallocarray(*mem, n, size);
	if (!p)
		return -ENOMEM;
	*mem = p;
	*room = n;
	return 0;
}

int trace_begin(struct trace *t, uint64_t time_ms, uint32_t output_tokens)
{
	if (grow((void **)&t->reqs, &t->room, t->nr + 1, sizeof(*t->reqs)))
		return -ENOMEM;
	t->reqs[t->nr++] = (struct request){
		.time_ms = time_ms,
		.first = t->nr_ids,
		.output_tokens = output_tokens,
	};
	return 0;
}

int trace_add(struct trace *t, uint64_t id)
{
	struct request *req = &t->reqs[t->nr - 1];

	if (req->nr == KVMM_MAX_BLOCKS)
		return -E2BIG;
	if (grow((void **)&t->ids, &t->ids_room, t->nr_ids + 1,
		 sizeof(*t->ids)))
		return -ENOMEM;
	t->ids[t->nr_ids++] = id;
	if (++req->nr > t->longest)
		t->longest = req->nr;
	return 0;
}

void trace_free(struct trace *t)
{
	free(t->reqs);
	free(t->ids);
	*t = (struct trace){ 0 };
}

/* 1: there is a line in @r->buf; 0: end of the file; else -errno or -E2BIG. */
static int next_line(struct reader *r)
{
	int c;

	r->len = 0;
	r->line++;
	while ((c = getc_unlocked(r->in)) != EOF && c != '\n') {
		if (r->len == MAX_LINE)
			return -E2BIG;
		if (grow((void **)&r->buf, &r->room, r->len + 1, 1))
			return -ENOMEM;
		r->buf[r->len++] = (char)c;
	}
	if (ferror(r->in))
		return errno ? -errno : -EIO;
	return c != EOF || r->len;
}

static bool blank(const struct reader *r)
{
	for (size_t i = 0; i < r->len; i++)
		if (!strchr(" \t\r", r->buf[i]) || !r->buf[i])
			return false;
	return true;
}

/* A whole number that is not negative; @what names it in errors. */
static int natural(const struct reader *r, const json_t *v, const char *what,
		   uint64_t max, uint64_t *out)
{
	if (!json_is_integer(v))
		return bad(r, "%s is not a whole number", what);
	if (json_integer_value(v) < 0)
		return bad(r, "%s is negative", what);
	*out = (uint64_t)json_integer_value(v);
	if (*out > max)
		return bad(r, "%s is larger than %" PRIu64, what, max);
	return 0;
}

static int add_blocks(struct trace *t, const struct reader *r,
		      const json_t *ids)
{
	char what[48];
	uint64_t id;
	int rc;

	for (size_t i = 0; i < json_array_size(ids); i++) {
		snprintf(what, sizeof(what), "\"hash_ids\"[%zu]", i);
		if (natural(r, json_array_get(ids, i), what, INT64_MAX, &id))
			return EXIT_ERROR;
		rc = trace_add(t, id);
		if (rc == -E2BIG)
			return bad(r, "\"hash_ids\" has more blocks than a "
				   "pool can hold");
		if (rc)
			return bad(r, "out of memory");
	}
	return 0;
}

static int add_request(struct trace *t, const struct reader *r,
		       const json_t *obj)
{
	const json_t *ids = json_object_get(obj, "hash_ids");
	const json_t *time = json_object_get(obj, "timestamp");
	const json_t *input = json_object_get(obj, "input_length");
	const json_t *output = json_object_get(obj, "output_length");
	uint64_t ms, ignored, tokens = 0;

	if (!time)
		return bad(r, "\"timestamp\" is missing");
	if (natural(r, time, "\"timestamp\"", INT64_MAX, &ms))
		return EXIT_ERROR;
	if (t->nr && ms < t->reqs[t->nr - 1].time_ms)
		return bad(r, "\"timestamp\" goes back: %" PRIu64 " after %"
			   PRIu64, ms, t->reqs[t->nr - 1].time_ms);
	if (input &&
	    natural(r, input, "\"input_length\"", INT64_MAX, &ignored))
		return EXIT_ERROR;
	if (output &&
	    natural(r, output, "\"output_length\"", UINT32_MAX, &tokens))
		return EXIT_ERROR;
	if (!ids)
		return bad(r, "\"hash_ids\" is missing");
	if (!json_is_array(ids))
		return bad(r, "\"hash_ids\" is not a list");
	if (trace_begin(t, ms, (uint32_t)tokens))
		return bad(r, "out of memory");
	return add_blocks(t, r, ids);
}

static int add_line(struct trace *t, const struct reader *r)
{
	json_error_t err;
	json_t *obj;
	int ret;

	if (memchr(r->buf, 0, r->len))
		return bad(r, "there is a NUL byte in the line");
	obj = json_loadb(r->buf, r->len,
			 JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &err);
	if (!obj) {
		switch (json_error_code(&err)) {
		case json_error_out_of_memory:
			return bad(r, "out of memory");
		case json_error_numeric_overflow:
			return bad(r, "a number is out of range: %s",
				   err.text);
		case json_error_duplicate_key:
			return bad(r, "a member occurs twice: %s", err.text);
		default:
			return bad(r, "not JSON: %s", err.text);
		}
	}
	if (json_is_object(obj))
		ret = add_request(t, r, obj);
	else
		ret = bad(r, "not a JSON object");
	json_decref(obj);
	return ret;
}

static int read_lines(struct trace *t, struct reader *r, uint64_t limit)
{
	int rc, ret = 0;

	while (!ret && t->nr < limit) {
		rc = next_line(r);
		if (signal_seen())
			return fail("interrupted while reading %s", r->name);
		if (rc == -E2BIG)
			return bad(r, "the line is longer than %d MiB",
				   MAX_LINE >> 20);
		if (rc < 0)
			return bad(r, "can't read: %s", strerror(-rc));
		if (!rc)
			break;
		if (!blank(r))
			ret = add_line(t, r);
	}
	return ret;
}

int trace_read(struct trace *t, const char *path, uint64_t limit)
{
	struct reader r = { .name = path };
	int ret;

	if (!strcmp(path, "-")) {
		r.in = stdin;
		r.name = "stdin";
	} else {
		r.in = fopen(path, "re");
		if (!r.in)
			return fail("can't open %s: %s", path, strerror(errno));
	}
	ret = read_lines(t, &r, limit);
	if (!ret && !t->nr)
		ret = fail("%s: there is no request in it", r.name);
	free(r.buf);
	if (r.in != stdin)
		fclose(r.in);
	return ret;
}
