// --network-interface: a process listens at the address of one interface of its machine, and tells
// others this address.
#pragma once

#include <string>

#include "cli/commands.h"

namespace pando {

// `name` must outlive the parsing.
void AddInterfaceOption(CLI::App& command, std::string* name);

// Returns where to listen: `bind` if no interface is named. Otherwise the interface's address with
// the port of `bind`, whose host must be a wildcard or `standard`; port 0 if `bind` is empty.
Result<std::string> ChooseBind(const std::string& bind, const std::string& name,
                               const std::string& standard = "");

}  // namespace pando
