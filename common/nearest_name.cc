#include "common/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace pando {
namespace {

constexpr size_t kNamesMax = 3;
constexpr size_t kPartLengthMin = 3;  // shorter parts occur in too many names

std::string Fold(std::string_view text) {
  std::string folded(text);
  for (char& c : folded) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '_') c = '-';
  }
  return folded;
}

bool IsNear(const std::string& typed, const std::string& name, size_t distance) {
  if (distance <= std::max<size_t>(1, typed.size() / 3)) return true;
  return typed.size() >= kPartLengthMin && name.find(typed) != std::string::npos;
}

}  // namespace

size_t EditDistance(std::string_view a_text, std::string_view b_text) {
  const std::string a = Fold(a_text);
  const std::string b = Fold(b_text);
  // Row i has the distances of a's first i letters to every prefix of b.
  std::vector<size_t> row(b.size() + 1), above(b.size() + 1), above_that(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(above_that, above);
    std::swap(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substituted});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], above_that[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::vector<std::string> NearestNames(std::string_view typed, std::span<const std::string> known) {
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& name : known) {
    const size_t distance = EditDistance(typed, name);
    if (IsNear(Fold(typed), Fold(name), distance)) near.emplace_back(distance, name);
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (auto& [distance, name] : near) {
    if (names.size() < kNamesMax) names.push_back(std::move(name));
  }
  return names;
}

std::string DidYouMean(std::string_view typed, std::span<const std::string> known) {
  const std::vector<std::string> names = NearestNames(typed, known);
  if (names.empty()) return "";
  std::string question = "did you mean '" + names[0] + "'";
  for (size_t i = 1; i < names.size(); ++i) {
    question += (i + 1 == names.size() ? " or '" : ", '") + names[i] + "'";
  }
  return question + "?";
}

}  // namespace pando
