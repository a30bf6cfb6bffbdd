"""What Triton does with ptxas, in place of bench/probe_triton.py's kernels: fake_triton.py PACKAGE PROBED PTX.

Its library is mapped, it looks for ptxas as Triton does, has the text of ptxas's version in the key of its cache, writes PTX to a
file, has it assembled, and loads what comes out, by the program `probed`. It prints what bench/probe_triton.py run prints."""
import hashlib
import json
import mmap
import os
import re
import subprocess
import sys
import tempfile

BLOCKS, THREADS, TIMES = 8, 128, 5
package, probed, source = sys.argv[1:]

with open(package + "/_C/libtriton.so", "rb") as file:
    library = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)

ptxas = os.environ.get("TRITON_PTXAS_PATH") or package + "/backends/nvidia/bin/ptxas"
version = subprocess.check_output([ptxas, "--version"], stderr=subprocess.STDOUT).decode()
found = re.search(r".*release (\d+\.\d+).*", version, flags=re.MULTILINE)
assert found and found.group(1) == "12.8", version
key = hashlib.sha256(version.encode()).hexdigest()[:16]
cached = os.path.join(os.environ["TRITON_CACHE_DIR"], key + ".cubin")
if not os.path.exists(cached):
    with open(source, encoding="utf-8") as file:
        text = file.read()
    with tempfile.NamedTemporaryFile(mode="w", suffix=".ptx") as ptx:
        ptx.write(text)
        ptx.flush()
        subprocess.run([ptxas, "-lineinfo", "-v", "--gpu-name=sm_90a", ptx.name, "-o", ptx.name + ".o"], check=True)
        os.makedirs(os.environ["TRITON_CACHE_DIR"], exist_ok=True)
        with open(ptx.name + ".o", "rb") as file:
            code = file.read()
        os.remove(ptx.name + ".o")
    with open(cached, "wb") as file:
        file.write(code)
# Without belfry-ptxas it is machine code, which the software GPU does not run.
has_text = "TRITON_PTXAS_PATH" in os.environ
with open(cached, "rb") as file:
    assert file.read(4) == (b"\x50\xed\x55\xba" if has_text else b"\x7fELF"), cached
orders = "image %s\nlaunch belfry_add %d %d %d\nresult\n" % (cached if has_text else source, BLOCKS, THREADS, TIMES)
answers = subprocess.run([probed], input=orders, stdout=subprocess.PIPE, text=True, check=True).stdout.split("\n")
assert not any("failed" in answer for answer in answers), answers
print(json.dumps({"kernels": {"add": {"us": 1.0, "hash": answers[3], "threads": BLOCKS * THREADS * TIMES}},
                  "torch": "none", "triton": "fake", "gpu": "software", "ptxas": ptxas}))
