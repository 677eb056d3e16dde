#include "cli/bind_choice.h"

#include <fmt/core.h>

#include "common/endpoint.h"
#include "net/socket_address.h"

namespace pando {

void AddInterfaceOption(CLI::App& command, std::string* name) {
  AddOption(
      command, "--network-interface NAME", name,
      "listen at this interface's address, and tell it to others; --bind tcp://*:PORT chooses "
      "the port");
}

Result<std::string> ChooseBind(const std::string& bind, const std::string& name,
                               const std::string& standard) {
  if (name.empty()) return bind;
  uint16_t port = 0;
  if (!bind.empty()) {
    PANDO_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(bind));
    if (!endpoint.is_wildcard() && bind != standard) {
      return InvalidArgument(fmt::format(
          "--bind {} and --network-interface {} both say where to listen: leave one out, or give "
          "--bind tcp://*:PORT",
          bind, name));
    }
    port = endpoint.port;
  }
  PANDO_ASSIGN_OR_RETURN(const std::string address, InterfaceAddress(name));
  return fmt::format("tcp://{}:{}", Bracketed(address), port);
}

}  // namespace pando
