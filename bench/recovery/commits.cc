#include "bench/recovery/commits.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace pando::bench {
namespace {

// The number behind `word`.
std::optional<uint64_t> NumberBehind(const std::string& line, std::string_view word) {
  const size_t at = line.find(word);
  if (at == std::string::npos) return std::nullopt;
  const char* begin = line.data() + at + word.size();
  uint64_t number = 0;
  const auto [rest, error] = std::from_chars(begin, line.data() + line.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

}  // namespace

void Commits::Add(const std::string& line) {
  const std::optional<uint64_t> version = NumberBehind(line, " version ");
  const std::optional<uint64_t> micros = NumberBehind(line, " committed, at ");
  if (!version || !micros || *version <= newest()) return;
  all_.push_back({*version, SteadyMicros(*micros)});
}

std::optional<SteadyMicros> Commits::Reached(uint64_t version) const {
  const auto at = std::ranges::lower_bound(all_, version, {}, &Commit::version);
  return at == all_.end() ? std::nullopt : std::optional(at->at);
}

std::optional<SteadyMicros> Commits::LongestWait(SteadyMicros since) const {
  std::optional<SteadyMicros> longest;
  for (const Commit& commit : all_) {
    if (commit.at <= since) continue;
    longest = std::max(longest.value_or(SteadyMicros(0)), commit.at - since);
    since = commit.at;
  }
  return longest;
}

}  // namespace pando::bench
