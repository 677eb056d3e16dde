// Which endpoints may be bound, and which address of this machine other processes can use. Used by
// net/transport and by the processes in node/.
#pragma once

#include <string>

#include "common/endpoint.h"
#include "common/status.h"
#include "net/zmq/keys.h"

namespace pando {

bool IsAddress(const std::string& host);  // in numbers

// The first address of a host name (ResolveAll), or the address itself.  Blocks while the name is
// looked up.
Result<std::string> ResolveHost(const std::string& host);
// The first one of its addresses that takes a connection at the peer's port; the first one if none
// does.  Blocks for at most a second more for each, where there are several.  REQUIRES: it is tcp.
Result<std::string> FindAddress(const Endpoint& peer);

// Whether only processes of this machine can reach it: ipc, or tcp in 127.0.0.0/8 or at ::1.
Result<bool> IsLocal(const Endpoint& endpoint);

// Returns an error unless the endpoint is local or exposure was requested (--insecure): without
// keys messages are neither encrypted nor authenticated.
Status CheckExposure(const Endpoint& endpoint, bool insecure);

// The first address of this machine that other machines may reach, IPv4 first; 127.0.0.1 if it has
// none.
std::string OwnAddress();

// This machine's address on the route to `peer` (a UDP socket that sends nothing). A process that
// can reach `peer` can reach this address too. 127.0.0.1 for a local peer.
Result<std::string> LocalAddressTowards(const Endpoint& peer);

// The endpoint that other processes can dial: a wildcard host becomes LocalAddressTowards(peer), or
// OwnAddress() where the peer is on this machine, since others need not be.
Result<std::string> AdvertisedEndpoint(const std::string& bound, const Endpoint& peer);

// Why no connection to the endpoint can be made: "the host 'x' has no address (...): check its
// name", "127.0.0.1:4123 refuses connections"; or why a process with these keys, or without any, is
// not answered there. Empty where neither is so.  Blocks while the name is looked up, and for at
// most four seconds more.
std::string ReasonOfSilence(const std::string& endpoint, const Keys& keys = {});

// What to look at if no process answers at the endpoint: the reason, if there is one, and
// `otherwise`.  Blocks as long.
std::string ExplainSilence(const std::string& endpoint, const std::string& otherwise,
                           const Keys& keys = {});

}  // namespace pando
