"""The code's table of messages and the document's agree."""
import unittest

from fixture import LintTest
import messages

CODE = """#define PANDO_MESSAGES(X) \\
  X(Push, PUSH, kLane | kWorker, kMembers, kOne) \\
  X(Ping, PING, kScheduler, kMembers, kAny, kHeartbeat) \\
  X(Ask, ASK, kScheduler, kAnyone, kAny) \\
  X(Told, TOLD, kClient, kOnlyScheduler, kAny)
"""
DOCUMENT = """| message | from → to | answer |
|---|---|---|
| `Push` | worker → primary's lane or relaying worker | none |
| `Ping` | node → scheduler, heartbeat channel | none |
| `Ask` | supervisor → scheduler | `Told` |
| `Told` | scheduler → client | none |
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
        self.expect(self.check(code, DOCUMENT), ("docs/protocol.md", 5, "Ask is not a message"))

    def test_another_handler_is_found(self):
        self.expect(self.check(CODE.replace("kLane | kWorker", "kLane"), DOCUMENT),
                    ("docs/protocol.md", 3, "is handled by lane, and not by lane, worker"))
        self.expect(self.check(CODE, DOCUMENT.replace("node → scheduler", "node → lanes")),
                    ("docs/protocol.md", 4, "is handled by scheduler, and not by lane"))

    def test_another_sender_is_found(self):
        self.expect(self.check(CODE.replace("kOnlyScheduler", "kMembers"), DOCUMENT),
                    ("docs/protocol.md", 6, "other senders (kMembers)"))
        self.expect(self.check(CODE, DOCUMENT.replace("supervisor → scheduler", "scheduler → scheduler")),
                    ("docs/protocol.md", 5, "other senders (kAnyone)"))
        self.expect(self.check(CODE.replace("kAnyone", "kMembers"), DOCUMENT),
                    ("docs/protocol.md", 5, "not accepted from a supervisor"))

    def test_another_channel_is_found(self):
        self.expect(self.check(CODE, DOCUMENT.replace(", heartbeat channel", "")),
                    ("docs/protocol.md", 4, "other channel"))


if __name__ == "__main__":
    unittest.main()
