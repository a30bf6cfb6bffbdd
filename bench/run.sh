#!/bin/bash
# SPDX-License-Identifier: MIT
# What `make bench` calls: every measurement. run.sh [name…] for some of them.
exec "$(cd "$(dirname "$0")" && pwd)/all.sh" "$@"
