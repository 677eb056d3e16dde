#include <capnp/message.h>
#include <capnp/orphan.h>

#include <memory>
#include <unordered_map>

#include "pando.capnp.h"
#include "proto/codec.h"

namespace pando {
namespace {

// First segment of a message without items; and what an item takes besides an inline payload.
constexpr unsigned kFirstSegmentWords = 256;
constexpr size_t kItemBytes = 64;

// By address: the payloads that were made segments of the message. Two payloads over the same bytes
// share an entry, and either keeps them alive.
using Externals = std::unordered_map<const void*, std::shared_ptr<const void>>;

kj::ArrayPtr<const kj::byte> ToKj(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}

capnp::Text::Reader ToKj(const std::string& text) { return {text.c_str(), text.size()}; }

bool CanBeSegment(std::span<const std::byte> bytes) {
  return bytes.size() >= kInlinePayloadBytes && bytes.size() % kWordBytes == 0 &&
         reinterpret_cast<uintptr_t>(bytes.data()) % kWordBytes == 0;
}

class Writer {
 public:
  explicit Writer(capnp::MessageBuilder& builder) : builder_(builder) {}

  void Write(const Envelope& envelope);
  const Externals& externals() const { return externals_; }

 private:
  void Write(wire::PeerId::Builder w, const PeerId& peer);
  void Write(wire::ViewId::Builder w, const ViewId& view);
  void Write(wire::View::Builder w, const View& view);
  void Write(wire::NodeInfo::Builder w, const NodeInfo& node);
  void Write(wire::ShardPlacement::Builder w, const ShardPlacement& placement);
  void Write(wire::DataFacts::Builder w, const DataFacts& data);
  void Write(wire::StepScalars::Builder w, const StepScalars& scalars);

  void Write(wire::Envelope::Builder w, const Register& m);
  void Write(wire::Envelope::Builder w, const Welcome& m);
  void Write(wire::Envelope::Builder w, const Refused& m);
  void Write(wire::Envelope::Builder w, const Ready& m);
  void Write(wire::Envelope::Builder w, const Heartbeat& m);
  void Write(wire::Envelope::Builder w, const HeartbeatAck& m);
  void Write(wire::Envelope::Builder w, const ViewUpdate& m);
  void Write(wire::Envelope::Builder w, const ViewAck& m);
  void Write(wire::Envelope::Builder w, const Push& m);
  void Write(wire::Envelope::Builder w, const Pull& m);
  void Write(wire::Envelope::Builder w, const Params& m);
  void Write(wire::Envelope::Builder w, const PushReply& m);
  void Write(wire::Envelope::Builder w, const Question& m);
  void Write(wire::Envelope::Builder w, const Answer& m);
  void Write(wire::Envelope::Builder w, const ScalarsRequest& m);
  void Write(wire::Envelope::Builder w, const Scalars& m);
  void Write(wire::Envelope::Builder w, const Progress& m);
  void Write(wire::Envelope::Builder w, const ProgressAck& m);
  void Write(wire::Envelope::Builder w, const Evaluate& m);
  void Write(wire::Envelope::Builder w, const EvaluationResult& m);
  void Write(wire::Envelope::Builder w, const ReleasePin& m);
  void Write(wire::Envelope::Builder w, const PinReleased& m);
  void Write(wire::Envelope::Builder w, const Stop& m);
  void Write(wire::Envelope::Builder w, const Bye& m);
  void Write(wire::Envelope::Builder w, const Failure& m);
  void Write(wire::Envelope::Builder w, const StatusRequest& m);
  void Write(wire::Envelope::Builder w, const StatusReport& m);
  void Write(wire::Envelope::Builder w, const Root& m);
  void Write(wire::Envelope::Builder w, const RootAck& m);
  void Write(wire::Envelope::Builder w, const Chunk& m);
  void Write(wire::Envelope::Builder w, const ChunkAck& m);
  void Write(wire::Envelope::Builder w, const Synced& m);
  void Write(wire::Envelope::Builder w, const Divergence& m);
  void Write(wire::Envelope::Builder w, const PeerSilent& m);
  void Write(wire::Envelope::Builder w, const SnapshotStored& m);
  void Write(wire::Envelope::Builder w, const SnapshotAck& m);
  void Write(wire::Envelope::Builder w, const RestoreFailed& m);
  void Write(wire::Envelope::Builder w, const SnapshotAt& m);
  void Write(wire::Envelope::Builder w, const SnapshotAtAck& m);
  void Write(wire::Envelope::Builder w, const Leave& m);
  void Write(wire::Envelope::Builder w, const GradientHashes& m);
  void Write(wire::Envelope::Builder w, const GradientHashesAck& m);
  void Write(wire::Envelope::Builder w, const Command& m);
  void Write(wire::Envelope::Builder w, const CommandReply& m);
  void Write(wire::Envelope::Builder w, const FaultNote& m);
  void Write(wire::Envelope::Builder w, const FaultNoteAck& m);

