"""Checks that the table of the scheduler's parts says which part knows which."""
import re

from findings import Finding

TABLE = "scheduler/scheduler.h"
BUILDER = "scheduler/scheduler_parts.h"
BASE = "SchedulerPart"  # a part that gets one knows all that its constructor gets
COLLABORATORS_MAX = 10
# Parameters that a part reads while it is built, and does not keep.
STATE = {"SchedulerOptions", "optional", "Identity"}
# "//   c RunPhase | the phase, ... | .b": a part's letter, its class, its state, the letters of the parts it knows.
ROW = re.compile(r"^//   (\w) (\w+) +\| [^|]* \| ?([\w.]*)$", re.M)
PART = re.compile(r"^  (\w+) \w+\{", re.M)


def check_parts(project):
    """The table of scheduler/scheduler.h says which part knows which, as the constructors do."""
    if BUILDER not in project.files:
        return []
    text = project.text(TABLE)
    rows = [(text.count("\n", 0, row.start()) + 1, *row.groups()) for row in ROW.finditer(text)]
    letters = {part: letter for _, letter, part, _ in rows}
    parts = PART.findall(project.cpp(BUILDER).code)
    findings = []
    if [part for _, _, part, _ in rows] != parts:
        findings.append(Finding("parts", TABLE, 1, f"the table has other parts, or another order, than {BUILDER}: "
                                + " ".join(parts), "order"))
    headers = find_headers(project, [*parts, BASE])
    shared = headers.get(BASE, ("", []))[1]
    for line, letter, part, known in rows:
        if part not in headers:
            continue
        path, types = headers[part]
        types = [known for name in types for known in (shared if name == BASE else [name])]
        knows = {letters[name] for name in types if name in letters}
        wanted = "".join(other if other in knows else "." for _, other, _, _ in rows).rstrip(".")
        if known != wanted:
            findings.append(Finding("parts", TABLE, line, f"the table says that {part} knows {known or 'none'}, its "
                                    f"constructor {wanted or 'none'}: change one of them", part))
        if any(other >= letter for other in knows):
            findings.append(Finding("parts", path, 1, f"{part} knows a part below it in the table of {TABLE}", part))
        if len(types) > COLLABORATORS_MAX:
            findings.append(Finding("parts", path, 1, f"{part} has {len(types)} collaborators, at most "
                                    f"{COLLABORATORS_MAX} are allowed: split what it does", part, len(types)))
    return findings


def find_headers(project, parts):
    """part -> (its header, the types that its constructor gets by reference or pointer)"""
    headers = {}
    for path in project.files_with(".h"):
        if not path.startswith("scheduler/"):
            continue
        code = project.cpp(path).code
        for part in parts:
            body = re.search(rf"^class {part} (?:: [^{{]*)?{{", code, re.M)
            if body is None:
                continue
            constructor = re.search(rf"^  (?:explicit )?{part}\(([^)]*)\)", code[body.end():], re.M)
            parameters = constructor.group(1) if constructor else ""
            types = re.findall(r"(\w+)(?:<\w+>)?\s*[&*]\s*\w+\s*(?:,|$)", parameters)
            headers[part] = (path, [name for name in types if name not in STATE])
    return headers
