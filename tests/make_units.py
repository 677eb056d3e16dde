#!/usr/bin/env python3
"""Writes the translation units in which Meson compiles the tests, and prints their paths for Meson.

  make_units.py PROGRAM NAME...    NAMEs have no ".cc": Meson would configure again after each edit of a file
                                   that it finds among the arguments. They are relative to the folder of the
                                   meson.build that calls, or to the root. One that ends in ".inc" is a file
                                   that the build writes, relative to the build folder.

Most of the time of a test's compilation goes to the same headers, so up to 8 files are included into one
unit. All paths are relative: then equal checkouts in different folders share ccache's objects.
"""
import os
import sys
from pathlib import Path

UNIT_FILES_MAX = 8


def split(names):
    """As few units as possible, of nearly equal numbers of files."""
    unit_count = -(-len(names) // UNIT_FILES_MAX)
    bounds = [len(names) * i // unit_count for i in range(unit_count + 1)]
    return [names[first:last] for first, last in zip(bounds, bounds[1:])]


def find_source(root, folder, program, name):
    """Relative to the root."""
    for source in (os.path.normpath(os.path.join(folder, name)), name):
        if Path(root, source).is_file():
            return source
    sys.exit(f"{folder}/meson.build: the source file {name} of {program} does not exist")


def write_if_changed(path, text):
    """An unchanged unit is not compiled again."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main(program, *names):
    root, build, folder = (os.environ["MESON_" + name] for name in ("SOURCE_ROOT", "BUILD_ROOT", "SUBDIR"))
    sources = [name if name.endswith(".inc") else find_source(root, folder, program, name + ".cc")
               for name in names]
    for number, unit in enumerate(split(sources), 1):
        path = Path(build, folder, "units", f"{program}_{number}.cc")
        write_if_changed(path, "".join(f'#include "{source}"\n' for source in unit))
        print(os.path.relpath(path, Path(root, folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
