#include "net/zmq/keys.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>

#include <fmt/core.h>

#include "common/atomic_file.h"
#include "common/unique_fd.h"

namespace pando {
namespace {

constexpr size_t kKeyLetters = 40;
constexpr size_t kKeyBytes = 32;
constexpr size_t kTokenBytes = 16;
constexpr auto kRoles = std::to_array({KeyRole::kReader, KeyRole::kMember, KeyRole::kAdmin});

using KeyBytes = std::array<uint8_t, kKeyBytes>;
using SignatureBytes = std::array<uint8_t, crypto_sign_BYTES>;

// Z85 writes 4 bytes as 5 letters.
template <class Bytes = KeyBytes>
std::optional<Bytes> Decode(const std::string& letters) {
  Bytes bytes;
  // The decoder stops at a zero byte.
  if (letters.size() != bytes.size() / 4 * 5 || letters.find('\0') != std::string::npos)
    return std::nullopt;
  if (zmq_z85_decode(bytes.data(), letters.c_str()) == nullptr) return std::nullopt;
  return bytes;
}

std::string Encode(const auto& bytes) {
  std::string letters(bytes.size() / 4 * 5 + 1, '\0');
  PANDO_CHECK(zmq_z85_encode(letters.data(), bytes.data(), bytes.size()) != nullptr);
  letters.pop_back();
  return letters;
}

// Hashes under `key`, which may be empty.
std::array<uint8_t, kKeyBytes> HashText(const std::string& text, std::span<const uint8_t> key) {
  std::array<uint8_t, kKeyBytes> hash;
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  PANDO_CHECK(crypto_generichash(hash.data(), hash.size(), bytes, text.size(), key.data(),
                                 key.size()) == 0);
  return hash;
}

std::string PathFor(const std::string& folder, KeyRole role, const char* ending) {
  return fmt::format("{}/{}.{}", folder, EnumName(role), ending);
}

Status WriteNew(const std::string& path, const std::string& letters) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.is_open()) return FileError("create", path, errno);
  const std::string text = letters + "\n";
  const ssize_t written = write(fd.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()))
    return FileError("write", path, written < 0 ? errno : ENOSPC);
  return fsync(fd.get()) == 0 ? Status() : FileError("write", path, errno);
}

// Returns an error if the file belongs to another user, which could change it.
Status CheckOwner(const std::string& path, const struct stat& info) {
  if (info.st_uid == geteuid() || info.st_uid == 0) return Status();
  return InvalidArgument(fmt::format(
      "{} belongs to user {}, which could change it: chown it to user {}, which reads it here",
      path, info.st_uid, geteuid()));
}

// In a sticky folder only a file's owner may replace it.
Status CheckFolder(const std::string& folder) {
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0) return FileError("read", folder, errno);
  PANDO_RETURN_IF_ERROR(CheckOwner(folder, info));
  if ((info.st_mode & S_IWOTH) == 0 || (info.st_mode & S_ISVTX) != 0) return Status();
  return InvalidArgument(fmt::format(
      "all users may write to {} (mode {:o}), and so replace what is trusted there: chmod o-w it",
      folder, info.st_mode & 07777));
}

Status CheckSecret(const std::string& path, const struct stat& info) {
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) == 0) return Status();
  return InvalidArgument(fmt::format(
      "{} is a secret key that others may read (mode {:o}): chmod 600 it, and make a new one if "
      "others have had access",
      path, info.st_mode & 0777));
}

// Returns the letters in the file, or "" if there is no file.
Result<std::string> ReadKey(const std::string& path, bool is_secret) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open() && errno == ENOENT) return std::string();
  if (!fd.is_open()) return FileError("read", path, errno);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return FileError("read", path, errno);
  PANDO_RETURN_IF_ERROR(CheckOwner(path, info));
  if (is_secret) PANDO_RETURN_IF_ERROR(CheckSecret(path, info));
  std::array<char, kKeyLetters + 2> bytes;  // a longer file is not a key
  const ssize_t count = read(fd.get(), bytes.data(), bytes.size());
  if (count < 0) return FileError("read", path, errno);
  std::string letters(bytes.data(), static_cast<size_t>(count));
  sodium_memzero(bytes.data(), bytes.size());
  if (letters.ends_with('\n')) letters.pop_back();
  if (Decode(letters)) return letters;
  return InvalidArgument(
      fmt::format("{} holds no key: {} letters of Z85 were expected; pando keys new makes them",
                  path, kKeyLetters));
}

