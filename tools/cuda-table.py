#!/usr/bin/env python3
"""cuda-table.py OUT NAMES API_H SOURCE...: every symbol of libcuda.so.1, from what the sources define.

What no source defines (with a line that starts `EXPORT CUresult cuName(`) answers CUDA_ERROR_NOT_SUPPORTED; the forms
for a thread's own default stream (_ptsz, _ptds) are wrappers around the plain ones. The rest of OUT is the table in
which entry_find() looks. `cuda-table.py --doc FOLDER` writes docs/cuda-api.md from the same facts to its output;
`--check FOLDER` compares it with the one that is there.
"""
import glob
import os
import re
import sys
import textwrap

PER_THREAD = re.compile(r"_pt(sz|ds)$")
DEFINED = re.compile(r"^EXPORT CUresult (cu\w+)\(", re.M)
SIGNATURE = re.compile(r"^CUresult (cu\w+)\(([^;]*)\);", re.M)

HEAD = """/* Made by tools/cuda-table.py: every symbol by name. */
#include <string.h>

#include "soft/cuda/core.h"

/* Functions that only answer use no parameter; the table holds functions as objects, as dlsym does. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
"""

FIND = """
const struct entry *entry_find(const char *name)
{
	size_t low = 0, high = sizeof(entries) / sizeof(*entries);

	while (low < high) {
		size_t middle = (low + high) / 2;
		int order = strcmp(name, entries[middle].name);

		if (!order)
			return &entries[middle];
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}
"""


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Api:
    """What there is (names, signatures) and what we have of it (defined, wrapped; the rest is missing)."""

    def __init__(self, names, header, sources):
        self.names = sorted(read(names).split())  # by bytes, as strcmp orders them
        self.signatures = {}
        for name, parameters in SIGNATURE.findall(read(header)):
            types = re.sub(r"\s+", " ", parameters)
            self.signatures[name] = [] if types == "void" else [kind.strip() for kind in types.split(",")]
        self.defined = {name for source in sources for name in DEFINED.findall(read(source))}
        self.wrapped = {name for name in self.names
                        if name not in self.defined and PER_THREAD.search(name)
                        and PER_THREAD.sub("", name) in self.defined}

    def is_missing(self, name):
        return name not in self.defined and name not in self.wrapped

    def heading(self, name):
        kinds = self.signatures.get(name, [])
        return f"EXPORT CUresult {name}({', '.join(f'{kind} a{i}' for i, kind in enumerate(kinds)) or 'void'})"

    def arguments(self, name):
        return ", ".join(f"a{i}" for i in range(len(self.signatures.get(name, []))))


def table(api):
    out = [HEAD]
    for name in api.names:
        if name not in api.signatures:  # in another header: cuProfiler*
            out.append(f"CUresult {name}(void);")
    for name in api.names:
        if api.is_missing(name):
            out.append(f"{api.heading(name)}\n{{\n\treturn CUDA_ERROR_NOT_SUPPORTED;\n}}\n")
    for name in sorted(api.wrapped):
        plain = PER_THREAD.sub("", name)
        out.append(f"{api.heading(name)}\n{{\n\tbool before = default_is_per_thread;\n\tCUresult result;\n\n"
                   f"\tdefault_is_per_thread = true;\n\tresult = {plain}({api.arguments(plain)});\n"
                   "\tdefault_is_per_thread = before;\n\treturn result;\n}\n")
    out.append("static const struct entry entries[] = {")
    for name in api.names:
        out.append(f'\t{{ "{name}", (void *){name}, {str(api.is_missing(name)).lower()} }},')
    out.append("};\n" + FIND)
    return "\n".join(out)


def listing(names):
    """A paragraph for each area, which is the first word after cu."""
    areas = {}
    for name in names:
        areas.setdefault(re.match(r"cu([A-Z][a-z0-9]*)", name).group(1), []).append(f"`{name}`")
    return "\n\n".join(textwrap.fill(f"**{area}**: " + ", ".join(found), 100) for area, found in sorted(areas.items()))


def document(api):
    """Forms for a thread's own default stream are as good as their plain ones: they are counted, not listed."""
    plain = [name for name in api.names if not PER_THREAD.search(name)]
    have = [name for name in plain if not api.is_missing(name)]
    lack = [name for name in plain if api.is_missing(name)]
    per_thread = [name for name in api.names if PER_THREAD.search(name)]
    served = [name for name in per_thread if not api.is_missing(name)]
    return f"""# The CUDA driver API on the software GPU

`libcuda.so.1` of the software GPU exports all {len(api.names)} symbols of the real library of CUDA 13.0.

| symbols | all | work | return `CUDA_ERROR_NOT_SUPPORTED` |
| --- | ---: | ---: | ---: |
| functions | {len(plain)} | {len(have)} | {len(lack)} |
| forms for the per-thread default stream (`_ptsz`, `_ptds`) | {len(per_thread)} | {len(served)} | {len(per_thread) - len(served)} |

A form for the per-thread default stream works if its plain form works; the lists below name plain
forms only. A function without `_v2` that is not supported, beside one with `_v2` that works, is an
older form, in most cases from before CUDA 3.2 with 32-bit addresses. No current header uses it.

`tools/cuda-table.py --doc src/soft/cuda` generates this file.

## Functions that work

{listing(have)}

## Functions that return CUDA_ERROR_NOT_SUPPORTED

{listing(lack)}
"""


def from_folder(folder):
    api = os.path.join(folder, "../../cuda")
    return Api(os.path.join(api, "names.txt"), os.path.join(api, "api.h"),
               glob.glob(os.path.join(folder, "*.c")))


def main():
    if sys.argv[1] == "--doc":
        sys.stdout.write(document(from_folder(sys.argv[2])))
    elif sys.argv[1] == "--check":
        folder = sys.argv[2]
        checked_in = os.path.join(folder, "../../../docs/cuda-api.md")
        if not os.path.exists(checked_in) or read(checked_in) != document(from_folder(folder)):
            sys.exit("docs/cuda-api.md is not up to date: put the output of `tools/cuda-table.py --doc src/soft/cuda` there")
    else:
        out, names, header, *sources = sys.argv[1:]
        with open(out, "w", encoding="utf-8") as file:
            file.write(table(Api(names, header, sources)))


main()
