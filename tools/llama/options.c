// SPDX-License-Identifier: MIT
/*
 * Command lines: parsing by a command's tables, and the text of --help, which
 * is made from the same tables.
 */
#include "app.h"
#include "../kvmmctl/size.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define MAX_OPTS	40

static const struct opt global_opts[] = {
	{ OPT_JSON, "json", NULL, "print JSON" },
	{ OPT_HELP, "help", NULL, "print this text" },
	{ OPT_VERSION, "version", NULL, "print the version" },
	{ 0, NULL, NULL, NULL },
};

const struct opt engine_options[] = {
	{ OPT_MODEL, "model", "FILE", "the model, a GGUF file; must be given" },
	{ OPT_SLOTS, "slots", "N",
	  "sequences that the engine has at once (default 4)" },
	{ OPT_CONTEXT, "context", "N",
	  "tokens that a sequence has room for (default 2048)" },
	{ OPT_BLOCK_TOKENS, "block-tokens", "N",
	  "tokens that are computed in one go, and kept or lost together "
	  "(default 64)" },
	{ OPT_THREADS, "threads", "N",
	  "threads for computing (default: one for each CPU, at most 8)" },
	{ OPT_BACKENDS, "ggml-backends", "DIR",
	  "where ggml's backends are (default: where it was built to look)" },
	{ OPT_VERBOSE, "verbose", NULL, "show the messages of libllama" },
	{ 0, NULL, NULL, NULL },
};

const struct opt store_options[] = {
	{ OPT_NO_KVMM, "no-kvmm", NULL,
	  "compute again what has lost its sequence" },
	{ OPT_BACKEND, "backend", "auto|kernel|user",
	  "where the pool lives: in /dev/kvmm, in this process, or (auto) in "
	  "/dev/kvmm where it can be opened, else in this process" },
	{ OPT_DEVICE, "device", "PATH", "the device (default /dev/kvmm)" },
	{ OPT_POOL, "pool", "NAME",
	  "the pool; one of the kernel's that exists is used as it is, else it "
	  "is made (default kvmm-llama)" },
	{ OPT_MEMORY, "memory", "SIZE", "memory of a pool that is made" },
	{ OPT_DISK, "disk", "SIZE", "size of its swap area" },
	{ OPT_SWAP, "swap", "FILE",
	  "the swap area: a file, made anew, or a block device; without it a "
	  "file without a name in $TMPDIR or /var/tmp" },
	{ OPT_BLOCK_SIZE, "block-size", "SIZE",
	  "bytes of a block, a power of two from 4K to 256M (default: such "
	  "that little is left empty)" },
	{ OPT_TENANT, "tenant", "NAME",
	  "share nothing with other tenants of the pool" },
	{ 0, NULL, NULL, NULL },
};

static unsigned int collect(const struct opt *opts, const struct opt **known,
			    struct option *longs, unsigned int n)
{
	for (; opts->name && n < MAX_OPTS; opts++, n++) {
		known[n] = opts;
		longs[n] = (struct option){
			.name = opts->name,
			.has_arg = opts->arg ? required_argument : no_argument,
			.val = 256 + (int)n,
		};
	}
	return n;
}

/* The option as it was written: getopt leaves only where it stands. */
static int bad_option(const struct command *cmd, char **argv, int what)
{
	const char *help = cmd ? cmd->name : "";
	const char *sep = cmd ? " " : "";
	char name[3] = { '-', (char)optopt, 0 };
	const char *text = argv[optind - 1];

	if (optopt > 0 && optopt < 256)
		text = name;
	if (what == ':')
		fail("%s needs a value; see kvmm-llama%s%s --help", text, sep,
		     help);
	else if (optopt >= 256)
		fail("%s takes no value; see kvmm-llama%s%s --help", text, sep,
		     help);
	else
		fail("unknown option %s; see kvmm-llama%s%s --help", text, sep,
		     help);
	return -1;
}

int options_parse(const struct command *cmd, int argc, char **argv,
		  struct args *out)
{
	const struct opt *known[MAX_OPTS];
	struct option longs[MAX_OPTS + 1];
	unsigned int n, i;
	int c;

	n = collect(global_opts, known, longs, 0);
	for (i = 0; cmd && cmd->opts[i]; i++)
		n = collect(cmd->opts[i], known, longs, n);
	memset(&longs[n], 0, sizeof(longs[n]));
	opterr = 0;
	optind = 0;
	while ((c = getopt_long(argc, argv, cmd ? ":h" : "+:h", longs,
				NULL)) != -1) {
		if (c == 'h')
			out->value[OPT_HELP] = "";
		else if (c >= 256)
			out->value[known[c - 256]->id] =
				known[c - 256]->arg ? optarg : "";
		else
			return bad_option(cmd, argv, c);
	}
	return optind;
}

