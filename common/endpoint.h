// Endpoints: "tcp://HOST:PORT" between machines, "ipc://PATH" on one machine. What reaches a peer,
// in every process the same (net/address asks the system about them). Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"

namespace pando {

struct Endpoint {
  enum class Kind : uint8_t { kTcp, kIpc };
  Kind kind = Kind::kTcp;
  // kTcp: a name or an address, IPv6 without brackets; "*", "0.0.0.0" and "::": every interface.
  std::string host;
  uint16_t port = 0;  // kTcp; 0: any free one ("0" and "*" in the text)
  std::string path;   // kIpc

  std::string ToString() const;
  bool is_wildcard() const {
    return kind == Kind::kTcp && (host == "*" || host == "0.0.0.0" || host == "::");
  }
};

bool IsIpv6(const std::string& host);             // an address in numbers
bool IsLoopbackAddress(const std::string& host);  // "127.x.y.z" or "::1"
std::string Bracketed(const std::string& host);   // as it stands in an endpoint: "[::1]"

Result<Endpoint> ParseEndpoint(const std::string& text);

// An endpoint to dial: as ParseEndpoint, but a wildcard host or port is an error too.
Result<Endpoint> ParsePeerEndpoint(const std::string& text);

}  // namespace pando
