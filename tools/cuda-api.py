#!/usr/bin/env python3
"""cuda-api.py CUDA_H LIBCUDA_STUB OUT_DIR: the CUDA driver API as data.

Reads NVIDIA's cuda.h and the symbols of its stub library, and writes what Belfry's own libcuda.so.1 is compiled
against, so that building it needs neither: api.h (types, numbers and signatures, nothing else) and names.txt (every
symbol, one a line). Run again when a new CUDA version adds to the API.
"""
import re
import subprocess
import sys


def preprocessed(header):
    """The declarations of cuda.h itself, without comments and without what it includes."""
    text = subprocess.run(["gcc", "-E", "-D__CUDA_API_VERSION_INTERNAL", header],
                          check=True, capture_output=True, text=True).stdout
    kept, own = [], False
    for line in text.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            own = marker.group(1) == header
        elif own:
            kept.append(line)
    return "\n".join(kept)


def macros(header):
    text = subprocess.run(["gcc", "-E", "-dM", header], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in text.splitlines():
        match = re.match(r"#define (CU[A-Z_0-9]+|CUDA_VERSION) (.+)", line)
        if match and not re.match(r"CUDAAPI|CUDA_CB|CUDA_ENABLE|CU.*HAS_BEEN", match.group(1)):
            found[match.group(1)] = match.group(2)
    return found


def declarations(text):
    """Top-level declarations, one string each."""
    text = re.sub(r"__attribute__\s*\(\(.*?\)\)", "", text, flags=re.S)
    text = re.sub(r'extern\s+"C"\s*\{', "", text)
    text = re.sub(r"static\s+inline.*?\n\}", "", text, flags=re.S)
    depth, current = 0, ""
    for char in text:
        current += char
        depth += (char == "{") - (char == "}")
        if char == ";" and not depth:
            yield re.sub(r"\s+", " ", current).strip()
            current = ""


def nameless(parameters):
    """Types only: a signature needs no names."""
    if parameters.strip() == "void":
        return "void"
    out = []
    for parameter in parameters.split(","):
        parameter = parameter.strip()
        match = re.match(r"(.*[\s*])([A-Za-z_]\w*)(\[\w*\])?$", parameter)
        kind = match.group(1).strip() if match else parameter
        out.append(kind + (" *" if match and match.group(3) else ""))
    return ", ".join(out)


def main():
    header, stub, folder = sys.argv[1:]
    symbols = subprocess.run(["nm", "-D", "--defined-only", stub], check=True, capture_output=True,
                             text=True).stdout.split("\n")
    names = sorted(line.split()[2] for line in symbols if " T cu" in line)
    types, functions = [], {}
    for declaration in declarations(preprocessed(header)):
        match = re.match(r"CUresult (cu\w+)\s*\((.*)\)\s*;$", declaration)
        if match:
            functions[match.group(1)] = nameless(match.group(2))
        elif declaration != ";":
            types.append(declaration)
    for name in names:  # the forms for a thread's own default stream are like the plain ones
        plain = re.sub(r"_pt[sd][sz]$", "", name)
        if name not in functions and plain in functions:
            functions[name] = functions[plain]
    with open(folder + "/names.txt", "w") as out:
        out.write("\n".join(names) + "\n")
    with open(folder + "/api.h", "w") as out:
        out.write("/* Types, numbers and signatures of the CUDA driver API. Made by tools/cuda-api.py from cuda.h. */\n")
        out.write("#ifndef BELFRY_CUDA_API_H\n#define BELFRY_SOFT_CUDA_API_H\n\n")
        out.write("#include <stddef.h>\n#include <stdint.h>\n\n")
        for name, value in sorted(macros(header).items()):
            out.write(f"#define {name} {value}\n")
        out.write("\n" + "\n".join(types) + "\n\n")
        for name in names:
            if name in functions:
                out.write(f"CUresult {name}({functions[name]});\n")
        out.write("\n#endif\n")
    print(f"{len(names)} symbols, {len(functions)} signatures, {len(types)} types", file=sys.stderr)
    print("without a signature:", *[n for n in names if n not in functions], file=sys.stderr)


main()
