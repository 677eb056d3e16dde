#include "cli/bandwidth.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "common/printable.h"

namespace pando {
namespace {

constexpr double kBitsPerByte = 8;

// Of a unit's text, in bytes a second; none where it is no unit.
std::optional<double> UnitOf(std::string_view unit) {
  constexpr std::array<std::pair<std::string_view, double>, 8> kPrefixes{{{"", 1},
                                                                          {"k", 1e3},
                                                                          {"M", 1e6},
                                                                          {"m", 1e6},
                                                                          {"G", 1e9},
                                                                          {"g", 1e9},
                                                                          {"T", 1e12},
                                                                          {"t", 1e12}}};
  constexpr std::array<std::pair<std::string_view, double>, 5> kUnits{{{"bit", 1 / kBitsPerByte},
                                                                       {"bit/s", 1 / kBitsPerByte},
                                                                       {"bps", 1 / kBitsPerByte},
                                                                       {"B", 1},
                                                                       {"B/s", 1}}};
  for (const auto& [prefix, factor] : kPrefixes) {
    if (!unit.starts_with(prefix)) continue;
    for (const auto& [name, bytes] : kUnits) {
      if (unit.substr(prefix.size()) == name) return factor * bytes;
    }
  }
  return std::nullopt;
}

}  // namespace

Result<double> ParseBandwidth(const std::string& flag, const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  std::string_view unit(at, static_cast<size_t>(end - at));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  const std::optional<double> factor = UnitOf(unit);
  if (error == std::errc{} && factor && number > 0 && std::isfinite(number * *factor))
    return number * *factor;
  return InvalidArgument(fmt::format(
      "{} {}: expected a number above 0 and a unit, bits as 25Gbit or 100Mbit, or bytes "
      "as 3GB/s or 800MB/s",
      flag, Printable(text)));
}

std::string BandwidthText(double bytes_per_second) {
  constexpr std::array<const char*, 5> kUnits{"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"};
  double bits = bytes_per_second * kBitsPerByte;
  size_t unit = 0;
  for (; bits >= 1000 && unit + 1 < kUnits.size(); ++unit) bits /= 1000;
  return fmt::format("{:.4g} {}", bits, kUnits[unit]);
}

}  // namespace pando
