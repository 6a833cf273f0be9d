// SPDX-License-Identifier: MIT
/*
 * kvmm-llama compare: the same conversations without and with kvmm.  Every
 * token must be the same, and the logits that each was chosen by, bit for bit.
 * Then the time to the first token of a long prompt, from each place that its
 * state can come from.
 */
#include "app.h"
#include "workload.h"
#include "../kvmmctl/output.h"
#include "../kvmmctl/size.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ROUNDS	99

enum source { FROM_COMPUTING, FROM_MEMORY, FROM_DISK, NR_SOURCES };

static const char *const source_names[NR_SOURCES] = {
	"computed", "memory", "disk",
};

/**
 * struct turn - what a request came to
 * @digest: of the logits
 * @tokens: of the tokens
 * @nr: how many
 * @ttft: seconds
 */
struct turn {
	uint64_t digest;
	uint64_t tokens;
	unsigned int nr;
	double ttft;
};

/**
 * struct pass - all conversations, served once
 * @turns: the requests, in order
 * @nr: how many
 * @sum: of all answers' counts
 * @seconds: it took
 */
struct pass {
	struct turn *turns;
	unsigned int nr;
	struct {
		uint64_t prompt, kept, memory, disk, computed, saved, evicted;
		uint64_t refused, failed;
	} sum;
	double seconds;
};

/**
 * struct compare - one run of the command
 * @w: the conversations
 * @rounds: of timing
 * @json: output is JSON
 * @record: requests are written there, may be NULL
 * @e: the engine
 * @st: the store
 * @buf: room for an answer
 * @pass: without, with
 * @different: turns whose answers differ
 * @times: by source and round, seconds
 * @prompt: tokens of the prompt that is timed
 * @wrong: timed answers that differ
 * @astray: timed prompts whose state was not where it should have been
 */
struct compare {
	struct workload_opts w;
	unsigned int rounds;
	bool json;
	FILE *record;
	struct engine *e;
	struct store *st;
	uint32_t *buf;
	struct pass pass[2];
	unsigned int different;
	double times[NR_SOURCES][MAX_ROUNDS];
	unsigned int prompt;
	unsigned int wrong;
	unsigned int astray;
};

static uint64_t hash_tokens(const uint32_t *tokens, unsigned int n)
{
	uint64_t hash = 0xcbf29ce484222325ULL;

	while (n--)
		hash = (hash ^ *tokens++) * 0x100000001b3ULL;
	return hash;
}

static void record(FILE *f, unsigned int id, const uint32_t *prompt,
		   unsigned int n, unsigned int predict)
{
	fprintf(f, "{\"id\": %u, \"predict\": %u, \"prompt\": [", id, predict);
	for (unsigned int i = 0; i < n; i++)
		fprintf(f, "%s%u", i ? ", " : "", prompt[i]);
	fputs("]}\n", f);
}

static void add(struct pass *p, const struct answer *a)
{
	p->sum.prompt += a->prompt;
	p->sum.kept += a->kept;
	p->sum.memory += a->memory;
	p->sum.disk += a->disk;
	p->sum.computed += a->computed;
	p->sum.saved += a->saved;
	p->sum.evicted += a->evicted;
	p->sum.refused += a->refused;
	p->sum.failed += a->store_error != 0;
}

/* Serve all conversations with @srv. */
static int serve_all(struct compare *c, struct server *srv, struct workload *w,
		     struct pass *p, bool recording)
{
	unsigned int total = c->w.conversations * c->w.turns, id, n;
	struct answer a = { .tokens = c->buf };
	double start = server_seconds();
	const uint32_t *prompt;
	struct progress bar;

