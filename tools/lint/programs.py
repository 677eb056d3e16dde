"""Checks by other programs: clang-format, clang-tidy, flake8 and shellcheck."""
import json
import os
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from findings import Finding

# Which files clang-tidy checks, and how long for all of them together. One file takes about 10 s.
TIDY_ALL = {"commits": 20, "seconds": 300, "jobs": len(os.sched_getaffinity(0))}
TIDY_CHANGED = {"commits": 1, "seconds": 45, "jobs": 1}
LINE = re.compile(r"^(?P<path>[^:\n]+):(?P<line>\d+):(?:\d+:)? (?P<what>.*)$")


class Skipped(Exception):
    """A check that cannot run here; its text says why, and what to do."""


def find_program(name):
    if shutil.which(name) is None:
        raise Skipped(f"{name} is not installed: run tools/setup.sh")
    return name


def run_lines(project, command):
    """Runs `command` in the root, and returns all that it prints."""
    done = subprocess.run(command, cwd=project.root, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).splitlines()


def check_format(project):
    """clang-format changes nothing."""
    command = [find_program("clang-format"), "--dry-run", *project.cpp_files]
    first = {}
    for line in run_lines(project, command) if project.cpp_files else []:
        found = LINE.match(line)
        if found and "clang-format-violations" in found["what"]:
            first.setdefault(found["path"], int(found["line"]))
    return [Finding("format", path, line, "clang-format would change this: run tools/lint.sh --fix")
            for path, line in first.items()]


def fix_format(project):
    subprocess.run([find_program("clang-format"), "-i", *project.cpp_files], cwd=project.root, check=True)


def check_python(project):
    """flake8, with the settings in .flake8."""
    paths = project.files_with(".py")
    if not paths:
        return []
    lines = run_lines(project, [find_program("flake8"), *paths])
    return [Finding("python", found["path"], int(found["line"]), f"flake8: {found['what']}")
            for found in map(LINE.match, lines) if found]


def check_shell(project):
    """shellcheck, with the settings in .shellcheckrc."""
    paths = project.files_with(".sh")
    if not paths:
        return []
    lines = run_lines(project, [find_program("shellcheck"), "--format=gcc", *paths])
    return [Finding("shell", found["path"], int(found["line"]), f"shellcheck: {found['what']}")
            for found in map(LINE.match, lines) if found]


def check_tidy(project, build_folder, say, scope=None):
    """clang-tidy, with the checks in .clang-tidy, on new files and those of the last 20 commits."""
    scope = scope or TIDY_ALL
    tidy = find_program("clang-tidy")
    database = Path(build_folder) / "compile_commands.json"
    if not database.is_file():
        raise Skipped(f"{database} does not exist: run `meson setup build`")
    compiled = read_database(project, database)
    changed = changed_files(project, scope["commits"])
    wanted = [path for path in choose_sources(changed) if path in compiled]
    deadline = time.monotonic() + scope["seconds"]
    with TemporaryDirectory() as folder, ThreadPoolExecutor(scope["jobs"]) as pool:
        entries = [compiled[path] for path in wanted]
        Path(folder, "compile_commands.json").write_text(json.dumps(entries), encoding="utf-8")
        jobs = [pool.submit(run_tidy, project, tidy, entry["file"], folder, deadline) for entry in entries]
        results = [job.result() for job in jobs]
    late = [path for path, lines in zip(wanted, results) if lines is None]
    say(f"tidy: checked {len(wanted) - len(late)} of {len(wanted)} new files and files of the last "
        f"{scope['commits']} commits")
    if late:
        say(f"tidy: not checked within {scope['seconds']} s: {len(late)} files, first {late[0]}")
    foreign = [path for path, lines in zip(wanted, results) if "[clang-diagnostic-error]" in "".join(lines or [])]
    if foreign:
        say(f"tidy: this clang-tidy cannot compile all of: {' '.join(foreign)}")
    return collect_tidy(project, [line for lines in results for line in lines or []], Path(build_folder).resolve())


def read_database(project, database):
    """Returns path in the repository -> its entry in the database. Each file that a unit includes has one."""
    compiled = {}
    for entry in json.loads(database.read_text(encoding="utf-8")):
        path = Path(entry["directory"], entry["file"]).resolve()
        sources = included_sources(project, path) if path.parent.name == "units" else [path]
        for source in sources:
            if source.is_relative_to(project.root):
                command = entry["command"].replace(f" -c {entry['file']}", f" -c {source}")
                compiled[str(source.relative_to(project.root))] = {
                    "directory": entry["directory"], "file": str(source), "command": command}
    return compiled


def included_sources(project, unit):
    """Returns the source files that tests/make_units.py joined."""
    text = unit.read_text(encoding="utf-8")
    return [project.root / name for name in re.findall(r'#include "([^"]+)"', text)]


def changed_files(project, commits):
    """Returns the files that are not committed, then those of the last commits, last changed first."""
    try:
        shallow = Path(project.root, project.git("rev-parse", "--git-path", "shallow").strip())
        # In a shallow clone the oldest commit lists all files as its own.
        cut = set(shallow.read_text(encoding="utf-8").split()) if shallow.is_file() else set()
        log = project.git("log", f"-{commits}", "--no-merges", "--name-only", "--format=commit %H")
        new = project.git("diff", "--name-only", "HEAD") + project.git("ls-files", "--others", "--exclude-standard")
    except (OSError, subprocess.CalledProcessError) as error:
        raise Skipped("the files of the last commits are unknown: git has no history here") from error
    files = dict.fromkeys(new.splitlines())
    is_cut = False
    for line in log.splitlines():
        if line.startswith("commit "):
            is_cut = line.removeprefix("commit ") in cut
        elif line and not is_cut:
            files[line] = None
    return list(files)


def choose_sources(changed):
    """Chooses the sources to check: for a header, the source file with its name."""
    sources = {str(Path(path).with_suffix(".cc")): None for path in changed if path.endswith((".cc", ".h"))}
    return list(sources)


def run_tidy(project, tidy, path, build_folder, deadline):
    """Returns clang-tidy's output; None if there was no time for it."""
    left = deadline - time.monotonic()
    if left <= 0:
        return None
    command = [tidy, "--quiet", "-p", str(build_folder), path]
    try:
        done = subprocess.run(command, cwd=project.root, capture_output=True, text=True, timeout=left, check=False)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.splitlines()


def collect_tidy(project, lines, build_folder):
    findings = {}  # a header's findings come from several sources
    for found in map(LINE.match, lines):
        if not found or not re.match(r"(warning|error): ", found["what"]):
            continue
        if "[clang-diagnostic-" in found["what"]:
            continue  # g++ decides what compiles: clang 14 lacks parts of C++20
        path = (build_folder / found["path"]).resolve()  # clang-tidy names it as the compiler does
        is_generated = path.is_relative_to(build_folder)
        if path.is_relative_to(project.root) and not is_generated:
            finding = Finding("tidy", str(path.relative_to(project.root)), int(found["line"]),
                              f"clang-tidy: {found['what']}")
            findings[finding] = None
    return list(findings)
