#include "proto/codec.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <fmt/core.h>
#include <kj/exception.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>

#include "common/check.h"
#include "common/text.h"
#include "pando.capnp.h"
#include "proto/codec_fields.h"
#include "proto/packing.h"

namespace pando {
namespace {

// FrameIndex finds the frame of a payload, so that the payload keeps only that frame alive.
class FrameIndex {
 public:
  explicit FrameIndex(const Frames& frames) {
    for (const Blob& frame : frames) by_address_.push_back(&frame);
    std::ranges::sort(by_address_, {}, Address);
  }
  Blob PayloadAt(std::span<const std::byte> bytes) const {
    if (bytes.empty()) return Blob();
    const auto after = std::ranges::upper_bound(by_address_, bytes.data(), {}, Address);
    PANDO_CHECK(after != by_address_.begin());
    return Blob(bytes, (*std::prev(after))->keep_alive());
  }

 private:
  static const std::byte* Address(const Blob* frame) { return frame->bytes().data(); }

  std::vector<const Blob*> by_address_;
};

// ReadContext is the state of reading one envelope. status() keeps the first error. After an error
// every count reads as 0, so that the rest costs nothing.
class ReadContext {
 public:
  // `size_bytes` is the size of all frames together.
  ReadContext(const Frames& frames, uint64_t size_bytes)
      : frame_index_(frames), size_bytes_(size_bytes) {}
  const Status& status() const { return status_; }
  void Fail(std::string what) {
    if (status_.ok()) status_ = Corrupt(std::move(what));
  }
  // Returns the value if it is at most `max`; otherwise returns 0 and notes a failure.
  template <class Int>
  Int AtMost(const char* what, Int value, uint64_t max) {
    if (!status_.ok()) return 0;
    if (value <= max) return value;
    Fail(fmt::format("{} is {}, at most {} is allowed", what, value, max));
    return 0;
  }
  // Returns whether nothing has failed and all frames of the message together are within this size.
  bool IsAtMost(const char* what, Size size) {
    AtMost(what, size_bytes_, static_cast<uint64_t>(size));
    return status_.ok();
  }
  Blob Floats(capnp::Data::Reader data) {
    const size_t size = data.size();
    if (size % sizeof(float) != 0) Fail(fmt::format("a payload of {} bytes is not floats", size));
    return Bytes(data);
  }
  Blob Bytes(capnp::Data::Reader data) {
    const size_t size = AtMost("payload bytes", data.size(), kPayloadBytesMax);
    if (!status_.ok()) return Blob();
    // Data starts at a word, and Decode aligned the frames to words, so the floats are aligned.
    return frame_index_.PayloadAt(std::as_bytes(std::span(data.begin(), size)));
  }

 private:
  FrameIndex frame_index_;
  const uint64_t size_bytes_;
  Status status_;
};

template <class T, class Wire>
T ReadStruct(ReadContext& context, Wire wire);
template <class T, class Wire>
Shared<T> ReadAlone(ReadContext& context, capnp::Data::Reader data);

// Reading reads the fields of one generated struct.
template <class Wire>
class Reading {
 public:
  Reading(ReadContext& context, Wire wire) : context_(context), wire_(wire) {}

  void operator()(const auto&... fields) { (TakeField(fields), ...); }
  void Payload(Blob& to) { to = context_.Floats(wire_.getPayload()); }
  void BytesPayload(Blob& to) { to = context_.Bytes(wire_.getPayload()); }
  void Check(bool is_sound, const char* wrong) {
    if (!is_sound) context_.Fail(wrong);
  }
  void CheckAtMost(const char* what, uint64_t value, uint64_t max) {
    context_.AtMost(what, value, max);
  }

 private:
  void TakeField(const auto& field) {
    std::apply([&](const auto&... limits) { Take(field.get(wire_), field.member, limits...); },
               field.limits);
  }
  template <class T>
  requires std::is_arithmetic_v<T>
  void Take(T value, T& to) { to = value; }
  template <class T>
  requires std::is_arithmetic_v<T>
  void Take(T value, T& to, const Limit& limit) {
    to = context_.AtMost(limit.what, value, limit.max);
  }
  // Terminals and logs show peers' texts. Names are one line; texts and documents keep their lines.
  void Take(capnp::Text::Reader text, std::string& to, const Limit& bytes) {
    const LineEnds ends = bytes.max >= kTextBytesMax ? LineEnds::kKept : LineEnds::kReplaced;
    to = Cleaned({text.begin(), context_.AtMost(bytes.what, text.size(), bytes.max)}, ends);
  }
  template <class WireEnum, class E>
  void Take(WireEnum value, E& to, const LastOf<E>& limit) {
    to = static_cast<E>(context_.AtMost(limit.what, static_cast<uint16_t>(value),
                                        static_cast<uint64_t>(limit.last)));
  }
  void Take(capnp::Data::Reader data, SharedView& to) {
    to = ReadAlone<View, wire::View>(context_, data);
  }
  void Take(capnp::Data::Reader data, SharedChange& to) {
    to = ReadAlone<ViewChange, wire::ViewChange>(context_, data);
  }
  void Take(uint64_t value, Incarnation& to) { to = Incarnation(value); }
  void Take(uint32_t value, NodeId& to) {
    const bool is_known = value != kUnknownNode.value();
    to = is_known ? NodeId(context_.AtMost("node id", value, kNodesMax - 1)) : kUnknownNode;
  }
  void Take(uint32_t value, ShardId& to) { TakeId(value, to, {"shard id", kShardsMax - 1}); }
  void Take(uint32_t value, MicroBatch& to) {
    TakeId(value, to, {"micro-batch", kMicroBatchesMax - 1});
  }
  void Take(uint32_t value, TreeNode& to, uint32_t min) {
    if (value < min) context_.Fail("tree node 0 does not exist");
    TakeId(value, to, {"tree node", kTreeNodesMax - 1});
  }
  void Take(uint64_t value, Step& to) { TakeId(value, to, {"step", kStepMax}); }
  void Take(uint64_t value, Version& to) { TakeId(value, to, {"version", kStepMax}); }
  template <class Id>
  void TakeId(typename Id::rep value, Id& to, const Limit& limit) {
    to = Id(context_.AtMost(limit.what, value, limit.max));
  }
  template <class List, class T, class... Limits>
  void Take(List list, std::vector<T>& to, const Limit& count, const Limits&... limits) {
    const unsigned size = context_.AtMost(count.what, list.size(), count.max);
    to.resize(size);
    for (unsigned i = 0; i < size; ++i) Take(list[i], to[i], limits...);
  }
  template <class Struct, class T>
  requires std::is_class_v<T>
  void Take(Struct wire, T& to) { to = ReadStruct<T>(context_, wire); }

