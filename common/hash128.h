// Hash128 computes the xxh3-128 of a stream of bytes. Files and a model's weights are named by it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace pando {

class Hash128 {
 public:
  Hash128();
  ~Hash128();
  void Update(std::span<const std::byte> bytes);
  std::string Hex() const;  // 32 hex digits, canonical (big-endian) order

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pando
