// --network-interface: a process listens at the address of one interface of its machine, and tells
// others this address.
#pragma once

#include <string>

#include "cli/commands.h"

namespace pando {

// Adds the flag. `name` must outlive the parsing.
void AddInterfaceOption(CLI::App& command, std::string* name);

// Returns where to listen: `bind` if no interface is named. Otherwise at the interface's address
// with the port of `bind` (empty: 0), whose host must be a wildcard or `standard`.
Result<std::string> ChooseBind(const std::string& bind, const std::string& name,
                               const std::string& standard = "");

}  // namespace pando