	progress_start(&bar, recording ? "requests, without kvmm" :
					 "requests, with kvmm", total);
	while ((prompt = workload_next(w, &id, &n))) {
		struct turn *t = &p->turns[p->nr++];

		if (signal_seen() ||
		    server_request(srv, prompt, n, c->w.predict, &a)) {
			progress_end(&bar);
			return signal_seen() ? fail("interrupted") :
					       fail("%s", server_error(srv));
		}
		*t = (struct turn){
			.digest = a.digest,
			.tokens = hash_tokens(a.tokens, a.nr),
			.nr = a.nr,
			.ttft = a.ttft,
		};
		add(p, &a);
		if (recording && c->record)
			record(c->record, p->nr - 1, prompt, n, c->w.predict);
		workload_answer(w, a.tokens, a.nr);
		progress_step(&bar, p->nr, 0);
	}
	progress_end(&bar);
	p->seconds = server_seconds() - start;
	return 0;
}

static int run_pass(struct compare *c, struct store *st, struct pass *p)
{
	struct server *srv = server_new(c->e, st);
	struct workload *w = workload_new(&c->w);
	int ret;

	p->turns = calloc((size_t)c->w.conversations * c->w.turns,
			  sizeof(*p->turns));
	if (srv && w && p->turns) {
		/* what the engine was opened with, or another pass, has left */
		ret = server_forget(srv);
		ret = ret ? fail("%s", server_error(srv)) :
			    serve_all(c, srv, w, p, !st);
	} else {
		ret = fail("out of memory");
	}
	workload_free(w);
	server_free(srv);
	return ret;
}

static void count_different(struct compare *c)
{
	const struct pass *a = &c->pass[0], *b = &c->pass[1];

	for (unsigned int i = 0; i < a->nr; i++) {
		const struct turn *x = &a->turns[i], *y = &b->turns[i];

		if (x->digest != y->digest || x->tokens != y->tokens ||
		    x->nr != y->nr)
			c->different++;
	}
}

/* Did the state come from where it should have? */
static bool from(enum source s, const struct answer *a, unsigned int block)
{
	unsigned int stored = (a->prompt - 1) / block * block;

	switch (s) {
	case FROM_MEMORY:
		return a->memory == stored;
	case FROM_DISK:
		return a->disk == stored;
	default:
		return a->computed == a->prompt;
	}
}

/* One prompt once from each source; @plain has no store. */
static int time_round(struct compare *c, struct server *plain,
		      struct server *stored, const uint32_t *prompt,
		      unsigned int round)
{
	unsigned int block = engine_info(c->e)->block_tokens;
	struct answer a = { .tokens = c->buf };
	uint64_t want = 0;

	for (int s = 0; s < NR_SOURCES; s++) {
		struct server *srv = s == FROM_COMPUTING ? plain : stored;
		int err = 0;

		if (s == FROM_MEMORY) {
			/* with it kept, whatever else has been here before */
			err = server_forget(srv);
			if (!err)
				err = server_request(srv, prompt, c->prompt, 1,
						     &a);
		} else if (s == FROM_DISK) {
			err = store_evict(c->st);
			if (err)
				return fail("can't empty the memory of the pool: %s",
					    strerror(-err));
		}
		if (!err)
			err = server_forget(srv);
		if (!err)
			err = server_request(srv, prompt, c->prompt, 1, &a);
		if (err)
			return fail("%s", server_error(srv));
		c->times[s][round] = a.ttft;
		if (s == FROM_COMPUTING)
			want = a.digest;
		c->wrong += a.digest != want;
		c->astray += !from((enum source)s, &a, block);
	}
	return 0;
}

