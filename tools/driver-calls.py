#!/usr/bin/env python3
"""driver-calls.py --doc | --check | --headers SERIES=FOLDER...: the tables of driver calls in src/rm.

--doc writes docs/driver-calls.md to its output; --check compares it with the one that is there. --headers compares sizes
and privileges with the source of the driver (open-gpu-kernel-modules), one folder for each series, for example
`--headers 570=/src/570 580=/src/580`; it needs a C compiler.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
SERIES = ("570", "580", "590", "595")
SETS = {
    "SERIES_570": "570", "SERIES_580": "580", "SERIES_590": "590", "SERIES_595": "595",
    "SERIES_TO_580": "570 580", "SERIES_TO_590": "570 580 590", "SERIES_580_590": "580 590",
    "SERIES_580_ON": "580 590 595", "SERIES_590_ON": "590 595", "SERIES_ALL": "570 580 590 595",
}
ENTRY = re.compile(
    r'^\t(CONTROL|IN|CLIENT|DESCRIPTOR|UNSIZED|REFUSED|POINTERS)\(((?:[^()"]|"[^"]*"|\([^()]*\))*)\),[ \t]*(?:/\*(.*?)\*/)?',
    re.M | re.S)
UVM = re.compile(r'^\t(?:\{ \{ (\d+), "(\w+)", RM_WAY_(\w+)|(?:\w+)\((?:SERIES_\w+, )?(\w+), (\w+),.*?"(\w+)"\))',
                 re.M)
FLAG_PRIVILEGED, FLAG_OPEN = 4, 8

HEAD = """# Driver calls that programs may make

Belfry performs every call to the NVIDIA driver on behalf of the program, on a copy of its
arguments. Calls that are not listed here are refused: a control with NOT_SUPPORTED, logged and
counted; another call with EINVAL. The tables are `src/rm/controls_*.c`, `src/rm/uvm.c` and `src/rm/decode.c`; the classes of objects are
in `src/rm/classes.c`. This file is made by `tools/driver-calls.py --doc`.

| way | meaning |
| --- | --- |
| copy | performed on a copy of its parameters |
| own | Belfry has a handler of its own: it answers, rewrites or checks |
| answered | answered "done" and not performed |
| refused | refused; the last column says why |

