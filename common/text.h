// Small text helpers.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pando {

// "a, b, c". (Not fmt::join: g++ 12 wrongly warns of an overflow in fmt 9.)
std::string Joined(const std::vector<std::string>& words);
std::string Joined(const std::vector<uint64_t>& numbers);

// The number that the whole text is. None if it is not a number, or if T cannot hold it.
template <class T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string BytesText(uint64_t bytes);  // "46.8 MB"

// The names of an enum's values 0, 1, ...; each enum with names has them beside it.
template <class E>
inline constexpr std::array<const char*, 0> kEnumNames{};
template <class E>
constexpr const char* EnumName(E value) {
  return kEnumNames<E>[static_cast<size_t>(value)];
}
template <class E>
std::optional<E> ParseEnum(std::string_view name) {
  const auto at =
      std::ranges::find(kEnumNames<E>, name, [](const char* n) { return std::string_view(n); });
  if (at == kEnumNames<E>.end()) return std::nullopt;
  return static_cast<E>(at - kEnumNames<E>.begin());
}

}  // namespace pando
