"""The code's table of messages and the document's agree."""
import unittest

from fixture import LintTest
import messages

CODE = """#define PANDO_MESSAGES(X) \\
  X(Push, PUSH, kLane | kWorker, kMembers, kOne) \\
  X(Ping, PING, kScheduler, kMembers, kAny, kHeartbeat) \\
  X(Ask, ASK, kScheduler, kAnyone, kAny) \\
  X(Told, TOLD, kClient, kOnlyScheduler, kAny) \\
  X(Stop, STOP, kLane, kOnlyScheduler, kAny)
"""
DOCUMENT = """- A node accepts one of the messages of another generation (`ViewMember::Admit`): `Stop`.

| message | from → to | answer |
|---|---|---|
| `Push` | worker → primary's lane or relaying worker | none |
| `Ping` | node → scheduler, heartbeat channel | none |
| `Ask` | supervisor → scheduler | `Told` |
| `Told` | scheduler → client | none |
| `Stop` | scheduler → lanes | none |
"""


class MessagesTest(LintTest):
    def check(self, code, document):
        return messages.check_messages(self.project({"proto/message_table.h": code, "docs/protocol.md": document}))

    def test_equal_tables_are_accepted(self):
        self.expect(self.check(CODE, DOCUMENT))

    def test_a_message_in_one_of_them_is_found(self):
        without = DOCUMENT.replace("| `Ask` | supervisor → scheduler | `Told` |\n", "")
        self.expect(self.check(CODE, without), ("proto/message_table.h", 4, "Ask is not in the messages table"))
        code = CODE.replace("  X(Ask, ASK, kScheduler, kAnyone, kAny) \\\n", "")
        self.expect(self.check(code, DOCUMENT), ("docs/protocol.md", 7, "Ask is not a message"))

    def test_another_handler_is_found(self):
        self.expect(self.check(CODE.replace("kLane | kWorker", "kLane"), DOCUMENT),
                    ("docs/protocol.md", 5, "is handled by lane, and not by lane, worker"))
        self.expect(self.check(CODE, DOCUMENT.replace("node → scheduler", "node → lanes")),
                    ("docs/protocol.md", 6, "is handled by scheduler, and not by lane"))

    def test_another_sender_is_found(self):
        self.expect(self.check(CODE.replace("kClient, kOnlyScheduler", "kClient, kMembers"), DOCUMENT),
                    ("docs/protocol.md", 8, "other senders (kMembers)"))
        self.expect(self.check(CODE, DOCUMENT.replace("supervisor → scheduler", "scheduler → scheduler")),
                    ("docs/protocol.md", 7, "other senders (kAnyone)"))
        self.expect(self.check(CODE.replace("kAnyone", "kMembers"), DOCUMENT),
                    ("docs/protocol.md", 7, "other senders (kMembers)"))
        self.expect(self.check(CODE.replace("PUSH, kLane | kWorker, kMembers", "PUSH, kLane | kWorker, kAnyone"),
                               DOCUMENT), ("docs/protocol.md", 5, "other senders (kAnyone)"))

    def test_another_generation_is_found(self):
        self.expect(self.check(CODE.replace("kMembers, kOne", "kMembers, kAny"), DOCUMENT),
                    ("proto/message_table.h", 2, "in another generation"))
        self.expect(self.check(CODE, DOCUMENT.replace("`Stop`.", "`Push`, `Stop`.")),
                    ("proto/message_table.h", 2, "in another generation"))

    def test_another_channel_is_found(self):
        self.expect(self.check(CODE, DOCUMENT.replace(", heartbeat channel", "")),
                    ("docs/protocol.md", 6, "other channel"))


if __name__ == "__main__":
    unittest.main()
