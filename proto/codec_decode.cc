#include <capnp/message.h>
#include <capnp/serialize.h>
#include <fmt/format.h>
#include <kj/exception.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>

#include "pando.capnp.h"
#include "proto/codec.h"

namespace pando {
namespace {

constexpr int kNestingMax = 16;  // ours is 6: envelope, view update, view, shards, placement, peers
// Every word is read once; the factor and the slack are for what Cap'n Proto counts twice.
constexpr uint64_t kTraversalFactor = 2;
constexpr uint64_t kTraversalSlackWords = 1024;

using Segment = kj::ArrayPtr<const capnp::word>;

// Which frame a payload lies in, so that it keeps that frame alive and no other.
class FrameIndex {
 public:
  explicit FrameIndex(const Frames& frames) {
    for (const Blob& frame : frames) by_address_.push_back(&frame);
    std::sort(by_address_.begin(), by_address_.end(), [](const Blob* a, const Blob* b) {
      return std::less<>()(a->bytes().data(), b->bytes().data());
    });
  }
  Blob PayloadAt(std::span<const std::byte> bytes) const {
    if (bytes.empty()) return Blob();
    auto after = std::upper_bound(by_address_.begin(), by_address_.end(), bytes.data(),
                                  [](const std::byte* address, const Blob* frame) {
                                    return std::less<>()(address, frame->bytes().data());
                                  });
    PANDO_CHECK(after != by_address_.begin());
    return Blob(bytes, (*std::prev(after))->keep_alive());
  }

 private:
  std::vector<const Blob*> by_address_;
};

// Reads one envelope. The first thing that is wrong is kept in status(); from then on every count
// reads as 0, so that the rest costs nothing.
class Reader {
 public:
  explicit Reader(const Frames& frames) : frame_index_(frames) {}

  Envelope ReadEnvelope(wire::Envelope::Reader r);
  const Status& status() const { return status_; }

 private:
  Message ReadMessage(wire::Envelope::Reader r);

  PeerId Read(wire::PeerId::Reader r);
  ViewId Read(wire::ViewId::Reader r);
  Register Read(wire::Register::Reader r);
  Welcome Read(wire::Welcome::Reader r);
  DataFacts Read(wire::DataFacts::Reader r);
  Ready Read(wire::Ready::Reader r);
  Heartbeat Read(wire::Heartbeat::Reader r);
  View Read(wire::View::Reader r);
  NodeInfo Read(wire::NodeInfo::Reader r);
  ShardPlacement Read(wire::ShardPlacement::Reader r);
  MicroBatchOwner Read(wire::MicroBatchOwner::Reader r);
  Push Read(wire::Push::Reader r);
  Pull Read(wire::Pull::Reader r);
  Params Read(wire::Params::Reader r);
  PushReply Read(wire::PushReply::Reader r);
  Answer Read(wire::Answer::Reader r);
  Scalars Read(wire::Scalars::Reader r);
  Progress Read(wire::Progress::Reader r);
  Evaluate Read(wire::Evaluate::Reader r);
  EvaluationResult Read(wire::EvaluationResult::Reader r);

  void Fail(std::string what) {
    if (status_.ok()) status_ = Corrupt(std::move(what));
  }
  // The value if it is at most `max`; else 0 and a failure.
  template <class Int>
  Int AtMost(const char* what, Int value, uint64_t max) {
    if (!status_.ok()) return 0;
    if (value <= max) return value;
    Fail(fmt::format("{} is {}, at most {} is allowed", what, value, max));
    return 0;
  }
  template <class Enum, class Wire>
  Enum ReadEnum(const char* what, Wire value, Enum last) {
    return static_cast<Enum>(
        AtMost(what, static_cast<uint16_t>(value), static_cast<uint64_t>(last)));
  }
  template <class List>
  unsigned Count(const char* what, const List& list, uint64_t max) {
    return AtMost(what, list.size(), max);
  }
  std::string ReadText(const char* what, capnp::Text::Reader text, size_t bytes_max) {
    return std::string(text.begin(), AtMost(what, text.size(), bytes_max));
  }
  std::vector<std::string> ReadEndpoints(capnp::List<capnp::Text>::Reader list);
  std::vector<PeerId> ReadPeers(capnp::List<wire::PeerId>::Reader list);
  Blob ReadPayload(capnp::Data::Reader data);

