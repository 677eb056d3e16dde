#include "node/leave_notices.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "common/hash.h"
#include "common/system.h"

namespace pando {
namespace {

constexpr const char* kVariable = "PANDO_NOTICES";
// A notice has the process's key as HexText, a blank, the reason as a digit, and the text.
constexpr size_t kKeyDigits = 16;
constexpr size_t kHeadBytes = kKeyDigits + 2;
constexpr size_t kTextBytesMax = 4096;
constexpr size_t kNoticesMax = 100'000;  // the bound, since other users may also send some

sockaddr_un AbstractAddress(std::string_view name, socklen_t* size) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  name = name.substr(0, sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  *size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

}  // namespace

LeaveNotices::LeaveNotices()
    : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  const std::string name = fmt::format("pando-notices-{}", HexText(NewIncarnation().value()));
  socklen_t size = 0;
  const sockaddr_un address = AbstractAddress(name, &size);
  const bool is_bound = socket_.is_open() &&
                        bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0;
  if (!is_bound) socket_ = UniqueFd();
  variable_ = fmt::format("{}={}", kVariable, socket_.is_open() ? name : "");
}

void LeaveNotices::Take() {
  std::array<char, kHeadBytes + kTextBytesMax> bytes{};
  while (socket_.is_open()) {
    const ssize_t size = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size < 0) return;
    const std::string_view notice(bytes.data(), static_cast<size_t>(size));
    if (notice.size() < kHeadBytes || notices_.size() >= kNoticesMax) continue;
    const std::optional<uint64_t> key = ParseHex(notice.substr(0, kKeyDigits));
    const int reason = notice[kHeadBytes - 1] - '0';
    if (!key || reason < 0 || reason > static_cast<int>(StopReason::kDrained)) continue;
    notices_[*key] = {static_cast<StopReason>(reason), std::string(notice.substr(kHeadBytes))};
  }
}

std::optional<Stop> LeaveNotices::Find(uint64_t key) const {
  const auto it = notices_.find(key);
  return it == notices_.end() ? std::nullopt : std::optional(it->second);
}

// The supervisor always reads notices, so a socket that stays full has no supervisor behind it.
void SendLeaveNotice(const Stop& stop) {
  const char* name = std::getenv(kVariable);
  if (name == nullptr || *name == '\0') return;
  const UniqueFd line(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!line.is_open()) return;
  constexpr timeval kPatience{.tv_sec = 1, .tv_usec = 0};
  setsockopt(line.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
  const std::string notice =
      fmt::format("{} {}{}", HexText(ProcessKey()), static_cast<int>(stop.reason),
                  stop.text.substr(0, kTextBytesMax));
  socklen_t size = 0;
  const sockaddr_un address = AbstractAddress(name, &size);
  sendto(line.get(), notice.data(), notice.size(), MSG_NOSIGNAL,
         reinterpret_cast<const sockaddr*>(&address), size);
}

}  // namespace pando
