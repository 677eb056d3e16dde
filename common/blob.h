// Blob is immutable bytes and a reference that keeps them alive. Gradients and parameters travel as
// blobs. A large payload is not copied on its way (proto/codec.h has the exceptions). A worker on a
// CPU copies parameters once, into its flat vector. Threads: the bytes are immutable and references
// are counted atomically, so copies may cross threads.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace pando {

class Blob {
 public:
  Blob() = default;
  Blob(std::span<const std::byte> bytes, std::shared_ptr<const void> keep_alive)
      : bytes_(bytes), keep_alive_(std::move(keep_alive)) {}

  std::span<const std::byte> bytes() const { return bytes_; }
  size_t size_bytes() const { return bytes_.size(); }
  const std::shared_ptr<const void>& keep_alive() const { return keep_alive_; }

  // REQUIRES: the bytes are aligned to 4 and form a whole number of floats (the codec checks both).
  std::span<const float> floats() const {
    return {reinterpret_cast<const float*>(bytes_.data()), bytes_.size() / sizeof(float)};
  }

 private:
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> keep_alive_;
};

}  // namespace pando
