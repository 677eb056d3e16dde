#include "net/socket_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>

#include "common/endpoint.h"
#include "common/text.h"

namespace pando {
namespace {

constexpr int kBacklog = 16;

const sockaddr_in& AsIpv4(const sockaddr* address) {
  return *reinterpret_cast<const sockaddr_in*>(address);
}
const sockaddr_in6& AsIpv6(const sockaddr* address) {
  return *reinterpret_cast<const sockaddr_in6*>(address);
}

bool IsFamily(const sockaddr* address, int family) {
  return address != nullptr && address->sa_family == family;
}

bool SetReuse(const UniqueFd& fd, bool is_on) {
  const int value = is_on ? 1 : 0;
  return setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &value, sizeof value) == 0;
}

// Opens a socket with this address, which connections that are ending do not keep. Returns whether
// that succeeded; if not, errno says why.
bool BindTcp(SocketAddress address, UniqueFd* fd) {
  *fd = UniqueFd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return fd->is_open() && SetReuse(*fd, true) &&
         bind(fd->get(), address.generic(), address.size) == 0;
}

// A link-local address needs the name of an interface, which an endpoint does not have.
bool IsLinkLocal(const sockaddr* address) {
  return IsFamily(address, AF_INET6) &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

}  // namespace

Result<std::vector<std::string>> ResolveAll(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return NotFound(fmt::format("the host '{}' has no address ({}): check its name", host,
                                gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
      if (IsFamily(at->ai_addr, family) && !IsLinkLocal(at->ai_addr))
        addresses.push_back(AddressText(at->ai_addr));
    }
  }
  if (!addresses.empty()) return addresses;
  return NotFound(fmt::format("the host '{}' has no address that other machines reach", host));
}

std::vector<InterfaceEntry> ReadInterfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  std::vector<InterfaceEntry> entries;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
      if (!IsFamily(at->ifa_addr, family) || IsLinkLocal(at->ifa_addr)) continue;
      entries.push_back({.name = at->ifa_name,
                         .address = AddressText(at->ifa_addr),
                         .is_up = (at->ifa_flags & IFF_UP) != 0,
                         .is_loopback = (at->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  return entries;
}

Result<std::string> InterfaceAddress(const std::string& name) {
  std::set<std::string> names;
  for (const InterfaceEntry& entry : ReadInterfaces()) {
    names.insert(entry.name);
    if (entry.name == name) return entry.address;
  }
  return InvalidArgument(fmt::format("no network interface '{}' has an address here: there are {}",
                                     name, fmt::join(names, ", ")));
}

SocketAddress MakeAddress(const std::string& host, uint16_t port) {
  SocketAddress address;
  if (IsIpv6(host)) {
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    PANDO_CHECK(inet_pton(AF_INET6, host.c_str(), &in6->sin6_addr) == 1);
    address.size = sizeof(sockaddr_in6);
  } else {
    auto* in = reinterpret_cast<sockaddr_in*>(&address.storage);
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    PANDO_CHECK(inet_pton(AF_INET, host.c_str(), &in->sin_addr) == 1);
    address.size = sizeof(sockaddr_in);
  }
  return address;
}

std::string AddressText(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text;
  const bool is_ipv6 = address->sa_family == AF_INET6;
  const void* bytes = is_ipv6 ? static_cast<const void*>(&AsIpv6(address).sin6_addr)
                              : static_cast<const void*>(&AsIpv4(address).sin_addr);
  PANDO_CHECK(inet_ntop(address->sa_family, bytes, text.data(), text.size()) != nullptr);
  return text.data();
}

uint16_t PortIn(const sockaddr* address) {
  return ntohs(address->sa_family == AF_INET6 ? AsIpv6(address).sin6_port
                                              : AsIpv4(address).sin_port);
}

std::string PeerAddress(int fd) {
  SocketAddress address;
  const bool is_known = getpeername(fd, address.generic(), &address.size) == 0;
  const auto family = address.storage.ss_family;
  return is_known && (family == AF_INET || family == AF_INET6) ? AddressText(address.generic())
                                                               : "";
}

bool EndSelfConnections() {
  bool has_ended = false;
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error); !error && at != end;
       at.increment(error)) {
    const int fd = ParseNumber<int>(at->path().filename().string()).value_or(-1);
    SocketAddress own, peer;
    const bool is_connected = getsockname(fd, own.generic(), &own.size) == 0 &&
                              getpeername(fd, peer.generic(), &peer.size) == 0;
    const auto family = own.storage.ss_family;
    if (!is_connected || (family != AF_INET && family != AF_INET6)) continue;
    if (own.size != peer.size || std::memcmp(&own.storage, &peer.storage, own.size) != 0) continue;
    // Unlike close, this leaves no TIME_WAIT, which would keep the port for a minute.
    const sockaddr no_peer{.sa_family = AF_UNSPEC, .sa_data = {}};
    has_ended |= connect(fd, &no_peer, sizeof no_peer) == 0;
  }
  return has_ended;
}

int DialTcp(const std::string& host, uint16_t port, std::chrono::milliseconds patience,
            UniqueFd* connection) {
  SocketAddress address = MakeAddress(host, port);
  *connection =
      UniqueFd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int fd = connection->get();
  if (!connection->is_open()) return errno;
  if (connect(fd, address.generic(), address.size) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd polled{fd, POLLOUT, 0};
  if (poll(&polled, 1, static_cast<int>(patience.count())) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

Result<UniqueFd> ListenTcp(const std::string& host, uint16_t port, uint16_t* bound) {
  SocketAddress address = MakeAddress(host, port);
  UniqueFd fd;
  const bool is_bound = BindTcp(address, &fd) && listen(fd.get(), kBacklog) == 0 &&
                        getsockname(fd.get(), address.generic(), &address.size) == 0;
  if (!is_bound) {
    return InvalidArgument(
        fmt::format("cannot listen at {}:{}: {}", Bracketed(host), port, std::strerror(errno)));
  }
  *bound = PortIn(address.generic());
  return fd;
}

Result<UniqueFd> HoldTcp(const std::string& host, uint16_t port) {
  UniqueFd fd;
  if (!BindTcp(MakeAddress(host, port), &fd) || !SetReuse(fd, false)) {
    return Unavailable(
        fmt::format("cannot bind {}:{}: {}", Bracketed(host), port, std::strerror(errno)));
  }
  return fd;
}

}  // namespace pando
