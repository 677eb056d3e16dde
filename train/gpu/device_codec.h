// DeviceCodec encodes and decodes payloads in a GPU's memory, with the bits that plan/shard_codec
// makes on the CPU (P34). Used by GpuLauncher for gradients and by ParameterCopy for parameters.
// Threads: as Device.
#pragma once

#include <vector>

#include "kernels/device.h"
#include "kernels/payload_codec.h"
#include "plan/payload_plan.h"
#include "plan/shard_codec.h"

namespace pando {

class DeviceCodec {
 public:
  // Whether this device codes such payloads by itself. 1-bit and top-k are left to the CPU, where
  // their loss is kept (train/error_feedback).
  static bool CanCode(Device device, const PayloadPlan& payloads);

  // REQUIRES: CanCode(device, payloads). `payloads` outlives it.
  DeviceCodec(Device device, const PayloadPlan& payloads, uint32_t shard_count);

  // `encoded` is a vector of all encoded shards (PayloadPlan::offset) whose padding is zero.
  // `floats` are the shard's. Both are in the device's memory. Calls run in the order of launches.
  void Encode(ShardId shard, const float* floats, float* encoded) const;
  void Decode(ShardId shard, float* encoded, float* floats) const;

 private:
  template <class Use>
  void ForSections(ShardId shard, float* encoded, const Use& use) const;

  const Device device_;
  const PayloadPlan& payloads_;
  FloatCode code_;
  std::vector<std::vector<ShardCodec::Section>> sections_;  // by shard
};

}  // namespace pando
