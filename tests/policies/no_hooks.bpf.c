/* SPDX-License-Identifier: MIT */
#include <belfry/policy.h>

BELFRY_POLICY("nothing", "it decides nothing");
