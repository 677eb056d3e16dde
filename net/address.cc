#include "net/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "common/descriptor.h"
#include "common/text.h"

namespace pando {
namespace {

constexpr std::string_view kTcpPrefix = "tcp://";
constexpr std::string_view kIpcPrefix = "ipc://";
constexpr const char* kLoopbackAddress = "127.0.0.1";
constexpr size_t kIpcPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;
constexpr uint16_t kDiscardPort = 9;  // any port: connecting a UDP socket sends nothing

Status BadEndpoint(const std::string& text, const std::string& why) {
  return InvalidArgument(
      fmt::format("'{}' is not an endpoint: {}; expected tcp://HOST:PORT or "
                  "ipc://PATH",
                  text, why));
}

bool IsHostCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}

std::string AddressText(const sockaddr_in& address) {
  std::array<char, INET_ADDRSTRLEN> text;
  PANDO_CHECK(inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size()) != nullptr);
  return text.data();
}

Result<Endpoint> ParseTcp(const std::string& text) {
  const std::string rest = text.substr(kTcpPrefix.size());
  if (rest.starts_with('[')) return BadEndpoint(text, "IPv6 is not supported");
  const size_t colon = rest.rfind(':');
  if (colon == std::string::npos) return BadEndpoint(text, "the port is missing");
  Endpoint endpoint{.kind = Endpoint::Kind::kTcp, .host = rest.substr(0, colon)};
  if (endpoint.host.empty()) return BadEndpoint(text, "the host is missing");
  if (endpoint.host != "*" && !std::ranges::all_of(endpoint.host, IsHostCharacter))
    return BadEndpoint(text, "the host is not a name or IPv4 address");
  const std::string_view port_text = std::string_view(rest).substr(colon + 1);
  const auto port = port_text == "*" ? 0 : ParseNumber<uint16_t>(port_text);
  if (!port) return BadEndpoint(text, "the port is not a number from 0 to 65535");
  endpoint.port = *port;
  return endpoint;
}

Result<Endpoint> ParseIpc(const std::string& text) {
  Endpoint endpoint{.kind = Endpoint::Kind::kIpc, .path = text.substr(kIpcPrefix.size())};
  if (endpoint.path.empty()) return BadEndpoint(text, "the path is missing");
  if (endpoint.path.size() > kIpcPathBytesMax) {
    return BadEndpoint(text, fmt::format("the path has {} bytes, the system allows {}",
                                         endpoint.path.size(), kIpcPathBytesMax));
  }
  return endpoint;
}

}  // namespace

std::string Endpoint::ToString() const {
  return kind == Kind::kIpc ? fmt::format("ipc://{}", path)
                            : fmt::format("tcp://{}:{}", host, port);
}

Result<Endpoint> ParseEndpoint(const std::string& text) {
  if (text.starts_with(kTcpPrefix)) return ParseTcp(text);
  if (text.starts_with(kIpcPrefix)) return ParseIpc(text);
  return BadEndpoint(text, "it begins with neither tcp:// nor ipc://");
}

Result<Endpoint> ParsePeerEndpoint(const std::string& text) {
  Result<Endpoint> endpoint = ParseEndpoint(text);
  if (!endpoint.ok() || endpoint->kind == Endpoint::Kind::kIpc) return endpoint;
  if (endpoint->is_wildcard()) {
    return InvalidArgument(
        fmt::format("'{}' names every interface: give the address of the machine to reach", text));
  }
  if (endpoint->port == 0) {
    return InvalidArgument(fmt::format(
        "'{}' names no port: give the one that the peer printed when it started", text));
  }
  return endpoint;
}

Result<std::string> ResolveHost(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return NotFound(fmt::format("the host '{}' has no IPv4 address ({}): check its name", host,
                                gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  return AddressText(*reinterpret_cast<const sockaddr_in*>(found->ai_addr));
}

Result<bool> IsLocal(const Endpoint& endpoint) {
  if (endpoint.kind == Endpoint::Kind::kIpc) return true;
  if (endpoint.is_wildcard()) return false;
  PANDO_ASSIGN_OR_RETURN(const std::string address, ResolveHost(endpoint.host));
  return address.starts_with("127.");
}

Status CheckExposure(const Endpoint& endpoint, bool insecure) {
  if (insecure) return Status();
  PANDO_ASSIGN_OR_RETURN(const bool is_local, IsLocal(endpoint));
  if (is_local) return Status();
  return InvalidArgument(
      fmt::format("{} can be reached from other machines, and messages are neither encrypted nor "
                  "authenticated: pass --insecure if the network is trusted, or bind 127.0.0.1",
                  endpoint.ToString()));
}

std::string OwnAddress() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return kLoopbackAddress;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    const bool is_up = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0;
    if (is_up && at->ifa_addr != nullptr && at->ifa_addr->sa_family == AF_INET)
      return AddressText(*reinterpret_cast<const sockaddr_in*>(at->ifa_addr));
  }
  return kLoopbackAddress;
}

Result<std::string> LocalAddressTowards(const Endpoint& peer) {
  if (peer.kind == Endpoint::Kind::kIpc || peer.is_wildcard()) return std::string(kLoopbackAddress);
  const Result<std::string> host = ResolveHost(peer.host);
  if (!host.ok()) return host.status();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(peer.port != 0 ? peer.port : kDiscardPort);
  PANDO_CHECK(inet_pton(AF_INET, host->c_str(), &address.sin_addr) == 1);
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return Unavailable(fmt::format("no UDP socket: {}", std::strerror(errno)));
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (connect(fd.get(), generic, sizeof(address)) == 0 &&
      getsockname(fd.get(), generic, &size) == 0) {
    return AddressText(address);
  }
  return Unavailable(
      fmt::format("this machine has no route to {}: {}", peer.host, std::strerror(errno)));
}

Result<std::string> AdvertisedEndpoint(const std::string& bound, const Endpoint& peer) {
  PANDO_ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(bound));
  if (!endpoint.is_wildcard()) return bound;
  PANDO_ASSIGN_OR_RETURN(std::string address, LocalAddressTowards(peer));
  endpoint.host = address == kLoopbackAddress ? OwnAddress() : address;
  return endpoint.ToString();
}

std::string ExplainSilence(const std::string& endpoint, const std::string& otherwise) {
  const Result<Endpoint> parsed = ParseEndpoint(endpoint);
  if (!parsed.ok() || parsed->kind == Endpoint::Kind::kIpc) return otherwise;
  const Result<std::string> address = ResolveHost(parsed->host);
  return address.ok() ? otherwise : address.status().message();
}

}  // namespace pando
