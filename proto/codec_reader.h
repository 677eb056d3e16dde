// CodecReader: the decoder's inside. Turns the generated readers into our structs and checks every
// bound (message_limits.h). Used by codec_decode.cc and codec_read_*.cc alone.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/check.h"
#include "common/status.h"
#include "pando.capnp.h"
#include "proto/codec.h"

namespace pando {

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
class CodecReader {
 public:
  explicit CodecReader(const Frames& frames) : frame_index_(frames) {}

  Envelope ReadEnvelope(wire::Envelope::Reader r);
  const Status& status() const { return status_; }

 private:
  Message ReadMessage(wire::Envelope::Reader r);
  Message ReadJobMessage(wire::Envelope::Reader r);
  Message ReadEndMessage(wire::Envelope::Reader r);

  PeerId Read(wire::PeerId::Reader r);
  ViewId Read(wire::ViewId::Reader r);
  // codec_read_views.cc
  Register Read(wire::Register::Reader r);
  Welcome Read(wire::Welcome::Reader r);
  DataFacts Read(wire::DataFacts::Reader r);
  Ready Read(wire::Ready::Reader r);
  Heartbeat Read(wire::Heartbeat::Reader r);
  ViewAck Read(wire::ViewAck::Reader r);
  View Read(wire::View::Reader r);
  SnapshotRef Read(wire::SnapshotRef::Reader r);
  NodeInfo Read(wire::NodeInfo::Reader r);
  ShardPlacement Read(wire::ShardPlacement::Reader r);
  MicroBatchOwner Read(wire::MicroBatchOwner::Reader r);
  std::vector<std::string> ReadEndpoints(capnp::List<capnp::Text>::Reader list);
  // codec_read_step.cc
  Push Read(wire::Push::Reader r);
  Pull Read(wire::Pull::Reader r);
  Params Read(wire::Params::Reader r);
  PushReply Read(wire::PushReply::Reader r);
  Answer Read(wire::Answer::Reader r);
  StepScalars Read(wire::StepScalars::Reader r);
  Scalars Read(wire::Scalars::Reader r);
  Progress Read(wire::Progress::Reader r);
  ProgressAck Read(wire::ProgressAck::Reader r);
  Evaluate Read(wire::Evaluate::Reader r);
  EvaluationResult Read(wire::EvaluationResult::Reader r);
  GradientHashes Read(wire::GradientHashes::Reader r);
  PicturesReplaced Read(wire::PicturesReplaced::Reader r);
  PicturesReplacedAck Read(wire::PicturesReplacedAck::Reader r);
  // codec_read_recovery.cc
  Root Read(wire::Root::Reader r);
  RootAck Read(wire::RootAck::Reader r);
  Partials Read(wire::Partials::Reader r);
  PartialsPull Read(wire::PartialsPull::Reader r);
  Chunk Read(wire::Chunk::Reader r);
  ChunkAck Read(wire::ChunkAck::Reader r);
  Synced Read(wire::Synced::Reader r);
  Divergence Read(wire::Divergence::Reader r);
  PeerSilent Read(wire::PeerSilent::Reader r);
  SnapshotStored Read(wire::SnapshotStored::Reader r);
  SnapshotAck Read(wire::SnapshotAck::Reader r);
  RestoreFailed Read(wire::RestoreFailed::Reader r);
  Stop Read(wire::Stop::Reader r);
  Command Read(wire::Command::Reader r);
  CommandReply Read(wire::CommandReply::Reader r);
  FaultNote Read(wire::FaultNote::Reader r);

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
  Blob ReadPayload(capnp::Data::Reader data);
  std::vector<float> ReadFloats(const char* what, capnp::List<float>::Reader list, uint64_t max);

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

}  // namespace pando
