// Tests of kernels and networks on the CPU.
#include <cstdlib>
#include <iostream>

#include "common/cpu/cpu_level.h"
#include "kernels/device_memory.h"
#include "tests/test_device.h"

namespace pando {
namespace {

constexpr int kSkipped = 77;

// PANDO_CPU_LEVEL chooses the kernels. A machine that has not got them skips the test.
bool TakeCpuLevel() {
  const char* level = std::getenv("PANDO_CPU_LEVEL");
  const Status status = level != nullptr ? ChooseCpuLevel(level) : Status();
  if (!status.ok()) {
    std::cerr << "SKIPPED: " << status.message() << std::endl;
    std::_Exit(kSkipped);
  }
  return true;
}

}  // namespace

Device TestDevice() {
  [[maybe_unused]] static const bool kHasLevel = TakeCpuLevel();
  return {};
}

std::shared_ptr<void> AllocateForTest(size_t size_bytes) {
  auto memory = std::make_shared<DeviceMemory>(Device{}, size_bytes);
  return {memory, memory->data()};
}

}  // namespace pando
