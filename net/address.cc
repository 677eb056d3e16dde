#include "net/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <fmt/core.h>

#include "common/unique_fd.h"
#include "net/socket_address.h"
#include "net/zmq/zmq_socket.h"

namespace pando {
namespace {

constexpr const char* kLoopbackAddress = "127.0.0.1";
constexpr uint16_t kDiscardPort = 9;  // any port will do: connecting a UDP socket sends nothing

constexpr std::chrono::milliseconds kPatience(1000);

// Returns ZeroMQ's name of the peer's security ("NULL", "CURVE"), or "" if the peer is not ZeroMQ
// or is silent. Source: the greeting of ZMTP 3.0 (RFC 23): signature, version, mechanism.
std::string MechanismAt(const UniqueFd& connection) {
  constexpr size_t kGreetingBytes = 64;
  constexpr size_t kMechanismAt = 12, kMechanismBytes = 20;
  std::array<char, kGreetingBytes> greeting{};
  greeting[0] = '\xff';
  greeting[9] = '\x7f';
  greeting[10] = 3;
  // We send no more: ZeroMQ closes a connection with another mechanism before it sends its own.
  if (send(connection.get(), greeting.data(), kMechanismAt, MSG_NOSIGNAL) < 0) return "";
  size_t count = 0;
  while (count < kMechanismAt + kMechanismBytes) {
    pollfd polled{connection.get(), POLLIN, 0};
    if (poll(&polled, 1, static_cast<int>(kPatience.count())) <= 0) return "";
    const ssize_t more = recv(connection.get(), &greeting[count], greeting.size() - count, 0);
    if (more <= 0) return "";
    count += static_cast<size_t>(more);
  }
  const std::string_view padded(&greeting[kMechanismAt], kMechanismBytes);
  return std::string(padded.substr(0, padded.find('\0')));
}

std::string ReasonAt(const std::string& endpoint, const Keys& keys) {
  const Result<Endpoint> parsed = ParsePeerEndpoint(endpoint);
  if (!parsed.ok() || parsed->kind == Endpoint::Kind::kIpc) return "";
  const Result<std::string> address = FindAddress(*parsed);
  if (!address.ok()) return address.status().message();
  UniqueFd connection;
  const int error = DialTcp(*address, parsed->port, kPatience, &connection);
  if (error != 0) {
    return fmt::format("a connection to {}:{} fails ({}{})", Bracketed(*address), parsed->port,
                       std::strerror(error), error == ETIMEDOUT ? "; a firewall may drop it" : "");
  }
  const std::string mechanism = MechanismAt(connection);
  if (mechanism == "CURVE" && keys.are_none())
    return "the scheduler there has keys: give --keys FOLDER, or PANDO_KEYS";
  if (mechanism == "CURVE")
    return AreKeysAccepted(fmt::format("tcp://{}:{}", Bracketed(*address), parsed->port), keys)
                   .value_or(true)
               ? ""
               : "the scheduler there does not accept these keys";
  if (mechanism == "NULL" && !keys.are_none())
    return "the scheduler there has no keys, and this process has: start it with the same --keys";
  return "";
}

}  // namespace

bool IsAddress(const std::string& host) {
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 || IsIpv6(host);
}

Result<std::string> ResolveHost(const std::string& host) {
  PANDO_ASSIGN_OR_RETURN(const std::vector<std::string> addresses, ResolveAll(host));
  return addresses.front();
}

Result<std::string> FindAddress(const Endpoint& peer) {
  PANDO_ASSIGN_OR_RETURN(const std::vector<std::string> addresses, ResolveAll(peer.host));
  for (const std::string& address : addresses) {
    UniqueFd connection;
    if (addresses.size() > 1 && DialTcp(address, peer.port, kPatience, &connection) == 0)
      return address;
  }
  return addresses.front();
}

Result<bool> IsLocal(const Endpoint& endpoint) {
  if (endpoint.kind == Endpoint::Kind::kIpc) return true;
  if (endpoint.is_wildcard()) return false;
  PANDO_ASSIGN_OR_RETURN(const std::string address, ResolveHost(endpoint.host));
  return IsLoopbackAddress(address);
}

Status CheckExposure(const Endpoint& endpoint, bool insecure) {
  if (insecure) return Status();
  PANDO_ASSIGN_OR_RETURN(const bool is_local, IsLocal(endpoint));
  if (is_local) return Status();
  return InvalidArgument(
      fmt::format("{} can be reached from other machines, and without keys each peer that reaches "
                  "it is believed: "
                  "give --keys FOLDER (pando keys new makes one), --insecure if the network is "
                  "trusted, or bind 127.0.0.1",
                  endpoint.ToString()));
}

std::string OwnAddress() {
  for (const InterfaceEntry& entry : ReadInterfaces()) {
    if (entry.is_up && !entry.is_loopback) return entry.address;
  }
  return kLoopbackAddress;
}

Result<std::string> LocalAddressTowards(const Endpoint& peer) {
  if (peer.kind == Endpoint::Kind::kIpc || peer.is_wildcard()) return std::string(kLoopbackAddress);
  const Result<std::string> host = FindAddress(peer);
  if (!host.ok()) return host.status();
  SocketAddress address = MakeAddress(*host, peer.port != 0 ? peer.port : kDiscardPort);
  const UniqueFd fd(socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return Unavailable(fmt::format("no UDP socket: {}", std::strerror(errno)));
  if (connect(fd.get(), address.generic(), address.size) == 0 &&
      getsockname(fd.get(), address.generic(), &address.size) == 0) {
    return AddressText(address.generic());
  }
  return Unavailable(
      fmt::format("this machine has no route to {}: {}", peer.host, std::strerror(errno)));
}

Result<std::string> AdvertisedEndpoint(const std::string& bound, const Endpoint& peer) {
  PANDO_ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(bound));
  if (!endpoint.is_wildcard()) return bound;
  PANDO_ASSIGN_OR_RETURN(std::string address, LocalAddressTowards(peer));
  // "*" and "0.0.0.0" listen on IPv4 alone.
  const bool is_reached = !IsIpv6(address) || endpoint.host == "::";
  endpoint.host = IsLoopbackAddress(address) || !is_reached ? OwnAddress() : address;
  return endpoint.ToString();
}

std::string ReasonOfSilence(const std::string& endpoint, const Keys& keys) {
  std::string first;
  for (const std::string& one : SplitEndpoints(endpoint)) {
    const std::string reason = ReasonAt(one, keys);
    if (reason.empty()) return "";
    if (first.empty()) first = reason;
  }
  return first;
}

std::string ExplainSilence(const std::string& endpoint, const std::string& otherwise,
                           const Keys& keys) {
  const std::string reason = ReasonOfSilence(endpoint, keys);
  return reason.empty() ? otherwise : fmt::format("{}: {}", reason, otherwise);
}

}  // namespace pando
