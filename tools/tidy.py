#!/usr/bin/env python3
"""tidy.py BUILD-DIR: clang-tidy over every source file that BUILD-DIR compiles, which must be built already.

A file that several targets compile is checked once. A file that passed is not checked again until it, a header that it
includes, its command or the configuration changes: $XDG_CACHE_HOME/belfry/tidy has an empty file for each such state.
"""

import concurrent.futures
import functools
import hashlib
import json
import os
import subprocess
import sys
import time

KEEP_DAYS = 30
# The analyzer abandons a function after this many states. With its default, three times as many, the run takes twice
# as long.
ANALYZER = [f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang", "max-nodes=75000")]


@functools.cache
def digest(path):
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return "missing"


def headers(build):
    """Which files each object was compiled from, as ninja has recorded it."""
    found, current = {}, None
    text = subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        if line.startswith("    "):
            current.append(line.strip())
        elif ": #deps" in line:
            current = found.setdefault(line.partition(": #deps")[0], [])
    return found


def configurations(path):
    """The .clang-tidy files that apply to a source file."""
    root = os.getcwd()
    folder = os.path.dirname(path)
    while folder.startswith(root):
        yield os.path.join(folder, ".clang-tidy")
        folder = os.path.dirname(folder)


def state(version, path, command, compiled_from):
    """The name of the state in which a file is; None if ninja does not know what it includes."""
    if not compiled_from:
        return None
    parts = [version, *ANALYZER, digest(__file__), command["command"], os.path.relpath(path)]
    parts += map(digest, configurations(path))
    for name in sorted(compiled_from):
        parts += [name, digest(os.path.join(command["directory"], name))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def check(database, cache, path, name):
    """Check one file in a process of its own: with several, the va_list check of one affects the next."""
    run = subprocess.run(["clang-tidy", "-p", database, "--quiet", *ANALYZER, path], capture_output=True, text=True)
    sys.stdout.write(run.stdout)
    if run.returncode and not run.stdout:
        sys.stderr.write(run.stderr)
    if not run.returncode and name:
        with open(os.path.join(cache, name), "w", encoding="ascii"):
            pass
    return run.returncode


def forget_old(cache):
    for entry in os.scandir(cache):
        if entry.stat().st_mtime < time.time() - KEEP_DAYS * 86400:
            os.unlink(entry.path)


def main():
    build = sys.argv[1]
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "belfry", "tidy")
    os.makedirs(cache, exist_ok=True)
    forget_old(cache)
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    files = {}
    for command in commands:
        path = os.path.realpath(os.path.join(command["directory"], command["file"]))
        if not path.startswith(os.path.realpath(build) + os.sep):  # generated files are not checked
            files.setdefault(path, command)
    database = os.path.join(build, "tidy")
    os.makedirs(database, exist_ok=True)
    with open(os.path.join(database, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump(list(files.values()), file)

    version = subprocess.run(["clang-tidy", "--version"], check=True, capture_output=True, text=True).stdout
    known, todo = headers(build), []
    for path, command in files.items():
        name = state(version, path, command, known.get(command["output"]))
        if name and os.path.exists(os.path.join(cache, name)):
            os.utime(os.path.join(cache, name))
        else:
            todo.append((path, name))
    todo.sort(key=lambda one: -os.path.getsize(one[0]))  # the longest first, so that none is left for the end
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = sum(map(bool, pool.map(lambda one: check(database, cache, *one), todo)))
    print(f"{len(files)} files, {len(todo)} checked, {failures} with findings")
    sys.exit(failures > 0)


main()
