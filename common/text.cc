#include "common/text.h"

#include <fmt/format.h>

namespace pando {

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string Joined(const std::vector<uint64_t>& numbers) {
  std::vector<std::string> words;
  for (uint64_t number : numbers) words.push_back(std::to_string(number));
  return Joined(words);
}

std::string BytesText(uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

}  // namespace pando
