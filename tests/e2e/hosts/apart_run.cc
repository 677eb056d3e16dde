#include "tests/e2e/hosts/apart_run.h"

#include <csignal>

namespace pando {
namespace {

namespace fs = std::filesystem;

// Beside other tests, a run with faults is slow.
constexpr auto kEndDeadline = 5 * kEventDeadline;

size_t CountIn(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) ++count;
  return count;
}

}  // namespace

ApartRun::ApartRun(Keys keys)
    : scheduler_host_(network_.AddHost()),
      endpoint_("tcp://" + network_.HostAddress(scheduler_host_) + ":7070") {
  if (keys == Keys::kOwn) keys_ = std::make_unique<KeyFolders>(folder());
}

void ApartRun::Begin(const Args& job) {
  scheduler_ = Start(scheduler_host_, "scheduler",
                     Args{"scheduler", "--bind", endpoint_, "--run-dir", run_dir()} +
                         (keys_ ? KeyFlags(keys_->scheduler) : Args{"--insecure"}) + job);
}

Args ApartRun::KeyFlags(const std::string& folder) const {
  return keys_ ? Args{"--keys", folder} : Args{};
}

std::unique_ptr<Process> ApartRun::Start(HostId host, const std::string& name, const Args& args) {
  const std::string unique = name + "-" + std::to_string(process_count_++);
  return std::make_unique<Process>(folder(), unique, args, network_.Through(host));
}

void ApartRun::Add(const Args& command) {
  machines_.push_back({command, HostId(), nullptr});
  Replace(machines_.size() - 1);
}

void ApartRun::Lose(size_t machine) {
  network_.LoseHost(machines_[machine].host);
  machines_[machine].process->Await();
}

void ApartRun::Replace(size_t machine) {
  Machine& replaced = machines_[machine];
  replaced.host = network_.AddHost(folder());
  if (keys_) {
    const fs::path copy = network_.PathOn(replaced.host, keys_->member);
    fs::create_directory(copy);
    for (const auto& entry : fs::directory_iterator(keys_->member))
      fs::copy_file(entry.path(), copy / entry.path().filename());
  }
  StartProcess(machine);
}

void ApartRun::StartProcess(size_t machine) {
  Machine& started = machines_[machine];
  Args args = started.command + Args{"--join", endpoint_};
  if (keys_) {
    args = args + KeyFlags(keys_->member);
  } else if (args[0] != "worker") {
    args.push_back("--insecure");
  }
  started.process = Start(started.host, "machine-" + std::to_string(machine), args);
}

void ApartRun::KillScheduler() {
  scheduler_->Signal(SIGKILL);
  scheduler_->Await();
}

void ApartRun::StartSchedulerAgain() {
  scheduler_ = Start(scheduler_host_, "scheduler",
                     Args{"scheduler", run_dir() + "/job.toml", "--bind", endpoint_} +
                         (keys_ ? KeyFlags(keys_->scheduler) : Args{"--insecure"}));
}

void ApartRun::Await(const std::function<bool()>& condition, const std::string& name) {
  const bool has_ended = !Becomes([&] { return condition() || !scheduler_->is_running(); });
  INFO("waited for " << name << "\n" << scheduler_->err());
  REQUIRE_FALSE(has_ended);
  REQUIRE(condition());
}

void ApartRun::AwaitSteps(size_t count) {
  Await([&] { return RowCountIn(run_dir()) >= count; }, "step " + std::to_string(count));
}

void ApartRun::AwaitEvents(const std::string& event, size_t count) {
  Await([&] { return EventCount(event) >= count; }, event);
}

size_t ApartRun::EventCount(const std::string& event) const {
  return CountIn(Events(), R"("event":")" + event + '"');
}

void ApartRun::CheckApart() const {
  REQUIRE(fs::exists(run_dir() + "/job.toml"));
  for (const Machine& machine : machines_) {
    std::vector<pid_t> pids{machine.process->pid()};
    for (const auto& [role, children] : ChildrenByRole(machine.process->pid()))
      pids.insert(pids.end(), children.begin(), children.end());
    for (const pid_t pid : pids) {
      const std::string root = "/proc/" + std::to_string(pid) + "/root";
      CHECK_FALSE(fs::exists(root + run_dir()));
      if (keys_) CHECK(fs::exists(root + keys_->member + "/member.key"));
    }
  }
}

std::set<std::string> ApartRun::FilesOn(const Machine& machine) const {
  std::set<std::string> files;
  const fs::path disk = network_.PathOn(machine.host, folder());
  for (const auto& entry : fs::recursive_directory_iterator(disk))
    files.insert(entry.path().lexically_relative(disk));
  return files;
}

Summary ApartRun::CheckEnd(const std::string& hash) {
  scheduler_->Await(kEndDeadline);
  INFO(scheduler_->err());
  CHECK(scheduler_->exit_code() == kExitCompleted);
  Summary summary = SummaryIn(run_dir());
  CHECK(summary.status == kStatusCompleted);
  CHECK(summary.weights_hash == hash);
  std::set<std::string> expected;
  if (keys_) expected = {"keys-member", "keys-member/admin.pub", "keys-member/member.key"};
  for (const Machine& machine : machines_) {
    machine.process->Await();
    CHECK_MESSAGE(machine.process->exit_code() == kExitCompleted, machine.process->err());
    CHECK(FilesOn(machine) == expected);
  }
  CHECK(household_.Living().empty());
  return summary;
}

std::string SerialHashFor(const Args& job) {
  TempFolder temp;
  const std::string run_dir = temp.path() + "/run";
  Process serial(temp.path(), "serial", Args{"train", "--serial", "--run-dir", run_dir} + job);
  serial.Await(kEndDeadline);
  REQUIRE_MESSAGE(serial.exit_code() == kExitCompleted, serial.err());
  return SummaryIn(run_dir).weights_hash;
}

}  // namespace pando
