// Addresses as the system's sockets have them, of either family, and TCP connections beside
// ZeroMQ's: whether one can be made at all. Used by net/address and the command line.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/descriptor.h"
#include "common/status.h"

namespace pando {

// Of either family.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);
  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&storage); }
};

// The addresses of a host name, or the address itself; IPv4 first.  Blocks while the name is looked
// up.
Result<std::vector<std::string>> ResolveAll(const std::string& host);
// An address of an interface of this machine.
struct InterfaceEntry {
  std::string name;
  std::string address;
  bool is_up = false;
  bool is_loopback = false;
};
// IPv4 first. Link-local addresses are left out: they need an interface beside them, which an
// endpoint does not name.
std::vector<InterfaceEntry> ReadInterfaces();
// The address of a network interface of this machine, IPv4 first. The error names the interfaces.
Result<std::string> InterfaceAddress(const std::string& name);

// `host`: an address in numbers.
SocketAddress MakeAddress(const std::string& host, uint16_t port);
std::string AddressText(const sockaddr* address);  // without the port
uint16_t PortIn(const sockaddr* address);
// The address of the other end of a TCP connection; empty for others.
std::string PeerAddress(int fd);

// Connects within `patience`; the socket does not block. Returns the error's number, or 0.
int DialTcp(const std::string& host, uint16_t port, std::chrono::milliseconds patience,
            UniqueFd* connection);
// Listens at an address; port 0: any free one. `bound` gets the port.
Result<UniqueFd> ListenTcp(const std::string& host, uint16_t port, uint16_t* bound);

}  // namespace pando