  template <class Item>
  void WritePayload(Item w, const Blob& payload);

  capnp::MessageBuilder& builder_;
  Externals externals_;
};

template <class TextList>
void WriteTexts(TextList w, const std::vector<std::string>& texts) {
  for (size_t i = 0; i < texts.size(); ++i) w.set(static_cast<unsigned>(i), ToKj(texts[i]));
}

unsigned Count(size_t size) { return static_cast<unsigned>(size); }

void Writer::Write(const Envelope& envelope) {
  auto w = builder_.initRoot<wire::Envelope>();
  w.setProtocolVersion(kProtocolVersion);
  w.setGeneration(envelope.generation);
  w.setJob(envelope.job.value());
  Write(w.initView(), envelope.view);
  Write(w.initSender(), envelope.sender);
  Write(w.initReceiver(), envelope.receiver);
  std::visit([&](const auto& message) { Write(w, message); }, envelope.message);
}

void Writer::Write(wire::PeerId::Builder w, const PeerId& peer) {
  w.setNode(peer.node.value());
  w.setLane(peer.lane);
  w.setIncarnation(peer.incarnation.value());
}

void Writer::Write(wire::ViewId::Builder w, const ViewId& view) {
  w.setTerm(view.term);
  w.setNumber(view.number);
}

// ---- membership and views

void Writer::Write(wire::Envelope::Builder e, const Register& m) {
  auto w = e.initRegister();
  w.setRole(static_cast<wire::Role>(m.role));
  w.setProcessId(m.process_id);
  w.setHost(ToKj(m.host));
  WriteTexts(w.initLaneEndpoints(Count(m.lane_endpoints.size())), m.lane_endpoints);
  w.setWantedRank(m.wanted_rank);
}

void Writer::Write(wire::Envelope::Builder e, const Welcome& m) {
  auto w = e.initWelcome();
  w.setNode(m.node.value());
  w.setRank(m.rank);
  w.setJobToml(ToKj(m.job_toml));
  Write(w.initData(), m.data);
  w.setSnapshotDir(ToKj(m.snapshot_dir));
}

void Writer::Write(wire::DataFacts::Builder w, const DataFacts& data) {
  w.setTrainSamples(data.train_samples);
  w.setTestSamples(data.test_samples);
  w.setHeight(data.shape.height);
  w.setWidth(data.shape.width);
  w.setChannels(data.shape.channels);
  w.setClassCount(data.class_count);
  w.setFingerprint(data.fingerprint);
}

void Writer::Write(wire::Envelope::Builder e, const Refused& m) {
  auto w = e.initRefused();
  w.setReason(ToKj(m.reason));
  w.setKind(static_cast<wire::RefusalKind>(m.kind));
}

void Writer::Write(wire::Envelope::Builder e, const Ready& m) {
  auto w = e.initReady();
  w.setKind(ToKj(m.kind));
  w.setProbeHash(m.probe_hash);
  w.setDataFingerprint(m.data_fingerprint);
}

void Writer::Write(wire::Envelope::Builder e, const Heartbeat& m) {
  auto w = e.initHeartbeat();
  w.setActivity(static_cast<wire::Activity>(m.activity));
  w.setStep(m.step.value());
  Write(w.initWaitingFor(), m.waiting_for);
  w.setWaitingMs(m.waiting_ms);
  w.setMicroBatchUs(m.micro_batch_us);
}

void Writer::Write(wire::Envelope::Builder e, const HeartbeatAck&) { e.initHeartbeatAck(); }

void Writer::Write(wire::Envelope::Builder e, const ViewUpdate& m) {
  Write(e.initViewUpdate().initView(), m.view);
}

void Writer::Write(wire::View::Builder w, const View& view) {
  Write(w.initId(), view.id);
  w.setGeneration(view.generation);
  auto restore = w.initRestore();
  restore.setVersion(view.restore.version.value());
  restore.setGeneration(view.restore.generation);
  auto nodes = w.initNodes(Count(view.nodes.size()));
  for (unsigned i = 0; i < nodes.size(); ++i) Write(nodes[i], view.nodes[i]);
  auto shards = w.initShards(Count(view.shards.size()));
  for (unsigned i = 0; i < shards.size(); ++i) Write(shards[i], view.shards[i]);
  auto owners = w.initOwners(Count(view.owners.size()));
  for (unsigned i = 0; i < owners.size(); ++i) {
    owners[i].setWorker(view.owners[i].worker.value());
    owners[i].setPrevious(view.owners[i].previous.value());
    owners[i].setFirstStep(view.owners[i].first_step.value());
  }
}

void Writer::Write(wire::NodeInfo::Builder w, const NodeInfo& node) {
  w.setNode(node.node.value());
  w.setRank(node.rank);
  w.setIncarnation(node.incarnation.value());
  w.setRole(static_cast<wire::Role>(node.role));
  w.setHost(ToKj(node.host));
  WriteTexts(w.initLaneEndpoints(Count(node.lane_endpoints.size())), node.lane_endpoints);
  w.setProbeHash(node.probe_hash);
}

void Writer::Write(wire::ShardPlacement::Builder w, const ShardPlacement& placement) {
  Write(w.initPrimary(), placement.primary);
  auto in_sync = w.initInSyncBackups(Count(placement.in_sync_backups.size()));
  for (unsigned i = 0; i < in_sync.size(); ++i) Write(in_sync[i], placement.in_sync_backups[i]);
  auto syncing = w.initSyncingBackups(Count(placement.syncing_backups.size()));
  for (unsigned i = 0; i < syncing.size(); ++i) {
    Write(syncing[i].initPeer(), placement.syncing_backups[i].peer);
    Write(syncing[i].initSince(), placement.syncing_backups[i].since);
  }
}

void Writer::Write(wire::Envelope::Builder e, const ViewAck& m) {
  auto w = e.initViewAck();
  Write(w.initId(), m.id);
  w.setGeneration(m.generation);
}

// ---- the step

template <class Item>
void Writer::WritePayload(Item w, const Blob& payload) {
  if (!CanBeSegment(payload.bytes())) {
    w.setPayload(ToKj(payload.bytes()));
    return;
  }
  w.adoptPayload(builder_.getOrphanage().referenceExternalData(ToKj(payload.bytes())));
  externals_.emplace(payload.bytes().data(), payload.keep_alive());
}

void Writer::Write(wire::Envelope::Builder e, const Push& m) {
  auto items = e.initPush().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setNode(m.items[i].node.value());
    items[i].setStep(m.items[i].step.value());
    WritePayload(items[i], m.items[i].payload);
  }
}

void Writer::Write(wire::Envelope::Builder e, const Pull& m) {
  auto items = e.initPull().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setVersion(m.items[i].version.value());
  }
}

