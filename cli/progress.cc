#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace pando {
namespace {

constexpr int kBarWidth = 24;

std::string Bar(const ProgressState& state) {
  const double share = state.step_count == 0 ? 0
                                             : static_cast<double>(state.step) /
                                                   static_cast<double>(state.step_count);
  const int filled = std::clamp(static_cast<int>(share * kBarWidth), 0, kBarWidth);
  std::string bar;
  for (int i = 0; i < kBarWidth; ++i) bar += i < filled ? "━" : "╌";
  return bar;
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

std::string ProgressText(const ProgressState& state, std::chrono::seconds left) {
  std::string text =
      fmt::format("step {}/{} · epoch {:.2f} · loss {:.4f} · accuracy {:.1f} % · {} images/s",
                  state.step, state.step_count, state.epoch, state.loss, 100 * state.accuracy,
                  Grouped(state.images_per_second));
  if (state.step < state.step_count && left.count() > 0) {
    text += fmt::format(" · {} left", DurationText(left));
  }
  return text;
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
  const std::string text = ProgressText(state_, TimeLeft(first_state_, state_, now - start_));
  if (is_terminal_) {
    Write(fmt::format("\r\033[K{} {}", Bar(state_), text));
  } else {
    Write(text + "\n");
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
