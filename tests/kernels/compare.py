#!/usr/bin/env python3
"""compare.py REFERENCE DUMP...: where results of single instructions differ.

Each file holds lines `instruction|types|a b c|result`, as rig_op() of tests/unit/ptx_op.c writes them to the file that
RIG_DUMP names. Results of the same instruction on the same operands are compared, whatever their order.
Exits 0 if all of them agree, 1 if some differ, 2 if nothing could be compared.
"""
import sys

EXAMPLES = 3


def read_results(path):
    """(instruction, types, operands) to result; a line that begins with # is a comment."""
    results = {}
    with open(path, encoding="ascii") as lines:
        for number, line in enumerate(lines, 1):
            if line.startswith("#"):
                continue
            fields = line.rstrip("\n").rsplit("|", 3)
            if len(fields) != 4:
                sys.exit(f"compare.py: {path}:{number}: not `instruction|types|a b c|result`")
            key, result = tuple(fields[:3]), fields[3]
            if results.setdefault(key, result) != result:
                sys.exit(f"compare.py: {path}:{number}: another result of the same operands before")
    return results


def compare(reference, dump, names):
    """Print what differs; the number of results compared and of those that differ."""
    common = [key for key in dump if key in reference]
    differing = {}
    for key in common:
        if dump[key] != reference[key]:
            differing.setdefault(key[0], []).append((key[2], reference[key], dump[key]))
    count = sum(len(found) for found in differing.values())
    print(f"{names[1]}: {len(common)} results, {count} differ from {names[0]}, in {len(differing)} instructions; "
          f"{len(dump) - len(common)} only here, {len(reference) - len(common)} only there")
    for text, found in differing.items():
        print(f"{len(found):7} {text}")
        for operands, expected, got in found[:EXAMPLES]:
            print(f"{'':10}({operands}): {got}, not {expected}")
    return len(common), count


def main(paths):
    if len(paths) < 2:
        print("usage: compare.py REFERENCE DUMP...", file=sys.stderr)
        return 2
    reference = read_results(paths[0])
    outcomes = [compare(reference, read_results(path), (paths[0], path)) for path in paths[1:]]
    if not all(compared for compared, _ in outcomes):
        print("compare.py: nothing in common: dump the same tests on both", file=sys.stderr)
        return 2
    return 1 if any(count for _, count in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