void Writer::Write(wire::Envelope::Builder e, const Params& m) {
  auto items = e.initParams().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setVersion(m.items[i].version.value());
    WritePayload(items[i], m.items[i].payload);
  }
}

void Writer::Write(wire::Envelope::Builder e, const PushReply& m) {
  auto items = e.initPushReply().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setNode(m.items[i].node.value());
    items[i].setVersion(m.items[i].version.value());
    items[i].setOutcome(static_cast<wire::PushOutcome>(m.items[i].outcome));
    items[i].setCurrent(m.items[i].current.value());
  }
}

void Writer::Write(wire::Envelope::Builder e, const Question& m) {
  Write(e.initQuestion().initView(), m.view);
}

void Writer::Write(wire::Envelope::Builder e, const Answer& m) {
  auto w = e.initAnswer();
  Write(w.initView(), m.view);
  auto items = w.initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setVersion(m.items[i].version.value());
    auto nodes = items[i].initNodes(Count(m.items[i].nodes.size()));
    for (unsigned n = 0; n < nodes.size(); ++n) nodes.set(n, m.items[i].nodes[n].value());
  }
}

// ---- replication

void Writer::Write(wire::Envelope::Builder e, const Root& m) {
  auto w = e.initRoot();
  w.setFirstRow(m.first_row.value());
  auto items = w.initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setStep(m.items[i].step.value());
    Write(items[i].initScalars(), m.items[i].scalars);
    WritePayload(items[i], m.items[i].payload);
  }
}

void Writer::Write(wire::Envelope::Builder e, const RootAck& m) {
  auto items = e.initRootAck().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setVersion(m.items[i].version.value());
    items[i].setHash(m.items[i].hash);
  }
}

void Writer::Write(wire::Envelope::Builder e, const Chunk& m) {
  auto w = e.initChunk();
  w.setShard(m.shard.value());
  Write(w.initPair(), m.pair);
  auto versions = w.initVersions(Count(m.versions.size()));
  for (unsigned i = 0; i < versions.size(); ++i) versions.set(i, m.versions[i].value());
  w.setImageFloats(m.image_floats);
  w.setOffset(m.offset);
  WritePayload(w, m.payload);
}

