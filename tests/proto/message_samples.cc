#include "tests/proto/message_samples.h"

#include <cstring>
#include <memory>
#include <span>
#include <type_traits>

#include <fmt/core.h>

#include "common/float_buffer.h"
#include "common/hash.h"
#include "proto/codec_fields.h"

namespace pando {
namespace {

// ---- rendering: the name and the value of every field

template <class T>
std::string Text(const T& value);

std::string Text(const std::string& s) { return '"' + s + '"'; }
std::string Text(const Blob& b) {
  return fmt::format("{}:{:x}", b.size_bytes(), Hash64(b.bytes()));
}
template <class T>
std::string Text(const std::vector<T>& items) {
  std::string text = "[";
  for (const T& item : items) text += Text(item) + ",";
  return text + "]";
}

struct FieldTexts {
  std::string& text;
  void operator()(const auto&... fields) {
    ((text += fmt::format("{}={} ", fields.name, Text(fields.member))), ...);
  }
  void Payload(const Blob& payload) { text += Text(payload); }
  void BytesPayload(const Blob& payload) { Payload(payload); }
};

template <class T>
std::string Text(const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    return fmt::format("{:a}", value);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    return fmt::format("{}", static_cast<uint64_t>(value));
  } else if constexpr (requires { value.value(); }) {
    return fmt::format("{}", value.value());
  } else {
    std::string text = "{";
    Visit(FieldTexts{text}, const_cast<T&>(value));  // Visit is shared with the codec
    return text + "}";
  }
}

// ---- samples

const PeerId kServerLane{NodeId(3), Incarnation(0x0123456789abcdef), 7};
const PeerId kLargestPeer{NodeId(kNodesMax - 1), Incarnation(UINT64_MAX),
                          static_cast<uint16_t>(kLanesMax - 1)};

View SampleView() {
  View view{.id = {UINT64_MAX, 9}, .generation = 4, .restore = {3, Version(kStepMax)}};
  view.nodes = {{.node = NodeId(3),
                 .incarnation = kServerLane.incarnation,
                 .role = Role::kServer,
                 .rank = 1,
                 .host = "grove",
                 .lane_endpoints = {"tcp://127.0.0.1:1", "ipc:///tmp/lane-1"},
                 .public_key = std::string(kPublicKeyBytesMax, 'k'),
                 .rack = "rack 7"},
                {.node = NodeId(4), .incarnation = Incarnation(5), .role = Role::kWorker}};
  view.shards = {{.primary = kServerLane},
                 {.primary = kLargestPeer,
                  .in_sync_backups = {kServerLane, PeerId()},
                  .syncing_backups = {{kLargestPeer, {8, UINT64_MAX}}, {}}}};
  view.owners = {{.worker = NodeId(4), .first_step = Step(11), .previous = NodeId(2)},
                 {.worker = NodeId(4), .first_step = Step(kStepMax)},
                 {.worker = kUnknownNode}};
  return view;
}

ViewChange SampleChange() {
  const View view = SampleView();
  return {.base = {3, UINT64_MAX},
          .base_hash = UINT64_MAX,
          .id = view.id,
          .generation = 4,
          .restore = view.restore,
          .removed = {NodeId(0), NodeId(kNodesMax - 1)},
          .changed = view.nodes,
          .shards = {{ShardId(kShardsMax - 1), view.shards[1]}, {}},
          .owners = {{MicroBatch(1), kMicroBatchesMax, view.owners[0]}},
          .hash = 1};
}

std::vector<Message> MembershipSamples() {
  const DataFacts facts{.train_samples = 60000,
                        .test_samples = 10000,
                        .shape = {28, 29, 1},
                        .class_count = 10,
                        .fingerprint = UINT64_MAX};
  return {
      Register{},
      Register{Role::kServer, std::string(kNameBytesMax, 'h'), UINT32_MAX,
               std::vector<std::string>(kLanesMax, "tcp://127.0.0.1:65535"), 7, UINT64_MAX,
               std::string(kPublicKeyBytesMax, 'k'), std::string(kNameBytesMax, 'm'), "rack 7"},
      Welcome{NodeId(0), 0, "", DataFacts{}, "", ""},
      Welcome{NodeId(kNodesMax - 1), kNodesMax, std::string(100000, 't'), facts,
              std::string(kPathBytesMax, '/'), "tcp://*:7071",
              std::string(kPublicKeyBytesMax, 'k')},
      Refused{"micro_batches = 8, which does not fit"},
      Refused{"the run is over", RefusalKind::kRunIsOver},
      Refused{"declared dead", RefusalKind::kGivenUp},
      Ready{"cpu, avx2, pando 0.1.0", UINT64_MAX, 1},
      DeclarationWanted{},
      DeclarationWanted{uint64_t{1} << 40},
      Declaration{},
      Declaration{"[train]\nseed = 1\n", uint64_t{1} << 40, CountingPayload(1000)},
      Heartbeat{},
      Heartbeat{Activity::kWaitingForParameters, Step(kStepMax), kServerLane, UINT64_MAX, 7},
      Heartbeat{.activity = Activity::kLeaving,
                .data_stall_us = 8,
                .exposed_sync_us = UINT64_MAX,
                .gpu_memory_bytes = 9,
                .gpu_percent = 10,
                .tcp_lines = 11,
                .ipc_lines = 12,
                .shm_lines = 13,
                .samples_wait_ms = 14,
                .log_line = std::string(kLogLineBytesMax, 'l'),
                .tcp_traffic = {15, 16},
                .ipc_traffic = {17, 18},
                .shm_traffic = {19, UINT64_MAX}},
      HeartbeatAck{{"tcp://10.0.0.1:7070", "tcp://c2:7070"}, true},
      ViewUpdate{},
      ViewUpdate{SampleView(), std::string(kSignatureBytesMax, 's')},
      ViewDelta{},
      ViewDelta{SampleChange(), std::string(kSignatureBytesMax, 's')},
      ViewWanted{},
      ViewHint{},
      ViewAck{{1, 2}, UINT32_MAX},
  };
}

std::vector<Message> StepSamples() {
  Scalars scalars{.first = Step(kScalarsPerBlock)};
  scalars.steps.assign(kScalarsPerBlock, StepScalars{0.01f, 0.9f, -0.0f, 1e-30f, 0.5f, 0.25f});
  return {
      Push{},
      Push{{{ShardId(0), Step(0), TreeNode(1), Blob()}}},
      Push{{{ShardId(1), Step(5), TreeNode(kTreeNodesMax - 1), CountingPayload(16)},
            {ShardId(kShardsMax - 1), Step(kStepMax), TreeNode(2), CountingPayload(1 << 18)},
            {ShardId(2), Step(5), TreeNode(3), CountingPayload(65)}}},
      Pull{{{ShardId(7), Version(8)}, {ShardId(0), Version(kStepMax), ParamsForm::kEncoded}}},
      Params{{{ShardId(7), Version(8), CountingPayload(1024)},
              {ShardId(8), Version(8), CountingPayload(8192), ParamsForm::kEncoded}}},
      PushReply{{{ShardId(1), Version(2), TreeNode(0), PushOutcome::kPending, Version(0)},
                 {ShardId(2), Version(3), TreeNode(9), PushOutcome::kBehind, Version(4)},
                 {ShardId(3), Version(5), TreeNode(1), PushOutcome::kNotPrimary, Version(0)}}},
      Question{{3, 4}},
      Answer{},
      Answer{{3, 4},
             {{ShardId(1), Version(2), {}, {TreeNode(1)}},
              {ShardId(2), Version(2), {TreeNode(4), TreeNode(5)}, {}}}},
      ScalarsRequest{Step(kScalarsPerBlock)},
      Scalars{},
      scalars,
      Progress{Version(3), {}},
      Progress{Version(3), {{Step(1), 2.5f, 0.5f}, {Step(2), -1.0f, 1.0f}}},
      ProgressAck{Version(3), Step(4)},
  };
}

std::vector<Message> RecoverySamples() {
  const StepScalars scalars{0.01f, 0.9f, -0.0f, 1e-30f, 0.5f, 0.25f};
  const std::vector<Version> versions = {Version(0), Version(7), Version(kStepMax)};
  return {
      Root{},
      Root{{{ShardId(1), Step(5), scalars, CountingPayload(16)}, {ShardId(2), Step(5), {}, Blob()}},
           Step(4)},
      Root{{{ShardId(kShardsMax - 1),
             Step(kStepMax),
             scalars,
             CountingPayload(1 << 16),
             {0.5f, -0.0f, 1e-30f}}},
           Step(0)},
      Partials{},
      Partials{{{ShardId(1), Step(5), {0.5f}}, {ShardId(kShardsMax - 1), Step(kStepMax), {}}},
               {{Step(5), {}, {}},
                {Step(kStepMax), {ShardId(1), ShardId(kShardsMax - 1)}, {0.5f, 1.0f}}}},
      PartialsPull{},
      PartialsPull{{{ShardId(1), Step(5)}, {ShardId(kShardsMax - 1), Step(kStepMax)}}},
      RootAck{{{ShardId(1), Version(6), UINT64_MAX}, {ShardId(2), Version(6), 0, true}}},
      Chunk{},
      Chunk{ShardId(3), {2, 9}, versions, 5000, 4000, CountingPayload(1000)},
      Chunk{ShardId(3), {2, 9}, {Version(1)}, kImageFloatsMax, 0, CountingPayload(1 << 16)},
      ChunkAck{ShardId(3), {2, 9}, Version(7), kImageFloatsMax, UINT64_MAX},
      Synced{{{ShardId(3), kLargestPeer, {2, 9}}, {ShardId(4), kServerLane, {2, 10}}}},
      Divergence{ShardId(1), Version(6), kServerLane, 1, UINT64_MAX},
      HashWanted{ShardId(1), Version(6)},
      RecordHashes{ShardId(1), Version(6), UINT64_MAX, 1},
      PeerSilent{kLargestPeer, UINT64_MAX},
      SnapshotStored{{{ShardId(1), Version(6), UINT64_MAX, "g001-v00000006.safetensors", ""},
                      {ShardId(2), Version(6), 0, "", "no space left on the device"}}},
      SnapshotAck{{{ShardId(1), Version(6)}, {ShardId(2), Version(kStepMax)}}},
      RestoreFailed{{UINT32_MAX, Version(kStepMax)}, ShardId(2), true, "shard 2: another hash"},
      RestoreFailed{{0, Version(6)}, ShardId(0), false, ""},
      SnapshotAt{Version(kStepMax)},
      SnapshotAtAck{Version(6)},
      StoreFile{"snapshots/g000-v000000500-0000000000000abc-0.safetensors", 1 << 20, kFileBytesMax,
                std::string(kHashBytesMax, 'f'), CountingPayload(1 << 18)},
      StoreFileAck{"snapshots/a.safetensors", 2 << 20, false, ""},
      StoreFileAck{std::string(kNameBytesMax, 'n'), 0, true, "No space left on device"},
      ReadFile{"init.safetensors", kFileBytesMax, 1 << 20},
      FilePart{"init.safetensors", 1 << 20, 3 << 20, false, "", CountingPayload(999)},
      FilePart{"group/a", 0, 0, true, "cannot open it", Blob()},
      ListFiles{"snapshots/g000-v000000500-", ""},
      FileNames{"snapshots/g000-", "snapshots/g000-a", {"snapshots/g000-b", "snapshots/g000-c"}},
      GradientHashes{{{Step(5), MicroBatch(kMicroBatchesMax - 1), UINT64_MAX},
                      {Step(kStepMax), MicroBatch(0), 1}}},
      GradientHashesAck{Step(6)},
  };
}

std::vector<Message> EndSamples() {
  return {
      Evaluate{Version(6), UINT32_MAX, 100, 200},
      Evaluate{Version(6), 2, 200, 200, EvaluationPart::kReport, {0.5, -1e300}},
      EvaluationResult{Version(6), 2, 100, 99, 0.125, 100, {{0, 0, 99}, {UINT32_MAX, 1, 1}}},
      EvaluationResult{Version(6), 2, 1, 0, 0.125, 0, {{0, 0, 1}}, {0.5, -1e300}},
      EvaluationResult{.version = Version(6), .slice = 2, .stop_text = "good enough"},
      ReleasePin{Version(6)},
      PinReleased{Version(6)},
      Stop{StopReason::kCompleted, ""},
      Stop{StopReason::kInterrupted, std::string(kTextBytesMax, 'x')},
      Bye{},
      Failure{"line 1\nline 2", FailureKind::kMachine},
      StatusRequest{},
      StatusReport{"{\"a\": 1}"},
      Stop{StopReason::kDrained, "drained"},
      Leave{},
      Command{},
      Command{CommandKind::kStop, std::string(kNameBytesMax, 'w')},
      CommandReply{CommandOutcome::kRefused, "it is the last server"},
      FaultNote{},
      FaultNote{UINT64_MAX, "kill", Role::kServer, "grove", UINT32_MAX, "server 1", 5, UINT64_MAX,
                "signal 9 (SIGKILL)"},
      FaultNoteAck{UINT64_MAX},
      MirrorStart{UINT64_MAX, 7},
      MirrorStarted{1},
      MirrorPart{UINT64_MAX, 1, MirrorKind::kWhole, "snapshots/a.safetensors", 1 << 20,
                 kFileBytesMax, std::string(kHashBytesMax, 'f'), CountingPayload(1 << 16)},
      MirrorPart{1, UINT64_MAX, MirrorKind::kGrowing, "metrics.csv", 60, 120, "",
                 CountingPayload(15)},
      MirrorPart{1, 3, MirrorKind::kRemoved, std::string(kNameBytesMax, 'n'), 0, 0, "", Blob()},
      MirrorAck{},
      MirrorAck{UINT64_MAX, UINT64_MAX, "No space left on device"},
  };
}

}  // namespace

