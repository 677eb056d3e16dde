#include "scheduler/journaled_outbox.h"

#include <doctest/doctest.h>

#include "tests/scheduler/parts_fixture.h"

namespace pando {
namespace {

const PeerId kTo{NodeId(7), Incarnation(7), 0};

TEST_CASE("messages leave when the state is in the journal, in order and not before (P25)") {
  PartsFixture f;
  f.parts.outbox.Send(kTo, HeartbeatAck{});
  f.parts.outbox.Send(kTo, Stop{});
  CHECK(f.recorder.sent.empty());
  CHECK_FALSE(f.journal.state);
  f.parts.outbox.Flush();
  CHECK(f.journal.state);
  REQUIRE(f.recorder.sent.size() == 2);
  CHECK(std::holds_alternative<HeartbeatAck>(f.recorder.sent[0].message));
  CHECK(std::holds_alternative<Stop>(f.recorder.sent[1].message));
}

TEST_CASE("the journal is written only if the state has changed") {
  PartsFixture f;
  f.parts.outbox.Flush();
  f.parts.outbox.Flush();
  CHECK(f.journaled_count == 1);
  f.parts.outbox.MarkChanged();
  f.parts.outbox.Flush();
  CHECK(f.journaled_count == 2);
}

TEST_CASE("no message leaves once the journal refuses (P26)") {
  PartsFixture f;
  f.journal.refuses = true;
  f.parts.outbox.Send(kTo, HeartbeatAck{});
  f.parts.outbox.Flush();
  CHECK(f.parts.outbox.is_fenced());
  CHECK(f.recorder.sent.empty());
  CHECK(f.journaled_count == 0);
  f.journal.refuses = false;
  CHECK_FALSE(f.parts.outbox.Commit());
}

TEST_CASE("unanswered messages are repeated after an interval, or at once if asked") {
  PartsFixture f;
  f.parts.outbox.RepeatAt(f.now);
  CHECK(f.parts.outbox.TakeRepeat(f.now));
  CHECK_FALSE(f.parts.outbox.TakeRepeat(f.now));
  f.parts.outbox.RepeatAt(f.now);
  CHECK(f.parts.outbox.TakeRepeat(f.now));
  CHECK(f.parts.outbox.TakeRepeat(f.parts.outbox.repeat_at()));
}

}  // namespace
}  // namespace pando
