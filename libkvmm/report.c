// SPDX-License-Identifier: MIT
/*
 * The core found itself in a state that can't be.
 *
 * From here on it might hand out a frame that is someone else's, and a wrong
 * byte in a key/value cache is a wrong answer of the model that nobody notices.
 * A cache can be rebuilt, so the process ends instead.
 */
#include <core/types.h>

#include <stdio.h>
#include <stdlib.h>

/* Weak: a program that links the static library may have its own. */
__attribute__((weak)) void kvmm_core_report(const char *file, int line,
					    const char *what)
{
	fprintf(stderr, "kvmm: %s:%d: impossible: %s\n", file, line, what);
	abort();
}
