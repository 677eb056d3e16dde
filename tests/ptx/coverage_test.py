#!/usr/bin/env python3
"""Checks that tests run every kernel: compares the kernels that ran, in programs of tests, with those of the PTX.

  coverage_test.py FOLDER/ARCH PROGRAM...
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def main():
    ptx, programs = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as temporary:
        notes = Path(temporary, "notes")
        environment = dict(os.environ, CUDA_ON_HOST_PTX=ptx, CUDA_ON_HOST_NOTES=str(notes))
        for program in programs:
            subprocess.run([program], env=environment, check=True)
        lines = [line.split() for line in notes.read_text().splitlines()]
    kernels, ran = ({name for what, name in lines if what == kind} for kind in ("kernel", "ran"))
    if missing := sorted(kernels - ran):
        print("no test runs these:", flush=True)
        subprocess.run(["c++filt", *missing], check=True)
    print(f"{len(ran)} of {len(kernels)} kernels ran")
    return 0 if kernels and kernels == ran else 1


if __name__ == "__main__":
    sys.exit(main())
