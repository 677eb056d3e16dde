// Small text helpers of the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pando {

// "a, b, c". (fmt::join would do, but g++ 12 warns of an overflow in fmt 9 that is not there.)
std::string Joined(const std::vector<std::string>& words);
std::string Joined(const std::vector<uint64_t>& numbers);

std::string BytesText(uint64_t bytes);  // "46.8 MB"

}  // namespace pando
