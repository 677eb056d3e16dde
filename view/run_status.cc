#include "view/run_status.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace pando {
namespace {

using Json = nlohmann::json;

struct KnownMember {
  const char* key;
  bool (Json::*is_expected)() const noexcept;
};

constexpr std::array kStatusMembers{
    KnownMember{"phase", &Json::is_string},      KnownMember{"waiting_for", &Json::is_string},
    KnownMember{"step", &Json::is_number},       KnownMember{"step_count", &Json::is_number},
    KnownMember{"term", &Json::is_number},       KnownMember{"view", &Json::is_number},
    KnownMember{"model", &Json::is_string},      KnownMember{"dataset", &Json::is_string},
    KnownMember{"fault_count", &Json::is_number}};
constexpr std::array kNodeMembers{
    KnownMember{"name", &Json::is_string},        KnownMember{"role", &Json::is_string},
    KnownMember{"rank", &Json::is_number},        KnownMember{"host", &Json::is_string},
    KnownMember{"pid", &Json::is_number_integer}, KnownMember{"health", &Json::is_string},
    KnownMember{"draining", &Json::is_boolean},   KnownMember{"activity", &Json::is_string},
    KnownMember{"step", &Json::is_number},        KnownMember{"silent_ms", &Json::is_number},
    KnownMember{"primaries", &Json::is_number},   KnownMember{"backups", &Json::is_number},
    KnownMember{"syncing", &Json::is_number},     KnownMember{"micro_batch_us", &Json::is_number},
    KnownMember{"waiting_for", &Json::is_string}, KnownMember{"waiting_ms", &Json::is_number}};
constexpr std::array kStallMembers{
    KnownMember{"text", &Json::is_string}, KnownMember{"waited_for", &Json::is_string},
    KnownMember{"since_ms", &Json::is_number}, KnownMember{"log_line", &Json::is_string}};
constexpr double kShownMs = 100;  // shorter times are not shown
constexpr double kRoundedMax = 1e15;

Json TakeMembers(const Json& from, std::span<const KnownMember> members) {
  Json taken = Json::object();
  if (!from.is_object()) return taken;
  for (const auto& [key, is_expected] : members) {
    const auto at = from.find(key);
    if (at != from.end() && ((*at).*is_expected)()) taken[key] = *at;
  }
  return taken;
}

// The objects of an array; none if it is missing.
Json TakeObjects(const Json& from, const char* key) {
  Json taken = Json::array();
  const auto at = from.find(key);
  if (at == from.end() || !at->is_array()) return taken;
  for (const Json& entry : *at) {
    if (entry.is_object()) taken.push_back(entry);
  }
  return taken;
}

// The numbers of an object, such as connections by what carries them; none if it is missing.
Json TakeNumbers(const Json& from, const char* key) {
  Json taken = Json::object();
  const auto at = from.find(key);
  if (at == from.end() || !at->is_object()) return taken;
  for (const auto& [name, value] : at->items()) {
    if (value.is_number()) taken[name] = value;
  }
  return taken;
}

// {"tcp": [sent, received], ...} in bytes; null if it is missing.
Json TakeTraffic(const Json& node) {
  const auto at = node.find("traffic");
  if (at == node.end() || !at->is_object()) return {};
  Json taken = Json::object();
  for (const auto& [name, counts] : at->items()) {
    const bool is_pair =
        counts.is_array() && counts.size() == 2 && counts[0].is_number() && counts[1].is_number();
    if (is_pair) taken[name] = counts;
  }
  return taken;
}

Json ReadNode(const Json& node) {
  Json read = TakeMembers(node, kNodeMembers);
  read["lines"] = TakeNumbers(node, "lines");
  if (Json traffic = TakeTraffic(node); !traffic.is_null()) read["traffic"] = std::move(traffic);
  return read;
}

// A multiple of `unit`, as an integer.
Json RoundedDown(double value, double unit) {
  return static_cast<int64_t>(unit * std::floor(std::clamp(value, 0.0, kRoundedMax) / unit));
}

// A change of less than kShownMs is none.
void RoundMs(const char* key, Json* node) {
  if (node->contains(key)) (*node)[key] = RoundedDown(node->value(key, 0.0), kShownMs);
}

// To two digits.
void RoundToDigits(const char* key, Json* node) {
  const double value = node->value(key, 0.0);
  if (value >= 10)
    (*node)[key] = RoundedDown(value, std::pow(10, std::floor(std::log10(value)) - 1));
}

}  // namespace

Json ReadStatus(std::string_view text) {
  const Json status = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!status.is_object() || !status.contains("nodes")) return {};
  Json read = TakeMembers(status, kStatusMembers);
  read["nodes"] = Json::array();
  for (const Json& node : TakeObjects(status, "nodes")) read["nodes"].push_back(ReadNode(node));
  read["faults"] = TakeObjects(status, "faults");
  if (const auto stall = status.find("stall"); stall != status.end() && stall->is_object())
    read["stall"] = TakeMembers(*stall, kStallMembers);
  const Json snapshots = TakeObjects(status, "snapshots");
  if (!snapshots.empty() && snapshots.back().value("version", Json()).is_number())
    read["newest_snapshot"] = snapshots.back()["version"];
  return read;
}

Json PageStatus(const Json& status) {
  Json page = status;
  page.erase("faults");
  page["nodes"] = Json::object();
  for (Json node : status.at("nodes")) {
    node.erase("traffic");
    RoundMs("silent_ms", &node);
    RoundMs("waiting_ms", &node);
    RoundToDigits("micro_batch_us", &node);
    const std::string name = node.value("name", "");
    page["nodes"][name] = std::move(node);
  }
  return page;
}

Json MergePatch(const Json& from, const Json& to) {
  Json patch = Json::object();
  for (const auto& [key, value] : to.items()) {
    const auto before = from.find(key);
    if (before == from.end()) {
      patch[key] = value;
    } else if (before->is_object() && value.is_object()) {
      if (Json inner = MergePatch(*before, value); !inner.empty()) patch[key] = std::move(inner);
    } else if (*before != value) {
      patch[key] = value;
    }
  }
  for (const auto& [key, value] : from.items()) {
    if (!to.contains(key)) patch[key] = nullptr;
  }
  return patch;
}

}  // namespace pando
