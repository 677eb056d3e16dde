// Small text helpers of the command line.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pando {

// "a, b, c". (fmt::join would do, but g++ 12 warns of an overflow in fmt 9 that is not there.)
std::string Joined(const std::vector<std::string>& words);
std::string Joined(const std::vector<uint64_t>& numbers);

// The number that the whole text is; none where it is no number, or one that T does not hold.
template <class T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string BytesText(uint64_t bytes);  // "46.8 MB"

}  // namespace pando
