// Encodes and decodes the floats of payloads on a GPU, with the bits of plan/shard_codec on the
// CPU. So fewer bytes cross the host's bus, and no thread of the host is busy with them.
// train/gpu/device_codec calls it. Threads: as for Device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device.h"

namespace pando {

// plan/shard_codec.h explains each code.
enum class FloatCode : uint8_t { kExact, kFp16, kBf16, kInt8 };

// Adjacent floats. All arrays are in the device's memory.
struct CodedFloats {
  FloatCode code = FloatCode::kExact;
  size_t count = 0;
  float* heads = nullptr;      // kInt8: a scale per block of 256; kExact: the floats
  std::byte* codes = nullptr;  // kFp16, kBf16: 2 bytes each, aligned to 2; kInt8: 1
};

// REQUIRES for both: a GPU.
void EncodeFloats(Device device, const float* floats, const CodedFloats& to);
void DecodeFloats(Device device, const CodedFloats& from, float* floats);

}  // namespace pando
