#include "cli/status_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/text.h"
#include "run/summary.h"

namespace pando {
namespace {

constexpr size_t kFaultLinesMax = 10;  // the newest faults are shown
constexpr size_t kDoingWidthMin = 40;  // usually enough, so that repeated tables look alike

// Returns the transports of payloads to the lanes to which the node is connected: "shm 2", "shm 1,
// tcp 1". Without servers it returns the lines of the group, by gloo or NCCL: "group 3".
std::string LinesText(const RunStatus::Lines& lines) {
  std::string text;
  const auto add = [&](const char* kind, const std::optional<uint32_t>& count) {
    if (count.value_or(0) > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kind, *count);
  };
  add("shm", lines.shm);
  add("ipc", lines.ipc);
  add("tcp", lines.tcp);
  add("group", lines.group);
  return text;
}

// Returns the table of processes. Columns are as wide as their widest text.
std::string NodeLines(const std::vector<RunStatus::Node>& nodes) {
  std::vector<std::string> doing{"DOING"}, lines{"LINES"};
  for (const RunStatus::Node& node : nodes) {
    doing.push_back(DoingText(node));
    lines.push_back(LinesText(node.lines.value_or(RunStatus::Lines())));
  }
  const size_t doing_width =
      std::max(kDoingWidthMin, std::ranges::max(doing, {}, &std::string::size).size());
  const size_t lines_width = std::ranges::max(lines, {}, &std::string::size).size();
  std::string text =
      fmt::format("{:<12} {:<20} {:>8} {:>10}  {:<{}} {:<{}} {}\n", "NODE", "HOST", "PID", "STEP",
                  doing[0], doing_width, lines[0], lines_width, "HEARD");
  for (size_t i = 0; i < nodes.size(); ++i) {
    const RunStatus::Node& node = nodes[i];
    text += fmt::format("{:<12} {:<20} {:>8} {:>10}  {:<{}} {:<{}} {} ms ago\n", node.name,
                        node.host, node.pid, node.step, doing[i + 1], doing_width, lines[i + 1],
                        lines_width, node.silent_ms);
  }
  return text;
}

std::string FaultLines(const RunStatus& status) {
  if (status.faults.empty()) return "";
  const size_t shown = std::min(status.faults.size(), kFaultLinesMax);
  std::string text = status.fault_count <= shown
                         ? "FAULTS\n"
                         : fmt::format("FAULTS ({} earlier ones)\n", status.fault_count - shown);
  for (auto fault = status.faults.end() - static_cast<ptrdiff_t>(shown);
       fault != status.faults.end(); ++fault)
    text += FaultText(*fault) + "\n";
  return text;
}

// "schedulers: tcp://a:7070 leads, tcp://b:7070 may lead".
std::string SchedulersText(const RunStatus& status) {
  if (!status.schedulers) return "";
  std::string text;
  for (const auto& [endpoint, state] : *status.schedulers)
    text += fmt::format("{}{} {}", text.empty() ? "schedulers: " : ", ", endpoint, state);
  return text;
}

std::string VerifiedText(const RunStatus& status) {
  if (!status.verification) return "";
  return fmt::format("verified: {} micro-batches computed twice, alike; {} not computed twice",
                     status.verification->agreed, status.verification->unverified);
}

}  // namespace

std::string DoingText(const RunStatus::Node& node) {
  std::string doing = node.activity;
  if (node.health != "ready") doing = node.health + ", " + doing;
  if (node.waiting_for) doing += " from " + *node.waiting_for;
  if (node.waiting_ms) doing += fmt::format(" for {} ms", *node.waiting_ms);
  if (const uint64_t us = node.micro_batch_us.value_or(0); us > 0)
    doing += fmt::format("; {:.1f} ms a micro-batch", static_cast<double>(us) / 1000);
  return doing;
}

std::string FaultText(const FaultRecord& fault) {
  std::string text = fmt::format("{:<4} {:<12} {} at step {}", fault.id, fault.target, fault.action,
                                 fault.step.value());
  if (fault.detected_ms < 0) return text + ", not noticed yet";
  text += fmt::format(", noticed by {}", fault.detected_by);
  if (fault.injected_ms >= 0)
    text += fmt::format(" after {:.0f} ms", fault.detected_ms - fault.injected_ms);
  return text + ", " + (fault.recovered_ms < 0 ? "not recovered yet" : RecoveryText(fault));
}

std::string WaitText(const RunStatus& status) {
  if (!status.waiting_for) return "";
  return (status.phase == "gathering" ? "here: " : "waits: ") + *status.waiting_for;
}

std::string EvaluatedText(const RunStatus& status) {
  if (!status.evaluation) return "";
  const RunStatus::Evaluation& newest = *status.evaluation;
  return fmt::format(
      "evaluated: version {}, {}", newest.version.value(),
      std::isnan(newest.accuracy)
          ? newest.text
          : fmt::format("{} accuracy {:.2f} %", newest.evaluated_on, 100 * newest.accuracy));
}

std::string StatusTable(const RunStatus& status) {
  std::string text =
      fmt::format("{} on {}: {}, step {} of {}, view {}\n", status.model, status.dataset,
                  status.phase, status.step, status.step_count, status.view);
  const auto add = [&](const std::string& line) {
    if (!line.empty()) text += line + "\n";
  };
  if (status.stall) add(status.stall->text);
  add(WaitText(status));
  add(SchedulersText(status));
  text += NodeLines(status.nodes);
  add(EvaluatedText(status));
  add(VerifiedText(status));
  text += FaultLines(status);
  return Cleaned(text, LineEnds::kKept);  // JSON may have escaped characters that the codec accepts
}

}  // namespace pando
