#!/usr/bin/env python3
"""Checks that tests run every kernel: compares the kernels that ran, in programs of tests, with those of the PTX.

  coverage_test.py FOLDER/ARCH PROGRAM...
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def host_name(name):
    """As g++ mangles it: nvcc's unnamed namespaces have a name for each file."""
    while mark := re.search(r"(\d{2})_GLOBAL__N__", name):
        name = name[:mark.start()] + "12_GLOBAL__N_1" + name[mark.end(1) + int(mark.group(1)):]
    return name


def main():
    ptx, programs = Path(sys.argv[1]), sys.argv[2:]
    kernels = set()
    for path in ptx.parent.glob(f"*.{ptx.name}.ptx"):
        kernels |= {host_name(name) for name in re.findall(r"\.entry (\w+)\(", path.read_text())}
    with tempfile.TemporaryDirectory() as temporary:
        ran_path = Path(temporary, "ran")
        environment = dict(os.environ, CUDA_ON_HOST_PTX=str(ptx), CUDA_ON_HOST_RAN=str(ran_path))
        for program in programs:
            subprocess.run([program], env=environment, check=True)
        ran = set(ran_path.read_text().split())
    if missing := sorted(kernels - ran):
        print("no test runs these:", flush=True)
        subprocess.run(["c++filt", *missing], check=True)
    print(f"{len(kernels & ran)} of {len(kernels)} kernels ran")
    return 0 if kernels and kernels <= ran else 1


if __name__ == "__main__":
    sys.exit(main())
