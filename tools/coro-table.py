#!/usr/bin/env python3
"""coro-table.py OUT_H OUT_C NAMES API_H CLASSES SOURCE...: every symbol of the libcuda.so.1 of src/coro.

CLASSES gives each symbol a class, one a line; the forms for a thread's own default stream (_ptsz, _ptds) have the class of
their plain form. A symbol without a class is an error, as is a class that the sources do not fit:

  pass     forwarded as it is
  tail     its stream is replaced by the one that has the virtual stream's last work
  wait     the same; the stream then waits for something outside the GPU
  place    its stream is replaced by the one on the SMs of the lease
  base     the virtual stream's work is joined to the program's own stream, then it is forwarded
  default  the same for the default stream, where there is no parameter
  fill     forwarded as its asynchronous form, on the SMs of the lease
  idle     forwarded once the work of all virtual streams has ended
  alone    the same, and its own work ends before it returns
  sync     forwarded while no graph is made anew: it fails while a stream of its context is captured
  fixed    forwarded, and the process is reported as one that does not follow its lease
  jump     forwarded by a jump: its signature is not known here
  probed   forwarded; while there are probes, probing_NAME(parameters) of a SOURCE is called instead. A SOURCE can define
           this for the class idle too.
  own      defined in SOURCE

A SOURCE may define hooks for belfry verify, of functions that are not own: tracing_NAME(parameters) is called before the call,
and traced_NAME(parameters, struct trace_place) after one that succeeded, while the program is traced.

OUT_H declares `struct real`, the functions of the driver's library; OUT_C defines the symbols and the table of their names.
`coro-table.py --check CUDA_H CLASSES` fails if a function of an installed cuda.h has no class.
"""
import re
import sys

CLASSES = ("pass", "tail", "wait", "place", "base", "default", "fill", "idle", "alone", "sync", "fixed", "jump",
           "probed", "own")
PER_THREAD = re.compile(r"_pt(sz|ds)$")
SIGNATURE = re.compile(r"^CUresult (cu\w+)\(([^;]*)\);", re.M)
DEFINED = re.compile(r"^EXPORT CUresult (cu\w+)\(", re.M)
PROBING = re.compile(r"^CUresult probing_(cu\w+)\(", re.M)
HOOK = re.compile(r"^void (trac(?:ing|ed))_(cu\w+)\(", re.M)

# The arguments are where the caller has put them, in registers and on the stack.
JUMP = """
#ifdef __aarch64__
#define JUMP_TO(name) \\
	"	hint #34\\n" \\
	"	adrp x16, real_" #name "\\n" \\
	"	ldr x16, [x16, :lo12:real_" #name "]\\n" \\
	"	br x16\\n"
#else
#define JUMP_TO(name) "	endbr64\\n	jmp *real_" #name "(%rip)\\n"
#endif
#define JUMP(name) \\
	void name(void); \\
	__attribute__((visibility("hidden"))) void *real_##name; \\
	__asm__(".pushsection .text\\n" \\
		".globl " #name "\\n.type " #name ", %function\\n" \\
		#name ":\\n" JUMP_TO(name) \\
		".size " #name ", . - " #name "\\n" \\
		".popsection");
"""


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def read_classes(path):
    classes = {}
    for number, line in enumerate(read(path).splitlines(), 1):
        name, kind = line.split()
        if kind not in CLASSES:
            sys.exit(f"{path}:{number}: no class '{kind}'")
        classes[name] = kind
    return classes


