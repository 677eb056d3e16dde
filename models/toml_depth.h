// How deeply a TOML text is nested. Called by the readers of networks and job files before they
// parse: the parser bounds arrays and inline tables, but a key like "a.b.c" makes a table for each
// part, and their destructors are recursive.
#pragma once

#include <cstddef>
#include <string_view>

namespace pando {

inline constexpr size_t kTomlKeyDotsMax = 16;

// Whether a key has more dots than this.
bool IsDeepToml(std::string_view toml);

}  // namespace pando
