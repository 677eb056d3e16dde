#include <memory>

#include "proto/codec_writer.h"

namespace pando {
namespace {

// First segment of a message without items; and what an item takes besides an inline payload.
constexpr unsigned kFirstSegmentWords = 256;
constexpr size_t kItemBytes = 64;

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

void CodecWriter::Write(const Envelope& envelope) {
  auto w = builder_.initRoot<wire::Envelope>();
  w.setProtocolVersion(kProtocolVersion);
  w.setGeneration(envelope.generation);
  w.setJob(envelope.job.value());
  Write(w.initView(), envelope.view);
  Write(w.initSender(), envelope.sender);
  Write(w.initReceiver(), envelope.receiver);
  std::visit([&](const auto& message) { Write(w, message); }, envelope.message);
}

void CodecWriter::Write(wire::PeerId::Builder w, const PeerId& peer) {
  w.setNode(peer.node.value());
  w.setLane(peer.lane);
  w.setIncarnation(peer.incarnation.value());
}

void CodecWriter::Write(wire::ViewId::Builder w, const ViewId& view) {
  w.setTerm(view.term);
  w.setNumber(view.number);
}

Frames Encode(const Envelope& envelope) {
  auto builder = std::make_shared<capnp::MallocMessageBuilder>(FirstSegmentWords(envelope.message));
  CodecWriter writer(*builder);
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
