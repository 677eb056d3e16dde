// Functions that find which endpoints may be bound, and which address of this machine other
// processes can use. net/transport and the processes in node/ use them.
#pragma once

#include <string>

#include "common/endpoint.h"
#include "common/result.h"
#include "net/zmq/keys.h"

namespace pando {

bool IsAddress(const std::string& host);  // true for a numeric address

// Returns the first address of a host name (ResolveAll), or the address itself. Blocks while the
// name is looked up.
Result<std::string> ResolveHost(const std::string& host);
// Returns the host's first address that accepts a connection at the peer's port, or its first one
// if none does. If there are several, it blocks for up to one more second for each. REQUIRES: tcp.
Result<std::string> FindAddress(const Endpoint& peer);

// Returns whether only this machine can reach the endpoint: ipc, or tcp in 127.0.0.0/8 or at ::1.
Result<bool> IsLocal(const Endpoint& endpoint);

// Returns an error unless the endpoint is local or exposure was requested (--insecure): without
// keys messages are neither encrypted nor authenticated.
Status CheckExposure(const Endpoint& endpoint, bool insecure);

// Returns the first address of this machine that other machines may reach, IPv4 first; 127.0.0.1 if
// there is none.
std::string OwnAddress();

// Returns this machine's address on the route to `peer` (a UDP socket that sends nothing). A
// process that can reach `peer` can reach this address too. Returns 127.0.0.1 for a local peer.
Result<std::string> LocalAddressTowards(const Endpoint& peer);

// Returns the endpoint that other processes can dial. A wildcard becomes LocalAddressTowards(peer),
// or OwnAddress() if the peer is on this machine, since other peers may not be.
Result<std::string> AdvertisedEndpoint(const std::string& bound, const Endpoint& peer);

// Returns why no connection to the endpoint can be made: "the host 'x' has no address (...): check
// its name", "127.0.0.1:4123 refuses connections"; or why a process with these keys, or without
// any, gets no answer there. Returns "" if it finds no reason. Blocks while the name is looked up,
// and for up to four seconds more.
std::string ReasonOfSilence(const std::string& endpoint, const Keys& keys = {});

// Returns what to check if no process answers at the endpoint: the reason, if there is one, and
// `otherwise`. Blocks as long as ReasonOfSilence.
std::string ExplainSilence(const std::string& endpoint, const std::string& otherwise,
                           const Keys& keys = {});

}  // namespace pando
