#include "common/endpoint.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <sys/un.h>

#include <algorithm>
#include <string_view>

#include "common/hash.h"
#include "common/text.h"

namespace pando {
namespace {

constexpr std::string_view kTcpPrefix = "tcp://";
constexpr std::string_view kIpcPrefix = "ipc://";
constexpr size_t kIpcPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;

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

Result<Endpoint> ParseTcp(const std::string& text) {
  const std::string rest = text.substr(kTcpPrefix.size());
  const size_t colon = rest.rfind(':');
  if (colon == std::string::npos || rest.ends_with(']'))
    return BadEndpoint(text, "the port is missing");
  Endpoint endpoint{.kind = Endpoint::Kind::kTcp, .host = rest.substr(0, colon)};
  std::string& host = endpoint.host;
  if (host.empty()) return BadEndpoint(text, "the host is missing");
  if (host.starts_with('[')) {
    host = host.substr(1, host.size() - 1 - (host.ends_with(']') ? 1 : 0));
    if (Bracketed(host) != rest.substr(0, colon))
      return BadEndpoint(text, "the host is not an IPv6 address in brackets");
  } else if (host.find(':') != std::string::npos) {
    return BadEndpoint(text, fmt::format("an IPv6 address stands in brackets, as in tcp://[{}]:{}",
                                         IsIpv6(host) ? host : "::1", rest.substr(colon + 1)));
  } else if (host != "*" && !std::ranges::all_of(host, IsHostCharacter)) {
    return BadEndpoint(text, "the host is not a name or address");
  }
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
                            : fmt::format("tcp://{}:{}", Bracketed(host), port);
}

bool IsIpv6(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool IsLoopbackAddress(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return host.starts_with("127.");
  if (inet_pton(AF_INET6, host.c_str(), &six) != 1) return false;  // a name may begin with 127, too
  constexpr uint8_t kLoopbackNetwork = 127;
  return IN6_IS_ADDR_LOOPBACK(&six) ||
         (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == kLoopbackNetwork);
}

std::string Bracketed(const std::string& host) {
  return IsIpv6(host) ? fmt::format("[{}]", host) : host;
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

std::vector<std::string> SplitEndpoints(const std::string& text) {
  const std::string ended = text + ',';  // so that an endpoint that is missing is an empty one
  const auto endpoints = SplitText(ended, ',');
  return {endpoints.begin(), endpoints.end()};
}

uint64_t HashEndpoints(const std::vector<std::string>& endpoints) {
  if (endpoints.empty()) return 0;
  return Hash64(Joined(endpoints));
}

bool IsOfOneMachine(const std::string& endpoint) {
  const Result<Endpoint> parsed = ParseEndpoint(endpoint);
  return parsed.ok() && (parsed->kind == Endpoint::Kind::kIpc || IsLoopbackAddress(parsed->host));
}

}  // namespace pando
