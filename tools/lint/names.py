"""Checks of names: of functions, of headers, and of the files and rules that comments and documents name."""
import re
from pathlib import PurePosixPath

from findings import Finding
from messages import DOCUMENT as PROTOCOL
from phrases import read_prose

SOURCE = re.compile(r"(?<![\w/.<{}*-])[\w-]+(?:/[\w-]+)*\.(?:h|cc|cu|cuh)\b")
QUOTED_PATH = re.compile(r"(?<=`)[a-z_]+(?:/[a-z0-9_]+)+(?=`)")  # without a suffix: `net/zmq/zmq_context`
RULE = re.compile(r"\bP\d{1,2}\b")
OTHERS_FILES = ("build/", "doctest/", "gloo/", "linux/", "zmq.h")
EXAMPLES = "tests/lint/"  # they name files that no project has


def check_names(project):
    """No function is called `LeaseOf`; a header holds the class of its name; what a comment names exists."""
    return find_functions(project) + find_classes(project) + find_mentions(project)


def find_functions(project):
    findings = []
    for path in project.cpp_files:
        shapes = project.shapes(path)
        named = [(found.name.split("::")[-1], found.line) for found in shapes.functions]
        declared = [(name, found.line) for found in shapes.classes for name in found.methods]
        for name, line in dict(reversed(named + declared)).items():
            if re.search(r"[a-z0-9]Of$", name):
                findings.append(Finding("names", path, line, f"the function {name} ends in Of: call it "
                                        f"{name[:-2]}For, or make it an accessor"))
    return findings


def find_classes(project):
    """A header of the product holds one class, that of its name. Beside it stand records (structs without private
    members) and interfaces that it names, and parts that no file but its source names. A header without a class is
    named after the subject of its functions and records."""
    words = {path: set(re.findall(r"\w+", project.cpp(path).code)) for path in project.product_cpp_files}
    findings = []
    for path in project.product_cpp_files:
        if not path.endswith((".h", ".cuh")):
            continue
        titled, others = split_classes(project, path)
        named = find_named(project, path, titled)
        for found in others:
            if is_record(found) and (not titled or found.name in named):
                continue
            if is_interface(project, path, found) and found.name in named:
                continue
            if not any(found.name in names and stem(user) != stem(path) for user, names in words.items()):
                continue
            findings.append(Finding("headers", path, found.line, f"{found.name} is not the class of this header's "
                                    "name: move it to a header of its name, or rename this one", found.name))
    return findings


def stem(path):
    return PurePosixPath(path).with_suffix("")


def split_classes(project, path):
    """(the class of the header's name, in a list; the other classes), without those in classes."""
    title = stem(path).name.replace("_", "").lower()
    classes = {found.name: found for found in project.shapes(path).classes if "::" not in found.name}.values()
    return ([found for found in classes if found.name.lower() == title],
            [found for found in classes if found.name.lower() != title])


def find_named(project, path, titled):
    """The names that a header's functions, the class of its name, and the classes that these name consist of."""
    classes = [found for found in project.shapes(path).classes if "::" not in found.name]
    lines = project.cpp(path).code.split("\n")
    bodies = {}
    for found in classes:
        bodies[found.name] = bodies.get(found.name, "") + body(lines, found)
        lines[found.line - 1:found.last_line] = [""] * (found.last_line - found.line + 1)
    named = {found.name for found in titled} | set(re.findall(r"\w+", "\n".join(lines)))
    read = set()
    while named & bodies.keys() - read:
        name = (named & bodies.keys() - read).pop()
        read.add(name)
        named |= set(re.findall(r"\w+", bodies[name]))
    return named


def body(lines, found):
    return "\n".join(lines[found.line - 1:found.last_line]) + "\n"


def is_record(found):
    return found.key == "struct" and not found.has_private


def is_interface(project, path, found):
    return not found.members and "virtual" in body(project.cpp(path).code.split("\n"), found)


def find_mentions(project):
    """Finds the source files, folders and rules that comments and documents name, and that do not exist."""
    known = {path[start:] for path in project.files
             for start in [0] + [found.end() for found in re.finditer("/", path)]}
    for path in project.files_with("meson.build"):  # what the build generates
        known |= set(re.findall(r"'([\w.]+)'", project.text(path)))
    tops = {path.split("/")[0] for path in project.cpp_files if "/" in path}
    places = known | {str(parent) for path in project.files for parent in PurePosixPath(path).parents}
    places |= {str(stem(path)) for path in project.files}
    rules = set()
    if PROTOCOL in project.files:
        rules = set(re.findall(r"\*\*(P\d+)", project.text(PROTOCOL)))
    findings = []
    for path in project.files:
        if path.startswith(EXAMPLES) or path.endswith("meson.build"):
            continue
        comments, others = read_prose(project, path)
        for text in others if path.endswith(".md") else comments:
            missing = [found for found in SOURCE.finditer(text.text)
                       if found[0] not in known and not found[0].startswith(OTHERS_FILES)]
            if path.endswith(".md"):
                missing += [found for found in QUOTED_PATH.finditer(text.text)
                            if found[0].split("/")[0] in tops and found[0] not in places]
            if rules:
                missing += [found for found in RULE.finditer(text.text) if found[0] not in rules]
            findings += [Finding("mentions", path, text.line + text.text.count("\n", 0, found.start()),
                                 f"{found[0]} does not exist: name one that does", found[0]) for found in missing]
    return findings
