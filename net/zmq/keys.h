// Keys decide what each process may do in a run (P44; docs/security.md says what they protect
// from). A folder has a pair for each role: ROLE.key is the secret, which only its owner may read,
// ROLE.pub the public part. Keys are those of CURVE (X25519), in 40 letters of Z85. Threads: any.
//
// The role keys prove what a process may do, but not which process it is, since members share
// theirs. So each process life also draws a pair: its server sockets show it, and a LineToken
// proves it to the peers that it dials.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/text.h"

namespace pando {

inline constexpr const char* kKeysVariable = "PANDO_KEYS";  // an environment variable: a folder

// A reader may read the status, a member may train too, and an admin stop, drain and snapshot too.
enum class KeyRole : uint8_t { kReader, kMember, kAdmin };
template <>
inline constexpr auto kEnumNames<KeyRole> = std::to_array({"reader", "member", "admin"});
inline constexpr size_t kKeyRoles = 3;

struct KeyPair {
  std::string public_key;
  std::string secret_key;  // empty if it is not known
};
KeyPair DrawKeyPair();
// Returns whether the text has the 40 letters of a possible public key.
bool IsPublicKey(const std::string& text);

// The content of a keys folder.
struct Keys {
  std::string folder;                    // empty: no keys, so every peer is believed
  std::array<KeyPair, kKeyRoles> pairs;  // by role; missing ones are empty

  bool are_none() const { return folder.empty(); }
  const KeyPair& Of(KeyRole role) const { return pairs[static_cast<size_t>(role)]; }
  KeyPair& Of(KeyRole role) { return pairs[static_cast<size_t>(role)]; }
  // Returns the strongest role whose secret is known. REQUIRES: there is one.
  KeyRole role() const;
};

// Creates the folder, for its owner alone, with a new pair for each role. kAlreadyExists: the
// folder holds something.
Status MakeKeys(const std::string& folder);

// Reads the folder's keys. It is an error if a file is not a key, if others may read a secret, or
// if the secret of `purpose` is missing (kReader: any secret). From then on a crash of this process
// leaves no core file, which would hold the secrets.
Result<Keys> ReadKeys(const std::string& folder, KeyRole purpose);
// Does the same for a scheduler, which shows the admin's pair and must know the members' public
// key. No other secret stays in its memory.
Result<Keys> ReadSchedulerKeys(const std::string& folder);
// Returns an error if other users could read the open file, or could have written it or its folder.
// Such a file must not hold a secret.
Status CheckSecretFile(const std::string& path, int fd);
// Returns "PANDO_KEYS=FOLDER" with an absolute path, for a child's environment; none without keys.
std::vector<std::string> KeysVariables(const Keys& keys);
// Returns `folder`, or the folder in PANDO_KEYS if it is empty; "" means no keys.
std::string KeysFolder(const std::string& folder);
// Reads the keys in KeysFolder(folder). Returns no keys if that is "".
Result<Keys> FindKeys(const std::string& folder, KeyRole purpose);

// Returns 16 bytes that prove to `peer` that the sender has the secret of `own`, for a connection
// that `text` describes: a MAC of the text under the secret that the two pairs share. Both ends
// compute the same bytes from their own secret and the other's public key. Returns "" if a key is
// not valid. Source: crypto_box's shared key (X25519, HSalsa20) and HMAC-SHA-512-256 of libsodium.
std::string LineToken(const KeyPair& own, const std::string& peer_public_key,
                      const std::string& text);
// The two steps of LineToken. The first takes 50 us, and does not depend on the text.
std::string SharedSecret(const KeyPair& own, const std::string& peer_public_key);
std::string TokenFor(const std::string& shared_secret, const std::string& text);

// Returns the pair with which the scheduler signs views: Ed25519, in Z85, with the seed as secret.
// Each of its lives derives the pair from the admin's secret, and without that secret has none.
KeyPair ViewKeyPair(const Keys& keys);
// Signs the text's BLAKE2b hash, in 80 letters of Z85. REQUIRES: the pair is a ViewKeyPair.
std::string SignText(const KeyPair& pair, const std::string& text);
bool IsSignature(const std::string& public_key, const std::string& text,
                 const std::string& signature);

// Compares two secrets in a time that does not depend on where they differ.
bool AreEqualSecrets(const std::string& a, const std::string& b);

// Returns the password that members show to each other if data connections are in clear text
// (run.encrypt = "control"), for the lane with this public key. Only members' keys make it.
std::string MemberPassword(const Keys& keys, const std::string& lane_public_key);

}  // namespace pando
