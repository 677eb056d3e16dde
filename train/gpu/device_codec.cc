#include "train/gpu/device_codec.h"

#include <optional>

#include "common/check.h"

namespace pando {
namespace {

std::optional<FloatCode> CodeFor(PayloadCodec codec) {
  switch (codec) {
    case PayloadCodec::kFp16:
      return FloatCode::kFp16;
    case PayloadCodec::kBf16:
      return FloatCode::kBf16;
    case PayloadCodec::kInt8:
      return FloatCode::kInt8;
    default:
      return std::nullopt;
  }
}

}  // namespace

bool DeviceCodec::CanCode(Device device, const PayloadPlan& payloads) {
  return device.kind == DeviceKind::kCuda && CodeFor(payloads.kind()).has_value();
}

DeviceCodec::DeviceCodec(Device device, const PayloadPlan& payloads, uint32_t shard_count)
    : device_(device), payloads_(payloads), code_(CodeFor(payloads.kind()).value()) {
  for (uint32_t s = 0; s < shard_count; ++s)
    sections_.push_back(payloads.codec(ShardId(s))->Sections());
}

template <class Use>
void DeviceCodec::ForSections(ShardId shard, float* encoded, const Use& use) const {
  auto* bytes = reinterpret_cast<std::byte*>(encoded + payloads_.offset(shard));
  for (const ShardCodec::Section& section : sections_[shard.value()]) {
    use(section.first, CodedFloats{.code = section.is_exact ? FloatCode::kExact : code_,
                                   .count = section.count,
                                   .heads = reinterpret_cast<float*>(bytes + section.heads_at),
                                   .codes = bytes + section.codes_at});
  }
}

void DeviceCodec::Encode(ShardId shard, const float* floats, float* encoded) const {
  ForSections(shard, encoded, [&](size_t first, const CodedFloats& to) {
    EncodeFloats(device_, floats + first, to);
  });
}

void DeviceCodec::Decode(ShardId shard, float* encoded, float* floats) const {
  ForSections(shard, encoded, [&](size_t first, const CodedFloats& from) {
    DecodeFloats(device_, from, floats + first);
  });
}

}  // namespace pando
