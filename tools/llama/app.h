/* SPDX-License-Identifier: MIT */
/*
 * What the files of the program share: options as parsed, and how errors are
 * told.  Exit status: 0 fine; 1 an error, told in a sentence on stderr; 2 an
 * answer was another one with kvmm than without.
 */
#ifndef KVMM_LLAMA_APP_H
#define KVMM_LLAMA_APP_H

#include "engine.h"
#include "server.h"
#include "store.h"

#include <stdbool.h>
#include <stdint.h>

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

#define EXIT_ERROR	1
#define EXIT_DIFFERENT	2

/* Every option of every command; a command's table says which it takes. */
enum opt_id {
	OPT_JSON,
	OPT_HELP,
	OPT_VERSION,
	OPT_MODEL,
	OPT_BACKENDS,
	OPT_SLOTS,
	OPT_CONTEXT,
	OPT_BLOCK_TOKENS,
	OPT_THREADS,
	OPT_VERBOSE,
	OPT_BACKEND,
	OPT_DEVICE,
	OPT_POOL,
	OPT_BLOCK_SIZE,
	OPT_MEMORY,
	OPT_DISK,
	OPT_SWAP,
	OPT_TENANT,
	OPT_NO_KVMM,
	OPT_CONVERSATIONS,
	OPT_TURNS,
	OPT_PROMPTS,
	OPT_PROMPT_TOKENS,
	OPT_USER_TOKENS,
	OPT_PREDICT,
	OPT_ROUNDS,
	OPT_RECORD,
	OPT_SEED,
	OPT_LAYERS,
	OPT_EMBD,
	OPT_VOCAB,
	OPT_TEXT,
	OPT_NR,
};

/**
 * struct opt - one option
 * @id: what it is
 * @name: without the dashes; NULL ends a table
 * @arg: name of its argument, NULL: a flag
 * @help: what it does
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
 * @pos: the argument that is no option, or NULL
 */
struct args {
	const char *value[OPT_NR];
	const char *pos;
};

/**
 * struct command - one command
 * @name: its word
 * @pos: name of its argument, "" where it has none
 * @summary: one line
 * @details: for --help
 * @opts: tables of options, ended by NULL
 * @run: returns the exit status
 */
struct command {
	const char *name;
	const char *pos;
	const char *summary;
	const char *details;
	const struct opt *const *opts;
	int (*run)(const struct args *args);
};

extern const struct command cmd_compare, cmd_serve, cmd_model;

/* Tables that several commands have. */
extern const struct opt engine_options[], store_options[];

/* main.c */

/** fail() - tell an error in a sentence; returns EXIT_ERROR */
int fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/** note() - tell something on stderr that is no error */
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/** signal_seen() - number of the signal that asks to stop, or 0 */
int signal_seen(void);

/* options.c */

/**
 * options_parse() - take a command line apart
 * @cmd: NULL: only what stands before a command
 *
 * Return: index of the first argument that was not used up, or -1 after
 * telling what is wrong.
 */
int options_parse(const struct command *cmd, int argc, char **argv,
		  struct args *out);

/** options_help() - print what --help shows; @cmd NULL: of the program */
void options_help(const struct command *cmd, const struct command *const *all);

/**
 * opt_count() - value of a count
 * @value: left alone where the option is not given
 *
 * Return: 0, or EXIT_ERROR after telling what is wrong; so below.
 */
int opt_count(const struct args *args, enum opt_id id, uint64_t min,
	      uint64_t max, unsigned int *value);

/** opt_size() - value of a size, bytes */
int opt_size(const struct args *args, enum opt_id id, uint64_t min,
	     uint64_t max, uint64_t *value);

/* setup.c */

/**
 * setup_engine() - what the command line says of the engine, opened
 * @defaults: where an option is not given
 */
int setup_engine(const struct args *args, const struct engine_opts *defaults,
		 struct engine **e);

/** setup_store() - the same of the store; @memory, @disk: defaults, bytes */
int setup_store(const struct args *args, const struct engine *e,
		const char *pool, uint64_t memory, uint64_t disk,
		struct store **st);

#endif /* KVMM_LLAMA_APP_H */
