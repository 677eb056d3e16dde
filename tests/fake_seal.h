// FakeSeal: a ViewSeal without cryptography. A process that lacks it cannot sign. Used by
// tests of the cores and by the simulator.
#pragma once

#include <string>

#include "common/hash.h"
#include "proto/view_seal.h"

namespace pando {

class FakeSeal : public ViewSeal {
 public:
  explicit FakeSeal(uint64_t secret = 1) : secret_(secret) {}

  const std::string& public_key() const override { return key_; }
  std::string Sign(const std::string& text) override { return std::to_string(Hash(text)); }
  bool IsGenuine(const std::string& text, const std::string& signature) override {
    return signature == std::to_string(Hash(text));
  }
  void OnForged(const PeerId&) override { ++forged_count; }

  int forged_count = 0;

 private:
  uint64_t Hash(const std::string& text) const {
    return Hash64(std::as_bytes(std::span(text)), secret_);
  }
  const uint64_t secret_;
  const std::string key_ = "fake";
};

}  // namespace pando
