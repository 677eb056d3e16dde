#!/usr/bin/env python3
"""Checks that the interpreter of PTX finds a fault: runs a test with PTX that make_mutant.py made.

  mutant_test.py --mutant FILE.ptx --of FILE.sm_90.ptx --finding TEXT --line TEXT -- TEST ARGUMENT...

The mutant takes the place of the other file of PTX, beside which the rest of the kernels are. The test must end with
the interpreter's own exit status, and print a finding whose kind has the one text, at a line of the patched source
that has the other one.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOUND_EXIT = 86


def parse_arguments(arguments):
    split = arguments.index("--")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--mutant", "--of"):
        parser.add_argument(name, type=Path, required=True)
    for name in ("--finding", "--line"):
        parser.add_argument(name, required=True)
    return parser.parse_args(arguments[:split]), arguments[split + 1:]


def link_files(options, folder):
    """Fills the folder with the product's PTX and the mutant. Returns what CUDA_ON_HOST_PTX says of it."""
    name, arch = options.of.stem.split(".")
    for path in options.of.parent.glob(f"*.{arch}.*"):
        if not path.name.startswith(name + "."):
            (folder / path.name).symlink_to(path.absolute())
    for path in (options.mutant, options.mutant.with_suffix(".txt")):
        (folder / f"{name}.{arch}{path.suffix}").symlink_to(path.absolute())
    return folder / arch


def has_finding(output, options):
    copy = options.mutant.with_suffix("")
    for kind, place in re.findall(r"^PTX finding: (.*)\n  at (.*)$", output, re.MULTILINE):
        for file, number in re.findall(r"([\w.]+):(\d+)", place):
            for changed in copy.rglob(file):
                line = changed.read_text().splitlines()[int(number) - 1]
                if options.finding in kind and options.line in line:
                    print(f"found: {kind}\n  at {file}:{number}: {line.strip()}")
                    return True
    return False


def main():
    options, test = parse_arguments(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, CUDA_ON_HOST_PTX=str(link_files(options, Path(folder))))
        result = subprocess.run(test, env=environment, capture_output=True, text=True, errors="replace", check=False)
    output = result.stdout + result.stderr
    if result.returncode == FOUND_EXIT and has_finding(output, options):
        return 0
    print(output)
    print(f"not found: {options.finding}, at a line with: {options.line} (exit status {result.returncode})")
    return 1


if __name__ == "__main__":
    sys.exit(main())
