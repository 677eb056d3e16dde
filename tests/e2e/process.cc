#include "tests/e2e/process.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace pando {
namespace {

constexpr int kExecFailed = 127;
constexpr int kLookEveryMs = 5;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int MillisecondsTo(TestClock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - TestClock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

// "VmHWM:    123456 kB" of /proc/PID/status.
uint64_t StatusBytes(pid_t pid, const std::string& key) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; status >> word;) {
    uint64_t kilobytes = 0;
    if (word == key && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

// Field 3 (state) and 4 (parent) of /proc/PID/stat; the name before them may hold anything.
struct ProcessState {
  char state = 'X';
  pid_t parent = 0;
};
ProcessState ReadState(pid_t pid) {
  const std::string text = ReadAll("/proc/" + std::to_string(pid) + "/stat");
  ProcessState state;
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return state;
  std::istringstream(text.substr(name_end + 1)) >> state.state >> state.parent;
  return state;
}

}  // namespace

std::string PandoProgram() {
  const char* program = std::getenv("PANDO_PROGRAM");
  REQUIRE_MESSAGE(program != nullptr, "run it through meson test, which sets PANDO_PROGRAM");
  return program;
}

Process::Process(const std::string& folder, const std::string& name, const Args& args,
                 const Args& through)
    : out_path_(folder + "/" + name + ".out"), err_path_(folder + "/" + name + ".err") {
  std::vector<std::string> words = through;
  words.push_back(PandoProgram());
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  const UniqueFd out(open(out_path_.c_str(), kFlags, 0644));
  const UniqueFd err(open(err_path_.c_str(), kFlags, 0644));
  REQUIRE((out.is_open() && err.is_open()));
  started_at_ = TestClock::now();
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kExecFailed);
    setpgid(0, 0);
    // As at a terminal, also where the tests run behind nohup or `&`.
    for (const int signal : {SIGINT, SIGHUP}) ::signal(signal, SIG_DFL);
    dup2(out.get(), STDOUT_FILENO);
    dup2(err.get(), STDERR_FILENO);
    execvp(argv[0], argv.data());
    _exit(kExecFailed);
  }
  REQUIRE(pid_ > 0);
  setpgid(pid_, pid_);  // here too: a signal to the group may come before the child has run
  pid_fd_ = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  REQUIRE(pid_fd_.is_open());
}

Process::~Process() {
  if (has_ended_) return;
  kill(pid_, SIGKILL);
  Reap(0);
}

void Process::Reap(int options) {
  rusage usage{};
  if (has_ended_ || wait4(pid_, &wait_status_, options, &usage) != pid_) return;
  has_ended_ = true;
  ended_at_ = TestClock::now();
  peak_memory_bytes_ = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

bool Process::is_running() {
  Reap(WNOHANG);
  return !has_ended_;
}

void Process::Signal(int signal) const {
  if (!has_ended_) kill(pid_, signal);
}

void Process::SignalGroup(int signal) const {
  if (!has_ended_) kill(-pid_, signal);
}

void Process::Await(std::chrono::milliseconds within) {
  const auto deadline = TestClock::now() + within;
  while (is_running() && TestClock::now() < deadline) {
    pollfd ended{pid_fd_.get(), POLLIN, 0};
    poll(&ended, 1, MillisecondsTo(deadline));
  }
  REQUIRE_MESSAGE(has_ended_, "still running after " << within.count() << " ms:\n" << err());
}

int Process::exit_code() const {
  REQUIRE(has_ended_);
  return WIFSIGNALED(wait_status_) ? 128 + WTERMSIG(wait_status_) : WEXITSTATUS(wait_status_);
}

std::string Process::out() const { return ReadAll(out_path_); }
std::string Process::err() const { return ReadAll(err_path_); }

std::vector<std::string> Process::err_lines() const {
  std::vector<std::string> lines;
  std::istringstream text(err());
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

bool Becomes(const std::function<bool()>& condition, std::chrono::milliseconds within) {
  const auto deadline = TestClock::now() + within;
  while (!condition()) {
    if (TestClock::now() >= deadline) return false;
    poll(nullptr, 0, kLookEveryMs);
  }
  return true;
}

std::map<std::string, std::vector<pid_t>> ChildrenByRole(pid_t parent) {
  std::map<std::string, std::vector<pid_t>> children;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid == 0 || ReadState(pid).parent != parent) continue;
    const std::string words = ReadAll(entry.path() / "cmdline");  // each ends with a NUL
    const size_t role = words.find('\0') + 1;
    if (role < words.size()) children[words.c_str() + role].push_back(pid);
  }
  return children;
}

bool IsGone(pid_t pid) {
  const char state = ReadState(pid).state;
  return state == 'X' || state == 'Z';
}

uint64_t PeakMemoryBytes(pid_t pid) { return StatusBytes(pid, "VmHWM:"); }
uint64_t ResidentBytes(pid_t pid) { return StatusBytes(pid, "VmRSS:"); }

uint64_t BytesAfter(const std::string& log, const std::string& word) {
  const size_t at = log.find(word);
  return at == std::string::npos ? 0 : std::strtoull(log.c_str() + at + word.size(), nullptr, 10);
}

}  // namespace pando
