// LinkProof proves to each end of a shared-memory link which process the other end is (P44). Only
// net/shm/shared_link uses it.
//
// The accepting end proves itself first, and a token depends on both random numbers. So a process
// that listens under a false name learns no token to use elsewhere. Threads: its link's thread.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>

#include "common/ids.h"

namespace pando {

class LinkProof {
 public:
  using Bytes = std::array<char, 16>;
  // Returns the token of a text, which only the two processes can make: "" without keys, nullopt if
  // the peer's key is not known yet. A null function means that there are no keys.
  using Sign = std::function<std::optional<std::string>(Incarnation peer, const std::string& text)>;

  // `peer` is the process to which this end connects; nullopt if this end accepts.
  LinkProof(Sign sign, std::optional<Incarnation> peer);

  // This end's random number, for its hello or proof.
  const Bytes& number() const { return is_connecting_ ? connecting_ : accepting_; }
  // Takes the peer's hello. Only the accepting end calls it.
  void OnHello(Incarnation peer, const Bytes& number);
  // Returns this end's token, once, when it is due and the peer's key is known.
  std::optional<Bytes> TakeToken();
  // Returns whether this proof of the peer is right and comes in turn.
  bool OnProof(const Bytes& number, const Bytes& token);
  bool is_proven() const { return is_proven_; }

 private:
  std::optional<std::string> TokenFrom(bool is_connecting) const;

  const Sign sign_;
  const bool is_connecting_;
  std::optional<Incarnation> peer_;
  Bytes connecting_{}, accepting_{};
  bool has_shown_ = false;
  bool is_proven_ = false;
};

}  // namespace pando
