/* SPDX-License-Identifier: MIT */
/*
 * What tests may ask of the stand-in libcuda beyond CUDA's own calls: find
 * these by dlsym in the same library (the types are those below).
 */
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include <stddef.h>

/**
 * fakecuda_reset() - forget everything and read the environment again
 *
 * All streams are drained first.  Return: what was leaked (see
 * fakecuda_leaks()).
 */
unsigned int fakecuda_reset(void);

/**
 * fakecuda_leaks() - live registrations, allocations, streams, events, modules
 * and context references; prints each kind to stderr where @say is set
 */
unsigned int fakecuda_leaks(int say);

/** fakecuda_violations() - uses that the real driver answers with a crash or
 * with silence: each was printed to stderr
 */
unsigned int fakecuda_violations(void);

/** fakecuda_calls() - how often an entry point was called since the reset */
unsigned int fakecuda_calls(const char *name);

/** fakecuda_failed() - did the injected failure happen */
int fakecuda_failed(void);

/** fakecuda_fail() - the @nth call from now on fails with @code, as by
 * FAKECUDA_FAIL, of which there are four at most
 */
void fakecuda_fail(const char *name, unsigned int nth, unsigned int code);

/** fakecuda_lose() - the device is lost: contexts run nothing any more, and
 * every call returns @code
 */
void fakecuda_lose(unsigned int code);

/** fakecuda_peek(), fakecuda_poke() - device memory, read or written at once,
 * past all streams; 0: it is device memory
 */
int fakecuda_peek(void *to, unsigned long long dev, size_t n);
int fakecuda_poke(unsigned long long dev, const void *from, size_t n);

/** fakecuda_hold() - the stream starts no operation until it is let go */
void fakecuda_hold(void *stream, int on);

#endif /* FAKECUDA_H */
