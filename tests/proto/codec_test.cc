#include "proto/codec.h"

#include <fstream>
#include <set>
#include <sstream>

#include <doctest/doctest.h>

#include "common/float_buffer.h"
#include "common/hash128.h"
#include "tests/contains.h"
#include "tests/golden/golden_path.h"
#include "tests/proto/message_samples.h"

namespace pando {
namespace {

bool IsWithin(std::span<const std::byte> part, std::span<const std::byte> whole) {
  return part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size();
}

Envelope MakePush(Blob payload) {
  Push push;
  push.items.push_back({ShardId(1), Step(2), TreeNode(1), std::move(payload)});
  return {.sender = {NodeId(1), Incarnation(2), 0}, .message = push};
}

// The smallest payload that is a separate frame.
constexpr size_t kLargeFloats = kInlinePayloadBytes / sizeof(float);

const Blob& Payload(const Envelope& envelope) {
  return std::get<Push>(envelope.message).items.at(0).payload;
}

std::string DecodeError(const Envelope& envelope) {
  const Result<Envelope> decoded = Decode(CopyFrames(Encode(envelope)));
  REQUIRE(!decoded.ok());
  CHECK(decoded.status().code() == StatusCode::kCorrupt);
  return decoded.status().message();
}

TEST_CASE("every message comes back as it left") {
  std::set<size_t> kinds;
  for (const Envelope& envelope : SampleEnvelopes()) {
    const Result<Envelope> decoded = Decode(CopyFrames(Encode(envelope)));
    REQUIRE_MESSAGE(decoded.ok(), decoded.status().message());
    CHECK(Render(*decoded) == Render(envelope));
    kinds.insert(envelope.message.index());
  }
  CHECK(kinds.size() == std::variant_size_v<MessageVariant>);
}

// A line for each sample: its message, its frames' sizes, and the hash of their bytes.
std::string WireText() {
  std::string text;
  for (const Envelope& envelope : SampleEnvelopes()) {
    text += RowFor(envelope.message).name;
    Hash128 hash;
    for (const Blob& frame : Encode(envelope)) {
      text += " " + std::to_string(frame.size_bytes());
      hash.Update(frame.bytes());
    }
    text += " " + hash.Hex() + "\n";
  }
  return text;
}

// PANDO_RECORD=1 writes the file again, where messages change on purpose.
TEST_CASE("every message has the bytes of the release before") {
  const std::string path = GoldenPath("messages.txt");
  if (std::getenv("PANDO_RECORD") != nullptr) std::ofstream(path) << WireText();
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  CHECK(WireText() == golden.str());
}

TEST_CASE("every enumerator comes back as it left") {
  for (int i = 0; i <= static_cast<int>(Activity::kLeaving); ++i) {
    const Envelope sent{.message = Heartbeat{.activity = static_cast<Activity>(i)}};
    const Result<Envelope> decoded = Decode(Encode(sent));
    REQUIRE(decoded.ok());
    CHECK(Render(*decoded) == Render(sent));
  }
  for (int i = 0; i <= static_cast<int>(Role::kClient); ++i) {
    const Envelope sent{.message = Register{.role = static_cast<Role>(i)}};
    const Result<Envelope> decoded = Decode(Encode(sent));
    REQUIRE(decoded.ok());
    CHECK(Render(*decoded) == Render(sent));
  }
}

TEST_CASE("a frame is the payload's own buffer, and the payload read lies inside its frame") {
  const Blob payload = CountingPayload(kLargeFloats);
  const Frames sent = Encode(MakePush(payload));
  REQUIRE(sent.size() >= 2);
  CHECK(sent[1].bytes().data() == payload.bytes().data());
  CHECK(sent[1].size_bytes() == payload.size_bytes());

  const Frames received = CopyFrames(sent);
  const Result<Envelope> decoded = Decode(received);
  REQUIRE(decoded.ok());
  CHECK(Payload(*decoded).bytes().data() == received[1].bytes().data());
  CHECK(Payload(*decoded).floats()[kLargeFloats - 1] == static_cast<float>(kLargeFloats - 1));
}

TEST_CASE("a payload keeps its own frame alive and no other, a frame keeps its buffer alive") {
  auto buffer = std::make_shared<FloatBuffer>(kLargeFloats);
  std::weak_ptr<FloatBuffer> source = buffer;
  Frames sent = Encode(MakePush(ToBlob(std::move(buffer))));
  CHECK(!source.expired());
  Frames received = CopyFrames(sent);
  sent.clear();
  CHECK(source.expired());

  const std::weak_ptr<const void> head = received[0].keep_alive();
  const std::weak_ptr<const void> body = received[1].keep_alive();
  Result<Envelope> decoded = Decode(received);
  REQUIRE(decoded.ok());
  received.clear();
  CHECK(head.expired());
  CHECK(!body.expired());
  CHECK(Payload(*decoded).floats()[kLargeFloats - 1] == 0.0f);
  decoded = Envelope{};
  CHECK(body.expired());
}

TEST_CASE("a payload that is small or not whole words travels among the structs") {
  const Blob large = CountingPayload(kLargeFloats + 8);
  for (size_t float_count : {size_t{0}, size_t{1}, size_t{2}, size_t{63}, kLargeFloats - 1}) {
    const Blob payload(large.bytes().first(4 * float_count), large.keep_alive());
    CHECK(Encode(MakePush(payload)).size() == 1);
  }
  const size_t bytes = 4 * kLargeFloats;
  const Blob odd(large.bytes().first(bytes + 4), large.keep_alive());       // not a multiple of 8
  const Blob shifted(large.bytes().subspan(4, bytes), large.keep_alive());  // not aligned to 8
  for (const Blob& payload : {odd, shifted}) {
    const Frames frames = Encode(MakePush(payload));
    for (const Blob& frame : frames) CHECK(!IsWithin(frame.bytes(), large.bytes()));
    const Result<Envelope> decoded = Decode(CopyFrames(frames));
    REQUIRE(decoded.ok());
    CHECK(std::ranges::equal(Payload(*decoded).floats(), payload.floats()));
  }
}

TEST_CASE("frames at any address decode to the same message") {
  for (const Envelope& envelope : SampleEnvelopes()) {
    const Frames frames = Encode(envelope);
    for (size_t shift = 1; shift < 8; ++shift) {
      const Result<Envelope> decoded = Decode(CopyFrames(frames, shift));
      REQUIRE(decoded.ok());
      CHECK(Render(*decoded) == Render(envelope));
    }
  }
}

TEST_CASE(
    "a message with many payloads has a frame for each large one, and one for all the others") {
  Push push;
  for (uint32_t i = 0; i < 1000; ++i) {
    const size_t float_count = i % 10 == 0 ? kLargeFloats + 2 * i : 64 + i;
    push.items.push_back({ShardId(i), Step(1), TreeNode(1), CountingPayload(float_count)});
  }
  const Envelope sent{.message = push};
  CHECK(Encode(sent).size() == 1 + 100);
  const Result<Envelope> decoded = Decode(CopyFrames(Encode(sent)));
  REQUIRE(decoded.ok());
  CHECK(Render(*decoded) == Render(sent));
}

TEST_CASE("the same payload twice in a message is the same frame's bytes twice") {
  const Blob payload = CountingPayload(kLargeFloats);
  const Envelope sent{.message = Push{{{ShardId(1), Step(1), TreeNode(1), payload},
                                       {ShardId(2), Step(1), TreeNode(1), payload}}}};
  const Result<Envelope> decoded = Decode(CopyFrames(Encode(sent)));
  REQUIRE(decoded.ok());
  CHECK(Render(*decoded) == Render(sent));
}

TEST_CASE("more than 64 MiB in one message can be read") {
  const Blob payload = CountingPayload(4 << 20);  // 16 MiB
  Params params;
  for (uint32_t i = 0; i < 6; ++i) params.items.push_back({ShardId(i), Version(1), payload});
  const Result<Envelope> decoded = Decode(Encode({.message = params}));
  REQUIRE(decoded.ok());
  CHECK(std::get<Params>(decoded->message).items.size() == 6);
}

TEST_CASE("a message is as long as its row of the table allows, all frames together (P44)") {
  Frames frames = Encode({.message = Stop{StopReason::kCompleted, "done"}});
  frames.push_back(CountingPayload((512 << 10) / sizeof(float)));
  const Result<Envelope> decoded = Decode(frames);
  REQUIRE_FALSE(decoded.ok());
  CHECK(Contains(decoded.status().message(), "bytes of a Stop is"));
  frames.back() = CountingPayload(1024);
  CHECK(Decode(frames).ok());
}

TEST_CASE("texts of peers reach no terminal with control characters") {
  const std::string hostile = "a\x1b[2J\r\u009b1m\u202e\n\tb";
  const auto read = [&](const Message& message) {
    return Decode(Encode({.message = message}))->message;
  };
  const auto joined = std::get<Register>(read(
      Register{.host = hostile, .lane_endpoints = {hostile}, .machine = hostile, .rack = hostile}));
  const std::string name = "a?[2J??1m???b";
  for (const std::string& text :
       {joined.host, joined.lane_endpoints[0], joined.machine, joined.rack,
        std::get<Ready>(read(Ready{.kind = hostile})).kind,
        std::get<Heartbeat>(read(Heartbeat{.log_line = hostile})).log_line,
        std::get<FaultNote>(read(FaultNote{.action = hostile})).action,
        std::get<FaultNote>(read(FaultNote{.target = hostile})).target})
    CHECK(text == name);
  const std::string lines = "a?[2J??1m?\n\tb";
  for (const std::string& text : {std::get<Failure>(read(Failure{hostile})).text,
                                  std::get<FaultNote>(read(FaultNote{.text = hostile})).text,
                                  std::get<Refused>(read(Refused{hostile})).reason,
                                  std::get<StatusReport>(read(StatusReport{hostile})).json})
    CHECK(text == lines);
  // A text of the largest size stays one that can be sent on.
  const std::string largest(kTextBytesMax, '\x1b');
  CHECK(std::get<Failure>(read(Failure{largest})).text == std::string(kTextBytesMax, '?'));
}

TEST_CASE("counts, lengths, ids and enums beyond their bounds are refused by name") {
  CHECK(Contains(DecodeError({.message = Register{.host = std::string(kNameBytesMax + 1, 'h')}}),
                 "bytes of a host name is 1025, at most 1024"));
  CHECK(Contains(
      DecodeError({.message = Register{.lane_endpoints = std::vector<std::string>(kLanesMax + 1)}}),
      "lane count"));
  CHECK(Contains(DecodeError({.message = Failure{std::string(kTextBytesMax + 1, 'x')}}),
                 "bytes of a failure"));
  CHECK(Contains(DecodeError({.message = Heartbeat{.activity = static_cast<Activity>(7)}}),
                 "activity"));
  CHECK(Contains(DecodeError({.message = Register{.role = static_cast<Role>(4)}}), "role"));
  CHECK(Contains(DecodeError({.message = Stop{static_cast<StopReason>(4), ""}}), "stop reason"));
  CHECK(
      Contains(DecodeError({.message = Failure{"", static_cast<FailureKind>(2)}}), "failure kind"));
  CHECK(Contains(DecodeError({.message = Pull{{{ShardId(kShardsMax), Version(0)}}}}), "shard id"));
  CHECK(Contains(DecodeError({.message = Pull{{{ShardId(0), Version(kStepMax + 1)}}}}), "version"));
  CHECK(Contains(DecodeError({.message = Push{{{ShardId(0), Step(0), TreeNode(0), Blob()}}}}),
                 "tree node 0"));
  CHECK(Contains(
      DecodeError({.message = Push{{{ShardId(0), Step(0), TreeNode(kTreeNodesMax), Blob()}}}}),
      "tree node"));
  CHECK(Contains(DecodeError({.sender = {NodeId(kNodesMax), Incarnation(1), 0}, .message = Bye{}}),
                 "node id"));
  CHECK(Contains(
      DecodeError({.receiver = {NodeId(1), Incarnation(1), kLanesMax}, .message = Bye{}}), "lane"));
  CHECK(Contains(DecodeError({.message = Welcome{NodeId(1), 0, "", DataFacts{.train_samples = 0}}}),
                 "data set"));
  CHECK(Contains(DecodeError({.message = Evaluate{Version(1), 0, 2, 1}}), "slice"));
  CHECK(Contains(DecodeError({.message = EvaluationResult{Version(1), 0, 2, 3, 0}}),
                 "correct count"));
  EvaluationResult result{Version(1), 0, 2, 2, 0, 3};
  CHECK(Contains(DecodeError({.message = result}), "top-5 count"));
  result.top5_count = 2;
  result.confusion.resize(kConfusionCountsMax + 1);
  CHECK(Contains(DecodeError({.message = result}), "confusion counts"));
  Scalars scalars;
  scalars.steps.resize(kScalarsPerBlock + 1);
  CHECK(Contains(DecodeError({.message = scalars}), "steps of scalars"));
  View view;
  view.shards.resize(1);
  view.shards[0].in_sync_backups.resize(kReplicasMax + 1);
  CHECK(Contains(DecodeError({.message = ViewUpdate{view}}), "replica count"));
  view.shards.clear();
  view.owners.resize(kMicroBatchesMax + 1);
  CHECK(Contains(DecodeError({.message = ViewUpdate{view}}), "micro-batch count"));
}

TEST_CASE("bounds of replication, snapshots and commands are refused by name") {
  View view;
  view.shards.resize(1);
  view.shards[0].syncing_backups.resize(kReplicasMax + 1);
  CHECK(Contains(DecodeError({.message = ViewUpdate{view}}), "syncing replica count"));
  view = {.restore = {0, Version(kStepMax + 1)}};
  CHECK(Contains(DecodeError({.message = ViewUpdate{view}}), "version"));
  std::vector<Version> six;
  for (uint64_t version = 1; version <= kImageVersionsMax + 1; ++version) six.emplace_back(version);
  CHECK(Contains(DecodeError({.message = Chunk{.versions = six}}), "versions of an image is 6"));
  CHECK(Contains(DecodeError({.message = Chunk{.versions = {Version(2), Version(2)}}}), "ascend"));
  CHECK(Contains(DecodeError({.message = Chunk{.image_floats = kImageFloatsMax + 1}}), "an image"));
  CHECK(Contains(DecodeError({.message = Chunk{.image_floats = 8, .offset = 9}}), "offset"));
  CHECK(Contains(
      DecodeError(
          {.message = Chunk{.image_floats = 8, .offset = 1, .payload = CountingPayload(8)}}),
      "end of a chunk is 9, at most 8"));
  CHECK(Contains(DecodeError({.message = ChunkAck{.floats_taken = kImageFloatsMax + 1}}), "taken"));
  CHECK(
      Contains(DecodeError({.message = SnapshotStored{{{.file = "../scheduler.db"}}}}), "folder"));
  CHECK(Contains(DecodeError({.message = SnapshotStored{{{.failure = std::string(70000, 'x')}}}}),
                 "bytes of a failure"));
  CHECK(Contains(
      DecodeError({.message = GradientHashes{{{Step(0), MicroBatch(kMicroBatchesMax), 0}}}}),
      "micro-batch"));
  CHECK(
      Contains(DecodeError({.message = Command{.kind = static_cast<CommandKind>(3)}}), "command"));
  CHECK(Contains(DecodeError({.message = Command{.target = std::string(kNameBytesMax + 1, 'w')}}),
                 "target"));
  CHECK(Contains(DecodeError({.message = CommandReply{static_cast<CommandOutcome>(3), ""}}),
                 "command outcome"));
  CHECK(Contains(DecodeError({.message = FaultNote{.role = static_cast<Role>(4)}}), "role"));
  CHECK(Contains(DecodeError({.message = FaultNote{.text = std::string(kTextBytesMax + 1, 'x')}}),
                 "fault's text"));
}

TEST_CASE("roots and chunks travel as their own buffers") {
  const Blob payload = CountingPayload(kLargeFloats);
  const Chunk chunk{.image_floats = kLargeFloats, .payload = payload};
  const Root root{{{ShardId(1), Step(2), {}, payload}}, Step(0)};
  for (const Message& message : {Message(root), Message(chunk)}) {
    const Frames sent = Encode({.message = message});
    REQUIRE(sent.size() == 2);
    CHECK(sent[1].bytes().data() == payload.bytes().data());
  }
}

TEST_CASE("a payload that is not whole floats is refused") {
  const Blob floats = CountingPayload(256);
  const Blob bytes(floats.bytes().first(1021), floats.keep_alive());
  CHECK(Contains(DecodeError(MakePush(bytes)), "1021 bytes is not floats"));
}

TEST_CASE("no frames and frames of broken words are refused") {
  CHECK(!Decode({}).ok());
  CHECK(!Decode({Blob()}).ok());
  Frames frames = CopyFrames(Encode(MakePush(CountingPayload(kLargeFloats))));
  const size_t cut_bytes = 4 * kLargeFloats - 4;
  frames[1] = Blob(frames[1].bytes().first(cut_bytes), frames[1].keep_alive());
  const Result<Envelope> decoded = Decode(frames);
  REQUIRE(!decoded.ok());
  CHECK(Contains(decoded.status().message(), std::to_string(cut_bytes) + " bytes"));
}

}  // namespace
}  // namespace pando
