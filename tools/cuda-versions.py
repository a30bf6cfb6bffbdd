#!/usr/bin/env python3
"""cuda-versions.py CUDATYPEDEFS_H NAMES OUT: since which CUDA version each symbol of libcuda.so.1 exists.

cuGetProcAddress answers "cuMemAlloc as of 12.0" with cuMemAlloc_v2. Which version brought which symbol is told by the
names of the function types in NVIDIA's cudaTypedefs.h (PFN_cuMemAlloc_v3020): the n-th version of a function is its
n-th symbol. Run again, by hand, when a new CUDA version adds to the API; the build does not need it.
"""
import collections
import re
import sys

HEAD = """/* Since which CUDA version (1000 * major + 10 * minor) each symbol exists. Made by tools/cuda-versions.py. */
#include "soft/cuda/getproc.h"

const struct proc_version proc_versions[] = {
"""


def main():
    header, names, out = sys.argv[1:]
    with open(header, encoding="utf-8") as file:
        types = re.findall(r"\*\s*PFN_(cu\w+?)_v(\d+)(_pt\w\w)?\)", file.read())
    since = collections.defaultdict(set)
    for base, version, form in types:
        since[base, form].add(int(version))
    symbols = collections.defaultdict(list)
    with open(names, encoding="utf-8") as file:
        for name in file.read().split():
            base, number, form = re.match(r"(cu\w+?)(?:_v(\d+))?(_pt\w\w)?$", name).groups()
            symbols[base, form or ""].append((int(number or 1), name))
    rows = []
    for key, versions in symbols.items():
        known = sorted(since.get(key, [4000]))  # cuProfiler*: since 4.0, and in a header of its own
        if len(known) != len(versions):
            sys.exit(f"{key}: {len(versions)} symbols, {len(known)} versions")
        rows += [(name, year) for (_, name), year in zip(sorted(versions), known)]
    with open(out, "w", encoding="utf-8") as file:
        file.write(HEAD)
        for name, version in sorted(rows):
            file.write(f'\t{{ "{name}", {version} }},\n')
        file.write("};\nconst size_t proc_version_count = sizeof(proc_versions) / sizeof(*proc_versions);\n")


main()
