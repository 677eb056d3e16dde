// What recovery finds out about a run from outside: its processes, and its own word on a fault.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "bench/recovery/recovery.h"
#include "cli/run_folder.h"

namespace pando::bench {
namespace {

std::vector<std::string> CommandLine(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", pid), std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

bool IsRole(const std::vector<std::string>& words, const std::string& role, uint32_t rank) {
  if (words.size() < 2 || words[1] != role) return false;
  const auto flag = std::ranges::find(words, "--rank");
  // The scheduler has none.
  return flag == words.end() || (flag + 1 != words.end() && flag[1] == fmt::format("{}", rank));
}

}  // namespace

std::optional<pid_t> FindChild(pid_t parent, const std::string& role, uint32_t rank) {
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", parent));
  for (pid_t pid = 0; children >> pid;) {
    if (IsRole(CommandLine(pid), role, rank)) return pid;
  }
  return std::nullopt;
}

// A fault is written again whenever more is known of it.
RunsOwnWord ReadFault(const std::string& events_path,
                      std::chrono::system_clock::time_point injected_at) {
  RunsOwnWord word;
  std::ifstream file(events_path);
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || json.value("event", "") != "fault") continue;
    const auto at = ParseUtcText(json.value("time", ""));
    if (!at || *at < std::chrono::floor<std::chrono::milliseconds>(injected_at)) continue;
    const double after_ms = std::chrono::duration<double, std::milli>(*at - injected_at).count();
    const auto is_known = [&](const char* key) {
      return json.contains("details") && json["details"].contains(key) &&
             json["details"][key].is_number();
    };
    if (!word.noticed_ms && is_known("detected_ms")) word.noticed_ms = std::max(after_ms, 0.0);
    if (!word.made_up_ms && is_known("recovered_ms")) word.made_up_ms = std::max(after_ms, 0.0);
  }
  return word;
}

}  // namespace pando::bench
