"""The schema's messages and the document's agree."""
import unittest

from fixture import LintTest
import messages

CODE = """enum Core { scheduler @0; }
struct Push $message(handlers = [lane, worker], sender = workers, generation = one, size = payloads) {
}
struct Ping $message(handlers = [scheduler], sender = nodes, channel = heartbeat) {
}
struct Ask $message(handlers = [scheduler], sender = newcomer) {
}
struct Told $message(handlers = [client], sender = onlyScheduler) {
}
struct Stop $message(handlers = [lane], sender = onlyScheduler) {
}
struct Root $message(handlers = [lane], sender = servers,
    generation = one, about = primary) {
}
struct Reply $message(handlers = [worker], sender = nodes, generation = one, size = list) {
}
struct Register $message(handlers = [scheduler], sender = newcomer) {
}
struct StatusRequest $message(handlers = [scheduler], sender = reader) {
}
struct Command $message(handlers = [scheduler], sender = admin) {
}
"""
DOCUMENT = """- A node accepts one of the messages of another generation (`ViewMember::Admit`): `Stop`.

| message | from → to | about | answer |
|---|---|---|---|
| `Push` | worker → primary's lane or relaying worker | | none |
| `Ping` | node → scheduler, heartbeat channel | | none |
| `Ask` | supervisor → scheduler | | `Told` |
| `Told` | scheduler → client | | none |
| `Stop` | scheduler → lanes | | none |
| `Root` | primary's lane → backup's lane | primary | none |
| `Reply` | lane, relay → worker | | none |
| `Register` | node → scheduler | | none |
| `StatusRequest` | client → scheduler | | none |
| `Command` | client → scheduler | | none |
"""
ASK = "struct Ask $message(handlers = [scheduler], sender = newcomer)"
REGISTER = ASK.replace("Ask", "Register")


class MessagesTest(LintTest):
    def check(self, code, document):
        return messages.check_messages(self.project({"proto/pando.capnp": code, "docs/protocol.md": document}))

    def test_equal_tables_are_accepted(self):
        self.expect(self.check(CODE, DOCUMENT))

    def test_a_message_in_one_of_them_is_found(self):
        without = DOCUMENT.replace("| `Ask` | supervisor → scheduler | | `Told` |\n", "")
        self.expect(self.check(CODE, without), ("proto/pando.capnp", 6, "Ask is not in the messages table"))
        code = CODE.replace("struct Ask $message(handlers = [scheduler], sender = newcomer) {\n}\n", "")
        self.expect(self.check(code, DOCUMENT), ("docs/protocol.md", 7, "Ask is not a message"))

    def test_another_handler_is_found(self):
        self.expect(self.check(CODE.replace("lane, worker", "lane"), DOCUMENT),
                    ("docs/protocol.md", 5, "is handled by lane, and not by lane, worker"))
        self.expect(self.check(CODE, DOCUMENT.replace("node → scheduler, h", "node → lanes, h")),
                    ("docs/protocol.md", 6, "is handled by scheduler, and not by lane"))

    def test_another_sender_is_found(self):
        for line, before, after, sender in (
                (5, "worker], sender = workers", "worker], sender = nodes", "nodes instead of workers"),
                (6, "nodes, channel", "servers, channel", "servers instead of nodes"),
                (7, ASK, ASK.replace("newcomer", "nodes"), "nodes instead of newcomer"),
                (8, "client], sender = onlyScheduler", "client], sender = nodes", "nodes instead of onlyScheduler"),
                (10, "servers", "nodes", "nodes instead of servers"),
                (11, "nodes, generation", "servers, generation", "servers instead of nodes"),
                (12, REGISTER, REGISTER.replace("newcomer", "nodes"), "nodes instead of newcomer"),
                (13, "reader", "admin", "admin instead of reader"),
                (14, "admin", "reader", "reader instead of admin")):
            self.expect(self.check(CODE.replace(before, after), DOCUMENT),
                        ("docs/protocol.md", line, f"other senders ({sender})"))
        self.expect(self.check(CODE, DOCUMENT.replace("supervisor → scheduler", "scheduler → scheduler")),
                    ("docs/protocol.md", 7, "other senders (newcomer instead of onlyScheduler)"))

    def test_another_generation_is_found(self):
        self.expect(self.check(CODE.replace("workers, generation = one", "workers"), DOCUMENT),
                    ("proto/pando.capnp", 2, "in another generation"))
        self.expect(self.check(CODE, DOCUMENT.replace("`Stop`.", "`Push`, `Stop`.")),
                    ("proto/pando.capnp", 2, "in another generation"))

    def test_another_subject_is_found(self):
        self.expect(self.check(CODE, DOCUMENT.replace("| primary |", "| |")),
                    ("docs/protocol.md", 10, "about something else (primary instead of its sender)"))

    def test_another_channel_is_found(self):
        self.expect(self.check(CODE, DOCUMENT.replace(", heartbeat channel", "")),
                    ("docs/protocol.md", 6, "other channel"))


if __name__ == "__main__":
    unittest.main()
