#include "node/programs/log_follower.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <utility>

#include "common/output.h"

namespace pando {
namespace {

constexpr int kLookIntervalMs = 100;
constexpr size_t kLineBytesMax = 4096;  // a longer line is shown in parts

// On a terminal the line replaces the progress line, which is then drawn again.
void ShowLine(const std::string& title, const std::string& line) {
  static const bool kIsTerminal = isatty(STDERR_FILENO) != 0;
  Say("{}[{}] {}\n", kIsTerminal ? "\r\x1b[K" : "", title, line);
}

// Recognises "13:56:48.142 info [worker 0] ...", as node/log.cc writes it.
bool IsNote(std::string_view line) {
  constexpr std::string_view kForm = "00:00:00.000 ";
  if (line.size() < kForm.size()) return false;
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(line[i])) != 0;
    if (kForm[i] == '0' ? !is_digit : line[i] != kForm[i]) return false;
  }
  const std::string_view rest = line.substr(kForm.size());
  const bool is_cause =
      rest.find("the run has failed") != std::string_view::npos;  // pando shows it anyway
  return rest.starts_with("info [") || rest.starts_with("debug [") || is_cause;
}

}  // namespace

LogFollower::LogFollower(std::vector<Log> logs) {
  for (Log& log : logs) {
    std::error_code none;
    const uintmax_t size = std::filesystem::file_size(log.path, none);  // written by an earlier run
    logs_.push_back({{std::move(log)}, none ? 0 : size, ""});
  }
  thread_ = std::thread([this] { Run(); });
}

LogFollower::~LogFollower() {
  stop_.Request();
  thread_.join();
}

void LogFollower::Run() {
  bool is_last = false;
  while (!is_last) {
    pollfd stopped{stop_.fd(), POLLIN, 0};
    poll(&stopped, 1, kLookIntervalMs);
    is_last = stop_.is_requested();
    for (Followed& log : logs_) Show(log);
  }
  for (const Followed& log : logs_) {
    if (!log.rest.empty()) ShowLine(log.title, log.rest);
  }
}

void LogFollower::Show(Followed& log) {
  const UniqueFd file(open(log.path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 16384> bytes{};
  while (file.is_open()) {
    const ssize_t count =
        pread(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(log.read_bytes));
    if (count <= 0) return;
    log.read_bytes += static_cast<uint64_t>(count);
    log.rest.append(bytes.data(), static_cast<size_t>(count));
    size_t end = 0;
    while ((end = std::min(log.rest.find('\n'), kLineBytesMax)) < log.rest.size()) {
      std::string line = log.rest.substr(0, end);
      log.rest.erase(0, end + (log.rest[end] == '\n' ? 1 : 0));
      while (line.ends_with('\r')) line.pop_back();
      line.erase(0, line.rfind('\r') + 1);  // keeps the last state of a progress bar
      if (!IsNote(line)) ShowLine(log.title, line);
    }
  }
}

}  // namespace pando