/* Print @text from column @at on, lines of at most 79 columns. */
static void wrap(const char *text, int at)
{
	int col = at;

	while (*text) {
		size_t len = strcspn(text, " ");

		if (col > at && col + 1 + (int)len > 79) {
			printf("\n%*s", at, "");
			col = at;
		} else if (col > at) {
			putchar(' ');
			col++;
		}
		printf("%.*s", (int)len, text);
		col += (int)len;
		text += len;
		text += strspn(text, " ");
	}
	putchar('\n');
}

static void help_opts(const struct opt *opts)
{
	for (; opts->name; opts++) {
		int col = printf("  --%s%s%s", opts->name, opts->arg ? " " : "",
				 opts->arg ? opts->arg : "");

		if (col > 24)
			printf("\n%*s", 26, "");
		else
			printf("%*s", 26 - col, "");
		wrap(opts->help, 26);
	}
}

void options_help(const struct command *cmd, const struct command *const *all)
{
	unsigned int i;

	if (!cmd) {
		puts("usage: kvmm-llama COMMAND [OPTION...]\n\n"
		     "Serve conversations with llama.cpp, their KV blocks kept by kvmm.\n\n"
		     "Commands; each has a --help of its own:");
		for (; *all; all++) {
			int col = printf("  %s%s%s", (*all)->name,
					 *(*all)->pos ? " " : "", (*all)->pos);

			printf("%*s", col < 26 ? 26 - col : 1, "");
			wrap((*all)->summary, 26);
		}
	} else {
		printf("usage: kvmm-llama %s%s%s [OPTION...]\n\n", cmd->name,
		       *cmd->pos ? " " : "", cmd->pos);
		wrap(cmd->summary, 0);
		putchar('\n');
		wrap(cmd->details, 0);
		puts("\nOptions:");
		for (i = 0; cmd->opts[i]; i++)
			help_opts(cmd->opts[i]);
	}
	puts("\nOptions of every command:");
	help_opts(global_opts);
	putchar('\n');
	wrap("Sizes: K, M, G, T are powers of 1024.  Exit status: 0 fine; 1 an "
	     "error; 2 an answer was another one with kvmm than without.", 0);
}

static const char *const names[OPT_NR] = {
	[OPT_SLOTS] = "slots",
	[OPT_CONTEXT] = "context",
	[OPT_BLOCK_TOKENS] = "block-tokens",
	[OPT_THREADS] = "threads",
	[OPT_BLOCK_SIZE] = "block-size",
	[OPT_MEMORY] = "memory",
	[OPT_DISK] = "disk",
	[OPT_CONVERSATIONS] = "conversations",
	[OPT_TURNS] = "turns",
	[OPT_PROMPTS] = "prompts",
	[OPT_PROMPT_TOKENS] = "prompt-tokens",
	[OPT_USER_TOKENS] = "user-tokens",
	[OPT_PREDICT] = "predict",
	[OPT_ROUNDS] = "rounds",
	[OPT_SEED] = "seed",
	[OPT_LAYERS] = "layers",
	[OPT_EMBD] = "embd",
	[OPT_VOCAB] = "vocab",
};

int opt_count(const struct args *args, enum opt_id id, uint64_t min,
	      uint64_t max, unsigned int *value)
{
	const char *text = args->value[id], *why;
	char num[SIZE_TEXT];
	uint64_t v = 0;

	if (!text)
		return 0;
	why = count_parse(text, &v);
	if (why)
		return fail("--%s: '%s' %s", names[id], text, why);
	if (v < min)
		return fail("--%s: %s is too small, the least is %s", names[id],
			    text, count_text(min, num));
	if (v > max)
		return fail("--%s: %s is too large, the most is %s", names[id],
			    text, count_text(max, num));
	*value = (unsigned int)v;
	return 0;
}

int opt_size(const struct args *args, enum opt_id id, uint64_t min,
	     uint64_t max, uint64_t *value)
{
	const char *text = args->value[id], *why;
	char num[SIZE_TEXT];
	uint64_t v = 0;

	if (!text)
		return 0;
	why = size_parse(text, &v);
	if (why)
		return fail("--%s: '%s' %s", names[id], text, why);
	if (v < min)
		return fail("--%s: %s is too small, the least is %s", names[id],
			    text, size_text(min, num));
	if (v > max)
		return fail("--%s: %s is too large, the most is %s", names[id],
			    text, size_text(max, num));
	*value = v;
	return 0;
}
