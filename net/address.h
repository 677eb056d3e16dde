// Endpoints: "tcp://HOST:PORT" between machines, "ipc://PATH" on one machine. This says which
// endpoints may be bound, and which address of this machine other processes can use. Used by
// net/transport and by the processes in node/.
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"

namespace pando {

struct Endpoint {
  enum class Kind : uint8_t { kTcp, kIpc };
  Kind kind = Kind::kTcp;
  std::string host;   // kTcp: a name or an IPv4 address; "*" and "0.0.0.0": every interface
  uint16_t port = 0;  // kTcp; 0: any free one ("0" and "*" in the text)
  std::string path;   // kIpc

  std::string ToString() const;
  bool is_wildcard() const { return kind == Kind::kTcp && (host == "*" || host == "0.0.0.0"); }
};

Result<Endpoint> ParseEndpoint(const std::string& text);

// An endpoint to dial: as ParseEndpoint, but a wildcard host or port is an error too.
Result<Endpoint> ParsePeerEndpoint(const std::string& text);

// The IPv4 address of a host name or address.  Blocks while the name is looked up.
Result<std::string> ResolveHost(const std::string& host);

// Whether only processes of this machine can reach it: ipc, or a tcp host in 127.0.0.0/8.
Result<bool> IsLocal(const Endpoint& endpoint);

// Returns an error unless the endpoint is local or exposure was requested (--insecure): messages
// are neither encrypted nor authenticated.
Status CheckExposure(const Endpoint& endpoint, bool insecure);

// The first IPv4 address of this machine that other machines may reach; 127.0.0.1 if it has none.
std::string OwnAddress();

// This machine's address on the route to `peer` (no packet is sent). A process that can reach
// `peer` can reach this address too. 127.0.0.1 for a local peer.
Result<std::string> LocalAddressTowards(const Endpoint& peer);

// The endpoint that other processes can dial: a wildcard host becomes LocalAddressTowards(peer), or
// OwnAddress() where the peer is on this machine, since others need not be.
Result<std::string> AdvertisedEndpoint(const std::string& bound, const Endpoint& peer);

// What to look at if no process answers at the endpoint: "the host 'x' has no IPv4 address (...):
// check its name" where that is so, else `otherwise`.  Blocks while the name is looked up.
std::string ExplainSilence(const std::string& endpoint, const std::string& otherwise);

}  // namespace pando
