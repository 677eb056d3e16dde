#include "cli/status_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/text.h"
#include "run/summary.h"

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

StatusNode ParseNode(const nlohmann::json& node) {
  return {.name = node.value("name", ""),
          .host = node.value("host", ""),
          .process_id = node.value("pid", 0),
          .step = node.value("step", uint64_t{0}),
          .doing = DoingText(node),
          .lines = LinesText(node),
          .silent_ms = node.value("silent_ms", int64_t{0}),
          .is_ready = node.value("health", "ready") == "ready"};
}

// Columns are as wide as their widest text.
std::string NodeLines(const std::vector<StatusNode>& nodes) {
  constexpr std::string_view kLines = "LINES";
  size_t doing_width = kDoingWidthMin, lines_width = kLines.size();
  for (const StatusNode& node : nodes) {
    doing_width = std::max(doing_width, node.doing.size());
    lines_width = std::max(lines_width, node.lines.size());
  }
  std::string text = fmt::format("{:<12} {:<20} {:>8} {:>10}  {:<{}} {:<{}} {}\n", "NODE", "HOST",
                                 "PID", "STEP", "DOING", doing_width, kLines, lines_width, "HEARD");
  for (const StatusNode& node : nodes) {
    text += fmt::format("{:<12} {:<20} {:>8} {:>10}  {:<{}} {:<{}} {} ms ago\n", node.name,
                        node.host, node.process_id, node.step, node.doing, doing_width, node.lines,
                        lines_width, node.silent_ms);
  }
  return text;
}

StatusFault ParseFault(const nlohmann::json& fault) {
  std::string text = fmt::format("{:<12} {} at step {}", fault.value("target", ""),
                                 fault.value("action", ""), fault.value("step", uint64_t{0}));
  const double detected_ms = Ms(fault, "detected_ms");
  const double recovered_ms = Ms(fault, "recovered_ms");
  if (detected_ms < 0) return {.text = text + ", not noticed yet"};
  text += fmt::format(", noticed by {}", fault.value("detected_by", ""));
  const double injected_ms = Ms(fault, "injected_ms");
  if (injected_ms >= 0) text += fmt::format(" after {:.0f} ms", detected_ms - injected_ms);
  if (recovered_ms < 0) return {.text = text + ", not recovered yet"};
  text += ", " + RecoveryText({.injected_ms = injected_ms,
                               .detected_ms = detected_ms,
                               .recovered_ms = recovered_ms});
  return {.text = text, .is_over = true};
}

std::string FaultLines(const std::vector<StatusFault>& faults) {
  if (faults.empty()) return "";
  const size_t left_out = faults.size() - std::min(faults.size(), kFaultLinesMax);
  std::string text =
      left_out == 0 ? "FAULTS\n" : fmt::format("FAULTS ({} earlier ones)\n", left_out);
  for (size_t i = left_out; i < faults.size(); ++i) text += faults[i].text + "\n";
  return text;
}

std::string WaitText(const nlohmann::json& status) {
  if (!status.contains("waiting_for")) return "";
  return fmt::format("{}: {}", status.value("phase", "") == "gathering" ? "here" : "waits",
                     status["waiting_for"].get<std::string>());
}

std::string StallText(const nlohmann::json& status) {
  const auto stall = status.find("stall");
  return stall == status.end() ? "" : stall->value("text", "");
}

std::string EvaluationText(const nlohmann::json& status) {
  const auto evaluation = status.find("evaluation");
  if (evaluation == status.end()) return "";
  const auto accuracy = evaluation->find("accuracy");
  return fmt::format(
      "evaluated: version {}, {}", evaluation->value("version", uint64_t{0}),
      accuracy != evaluation->end() && accuracy->is_number()
          ? fmt::format("{} accuracy {:.2f} %", evaluation->value("evaluated_on", "test"),
                        100 * accuracy->get<double>())
          : evaluation->value("text", ""));
}

std::string VerificationText(const nlohmann::json& status) {
  const auto verification = status.find("verification");
  if (verification == status.end()) return "";
  return fmt::format("verified: {} micro-batches computed twice, alike; {} not computed twice",
                     verification->value("agreed", uint64_t{0}),
                     verification->value("unverified", uint64_t{0}));
}

RunStatus MakeStatus(const nlohmann::json& answer) {
  RunStatus status{.model = answer.value("model", ""),
                   .dataset = answer.value("dataset", ""),
                   .phase = answer.value("phase", ""),
                   .step = answer.value("step", uint64_t{0}),
                   .step_count = answer.value("step_count", uint64_t{0}),
                   .view = answer.value("view", uint64_t{0}),
                   .clock_us = answer.value("clock_us", uint64_t{0}),
                   .waits = WaitText(answer),
                   .stall = StallText(answer),
                   .evaluated = EvaluationText(answer),
                   .verified = VerificationText(answer)};
  for (const nlohmann::json& node : answer["nodes"]) status.nodes.push_back(ParseNode(node));
  if (const auto faults = answer.find("faults"); faults != answer.end()) {
    for (const nlohmann::json& fault : *faults) status.faults.push_back(ParseFault(fault));
  }
  return status;
}

}  // namespace

std::optional<RunStatus> ParseStatus(const std::string& answer) {
  try {
    const nlohmann::json status = nlohmann::json::parse(answer);
    if (status.is_object() && status.contains("nodes")) return MakeStatus(status);
  } catch (const nlohmann::json::exception&) {
  }
  return std::nullopt;
}

std::optional<std::string> StatusTable(const std::string& answer) {
  const std::optional<RunStatus> status = ParseStatus(answer);
  if (!status) return std::nullopt;
  std::string text =
      fmt::format("{} on {}: {}, step {} of {}, view {}\n", status->model, status->dataset,
                  status->phase, status->step, status->step_count, status->view);
  if (!status->stall.empty()) text += status->stall + "\n";
  if (!status->waits.empty()) text += status->waits + "\n";
  text += NodeLines(status->nodes);
  for (const std::string& line : {status->evaluated, status->verified}) {
    if (!line.empty()) text += line + "\n";
  }
  text += FaultLines(status->faults);
  return Cleaned(text, LineEnds::kKept);  // JSON may have escaped what the codec lets through
}

}  // namespace pando
