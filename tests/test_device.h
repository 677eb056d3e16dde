// The device whose kernels and networks are tested. Each test program links one of
// test_device_*.cc.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/device.h"

namespace pando {

// Its activations are floats.
Device TestDevice();
// Memory that the device and the tests see alike, 256-byte aligned.
std::shared_ptr<void> AllocateForTest(size_t size_bytes);

}  // namespace pando