class Table:
    def __init__(self, names, header, classes, sources):
        self.names = sorted(read(names).split())
        self.kinds = {}
        for name, parameters in SIGNATURE.findall(read(header)):
            types = re.sub(r"\s+", " ", parameters)
            self.kinds[name] = [] if types == "void" else [kind.strip() for kind in types.split(",")]
        self.classes = read_classes(classes)
        self.names = sorted(set(self.names) | {name for name, kind in self.classes.items() if kind == "jump"})
        self.defined = {name for source in sources for name in DEFINED.findall(read(source))}
        self.probing = {name for source in sources for name in PROBING.findall(read(source))}
        self.hooks = {hook for source in sources for hook in HOOK.findall(read(source))}
        unknown = [name for name in self.names if self.plain(name) not in self.classes]
        if unknown:
            sys.exit(f"{classes}: no class for {', '.join(unknown)}")
        bare = [name for name in self.names if (name in self.kinds) == (self.kind(name) == "jump")]
        if bare:
            sys.exit(f"{classes}: a function has either a signature or the class jump: {', '.join(bare)}")
        own = {name for name, kind in self.classes.items() if kind == "own"}
        if own != {name for name in self.defined if not PER_THREAD.search(name)}:
            sys.exit(f"{classes}: own, but not defined, or the other way round: "
                     f"{', '.join(sorted(own.symmetric_difference(self.defined)))}")
        unhooked = sorted(name for _, name in self.hooks if self.classes.get(name, "own") in ("own", "fill", "jump"))
        if unhooked:
            sys.exit(f"{classes}: a hook, but own, fill, jump or without a class: {', '.join(unhooked)}")

    def plain(self, name):
        """cuMemcpy_ptds is a form of cuMemcpy, cuMemcpyHtoD_v2_ptds one of cuMemcpyHtoD_v2."""
        return PER_THREAD.sub("", name)

    def kind(self, name):
        return self.classes[self.plain(name)]

    def parameters(self, name):
        return ", ".join(f"{kind} a{i}" for i, kind in enumerate(self.kinds.get(name, []))) or "void"

    def arguments(self, name, instead=None):
        count = len(self.kinds.get(name, []))
        return ", ".join(instead[1] if instead and i == instead[0] else f"a{i}" for i in range(count))

    def stream_at(self, name):
        """The parameter that is the stream; some functions have it in a structure."""
        for i, kind in enumerate(self.kinds[name]):
            if kind == "CUstream":
                return i
        sys.exit(f"{name}: has no stream")

    def slot(self, name):
        return f"real.{name}" if name in self.kinds else f"real_{name}"

    def header(self):
        out = ["/* Made by tools/coro-table.py: the functions of the driver's library. */", "#ifndef BELFRY_CORO_REAL_H",
               "#define BELFRY_CORO_REAL_H", '#include "cuda/api.h"', "struct real {"]
        out += [f"\tCUresult (*{name})({', '.join(self.kinds[name]) or 'void'});" for name in self.names
                if name in self.kinds]
        out += ["};", "extern struct real real;", "struct trace_place;"]
        return "\n".join(out + list(self.hook_prototypes()) + ["#endif", ""])

    def before(self, name):
        """The hook before a call."""
        plain = self.plain(name)
        if ("tracing", plain) not in self.hooks:
            return ""
        return f"\tif (trace_is_on)\n\t\ttracing_{plain}({self.arguments(name)});\n"

    def after(self, name, stream="NULL", placed="NULL"):
        """The hook after a call; `result` is what the call returned."""
        plain = self.plain(name)
        if ("traced", plain) not in self.hooks:
            return ""
        is_own_default = "true" if PER_THREAD.search(name) else "false"
        arguments = ", ".join(filter(None, [self.arguments(name),
                                            f"(struct trace_place){{ {stream}, {placed}, {is_own_default} }}"]))
        return f"\tif (trace_is_on && !result)\n\t\ttraced_{plain}({arguments});\n"

    def hook_prototypes(self):
        for when, name in sorted(self.hooks):
            kinds = self.kinds[name] + (["struct trace_place"] if when == "traced" else [])
            yield f"void {when}_{name}({', '.join(kinds)});"

    def function(self, name):
        kind = self.kind(name)
        is_own_default = "true" if PER_THREAD.search(name) else "false"
        head = f"EXPORT CUresult {name}({self.parameters(name)})\n{{\n"
        call = f"real.{name}({self.arguments(name)})"
        if kind == "probed" or name in self.probing:
            call = f"probes_are_there() ? probing_{name}({self.arguments(name)}) : {call}"
        if kind == "own":
            return self.own_form(name, head) if name not in self.defined else ""
        if kind == "jump":
            return f"JUMP({name})\n"
        if kind == "fill":
            return self.fill(name, head, is_own_default)
        before = self.before(name)
        if kind in ("tail", "wait", "place", "base", "default"):
            at = None if kind == "default" else self.stream_at(name)
            stream = "NULL" if at is None else f"a{at}"
            how = {"default": "BASE", "wait": "TAIL"}.get(kind, kind.upper())
            declared, begin, end = ("\tstruct wait *wait;\n", "\twait = wait_begin(&taken);\n",
                                    "\twait_end(&taken, wait, result);\n") if kind == "wait" else ("", "", "")
            given = None if at is None else (at, "taken.stream")
            return (f"{head}\tstruct taken taken;\n{declared}\tCUresult result;\n\n{before}"
                    f"\ttaken = stream_take({stream}, {is_own_default}, TAKE_{how});\n{begin}"
                    f"\tresult = real.{name}({self.arguments(name, given)});\n{end}"
                    f"{self.after(name, stream, 'taken.stream')}\tstream_leave(&taken);\n\treturn result;\n}}\n")
        before += {"idle": "\tstreams_finish();\n", "alone": "\tstreams_finish();\n", "sync": "\tsync_begin();\n",
                   "fixed": "\tlease_fix();\n"}.get(kind, "")
        stream = "CU_STREAM_PER_THREAD" if PER_THREAD.search(name) else "CU_STREAM_LEGACY"
        after = {"alone": f"\tif (!result && lease_is_there())\n\t\tresult = real.cuStreamSynchronize({stream});\n",
                 "sync": "\tsync_end();\n"}.get(kind, "") + self.after(name)
        if not after:
            return f"{head}{before}\treturn {call};\n}}\n"
        return f"{head}\tCUresult result;\n\n{before}\tresult = {call};\n{after}\treturn result;\n}}\n"

    def fill(self, name, head, is_own_default):
        """cuMemsetD8_v2 as cuMemsetD8Async. A capture may forbid the former, so the driver sees it then."""
        form = re.sub(r"(_v2)?(_ptds)?$", "Async", name, count=1)
        if self.kinds.get(form) != self.kinds[name] + ["CUstream"]:
            sys.exit(f"{name}: {form} has other parameters")
        arguments = self.arguments(name)
        return (f"{head}\tbool is_plain = captures_are_there();\n"
                f"\tstruct taken taken = stream_take(NULL, {is_own_default}, is_plain ? TAKE_BASE : TAKE_PLACE);\n"
                f"\tCUresult result = is_plain || !taken.vstream ? real.{name}({arguments})\n"
                f"\t\t\t\t\t\t      : real.{form}({arguments}, taken.stream);\n\n"
                "\tstream_leave(&taken);\n\treturn result || is_plain ? result : stream_settle(&taken, a0);\n}\n")

    def own_form(self, name, head):
        """The form for a thread's own default stream of a function that is defined in a source."""
        return (f"{head}\tbool before = default_is_per_thread;\n\tCUresult result;\n\n\tdefault_is_per_thread = true;\n"
                f"\tresult = {self.plain(name)}({self.arguments(name)});\n"
                "\tdefault_is_per_thread = before;\n\treturn result;\n}\n")

    def source(self):
        out = ["/* Made by tools/coro-table.py: every symbol of libcuda.so.1. */", '#include "coro/coro.h"',
               '#include "coro/probe.h"', '#include "coro/trace.h"', "",
               '#pragma GCC diagnostic ignored "-Wpedantic"', '#pragma GCC diagnostic ignored "-Wmissing-prototypes"', "",
               "struct real real;", JUMP]
        out += [self.function(name) for name in self.names]
        out.append("const struct symbol symbols[] = {")
        out += [f'\t{{ "{name}", (void **)&{self.slot(name)}, (void *){name} }},' for name in self.names]
        return "\n".join(out + ["};", f"const size_t symbol_count = {len(self.names)};", ""])


def check(header, classes):
    known = read_classes(classes)
    names = set(re.findall(r"CUresult\s+(?:CUDAAPI\s+)?(cu[A-Z]\w+)\s*\(", read(header)))
    missing = sorted(name for name in names if PER_THREAD.sub("", name) not in known)
    if missing:
        sys.exit(f"{classes}: no class for {', '.join(missing)} of {header}")
    print(f"{len(names)} functions of {header} have a class")


def main():
    if sys.argv[1] == "--check":
        check(*sys.argv[2:])
        return
    out_h, out_c, names, header, classes, *sources = sys.argv[1:]
    made = Table(names, header, classes, sources)
    for path, text in ((out_h, made.header()), (out_c, made.source())):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


main()