void Writer::Write(wire::Envelope::Builder e, const ChunkAck& m) {
  auto w = e.initChunkAck();
  w.setShard(m.shard.value());
  Write(w.initPair(), m.pair);
  w.setNewest(m.newest.value());
  w.setFloatsTaken(m.floats_taken);
}

void Writer::Write(wire::Envelope::Builder e, const Synced& m) {
  auto items = e.initSynced().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    Write(items[i].initNewcomer(), m.items[i].newcomer);
    Write(items[i].initPair(), m.items[i].pair);
  }
}

void Writer::Write(wire::Envelope::Builder e, const Divergence& m) {
  auto w = e.initDivergence();
  w.setShard(m.shard.value());
  w.setVersion(m.version.value());
  Write(w.initBackup(), m.backup);
  w.setPrimaryHash(m.primary_hash);
  w.setBackupHash(m.backup_hash);
}

void Writer::Write(wire::Envelope::Builder e, const PeerSilent& m) {
  auto w = e.initPeerSilent();
  Write(w.initPeer(), m.peer);
  w.setSilentMs(m.silent_ms);
}

// ---- snapshots

void Writer::Write(wire::Envelope::Builder e, const SnapshotStored& m) {
  auto items = e.initSnapshotStored().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setVersion(m.items[i].version.value());
    items[i].setHash(m.items[i].hash);
    items[i].setFile(ToKj(m.items[i].file));
    items[i].setFailure(ToKj(m.items[i].failure));
  }
}

void Writer::Write(wire::Envelope::Builder e, const RestoreFailed& m) {
  auto w = e.initRestoreFailed();
  w.setGeneration(m.snapshot.generation);
  w.setVersion(m.snapshot.version.value());
  w.setShard(m.shard.value());
  w.setIsCorrupt(m.is_corrupt);
  w.setText(ToKj(m.text));
}

void Writer::Write(wire::Envelope::Builder e, const SnapshotAck& m) {
  auto items = e.initSnapshotAck().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setVersion(m.items[i].version.value());
  }
}

void Writer::Write(wire::Envelope::Builder e, const SnapshotAt& m) {
  e.initSnapshotAt().setVersion(m.version.value());
}

void Writer::Write(wire::Envelope::Builder e, const SnapshotAtAck& m) {
  e.initSnapshotAtAck().setVersion(m.version.value());
}

// ---- scalars and progress

void Writer::Write(wire::Envelope::Builder e, const ScalarsRequest& m) {
  e.initScalarsRequest().setFirst(m.first.value());
}

void Writer::Write(wire::Envelope::Builder e, const Scalars& m) {
  auto w = e.initScalars();
  w.setFirst(m.first.value());
  auto steps = w.initSteps(Count(m.steps.size()));
  for (unsigned i = 0; i < steps.size(); ++i) Write(steps[i], m.steps[i]);
}

void Writer::Write(wire::StepScalars::Builder w, const StepScalars& scalars) {
  w.setLr(scalars.lr);
  w.setMomentum(scalars.momentum);
  w.setBiasCorrection1(scalars.bias_correction1);
  w.setBiasCorrection2Sqrt(scalars.bias_correction2_sqrt);
}

void Writer::Write(wire::Envelope::Builder e, const Progress& m) {
  auto w = e.initProgress();
  w.setCommitted(m.committed.value());
  auto rows = w.initRows(Count(m.rows.size()));
  for (unsigned i = 0; i < rows.size(); ++i) {
    rows[i].setStep(m.rows[i].step.value());
    rows[i].setLoss(m.rows[i].loss);
    rows[i].setAccuracy(m.rows[i].accuracy);
  }
}

void Writer::Write(wire::Envelope::Builder e, const ProgressAck& m) {
  auto w = e.initProgressAck();
  w.setCommitted(m.committed.value());
  w.setNextRow(m.next_row.value());
}

// ---- evaluation

void Writer::Write(wire::Envelope::Builder e, const Evaluate& m) {
  auto w = e.initEvaluate();
  w.setVersion(m.version.value());
  w.setSlice(m.slice);
  w.setFirstSample(m.first_sample);
  w.setLastSample(m.last_sample);
}

