#!/usr/bin/env python3
"""Checks that tests run every kernel: runs programs of tests with PTX, and compares the kernels that ran with the PTX's.

  coverage_test.py PTX_FOLDER CAPABILITY PROGRAM...
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
    folder, capability, programs = sys.argv[1], sys.argv[2], sys.argv[3:]
    kernels = set()
    for path in Path(folder).glob(f"*.sm_{capability}.ptx"):
        kernels |= {host_name(name) for name in re.findall(r"\.entry (\w+)\(", path.read_text())}
    with tempfile.TemporaryDirectory() as temporary:
        ran_path = Path(temporary, "ran")
        environment = dict(os.environ, CUDA_ON_HOST_PTX=folder, CUDA_ON_HOST_CAPABILITY=capability,
                           CUDA_ON_HOST_RAN=str(ran_path))
        for program in programs:
            subprocess.run([program], env=environment, check=True)
        ran = set(ran_path.read_text().split())
    for name in sorted(kernels - ran):
        print("no test runs", subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout.strip())
    print(f"{len(kernels & ran)} of {len(kernels)} kernels ran")
    return 0 if kernels and kernels <= ran else 1


if __name__ == "__main__":
    sys.exit(main())
