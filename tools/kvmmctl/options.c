// SPDX-License-Identifier: MIT
/*
 * Command lines: the global options, parsing by a command's table, and the
 * text of --help, which is made from the same tables.
 */
#include "kvmmctl.h"
#include "size.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPTS	40

static const struct opt global_opts[] = {
	{ OPT_BACKEND, "backend", "auto|kernel|user",
	  "where pools live: in /dev/kvmm, in this process, or (auto) in "
	  "/dev/kvmm where it can be opened, else in this process" },
	{ OPT_DEVICE, "device", "PATH", "the device (default /dev/kvmm)" },
	{ OPT_JSON, "json", NULL, "print JSON" },
	{ OPT_HELP, "help", NULL, "print this text" },
	{ OPT_VERSION, "version", NULL, "print the version" },
	{ 0, NULL, NULL, NULL },
};

static const char *const policies[] = {
	[KVMM_POLICY_LRU] = "lru",
};

static const char *opt_name(const struct opt *opts, enum opt_id id)
{
	for (; opts && opts->name; opts++)
		if (opts->id == id)
			return opts->name;
	return NULL;
}

/* Names are the same wherever an option occurs. */
static const char *any_opt_name(enum opt_id id)
{
	static const struct command *const all[] = {
		&cmd_pool_create, &cmd_pool_populate, &cmd_pool_events,
		&cmd_pool_destroy,
		&cmd_stat, &cmd_replay, &cmd_demo,
	};
	const char *name = opt_name(global_opts, id);

	for (size_t i = 0; !name && i < ARRAY_SIZE(all); i++)
		name = opt_name(all[i]->opts, id);
	return name ? name : "?";
}

static unsigned int collect(const struct opt *opts, const struct opt **known,
			    struct option *longs, unsigned int n)
{
	for (; opts && opts->name && n < MAX_OPTS; opts++, n++) {
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

	/* a single letter that is unknown leaves optind where it was */
	if (optopt > 0 && optopt < 256)
		text = name;
	if (what == ':')
		return fail("%s needs a value; see kvmmctl%s%s --help", text,
			    sep, help);
	if (optopt >= 256)
		return fail("%s takes no value; see kvmmctl%s%s --help", text,
			    sep, help);
	return fail("unknown option %s; see kvmmctl%s%s --help", text, sep,
		    help);
}

int options_parse(const struct command *cmd, int argc, char **argv,
		  struct args *out)
{
	const struct opt *known[MAX_OPTS];
	struct option longs[MAX_OPTS + 1];
	unsigned int n;
	int c;

