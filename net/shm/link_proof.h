// LinkProof: how both ends of a shared-memory link prove which processes they are (P44). Used by
// net/shm/shared_link alone.
//
// The accepting end is first, and a token is made of both ends' random numbers. So a process that
// listens under a false name learns no token that it could use elsewhere. Threads: the link's.
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
  // The token of a text, which only this process and the peer can make. Empty: there are no keys.
  // nullopt: the peer's key is not known yet. Null: as empty.
  using Sign = std::function<std::optional<std::string>(Incarnation peer, const std::string& text)>;

  // `peer`: to which this end connects; none: it accepts.
  LinkProof(Sign sign, std::optional<Incarnation> peer);

  // This end's, for its hello or proof.
  const Bytes& number() const { return is_connecting_ ? connecting_ : accepting_; }
  // The accepting end has got this hello.
  void OnHello(Incarnation peer, const Bytes& number);
  // This end's token, once, when it is due and the peer's key is known.
  std::optional<Bytes> TakeToken();
  // Whether this proof of the peer is right and in turn.
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
