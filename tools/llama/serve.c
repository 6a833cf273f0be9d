// SPDX-License-Identifier: MIT
/*
 * kvmm-llama serve: requests on stdin, answers on stdout, a JSON object a line.
 */
#include "app.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PREDICT	16
#define TEXT_BYTES	(1UL << 16)

/**
 * struct session - a server and its buffers
 * @e: the engine
 * @st: the store, may be NULL
 * @srv: the server
 * @prompt: room for the context
 * @answer: with room for the context
 * @text: room for TEXT_BYTES
 */
struct session {
	struct engine *e;
	struct store *st;
	struct server *srv;
	uint32_t *prompt;
	struct answer answer;
	char *text;
};

/* Prints, so that whoever waits for the line has it at once. */
static int reply(json_t *o)
{
	int rc;

	if (!o)
		return fail("out of memory");
	rc = json_dumpf(o, stdout, JSON_REAL_PRECISION(6));
	json_decref(o);
	if (rc || putchar('\n') == EOF || fflush(stdout))
		return fail("can't write the output: %s", strerror(errno));
	return 0;
}

static int refuse(json_t *id, const char *why)
{
	return reply(json_pack("{s:O?, s:s}", "id", id, "error", why));
}

static long read_tokens(struct session *s, const json_t *list, const char **why)
{
	size_t max = engine_info(s->e)->context, i, n = json_array_size(list);

	if (n > max) {
		*why = "the prompt is longer than the context";
		return -1;
	}
	for (i = 0; i < n; i++) {
		const json_t *v = json_array_get(list, i);

		if (!json_is_integer(v) || json_integer_value(v) < 0 ||
		    json_integer_value(v) > UINT32_MAX) {
			*why = "a token is not a whole number";
			return -1;
		}
		s->prompt[i] = (uint32_t)json_integer_value(v);
	}
	return (long)n;
}

/* The prompt of a request, as tokens. */
static long read_prompt(struct session *s, const json_t *req, const char **why)
{
	const json_t *prompt = json_object_get(req, "prompt");
	long n;

	if (json_is_array(prompt))
		return read_tokens(s, prompt, why);
	if (!json_is_string(prompt)) {
		*why = "\"prompt\" is neither a list of tokens nor a text";
		return -1;
	}
	n = engine_tokenize(s->e, json_string_value(prompt), true, s->prompt,
			    engine_info(s->e)->context);
	if (n < 0)
		*why = engine_error(s->e);
	return n;
}

/* A model may end within a letter, or say what is none. */
static json_t *text_json(char *text, size_t len)
{
	json_t *o = json_stringn(text, len);

	for (size_t i = 0; i < len && !o; i++)
		if (text[i] & 0x80)
			text[i] = '?';
	return o ? o : json_stringn(text, len);
}

static json_t *answer_json(struct session *s, json_t *id)
{
	const struct answer *a = &s->answer;
	json_t *tokens = json_array(), *o;
	char digest[20];

	for (unsigned int i = 0; i < a->nr; i++)
		json_array_append_new(tokens, json_integer(a->tokens[i]));
	snprintf(digest, sizeof(digest), "%016llx",
		 (unsigned long long)a->digest);
	o = json_pack("{s:O?, s:o, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f}",
		      "id", id, "tokens", tokens, "digest", digest,
		      "prompt_tokens", a->prompt, "kept_tokens", a->kept,
		      "memory_tokens", a->memory, "disk_tokens", a->disk,
		      "computed_tokens", a->computed, "saved_tokens", a->saved,
		      "first_token_ms", a->ttft * 1e3, "ms", a->seconds * 1e3);
	if (o && engine_info(s->e)->has_text) {
		long len = engine_text(s->e, a->tokens, a->nr, s->text,
				       TEXT_BYTES);

		if (len >= 0)
			json_object_set_new(o, "text",
					    text_json(s->text, (size_t)len));
	}
	if (o && a->store_error)
		json_object_set_new(o, "store_error",
				    json_string(strerror(-a->store_error)));
	return o;
}

static int serve_one(struct session *s, const json_t *req)
{
	json_t *id = json_object_get(req, "id");
	const json_t *predict = json_object_get(req, "predict");
	json_int_t want = DEFAULT_PREDICT;
	const char *why = NULL;
	long n;

	if (!json_is_object(req))
		return refuse(NULL, "a request is a JSON object");
	if (predict)
		want = json_integer_value(predict);
	if (want < 1 || want > engine_info(s->e)->context)
		return refuse(id, "\"predict\" is not a number of tokens that fits into the context");
	n = read_prompt(s, req, &why);
	if (n < 0)
		return refuse(id, why);
	if (server_request(s->srv, s->prompt, (unsigned int)n,
			   (unsigned int)want, &s->answer))
		return refuse(id, server_error(s->srv));
	return reply(answer_json(s, id));
}

static int serve_all(struct session *s)
{
	char *line = NULL;
	size_t room = 0;
	int ret = 0;

	while (!ret && !signal_seen() && getline(&line, &room, stdin) > 0) {
		json_error_t err;
		json_t *req;

		if (line[strspn(line, " \t\r\n")] == 0)
			continue;
		req = json_loads(line, 0, &err);
		if (req)
			ret = serve_one(s, req);
		else
			ret = refuse(NULL, err.text);
		json_decref(req);
	}
	free(line);
	if (ferror(stdin) && !signal_seen())
		ret = fail("can't read requests: %s", strerror(errno));
	return ret;
}

static int serve(const struct args *args, struct session *s)
{
	const struct engine_opts defaults = {
		.slots = 4, .context = 2048, .block_tokens = 64,
	};
	unsigned int context;

	if (setup_engine(args, &defaults, &s->e) ||
	    setup_store(args, s->e, "kvmm-llama", 256 << 20, 1 << 30, &s->st))
		return EXIT_ERROR;
	context = engine_info(s->e)->context;
	s->srv = server_new(s->e, s->st);
	s->prompt = calloc(context, sizeof(*s->prompt));
	s->answer.tokens = calloc(context, sizeof(*s->answer.tokens));
	s->text = malloc(TEXT_BYTES);
	if (!s->srv || !s->prompt || !s->answer.tokens || !s->text)
		return fail("out of memory");
	if (s->st)
		note("%s pool, backend %s, I/O by %s",
		     store_info(s->st)->found ? "found the" : "made a",
		     store_info(s->st)->backend, store_info(s->st)->io);
	return serve_all(s);
}

static int run(const struct args *args)
{
	struct session s = { 0 };
	int ret = serve(args, &s);

	server_free(s.srv);
	/* a pool of the kernel's is there to be found again */
	store_close(s.st, false);
	engine_close(s.e);
	free(s.prompt);
	free(s.answer.tokens);
	free(s.text);
	return ret;
}

static const struct opt *const tables[] = {
	engine_options, store_options, NULL
};

const struct command cmd_serve = {
	.name = "serve",
	.pos = "",
	.summary = "Answer requests: a JSON object a line, stdin to stdout.",
	.details = "A request is {\"id\": ANY, \"prompt\": [TOKENS] or TEXT, "
		   "\"predict\": N}.  The prompt is the whole conversation; "
		   "what of it was computed before, for this conversation or "
		   "for another one that begins alike, is brought back.  The "
		   "kernel's pool stays when the program ends, so another one "
		   "goes on with it; it is made with 256 MiB of memory and "
		   "1 GiB of disk unless given.",
	.opts = tables,
	.run = run,
};
