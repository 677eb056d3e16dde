#include "cli/text.h"

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

}  // namespace pando
