// Addresses of IPv4 and IPv6 in the form of the system's sockets, and plain TCP connections, which
// test whether a peer can be reached at all. net/address and the command line use them.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"

namespace pando {

// An address of IPv4 or IPv6, with a port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);
  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&storage); }
};

// Returns the addresses of a host name, or the address itself; IPv4 first. Blocks while the name is
// looked up.
Result<std::vector<std::string>> ResolveAll(const std::string& host);
// An address of an interface of this machine.
struct InterfaceEntry {
  std::string name;
  std::string address;
  bool is_up = false;
  bool is_loopback = false;
};
// Returns the addresses of this machine, IPv4 first, without link-local ones: those need the name
// of an interface, which an endpoint does not have.
std::vector<InterfaceEntry> ReadInterfaces();
// Returns the interface's address on this machine, IPv4 first. The error names the interfaces.
Result<std::string> InterfaceAddress(const std::string& name);

// REQUIRES: `host` is a numeric address.
SocketAddress MakeAddress(const std::string& host, uint16_t port);
std::string AddressText(const sockaddr* address);  // without the port
uint16_t PortIn(const sockaddr* address);
// Returns the address of the other end of a TCP connection; empty for other connections.
std::string PeerAddress(int fd);

// Ends the TCP connections of this process whose two ends are one socket, at once, and returns
// whether there were any. While nothing listens at a port of this machine, Linux may give a
// connection to it the port that it dials. The connection would keep the port from the peer.
bool EndSelfConnections();

// Connects within `patience`; the socket is non-blocking. Returns the error's number, or 0.
int DialTcp(const std::string& host, uint16_t port, std::chrono::milliseconds patience,
            UniqueFd* connection);
// Listens at an address; port 0 means any free one. `bound` gets the port.
Result<UniqueFd> ListenTcp(const std::string& host, uint16_t port, uint16_t* bound);
// Binds an address without listening. Until the socket is closed, no other one can listen there,
// and no connection from this machine to the port gets the port itself and so connects to itself.
Result<UniqueFd> HoldTcp(const std::string& host, uint16_t port);

}  // namespace pando
