// Checks how deeply a JSON text is nested. The readers of the run folder call it before they parse
// a file: nlohmann's parser takes any depth, but copies and writes values by recursion. Without
// this check 200 kB of brackets would overflow the stack.
#pragma once

#include <cstddef>
#include <string_view>

namespace pando {

inline constexpr size_t kJsonDepthMax = 100;  // our own files stay below 10

// Returns whether more than kJsonDepthMax brackets are open at once, outside strings.
inline bool IsDeepJson(std::string_view json) {
  size_t depth = 0;
  bool is_in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (is_in_text && c == '\\') ++i;
    if (c == '"') is_in_text = !is_in_text;
    if (is_in_text) continue;
    if ((c == '[' || c == '{') && ++depth > kJsonDepthMax) return true;
    if ((c == ']' || c == '}') && depth > 0) --depth;
  }
  return false;
}

}  // namespace pando
