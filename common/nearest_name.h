// Nearest names: what a user probably meant by an unknown word (a data set, a flag, a key).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pando {

// Insertions, deletions, substitutions and swaps of neighbours that turn a into b: the
// Damerau-Levenshtein distance in its restricted form (no edit between two swapped letters).
// Case and '-' against '_' count as equal.
size_t EditDistance(std::string_view a, std::string_view b);

// The known names near `typed`, nearest first, at most three; equally near ones keep their order.
// Near: one edit in three letters, or typed in full as a part of the name ("synthetic").
std::vector<std::string> NearestNames(std::string_view typed, std::span<const std::string> known);

// "did you mean 'mnist' or 'fashion-mnist'?"; empty if nothing is near.
std::string DidYouMean(std::string_view typed, std::span<const std::string> known);

}  // namespace pando
