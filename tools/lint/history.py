"""Checks the commits: each has a body, and one that raises a limit does nothing else."""
import re
import subprocess
from functools import partial

import limits
from findings import Finding
from programs import Skipped

# The commits after this one are checked.
FIRST = "c3d51e8247bd46788535b19f992da6dddc33b3b9"
LIMIT_FILES = ("tools/lint/exceptions.txt", "tools/lint/limits.py", limits.BUDGET)
EXCEPTION = re.compile(r"^(?P<name>[a-z]+ +\S+) +(?P<limit>\d+) ", re.MULTILINE)
CONSTANT = re.compile(r"^(?P<name>\w+_MAX) = (?P<limit>[\d_]+)$", re.MULTILINE)


def check_history(project, first=FIRST):
    """Commits have a body; a limit rises in a commit that does nothing else; a budget by a figure that it names."""
    try:
        if project.git("rev-parse", "--is-shallow-repository").strip() == "true":
            raise Skipped("this clone is shallow: the commits are not here")
        project.git("merge-base", "--is-ancestor", first, "HEAD")
    except (OSError, subprocess.CalledProcessError) as error:
        raise Skipped(f"commit {first[:7]} is not in this history") from error
    findings = []
    log = project.git("log", "--no-merges", "--reverse", "--format=%H%x00%h %s%x00%b%x01", f"{first}..HEAD")
    of_limits = set(project.git("rev-list", f"{first}..HEAD", "--", *LIMIT_FILES).split())
    for entry in log.split("\x01")[:-1]:
        commit, subject, body = entry.strip().split("\0")
        if not body.strip():
            findings.append(Finding("history", ".", 1, f"commit {subject} has no body: say why it was made and how "
                                    "it was tested (git commit --amend, git rebase)", commit))
        raised = find_raised(project, commit) if commit in of_limits else {}
        changed = project.git("diff-tree", "-r", "--no-commit-id", "--name-only", commit).split() if raised else []
        if set(changed) - set(LIMIT_FILES):
            findings.append(Finding("history", LIMIT_FILES[0], 1, f"commit {subject} raises {', '.join(raised)} and "
                                    "changes other files: raise a limit in a commit that does nothing else, and name "
                                    "the feature in its body", commit))
        for name, growth in raised.items():
            if name.startswith("budget ") and not names_raise(subject + body, name.split()[1], growth):
                findings.append(Finding("history", limits.BUDGET, 1, f"commit {subject} raises the {name} by {growth}: "
                                        "name the folder, the issue and this figure in its body", commit))
    return findings


def names_raise(message, folder, growth):
    figures = message.replace(",", "")
    return f"{folder}/" in message and "issue " in message and re.search(rf"\b{growth}\b", figures)


def find_raised(project, commit):
    """Returns the limits that are higher after the commit, or new exceptions, and by how much."""
    before, after = (read_limits(project, revision) for revision in (f"{commit}^", commit))
    if not any(name.startswith("budget ") for name in before):  # the first budget raises nothing
        after = {name: limit for name, limit in after.items() if not name.startswith("budget ")}
    return {name: limit - before.get(name, 0) for name, limit in sorted(after.items()) if limit > before.get(name, 0)}


def read_limits(project, revision):
    found = {}
    for path in LIMIT_FILES:
        try:
            text = project.git("show", f"{revision}:{path}")
        except subprocess.CalledProcessError:
            continue
        found_in = {limits.BUDGET: read_budget_limits, LIMIT_FILES[0]: partial(read_pattern, EXCEPTION),
                    LIMIT_FILES[1]: partial(read_pattern, CONSTANT)}[path]
        found.update(found_in(text))
    return found


def read_pattern(pattern, text):
    return {" ".join(found["name"].split()): int(found["limit"]) for found in pattern.finditer(text)}


def read_budget_limits(text):
    return {f"budget {folder} {kind}": limit for folder, figures in limits.read_budget(text).items()
            for kind, limit in zip(("lines", "code"), figures)}