  ReadContext& context_;
  Wire wire_;
};

template <class T, class Wire>
T ReadStruct(ReadContext& context, Wire wire) {
  T read;
  Reading<Wire> reading(context, wire);
  Visit(reading, read);
  CheckRules(reading, read);
  return read;
}

constexpr int kNestingMax = 16;  // used: 6 (envelope, view delta, shards, placement, peers)
// The decoder reads each word once. The factor and the slack are for words that are counted twice.
constexpr uint64_t kTraversalFactor = 2;
constexpr uint64_t kTraversalSlackWords = 1024;
capnp::ReaderOptions OptionsFor(uint64_t word_count) {
  capnp::ReaderOptions options;
  options.traversalLimitInWords = kTraversalFactor * word_count + kTraversalSlackWords;
  options.nestingLimit = kNestingMax;
  return options;
}

template <class T, class Wire>
Shared<T> ReadAlone(ReadContext& context, capnp::Data::Reader data) {
  const Blob encoding = context.Bytes(data);
  const Result<std::vector<uint64_t>> words = Unpack(encoding.bytes(), kViewWordsMax);
  if (!words.ok()) context.Fail("a view or its change: " + words.status().message());
  if (!context.status().ok()) return {};
  const auto* first = reinterpret_cast<const capnp::word*>(words->data());
  capnp::FlatArrayMessageReader message({first, words->size()}, OptionsFor(words->size()));
  T value = ReadStruct<T>(context, message.getRoot<Wire>());
  return {std::move(value), encoding};
}

Message ReadMessage(ReadContext& context, wire::Envelope::Reader r) {
  switch (r.which()) {
#define PANDO_READ(Name, CONSTANT, handlers, sender, generation, about, size, ...) \
  case wire::Envelope::CONSTANT:                                                   \
    if (!context.IsAtMost("bytes of a " #Name, Size::size)) return Bye{};          \
    return ReadStruct<Name>(context, r.get##Name());
    PANDO_MESSAGES(PANDO_READ)
#undef PANDO_READ
    default:  // a type of a later version, or a retired one
      break;
  }
  context.Fail(fmt::format("message kind {} is not known", static_cast<uint16_t>(r.which())));
  return Bye{};
}

Envelope ReadEnvelope(ReadContext& context, wire::Envelope::Reader r) {
  Envelope envelope;
  const uint32_t version = r.getProtocolVersion();
  if (version != kProtocolVersion) {
    context.Fail(
        fmt::format("the peer speaks protocol version {}, this program version {}: run the same "
                    "release of pando everywhere",
                    version, kProtocolVersion));
    return envelope;
  }
  envelope.job = JobId(r.getJob());
  envelope.generation = r.getGeneration();
  envelope.view = ReadStruct<ViewId>(context, r.getView());
  envelope.sender = ReadStruct<PeerId>(context, r.getSender());
  envelope.receiver = ReadStruct<PeerId>(context, r.getReceiver());
  envelope.message = ReadMessage(context, r);
  return envelope;
}

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
  capnp::SegmentArrayMessageReader message({segments.data(), segments.size()},
                                           OptionsFor(word_count));
  ReadContext context(frames, word_count * kWordBytes);
  Envelope envelope = ReadEnvelope(context, message.getRoot<wire::Envelope>());
  if (!context.status().ok()) return context.status();
  return envelope;
}

}  // namespace

Result<Envelope> Decode(const Frames& frames) {
  PANDO_RETURN_IF_ERROR(CheckFrames(frames));
  try {
    return DecodeAligned(Aligned(frames));
  } catch (const kj::Exception& e) {
    return Corrupt(std::string("not a message of ours: ") + e.getDescription().cStr());
  } catch (const std::exception& e) {
    return Corrupt(std::string("not a message of ours: ") + e.what());
  }
}

}  // namespace pando
