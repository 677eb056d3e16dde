// Which endpoints may be bound, and which address of this machine other processes can use. Used by
// net/transport and by the processes in node/.
#pragma once

#include <string>

#include "common/endpoint.h"
#include "common/status.h"

namespace pando {

bool IsAddress(const std::string& host);  // IPv4, in numbers

// The IPv4 address of a host name or address.  Blocks while the name is looked up.
Result<std::string> ResolveHost(const std::string& host);

// Whether only processes of this machine can reach it: ipc, or a tcp host in 127.0.0.0/8.
Result<bool> IsLocal(const Endpoint& endpoint);

// Returns an error unless the endpoint is local or exposure was requested (--insecure): without
// keys messages are neither encrypted nor authenticated.
Status CheckExposure(const Endpoint& endpoint, bool insecure);

// The first IPv4 address of this machine that other machines may reach; 127.0.0.1 if it has none.
std::string OwnAddress();

// This machine's address on the route to `peer` (no packet is sent). A process that can reach
// `peer` can reach this address too. 127.0.0.1 for a local peer.
Result<std::string> LocalAddressTowards(const Endpoint& peer);

// The endpoint that other processes can dial: a wildcard host becomes LocalAddressTowards(peer), or
// OwnAddress() where the peer is on this machine, since others need not be.
Result<std::string> AdvertisedEndpoint(const std::string& bound, const Endpoint& peer);

// Why no connection to the endpoint can be made: "the host 'x' has no IPv4 address (...): check its
// name", "127.0.0.1:4123 refuses connections"; or why a process with or without keys is not
// answered there. Empty where neither is so.  Blocks while the name is looked up, and for at most
// two seconds more.
std::string ReasonOfSilence(const std::string& endpoint, bool has_keys = false);

// What to look at if no process answers at the endpoint: the reason, if there is one, and
// `otherwise`.  Blocks as long.
std::string ExplainSilence(const std::string& endpoint, const std::string& otherwise,
                           bool has_keys = false);

}  // namespace pando
