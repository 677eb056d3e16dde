"""Checks that the table of messages in the code and the one in docs/protocol.md agree."""
import re

from findings import Finding

TABLE = "proto/message_table.h"
DOCUMENT = "docs/protocol.md"
ROW = re.compile(r"^ *X\((?P<name>\w+), \w+, (?P<handlers>[\w| ]+), (?P<sender>\w+), (?P<generation>\w+)"
                 r", (?P<about>\w+), (?P<size>\w+)(?:, (?P<channel>\w+))?\)")
# The document's word for a handler in the code.
HANDLERS = {"kScheduler": "scheduler", "kLane": "lane", "kWorker": "worker", "kGroup": "worker",
            "kJoiner": "node", "kClient": "client", "kFiles": "store", "kFileClient": "node"}
WORDS = {**{word: word for word in HANDLERS.values()}, "supervisor": "client"}
# The document's word for a sender, and its roles in a view; all others of the view are of both.
ROLES = {"lane": {"kServers"}, "worker": {"kWorkers"}, "relay": {"kWorkers"}, "scheduler": set()}
BOTH_ROLES = {"kServers", "kWorkers"}
JOINS = {"Register", "Declaration"}  # a node is a newcomer until it has sent these
FOR_READERS = {"StatusRequest"}  # all else that a client asks takes the admin key
ABOUT = {"kItself": "", "kPrimary": "primary", "kReplica": "replica", "kHolder": "holder", "kSlice": "slice",
         "kMicroBatch": "micro-batches"}
UNHANDLED = "HeartbeatAck"


def check_messages(project):
    """The messages of proto/message_table.h are those of docs/protocol.md, between the same parties."""
    if TABLE not in project.files:
        return []
    rows, described = {}, {}
    for line, text in enumerate(project.text(TABLE).splitlines(), 1):
        if found := ROW.match(text):
            rows[found["name"]] = (line, found)
    for line, text in enumerate(project.text(DOCUMENT).splitlines(), 1):
        cells = [cell.strip() for cell in text.split("|")]
        if len(cells) == 6 and "→" in cells[2]:
            for name in re.findall(r"`(\w+)`", cells[1]):
                described[name] = (line, cells[2], cells[3])
    crossing = find_crossing(project)
    findings = [Finding("messages", TABLE, line, f"{name}: this table and P21 of {DOCUMENT} differ in whether a node "
                        "accepts it in another generation: change one of them", name)
                for name, (line, row) in rows.items()
                if is_for_nodes(row) and (row["generation"] == "kAny") != (name in crossing)]
    findings += [Finding("messages", TABLE, line, f"{name} is not in the messages table of {DOCUMENT}: add it", name)
                 for name, (line, _) in rows.items() if name not in described]
    for name, (line, parties, about) in described.items():
        problem = "is not a message" if name not in rows else find_problem(rows[name][1], parties, about)
        if problem:
            findings.append(Finding("messages", DOCUMENT, line, f"{name} {problem} by {TABLE}: change one of them",
                                    name))
    return findings


def is_for_nodes(row):
    """Whether lanes or sessions handle it."""
    return bool(re.search("kLane|kWorker|kGroup", row["handlers"]))


def find_crossing(project):
    """The messages that P21 has a node accept in another generation."""
    rule = re.search(r"messages of another generation \(`ViewMember::Admit`\):(.*?)`Stop`",
                     project.text(DOCUMENT), re.S)
    return set(re.findall(r"`(\w+)`", rule[1])) | {"Stop"} if rule else set()


def find_problem(row, parties, about):
    """How `parties`, "sender → receiver; sender → receiver", and what it is about differ from the row."""
    if ABOUT.get(row["about"]) != about:
        return f"is about something else ({row['about']} instead of {about or 'its sender'})"
    senders = {part.split("→")[0].strip() for part in parties.split(";")}
    receivers = set(re.findall(r"\w+?(?=s?\b)", " ".join(part.split("→")[1] for part in parties.split(";"))))
    handlers = {HANDLERS[name] for name in re.findall(r"\w+", row["handlers"]) if name in HANDLERS}
    named = {WORDS[word] for word in receivers & WORDS.keys()}
    if named != handlers and row["name"] != UNHANDLED:
        return f"is handled by {', '.join(sorted(handlers))}, and not by {', '.join(sorted(named))},"
    described = find_sender(row["name"], senders)
    if row["sender"] != described:
        return f"is accepted from other senders ({row['sender']} instead of {described})"
    if ("heartbeat channel" in parties) != (row["channel"] == "kHeartbeat"):
        return "travels on the other channel"
    return None


def find_sender(name, senders):
    """The code's word for these senders of the document: "worker, lane 0", "primary's lane"."""
    if "client" in senders:
        return "kReader" if name in FOR_READERS else "kAdmin"
    if "supervisor" in senders or name in JOINS:
        return "kNewcomer"
    if senders in ({"scheduler"}, {"store"}):
        return "kOnlyScheduler"
    roles = set()
    for sender in ", ".join(senders).split(", "):
        known = [ROLES[word] for word in re.findall(r"\w+", sender) if word in ROLES]
        roles |= set().union(*known) if known else BOTH_ROLES
    return "kNodes" if roles == BOTH_ROLES else "".join(roles)
