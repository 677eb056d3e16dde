#include "cli/status_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

namespace pando {
namespace {

// A time that may not be known: null or left out.
double Ms(const nlohmann::json& fault, const char* key) {
  const auto at = fault.find(key);
  return at != fault.end() && at->is_number() ? at->get<double>() : -1;
}

constexpr size_t kFaultLinesMax = 10;  // the newest
constexpr size_t kDoingWidthMin = 40;  // mostly enough: a table asked for again looks the same

// The transports of payloads to the lanes that the node connected to: "shm 2", "shm 1, tcp 1".
// Without servers the lines of the group, by gloo or NCCL: "group 3".
std::string LinesText(const nlohmann::json& node) {
  std::string text;
  const auto lines = node.find("lines");
  for (const char* kind : {"shm", "ipc", "tcp", "group"}) {
    const uint32_t count = lines == node.end() ? 0 : lines->value(kind, 0u);
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kind, count);
  }
  return text;
}

std::string DoingText(const nlohmann::json& node) {
  std::string doing = node.value("activity", "unknown");
  if (const std::string health = node.value("health", "ready"); health != "ready")
    doing = health + ", " + doing;
  if (node.contains("waiting_for")) doing += " from " + node["waiting_for"].get<std::string>();
  if (node.contains("waiting_ms"))
    doing += fmt::format(" for {} ms", node.value("waiting_ms", uint64_t{0}));
  if (const uint64_t us = node.value("micro_batch_us", uint64_t{0}); us > 0)
    doing += fmt::format("; {:.1f} ms a micro-batch", static_cast<double>(us) / 1000);
  return doing;
}

// Columns are as wide as their widest text.
std::string NodeLines(const nlohmann::json& nodes) {
  constexpr std::string_view kLines = "LINES";
  size_t doing_width = kDoingWidthMin, lines_width = kLines.size();
  for (const nlohmann::json& node : nodes) {
    doing_width = std::max(doing_width, DoingText(node).size());
    lines_width = std::max(lines_width, LinesText(node).size());
  }
  std::string text = fmt::format("{:<12} {:<20} {:>8} {:>10}  {:<{}} {:<{}} {}\n", "NODE", "HOST",
                                 "PID", "STEP", "DOING", doing_width, kLines, lines_width, "HEARD");
  for (const nlohmann::json& node : nodes) {
    text += fmt::format("{:<12} {:<20} {:>8} {:>10}  {:<{}} {:<{}} {} ms ago\n",
                        node.value("name", ""), node.value("host", ""), node.value("pid", 0),
                        node.value("step", uint64_t{0}), DoingText(node), doing_width,
                        LinesText(node), lines_width, node.value("silent_ms", int64_t{0}));
  }
  return text;
}

std::string FaultLine(const nlohmann::json& fault) {
  std::string text = fmt::format("{:<12} {} at step {}", fault.value("target", ""),
                                 fault.value("action", ""), fault.value("step", uint64_t{0}));
  const double detected_ms = Ms(fault, "detected_ms");
  const double recovered_ms = Ms(fault, "recovered_ms");
  if (detected_ms < 0) return text + ", not noticed yet\n";
  text += fmt::format(", noticed by {}", fault.value("detected_by", ""));
  if (const double injected_ms = Ms(fault, "injected_ms"); injected_ms >= 0)
    text += fmt::format(" after {:.0f} ms", detected_ms - injected_ms);
  if (recovered_ms < 0) return text + ", not recovered yet\n";
  return text + fmt::format(", recovered after {:.0f} ms\n", recovered_ms - detected_ms);
}

std::string FaultLines(const nlohmann::json& faults) {
  if (faults.empty()) return "";
  const size_t left_out = faults.size() - std::min(faults.size(), kFaultLinesMax);
  std::string text =
      left_out == 0 ? "FAULTS\n" : fmt::format("FAULTS ({} earlier ones)\n", left_out);
  for (size_t i = left_out; i < faults.size(); ++i) text += FaultLine(faults[i]);
  return text;
}

std::string MakeTable(const nlohmann::json& status) {
  std::string text = fmt::format(
      "{} on {}: {}, step {} of {}, view {}\n", status.value("model", ""),
      status.value("dataset", ""), status.value("phase", ""), status.value("step", uint64_t{0}),
      status.value("step_count", uint64_t{0}), status.value("view", uint64_t{0}));
  if (status.contains("waiting_for")) {
    text += fmt::format("{}: {}\n", status.value("phase", "") == "gathering" ? "here" : "waits",
                        status["waiting_for"].get<std::string>());
  }
  text += NodeLines(status["nodes"]);
  if (const auto evaluation = status.find("evaluation"); evaluation != status.end()) {
    text += fmt::format(
        "evaluated: version {}, {} accuracy {:.2f} %\n", evaluation->value("version", uint64_t{0}),
        evaluation->value("evaluated_on", "test"), 100 * evaluation->value("accuracy", 0.0));
  }
  if (const auto verification = status.find("verification"); verification != status.end()) {
    text += fmt::format("verified: {} micro-batches computed twice, alike; {} not computed twice\n",
                        verification->value("agreed", uint64_t{0}),
                        verification->value("unverified", uint64_t{0}));
  }
  if (const auto faults = status.find("faults"); faults != status.end())
    text += FaultLines(*faults);
  return text;
}

}  // namespace

std::optional<std::string> StatusTable(const std::string& answer) {
  try {
    const nlohmann::json status = nlohmann::json::parse(answer);
    if (status.is_object() && status.contains("nodes")) return MakeTable(status);
  } catch (const nlohmann::json::exception&) {
  }
  return std::nullopt;
}

}  // namespace pando
