#include "tests/proto/message_samples.h"

#include <concepts>
#include <cstring>
#include <memory>
#include <span>

#include <fmt/format.h>

#include "common/float_buffer.h"
#include "common/hash.h"

namespace pando {
namespace {

// ---- rendering: Text(x) names every field of x

template <std::integral Int>
std::string Text(Int n) {
  return std::to_string(n);
}
std::string Text(float x) { return fmt::format("{:a}", x); }
std::string Text(double x) { return fmt::format("{:a}", x); }
std::string Text(const std::string& s) { return '"' + s + '"'; }
template <class Tag, class Rep>
std::string Text(StrongId<Tag, Rep> id) {
  return std::to_string(id.value());
}
template <class Enum>
requires std::is_enum_v<Enum> std::string Text(Enum e) {
  return std::to_string(static_cast<int>(e));
}
std::string Text(const Blob& b) {
  return fmt::format("{}:{:x}", b.size_bytes(), Hash64(b.bytes()));
}

std::string Text(const PeerId& p);
std::string Text(const ViewId& v);
std::string Text(const DataFacts& d);
std::string Text(const NodeInfo& n);
std::string Text(const ShardPlacement& p);
std::string Text(const MicroBatchOwner& o);
std::string Text(const SyncingBackup& b);
std::string Text(const SnapshotRef& s);
std::string Text(const View& v);
std::string Text(const PushItem& i);
std::string Text(const PullItem& i);
std::string Text(const ParamsItem& i);
std::string Text(const PushReplyItem& i);
std::string Text(const AnswerItem& i);
std::string Text(const StepScalars& s);
std::string Text(const StepMetrics& s);
std::string Text(const RootItem& i);
std::string Text(const PartialsItem& i);
std::string Text(const PartialsPullItem& i);
std::string Text(const RootAckItem& i);
std::string Text(const SyncedItem& i);
std::string Text(const SnapshotStoredItem& i);
std::string Text(const SnapshotAckItem& i);
std::string Text(const GradientHash& h);
std::string Text(const ConfusionCount& c);

template <class T>
std::string Text(const std::vector<T>& items) {
  std::string text = "[";
  for (const T& item : items) text += Text(item) + ",";
  return text + "]";
}
template <class... Fields>
std::string Join(const char* name, const Fields&... fields) {
  std::string text = std::string(name) + "{";
  ((text += Text(fields) + " "), ...);
  return text + "}";
}

std::string Text(const PeerId& p) { return Join("peer", p.node, p.incarnation, p.lane); }
std::string Text(const ConfusionCount& c) {
  return Join("confusion", c.label, c.predicted, c.count);
}
std::string Text(const ViewId& v) { return Join("view", v.term, v.number); }
std::string Text(const DataFacts& d) {
  return Join("data", d.train_samples, d.test_samples, d.shape.height, d.shape.width,
              d.shape.channels, d.class_count, d.fingerprint);
}
std::string Text(const NodeInfo& n) {
  return Join("node", n.node, n.incarnation, n.role, n.rank, n.host, n.lane_endpoints, n.probe_hash,
              n.public_key);
}
std::string Text(const ShardPlacement& p) {
  return Join("placement", p.primary, p.in_sync_backups, p.syncing_backups);
}
std::string Text(const MicroBatchOwner& o) {
  return Join("owner", o.worker, o.first_step, o.previous);
}
std::string Text(const View& v) {
  return Join("view", v.id, v.generation, v.restore, v.nodes, v.shards, v.owners);
}
std::string Text(const SyncingBackup& b) { return Join("syncing", b.peer, b.since); }
std::string Text(const SnapshotRef& s) { return Join("snapshot", s.generation, s.version); }
std::string Text(const PushItem& i) { return Join("push", i.shard, i.step, i.node, i.payload); }
std::string Text(const PullItem& i) { return Join("pull", i.shard, i.version, i.form); }
std::string Text(const ParamsItem& i) {
  return Join("params", i.shard, i.version, i.payload, i.form);
}
std::string Text(const PushReplyItem& i) {
  return Join("reply", i.shard, i.version, i.node, i.outcome, i.current);
}
std::string Text(const AnswerItem& i) { return Join("answer", i.shard, i.version, i.nodes); }
std::string Text(const StepScalars& s) {
  return Join("scalars", s.lr, s.momentum, s.bias_correction1, s.bias_correction2_sqrt);
}
std::string Text(const StepMetrics& s) { return Join("metrics", s.step, s.loss, s.accuracy); }

std::string Text(const RootItem& i) {
  return Join("root", i.shard, i.step, i.scalars, i.payload, i.factors);
}
std::string Text(const PartialsItem& i) { return Join("partials", i.shard, i.step, i.values); }
std::string Text(const PartialsPullItem& i) { return Join("pull partials", i.shard, i.step); }
std::string Text(const RootAckItem& i) { return Join("ack", i.shard, i.version, i.hash); }
std::string Text(const SyncedItem& i) { return Join("synced", i.shard, i.newcomer, i.pair); }
std::string Text(const SnapshotStoredItem& i) {
  return Join("stored", i.shard, i.version, i.hash, i.file, i.failure);
}
std::string Text(const SnapshotAckItem& i) { return Join("ack", i.shard, i.version); }
std::string Text(const GradientHash& h) { return Join("hash", h.step, h.micro_batch, h.hash); }

std::string MessageText(const Register& m) {
  return Join("Register", m.role, m.host, m.process_id, m.lane_endpoints, m.wanted_rank,
              m.process_key, m.public_key, m.machine, m.rack);
}
std::string MessageText(const Welcome& m) {
  return Join("Welcome", m.node, m.rank, m.job_toml, m.data, m.snapshot_dir, m.files_endpoint,
              m.view_key);
}
std::string MessageText(const Refused& m) { return Join("Refused", m.reason, m.kind); }
std::string MessageText(const Ready& m) {
  return Join("Ready", m.kind, m.probe_hash, m.data_fingerprint);
}
std::string MessageText(const Heartbeat& m) {
  return Join("Heartbeat", m.activity, m.step, m.waiting_for, m.waiting_ms, m.micro_batch_us,
              m.data_stall_us, m.exposed_sync_us, m.gpu_memory_bytes, m.gpu_percent, m.tcp_lines,
              m.ipc_lines, m.shm_lines);
}
std::string MessageText(const HeartbeatAck&) { return "HeartbeatAck"; }
std::string MessageText(const ViewUpdate& m) { return Join("ViewUpdate", m.view, m.signature); }
std::string MessageText(const ViewWanted&) { return "ViewWanted"; }
std::string MessageText(const ViewAck& m) { return Join("ViewAck", m.id, m.generation); }
std::string MessageText(const Push& m) { return Join("Push", m.items); }
std::string MessageText(const Pull& m) { return Join("Pull", m.items); }
std::string MessageText(const Params& m) { return Join("Params", m.items); }
std::string MessageText(const PushReply& m) { return Join("PushReply", m.items); }
std::string MessageText(const Question& m) { return Join("Question", m.view); }
std::string MessageText(const Answer& m) { return Join("Answer", m.view, m.items); }
std::string MessageText(const ScalarsRequest& m) { return Join("ScalarsRequest", m.first); }
std::string MessageText(const Scalars& m) { return Join("Scalars", m.first, m.steps); }
std::string MessageText(const Progress& m) { return Join("Progress", m.committed, m.rows); }
std::string MessageText(const ProgressAck& m) {
  return Join("ProgressAck", m.committed, m.next_row);
}
std::string MessageText(const Evaluate& m) {
  return Join("Evaluate", m.version, m.slice, m.first_sample, m.last_sample);
}
std::string MessageText(const EvaluationResult& m) {
  return Join("EvaluationResult", m.version, m.slice, m.sample_count, m.correct_count, m.loss_sum,
              m.top5_count, m.confusion, m.sums);
}
std::string MessageText(const ReleasePin& m) { return Join("ReleasePin", m.version); }
std::string MessageText(const PinReleased& m) { return Join("PinReleased", m.version); }
std::string MessageText(const Stop& m) { return Join("Stop", m.reason, m.text); }
std::string MessageText(const Bye&) { return "Bye"; }
std::string MessageText(const Failure& m) { return Join("Failure", m.text, m.kind); }
std::string MessageText(const StatusRequest&) { return "StatusRequest"; }
std::string MessageText(const StatusReport& m) { return Join("StatusReport", m.json); }
std::string MessageText(const Root& m) { return Join("Root", m.items, m.first_row); }
std::string MessageText(const Partials& m) { return Join("Partials", m.items); }
std::string MessageText(const PartialsPull& m) { return Join("PartialsPull", m.items); }
std::string MessageText(const RootAck& m) { return Join("RootAck", m.items); }
std::string MessageText(const Chunk& m) {
  return Join("Chunk", m.shard, m.pair, m.versions, m.image_floats, m.offset, m.payload);
}
std::string MessageText(const ChunkAck& m) {
  return Join("ChunkAck", m.shard, m.pair, m.newest, m.floats_taken);
}
std::string MessageText(const Synced& m) { return Join("Synced", m.items); }
std::string MessageText(const Divergence& m) {
  return Join("Divergence", m.shard, m.version, m.backup, m.primary_hash, m.backup_hash);
}
std::string MessageText(const RestoreFailed& m) {
  return Join("RestoreFailed", m.snapshot.generation, m.snapshot.version, m.shard, m.is_corrupt,
              m.text);
}
std::string MessageText(const PeerSilent& m) { return Join("PeerSilent", m.peer, m.silent_ms); }
std::string MessageText(const SnapshotStored& m) { return Join("SnapshotStored", m.items); }
std::string MessageText(const SnapshotAck& m) { return Join("SnapshotAck", m.items); }
std::string MessageText(const SnapshotAt& m) { return Join("SnapshotAt", m.version); }
std::string MessageText(const SnapshotAtAck& m) { return Join("SnapshotAtAck", m.version); }
std::string MessageText(const StoreFile& m) {
  return Join("StoreFile", m.name, m.offset, m.size, m.hash, m.payload);
}
std::string MessageText(const StoreFileAck& m) {
  return Join("StoreFileAck", m.name, m.offset, m.is_stored, m.failure);
}
std::string MessageText(const ReadFile& m) { return Join("ReadFile", m.name, m.offset, m.size); }
std::string MessageText(const FilePart& m) {
  return Join("FilePart", m.name, m.offset, m.file_size, m.is_missing, m.failure, m.payload);
}
std::string MessageText(const ListFiles& m) { return Join("ListFiles", m.prefix, m.after); }
std::string MessageText(const FileNames& m) {
  return Join("FileNames", m.prefix, m.after, m.names);
}
std::string MessageText(const Leave&) { return "Leave"; }
std::string MessageText(const GradientHashes& m) { return Join("GradientHashes", m.items); }
std::string MessageText(const GradientHashesAck& m) { return Join("GradientHashesAck", m.below); }
std::string MessageText(const Command& m) { return Join("Command", m.kind, m.target); }
std::string MessageText(const CommandReply& m) { return Join("CommandReply", m.outcome, m.text); }
std::string MessageText(const FaultNote& m) {
  return Join("FaultNote", m.number, m.action, m.role, m.host, m.process_id, m.target,
              m.injected_us, m.exited_us, m.text, m.process_key);
}
std::string MessageText(const FaultNoteAck& m) { return Join("FaultNoteAck", m.number); }
std::string MessageText(const DeclarationWanted& m) { return Join("DeclarationWanted", m.offset); }
std::string MessageText(const Declaration& m) {
  return Join("Declaration", m.job_toml, m.offset, m.payload);
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
                 .public_key = std::string(kPublicKeyBytesMax, 'k')},
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
      HeartbeatAck{},
      ViewUpdate{},
      ViewUpdate{SampleView(), std::string(kSignatureBytesMax, 's')},
      ViewWanted{},
      ViewAck{{1, 2}, UINT32_MAX},
  };
}

