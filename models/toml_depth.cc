#include "models/toml_depth.h"

#include <fmt/core.h>

#include <algorithm>

namespace pando {
namespace {

// Returns the place behind the quoted TOML text that begins at `first`.
size_t EndOfQuoted(std::string_view toml, size_t first) {
  const char quote = toml[first];
  const bool is_tripled = toml.substr(first).starts_with(std::string(3, quote));
  const std::string mark(is_tripled ? 3 : 1, quote);
  size_t at = first + mark.size();
  while (at < toml.size() && !toml.substr(at).starts_with(mark))
    at += quote == '"' && toml[at] == '\\' ? 2 : 1;
  at = std::min(at + mark.size(), toml.size());
  // The text itself may end with one or two quotes.
  for (int i = 0; is_tripled && i < 2 && at < toml.size() && toml[at] == quote; ++i) ++at;
  return at;
}

}  // namespace

bool IsDeepToml(std::string_view toml) {
  size_t dots = 0;  // in this key, or number
  for (size_t at = 0; at < toml.size();) {
    const char c = toml[at];
    if (c == '.' && ++dots > kTomlKeyDotsMax) return true;
    if (std::string_view("=,[]{}\n").find(c) != std::string_view::npos) dots = 0;
    if (c == '"' || c == '\'')
      at = EndOfQuoted(toml, at);
    else
      at = c == '#' ? std::min(toml.find('\n', at), toml.size()) : at + 1;
  }
  return false;
}

Status CheckTomlDepth(std::string_view toml, const std::string& file_name) {
  if (!IsDeepToml(toml)) return Status();
  return InvalidArgument(
      fmt::format("{}: a key has more than {} dots", file_name, kTomlKeyDotsMax));
}

}  // namespace pando
