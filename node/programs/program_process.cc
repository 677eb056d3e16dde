#include "node/programs/program_process.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "common/atomic_file.h"
#include "common/hash.h"
#include "common/output.h"
#include "common/system.h"

namespace pando {
namespace {

constexpr uint32_t kPreloadRestartsMax = 5;
constexpr std::string_view kRefusal = "no ";

std::string EncodeRequest(const ProcessSpec& worker, uint64_t key) {
  std::string text = worker.log_path;
  for (const std::string& variable : worker.variables) text += '\0' + variable;
  return text + '\0' + fmt::format("{}={}", kProcessKeyVariable, HexText(key));
}

ProcessSpec WithProgram(const WorkerProgram& program, ProcessSpec spec) {
  spec.program = program.command[0];
  spec.args.assign(program.command.begin() + 1, program.command.end());
  spec.variables.insert(spec.variables.end(), program.variables.begin(), program.variables.end());
  return spec;
}

}  // namespace

void RunProgram(const WorkerProgram& program, const std::string& endpoint,
                std::optional<uint32_t> rank, ProcessSpec* spec) {
  *spec = WithProgram(program, std::move(*spec));
  spec->variables.push_back("PANDO_SCHEDULER=" + endpoint);
  spec->variables.push_back("PANDO_RANK=" + (rank ? std::to_string(*rank) : std::string()));
  spec->is_forked = program.is_preloaded;
}

ProcessSpec PreloadedSpec(const WorkerProgram& program, ProcessSpec spec) {
  spec.name = kPreloadedName;
  spec.title = "the preloaded process";
  return WithProgram(program, std::move(spec));
}

Preload::Preload(ProcessGroup& group, ProcessSpec spec)
    : group_(group), spec_(std::move(spec)), policy_(kPreloadRestartsMax) {
  group_.BecomeReaper();
}

Status Preload::Start() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return FileError("open", "a pair of sockets", errno);
  line_ = UniqueFd(ends[0]);
  const UniqueFd other(ends[1]);
  ProcessSpec spec = spec_;
  spec.inherited_fd = other.get();
  spec.variables.push_back(fmt::format("PANDO_PRELOAD={}", other.get()));
  policy_.OnStart(std::chrono::steady_clock::now());
  return group_.Start(spec);
}

Status Preload::StartWorker(const ProcessSpec& worker) {
  const uint64_t key = NewIncarnation().value();
  const std::string request = EncodeRequest(worker, key);
  if (!line_.is_open() || send(line_.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0)
    return group_.Start(worker);
  open_.push_back({worker, key});
  return Status();
}

Status Preload::Look(TimePoint now) {
  Status status;
  std::array<char, 4096> packet{};
  while (line_.is_open() && status.ok()) {
    const ssize_t size = recv(line_.get(), packet.data(), packet.size(), MSG_DONTWAIT);
    if (size < 0) break;
    if (size == 0) line_ = UniqueFd();  // the process has ended
    if (size > 0) status = OnAnswer({packet.data(), static_cast<size_t>(size)});
  }
  if (!line_.is_open() && status.ok()) status = StartOpen();
  if (now < start_at_) return status;
  start_at_ = TimePoint::max();
  const Status started = Start();
  return status.ok() ? started : status;
}

Status Preload::OnAnswer(std::string_view answer) {
  if (answer.starts_with(kRefusal)) {
    Say("pando: --preload: workers are started, not forked: {}\n", answer.substr(kRefusal.size()));
    Retire();
    return Status();
  }
  if (open_.empty()) return Status();
  const Request request = std::move(open_.front());
  open_.pop_front();
  const auto pid = static_cast<pid_t>(std::atoi(std::string(answer).c_str()));
  if (group_.Adopt(request.worker, pid, request.key).ok()) return Status();
  return group_.Start(request.worker);  // it died before its answer arrived
}

Status Preload::StartOpen() {
  while (!open_.empty()) {
    const Request request = std::move(open_.front());
    open_.pop_front();
    PANDO_RETURN_IF_ERROR(group_.Start(request.worker));
  }
  return Status();
}

bool Preload::OnExit(const ProcessExit& exit) {
  if (exit.spec.name != spec_.name) return false;
  line_ = UniqueFd();
  if (is_retired_) return true;
  const auto now = std::chrono::steady_clock::now();
  start_at_ = policy_.OnDeath(now, ExitKind::kOther).value_or(TimePoint::max());
  Say("pando: --preload: the preloaded process ended with {}; workers are started without it{}{}\n",
      ExitText(exit), start_at_ == TimePoint::max() ? "" : " until it is back",
      spec_.log_path.empty() ? "" : "; its log is " + spec_.log_path);
  return true;
}

void Preload::Retire() {
  is_retired_ = true;
  line_ = UniqueFd();
  start_at_ = TimePoint::max();
}

}  // namespace pando
