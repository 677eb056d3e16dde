"""The code's table of messages and the document's agree."""
import unittest

from fixture import LintTest
import messages

CODE = """#define PANDO_MESSAGES(X) \\
  X(Push, PUSH, kLane | kWorker, kWorkers, kOne, kItself, kPayloads) \\
  X(Ping, PING, kScheduler, kNodes, kAny, kItself, kSmall, kHeartbeat) \\
  X(Ask, ASK, kScheduler, kNewcomer, kAny, kItself, kSmall) \\
  X(Told, TOLD, kClient, kOnlyScheduler, kAny, kItself, kSmall) \\
  X(Stop, STOP, kLane, kOnlyScheduler, kAny, kItself, kSmall) \\
  X(Root, ROOT, kLane, kServers, kOne, kPrimary, kPayloads) \\
  X(Reply, REPLY, kWorker, kNodes, kOne, kItself, kList) \\
  X(Register, REGISTER, kScheduler, kNewcomer, kAny, kItself, kSmall) \\
  X(StatusRequest, STATUS_REQUEST, kScheduler, kReader, kAny, kItself, kSmall) \\
  X(Command, COMMAND, kScheduler, kAdmin, kAny, kItself, kSmall)
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


class MessagesTest(LintTest):
    def check(self, code, document):
        return messages.check_messages(self.project({"proto/message_table.h": code, "docs/protocol.md": document}))

    def test_equal_tables_are_accepted(self):
        self.expect(self.check(CODE, DOCUMENT))

    def test_a_message_in_one_of_them_is_found(self):
        without = DOCUMENT.replace("| `Ask` | supervisor → scheduler | | `Told` |\n", "")
        self.expect(self.check(CODE, without), ("proto/message_table.h", 4, "Ask is not in the messages table"))
        code = CODE.replace("  X(Ask, ASK, kScheduler, kNewcomer, kAny, kItself, kSmall) \\\n", "")
        self.expect(self.check(code, DOCUMENT), ("docs/protocol.md", 7, "Ask is not a message"))

    def test_another_handler_is_found(self):
        self.expect(self.check(CODE.replace("kLane | kWorker", "kLane"), DOCUMENT),
                    ("docs/protocol.md", 5, "is handled by lane, and not by lane, worker"))
        self.expect(self.check(CODE, DOCUMENT.replace("node → scheduler, h", "node → lanes, h")),
                    ("docs/protocol.md", 6, "is handled by scheduler, and not by lane"))

    def test_another_sender_is_found(self):
        for line, before, after, sender in (
                (5, "PUSH, kLane | kWorker, kWorkers", "PUSH, kLane | kWorker, kNodes", "kNodes instead of kWorkers"),
                (6, "PING, kScheduler, kNodes", "PING, kScheduler, kServers", "kServers instead of kNodes"),
                (7, "ASK, kScheduler, kNewcomer", "ASK, kScheduler, kNodes", "kNodes instead of kNewcomer"),
                (8, "kClient, kOnlyScheduler", "kClient, kNodes", "kNodes instead of kOnlyScheduler"),
                (10, "ROOT, kLane, kServers", "ROOT, kLane, kNodes", "kNodes instead of kServers"),
                (11, "REPLY, kWorker, kNodes", "REPLY, kWorker, kServers", "kServers instead of kNodes"),
                (12, "REGISTER, kScheduler, kNewcomer", "REGISTER, kScheduler, kNodes", "kNodes instead of kNewcomer"),
                (13, "kReader", "kAdmin", "kAdmin instead of kReader"),
                (14, "kAdmin", "kReader", "kReader instead of kAdmin")):
            self.expect(self.check(CODE.replace(before, after), DOCUMENT),
                        ("docs/protocol.md", line, f"other senders ({sender})"))
        self.expect(self.check(CODE, DOCUMENT.replace("supervisor → scheduler", "scheduler → scheduler")),
                    ("docs/protocol.md", 7, "other senders (kNewcomer instead of kOnlyScheduler)"))

    def test_another_generation_is_found(self):
        self.expect(self.check(CODE.replace("kWorkers, kOne", "kWorkers, kAny"), DOCUMENT),
                    ("proto/message_table.h", 2, "in another generation"))
        self.expect(self.check(CODE, DOCUMENT.replace("`Stop`.", "`Push`, `Stop`.")),
                    ("proto/message_table.h", 2, "in another generation"))

    def test_another_subject_is_found(self):
        self.expect(self.check(CODE, DOCUMENT.replace("| primary |", "| |")),
                    ("docs/protocol.md", 10, "about something else (kPrimary instead of its sender)"))

    def test_another_channel_is_found(self):
        self.expect(self.check(CODE, DOCUMENT.replace(", heartbeat channel", "")),
                    ("docs/protocol.md", 6, "other channel"))


if __name__ == "__main__":
    unittest.main()
