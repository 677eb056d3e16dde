#include <capnp/common.h>
#include <capnp/message.h>
#include <capnp/orphan.h>
#include <capnp/serialize.h>
#include <fmt/core.h>

#include <memory>
#include <string>
#include <unordered_map>

#include "common/check.h"
#include "pando.capnp.h"
#include "proto/codec.h"
#include "proto/codec_fields.h"
#include "proto/packing.h"

namespace pando {
namespace {

// The payloads that became segments of the message, by address. Two payloads over the same bytes
// share an entry, and either one keeps the bytes alive.
using Externals = std::unordered_map<const void*, std::shared_ptr<const void>>;

kj::ArrayPtr<const kj::byte> ToKj(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}
capnp::Text::Reader ToKj(const std::string& text) { return {text.c_str(), text.size()}; }

// Returns whether a payload can travel as a separate frame, without a copy.
bool CanBeSegment(std::span<const std::byte> bytes) {
  return bytes.size() >= kInlinePayloadBytes && bytes.size() % kWordBytes == 0 &&
         reinterpret_cast<uintptr_t>(bytes.data()) % kWordBytes == 0;
}

struct WriteContext {
  capnp::MessageBuilder& builder;
  Externals externals = {};
};

template <class T>
Blob EncodeAlone(const T& value);
template <class T>
constexpr bool kIsShared = std::is_same_v<T, SharedView> || std::is_same_v<T, SharedChange>;

// Writing writes the fields of one generated struct. It never changes members.
template <class Wire>
class Writing {
 public:
  Writing(WriteContext& context, Wire wire) : context_(context), wire_(wire) {}

  void operator()(const auto&... fields) { (PutField(fields, fields.member), ...); }
  void Payload(Blob& payload) {
    if (!CanBeSegment(payload.bytes())) return wire_.setPayload(ToKj(payload.bytes()));
    wire_.adoptPayload(Refer(payload));
  }
  void BytesPayload(Blob& payload) { Payload(payload); }

 private:
  capnp::Orphan<capnp::Data> Refer(const Blob& bytes) {
    context_.externals.emplace(bytes.bytes().data(), bytes.keep_alive());
    return context_.builder.getOrphanage().referenceExternalData(ToKj(bytes.bytes()));
  }
  template <class T>
  static constexpr bool HasPlainValue() {
    return std::is_arithmetic_v<T> || std::is_enum_v<T> || requires(const T& id) { id.value(); };
  }
  template <class T>
  static auto PlainValue(const T& from) {
    if constexpr (std::is_class_v<T>) return from.value();
    if constexpr (!std::is_class_v<T>) return from;
  }
  template <class Field, class T>
  void PutField(const Field& field, T& from) {
    if constexpr (HasPlainValue<T>()) {
      using Value = decltype(field.get(wire_));
      field.set(wire_, static_cast<Value>(PlainValue(from)));
    } else if constexpr (std::is_same_v<T, std::string>) {
      field.set(wire_, ToKj(from));
    } else if constexpr (kIsShared<T>) {
      const Blob& encoding = from.Encoding([](const auto& value) { return EncodeAlone(value); });
      if (!CanBeSegment(encoding.bytes())) return field.set(wire_, ToKj(encoding.bytes()));
      field.adopt(wire_, Refer(encoding));
    } else {
      Put(InitPart(field, from), from);
    }
  }
  template <class Field, class T>
  auto InitPart(const Field& field, const std::vector<T>& list) {
    return field.init(wire_, static_cast<unsigned>(list.size()));
  }
  template <class Field, class T>
  auto InitPart(const Field& field, const T&) {
    return field.init(wire_);
  }
  template <class List, class T>
  void Put(List list, std::vector<T>& from) {
    for (unsigned i = 0; i < list.size(); ++i) {
      if constexpr (HasPlainValue<T>()) {
        list.set(i, PlainValue(from[i]));
      } else if constexpr (std::is_same_v<T, std::string>) {
        list.set(i, ToKj(from[i]));
      } else {
        Put(list[i], from[i]);
      }
    }
  }
  template <class Struct, class T>
  void Put(Struct wire, T& from) {
    Visit(Writing<Struct>(context_, wire), from);
  }

  WriteContext& context_;
  Wire wire_;
};

template <class T, class Wire>
void WriteStruct(WriteContext& context, Wire wire, const T& from) {
  Visit(Writing<Wire>(context, wire), const_cast<T&>(from));  // Visit is shared with the reader
}

// Returns a packed message whose root is this value.
template <class T>
Blob EncodeAlone(const T& value) {
  using Wire = std::conditional_t<std::is_same_v<T, View>, wire::View, wire::ViewChange>;
  capnp::MallocMessageBuilder builder;
  WriteContext context{builder};
  WriteStruct(context, builder.initRoot<Wire>(), value);
  const kj::Array<capnp::word> words = capnp::messageToFlatArray(builder);
  PANDO_CHECK(words.size() <= kViewWordsMax);
  return Pack({reinterpret_cast<const uint64_t*>(words.begin()), words.size()});
}

#define PANDO_WRITE(Name, ...)                                                         \
  void WriteMessage(WriteContext& context, wire::Envelope::Builder w, const Name& m) { \
    WriteStruct(context, w.init##Name(), m);                                           \
  }
PANDO_MESSAGES(PANDO_WRITE)
#undef PANDO_WRITE

void WriteEnvelope(WriteContext& context, const Envelope& envelope) {
  auto w = context.builder.initRoot<wire::Envelope>();
  w.setProtocolVersion(kProtocolVersion);
  w.setGeneration(envelope.generation);
  w.setJob(envelope.job.value());
  WriteStruct(context, w.initView(), envelope.view);
  WriteStruct(context, w.initSender(), envelope.sender);
  WriteStruct(context, w.initReceiver(), envelope.receiver);
  std::visit([&](const auto& message) { WriteMessage(context, w, message); }, envelope.message);
}

// The first segment of a message without items, and what an item adds besides an inline payload.
constexpr unsigned kFirstSegmentWords = 256;
constexpr size_t kItemBytes = 64;

// Returns the words for all except external payloads, so that small messages are one frame.
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

std::string CapnpVersion() {
  return fmt::format("{}.{}.{}", CAPNP_VERSION_MAJOR, CAPNP_VERSION_MINOR, CAPNP_VERSION_MICRO);
}

Frames Encode(const Envelope& envelope) {
  auto builder = std::make_shared<capnp::MallocMessageBuilder>(FirstSegmentWords(envelope.message));
  WriteContext context{*builder};
  WriteEnvelope(context, envelope);
  Frames frames;
  for (const auto& segment : builder->getSegmentsForOutput()) {
    const auto bytes = segment.asBytes();
    const auto external = context.externals.find(bytes.begin());
    std::shared_ptr<const void> keep_alive = builder;
    if (external != context.externals.end()) keep_alive = external->second;
    frames.emplace_back(std::as_bytes(std::span(bytes.begin(), bytes.size())),
                        std::move(keep_alive));
  }
  return frames;
}

}  // namespace pando
