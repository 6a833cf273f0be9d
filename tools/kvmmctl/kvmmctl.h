/* SPDX-License-Identifier: MIT */
/*
 * What the files of kvmmctl share: the options of a command as parsed, how
 * errors are told, and how output is written.
 *
 * Exit status: 0 fine; 1 an error, told in a sentence on stderr; 2 a replay
 * read back wrong bytes.  kvmmctl has one thread of its own.
 */
#ifndef KVMMCTL_H
#define KVMMCTL_H

#include <kvmm.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

#define EXIT_ERROR	1
#define EXIT_CORRUPT	2

/* Every option of every command; a command's table says which it takes. */
enum opt_id {
	OPT_BACKEND,
	OPT_DEVICE,
	OPT_JSON,
	OPT_HELP,
	OPT_VERSION,
	OPT_BLOCK_SIZE,
	OPT_FRAMES,
	OPT_SLOTS,
	OPT_SWAP,
	OPT_NO_CHECKSUM,
	OPT_IO_TIMEOUT,
	OPT_POLICY,
	OPT_MODE,
	OPT_HOLDS,
	OPT_QUARANTINE,
	OPT_THREADS,
	OPT_POPULATE,
	OPT_CLEAN,
	OPT_ELASTIC,
	OPT_CHUNK,
	OPT_NODES,
	OPT_PREFER_NODES,
	OPT_ASYNC,
	OPT_WAIT,
	OPT_CANCEL,
	OPT_FORCE,
	OPT_TYPE,
	OPT_WATCH,
	OPT_COUNT,
	OPT_LIMIT,
	OPT_EXPIRY,
	OPT_MEMORY,
	OPT_DISK,
	OPT_SEED,
	OPT_NR,
};

/**
 * struct opt - one option
 * @id: what it is
 * @name: without the dashes; NULL ends a table
 * @arg: name of its argument, NULL: a flag
 * @help: what it does; lines are broken when printed
 */
struct opt {
	enum opt_id id;
	const char *name;
	const char *arg;
	const char *help;
};

/**
 * struct args - a command line, taken apart
 * @value: argument of each option, "" for a flag, NULL: not given
 * @pos: the rest
 * @nr_pos: entries of @pos
 */
struct args {
	const char *value[OPT_NR];
	char **pos;
	int nr_pos;
};

struct ctx;

/**
 * struct command - one command
 * @name: its words, "pool create"
 * @pos: names of its arguments as shown, "" where it has none
 * @min_pos: fewest arguments
 * @max_pos: most arguments
 * @summary: one line
 * @details: paragraphs for --help, may be NULL
 * @opts: options beside the global ones
 * @run: returns the exit status
 */
struct command {
	const char *name;
	const char *pos;
	int min_pos;
	int max_pos;
	const char *summary;
	const char *details;
	const struct opt *opts;
	int (*run)(struct ctx *ctx, const struct args *args);
};

/**
 * struct ctx - one run of kvmmctl
 * @cmd: the command
 * @backend: as asked for
 * @device: as given, may be NULL
 * @json: output is JSON
 * @kv: open after session_open()
 * @nr_logged: messages that the library had, from any thread
 */
struct ctx {
	const struct command *cmd;
	enum kvmm_backend backend;
	const char *device;
	bool json;
	struct kvmm *kv;
	atomic_uint nr_logged;
};

extern const struct command cmd_pool_create, cmd_pool_list, cmd_pool_show,
	cmd_pool_populate, cmd_pool_events, cmd_pool_destroy, cmd_stat,
	cmd_replay, cmd_demo;

/* main.c */

/** fail() - tell an error in a sentence; returns EXIT_ERROR */
int fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/** note() - tell something on stderr that is no error */
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/** signal_seen() - number of the signal that asks to stop, or 0 */
int signal_seen(void);

/* session.c */

/** session_open() - open @ctx->kv; 0 or EXIT_ERROR, told */
int session_open(struct ctx *ctx);

/**
 * session_open_kernel() - the same for what only the kernel backend has
 * @what: end of the sentence told where the user backend is asked for
 */
int session_open_kernel(struct ctx *ctx, const char *what);

/**
 * session_keep_errors() - errors of the library are kept from now on
 *
 * Who makes a sentence of an error knows more of what was asked for; there
 * shall be one sentence, not two.
 */
void session_keep_errors(void);

/** session_kept_error() - the last one, "" if there was none; no more are kept */
const char *session_kept_error(void);

/** device_name() - the device that the kernel backend opens */
const char *device_name(const struct ctx *ctx);

/* options.c */

/**
 * options_parse() - take a command line apart
 * @cmd: NULL: only global options, up to the first argument
 * @out: added to; options given before stay
 *
 * Return: 0, or EXIT_ERROR after telling what is wrong.
 */
int options_parse(const struct command *cmd, int argc, char **argv,
		  struct args *out);

/** options_help() - print what `--help` shows; @cmd NULL: of kvmmctl itself */
void options_help(const struct command *cmd, const struct command *const *all);

/** options_help_group() - the same of commands that have a first word in common */
void options_help_group(const char *group, const struct command *const *all);

/**
 * opt_count() - value of a count
 * @value: left alone where the option is not given
 *
 * Return: 0, or EXIT_ERROR after telling what is wrong; so below.
 */
int opt_count(const struct args *args, enum opt_id id, uint64_t min,
	      uint64_t max, uint64_t *value);

/** opt_size() - value of a size, bytes */
int opt_size(const struct args *args, enum opt_id id, uint64_t min,
	     uint64_t max, uint64_t *value);

/** opt_policy() - value of --policy */
int opt_policy(const struct args *args, unsigned int *policy);

/** opt_block_size() - value of --block-size: a power of two in the limits */
int opt_block_size(const struct args *args, uint64_t *value);

/** policy_name() - "lru" */
const char *policy_name(unsigned int policy);

#endif /* KVMMCTL_H */