A *size* is that of the parameters in bytes, `?` where the public headers have none. Sizes differ
between driver series where several are given. `+n` after a size: the parameters hold n addresses of
further buffers. *Used by* names programs that were recorded on an H200 with driver 580.159.04
(cuda: CUDA programs and PyTorch; opencl: clinfo; nvml: nvidia-smi; debugger: compute-sanitizer;
profiler: Nsight Compute), and otherwise the kind of program that is known to need the call
(compute, graphics, video, mps). Controls without one only ask for something. UNNAMED controls are
those of the firmware that the public headers do not name.
"""


def entries():
    """(id, name, way, {series: bytes}, pointers, comment) of every control."""
    found = {}
    for path in sorted(glob.glob(os.path.join(ROOT, "src/rm/controls_*.c"))):
        with open(path) as source:
            text = source.read()
        for macro, inside, comment in ENTRY.findall(text):
            args = [a.strip() for a in re.split(r',(?![^(]*\))', inside)]
            series = " ".join(SETS[s.strip()] for s in args.pop(0).split("|")) if macro == "IN" else SETS["SERIES_ALL"]
            number = int(args[0], 16)
            way = "REFUSED" if macro == "REFUSED" else args[1]
            name = next(a for a in args if a.startswith('"')).strip('"')
            size = int(args[2]) if macro in ("CONTROL", "IN", "CLIENT", "DESCRIPTOR", "POINTERS") else None
            pointers = int(args[4]) if macro == "POINTERS" else 0
            entry = found.setdefault(number, [number, name, way, {}, pointers, ""])
            entry[3].update({s: size for s in series.split()})
            entry[5] = entry[5] or " ".join(comment.split())
    return [found[number] for number in sorted(found)]


def size_text(sizes, pointers):
    values = [sizes[s] for s in SERIES if s in sizes]
    if values[0] is None:
        return "?"
    text = str(values[0])
    for before, after, series in zip(values, values[1:], [s for s in SERIES if s in sizes][1:]):
        if before != after:
            text += f", {after} in {series}"
    if len(sizes) < len(SERIES):
        text += " (" + ", ".join(s for s in SERIES if s in sizes) + ")"
    return text + (f" +{pointers}" if pointers else "")


def doc():
    lines = [HEAD]
    lines += ["## Controls", ""]
    of_class = None
    for number, name, way, sizes, pointers, comment in entries():
        if of_class != number >> 16:
            of_class = number >> 16
            lines += ["" if lines[-1].startswith("|") else None,
                      f"### Class {of_class:#06x}" if of_class else "### Clients", "",
                      "| control | name | way | size | used by, or why refused |", "| --- | --- | --- | --- | --- |"]
        size = "" if way == "REFUSED" else size_text(sizes, pointers)
        lines.append(f"| {number:#010x} | {name} | {way.lower()} | {size} | {comment} |")
    lines += ["", "## Calls of /dev/nvidia-uvm", "", "| number | name | way |", "| --- | --- | --- |"]
    with open(os.path.join(ROOT, "src/rm/uvm.c")) as source:
        text = source.read()
    seen = set()
    for number, name, way, number2, way2, name2 in UVM.findall(text):
        row = (number or number2, name or name2, (way or way2).lower())
        number = {"RM_UVM_INITIALIZE": "0x30000001", "RM_UVM_DEINITIALIZE": "0x30000002"}.get(row[0], row[0])
        if row not in seen:
            lines.append(f"| {number} | {row[1]} | {row[2]} |")
        seen.add(row)
    return "\n".join(line for line in lines if line is not None) + "\n"


def exported(folder):
    """{id: (flags, parameter structure)} of one series: what the driver itself goes by."""
    methods = {}
    pattern = re.compile(r"/\*flags=\*/\s*0x(\w+)u,.*?/\*methodId=\*/\s*0x(\w+)u,\s*/\*paramSize=\*/\s*([^\n]*),")
    for path in glob.glob(os.path.join(folder, "src/nvidia/generated/g_*_nvoc.c")):
        with open(path, errors="replace") as source:
            for flags, number, size in re.findall(pattern.pattern, source.read(), re.S):
                struct = re.search(r"sizeof\((\w+)\)", size)
                methods[int(number, 16)] = (int(flags, 16), struct.group(1) if struct else None)
    return methods


def sizes_of(folder, structs):
    include = os.path.join(folder, "src/common/sdk/nvidia/inc")
    headers = sorted(glob.glob(os.path.join(include, "ctrl/**/*.h"), recursive=True))
    code = "#include <stdio.h>\n#include \"nvtypes.h\"\n#include \"nvlimits.h\"\n"
    code += "".join(f'#include "{os.path.relpath(h, include)}"\n' for h in headers)
    code += "int main(void) {\n" + "".join(f'printf("{s} %zu\\n", sizeof({s}));\n' for s in structs) + "}\n"
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "sizes.c")
        with open(path, "w") as out:
            out.write(code)
        subprocess.run(["cc", "-w", "-I", include, "-I", os.path.join(folder, "src/common/inc"), path, "-o",
                        path[:-2]], check=True)
        printed = subprocess.run([path[:-2]], check=True, capture_output=True, text=True).stdout
    return {line.split()[0]: int(line.split()[1]) for line in printed.splitlines()}


def check_headers(folders):
    wrong = 0
    for series, folder in folders:
        methods = exported(folder)
        known = [e for e in entries() if e[2] != "REFUSED" and series in e[3] and e[0] in methods]
        sizes = sizes_of(folder, sorted({methods[e[0]][1] for e in known if methods[e[0]][1]}))
        for number, name, _, in_series, _, _ in known:
            flags, struct = methods[number]
            size = sizes[struct] if struct else 0
            if size != in_series[series]:
                print(f"{series}: {number:#010x} {name}: {in_series[series]} bytes, the headers say {size}")
                wrong += 1
            if not flags & FLAG_OPEN or flags & FLAG_PRIVILEGED:
                print(f"{series}: {number:#010x} {name}: not for every program (flags {flags:#x})")
                wrong += 1
        print(f"{series}: {len(known)} controls compared")
    return wrong


def main():
    if sys.argv[1:2] == ["--doc"]:
        sys.stdout.write(doc())
    elif sys.argv[1:2] == ["--check"]:
        with open(os.path.join(ROOT, "docs/driver-calls.md")) as there:
            if there.read() != doc():
                sys.exit("driver-calls.py: docs/driver-calls.md is out of date; run tools/driver-calls.py --doc")
    elif sys.argv[1:2] == ["--headers"]:
        sys.exit(1 if check_headers([a.split("=", 1) for a in sys.argv[2:]]) else 0)
    else:
        sys.exit(__doc__)


main()
