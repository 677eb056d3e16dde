"""Checks of sizes: classes, functions, files, folders, the product as a whole, documents."""
from collections import Counter, defaultdict
from pathlib import PurePosixPath

from findings import Finding

METHODS_MAX = 30
DATA_MEMBERS_MAX = 20
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
FOLDER_FILES_MAX = 40
BUDGET = "tools/lint/budget.txt"
DOCS_WORDS_MAX = 24_500
README_LINES_MAX = 180
README_COLUMNS_MAX = 100

PLAIN_STRUCT_METHODS_MAX = 3
# One method per type of field: they grow with the messages, not with their state.
FIELD_VISITORS = {"CodecReader", "CodecWriter"}


def check_classes(project):
    """At most 30 methods and 20 data members. Plain structs and the codec's visitors are exempt."""
    classes = [(path, found) for path in project.cpp_files for found in project.shapes(path).classes]
    sharers = find_sharers(classes)
    findings = []
    for path, found in classes:
        if found.name in FIELD_VISITORS:
            continue
        if len(found.methods) > METHODS_MAX:
            findings.append(Finding("methods", path, found.line,
                                    f"{found.name} has {len(found.methods)} methods, at most {METHODS_MAX} "
                                    "are allowed: move state and its methods to another class",
                                    found.name, len(found.methods)))
        shared_by = sharers.get(found.name.split("::")[-1], set())
        if is_plain(found) and len(shared_by) < 2:
            continue
        if len(found.members) > DATA_MEMBERS_MAX:
            note = f", shared by {', '.join(sorted(shared_by))}," if is_plain(found) else ""
            findings.append(Finding("members", path, found.line,
                                    f"{found.name}{note} has {len(found.members)} data members, at most "
                                    f"{DATA_MEMBERS_MAX} are allowed: move state that belongs together to "
                                    "another class", found.name, len(found.members)))
    return findings


def is_plain(found):
    return found.key == "struct" and not found.has_private and len(found.methods) <= PLAIN_STRUCT_METHODS_MAX


def find_sharers(classes):
    """Returns struct name -> the classes that hold a mutable reference or pointer to one."""
    sharers = defaultdict(set)
    for _, found in classes:
        for types in found.member_types:
            if "const" not in types and types and types[-1] in ("&", "*"):
                sharers[types[-2] if len(types) > 1 else ""].add(found.name)
    return sharers


def check_functions(project):
    """At most 70 lines, with the signature."""
    findings = []
    for path in project.cpp_files:
        shapes = project.shapes(path)
        if not shapes.balanced:
            findings.append(Finding("functions", path, 1, "the brackets do not match: give both branches of "
                                    "each #if the same brackets", "brackets"))
        for found in shapes.functions:
            if found.line_count > FUNCTION_LINES_MAX:
                findings.append(Finding("functions", path, found.line,
                                        f"{found.name} has {found.line_count} lines, at most "
                                        f"{FUNCTION_LINES_MAX} are allowed: move parts to functions of their "
                                        "own", found.name, found.line_count))
    return findings


def check_files(project):
    """At most 600 lines in a file, and 40 files in a folder."""
    findings = []
    for path in project.cpp_files + project.files_with(".py", ".sh"):
        count = project.text(path).count("\n")
        if count > FILE_LINES_MAX:
            findings.append(Finding("files", path, 1, f"the file has {count} lines, at most {FILE_LINES_MAX} "
                                    "are allowed: split it", size=count))
    for folder, count in files_per_folder(project).items():
        if count > FOLDER_FILES_MAX:
            findings.append(Finding("folders", folder, 1, f"the folder has {count} files, at most "
                                    f"{FOLDER_FILES_MAX} are allowed: split it", size=count))
    return findings


def files_per_folder(project):
    return Counter(str(PurePosixPath(path).parent) for path in project.files)


def check_size(project):
    """The lines of the product's C++ are within the budget of their folder."""
    budget = budget_of(project)
    folders = folder_lines(project)
    findings = [Finding("size", BUDGET, 1, f"{folder}/ has no product C++: remove its line", folder)
                for folder in budget.keys() - folders.keys()]
    for folder, counts in folders.items():
        for name, count, limit in zip(("lines", "code"), (counts["lines"], counts["code"]),
                                      budget.get(folder, (0, 0))):
            if count > limit:
                findings.append(Finding("size", BUDGET, 1, f"{folder}/ has {count} lines of product C++ ({name}), its "
                                        f"budget is {limit}: remove code, or raise the budget in a commit that does "
                                        f"nothing else and names the folder, the issue and the growth",
                                        f"{folder}:{name}", count))
    return findings


def budget_of(project):
    return read_budget(project.text(BUDGET)) if BUDGET in project.files else {}


def read_budget(text):
    """Returns the lines and the lines of code that each folder may have."""
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {folder: (int(lines), int(code)) for folder, lines, code in rows}


def shrunk_budget(project):
    """Returns the budget's text, with each figure lowered to the folder's own."""
    text = project.text(BUDGET)
    folders = folder_lines(project)
    rows = [line for line in text.splitlines(keepends=True) if not line.strip() or line.startswith("#")]
    for folder, (lines, code) in sorted(read_budget(text).items()):
        if folder in folders:
            counts = folders[folder]
            rows.append(f"{folder:<12}{min(lines, counts['lines']):>7}{min(code, counts['code']):>8}\n")
    return "".join(rows)


def folder_lines(project):
    """Returns the figures of each top folder with product C++."""
    paths = {}
    for path in project.product_cpp_files:
        paths.setdefault(path.split("/")[0], []).append(path)
    return {folder: count_lines(project, of_folder) for folder, of_folder in paths.items()}


def product_lines(project):
    return count_lines(project, project.product_cpp_files)


def count_lines(project, paths):
    sources = [project.cpp(path) for path in paths]
    return {"lines": sum(source.line_count for source in sources),
            "code": sum(source.code_line_count for source in sources),
            "comments": sum(source.comment_line_count for source in sources)}


def check_docs(project):
    """At most 180 lines of 100 columns in README.md, and 24,500 words in docs/."""
    words = docs_words(project)
    findings = []
    if words > DOCS_WORDS_MAX:
        findings.append(Finding("docs", "docs", 1, f"the documents have {words} words, at most "
                                f"{DOCS_WORDS_MAX} are allowed: shorten them", size=words))
    lines = readme_lines(project)
    if lines > README_LINES_MAX:
        findings.append(Finding("docs", "README.md", 1, f"README.md has {lines} lines, at most "
                                f"{README_LINES_MAX} are allowed: move details to docs/", size=lines))
    for number, columns in enumerate(readme_columns(project), start=1):
        if columns > README_COLUMNS_MAX:
            findings.append(Finding("docs", "README.md", number, f"the line has {columns} columns, at most "
                                    f"{README_COLUMNS_MAX} are allowed: break it"))
    return findings


def docs_words(project):
    paths = [path for path in project.files_with(".md") if path.startswith("docs/")]
    return sum(len(project.text(path).split()) for path in paths)


def readme_lines(project):
    return len(readme_columns(project))


def readme_columns(project):
    """Returns the columns of each line."""
    return [len(line) for line in project.text("README.md").splitlines()] if "README.md" in project.files else []
