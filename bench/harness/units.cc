#include "bench/harness/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <string_view>

namespace pando::bench {
namespace {

struct Unit {
  std::string_view name;
  uint64_t bytes;
};
constexpr std::array<Unit, 4> kUnits{
    {{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}};

}  // namespace

Result<uint64_t> ParseBytes(const std::string& text, uint64_t bytes_max) {
  uint64_t count = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, count);
  const std::string_view suffix(rest, end);
  uint64_t factor = suffix.empty() ? 1 : 0;
  for (const Unit& unit : kUnits) {
    if (suffix == unit.name) factor = unit.bytes;
  }
  if (error != std::errc() || factor == 0 || count == 0) {
    return InvalidArgument(fmt::format(
        "'{}' is no size: write a whole number above 0 with B, KiB, MiB or GiB, as in 64KiB",
        text));
  }
  if (count > bytes_max / factor) {
    return InvalidArgument(
        fmt::format("'{}' is too large: at most {} here", text, BytesText(bytes_max)));
  }
  return count * factor;
}

std::string BytesText(uint64_t bytes) {
  for (const Unit& unit : kUnits) {
    if (bytes >= unit.bytes && bytes % unit.bytes == 0)
      return fmt::format("{} {}", bytes / unit.bytes, unit.name);
  }
  return "0 B";
}

}  // namespace pando::bench
