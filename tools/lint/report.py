"""The figures beside their limits."""
from collections import Counter

import limits


def print_report(project, findings, exceptions):
    lines = limits.product_lines(project)
    classes = [(path, found) for path in project.cpp_files for found in project.shapes(path).classes
               if found.name not in limits.FIELD_VISITORS]
    judged = [(path, found) for path, found in classes if not limits.is_plain(found)]
    functions = [(found.line_count, found.name, path) for path in project.cpp_files
                 for found in project.shapes(path).functions]
    files = [(project.text(path).count("\n"), path) for path in project.cpp_files]
    folders = [(count, folder) for folder, count in limits.files_per_folder(project).items()]

    print(f"{'figure':<46}{'now':>8}{'limit':>8}")
    budget = limits.budget_of(project)
    print_row("lines of product C++", lines["lines"], sum(limit for limit, _ in budget.values()))
    print_row("  without comments and blank lines", lines["code"], sum(limit for _, limit in budget.values()))
    for folder, counts in limits.folder_lines(project).items():
        print_row(f"  in {folder}/", counts["lines"], budget.get(folder, (0, 0))[0])
    print_row("  comments per 100 lines of code", round(100 * lines["comments"] / max(lines["code"], 1), 1))
    print_row("lines of test C++", sum(project.cpp(path).line_count for path in project.cpp_files
                                       if path.startswith("tests/")))
    print_row("lines of README.md", limits.readme_lines(project), limits.README_LINES_MAX)
    print_row("  columns of its longest line", max(limits.readme_columns(project), default=0),
              limits.README_COLUMNS_MAX)
    print_row("words of docs/", limits.docs_words(project), limits.DOCS_WORDS_MAX)
    print_largest("methods of a class", limits.METHODS_MAX,
                  [(len(found.methods), found.name, path) for path, found in classes])
    print_largest("data members of a class", limits.DATA_MEMBERS_MAX,
                  [(len(found.members), found.name, path) for path, found in judged])
    print_largest("lines of a function", limits.FUNCTION_LINES_MAX, functions)
    print_largest("lines of a file", limits.FILE_LINES_MAX, files)
    print_largest("files of a folder", limits.FOLDER_FILES_MAX, folders)

    print(f"\n{'check':<16}{'findings':>10}{'exceptions':>12}")
    found = Counter(finding.check for finding in findings)
    listed = Counter(entry.check for entry in exceptions.entries)
    for check in sorted(found | listed):
        print(f"{check:<16}{found[check]:>10}{listed[check]:>12}")


def print_row(label, value, limit=""):
    print(f"{label:<46}{value:>8}{limit:>8}")


def print_largest(label, limit, sized, shown=5):
    """Prints the largest of `sized`, a list of (size, words...), and how many exceed the limit."""
    largest = sorted(sized, reverse=True)
    over = sum(size > limit for size, *_ in largest)
    print_row(f"{label}: largest", largest[0][0] if largest else 0, limit)
    if over:
        print_row(f"{label}: over the limit", over, 0)
    for size, *words in largest[:shown]:
        print(f"    {size:>5}  {'  '.join(words)}")