static int time_sources(struct compare *c)
{
	struct server *plain = server_new(c->e, NULL);
	struct server *stored = server_new(c->e, c->st);
	struct workload_opts wo = c->w;
	struct workload *w;
	const uint32_t *prompt;
	unsigned int id, n;
	int ret = 0;

	/* one conversation that has said all that fits */
	wo.seed = ~c->w.seed;
	wo.conversations = 1;
	wo.prompts = 1;
	wo.turns = 1;
	wo.prompt_tokens = c->prompt - 1;
	wo.user_tokens = 1;
	w = workload_new(&wo);
	prompt = w ? workload_next(w, &id, &n) : NULL;
	if (!plain || !stored || !prompt)
		ret = fail("out of memory");
	for (unsigned int i = 0; i < c->rounds && !ret; i++)
		ret = signal_seen() ? fail("interrupted") :
				      time_round(c, plain, stored, prompt, i);
	workload_free(w);
	server_free(plain);
	server_free(stored);
	return ret;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, unsigned int n)
{
	qsort(v, n, sizeof(*v), by_size);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static double median_ttft(const struct pass *p)
{
	double *v = calloc(p->nr, sizeof(*v)), m;

	if (!v)
		return 0;
	for (unsigned int i = 0; i < p->nr; i++)
		v[i] = p->turns[i].ttft;
	m = median(v, p->nr);
	free(v);
	return m;
}

static uint64_t answered(const struct pass *p)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i < p->nr; i++)
		n += p->turns[i].nr;
	return n;
}

static json_t *pass_json(const struct pass *p)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}",
			 "prompt_tokens", (json_int_t)p->sum.prompt,
			 "kept_tokens", (json_int_t)p->sum.kept,
			 "memory_tokens", (json_int_t)p->sum.memory,
			 "disk_tokens", (json_int_t)p->sum.disk,
			 "computed_tokens", (json_int_t)p->sum.computed,
			 "saved_tokens", (json_int_t)p->sum.saved,
			 "evicted", (json_int_t)p->sum.evicted,
			 "refused", (json_int_t)p->sum.refused,
			 "first_token_ms", median_ttft(p) * 1e3,
			 "seconds", p->seconds);
}

static int report_json(struct compare *c, const struct kvmm_pool_stat *st)
{
	const struct engine_info *e = engine_info(c->e);
	const struct store_info *s = store_info(c->st);
	json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:I}",
			      "backend", s->backend, "io", s->io,
			      "engine", e->version, "model", e->model,
			      "weights", (json_int_t)e->weights,
			      "slots", e->slots, "context", e->context,
			      "block_tokens", e->block_tokens,
			      "block_size", s->block_size,
			      "blocks_per_range", s->pieces,
			      "requests", c->pass[0].nr,
			      "answered_tokens",
			      (json_int_t)answered(&c->pass[0]));
	json_t *times = json_object();

	json_object_set_new(o, "different", json_integer(c->different +
							  c->wrong));
	json_object_set_new(o, "without", pass_json(&c->pass[0]));
	json_object_set_new(o, "with", pass_json(&c->pass[1]));
	json_object_set_new(times, "prompt_tokens", json_integer(c->prompt));
	json_object_set_new(times, "rounds", json_integer(c->rounds));
	json_object_set_new(times, "astray", json_integer(c->astray));
	for (int i = 0; i < NR_SOURCES; i++)
		json_object_set_new(times, source_names[i],
				    json_real(median(c->times[i], c->rounds) *
					      1e3));
	json_object_set_new(o, "first_token_ms", times);
	json_object_set_new(o, "swap_out_bytes",
			    json_integer((json_int_t)st->swap_out_bytes));
	json_object_set_new(o, "swap_in_bytes",
			    json_integer((json_int_t)st->swap_in_bytes));
	json_object_set_new(o, "checksum_errors",
			    json_integer((json_int_t)st->checksum_errors));
	return output_json(o, true);
}

static void introduce(const struct compare *c)
{
	const struct engine_info *e = engine_info(c->e);
	const struct store_info *s = store_info(c->st);
	char a[SIZE_TEXT], b[SIZE_TEXT];

	printf("kvmm under llama.cpp %s: backend %s, I/O by %s\n\n",
	       e->version, s->backend, s->io);
	printf("A model of %s weights; %u conversations of %u turns, "
	       "%u system prompts of\n%u tokens, and an engine with room for "
	       "%u conversations at once.  Of one that\nhas lost its place, "
	       "each %u tokens are %u blocks, %s.\n\n",
	       count_text(e->weights, a), c->w.conversations, c->w.turns,
	       c->w.prompts, c->w.prompt_tokens, e->slots, e->block_tokens,
	       s->pieces, size_text(e->range_bytes, b));
	fflush(stdout);
}

