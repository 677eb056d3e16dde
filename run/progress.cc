#include "run/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace pando {
namespace {

constexpr size_t kBarWidthMax = 24;
constexpr size_t kBarWidthMin = 6;
constexpr size_t kColumnsUnknown = 120;

std::string Bar(const ProgressState& state, size_t width) {
  const double share = state.step_count == 0 ? 0
                                             : static_cast<double>(state.step) /
                                                   static_cast<double>(state.step_count);
  const auto filled = static_cast<size_t>(share * static_cast<double>(width));
  std::string bar;
  for (size_t i = 0; i < width; ++i) bar += i < filled ? "━" : "╌";
  return bar;
}

bool StartsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

// Characters of UTF-8, all of them one column wide here.
size_t Columns(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), StartsCharacter));
}

std::string Cut(const std::string& text, size_t columns) {
  std::string cut;
  size_t count = 0;
  for (char byte : text) {
    if (StartsCharacter(byte) && ++count > columns) break;
    cut += byte;
  }
  return cut;
}

size_t TerminalColumns(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kColumnsUnknown;
}

// 31200 -> "31,200".
std::string Grouped(double value) {
  std::string digits = fmt::format("{:.0f}", std::max(value, 0.0));
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string DurationText(std::chrono::seconds duration) {
  const auto s = duration.count();
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

// At the pace since the first update.
std::chrono::seconds TimeLeft(const ProgressState& first, const ProgressState& state,
                              std::chrono::duration<double> elapsed) {
  const uint64_t done = state.step - std::min(first.step, state.step);
  const uint64_t left = state.step_count - std::min(state.step, state.step_count);
  if (done == 0) return std::chrono::seconds(0);
  const double seconds = elapsed.count() / static_cast<double>(done) * static_cast<double>(left);
  return std::chrono::seconds(static_cast<int64_t>(seconds + 0.5));
}

}  // namespace

std::string ProgressText(const ProgressState& state, std::chrono::seconds left, bool has_epoch) {
  std::string text = fmt::format("step {}/{}", state.step, state.step_count);
  if (has_epoch) text += fmt::format(" · epoch {:.2f}", state.epoch);
  text += fmt::format(" · loss {:.4f} · accuracy {:.1f} % · {} images/s", state.loss,
                      100 * state.accuracy, Grouped(state.images_per_second));
  if (state.exposed_sync_ms > 0)
    text += fmt::format(" · exposed sync {:.1f} ms", state.exposed_sync_ms);
  if (state.step < state.step_count && left.count() > 0) {
    text += fmt::format(" · {} left", DurationText(left));
  }
  return text;
}

std::string ProgressBarText(const ProgressState& state, std::chrono::seconds left, size_t columns) {
  std::string text;
  for (bool has_epoch : {true, false}) {
    text = ProgressText(state, left, has_epoch);
    const size_t used = Columns(text) + 1;
    if (used + kBarWidthMin > columns) continue;
    return Bar(state, std::min(kBarWidthMax, columns - used)) + " " + text;
  }
  return Cut(text, columns);
}

ProgressLine::ProgressLine() : ProgressLine(STDERR_FILENO, isatty(STDERR_FILENO) == 1) {}

ProgressLine::ProgressLine(int fd, bool is_terminal) : fd_(fd), is_terminal_(is_terminal) {}

void ProgressLine::Update(const ProgressState& state, TimePoint now) {
  if (!is_started_) {
    is_started_ = true;
    first_state_ = state;
    start_ = now;
    drawn_at_ = now;
  }
  state_ = state;
  updated_at_ = now;
  if (now - drawn_at_ >= (is_terminal_ ? kTerminalInterval : kPlainInterval)) Draw(now);
}

void ProgressLine::Draw(TimePoint now) {
  const std::chrono::seconds left = TimeLeft(first_state_, state_, now - start_);
  if (is_terminal_) {
    Write("\r\033[K" + ProgressBarText(state_, left, TerminalColumns(fd_)));
  } else {
    Write(ProgressText(state_, left) + "\n");
  }
  is_bar_shown_ = is_terminal_;
  drawn_state_ = state_;
  drawn_at_ = now;
}

void ProgressLine::Note(std::string_view text) {
  Write(fmt::format("{}{}\n", is_terminal_ ? "\r\033[K" : "", text));
  if (is_bar_shown_) Draw(updated_at_);
}

void ProgressLine::Finish() {
  if (is_started_ && (is_bar_shown_ || drawn_state_.step != state_.step)) Draw(updated_at_);
  if (is_bar_shown_) Write("\n");
  is_bar_shown_ = false;
  is_started_ = false;
}

// A closed or full terminal must not stop the run, so errors are dropped.
void ProgressLine::Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd_, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace pando
