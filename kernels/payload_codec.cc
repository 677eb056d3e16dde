#include "kernels/payload_codec.h"

#include "common/check.h"
#include "kernels/cuda/cuda_ops.h"

namespace pando {

void EncodeFloats(Device device, const float* floats, const CodedFloats& to) {
  PANDO_CHECK(device.kind == DeviceKind::kCuda);
  Dispatch(
      device, [] {}, [&](auto& gpu) { cuda::EncodeFloats(gpu, floats, to); });
}

void DecodeFloats(Device device, const CodedFloats& from, float* floats) {
  PANDO_CHECK(device.kind == DeviceKind::kCuda);
  Dispatch(
      device, [] {}, [&](auto& gpu) { cuda::DecodeFloats(gpu, from, floats); });
}

}  // namespace pando
