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

// Whether a key has more dots than this.
bool IsDeepToml(std::string_view toml);
// kInvalidArgument, with the file's name: a key has more.
Status CheckTomlDepth(std::string_view toml, const std::string& file_name);

}  // namespace pando
