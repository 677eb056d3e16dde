// CURVE's handshake (RFC 26) by hand, for tests of peers that break it halfway.
#pragma once

#include <doctest/doctest.h>
#include <sodium.h>
#include <zmq.h>

#include <array>
#include <string>

#include "net/zmq/keys.h"
#include "tests/net/raw_peers.h"

namespace pando {

using CurveKey = std::array<uint8_t, 32>;

inline CurveKey RawKey(const std::string& letters) {
  CurveKey key;
  REQUIRE(zmq_z85_decode(key.data(), letters.c_str()) != nullptr);
  return key;
}

// crypto_box without the zeros before it. `nonce`: 24 bytes.
inline std::string Box(const std::string& text, const std::string& nonce, const CurveKey& to,
                       const CurveKey& from) {
  REQUIRE(nonce.size() == crypto_box_NONCEBYTES);
  std::string box(text.size() + crypto_box_MACBYTES, 0);
  const auto bytes = [](const std::string& s) {
    return reinterpret_cast<const uint8_t*>(s.data());
  };
  REQUIRE(crypto_box_easy(reinterpret_cast<uint8_t*>(box.data()), bytes(text), text.size(),
                          bytes(nonce), to.data(), from.data()) == 0);
  return box;
}

inline RawFrame AsCommand(const std::string& content) {
  REQUIRE(content.size() < 256);
  RawFrame frame{4, static_cast<char>(content.size())};
  frame.insert(frame.end(), content.begin(), content.end());
  return frame;
}

// The HELLO of a stranger that knows the server's public key.
inline RawFrame CurveHello(const CurveKey& server) {
  CurveKey short_public, short_secret;
  crypto_box_keypair(short_public.data(), short_secret.data());
  const std::string number = std::string(7, 0) + '\x01';
  return AsCommand(std::string("\5HELLO\1\0", 8) + std::string(72, 0) +
                   std::string(short_public.begin(), short_public.end()) + number +
                   Box(std::string(64, 0), "CurveZMQHELLO---" + number, server, short_secret));
}

// The WELCOME of a server with this pair, which shows `short_public`, to a HELLO's short-term key.
inline RawFrame CurveWelcome(const CurveKey& secret, const CurveKey& client,
                             const CurveKey& short_public) {
  const std::string nonce(16, 'n');
  const std::string content(short_public.begin(), short_public.end());
  return AsCommand("\7WELCOME" + nonce +
                   Box(content + std::string(96, 'c'), "WELCOME-" + nonce, client, secret));
}

// The key that both ends of a connection have.
inline CurveKey ConnectionKey(const CurveKey& peer, const CurveKey& secret) {
  CurveKey key;
  REQUIRE(crypto_box_curve25519xsalsa20poly1305_beforenm(key.data(), peer.data(), secret.data()) ==
          0);
  return key;
}

// The READY of a ROUTER under this connection's key.
inline RawFrame CurveReady(const CurveKey& key) {
  const std::string number = std::string(7, 0) + '\x01';
  const std::string nonce = "CurveZMQREADY---" + number;
  const std::string text = std::string("\x0bSocket-Type\0\0\0\6ROUTER", 22);
  std::string box(text.size() + crypto_box_MACBYTES, 0);
  REQUIRE(crypto_box_easy_afternm(reinterpret_cast<uint8_t*>(box.data()),
                                  reinterpret_cast<const uint8_t*>(text.data()), text.size(),
                                  reinterpret_cast<const uint8_t*>(nonce.data()), key.data()) == 0);
  return AsCommand("\5READY" + number + box);
}

}  // namespace pando
