#include "proto/codec.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include <cstring>
#include <exception>
#include <memory>

#include "proto/codec_reader.h"

namespace pando {

// ---- the envelope

Envelope CodecReader::ReadEnvelope(wire::Envelope::Reader r) {
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

Message CodecReader::ReadMessage(wire::Envelope::Reader r) {
  switch (r.which()) {
    case wire::Envelope::REGISTER:
      return Read(r.getRegister());
    case wire::Envelope::WELCOME:
      return Read(r.getWelcome());
    case wire::Envelope::REFUSED:
      return Refused{ReadText("bytes of a reason", r.getRefused().getReason(), kTextBytesMax),
                     ReadEnum("refusal kind", r.getRefused().getKind(), RefusalKind::kGivenUp)};
    case wire::Envelope::READY:
      return Read(r.getReady());
    case wire::Envelope::HEARTBEAT:
      return Read(r.getHeartbeat());
    case wire::Envelope::HEARTBEAT_ACK:
      return HeartbeatAck{};
    case wire::Envelope::VIEW_UPDATE:
      return ViewUpdate{Read(r.getViewUpdate().getView())};
    case wire::Envelope::VIEW_ACK:
      return Read(r.getViewAck());
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
    case wire::Envelope::ROOT:
      return Read(r.getRoot());
    case wire::Envelope::ROOT_ACK:
      return Read(r.getRootAck());
    case wire::Envelope::PARTIALS:
      return Read(r.getPartials());
    case wire::Envelope::PARTIALS_PULL:
      return Read(r.getPartialsPull());
    case wire::Envelope::CHUNK:
      return Read(r.getChunk());
    case wire::Envelope::CHUNK_ACK:
      return Read(r.getChunkAck());
    default:
      return ReadJobMessage(r);
  }
}

Message CodecReader::ReadJobMessage(wire::Envelope::Reader r) {
  switch (r.which()) {
    case wire::Envelope::SCALARS_REQUEST:
      return ScalarsRequest{ReadStep(r.getScalarsRequest().getFirst())};
    case wire::Envelope::SCALARS:
      return Read(r.getScalars());
    case wire::Envelope::PROGRESS:
      return Read(r.getProgress());
    case wire::Envelope::PROGRESS_ACK:
      return Read(r.getProgressAck());
    case wire::Envelope::SYNCED:
      return Read(r.getSynced());
    case wire::Envelope::DIVERGENCE:
      return Read(r.getDivergence());
    case wire::Envelope::PEER_SILENT:
      return Read(r.getPeerSilent());
    case wire::Envelope::SNAPSHOT_STORED:
      return Read(r.getSnapshotStored());
    case wire::Envelope::SNAPSHOT_ACK:
      return Read(r.getSnapshotAck());
    case wire::Envelope::SNAPSHOT_AT:
      return SnapshotAt{ReadVersion(r.getSnapshotAt().getVersion())};
    case wire::Envelope::SNAPSHOT_AT_ACK:
      return SnapshotAtAck{ReadVersion(r.getSnapshotAtAck().getVersion())};
    case wire::Envelope::RESTORE_FAILED:
      return Read(r.getRestoreFailed());
    case wire::Envelope::EVALUATE:
      return Read(r.getEvaluate());
    case wire::Envelope::EVALUATION_RESULT:
      return Read(r.getEvaluationResult());
    case wire::Envelope::RELEASE_PIN:
      return ReleasePin{ReadVersion(r.getReleasePin().getVersion())};
    case wire::Envelope::PIN_RELEASED:
      return PinReleased{ReadVersion(r.getPinReleased().getVersion())};
    case wire::Envelope::GRADIENT_HASHES:
      return Read(r.getGradientHashes());
    case wire::Envelope::GRADIENT_HASHES_ACK:
      return GradientHashesAck{ReadStep(r.getGradientHashesAck().getBelow())};
    case wire::Envelope::PICTURES_REPLACED:
      return Read(r.getPicturesReplaced());
    case wire::Envelope::PICTURES_REPLACED_ACK:
      return Read(r.getPicturesReplacedAck());
    default:
      return ReadEndMessage(r);
  }
}

Message CodecReader::ReadEndMessage(wire::Envelope::Reader r) {
  switch (r.which()) {
    case wire::Envelope::STOP:
      return Read(r.getStop());
    case wire::Envelope::BYE:
      return Bye{};
    case wire::Envelope::LEAVE:
      return Leave{};
    case wire::Envelope::FAILURE:
      return Failure{ReadText("bytes of a failure", r.getFailure().getText(), kTextBytesMax),
                     ReadEnum("failure kind", r.getFailure().getKind(), FailureKind::kMachine)};
    case wire::Envelope::STATUS_REQUEST:
      return StatusRequest{};
    case wire::Envelope::STATUS_REPORT:
      return StatusReport{
          ReadText("bytes of a status report", r.getStatusReport().getJson(), kDocumentBytesMax)};
    case wire::Envelope::COMMAND:
      return Read(r.getCommand());
    case wire::Envelope::COMMAND_REPLY:
      return Read(r.getCommandReply());
    case wire::Envelope::FAULT_NOTE:
      return Read(r.getFaultNote());
    case wire::Envelope::FAULT_NOTE_ACK:
      return FaultNoteAck{r.getFaultNoteAck().getNumber()};
    default:
      Fail(fmt::format("message kind {} is not known", static_cast<uint16_t>(r.which())));
      return Bye{};
  }
}

PeerId CodecReader::Read(wire::PeerId::Reader r) {
  PeerId peer;
  peer.node = ReadNode(r.getNode());
  peer.incarnation = Incarnation(r.getIncarnation());
  peer.lane = AtMost("lane", r.getLane(), kLanesMax - 1);
  return peer;
}

ViewId CodecReader::Read(wire::ViewId::Reader r) { return {r.getTerm(), r.getNumber()}; }

Blob CodecReader::ReadPayload(capnp::Data::Reader data) {
  const size_t size = AtMost("payload bytes", data.size(), kPayloadBytesMax);
  if (size % sizeof(float) != 0) Fail(fmt::format("a payload of {} bytes is not floats", size));
  if (!status_.ok()) return Blob();
  // Data starts at a word and Decode made the frames start at one, so the floats are aligned.
  return frame_index_.PayloadAt(std::as_bytes(std::span(data.begin(), size)));
}

std::vector<float> CodecReader::ReadFloats(const char* what, capnp::List<float>::Reader list,
                                           uint64_t max) {
  std::vector<float> floats;
  const unsigned count = Count(what, list, max);
  for (unsigned i = 0; i < count; ++i) floats.push_back(list[i]);
  return floats;
}

namespace {

constexpr int kNestingMax = 16;  // ours is 6: envelope, view update, view, shards, placement, peers
// Every word is read once; the factor and the slack are for what Cap'n Proto counts twice.
constexpr uint64_t kTraversalFactor = 2;
constexpr uint64_t kTraversalSlackWords = 1024;

using Segment = kj::ArrayPtr<const capnp::word>;

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
  CodecReader reader(frames);
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
