// `pando status`: who is there and what each one is doing.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/exit_codes.h"
#include "cli/processes.h"
#include "net/client.h"
#include "net/clock.h"

namespace pando {
namespace {

std::string NodeLine(const nlohmann::json& node) {
  std::string doing = node.value("activity", "unknown");
  if (node.contains("waiting_for")) {
    doing += fmt::format(" from {} for {} ms", node["waiting_for"].get<std::string>(),
                         node.value("waiting_ms", uint64_t{0}));
  }
  return fmt::format("{:<12} {:<20} {:>8} {:>10}  {:<40} {} ms ago\n", node.value("name", ""),
                     node.value("host", ""), node.value("pid", 0), node.value("step", uint64_t{0}),
                     doing, node.value("silent_ms", int64_t{0}));
}

std::string TableOf(const nlohmann::json& status) {
  std::string text = fmt::format(
      "{} on {}: {}, step {} of {}, view {}\n", status.value("model", ""),
      status.value("dataset", ""), status.value("phase", ""), status.value("step", uint64_t{0}),
      status.value("step_count", uint64_t{0}), status.value("view", uint64_t{0}));
  if (status.contains("waiting_for"))
    text += fmt::format("here: {}\n", status["waiting_for"].get<std::string>());
  text += fmt::format("{:<12} {:<20} {:>8} {:>10}  {:<40} {}\n", "NODE", "HOST", "PID", "STEP",
                      "DOING", "HEARD");
  for (const nlohmann::json& node : status["nodes"]) text += NodeLine(node);
  return text;
}

// None where the answer is not what a scheduler of this version says.
std::optional<std::string> ReadStatus(const std::string& answer) {
  try {
    const nlohmann::json status = nlohmann::json::parse(answer);
    if (status.is_object() && status.contains("nodes")) return TableOf(status);
  } catch (const nlohmann::json::exception&) {
  }
  return std::nullopt;
}

}  // namespace

int RunStatus(const StatusArgs& args) {
  ZmqContext context;
  const Micros deadline = SteadyNow() + std::chrono::milliseconds(args.start_timeout_ms);
  const Result<std::string> answer = RequestStatus(context, args.join, deadline);
  if (!answer.ok()) {
    spdlog::error("{}", answer.status().message());
    return ExitCodeOf(answer.status());
  }
  const std::optional<std::string> table = ReadStatus(*answer);
  if (!table) {
    spdlog::error("the answer from {} is not a status; is it another version of pando?", args.join);
    return kExitFailed;
  }
  fmt::print("{}", args.json ? *answer + "\n" : *table);
  return kExitCompleted;
}

}  // namespace pando
