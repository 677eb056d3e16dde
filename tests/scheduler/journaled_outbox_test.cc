#include "scheduler/journaled_outbox.h"

#include <doctest/doctest.h>

#include "tests/scheduler/parts_fixture.h"

namespace pando {
namespace {

const PeerId kTo{NodeId(7), Incarnation(7), 0};

TEST_CASE("messages leave when the state is in the journal, in order and not before (P25)") {
  PartsFixture f;
  f.run.outbox.Send(kTo, HeartbeatAck{});
  f.run.outbox.Send(kTo, Stop{});
  CHECK(f.recorder.sent.empty());
  CHECK_FALSE(f.journal.state);
  f.run.outbox.Flush(f.now);
  CHECK(f.journal.state);
  REQUIRE(f.recorder.sent.size() == 2);
  CHECK(std::holds_alternative<HeartbeatAck>(f.recorder.sent[0].message));
  CHECK(std::holds_alternative<Stop>(f.recorder.sent[1].message));
}

TEST_CASE("the journal is written only if the state has changed") {
  PartsFixture f;
  f.run.outbox.Flush(f.now);
  f.run.outbox.Flush(f.now);
  CHECK(f.journaled_count == 1);
  f.run.outbox.MarkChanged();
  f.run.outbox.Flush(f.now);
  CHECK(f.journaled_count == 2);
}

TEST_CASE("no message leaves once the journal refuses (P26)") {
  PartsFixture f;
  f.journal.refuses = true;
  f.run.outbox.Send(kTo, HeartbeatAck{});
  f.run.outbox.Flush(f.now);
  CHECK(f.run.outbox.fenced());
  CHECK(f.recorder.sent.empty());
  CHECK(f.journaled_count == 0);
  f.journal.refuses = false;
  CHECK_FALSE(f.run.outbox.Commit());
}

TEST_CASE("unanswered messages are repeated after an interval, or at once if asked") {
  PartsFixture f;
  f.run.outbox.RepeatAt(f.now);
  CHECK(f.run.outbox.TakeRepeat(f.now));
  CHECK_FALSE(f.run.outbox.TakeRepeat(f.now));
  f.run.outbox.RepeatAt(f.now);
  CHECK(f.run.outbox.TakeRepeat(f.now));
  CHECK(f.run.outbox.TakeRepeat(f.run.outbox.repeat_at()));
}

}  // namespace
}  // namespace pando
