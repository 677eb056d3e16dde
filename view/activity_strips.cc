#include "view/activity_strips.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace pando {
namespace {

constexpr double kPerSecond = 100;  // a finer time is not visible

}  // namespace

void ActivityStrips::Look(double now, std::span<const RunStatus::Node> nodes) {
  now = std::round(now * kPerSecond) / kPerSecond;
  last_look_ = now;
  for (const RunStatus::Node& node : nodes) {
    std::deque<Span>& spans = spans_[node.name];
    const bool is_joined = !spans.empty() && now - spans.back().to <= kGapMax;
    if (is_joined) spans.back().to = now;
    if (!is_joined || spans.back().activity != node.activity)
      spans.push_back({now, now, node.activity});
  }
  for (auto it = spans_.begin(); it != spans_.end();) {
    std::deque<Span>& spans = it->second;
    while (!spans.empty() && spans.front().to < now - kKeptSeconds) spans.pop_front();
    it = spans.empty() ? spans_.erase(it) : std::next(it);
  }
}

nlohmann::json ActivityStrips::Since(double time) const {
  nlohmann::json strips = nlohmann::json::object();
  for (const auto& [name, spans] : spans_) {
    for (const Span& span : spans) {
      if (span.to <= time) continue;
      nlohmann::json& list = strips[name];
      list.push_back({span.from, span.to});
      if (span.from > time) list.back().push_back(span.activity);
    }
  }
  return strips;
}

}  // namespace pando