Result<KeyPair> ReadPair(const std::string& folder, KeyRole role) {
  KeyPair pair;
  PANDO_ASSIGN_OR_RETURN(pair.secret_key, ReadKey(PathFor(folder, role, "key"), true));
  PANDO_ASSIGN_OR_RETURN(pair.public_key, ReadKey(PathFor(folder, role, "pub"), false));
  if (pair.secret_key.empty()) return pair;
  std::array<char, kKeyLetters + 1> derived;
  PANDO_CHECK(zmq_curve_public(derived.data(), pair.secret_key.c_str()) == 0);
  if (pair.public_key.empty()) pair.public_key = derived.data();
  if (pair.public_key == derived.data()) return pair;
  return InvalidArgument(
      fmt::format("{0}/{1}.pub is not the public part of {0}/{1}.key; copy both from the folder "
                  "that pando keys new made",
                  folder, EnumName(role)));
}

Status Missing(const std::string& folder, const std::string& what) {
  return InvalidArgument(
      fmt::format("{} {}; copy it from the folder that pando keys new made", folder, what));
}

}  // namespace

KeyPair DrawKeyPair() {
  std::array<char, kKeyLetters + 1> public_key, secret_key;
  PANDO_CHECK(zmq_curve_keypair(public_key.data(), secret_key.data()) == 0);
  return {public_key.data(), secret_key.data()};
}

Status CheckSecretFile(const std::string& path, int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return FileError("read", path, errno);
  const std::string folder = std::filesystem::path(path).parent_path();
  PANDO_RETURN_IF_ERROR(CheckFolder(folder.empty() ? "." : folder));
  PANDO_RETURN_IF_ERROR(CheckOwner(path, info));
  return CheckSecret(path, info);
}

bool IsPublicKey(const std::string& text) { return Decode(text).has_value(); }

KeyRole Keys::role() const {
  const auto strongest = std::ranges::find_if(
      pairs.rbegin(), pairs.rend(), [](const KeyPair& pair) { return !pair.secret_key.empty(); });
  PANDO_CHECK(strongest != pairs.rend());
  return kRoles[static_cast<size_t>(pairs.rend() - strongest) - 1];
}

// Writes to a folder beside the target first, so that there are all keys or none.
Status MakeKeys(const std::string& folder) {
  std::string path = folder;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) return FileError("create", parent.string(), error.value());
  std::string made = path + ".XXXXXX";
  if (mkdtemp(made.data()) == nullptr) return FileError("create", path, errno);  // mode 0700
  Status status;
  for (const KeyRole role : kRoles) {
    const KeyPair pair = DrawKeyPair();
    if (status.ok()) status = WriteNew(PathFor(made, role, "key"), pair.secret_key);
    if (status.ok()) status = WriteNew(PathFor(made, role, "pub"), pair.public_key);
  }
  if (status.ok() && rename(made.c_str(), path.c_str()) != 0) {
    const bool is_taken = errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR;
    status = is_taken ? AlreadyExists(path + " is there already; choose a new folder for the keys")
                      : FileError("create", path, errno);
  }
  if (!status.ok()) std::filesystem::remove_all(made, error);
  return status;
}

Result<Keys> ReadKeys(const std::string& folder, KeyRole purpose) {
  Keys keys{.folder = folder, .pairs = {}};
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return NotFound(
        fmt::format("{} is no folder of keys: pando keys new {} makes one", folder, folder));
  }
  PANDO_RETURN_IF_ERROR(CheckFolder(folder));
  // The whole process writes no core file, as libzmq copies secrets too. Debuggers can read memory.
  rlimit core{};
  getrlimit(RLIMIT_CORE, &core);
  core.rlim_cur = 0;
  setrlimit(RLIMIT_CORE, &core);
  bool has_secret = false;
  for (const KeyRole role : kRoles) {
    PANDO_ASSIGN_OR_RETURN(keys.Of(role), ReadPair(folder, role));
    const bool is_of_use = role == purpose || purpose == KeyRole::kReader;
    has_secret |= is_of_use && !keys.Of(role).secret_key.empty();
  }
  if (!has_secret) {
    return Missing(folder, fmt::format("has no {}.key, which this takes", EnumName(purpose)));
  }
  if (keys.Of(KeyRole::kAdmin).public_key.empty())
    return Missing(folder, "has no admin.pub, by which the scheduler is known");
  return keys;
}