static void line(const char *what, uint64_t without, uint64_t with)
{
	char a[SIZE_TEXT], b[SIZE_TEXT];

	printf("  %-40s %12s %12s\n", what, count_text(without, a),
	       count_text(with, b));
}

static void report(struct compare *c, const struct kvmm_pool_stat *st)
{
	const struct pass *a = &c->pass[0], *b = &c->pass[1];
	char x[SIZE_TEXT], y[SIZE_TEXT];
	double m[NR_SOURCES];

	printf("  %-40s %12s %12s\n", "tokens of prompts", "without kvmm",
	       "with kvmm");
	line("still in the engine", a->sum.kept, b->sum.kept);
	line("from memory", a->sum.memory, b->sum.memory);
	line("from disk", a->sum.disk, b->sum.disk);
	line("computed", a->sum.computed, b->sum.computed);
	line("all", a->sum.prompt, b->sum.prompt);
	printf("  %-40s %9.1f ms %9.1f ms\n", "time to first token, median",
	       median_ttft(a) * 1e3, median_ttft(b) * 1e3);
	printf("\nWritten to disk %s, read back %s.\n",
	       size_text(st->swap_out_bytes, x),
	       size_text(st->swap_in_bytes, y));
	if (c->different || c->wrong)
		printf("%u of %u ANSWERS DIFFER, and %u of those timed.\n",
		       c->different, a->nr, c->wrong);
	else
		printf("All %s tokens of %u answers are the same, and the "
		       "logits behind them bit for bit.\n",
		       count_text(answered(a), x), a->nr);
	for (int i = 0; i < NR_SOURCES; i++)
		m[i] = median(c->times[i], c->rounds) * 1e3;
	printf("\nTime to the first token of a prompt of %s tokens, median of "
	       "%u rounds:\n  computed %.1f ms, from memory %.1f ms, from disk "
	       "%.1f ms\n", count_text(c->prompt, x), c->rounds,
	       m[FROM_COMPUTING], m[FROM_MEMORY], m[FROM_DISK]);
	if (c->astray)
		printf("In %u of these the state was not where it should have "
		       "been: is there too little memory or disk?\n",
		       c->astray);
}

static int compare_all(const struct args *args, struct compare *c)
{
	const struct engine_opts defaults = {
		.slots = 4, .context = 2048, .block_tokens = 64,
	};
	struct kvmm_pool_stat stat;
	char name[KVMM_NAME_LEN];
	int ret;

	if (args->value[OPT_NO_KVMM])
		return fail("--no-kvmm leaves nothing to compare");
	if (setup_engine(args, &defaults, &c->e))
		return EXIT_ERROR;
	c->w.vocab = engine_info(c->e)->vocab;
	c->w.context = engine_info(c->e)->context;
	if (!workload_fits(&c->w))
		return fail("conversations of %u tokens and %u turns of %u and %u don't fit into a context of %u",
			    c->w.prompt_tokens, c->w.turns, c->w.user_tokens,
			    c->w.predict, c->w.context);
	snprintf(name, sizeof(name), "kvmm-llama-%ld", (long)getpid());
	if (setup_store(args, c->e, name, 6 << 20, 48 << 20, &c->st))
		return EXIT_ERROR;
	c->prompt = c->w.context * 3 / 4;
	c->buf = calloc(c->w.context, sizeof(*c->buf));
	if (!c->buf)
		return fail("out of memory");
	if (!c->json)
		introduce(c);
	ret = run_pass(c, NULL, &c->pass[0]);
	if (!ret)
		ret = run_pass(c, c->st, &c->pass[1]);
	if (ret)
		return ret;
	count_different(c);
	ret = time_sources(c);
	if (!ret && store_stat(c->st, &stat))
		ret = fail("can't read the pool's counters");
	if (ret)
		return ret;
	if (c->json)
		ret = report_json(c, &stat);
	else
		report(c, &stat);
	if (!ret && (c->different || c->wrong))
		ret = EXIT_DIFFERENT;
	return ret;
}

