#!/usr/bin/env python3
"""embed_page.py OUT FILE... : writes the C++ source that holds the page's files (view/page_files.h)."""
import os
import sys

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
LINE_BYTES = 64


def escaped(byte):
    return chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"


def literal(data):
    """A string literal of these bytes: octal escapes always have three digits."""
    lines = []
    for start in range(0, len(data), LINE_BYTES):
        part = data[start:start + LINE_BYTES]
        lines.append('"' + "".join(map(escaped, part)) + '"')
    return "\n    ".join(lines)


def main():
    out, paths = sys.argv[1], sys.argv[2:]
    entries = []
    for path in paths:
        name = os.path.basename(path)
        suffix = os.path.splitext(name)[1]
        url = "/" if name == "index.html" else "/" + name.split(".")[0].lower() + suffix  # uPlot.iife.js: /uplot.js
        kind = TYPES[suffix] + "; charset=utf-8"
        with open(path, "rb") as file:
            data = file.read()
        entries.append(f'    {{"{url}", "{kind}",\n     std::string_view({literal(data)}, {len(data)})}}')
    with open(out, "w", encoding="ascii") as file:
        file.write('// Made by view/embed_page.py.\n#include "view/page_files.h"\n\n#include <array>\n\n'
                   "namespace pando {\n\nstd::span<const PageFile> PageFiles() {\n"
                   f"  static constexpr std::array<PageFile, {len(paths)}> kFiles{{{{\n"
                   + ",\n".join(entries) + "}};\n  return kFiles;\n}\n\n}  // namespace pando\n")


if __name__ == "__main__":
    main()
