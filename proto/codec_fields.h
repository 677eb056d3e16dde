// The fields of every message, visited for reading, for writing, and as JSON (run/journal_rows.cc).
// `io` is the decoder's or the encoder's view of one generated struct, or of a JSON object;
// io(PANDO_WIRE(Name, member, limits), ...) reads the field `name` into the member with all checks,
// or writes it; then the fields after it. Fields are written in this order, which decides where
// their bytes lie.
#pragma once

#include <algorithm>
#include <functional>
#include <string_view>
#include <tuple>

#include "proto/message_limits.h"
#include "proto/messages.h"

namespace pando {

// A generated field: its accessors, the member that has its value, and the member's limits.
template <class Get, class Set, class Init, class T, class... Limits>
struct WireField {
  std::string_view name;  // the member's
  Get get;
  Set set;
  Init init;
  T& member;
  std::tuple<Limits...> limits;
};
// `text`: "m.name" or "m.name, limits".
constexpr std::string_view MemberName(std::string_view text) {
  return text.substr(2, text.find(',') - 2);
}
template <class Get, class Set, class Init, class T, class... Limits>
auto MakeWireField(const char* text, Get get, Set set, Init init, T& member, Limits... limits) {
  return WireField<Get, Set, Init, T, Limits...>{MemberName(text), get,        set, init,
                                                 member,           {limits...}};
}
// A macro because the field's name is part of the names of its accessors.
#define PANDO_WIRE(Name, ...)                                 \
  MakeWireField(                                              \
      #__VA_ARGS__, [](auto& r) { return r.get##Name(); },    \
      [](auto& w, const auto& value) { w.set##Name(value); }, \
      [](auto& w, auto... count) { return w.init##Name(count...); }, __VA_ARGS__)

// `what` names the value in errors.
struct Limit {
  const char* what;
  uint64_t max;  // of a number, of the bytes of a text, of the items of a list
};
template <class E>
struct LastOf {
  const char* what;
  E last;
};
template <class E>
LastOf(const char*, E) -> LastOf<E>;  // clang 14 does not deduce it

inline constexpr Limit kHostBytes{"bytes of a host name", kNameBytesMax};
inline constexpr Limit kEndpointBytes{"bytes of an endpoint", kNameBytesMax};
inline constexpr Limit kFileNameBytes{"bytes of a file name", kNameBytesMax};
inline constexpr Limit kPublicKeyBytes{"bytes of a public key", kPublicKeyBytesMax};
inline constexpr LastOf<Role> kRoles{"role", Role::kClient};

// A message that is a list.
void VisitItems(auto& io, auto& m, const char* what, uint64_t max = kItemsPerMessageMax) {
  io(PANDO_WIRE(Items, m.items, Limit{what, max}));
}

// ---- identities

void Visit(auto io, PeerId& m) {
  io(PANDO_WIRE(Node, m.node));
  io(PANDO_WIRE(Lane, m.lane, Limit{"lane", kLanesMax - 1}));
  io(PANDO_WIRE(Incarnation, m.incarnation));
}

void Visit(auto io, ViewId& m) { io(PANDO_WIRE(Term, m.term), PANDO_WIRE(Number, m.number)); }

// ---- membership and views

void Visit(auto io, Register& m) {
  io(PANDO_WIRE(Role, m.role, kRoles));
  io(PANDO_WIRE(ProcessId, m.process_id));
  io(PANDO_WIRE(Host, m.host, kHostBytes));
  io(PANDO_WIRE(LaneEndpoints, m.lane_endpoints, Limit{"lane count", kLanesMax}, kEndpointBytes));
  io(PANDO_WIRE(WantedRank, m.wanted_rank), PANDO_WIRE(ProcessKey, m.process_key));
  io(PANDO_WIRE(PublicKey, m.public_key, kPublicKeyBytes));
  io(PANDO_WIRE(Machine, m.machine, kHostBytes), PANDO_WIRE(Rack, m.rack, kHostBytes));
}

void Visit(auto io, DataFacts& m) {
  io(PANDO_WIRE(TrainSamples, m.train_samples, Limit{"training sample count", kStepMax}));
  io(PANDO_WIRE(TestSamples, m.test_samples, Limit{"test sample count", kStepMax}));
  io(PANDO_WIRE(Height, m.shape.height), PANDO_WIRE(Width, m.shape.width),
     PANDO_WIRE(Channels, m.shape.channels), PANDO_WIRE(ClassCount, m.class_count),
     PANDO_WIRE(Fingerprint, m.fingerprint));
  io.Check(m.train_samples > 0 && m.class_count > 0 && m.shape.height > 0 && m.shape.width > 0 &&
               m.shape.channels > 0,
           "a data set without samples, classes or values");
}

void Visit(auto io, Welcome& m) {
  io(PANDO_WIRE(Node, m.node));
  io(PANDO_WIRE(Rank, m.rank, Limit{"rank", kNodesMax}));
  io(PANDO_WIRE(JobToml, m.job_toml, Limit{"bytes of a job file", kDocumentBytesMax}));
  io(PANDO_WIRE(Data, m.data));
  io(PANDO_WIRE(SnapshotDir, m.snapshot_dir, Limit{"bytes of a snapshot folder", kPathBytesMax}));
  io(PANDO_WIRE(FilesEndpoint, m.files_endpoint, kEndpointBytes));
  io(PANDO_WIRE(ViewKey, m.view_key, kPublicKeyBytes));
}

void Visit(auto io, Refused& m) {
  io(PANDO_WIRE(Reason, m.reason, Limit{"bytes of a reason", kTextBytesMax}));
  io(PANDO_WIRE(Kind, m.kind, LastOf{"refusal kind", RefusalKind::kGivenUp}));
}

void Visit(auto io, Ready& m) {
  io(PANDO_WIRE(Kind, m.kind, Limit{"bytes of a worker kind", kNameBytesMax}));
  io(PANDO_WIRE(ProbeHash, m.probe_hash), PANDO_WIRE(DataFingerprint, m.data_fingerprint));
}

void Visit(auto io, DeclarationWanted& m) { io(PANDO_WIRE(Offset, m.offset)); }

void Visit(auto io, Declaration& m) {
  io(PANDO_WIRE(JobToml, m.job_toml, Limit{"bytes of a job file", kDocumentBytesMax}));
  io(PANDO_WIRE(Offset, m.offset));
  io.Payload(m.payload);
}

void Visit(auto io, LineTraffic& m) {
  io(PANDO_WIRE(Sent, m.sent), PANDO_WIRE(Received, m.received));
}

void Visit(auto io, Heartbeat& m) {
  io(PANDO_WIRE(Activity, m.activity, LastOf{"activity", Activity::kLeaving}));
  io(PANDO_WIRE(Step, m.step), PANDO_WIRE(WaitingFor, m.waiting_for),
     PANDO_WIRE(WaitingMs, m.waiting_ms), PANDO_WIRE(MicroBatchUs, m.micro_batch_us),
     PANDO_WIRE(DataStallUs, m.data_stall_us), PANDO_WIRE(ExposedSyncUs, m.exposed_sync_us),
     PANDO_WIRE(GpuMemoryBytes, m.gpu_memory_bytes), PANDO_WIRE(GpuPercent, m.gpu_percent),
     PANDO_WIRE(TcpLines, m.tcp_lines), PANDO_WIRE(IpcLines, m.ipc_lines),
     PANDO_WIRE(ShmLines, m.shm_lines), PANDO_WIRE(SamplesWaitMs, m.samples_wait_ms));
  io(PANDO_WIRE(LogLine, m.log_line, Limit{"bytes of a log's line", kLogLineBytesMax}));
  io(PANDO_WIRE(TcpTraffic, m.tcp_traffic), PANDO_WIRE(IpcTraffic, m.ipc_traffic),
     PANDO_WIRE(ShmTraffic, m.shm_traffic));
}

void Visit(auto io, SnapshotRef& m) {
  io(PANDO_WIRE(Version, m.version), PANDO_WIRE(Generation, m.generation));
}

void Visit(auto io, NodeInfo& m) {
  io(PANDO_WIRE(Node, m.node));
  io(PANDO_WIRE(Rank, m.rank, Limit{"rank", kNodesMax}));
  io(PANDO_WIRE(Incarnation, m.incarnation));
  io(PANDO_WIRE(Role, m.role, kRoles));
  io(PANDO_WIRE(Host, m.host, kHostBytes));
  io(PANDO_WIRE(LaneEndpoints, m.lane_endpoints, Limit{"lane count", kLanesMax}, kEndpointBytes));
  io(PANDO_WIRE(ProbeHash, m.probe_hash), PANDO_WIRE(PublicKey, m.public_key, kPublicKeyBytes));
}

void Visit(auto io, SyncingBackup& m) { io(PANDO_WIRE(Peer, m.peer), PANDO_WIRE(Since, m.since)); }

void Visit(auto io, ShardPlacement& m) {
  io(PANDO_WIRE(Primary, m.primary));
  io(PANDO_WIRE(InSyncBackups, m.in_sync_backups, Limit{"replica count", kReplicasMax}));
  io(PANDO_WIRE(SyncingBackups, m.syncing_backups, Limit{"syncing replica count", kReplicasMax}));
}

void Visit(auto io, MicroBatchOwner& m) {
  io(PANDO_WIRE(Worker, m.worker), PANDO_WIRE(Previous, m.previous),
     PANDO_WIRE(FirstStep, m.first_step));
}

void Visit(auto io, View& m) {
  io(PANDO_WIRE(Id, m.id), PANDO_WIRE(Generation, m.generation), PANDO_WIRE(Restore, m.restore));
  io(PANDO_WIRE(Nodes, m.nodes, Limit{"node count", kNodesMax}));
  io(PANDO_WIRE(Shards, m.shards, Limit{"shard count", kShardsMax}));
  io(PANDO_WIRE(Owners, m.owners, Limit{"micro-batch count", kMicroBatchesMax}));
}

void Visit(auto io, ViewUpdate& m) {
  io(PANDO_WIRE(View, m.view));
  io(PANDO_WIRE(Signature, m.signature, Limit{"bytes of a signature", kSignatureBytesMax}));
}

void Visit(auto io, ViewAck& m) { io(PANDO_WIRE(Id, m.id), PANDO_WIRE(Generation, m.generation)); }

// ---- the step

void Visit(auto io, PushItem& m) {
  io(PANDO_WIRE(Shard, m.shard));
  io(PANDO_WIRE(Node, m.node, /*min=*/1u));
  io(PANDO_WIRE(Step, m.step));
  io.Payload(m.payload);
}
void Visit(auto io, Push& m) { VisitItems(io, m, "pushes in a message"); }

void Visit(auto io, PullItem& m) {
  io(PANDO_WIRE(Shard, m.shard), PANDO_WIRE(Version, m.version));
  io(PANDO_WIRE(Form, m.form, LastOf{"form", ParamsForm::kEncoded}));
}
void Visit(auto io, Pull& m) { VisitItems(io, m, "pulls in a message"); }

void Visit(auto io, ParamsItem& m) {
  io(PANDO_WIRE(Shard, m.shard), PANDO_WIRE(Version, m.version));
  io(PANDO_WIRE(Form, m.form, LastOf{"form", ParamsForm::kEncoded}));
  io.Payload(m.payload);
}
void Visit(auto io, Params& m) { VisitItems(io, m, "shards in a message"); }

void Visit(auto io, PushReplyItem& m) {
  io(PANDO_WIRE(Shard, m.shard));
  io(PANDO_WIRE(Node, m.node, /*min=*/0u));
  io(PANDO_WIRE(Version, m.version));
  io(PANDO_WIRE(Outcome, m.outcome, LastOf{"push outcome", PushOutcome::kNotPrimary}));
  io(PANDO_WIRE(Current, m.current));
}
void Visit(auto io, PushReply& m) { VisitItems(io, m, "replies in a message"); }

void Visit(auto io, Question& m) { io(PANDO_WIRE(View, m.view)); }

void Visit(auto io, AnswerItem& m) {
  io(PANDO_WIRE(Shard, m.shard), PANDO_WIRE(Version, m.version));
  io(PANDO_WIRE(Nodes, m.nodes, Limit{"tree nodes of a shard", kMicroBatchesMax}, /*min=*/1u));
}

void Visit(auto io, Answer& m) {
  io(PANDO_WIRE(View, m.view));
  io(PANDO_WIRE(Items, m.items, Limit{"shards in an answer", kItemsPerMessageMax}));
}

// ---- replication

void Visit(auto io, StepScalars& m) {
  io(PANDO_WIRE(Lr, m.lr), PANDO_WIRE(Momentum, m.momentum),
     PANDO_WIRE(BiasCorrection1, m.bias_correction1),
     PANDO_WIRE(BiasCorrection2Sqrt, m.bias_correction2_sqrt));
}

void Visit(auto io, RootItem& m) {
  io(PANDO_WIRE(Shard, m.shard), PANDO_WIRE(Step, m.step), PANDO_WIRE(Scalars, m.scalars));
  io.Payload(m.payload);
  io(PANDO_WIRE(Factors, m.factors, Limit{"factors of a shard", kPartialsPerShardMax}));
}

void Visit(auto io, Root& m) {
  io(PANDO_WIRE(FirstRow, m.first_row));
  io(PANDO_WIRE(Items, m.items, Limit{"roots in a message", kItemsPerMessageMax}));
}

void Visit(auto io, RootAckItem& m) {
  io(PANDO_WIRE(Shard, m.shard), PANDO_WIRE(Version, m.version), PANDO_WIRE(Hash, m.hash));
}
void Visit(auto io, RootAck& m) { VisitItems(io, m, "root acknowledgements"); }

void Visit(auto io, PartialsItem& m) {
  io(PANDO_WIRE(Shard, m.shard), PANDO_WIRE(Step, m.step));
  io(PANDO_WIRE(Values, m.values, Limit{"partial values of a shard", kPartialsPerShardMax}));
}
void Visit(auto io, Partials& m) { VisitItems(io, m, "shards in a message"); }

void Visit(auto io, PartialsPullItem& m) {
  io(PANDO_WIRE(Shard, m.shard), PANDO_WIRE(Step, m.step));
}
void Visit(auto io, PartialsPull& m) { VisitItems(io, m, "pulls in a message"); }

void Visit(auto io, Chunk& m) {
  io(PANDO_WIRE(Shard, m.shard), PANDO_WIRE(Pair, m.pair));
  io(PANDO_WIRE(Versions, m.versions, Limit{"versions of an image", kImageVersionsMax}));
  io.Check(std::ranges::adjacent_find(m.versions, std::greater_equal<>()) == m.versions.end(),
           "versions of an image that do not ascend");
  io(PANDO_WIRE(ImageFloats, m.image_floats, Limit{"floats of an image", kImageFloatsMax}));
  io(PANDO_WIRE(Offset, m.offset, Limit{"offset of a chunk", m.image_floats}));
  io.Payload(m.payload);
  io.CheckAtMost("end of a chunk", m.offset + m.payload.size_bytes() / sizeof(float),
                 m.image_floats);
}

void Visit(auto io, ChunkAck& m) {
  io(PANDO_WIRE(Shard, m.shard), PANDO_WIRE(Pair, m.pair), PANDO_WIRE(Newest, m.newest));
  io(PANDO_WIRE(FloatsTaken, m.floats_taken, Limit{"floats taken of an image", kImageFloatsMax}));
}

void Visit(auto io, SyncedItem& m) {
  io(PANDO_WIRE(Shard, m.shard), PANDO_WIRE(Newcomer, m.newcomer), PANDO_WIRE(Pair, m.pair));
}
void Visit(auto io, Synced& m) { VisitItems(io, m, "synced shards"); }

void Visit(auto io, Divergence& m) {
  io(PANDO_WIRE(Shard, m.shard), PANDO_WIRE(Version, m.version), PANDO_WIRE(Backup, m.backup),
     PANDO_WIRE(PrimaryHash, m.primary_hash), PANDO_WIRE(BackupHash, m.backup_hash));
}

void Visit(auto io, PeerSilent& m) {
  io(PANDO_WIRE(Peer, m.peer), PANDO_WIRE(SilentMs, m.silent_ms));
}

// ---- snapshots

void Visit(auto io, SnapshotStoredItem& m) {
  io(PANDO_WIRE(Shard, m.shard), PANDO_WIRE(Version, m.version), PANDO_WIRE(Hash, m.hash));
  io(PANDO_WIRE(File, m.file, kFileNameBytes));
  io(PANDO_WIRE(Failure, m.failure, Limit{"bytes of a failure", kTextBytesMax}));
  // It is opened only within the snapshot folder.
  io.Check(m.file.find('/') == std::string::npos, "a file name with a folder in it");
}
void Visit(auto io, SnapshotStored& m) { VisitItems(io, m, "stored shards"); }

void Visit(auto io, SnapshotAckItem& m) {
  io(PANDO_WIRE(Shard, m.shard), PANDO_WIRE(Version, m.version));
}
void Visit(auto io, SnapshotAck& m) { VisitItems(io, m, "snapshot acknowledgements"); }

void Visit(auto io, SnapshotAt& m) { io(PANDO_WIRE(Version, m.version)); }
void Visit(auto io, SnapshotAtAck& m) { io(PANDO_WIRE(Version, m.version)); }

void Visit(auto io, RestoreFailed& m) {
  io(PANDO_WIRE(Generation, m.snapshot.generation), PANDO_WIRE(Version, m.snapshot.version),
     PANDO_WIRE(Shard, m.shard), PANDO_WIRE(IsCorrupt, m.is_corrupt));
  io(PANDO_WIRE(Text, m.text, Limit{"bytes of a failure", kTextBytesMax}));
}

// ---- files

void Visit(auto io, StoreFile& m) {
  io(PANDO_WIRE(Name, m.name, kFileNameBytes));
  io(PANDO_WIRE(Offset, m.offset, Limit{"offset in a file", kFileBytesMax}));
  io(PANDO_WIRE(Size, m.size, Limit{"bytes of a file", kFileBytesMax}));
  io(PANDO_WIRE(Hash, m.hash, Limit{"bytes of a hash", kHashBytesMax}));
  io.BytesPayload(m.payload);
}

void Visit(auto io, StoreFileAck& m) {
  io(PANDO_WIRE(Name, m.name, kFileNameBytes));
  io(PANDO_WIRE(Offset, m.offset, Limit{"offset in a file", kFileBytesMax}));
  io(PANDO_WIRE(IsStored, m.is_stored));
  io(PANDO_WIRE(Failure, m.failure, Limit{"bytes of a failure", kTextBytesMax}));
}

void Visit(auto io, ReadFile& m) {
  io(PANDO_WIRE(Name, m.name, kFileNameBytes));
  io(PANDO_WIRE(Offset, m.offset, Limit{"offset in a file", kFileBytesMax}));
  io(PANDO_WIRE(Size, m.size, Limit{"bytes to read", kFilePartBytesMax}));
}

void Visit(auto io, FilePart& m) {
  io(PANDO_WIRE(Name, m.name, kFileNameBytes));
  io(PANDO_WIRE(Offset, m.offset, Limit{"offset in a file", kFileBytesMax}));
  io(PANDO_WIRE(FileSize, m.file_size, Limit{"bytes of a file", kFileBytesMax}));
  io(PANDO_WIRE(IsMissing, m.is_missing));
  io(PANDO_WIRE(Failure, m.failure, Limit{"bytes of a failure", kTextBytesMax}));
  io.BytesPayload(m.payload);
}

void Visit(auto io, ListFiles& m) {
  io(PANDO_WIRE(Prefix, m.prefix, kFileNameBytes), PANDO_WIRE(After, m.after, kFileNameBytes));
}

void Visit(auto io, FileNames& m) {
  io(PANDO_WIRE(Prefix, m.prefix, kFileNameBytes), PANDO_WIRE(After, m.after, kFileNameBytes));
  io(PANDO_WIRE(Names, m.names, Limit{"file names", kFileNamesMax}, kFileNameBytes));
}

// ---- scalars, progress, evaluation

void Visit(auto io, ScalarsRequest& m) { io(PANDO_WIRE(First, m.first)); }

void Visit(auto io, Scalars& m) {
  io(PANDO_WIRE(First, m.first));
  io(PANDO_WIRE(Steps, m.steps, Limit{"steps of scalars", kScalarsPerBlock}));
}

void Visit(auto io, StepMetrics& m) {
  io(PANDO_WIRE(Step, m.step), PANDO_WIRE(Loss, m.loss), PANDO_WIRE(Accuracy, m.accuracy));
}

void Visit(auto io, Progress& m) {
  io(PANDO_WIRE(Committed, m.committed));
  io(PANDO_WIRE(Rows, m.rows, Limit{"metric rows", kMetricRowsPerMessageMax}));
}

void Visit(auto io, ProgressAck& m) {
  io(PANDO_WIRE(Committed, m.committed), PANDO_WIRE(NextRow, m.next_row));
}

void Visit(auto io, Evaluate& m) {
  io(PANDO_WIRE(Version, m.version), PANDO_WIRE(Slice, m.slice),
     PANDO_WIRE(FirstSample, m.first_sample));
  io(PANDO_WIRE(LastSample, m.last_sample, Limit{"sample index", kStepMax}));
  io.Check(m.first_sample <= m.last_sample, "an evaluation slice that ends before it begins");
}

void Visit(auto io, ConfusionCount& m) {
  io(PANDO_WIRE(Label, m.label), PANDO_WIRE(Predicted, m.predicted), PANDO_WIRE(Count, m.count));
}

void Visit(auto io, EvaluationResult& m) {
  io(PANDO_WIRE(Version, m.version), PANDO_WIRE(Slice, m.slice));
  io(PANDO_WIRE(SampleCount, m.sample_count, Limit{"sample count", kStepMax}));
  io(PANDO_WIRE(CorrectCount, m.correct_count, Limit{"correct count", m.sample_count}));
  io(PANDO_WIRE(LossSum, m.loss_sum));
  io(PANDO_WIRE(Top5Count, m.top5_count, Limit{"top-5 count", m.sample_count}));
  io(PANDO_WIRE(Confusion, m.confusion, Limit{"confusion counts", kConfusionCountsMax}));
  io(PANDO_WIRE(Sums, m.sums, Limit{"sums of an evaluation", kEvaluationSumsMax}));
}

void Visit(auto io, ReleasePin& m) { io(PANDO_WIRE(Version, m.version)); }
void Visit(auto io, PinReleased& m) { io(PANDO_WIRE(Version, m.version)); }

// ---- checks of the machines

void Visit(auto io, GradientHash& m) {
  io(PANDO_WIRE(Step, m.step), PANDO_WIRE(MicroBatch, m.micro_batch), PANDO_WIRE(Hash, m.hash));
}

void Visit(auto io, GradientHashes& m) {
  VisitItems(io, m, "gradient hashes", kGradientHashesPerMessageMax);
}

void Visit(auto io, GradientHashesAck& m) { io(PANDO_WIRE(Below, m.below)); }

// ---- end, commands, faults

void Visit(auto io, Stop& m) {
  io(PANDO_WIRE(Reason, m.reason, LastOf{"stop reason", StopReason::kDrained}));
  io(PANDO_WIRE(Text, m.text, Limit{"bytes of a stop text", kTextBytesMax}));
}

void Visit(auto io, Failure& m) {
  io(PANDO_WIRE(Text, m.text, Limit{"bytes of a failure", kTextBytesMax}));
  io(PANDO_WIRE(Kind, m.kind, LastOf{"failure kind", FailureKind::kMachine}));
}

void Visit(auto io, StatusReport& m) {
  io(PANDO_WIRE(Json, m.json, Limit{"bytes of a status report", kDocumentBytesMax}));
}

void Visit(auto io, Command& m) {
  io(PANDO_WIRE(Kind, m.kind, LastOf{"command", CommandKind::kStop}));
  io(PANDO_WIRE(Target, m.target, Limit{"bytes of a target", kNameBytesMax}));
}

void Visit(auto io, CommandReply& m) {
  io(PANDO_WIRE(Outcome, m.outcome, LastOf{"command outcome", CommandOutcome::kRefused}));
  io(PANDO_WIRE(Text, m.text, Limit{"bytes of a command's reply", kTextBytesMax}));
}

void Visit(auto io, FaultNote& m) {
  io(PANDO_WIRE(Number, m.number));
  io(PANDO_WIRE(Action, m.action, Limit{"bytes of a fault's action", kNameBytesMax}));
  io(PANDO_WIRE(Role, m.role, kRoles));
  io(PANDO_WIRE(ProcessId, m.process_id));
  io(PANDO_WIRE(Host, m.host, kHostBytes));
  io(PANDO_WIRE(Target, m.target, Limit{"bytes of a target", kNameBytesMax}));
  io(PANDO_WIRE(InjectedUs, m.injected_us), PANDO_WIRE(ExitedUs, m.exited_us));
  io(PANDO_WIRE(Text, m.text, Limit{"bytes of a fault's text", kTextBytesMax}));
  io(PANDO_WIRE(ProcessKey, m.process_key));
}

void Visit(auto io, FaultNoteAck& m) { io(PANDO_WIRE(Number, m.number)); }

// Messages without fields.
template <class Empty>
requires std::is_empty_v<Empty>
void Visit(auto, Empty&) {}

}  // namespace pando
