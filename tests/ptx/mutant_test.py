#!/usr/bin/env python3
"""Checks that the interpreter of PTX finds a fault: patches a kernel's source, compiles it, and runs a test with it.

  mutant_test.py --patch FILE --finding TEXT --line TEXT --ptx FOLDER --root FOLDER -- NVCC FLAG... -- TEST ARGUMENT...

The test must end with the interpreter's own exit status, and print a finding whose kind has the one text, at a line of
the patched source that has the other one. A patch that does not apply is an error.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOUND_EXIT = 86
ARCH = "sm_90"


def parse_arguments(arguments):
    first = arguments.index("--")
    second = arguments.index("--", first + 1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--patch", "--source", "--finding", "--line", "--ptx", "--root", "--ptxas"):
        parser.add_argument(name, required=True)
    return parser.parse_args(arguments[:first]), arguments[first + 1:second], arguments[second + 1:]


def apply_patch(patch, root, copy):
    """Returns the changed file's place in the copy."""
    changed = re.search(r"^\+\+\+ b/(\S+)", Path(patch).read_text(), re.MULTILINE).group(1)
    target = copy / changed
    target.parent.mkdir(parents=True)
    subprocess.run(["patch", "--fuzz=0", "--quiet", "--reject-file=-", "--output", target, Path(root, changed), patch],
                   check=True)
    return target


def compile_source(options, nvcc, copy):
    """Makes a folder of PTX that has the changed kernels in place of the product's."""
    folder = copy / "ptx"
    folder.mkdir()
    for path in Path(options.ptx).parent.glob(f"*.{ARCH}.*"):
        if path.suffix in (".ptx", ".txt"):
            (folder / path.name).symlink_to(path)
    source = Path("kernels/cuda", options.source + ".cu")
    if not (copy / source).exists():
        shutil.copy(Path(options.root, source), copy / source)
    ptx = folder / f"{options.source}.{ARCH}.ptx"
    resources = ptx.with_suffix(".txt")
    ptx.unlink()
    resources.unlink()
    subprocess.run([nvcc[0], f"-I{copy}", *nvcc[1:], f"-arch={ARCH}", "-lineinfo", "-ptx", copy / source, "-o", ptx],
                   check=True)
    with open(resources, "w", encoding="utf-8") as output:
        subprocess.run([options.ptxas, "--verbose", f"-arch={ARCH}", ptx, "-o", "/dev/null"], stderr=output, check=True)
    return folder


def has_finding(output, options, changed):
    lines = changed.read_text().splitlines()
    for kind, place in re.findall(r"^PTX finding: (.*)\n  at (.*)$", output, re.MULTILINE):
        for number in re.findall(re.escape(changed.name) + r":(\d+)", place):
            if options.finding in kind and options.line in lines[int(number) - 1]:
                print(f"found: {kind}\n  at {changed.name}:{number}: {lines[int(number) - 1].strip()}")
                return True
    return False


def main():
    options, nvcc, test = parse_arguments(sys.argv[1:])
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        changed = apply_patch(options.patch, options.root, copy)
        folder = compile_source(options, nvcc, copy)
        environment = dict(os.environ, CUDA_ON_HOST_PTX=str(folder / ARCH))
        result = subprocess.run(test, env=environment, capture_output=True, text=True, errors="replace", check=False)
        output = result.stdout + result.stderr
        if result.returncode == FOUND_EXIT and has_finding(output, options, changed):
            return 0
        print(output)
        print(f"not found: {options.finding}, at a line with: {options.line} (exit status {result.returncode})")
        return 1


if __name__ == "__main__":
    sys.exit(main())