Result<Keys> ReadSchedulerKeys(const std::string& folder) {
  PANDO_ASSIGN_OR_RETURN(Keys keys, ReadKeys(folder, KeyRole::kAdmin));
  if (keys.Of(KeyRole::kMember).public_key.empty())
    return Missing(folder, "has no member.pub, by which members are known");
  for (const KeyRole role : {KeyRole::kReader, KeyRole::kMember}) {
    std::string& unused = keys.Of(role).secret_key;
    sodium_memzero(unused.data(), unused.size());
    unused.clear();
  }
  return keys;
}

std::vector<std::string> KeysVariables(const Keys& keys) {
  if (keys.are_none()) return {};
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(keys.folder, error);
  return {fmt::format("{}={}", kKeysVariable, error ? keys.folder : whole.string())};
}

std::string KeysFolder(const std::string& folder) {
  if (!folder.empty()) return folder;
  const char* variable = std::getenv(kKeysVariable);
  return variable == nullptr ? "" : variable;
}

Result<Keys> FindKeys(const std::string& folder, KeyRole purpose) {
  const std::string found = KeysFolder(folder);
  return found.empty() ? Result<Keys>(Keys()) : ReadKeys(found, purpose);
}

std::string LineToken(const KeyPair& own, const std::string& peer_public_key,
                      const std::string& text) {
  return TokenFor(SharedSecret(own, peer_public_key), text);
}

std::string SharedSecret(const KeyPair& own, const std::string& peer_public_key) {
  const std::optional<KeyBytes> secret = Decode(own.secret_key);
  const std::optional<KeyBytes> peer = Decode(peer_public_key);
  KeyBytes shared;
  if (!secret || !peer) return "";
  // This is crypto_box_beforenm without the checks for libzmq (checked_curve.h).
  if (crypto_box_curve25519xsalsa20poly1305_beforenm(shared.data(), peer->data(), secret->data()) !=
      0)
    return "";
  return {reinterpret_cast<const char*>(shared.data()), shared.size()};
}

std::string TokenFor(const std::string& shared_secret, const std::string& text) {
  if (shared_secret.size() != crypto_auth_KEYBYTES) return "";
  const auto bytes = [](const std::string& s) {
    return reinterpret_cast<const uint8_t*>(s.data());
  };
  std::array<uint8_t, crypto_auth_BYTES> mac;
  PANDO_CHECK(crypto_auth(mac.data(), bytes(text), text.size(), bytes(shared_secret)) == 0);
  return {reinterpret_cast<const char*>(mac.data()), kTokenBytes};
}

KeyPair ViewKeyPair(const Keys& keys) {
  const std::optional<KeyBytes> admin = Decode(keys.Of(KeyRole::kAdmin).secret_key);
  if (!admin) return {};
  const KeyBytes seed = HashText("pando views", *admin);
  KeyBytes public_key;
  std::array<uint8_t, crypto_sign_SECRETKEYBYTES> secret;
  PANDO_CHECK(crypto_sign_seed_keypair(public_key.data(), secret.data(), seed.data()) == 0);
  return {Encode(public_key), Encode(seed)};
}

std::string SignText(const KeyPair& pair, const std::string& text) {
  const std::optional<KeyBytes> seed = Decode(pair.secret_key);
  PANDO_CHECK(seed.has_value());
  KeyBytes public_key;
  std::array<uint8_t, crypto_sign_SECRETKEYBYTES> secret;
  PANDO_CHECK(crypto_sign_seed_keypair(public_key.data(), secret.data(), seed->data()) == 0);
  const KeyBytes hash = HashText(text, {});
  SignatureBytes signature;
  PANDO_CHECK(crypto_sign_detached(signature.data(), nullptr, hash.data(), hash.size(),
                                   secret.data()) == 0);
  return Encode(signature);
}

bool IsSignature(const std::string& public_key, const std::string& text,
                 const std::string& signature) {
  const std::optional<KeyBytes> key = Decode(public_key);
  const std::optional<SignatureBytes> bytes = Decode<SignatureBytes>(signature);
  if (!key || !bytes) return false;
  const KeyBytes hash = HashText(text, {});
  return crypto_sign_verify_detached(bytes->data(), hash.data(), hash.size(), key->data()) == 0;
}

bool AreEqualSecrets(const std::string& a, const std::string& b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

// The password is a token under the secret that the members' pair shares with itself.
std::string MemberPassword(const Keys& keys, const std::string& lane_public_key) {
  const KeyPair& member = keys.Of(KeyRole::kMember);
  const std::string token = LineToken(member, member.public_key, "pando member " + lane_public_key);
  std::string hex;
  for (const char c : token) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex;
}

}  // namespace pando
