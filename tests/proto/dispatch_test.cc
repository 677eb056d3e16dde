#include "proto/dispatch.h"

#include <doctest/doctest.h>

#include <string>

namespace pando {
namespace {

constexpr auto kOnReport = [](const StatusReport&) {};
constexpr auto kOnReply = [](const CommandReply&) {};

// Whether Dispatch compiles with these handlers, and without those of the other messages.
template <class M, class... Handlers>
constexpr bool IsAsInTable(Handlers...) {
  return kIsAsInTable<Core::kClient, M, Overloaded<Handlers...>>;
}

TEST_CASE("a forgotten handler is an error") {
  CHECK(IsAsInTable<StatusReport>(kOnReport, kOnReply));
  CHECK_FALSE(IsAsInTable<StatusReport>(kOnReply));
}

TEST_CASE("a handler of a message that its core ignores is an error") {
  CHECK(IsAsInTable<Bye>(kOnReport));
  CHECK_FALSE(IsAsInTable<Bye>(kOnReport, [](const Bye&) {}));
}

TEST_CASE("a message reaches the handler of its type, and an ignored one reaches none") {
  std::string texts;
  for (const Message& message :
       {Message(StatusReport{"{}"}), Message(Leave{}), Message(FaultNoteAck{})}) {
    Dispatch<Core::kClient>(
        message, [&](const StatusReport& report) { texts += report.json; },
        [&](const FaultNoteAck&) { texts += ", ack"; }, kOnReply);
  }
  CHECK(texts == "{}, ack");
}

TEST_CASE("a message finds its row") {
  CHECK(RowFor(Register{}).name == std::string("Register"));
  CHECK(RowFor(FaultNoteAck{}).name == std::string("FaultNoteAck"));
}

}  // namespace
}  // namespace pando
