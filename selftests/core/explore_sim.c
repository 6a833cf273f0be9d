// SPDX-License-Identifier: MIT
/*
 * The model of sim.h for tiny pools; see explore.h.
 */
#include "explore.h"

#include "sim.c"
#include "sim_block.c"
#include "sim_check.c"
#include "sim_client.c"
#include "sim_elastic.c"
#include "sim_move.c"
