// Keys: what each process may do in a run (P44; docs/security.md says what they protect against). A
// folder has a pair for each role: ROLE.key is the secret, which only its owner may read, ROLE.pub
// the public part. Pairs are CURVE's, X25519, in Z85: 40 letters each. Threads: any.
//
// The role keys prove what a process may do, not which one it is, as members share theirs. So each
// process life draws a pair: its server's sockets show it, and a LineToken proves it to those that
// it dials.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/text.h"

namespace pando {

inline constexpr const char* kKeysVariable = "PANDO_KEYS";  // of the environment: a folder

// Each may do what those before it may: see the status; train; stop, drain and snapshot.
enum class KeyRole : uint8_t { kReader, kMember, kAdmin };
template <>
inline constexpr auto kEnumNames<KeyRole> = std::to_array({"reader", "member", "admin"});
inline constexpr size_t kKeyRoles = 3;

struct KeyPair {
  std::string public_key;
  std::string secret_key;  // empty: it is not here
};
KeyPair DrawKeyPair();
// 40 letters that may be a public key.
bool IsPublicKey(const std::string& text);

// What a keys folder holds.
struct Keys {
  std::string folder;                    // empty: no keys, and every peer is believed
  std::array<KeyPair, kKeyRoles> pairs;  // by role; those that are not there are empty

  bool are_none() const { return folder.empty(); }
  const KeyPair& Of(KeyRole role) const { return pairs[static_cast<size_t>(role)]; }
  KeyPair& Of(KeyRole role) { return pairs[static_cast<size_t>(role)]; }
  // The strongest role whose secret is here.  REQUIRES: there is one.
  KeyRole role() const;
};

// Makes the folder, for its owner alone, with a new pair of each role.  kAlreadyExists if it holds
// anything.
Status MakeKeys(const std::string& folder);

// Reads what the folder has. An error if a file is not a key, if others may read a secret, or if
// the secret of `purpose` is missing (kReader: any secret). From then on a crash of this process
// leaves no core file, which would hold the secrets.
Result<Keys> ReadKeys(const std::string& folder, KeyRole purpose);
// The same for a scheduler: it shows the admin's pair and must know the members' public key. No
// other secret stays in its memory.
Result<Keys> ReadSchedulerKeys(const std::string& folder);
// Whether other users could read the open file, or have written it or its folder: then it is an
// error, as it holds a secret.
Status CheckSecretFile(const std::string& path, int fd);
// "PANDO_KEYS=FOLDER", for the environment of a child in any folder; nothing without keys.
std::vector<std::string> KeysVariables(const Keys& keys);
// `folder`, or if that is empty the one in PANDO_KEYS; none: no keys.
std::string KeysFolder(const std::string& folder);
// The keys there; no keys without a folder.
Result<Keys> FindKeys(const std::string& folder, KeyRole purpose);

// Proves to `peer` that its holder has the secret of `own`, for a connection that `text` describes:
// a MAC of the text, under the secret that the two pairs share, as 16 bytes. Both ends compute the
// same, each from its own secret and the other's public key. Empty if a key is none.
// Source: crypto_box's shared key (X25519, HSalsa20) and HMAC-SHA-512-256 of libsodium.
std::string LineToken(const KeyPair& own, const std::string& peer_public_key,
                      const std::string& text);
// Its two parts. The first takes 50 us, and is the same for each text.
std::string SharedSecret(const KeyPair& own, const std::string& peer_public_key);
std::string TokenFor(const std::string& shared_secret, const std::string& text);

// The pair by which the scheduler signs views: each of its lives makes the same from the admin's
// secret. Ed25519, in Z85; the secret is the seed. Empty without that secret.
KeyPair ViewKeyPair(const Keys& keys);
// Signs the text's BLAKE2b hash: 80 letters of Z85.  REQUIRES: the pair is a ViewKeyPair.
std::string SignText(const KeyPair& pair, const std::string& text);
bool IsSignature(const std::string& public_key, const std::string& text,
                 const std::string& signature);

// Whether they are equal, in a time that does not depend on where they differ.
bool AreEqualSecrets(const std::string& a, const std::string& b);

// What members show to each other where data connections are in clear text (run.encrypt =
// "control"): only those with the members' key can make it. For the lane with this public key.
std::string MemberPassword(const Keys& keys, const std::string& lane_public_key);

}  // namespace pando
