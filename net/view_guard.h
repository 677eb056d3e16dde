// ViewGuard signs and checks views for one core in a run with keys (P44). Threads: its transport's.
#pragma once

#include <string>
#include <utility>

#include "net/transport.h"
#include "proto/view_seal.h"

namespace pando {

class ViewGuard : public ViewSeal {
 public:
  // `pair` is the scheduler's ViewKeyPair; in other processes its public key alone, from the
  // Welcome. `transport` outlives the guard and counts the forged views.
  ViewGuard(Transport& transport, KeyPair pair) : transport_(transport), pair_(std::move(pair)) {}

  // The seal for a core; null if the run has no keys.
  ViewSeal* seal() { return pair_.public_key.empty() ? nullptr : this; }

  const std::string& public_key() const override { return pair_.public_key; }
  std::string Sign(const std::string& text) override { return SignText(pair_, text); }
  bool IsGenuine(const std::string& text, const std::string& signature) override {
    return IsSignature(pair_.public_key, text, signature);
  }
  void OnForged(const PeerId& from) override {
    transport_.OnBadView(from, "the signature of its view is not the scheduler's");
  }

 private:
  Transport& transport_;
  const KeyPair pair_;
};

}  // namespace pando
