// CodecWriter: the encoder's inside. Turns our structs into the generated builders. Used by
// codec_encode.cc and codec_write_*.cc alone.
#pragma once

#include <capnp/message.h>
#include <capnp/orphan.h>

#include <memory>
#include <string>
#include <unordered_map>

#include "pando.capnp.h"
#include "proto/codec.h"

namespace pando {

// By address: the payloads that were made segments of the message. Two payloads over the same bytes
// share an entry, and either keeps them alive.
using Externals = std::unordered_map<const void*, std::shared_ptr<const void>>;

inline kj::ArrayPtr<const kj::byte> ToKj(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}
inline capnp::Text::Reader ToKj(const std::string& text) { return {text.c_str(), text.size()}; }

// Whether a payload can travel as a frame of its own, without a copy.
inline bool CanBeSegment(std::span<const std::byte> bytes) {
  return bytes.size() >= kInlinePayloadBytes && bytes.size() % kWordBytes == 0 &&
         reinterpret_cast<uintptr_t>(bytes.data()) % kWordBytes == 0;
}

template <class TextList>
void WriteTexts(TextList w, const std::vector<std::string>& texts) {
  for (size_t i = 0; i < texts.size(); ++i) w.set(static_cast<unsigned>(i), ToKj(texts[i]));
}

// Writes one envelope. REQUIRES: `builder` outlives it.
class CodecWriter {
 public:
  explicit CodecWriter(capnp::MessageBuilder& builder) : builder_(builder) {}

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
  void Write(wire::Envelope::Builder w, const Partials& m);
  void Write(wire::Envelope::Builder w, const PartialsPull& m);
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
  void Write(wire::Envelope::Builder w, const PicturesReplaced& m);
  void Write(wire::Envelope::Builder w, const PicturesReplacedAck& m);
  void Write(wire::Envelope::Builder w, const Command& m);
  void Write(wire::Envelope::Builder w, const CommandReply& m);
  void Write(wire::Envelope::Builder w, const FaultNote& m);
  void Write(wire::Envelope::Builder w, const FaultNoteAck& m);

  template <class Item>
  void WritePayload(Item w, const Blob& payload);
  static unsigned Count(size_t size) { return static_cast<unsigned>(size); }

  capnp::MessageBuilder& builder_;
  Externals externals_;
};

template <class Item>
void CodecWriter::WritePayload(Item w, const Blob& payload) {
  if (!CanBeSegment(payload.bytes())) {
    w.setPayload(ToKj(payload.bytes()));
    return;
  }
  w.adoptPayload(builder_.getOrphanage().referenceExternalData(ToKj(payload.bytes())));
  externals_.emplace(payload.bytes().data(), payload.keep_alive());
}

}  // namespace pando
