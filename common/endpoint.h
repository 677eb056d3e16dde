// Endpoints are "tcp://HOST:PORT" between machines and "ipc://PATH" on one machine. This file only
// parses texts, with equal results in all processes; net/address asks the system. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace pando {

struct Endpoint {
  enum class Kind : uint8_t { kTcp, kIpc };
  Kind kind = Kind::kTcp;
  // kTcp: a name or address, IPv6 without brackets. "*", "0.0.0.0" and "::" mean all interfaces.
  std::string host;
  uint16_t port = 0;  // kTcp; 0 means any free port ("0" or "*" in the text)
  std::string path;   // kIpc

  std::string ToString() const;
  bool is_wildcard() const {
    return kind == Kind::kTcp && (host == "*" || host == "0.0.0.0" || host == "::");
  }
};

bool IsIpv6(const std::string& host);             // true for a numeric address
bool IsLoopbackAddress(const std::string& host);  // "127.x.y.z" or "::1"
// Returns whether only processes of the same machine can dial the endpoint.
bool IsOfOneMachine(const std::string& endpoint);
std::string Bracketed(const std::string& host);  // the host as an endpoint has it: "[::1]"

Result<Endpoint> ParseEndpoint(const std::string& text);

// A run with standbys has several schedulers, whose endpoints are one text with commas between
// them: "tcp://a:7070,tcp://b:7070". Returns them in order, at least one.
std::vector<std::string> SplitEndpoints(const std::string& text);

// Returns a hash of the list, and 0 for an empty one.
uint64_t HashEndpoints(const std::vector<std::string>& endpoints);

// Parses an endpoint to dial: like ParseEndpoint, but a wildcard host or port is an error too.
Result<Endpoint> ParsePeerEndpoint(const std::string& text);

}  // namespace pando
