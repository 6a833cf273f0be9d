// SPDX-License-Identifier: MIT
/*
 * kvmmctl: create, watch and try pools of KV blocks.  This file finds the
 * command and owns what belongs to the whole process: errors and signals.
 */
#include "kvmmctl.h"
#include "std.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const struct command *const commands[] = {
	&cmd_pool_create, &cmd_pool_list, &cmd_pool_show, &cmd_pool_populate,
	&cmd_pool_events, &cmd_pool_destroy, &cmd_stat, &cmd_replay, &cmd_demo, NULL,
};

static char speaker[64] = "kvmmctl";
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

/*
 * The first SIGINT or SIGTERM asks to stop, so that pools and files go; the
 * second one ends the process as usual.
 */
static void catch_signals(void)
{
	struct sigaction sa = {
		.sa_handler = on_signal,
		.sa_flags = (int)SA_RESETHAND,
	};

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	/* a file beyond RLIMIT_FSIZE is an error, not a reason to die */
	signal(SIGXFSZ, SIG_IGN);
}

/* What was printed is only said when it could be written. */
static int flushed(int ret)
{
	if (fflush(stdout) || ferror(stdout))
		return fail("can't write the output: %s", strerror(errno));
	return ret;
}

/* Which command do the words at @argv name; @words: how many they are. */
static const struct command *find(char **argv, int argc, int *words)
{
	for (const struct command *const *c = commands; *c; c++) {
		const char *space = strchr((*c)->name, ' ');
		size_t len = space ? (size_t)(space - (*c)->name)
				   : strlen((*c)->name);

		if (strlen(argv[0]) != len ||
		    strncmp(argv[0], (*c)->name, len))
			continue;
		if (!space) {
			*words = 1;
			return *c;
		}
		if (argc > 1 && !strcmp(argv[1], space + 1)) {
			*words = 2;
			return *c;
		}
	}
	return NULL;
}

/*
 * Words that are no command: `pool` alone, which has commands of its own and so
 * a help of its own, and mistakes.
 */
static int not_found(const struct args *args)
{
	char **words = args->pos;
	const char *next = args->nr_pos > 1 ? words[1] : NULL;

	if (strcmp(words[0], "pool"))
		return fail("unknown command '%s'; see kvmmctl --help",
			    words[0]);
	if (next ? !strcmp(next, "--help") || !strcmp(next, "-h") ||
		   !strcmp(next, "help") : !!args->value[OPT_HELP]) {
		options_help_group("pool", commands);
		return flushed(0);
	}
	if (!next)
		return fail("pool needs one of: create, list, show, "
			    "populate, events, destroy");
	return fail("unknown command 'pool %s'; there are: pool create, list, "
		    "show, populate, events, destroy", next);
}

static int set_backend(struct ctx *ctx, const char *name)
{
	static const char *const names[] = {
		[KVMM_BACKEND_AUTO] = "auto",
		[KVMM_BACKEND_KERNEL] = "kernel",
		[KVMM_BACKEND_USER] = "user",
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++) {
		if (!strcmp(name, names[i])) {
			ctx->backend = (enum kvmm_backend)i;
			return 0;
		}
	}
	return fail("--backend: '%s' is unknown; there are: auto, kernel, user",
		    name);
}

static int run(struct ctx *ctx, const struct args *args)
{
	int ret;

	if (args->value[OPT_VERSION]) {
		printf("kvmmctl %s, library %s\n", KVMM_VERSION,
		       kvmm_version());
		return 0;
	}
	if (args->value[OPT_HELP]) {
		options_help(ctx->cmd, commands);
		return 0;
	}
	if (!ctx->cmd)
		return fail("a command is missing; see kvmmctl --help");
	if (args->nr_pos < ctx->cmd->min_pos)
		return fail("%s is missing; see kvmmctl %s --help",
			    ctx->cmd->pos, ctx->cmd->name);
	if (args->nr_pos > ctx->cmd->max_pos)
		return fail("too many arguments: '%s'; see kvmmctl %s --help",
			    args->pos[ctx->cmd->max_pos], ctx->cmd->name);
	if (args->value[OPT_BACKEND] &&
	    set_backend(ctx, args->value[OPT_BACKEND]))
		return EXIT_ERROR;
	ctx->device = args->value[OPT_DEVICE];
	ctx->json = args->value[OPT_JSON];
	catch_signals();
	ret = ctx->cmd->run(ctx, args);
	kvmm_close(ctx->kv);
	return ret;
}

int main(int argc, char **argv)
{
	struct args args = { 0 };
	struct ctx ctx = { 0 };
	int ret, words;

	std_hold();
	if (options_parse(NULL, argc, argv, &args))
		return EXIT_ERROR;
	if (args.nr_pos && !strcmp(args.pos[0], "help")) {
		/* the same as --help; its word stands for the program's */
		args.value[OPT_HELP] = "";
		if (options_parse(NULL, args.nr_pos, args.pos, &args))
			return EXIT_ERROR;
	}
	if (args.nr_pos && !args.value[OPT_VERSION]) {
		ctx.cmd = find(args.pos, args.nr_pos, &words);
		if (!ctx.cmd)
			return not_found(&args);
		snprintf(speaker, sizeof(speaker), "kvmmctl %s", ctx.cmd->name);
		/* the last word stands where getopt expects the program */
		if (options_parse(ctx.cmd, args.nr_pos - (words - 1),
				  args.pos + (words - 1), &args))
			return EXIT_ERROR;
	}
	ret = flushed(run(&ctx, &args));
	if (seen && ret) {
		/* those who wait for us shall see what ended us */
		signal(seen, SIG_DFL);
		raise(seen);
	}
	return ret;
}
