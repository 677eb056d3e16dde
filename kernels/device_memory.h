// DeviceMemory is memory of a device, aligned to 256 bytes, and never paged out on a GPU. Its
// initial content is undefined.
#pragma once

#include <memory>

#include "kernels/device.h"

namespace pando {

class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Device device, size_t size_bytes);
  std::byte* data() const { return memory_.get(); }
  size_t size_bytes() const { return size_bytes_; }

 private:
  struct Free {
    Device device;
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t size_bytes_ = 0;
};

}  // namespace pando