  NodeId ReadNode(uint32_t node) {
    return node == kUnknownNode.value() ? kUnknownNode
                                        : NodeId(AtMost("node id", node, kNodesMax - 1));
  }
  ShardId ReadShard(uint32_t shard) { return ShardId(AtMost("shard id", shard, kShardsMax - 1)); }
  TreeNode ReadTreeNode(uint32_t node, uint32_t min) {
    if (node < min) Fail("tree node 0 does not exist");
    return TreeNode(AtMost("tree node", node, kTreeNodesMax - 1));
  }
  Step ReadStep(uint64_t step) { return Step(AtMost("step", step, kStepMax)); }
  Version ReadVersion(uint64_t version) { return Version(AtMost("version", version, kStepMax)); }

  FrameIndex frame_index_;
  Status status_;
};

Envelope Reader::ReadEnvelope(wire::Envelope::Reader r) {
  Envelope envelope;
  const uint32_t version = r.getProtocolVersion();
  if (version != kProtocolVersion) {
    Fail(
        fmt::format("the peer speaks protocol version {}, this program version {}: run the same "
                    "release of pando everywhere",
                    version, kProtocolVersion));
    return envelope;
  }
  envelope.job = JobId(r.getJob());
  envelope.generation = r.getGeneration();
  envelope.view = Read(r.getView());
  envelope.sender = Read(r.getSender());
  envelope.receiver = Read(r.getReceiver());
  envelope.message = ReadMessage(r);
  return envelope;
}

Message Reader::ReadMessage(wire::Envelope::Reader r) {
  switch (r.which()) {
    case wire::Envelope::REGISTER:
      return Read(r.getRegister());
    case wire::Envelope::WELCOME:
      return Read(r.getWelcome());
    case wire::Envelope::REFUSED:
      return Refused{ReadText("bytes of a reason", r.getRefused().getReason(), kTextBytesMax)};
    case wire::Envelope::READY:
      return Read(r.getReady());
    case wire::Envelope::HEARTBEAT:
      return Read(r.getHeartbeat());
    case wire::Envelope::HEARTBEAT_ACK:
      return HeartbeatAck{};
    case wire::Envelope::VIEW_UPDATE:
      return ViewUpdate{Read(r.getViewUpdate().getView())};
    case wire::Envelope::VIEW_ACK:
      return ViewAck{Read(r.getViewAck().getId())};
    case wire::Envelope::PUSH:
      return Read(r.getPush());
    case wire::Envelope::PULL:
      return Read(r.getPull());
    case wire::Envelope::PARAMS:
      return Read(r.getParams());
    case wire::Envelope::PUSH_REPLY:
      return Read(r.getPushReply());
    case wire::Envelope::QUESTION:
      return Question{Read(r.getQuestion().getView())};
    case wire::Envelope::ANSWER:
      return Read(r.getAnswer());
    case wire::Envelope::SCALARS_REQUEST:
      return ScalarsRequest{ReadStep(r.getScalarsRequest().getFirst())};
    case wire::Envelope::SCALARS:
      return Read(r.getScalars());
    case wire::Envelope::PROGRESS:
      return Read(r.getProgress());
    case wire::Envelope::PROGRESS_ACK: {
      auto ack = r.getProgressAck();
      return ProgressAck{ReadVersion(ack.getCommitted()), ReadStep(ack.getNextRow())};
    }
    case wire::Envelope::EVALUATE:
      return Read(r.getEvaluate());
    case wire::Envelope::EVALUATION_RESULT:
      return Read(r.getEvaluationResult());
    case wire::Envelope::RELEASE_PIN:
      return ReleasePin{ReadVersion(r.getReleasePin().getVersion())};
    case wire::Envelope::PIN_RELEASED:
      return PinReleased{ReadVersion(r.getPinReleased().getVersion())};
    case wire::Envelope::STOP: {
      auto stop = r.getStop();
      return Stop{ReadEnum("stop reason", stop.getReason(), StopReason::kInterrupted),
                  ReadText("bytes of a stop text", stop.getText(), kTextBytesMax)};
    }
    case wire::Envelope::BYE:
      return Bye{};
    case wire::Envelope::FAILURE:
      return Failure{ReadText("bytes of a failure", r.getFailure().getText(), kTextBytesMax)};
    case wire::Envelope::STATUS_REQUEST:
      return StatusRequest{};
    case wire::Envelope::STATUS_REPORT:
      return StatusReport{
          ReadText("bytes of a status report", r.getStatusReport().getJson(), kDocumentBytesMax)};
  }
  Fail(fmt::format("message kind {} is not known", static_cast<uint16_t>(r.which())));
  return Bye{};
}

PeerId Reader::Read(wire::PeerId::Reader r) {
  PeerId peer;
  peer.node = ReadNode(r.getNode());
  peer.incarnation = Incarnation(r.getIncarnation());
  peer.lane = AtMost("lane", r.getLane(), kLanesMax - 1);
  return peer;
}

ViewId Reader::Read(wire::ViewId::Reader r) { return {r.getTerm(), r.getNumber()}; }

// ---- membership and views

Register Reader::Read(wire::Register::Reader r) {
  Register m;
  m.role = ReadEnum("role", r.getRole(), Role::kClient);
  m.host = ReadText("bytes of a host name", r.getHost(), kNameBytesMax);
  m.process_id = r.getProcessId();
  m.lane_endpoints = ReadEndpoints(r.getLaneEndpoints());
  return m;
}

std::vector<std::string> Reader::ReadEndpoints(capnp::List<capnp::Text>::Reader list) {
  std::vector<std::string> endpoints;
  const unsigned count = Count("lane count", list, kLanesMax);
  for (unsigned i = 0; i < count; ++i) {
    endpoints.push_back(ReadText("bytes of an endpoint", list[i], kNameBytesMax));
  }
  return endpoints;
}

Welcome Reader::Read(wire::Welcome::Reader r) {
  Welcome m;
  m.node = ReadNode(r.getNode());
  m.rank = AtMost("rank", r.getRank(), kNodesMax);
  m.job_toml = ReadText("bytes of a job file", r.getJobToml(), kDocumentBytesMax);
  m.data = Read(r.getData());
  return m;
}

DataFacts Reader::Read(wire::DataFacts::Reader r) {
  DataFacts data;
  data.train_samples = AtMost("training sample count", r.getTrainSamples(), kStepMax);
  data.test_samples = AtMost("test sample count", r.getTestSamples(), kStepMax);
  data.shape = {r.getHeight(), r.getWidth(), r.getChannels()};
  data.class_count = r.getClassCount();
  data.fingerprint = r.getFingerprint();
  const bool is_empty = data.train_samples == 0 || data.class_count == 0 ||
                        data.shape.height == 0 || data.shape.width == 0 || data.shape.channels == 0;
  if (is_empty) Fail("a data set without samples, classes or values");
  return data;
}

Ready Reader::Read(wire::Ready::Reader r) {
  Ready m;
  m.kind = ReadText("bytes of a worker kind", r.getKind(), kNameBytesMax);
  m.probe_hash = r.getProbeHash();
  m.data_fingerprint = r.getDataFingerprint();
  return m;
}

Heartbeat Reader::Read(wire::Heartbeat::Reader r) {
  Heartbeat m;
  m.activity = ReadEnum("activity", r.getActivity(), Activity::kLeaving);
  m.step = ReadStep(r.getStep());
  m.waiting_for = Read(r.getWaitingFor());
  m.waiting_ms = r.getWaitingMs();
  return m;
}

View Reader::Read(wire::View::Reader r) {
  View view;
  view.id = Read(r.getId());
  view.generation = r.getGeneration();
  auto nodes = r.getNodes();
  const unsigned node_count = Count("node count", nodes, kNodesMax);
  for (unsigned i = 0; i < node_count; ++i) view.nodes.push_back(Read(nodes[i]));
  auto shards = r.getShards();
  const unsigned shard_count = Count("shard count", shards, kShardsMax);
  for (unsigned i = 0; i < shard_count; ++i) view.shards.push_back(Read(shards[i]));
  auto owners = r.getOwners();
  const unsigned owner_count = Count("micro-batch count", owners, kMicroBatchesMax);
  for (unsigned i = 0; i < owner_count; ++i) view.owners.push_back(Read(owners[i]));
  return view;
}

NodeInfo Reader::Read(wire::NodeInfo::Reader r) {
  NodeInfo node;
  node.node = ReadNode(r.getNode());
  node.incarnation = Incarnation(r.getIncarnation());
  node.role = ReadEnum("role", r.getRole(), Role::kClient);
  node.rank = AtMost("rank", r.getRank(), kNodesMax);
  node.host = ReadText("bytes of a host name", r.getHost(), kNameBytesMax);
  node.lane_endpoints = ReadEndpoints(r.getLaneEndpoints());
  return node;
}

ShardPlacement Reader::Read(wire::ShardPlacement::Reader r) {
  ShardPlacement placement;
  placement.primary = Read(r.getPrimary());
  placement.in_sync_backups = ReadPeers(r.getInSyncBackups());
  placement.syncing_backups = ReadPeers(r.getSyncingBackups());
  return placement;
}

std::vector<PeerId> Reader::ReadPeers(capnp::List<wire::PeerId>::Reader list) {
  std::vector<PeerId> peers;
  const unsigned count = Count("replica count", list, kReplicasMax);
  for (unsigned i = 0; i < count; ++i) peers.push_back(Read(list[i]));
  return peers;
}

MicroBatchOwner Reader::Read(wire::MicroBatchOwner::Reader r) {
  MicroBatchOwner owner;
  owner.worker = ReadNode(r.getWorker());
  owner.first_step = ReadStep(r.getFirstStep());
  owner.previous = ReadNode(r.getPrevious());
  return owner;
}

// ---- the step

Blob Reader::ReadPayload(capnp::Data::Reader data) {
  const size_t size = AtMost("payload bytes", data.size(), kPayloadBytesMax);
  if (size % sizeof(float) != 0) Fail(fmt::format("a payload of {} bytes is not floats", size));
  if (!status_.ok()) return Blob();
  // Data starts at a word and Decode made the frames start at one, so the floats are aligned.
  return frame_index_.PayloadAt(std::as_bytes(std::span(data.begin(), size)));
}

Push Reader::Read(wire::Push::Reader r) {
  Push m;
  auto items = r.getItems();
  const unsigned count = Count("pushes in a message", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back({.shard = ReadShard(items[i].getShard()),
                       .step = ReadStep(items[i].getStep()),
                       .node = ReadTreeNode(items[i].getNode(), 1),
                       .payload = ReadPayload(items[i].getPayload())});
  }
  return m;
}

Pull Reader::Read(wire::Pull::Reader r) {
  Pull m;
  auto items = r.getItems();
  const unsigned count = Count("pulls in a message", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back(
        {.shard = ReadShard(items[i].getShard()), .version = ReadVersion(items[i].getVersion())});
  }
  return m;
}

Params Reader::Read(wire::Params::Reader r) {
  Params m;
  auto items = r.getItems();
  const unsigned count = Count("shards in a message", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back({.shard = ReadShard(items[i].getShard()),
                       .version = ReadVersion(items[i].getVersion()),
                       .payload = ReadPayload(items[i].getPayload())});
  }
  return m;
}

PushReply Reader::Read(wire::PushReply::Reader r) {
  PushReply m;
  auto items = r.getItems();
  const unsigned count = Count("replies in a message", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back(
        {.shard = ReadShard(items[i].getShard()),
         .version = ReadVersion(items[i].getVersion()),
         .node = ReadTreeNode(items[i].getNode(), 0),
         .outcome = ReadEnum("push outcome", items[i].getOutcome(), PushOutcome::kNotPrimary),
         .current = ReadVersion(items[i].getCurrent())});
  }
  return m;
}

Answer Reader::Read(wire::Answer::Reader r) {
  Answer m;
  m.view = Read(r.getView());
  auto items = r.getItems();
  const unsigned count = Count("shards in an answer", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    AnswerItem item{.shard = ReadShard(items[i].getShard()),
                    .version = ReadVersion(items[i].getVersion())};
    auto nodes = items[i].getNodes();
    const unsigned node_count = Count("tree nodes of a shard", nodes, kMicroBatchesMax);
    for (unsigned n = 0; n < node_count; ++n) item.nodes.push_back(ReadTreeNode(nodes[n], 1));
    m.items.push_back(std::move(item));
  }
  return m;
}

// ---- scalars and progress

Scalars Reader::Read(wire::Scalars::Reader r) {
  Scalars m;
  m.first = ReadStep(r.getFirst());
  auto steps = r.getSteps();
  const unsigned count = Count("steps of scalars", steps, kScalarsPerBlock);
  for (unsigned i = 0; i < count; ++i) {
    m.steps.push_back({.lr = steps[i].getLr(),
                       .momentum = steps[i].getMomentum(),
                       .bias_correction1 = steps[i].getBiasCorrection1(),
                       .bias_correction2_sqrt = steps[i].getBiasCorrection2Sqrt()});
  }
  return m;
}

Progress Reader::Read(wire::Progress::Reader r) {
  Progress m;
  m.committed = ReadVersion(r.getCommitted());
  auto rows = r.getRows();
  const unsigned count = Count("metric rows", rows, kMetricRowsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.rows.push_back({.step = ReadStep(rows[i].getStep()),
                      .loss = rows[i].getLoss(),
                      .accuracy = rows[i].getAccuracy()});
  }
  return m;
}

// ---- evaluation

Evaluate Reader::Read(wire::Evaluate::Reader r) {
  Evaluate m;
  m.version = ReadVersion(r.getVersion());
  m.slice = r.getSlice();
  m.first_sample = r.getFirstSample();
  m.last_sample = AtMost("sample index", r.getLastSample(), kStepMax);
  if (m.first_sample > m.last_sample) Fail("an evaluation slice that ends before it begins");
  return m;
}

EvaluationResult Reader::Read(wire::EvaluationResult::Reader r) {
  EvaluationResult m;
  m.version = ReadVersion(r.getVersion());
  m.slice = r.getSlice();
  m.sample_count = AtMost("sample count", r.getSampleCount(), kStepMax);
  m.correct_count = AtMost("correct count", r.getCorrectCount(), m.sample_count);
  m.loss_sum = r.getLossSum();
  return m;
}

// ---- frames

Status CheckFrames(const Frames& frames) {
  if (frames.empty()) return Corrupt("a message without frames");
  if (frames.size() > kFramesPerMessageMax) {
    return Corrupt(
        fmt::format("{} frames, at most {} are allowed", frames.size(), kFramesPerMessageMax));
  }
  for (const Blob& frame : frames) {
    if (frame.size_bytes() % kWordBytes != 0 || frame.size_bytes() > kFrameBytesMax) {
      return Corrupt(
          fmt::format("a frame of {} bytes; whole 8-byte words, {} bytes at most, were "
                      "expected",
                      frame.size_bytes(), kFrameBytesMax));
    }
  }
  return Status();
}

Blob AlignedCopy(const Blob& frame) {
  auto words = std::make_shared<std::vector<uint64_t>>(frame.size_bytes() / kWordBytes);
  if (!words->empty()) std::memcpy(words->data(), frame.bytes().data(), frame.size_bytes());
  return Blob(std::as_bytes(std::span(*words)), words);
}

Frames Aligned(const Frames& frames) {
  Frames aligned = frames;
  for (Blob& frame : aligned) {
    const auto address = reinterpret_cast<uintptr_t>(frame.bytes().data());
    if (address % kWordBytes != 0) frame = AlignedCopy(frame);
  }
  return aligned;
}

Result<Envelope> DecodeAligned(const Frames& frames) {
  std::vector<Segment> segments;
  uint64_t word_count = 0;
  for (const Blob& frame : frames) {
    segments.emplace_back(reinterpret_cast<const capnp::word*>(frame.bytes().data()),
                          frame.size_bytes() / kWordBytes);
    word_count += segments.back().size();
  }
  capnp::ReaderOptions options;
  options.traversalLimitInWords = kTraversalFactor * word_count + kTraversalSlackWords;
  options.nestingLimit = kNestingMax;
  capnp::SegmentArrayMessageReader message({segments.data(), segments.size()}, options);
  Reader reader(frames);
  Envelope envelope = reader.ReadEnvelope(message.getRoot<wire::Envelope>());
  if (!reader.status().ok()) return reader.status();
  return envelope;
}

}  // namespace

Result<Envelope> Decode(const Frames& frames) {
  if (Status s = CheckFrames(frames); !s.ok()) return s;
  try {
    return DecodeAligned(Aligned(frames));
  } catch (const kj::Exception& e) {
    return Corrupt(std::string("not a message of ours: ") + e.getDescription().cStr());
  } catch (const std::exception& e) {
    return Corrupt(std::string("not a message of ours: ") + e.what());
  }
}

}  // namespace pando
