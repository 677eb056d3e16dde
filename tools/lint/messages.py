"""Checks that the messages of the schema and the table in docs/protocol.md agree."""
import re

from findings import Finding

SCHEMA = "proto/pando.capnp"
DOCUMENT = "docs/protocol.md"
MESSAGE = re.compile(r"^struct (?P<name>\w+) \$message\((?P<facts>[^)]*)\)", re.M)
# The facts of a message unless its annotation says otherwise.
DEFAULTS = {"handlers": "", "generation": "any", "about": "itself", "size": "small", "channel": "data"}
# The document's word for a handler in the code.
HANDLERS = {"scheduler": "scheduler", "lane": "lane", "worker": "worker", "group": "worker",
            "joiner": "node", "client": "client", "files": "store", "fileClient": "node",
            "standby": "standby", "mirror": "leader"}
WORDS = {**{word: word for word in HANDLERS.values()}, "supervisor": "client"}
# The document's word for a sender, and its roles in a view; the roles of other senders are both.
ROLES = {"lane": {"servers"}, "worker": {"workers"}, "relay": {"workers"}, "scheduler": set()}
BOTH_ROLES = {"servers", "workers"}
JOINS = {"Register", "Declaration"}  # a node is a newcomer until it has sent these
FOR_READERS = {"StatusRequest"}  # a client's other requests need the admin key
ABOUT = {"itself": "", "primary": "primary", "replica": "replica", "holder": "holder", "slice": "slice",
         "microBatch": "micro-batches"}
UNHANDLED = "HeartbeatAck"


def check_messages(project):
    """The messages of proto/pando.capnp and docs/protocol.md are equal, between the same parties."""
    if SCHEMA not in project.files:
        return []
    rows, described = find_messages(project.text(SCHEMA)), {}
    for line, text in enumerate(project.text(DOCUMENT).splitlines(), 1):
        cells = [cell.strip() for cell in text.split("|")]
        if len(cells) == 6 and "→" in cells[2]:
            for name in re.findall(r"`(\w+)`", cells[1]):
                described[name] = (line, cells[2], cells[3])
    crossing = find_crossing(project)
    findings = [Finding("messages", SCHEMA, line, f"{name}: the schema and P21 of {DOCUMENT} differ in whether a node "
                        "accepts it in another generation: change one of them", name)
                for name, (line, row) in rows.items()
                if is_for_nodes(row) and (row["generation"] == "any") != (name in crossing)]
    findings += [Finding("messages", SCHEMA, line, f"{name} is not in the messages table of {DOCUMENT}: add it", name)
                 for name, (line, _) in rows.items() if name not in described]
    for name, (line, parties, about) in described.items():
        problem = "is not a message" if name not in rows else find_problem(rows[name][1], parties, about)
        if problem:
            findings.append(Finding("messages", DOCUMENT, line, f"{name} {problem} by {SCHEMA}: change one of them",
                                    name))
    return findings


def find_messages(schema):
    """Returns the line and the facts of each message, by its name."""
    rows = {}
    for found in MESSAGE.finditer(schema):
        facts = re.findall(r"(\w+) = (\[[^]]*\]|\w+)", found["facts"])
        rows[found["name"]] = (schema.count("\n", 0, found.start()) + 1,
                               {**DEFAULTS, **dict(facts), "name": found["name"]})
    return rows


def is_for_nodes(row):
    """Returns whether lanes or sessions handle it."""
    return bool(re.search(r"\b(lane|worker|group)\b", row["handlers"]))


def find_crossing(project):
    """Returns the messages that a node accepts in another generation (P21)."""
    rule = re.search(r"messages of another generation \(`ViewMember::Admit`\):(.*?)`Stop`",
                     project.text(DOCUMENT), re.S)
    return set(re.findall(r"`(\w+)`", rule[1])) | {"Stop"} if rule else set()


def find_problem(row, parties, about):
    """Returns how `parties`, "sender → receiver; sender → receiver", and `about` differ from the row."""
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
    if ("heartbeat channel" in parties) != (row["channel"] == "heartbeat"):
        return "travels on the other channel"
    return None


def find_sender(name, senders):
    """Returns the code's word for these senders of the document: "worker, lane 0", "primary's lane"."""
    if senders & {"client", "leader"}:
        return "reader" if name in FOR_READERS else "admin"
    if "supervisor" in senders or name in JOINS:
        return "newcomer"
    if senders in ({"scheduler"}, {"store"}, {"standby"}):
        return "onlyScheduler"
    roles = set()
    for sender in ", ".join(senders).split(", "):
        known = [ROLES[word] for word in re.findall(r"\w+", sender) if word in ROLES]
        roles |= set().union(*known) if known else BOTH_ROLES
    return "nodes" if roles == BOTH_ROLES else "".join(roles)