std::vector<Message> StepSamples() {
  Scalars scalars{.first = Step(kScalarsPerBlock)};
  scalars.steps.assign(kScalarsPerBlock, StepScalars{0.01f, 0.9f, -0.0f, 1e-30f});
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
             {{ShardId(1), Version(2), {}}, {ShardId(2), Version(2), {TreeNode(4), TreeNode(5)}}}},
      ScalarsRequest{Step(kScalarsPerBlock)},
      Scalars{},
      scalars,
      Progress{Version(3), {}},
      Progress{Version(3), {{Step(1), 2.5f, 0.5f}, {Step(2), -1.0f, 1.0f}}},
      ProgressAck{Version(3), Step(4)},
  };
}

std::vector<Message> RecoverySamples() {
  const StepScalars scalars{0.01f, 0.9f, -0.0f, 1e-30f};
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
      Partials{{{ShardId(1), Step(5), {0.5f}}, {ShardId(kShardsMax - 1), Step(kStepMax), {}}}},
      PartialsPull{},
      PartialsPull{{{ShardId(1), Step(5)}, {ShardId(kShardsMax - 1), Step(kStepMax)}}},
      RootAck{{{ShardId(1), Version(6), UINT64_MAX}, {ShardId(2), Version(6), 0}}},
      Chunk{},
      Chunk{ShardId(3), {2, 9}, versions, 5000, 4000, CountingPayload(1000)},
      Chunk{ShardId(3), {2, 9}, {Version(1)}, kImageFloatsMax, 0, CountingPayload(1 << 16)},
      ChunkAck{ShardId(3), {2, 9}, Version(7), kImageFloatsMax},
      Synced{{{ShardId(3), kLargestPeer, {2, 9}}, {ShardId(4), kServerLane, {2, 10}}}},
      Divergence{ShardId(1), Version(6), kServerLane, 1, UINT64_MAX},
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
      EvaluationResult{Version(6), 2, 100, 99, 0.125, 100, {{0, 0, 99}, {UINT32_MAX, 1, 1}}},
      EvaluationResult{Version(6), 2, 1, 0, 0.125, 0, {{0, 0, 1}}, {0.5, -1e300}},
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
  const std::string message = std::visit([](const auto& m) { return MessageText(m); }, e.message);
  return Join("Envelope", e.job, e.generation, e.view, e.sender, e.receiver) + message;
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
