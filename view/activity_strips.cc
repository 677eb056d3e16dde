#include "view/activity_strips.h"

#include <utility>

namespace pando {

void ActivityStrips::Look(double now, const nlohmann::json& status) {
  for (const nlohmann::json& node : status.at("nodes")) {
    std::deque<Span>& spans = spans_[node.value("name", "")];
    std::string activity = node.value("activity", "");
    const bool is_joined = !spans.empty() && now - spans.back().to <= kGapMax;
    if (is_joined) spans.back().to = now;
    if (!is_joined || spans.back().activity != activity)
      spans.push_back({now, now, std::move(activity)});
  }
  for (auto it = spans_.begin(); it != spans_.end();) {
    std::deque<Span>& spans = it->second;
    while (!spans.empty() && spans.front().to < now - kKeptSeconds) spans.pop_front();
    it = spans.empty() ? spans_.erase(it) : std::next(it);
  }
}

nlohmann::json ActivityStrips::ToJson() const {
  nlohmann::json strips = nlohmann::json::array();
  for (const auto& [name, spans] : spans_) {
    nlohmann::json list = nlohmann::json::array();
    for (const Span& span : spans) list.push_back({span.from, span.to, span.activity});
    strips.push_back({{"name", name}, {"spans", std::move(list)}});
  }
  return strips;
}

}  // namespace pando
