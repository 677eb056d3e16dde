// A scheduler's answer to `pando status` for people. Used by node_commands.
#pragma once

#include <optional>
#include <string>

namespace pando {

// None where the answer is not what a scheduler of this version says.
std::optional<std::string> StatusTable(const std::string& answer);

}  // namespace pando
