#include "proto/dispatch.h"

#include <doctest/doctest.h>

#include <string>

namespace pando {
namespace {

using Small = std::variant<Bye, Leave, Failure>;

TEST_CASE("a set of handlers that forgets a type is not complete") {
  const auto on_failure = [](const Failure&) {};
  CHECK(kTakesAll<Overloaded<Ignored<Bye, Leave>, decltype(on_failure)>, Small>);
  CHECK_FALSE(kTakesAll<Overloaded<Ignored<Bye>, decltype(on_failure)>, Small>);
}

TEST_CASE("a type that is handled and ignored is an error") {
  const auto on_failure = [](const Failure&) {};
  CHECK_FALSE(kTakesAll<Overloaded<Ignored<Bye, Leave, Failure>, decltype(on_failure)>, Small>);
}

using AllButFailureAndBye =
    Ignored<Register, Welcome, Refused, Ready, Heartbeat, HeartbeatAck, ViewUpdate, ViewAck, Push,
            Pull, Params, PushReply, Question, Answer, ScalarsRequest, Scalars, Progress,
            ProgressAck, Evaluate, EvaluationResult, ReleasePin, PinReleased, Stop, StatusRequest,
            StatusReport, Root, RootAck, Chunk, ChunkAck, Synced, Divergence, PeerSilent,
            SnapshotStored, SnapshotAck, SnapshotAt, SnapshotAtAck, Leave, GradientHashes,
            GradientHashesAck, Command, CommandReply, FaultNote, FaultNoteAck, RestoreFailed,
            Partials, PartialsPull, EngineProposal, EngineDecision>;

TEST_CASE("a message reaches the handler of its type, and an ignored one reaches none") {
  std::string texts;
  for (const Message& message : {Message(Failure{"broken"}), Message(Leave{}), Message(Bye{})}) {
    Dispatch(
        message, AllButFailureAndBye(), [&](const Failure& failure) { texts += failure.text; },
        [&](const Bye&) { texts += ", bye"; });
  }
  CHECK(texts == "broken, bye");
}

}  // namespace
}  // namespace pando
