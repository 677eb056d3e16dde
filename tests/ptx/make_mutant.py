#!/usr/bin/env python3
"""Makes the PTX of a kernel with a fault: patches a copy of its source, or of a header, and compiles that.

  make_mutant.py PATCH ROOT SOURCE PTXAS OUTPUT.ptx OUTPUT.txt -- NVCC FLAG...

The copy stays in the folder OUTPUT, because findings name its lines. A patch that does not apply is an error.
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path


def main():
    split = sys.argv.index("--")
    patch, root, source, ptxas, ptx, resources = sys.argv[1:split]
    copy = Path(ptx).with_suffix("").absolute()
    shutil.rmtree(copy, ignore_errors=True)
    changed = re.search(r"^\+\+\+ b/(\S+)", Path(patch).read_text(), re.MULTILINE).group(1)
    (copy / changed).parent.mkdir(parents=True)
    subprocess.run(["patch", "--fuzz=0", "--quiet", "--reject-file=-", "--output", copy / changed, Path(root, changed),
                    patch], check=True)
    if changed != source:
        shutil.copy(Path(root, source), copy / source)
    nvcc, *flags = sys.argv[split + 1:]
    subprocess.run([nvcc, f"-I{copy}", *flags, "-ptx", copy / source, "-o", ptx], check=True)
    arch = next(flag for flag in flags if flag.startswith("-arch="))
    with open(resources, "w", encoding="utf-8") as output:
        subprocess.run([ptxas, "--verbose", arch, ptx, "-o", "/dev/null"], stderr=output, check=True)


if __name__ == "__main__":
    main()
