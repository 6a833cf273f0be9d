// SPDX-License-Identifier: MIT
/*
 * Hooks that the pool's events call.
 */
#include "engine.h"

int hooks_start(struct kvmm_engine *eng)
{
	(void)eng;
	return 0;
}

void hooks_stop(struct kvmm_engine *eng)
{
	(void)eng;
}