void Writer::Write(wire::Envelope::Builder e, const EvaluationResult& m) {
  auto w = e.initEvaluationResult();
  w.setVersion(m.version.value());
  w.setSlice(m.slice);
  w.setSampleCount(m.sample_count);
  w.setCorrectCount(m.correct_count);
  w.setLossSum(m.loss_sum);
}

void Writer::Write(wire::Envelope::Builder e, const ReleasePin& m) {
  e.initReleasePin().setVersion(m.version.value());
}

void Writer::Write(wire::Envelope::Builder e, const PinReleased& m) {
  e.initPinReleased().setVersion(m.version.value());
}

// ---- end, failure, status

void Writer::Write(wire::Envelope::Builder e, const Stop& m) {
  auto w = e.initStop();
  w.setReason(static_cast<wire::StopReason>(m.reason));
  w.setText(ToKj(m.text));
}

void Writer::Write(wire::Envelope::Builder e, const Bye&) { e.initBye(); }

void Writer::Write(wire::Envelope::Builder e, const Failure& m) {
  auto w = e.initFailure();
  w.setText(ToKj(m.text));
  w.setKind(static_cast<wire::FailureKind>(m.kind));
}

void Writer::Write(wire::Envelope::Builder e, const StatusRequest&) { e.initStatusRequest(); }

void Writer::Write(wire::Envelope::Builder e, const StatusReport& m) {
  e.initStatusReport().setJson(ToKj(m.json));
}

void Writer::Write(wire::Envelope::Builder e, const Leave&) { e.initLeave(); }

void Writer::Write(wire::Envelope::Builder e, const GradientHashes& m) {
  auto items = e.initGradientHashes().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setStep(m.items[i].step.value());
    items[i].setMicroBatch(m.items[i].micro_batch.value());
    items[i].setHash(m.items[i].hash);
  }
}

void Writer::Write(wire::Envelope::Builder e, const GradientHashesAck& m) {
  e.initGradientHashesAck().setBelow(m.below.value());
}

void Writer::Write(wire::Envelope::Builder e, const Command& m) {
  auto w = e.initCommand();
  w.setKind(static_cast<wire::CommandKind>(m.kind));
  w.setTarget(ToKj(m.target));
}

void Writer::Write(wire::Envelope::Builder e, const CommandReply& m) {
  auto w = e.initCommandReply();
  w.setOutcome(static_cast<wire::CommandOutcome>(m.outcome));
  w.setText(ToKj(m.text));
}

void Writer::Write(wire::Envelope::Builder e, const FaultNote& m) {
  auto w = e.initFaultNote();
  w.setNumber(m.number);
  w.setAction(ToKj(m.action));
  w.setRole(static_cast<wire::Role>(m.role));
  w.setProcessId(m.process_id);
  w.setHost(ToKj(m.host));
  w.setTarget(ToKj(m.target));
  w.setInjectedUs(m.injected_us);
  w.setExitedUs(m.exited_us);
  w.setText(ToKj(m.text));
}

void Writer::Write(wire::Envelope::Builder e, const FaultNoteAck& m) {
  e.initFaultNoteAck().setNumber(m.number);
}

// Room for everything but external payloads, so that small messages are one frame.
unsigned FirstSegmentWords(const Message& message) {
  size_t bytes = kFirstSegmentWords * kWordBytes;
  const auto count_one = [&](const auto& item) {
    bytes += kItemBytes +
             (CanBeSegment(item.payload.bytes()) ? 0 : item.payload.size_bytes() + kWordBytes);
  };
  const auto count = [&](const auto& items) {
    for (const auto& item : items) count_one(item);
  };
  if (const auto* push = std::get_if<Push>(&message)) count(push->items);
  if (const auto* params = std::get_if<Params>(&message)) count(params->items);
  if (const auto* root = std::get_if<Root>(&message)) count(root->items);
  if (const auto* chunk = std::get_if<Chunk>(&message)) count_one(*chunk);
  return static_cast<unsigned>(bytes / kWordBytes);
}

}  // namespace

Frames Encode(const Envelope& envelope) {
  auto builder = std::make_shared<capnp::MallocMessageBuilder>(FirstSegmentWords(envelope.message));
  Writer writer(*builder);
  writer.Write(envelope);
  Frames frames;
  for (const auto& segment : builder->getSegmentsForOutput()) {
    const auto bytes = segment.asBytes();
    const auto external = writer.externals().find(bytes.begin());
    std::shared_ptr<const void> keep_alive = builder;
    if (external != writer.externals().end()) keep_alive = external->second;
    frames.emplace_back(std::as_bytes(std::span(bytes.begin(), bytes.size())),
                        std::move(keep_alive));
  }
  return frames;
}

}  // namespace pando