	n = collect(global_opts, known, longs, 0);
	if (cmd)
		n = collect(cmd->opts, known, longs, n);
	memset(&longs[n], 0, sizeof(longs[n]));
	opterr = 0;
	optind = 0;
	while ((c = getopt_long(argc, argv, cmd ? ":hV" : "+:hV", longs,
				NULL)) != -1) {
		if (c == 'h') {
			out->value[OPT_HELP] = "";
		} else if (c == 'V') {
			out->value[OPT_VERSION] = "";
		} else if (c >= 256) {
			const struct opt *o = known[c - 256];

			out->value[o->id] = o->arg ? optarg : "";
		} else {
			return bad_option(cmd, argv, c);
		}
	}
	out->pos = argv + optind;
	out->nr_pos = argc - optind;
	return 0;
}

/* Print @text from column @at on, lines of at most 79 columns. */
static void wrap(const char *text, int at)
{
	int col = at;

	while (*text) {
		size_t len = strcspn(text, "\n ");

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
		if (*text == '\n') {
			printf("\n%*s", at, "");
			col = at;
			text++;
		}
		text += strspn(text, " ");
	}
	putchar('\n');
}

static void help_opts(const struct opt *opts)
{
	for (; opts && opts->name; opts++) {
		int col = printf("  --%s%s%s", opts->name, opts->arg ? " " : "",
				 opts->arg ? opts->arg : "");

		if (col > 24)
			printf("\n%*s", 26, "");
		else
			printf("%*s", 26 - col, "");
		wrap(opts->help, 26);
	}
}

/* The commands whose names begin with @group and a space; NULL: all. */
static void help_commands(const char *group, const struct command *const *all)
{
	size_t len = group ? strlen(group) : 0;

	for (; *all; all++) {
		int col;

		if (len && (strncmp((*all)->name, group, len) ||
			    (*all)->name[len] != ' '))
			continue;
		col = printf("  %s%s%s", (*all)->name, *(*all)->pos ? " " : "",
			     (*all)->pos);
		printf("%*s", col < 26 ? 26 - col : 1, "");
		wrap((*all)->summary, 26);
	}
}

/* The end of every help. */
static void help_common(void)
{
	puts("\nOptions of every command:");
	help_opts(global_opts);
	putchar('\n');
	wrap("Sizes: K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024; "
	     "KB, MB, GB, TB are powers of 1000.  Exit status: 0 fine; 1 an "
	     "error; 2 wrong bytes were read back.", 0);
}

void options_help_group(const char *group, const struct command *const *all)
{
	printf("usage: kvmmctl %s COMMAND [OPTION...]\n\n", group);
	puts("Commands; each has a --help of its own:");
	help_commands(group, all);
	help_common();
}

void options_help(const struct command *cmd, const struct command *const *all)
{
	if (!cmd) {
		puts("usage: kvmmctl [OPTION...] COMMAND [OPTION...]\n\n"
		     "Create, watch and try pools of KV blocks.\n\n"
		     "Commands; each has a --help of its own:");
		help_commands(NULL, all);
	} else {
		printf("usage: kvmmctl %s%s%s [OPTION...]\n\n", cmd->name,
		       *cmd->pos ? " " : "", cmd->pos);
		wrap(cmd->summary, 0);
		if (cmd->details) {
			putchar('\n');
			wrap(cmd->details, 0);
		}
		if (cmd->opts && cmd->opts->name) {
			puts("\nOptions:");
			help_opts(cmd->opts);
		}
	}
	help_common();
}

int opt_count(const struct args *args, enum opt_id id, uint64_t min,
	      uint64_t max, uint64_t *value)
{
	const char *text = args->value[id], *name = any_opt_name(id), *why;
	char num[SIZE_TEXT];
	uint64_t v = 0;

	if (!text)
		return 0;
	why = count_parse(text, &v);
	if (why)
		return fail("--%s: '%s' %s", name, text, why);
	if (v < min)
		return fail("--%s: %s is too small, the least is %s", name,
			    text, count_text(min, num));
	if (v > max)
		return fail("--%s: %s is too large, the most is %s", name,
			    text, count_text(max, num));
	*value = v;
	return 0;
}

int opt_size(const struct args *args, enum opt_id id, uint64_t min,
	     uint64_t max, uint64_t *value)
{
	const char *text = args->value[id], *name = any_opt_name(id), *why;
	char size[SIZE_TEXT];
	uint64_t v = 0;

	if (!text)
		return 0;
	why = size_parse(text, &v);
	if (why)
		return fail("--%s: '%s' %s", name, text, why);
	if (v < min)
		return fail("--%s: %s is too small, the least is %s", name,
			    text, size_text(min, size));
	if (v > max)
		return fail("--%s: %s is too large, the most is %s", name,
			    text, size_text(max, size));
	*value = v;
	return 0;
}

int opt_block_size(const struct args *args, uint64_t *value)
{
	if (opt_size(args, OPT_BLOCK_SIZE, KVMM_MIN_BLOCK_SIZE,
		     KVMM_MAX_BLOCK_SIZE, value))
		return EXIT_ERROR;
	if (*value & (*value - 1))
		return fail("--block-size: %s is not a power of two",
			    args->value[OPT_BLOCK_SIZE]);
	return 0;
}

const char *policy_name(unsigned int policy)
{
	if (policy < ARRAY_SIZE(policies))
		return policies[policy];
	return "unknown";
}

int opt_policy(const struct args *args, unsigned int *policy)
{
	const char *text = args->value[OPT_POLICY];

	if (!text)
		return 0;
	for (unsigned int i = 0; i < ARRAY_SIZE(policies); i++) {
		if (!strcmp(text, policies[i])) {
			*policy = i;
			return 0;
		}
	}
	return fail("--policy: '%s' is unknown; there is: lru", text);
}
