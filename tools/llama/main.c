// SPDX-License-Identifier: MIT
/*
 * kvmm-llama: llama.cpp with kvmm under it.  This file finds the command and
 * owns what belongs to the whole process: errors and signals.
 */
#include "app.h"
#include "model.h"
#include "../kvmmctl/size.h"
#include "../kvmmctl/std.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command *const commands[] = {
	&cmd_compare, &cmd_serve, &cmd_model, NULL,
};

static char speaker[64] = "kvmm-llama";
static volatile sig_atomic_t seen;

static void say(const char *fmt, va_list ap)
{
	/* what was printed comes first where both go to one place */
	fflush(stdout);
	fprintf(stderr, "%s: ", speaker);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

int fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
	return EXIT_ERROR;
}

void note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
}

static void on_signal(int sig)
{
	seen = sig;
}

int signal_seen(void)
{
	return seen;
}

/* The first signal asks to stop, so that pools and files go; the second ends. */
static void catch_signals(void)
{
	struct sigaction sa = {
		.sa_handler = on_signal,
		.sa_flags = (int)SA_RESETHAND,
	};

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGXFSZ, SIG_IGN);
}

static int model_run(const struct args *args)
{
	struct model_shape s = {
		.layers = 4,
		.embd = 128,
		.heads_kv = 2,
		.vocab = 1000,
		.context = 4096,
	};
	unsigned int seed = 1;
	char text[SIZE_TEXT];
	uint64_t bytes;
	int err;

	if (opt_count(args, OPT_SEED, 0, UINT32_MAX, &seed) ||
	    opt_count(args, OPT_LAYERS, 1, 128, &s.layers) ||
	    opt_count(args, OPT_EMBD, 64, 4096, &s.embd) ||
	    opt_count(args, OPT_VOCAB, 2, 1 << 20, &s.vocab))
		return EXIT_ERROR;
	s.seed = seed;
	s.text = args->value[OPT_TEXT];
	if (s.text && s.vocab < MODEL_TEXT_VOCAB)
		return fail("--text needs --vocab of at least %d",
			    MODEL_TEXT_VOCAB);
	s.ff = 3 * s.embd;
	if (s.embd % 128)
		s.heads_kv = 1;
	err = model_write(args->pos, &s, &bytes);
	if (err == -EINVAL)
		return fail("--embd: %u is not a multiple of 64", s.embd);
	if (err)
		return fail("can't write %s: %s", args->pos, strerror(-err));
	if (args->value[OPT_JSON])
		printf("{\"bytes\": %llu}\n", (unsigned long long)bytes);
	else
		printf("%s: %s\n", args->pos, size_text(bytes, text));
	return 0;
}

static const struct opt model_opts[] = {
	{ OPT_SEED, "seed", "N", "of the weights (default 1)" },
	{ OPT_LAYERS, "layers", "N", "layers (default 4)" },
	{ OPT_EMBD, "embd", "N",
	  "numbers of a token, a multiple of 64 (default 128)" },
	{ OPT_VOCAB, "vocab", "N", "tokens that there are (default 1000)" },
	{ OPT_TEXT, "text", NULL,
	  "with a vocabulary, so that prompts may be text" },
	{ 0, NULL, NULL, NULL },
};

static const struct opt *const model_tables[] = { model_opts, NULL };

const struct command cmd_model = {
	.name = "model",
	.pos = "FILE",
	.summary = "Make a model of random weights.",
	.details = "The file is a GGUF that llama.cpp loads.  What such a "
		   "model says means nothing, but computing it and its state "
		   "are like a real one's.  The same options make the same "
		   "file, to the last byte.",
	.opts = model_tables,
	.run = model_run,
};

static const struct command *find(const char *name)
{
	for (const struct command *const *c = commands; *c; c++)
		if (!strcmp((*c)->name, name))
			return *c;
	return NULL;
}

static int run(const struct command *cmd, const struct args *args)
{
	if (args->value[OPT_VERSION]) {
		printf("kvmm-llama %s, library %s\n", KVMM_VERSION,
		       kvmm_version());
		return 0;
	}
	if (args->value[OPT_HELP]) {
		options_help(cmd, commands);
		return 0;
	}
	if (!cmd)
		return fail("a command is missing; see kvmm-llama --help");
	if (*cmd->pos && !args->pos)
		return fail("%s is missing; see kvmm-llama %s --help", cmd->pos,
			    cmd->name);
	catch_signals();
	return cmd->run(args);
}

int main(int argc, char **argv)
{
	const struct command *cmd = NULL;
	struct args args = { 0 };
	int ret, at;

	std_hold();
	at = options_parse(NULL, argc, argv, &args);
	if (at < 0)
		return EXIT_ERROR;
	if (at < argc && !strcmp(argv[at], "help")) {
		args.value[OPT_HELP] = "";
		at++;
	}
	if (at < argc) {
		cmd = find(argv[at]);
		if (!cmd)
			return fail("unknown command '%s'; see kvmm-llama --help",
				    argv[at]);
		snprintf(speaker, sizeof(speaker), "kvmm-llama %s", cmd->name);
		/* the command's word stands where getopt expects the program */
		argc -= at;
		argv += at;
		at = options_parse(cmd, argc, argv, &args);
		if (at < 0)
			return EXIT_ERROR;
		if (at < argc && *cmd->pos)
			args.pos = argv[at++];
		if (at < argc)
			return fail("too many arguments: '%s'; see kvmm-llama %s --help",
				    argv[at], cmd->name);
	}
	ret = run(cmd, &args);
	if (fflush(stdout) || ferror(stdout))
		ret = fail("can't write the output: %s", strerror(errno));
	if (seen && ret) {
		/* those who wait for us shall see what ended us */
		signal(seen, SIG_DFL);
		raise(seen);
	}
	return ret;
}
