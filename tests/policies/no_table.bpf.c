/* SPDX-License-Identifier: MIT */
#include "by_hand.h"
