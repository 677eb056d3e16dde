#include "net/shm/link_proof.h"

#include <sodium.h>

#include <utility>

namespace pando {

LinkProof::LinkProof(Sign sign, std::optional<Incarnation> peer)
    : sign_(std::move(sign)), is_connecting_(peer.has_value()), peer_(peer) {
  Bytes& own = is_connecting_ ? connecting_ : accepting_;
  randombytes_buf(own.data(), own.size());
}

void LinkProof::OnHello(Incarnation peer, const Bytes& number) {
  peer_ = peer;
  connecting_ = number;
}

std::optional<LinkProof::Bytes> LinkProof::TakeToken() {
  if (!peer_ || has_shown_ || is_connecting_ != is_proven_) return std::nullopt;
  const std::optional<std::string> token = TokenFrom(is_connecting_);
  if (!token) return std::nullopt;
  has_shown_ = true;
  Bytes bytes{};
  token->copy(bytes.data(), bytes.size());
  return bytes;
}

bool LinkProof::OnProof(const Bytes& number, const Bytes& token) {
  if (is_proven_ || is_connecting_ == has_shown_) return false;
  if (is_connecting_) accepting_ = number;
  const std::optional<std::string> expected = TokenFrom(!is_connecting_);
  is_proven_ = expected && expected->size() <= token.size() &&
               sodium_memcmp(expected->data(), token.data(), expected->size()) == 0;
  return is_proven_;
}

std::optional<std::string> LinkProof::TokenFrom(bool is_connecting) const {
  if (!sign_) return "";
  std::string text = is_connecting ? "link from " : "link to ";
  for (const Bytes& number : {connecting_, accepting_}) text.append(number.data(), number.size());
  return sign_(*peer_, text);
}

}  // namespace pando
