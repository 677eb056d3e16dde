// Checks how deeply a TOML text is nested. The readers of networks and job files call it before
// they parse: the parser bounds arrays and inline tables, but a key like "a.b.c" makes a table for
// each part, and their destructors are recursive.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/status.h"

namespace pando {

inline constexpr size_t kTomlKeyDotsMax = 16;

// Returns whether a key has more than kTomlKeyDotsMax dots.
bool IsDeepToml(std::string_view toml);
// Returns kInvalidArgument with the file's name if a key has more.
Status CheckTomlDepth(std::string_view toml, const std::string& file_name);

}  // namespace pando