Blob CountingPayload(size_t float_count) {
  auto buffer = std::make_shared<FloatBuffer>(float_count);
  for (size_t i = 0; i < float_count; ++i) buffer->data()[i] = static_cast<float>(i);
  return ToBlob(buffer);
}

std::vector<Envelope> SampleEnvelopes() {
  std::vector<Envelope> envelopes;
  for (const auto& samples :
       {MembershipSamples(), StepSamples(), RecoverySamples(), EndSamples()}) {
    for (const Message& message : samples) {
      envelopes.push_back({.job = JobId(UINT64_MAX - envelopes.size()),
                           .generation = UINT32_MAX,
                           .view = {6, UINT64_MAX},
                           .sender = kLargestPeer,
                           .receiver = {kUnknownNode, Incarnation(1), 2},
                           .message = message});
    }
  }
  return envelopes;
}

std::string Render(const Envelope& e) {
  const std::string message = std::visit([](const auto& m) { return Text(m); }, e.message);
  return fmt::format("{} {} {} {} {} {} {}", Text(e.job), e.generation, Text(e.view),
                     Text(e.sender), Text(e.receiver), RowFor(e.message).name, message);
}

Frames CopyFrames(const Frames& frames, size_t shift) {
  Frames copies;
  for (const Blob& frame : frames) {
    // Exactly as large as it must be, so that a sanitizer sees a read beyond the frame.
    auto copy = std::make_shared<std::vector<std::byte>>(frame.size_bytes() + shift);
    if (frame.size_bytes() > 0) {
      std::memcpy(copy->data() + shift, frame.bytes().data(), frame.size_bytes());
    }
    copies.emplace_back(std::span<const std::byte>(*copy).subspan(shift), copy);
  }
  return copies;
}

}  // namespace pando
