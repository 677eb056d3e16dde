// Tests of kernels and networks on the CPU.
#include "tests/test_device.h"

namespace pando {

Device TestDevice() { return {}; }

std::shared_ptr<void> AllocateForTest(size_t size_bytes) {
  auto memory = std::make_shared<DeviceMemory>(Device{}, size_bytes);
  return {memory, memory->data()};
}

}  // namespace pando
