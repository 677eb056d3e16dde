// --network-interface: a process listens at the address of one interface of its machine, and tells
// it to others.
#pragma once

#include <string>

#include "cli/commands.h"

namespace pando {

// `name` must outlive the parsing.
void AddInterfaceOption(CLI::App& command, std::string* name);

// Where to listen: `bind` where no interface is named. Otherwise the interface's address, at the
// port of `bind`, whose host must be a wildcard or `standard`; port 0 where `bind` is empty.
Result<std::string> ChooseBind(const std::string& bind, const std::string& name,
                               const std::string& standard = "");

}  // namespace pando
