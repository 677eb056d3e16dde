"""Checks that no file includes uphill."""
from findings import Finding

# From low to high. A file may include files of its row and of the rows above it in this table.
# A folder belongs to the row with its longest prefix.
LAYERS = [
    ("common",),
    ("plan",),
    ("proto",),
    ("files",),
    ("optim",),
    ("kernels",),
    ("models",),
    ("data",),
    ("net/zmq",),
    ("net/shm",),
    ("net",),
    ("server",),
    ("scheduler",),
    ("train",),
    ("worker",),
    ("job",),
    ("run",),
    ("node",),
    ("embed",),
    ("view",),
    ("cli",),
    ("bench",),
    ("examples",),
    ("tests",),
]
# Folders of one row that do not include each other.
APART = [("kernels/cpu", "kernels/cuda")]


def check_layers(project):
    """Includes go downhill in the table of tools/lint/layers.py."""
    findings = []
    known = set(project.files)
    for path in project.cpp_files:
        rank = find_rank(path)
        if rank is None:
            findings.append(Finding("layers", path, 1, "the folder is in no layer: add it to the table of "
                                    "tools/lint/layers.py"))
            continue
        for line, included in project.cpp(path).includes():
            if included not in known:
                continue
            problem = find_problem(path, rank, included)
            if problem:
                findings.append(Finding("layers", path, line, problem, included))
    return findings


def find_problem(path, rank, included):
    included_rank = find_rank(included)
    if included_rank is None or included_rank > rank:
        return (f"{included} is in a higher layer than {path}: move the declaration down, or pass the value "
                "through an interface")
    for pair in APART:
        sides = [is_below(path, folder) for folder in pair]
        other = [is_below(included, folder) for folder in reversed(pair)]
        if any(side and across for side, across in zip(sides, other)):
            return f"{pair[0]} and {pair[1]} do not include each other: move what both need to kernels/"
    return None


def find_rank(path):
    """Returns the row of LAYERS for `path`; None if it is in no row."""
    best = None
    length = -1
    for rank, folders in enumerate(LAYERS):
        for folder in folders:
            if is_below(path, folder) and len(folder) > length:
                best, length = rank, len(folder)
    return best


def is_below(path, folder):
    return path.startswith(folder + "/")