static int parse(const struct args *args, struct compare *c)
{
	struct workload_opts *w = &c->w;
	unsigned int seed = 1;

	*w = (struct workload_opts){
		.conversations = 24, .turns = 4, .prompts = 3,
		.prompt_tokens = 384, .user_tokens = 96, .predict = 24,
	};
	c->rounds = 5;
	c->json = args->value[OPT_JSON];
	if (opt_count(args, OPT_SEED, 0, UINT32_MAX, &seed) ||
	    opt_count(args, OPT_CONVERSATIONS, 1, 100000, &w->conversations) ||
	    opt_count(args, OPT_TURNS, 1, 1000, &w->turns) ||
	    opt_count(args, OPT_PROMPTS, 1, 100000, &w->prompts) ||
	    opt_count(args, OPT_PROMPT_TOKENS, 1, 1 << 20, &w->prompt_tokens) ||
	    opt_count(args, OPT_USER_TOKENS, 1, 1 << 20, &w->user_tokens) ||
	    opt_count(args, OPT_PREDICT, 1, 1 << 20, &w->predict) ||
	    opt_count(args, OPT_ROUNDS, 1, MAX_ROUNDS, &c->rounds))
		return EXIT_ERROR;
	w->seed = seed;
	return 0;
}

static int run(const struct args *args)
{
	const char *path = args->value[OPT_RECORD];
	struct compare c = { 0 };
	int ret = parse(args, &c);

	if (!ret && path) {
		c.record = fopen(path, "we");
		if (!c.record)
			ret = fail("can't write %s: %s", path, strerror(errno));
	}
	if (!ret)
		ret = compare_all(args, &c);
	if (c.record && fclose(c.record) && !ret)
		ret = fail("can't write %s: %s", path, strerror(errno));
	store_close(c.st, c.st && !store_info(c.st)->found);
	engine_close(c.e);
	free(c.buf);
	free(c.pass[0].turns);
	free(c.pass[1].turns);
	return ret;
}

static const struct opt compare_opts[] = {
	{ OPT_CONVERSATIONS, "conversations", "N",
	  "conversations (default 24)" },
	{ OPT_TURNS, "turns", "N", "turns of each (default 4)" },
	{ OPT_PROMPTS, "prompts", "N",
	  "system prompts that they begin with (default 3)" },
	{ OPT_PROMPT_TOKENS, "prompt-tokens", "N",
	  "tokens of a system prompt (default 384)" },
	{ OPT_USER_TOKENS, "user-tokens", "N",
	  "tokens that a user says in a turn, at most (default 96)" },
	{ OPT_PREDICT, "predict", "N", "tokens of an answer (default 24)" },
	{ OPT_ROUNDS, "rounds", "N", "rounds of timing (default 5)" },
	{ OPT_SEED, "seed", "N", "makes other conversations (default 1)" },
	{ OPT_RECORD, "record", "FILE",
	  "write the requests there, for kvmm-llama serve" },
	{ 0, NULL, NULL, NULL },
};

static const struct opt *const tables[] = {
	engine_options, store_options, compare_opts, NULL
};

const struct command cmd_compare = {
	.name = "compare",
	.pos = "",
	.summary = "Serve made-up conversations without kvmm and with it.",
	.details = "Every token must be the same, and the logits that it was "
		   "chosen by, bit for bit.  Then the time to the first token "
		   "of a long prompt is taken: computed, from the memory of "
		   "the pool, and from its swap area.  The pool has by default "
		   "6 MiB of memory and 48 MiB of disk, which is little on "
		   "purpose, and goes at the end if it was made here.",
	.opts = tables,
	.run = run,
};
