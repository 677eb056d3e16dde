#include "net/zmq/checked_curve.h"

#include <sodium.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <set>
#include <string_view>

namespace pando {
namespace {

std::atomic<bool> has_refused = false;  // static, because C functions get no object

// The addresses of the keys of this thread's connections, from WELCOME to READY. A connection stays
// on the I/O thread where it began.
thread_local std::set<const uint8_t*> set_keys;
constexpr size_t kSetKeysMax = 1 << 16;  // a full set is cleared; servers' keys stay until then
// The most bytes between a connection's key and the short-term key behind it.
constexpr size_t kConnectionBytes = 512;

int Refuse() {
  has_refused = true;
  return -1;
}

bool BeginsWith(const uint8_t* nonce, std::string_view prefix) {
  return std::memcmp(nonce, prefix.data(), prefix.size()) == 0;
}

// Any process could compute a secret shared with such a key, so libsodium returns none.
bool IsOfLowOrder(const uint8_t* public_key) {
  uint8_t shared[crypto_scalarmult_BYTES];
  constexpr uint8_t kAnySecret[crypto_scalarmult_SCALARBYTES] = {1};
  return crypto_scalarmult(shared, kAnySecret, public_key) != 0;
}

}  // namespace

bool TakeForgedHandshake() {
  return has_refused.load(std::memory_order_relaxed) && has_refused.exchange(false);
}

}  // namespace pando

extern "C" {

// Begins a connection. Forgets the keys that an earlier connection left in the same memory.
int crypto_box_keypair(unsigned char* public_key, unsigned char* secret_key) {
  using namespace pando;
  set_keys.erase(set_keys.lower_bound(public_key - kConnectionBytes),
                 set_keys.lower_bound(public_key));
  return crypto_box_curve25519xsalsa20poly1305_keypair(public_key, secret_key);
}

// Opens a WELCOME, among other commands: zeros, then the server's short-term key.
int crypto_box_open(unsigned char* text, const unsigned char* box, unsigned long long box_bytes,
                    const unsigned char* nonce, const unsigned char* public_key,
                    const unsigned char* secret_key) {
  constexpr size_t kKeyEnd = crypto_box_ZEROBYTES + crypto_box_PUBLICKEYBYTES;
  if (crypto_box_curve25519xsalsa20poly1305_open(text, box, box_bytes, nonce, public_key,
                                                 secret_key) != 0)
    return -1;
  if (!pando::BeginsWith(nonce, "WELCOME-") || box_bytes < kKeyEnd) return 0;
  return pando::IsOfLowOrder(text + crypto_box_ZEROBYTES) ? pando::Refuse() : 0;
}

// Makes a connection's key, after a WELCOME was opened.
int crypto_box_beforenm(unsigned char* key, const unsigned char* public_key,
                        const unsigned char* secret_key) {
  using namespace pando;
  if (set_keys.size() >= kSetKeysMax) set_keys.clear();
  set_keys.insert(key);
  return crypto_box_curve25519xsalsa20poly1305_beforenm(key, public_key, secret_key);
}

// Opens a READY, among other commands, with a connection's key.
int crypto_box_open_afternm(unsigned char* text, const unsigned char* box,
                            unsigned long long box_bytes, const unsigned char* nonce,
                            const unsigned char* key) {
  if (pando::BeginsWith(nonce, "CurveZMQREADY---") && pando::set_keys.erase(key) == 0)
    return pando::Refuse();
  return crypto_box_curve25519xsalsa20poly1305_open_afternm(text, box, box_bytes, nonce, key);
}

}  // extern "C"
