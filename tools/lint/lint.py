"""tools/lint.sh: runs the checks, and prints one line per finding."""
import argparse
import sys
from functools import partial
from pathlib import Path

import history
import layers
import limits
import messages
import names
import parts
import phrases
import programs
import report
import temporary
from findings import Exceptions
from project import Project

EXCEPTIONS = "tools/lint/exceptions.txt"
SKIPPED = 77  # as Meson knows it
# name: (function, the names of its findings)
CHECKS = {
    "format": (programs.check_format, ["format"]),
    "tidy": (programs.check_tidy, ["tidy"]),
    "layers": (layers.check_layers, ["layers"]),
    "messages": (messages.check_messages, ["messages"]),
    "parts": (parts.check_parts, ["parts"]),
    "classes": (limits.check_classes, ["methods", "members"]),
    "functions": (limits.check_functions, ["functions"]),
    "files": (limits.check_files, ["files", "folders"]),
    "size": (limits.check_size, ["size"]),
    "docs": (limits.check_docs, ["docs"]),
    "names": (names.check_names, ["names", "headers", "mentions"]),
    "phrases": (phrases.check_phrases, ["phrases"]),
    "history": (history.check_history, ["history"]),
    "temporary": (temporary.check_temporary, ["temporary"]),
    "python": (programs.check_python, ["python"]),
    "shell": (programs.check_shell, ["shell"]),
}


def say(text):
    print(f"lint: {text}", file=sys.stderr, flush=True)


def parse_arguments(arguments):
    names = "\n".join(f"  {name:<10} {check.__doc__.splitlines()[0]}" for name, (check, _) in CHECKS.items())
    parser = argparse.ArgumentParser(
        prog="tools/lint.sh", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Checks the repository against its house style. Exits 1 when there is a finding, 77 when "
                    "a check that was named cannot run here.",
        epilog=f"checks:\n{names}\n\n{EXCEPTIONS} lists the findings that are still allowed.")
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="the checks to run; all without it")
    parser.add_argument("--build", metavar="FOLDER", help="build folder for tidy (default: build)")
    parser.add_argument("--changed", action="store_true",
                        help="tidy: only new files and those of the last commit, on one core")
    parser.add_argument("--report", action="store_true", help="print the figures beside their limits; exit 0")
    parser.add_argument("--fix", action="store_true", help="format the C++ files in place, then check")
    parser.add_argument("--shrink", action="store_true",
                        help="drop exceptions that are no longer needed, lower the others and the "
                             "budget of lines; exit 0")
    parser.add_argument("--accept", metavar="REASON",
                        help="add exceptions with this reason for all findings; exit 0")
    parser.add_argument("--root", help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    unknown = [name for name in parsed.checks if name not in CHECKS]
    if unknown:
        parser.error(f"unknown check {unknown[0]}: expected one of {' '.join(CHECKS)}")
    return parsed


def run_checks(project, names, build_folder, tidy_scope):
    """Returns the findings, the checks that ran and those that could not."""
    findings, ran, skipped = [], [], []
    for name in names:
        check, finding_names = CHECKS[name]
        try:
            if check is programs.check_tidy:
                check = partial(check, build_folder=build_folder, say=say, scope=tidy_scope)
            findings += check(project)
            ran += finding_names
        except programs.Skipped as reason:
            say(f"SKIPPED {name}: {reason}")
            skipped.append(name)
    return findings, ran, skipped


def main(arguments):
    options = parse_arguments(arguments)
    project = Project(options.root or Path(__file__).parents[2])
    listed = project.root / EXCEPTIONS
    exceptions = Exceptions(EXCEPTIONS, listed.read_text(encoding="utf-8") if listed.is_file() else "")
    if options.fix:
        programs.fix_format(project)
    names = options.checks or list(CHECKS)
    if options.report or options.shrink or options.accept:
        names = [name for name in names if name != "tidy"]
    build_folder = Path(options.build) if options.build else project.root / "build"
    tidy_scope = programs.TIDY_CHANGED if options.changed else programs.TIDY_ALL
    findings, ran, skipped = run_checks(project, names, build_folder, tidy_scope)
    if options.report:
        report.print_report(project, findings, exceptions)
        return 0
    if options.shrink:
        listed.write_text(exceptions.shrunk(ran, findings), encoding="utf-8")
        if limits.BUDGET in project.files:
            (project.root / limits.BUDGET).write_text(limits.shrunk_budget(project), encoding="utf-8")
        return 0
    if options.accept:
        listed.write_text(exceptions.grown(findings, options.accept), encoding="utf-8")
        return 0
    remaining = exceptions.apply(ran, findings)
    for finding in sorted(remaining, key=lambda found: (found.path, found.line, found.what)):
        print(finding)
    say(f"{len(remaining)} findings, {len(findings) - len(remaining)} exceptions"
        + (f", skipped: {' '.join(skipped)}" if skipped else ""))
    return 1 if remaining else SKIPPED if options.checks and skipped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
