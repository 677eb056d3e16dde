// ProgressLine: how far the run is, on standard error: a bar that is drawn over itself on a
// terminal, a plain line every few seconds elsewhere. Used by the scheduler process and the serial
// trainer.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace pando {

struct ProgressState {
  uint64_t step = 0;  // completed
  uint64_t step_count = 0;
  double epoch = 0;  // completed, with its fraction
  double loss = 0;
  double accuracy = 0;  // of the training batches, 0 to 1
  double images_per_second = 0;
  double exposed_sync_ms = 0;  // of a step: what computing waits for parameters; 0: it does not
};

// Threads: none.
class ProgressLine {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kTerminalInterval{100};
  static constexpr std::chrono::milliseconds kPlainInterval{5000};

  ProgressLine();  // to standard error
  // To any descriptor, which the caller keeps open.
  ProgressLine(int fd, bool is_terminal);

  // Cheap: call it after every step. Draws when the last drawing is old enough.
  void Update(const ProgressState& state, TimePoint now);
  // A separate line above the bar.
  void Note(std::string_view text);
  // Draws the last state and leaves the line. No bar after that until the next Update.
  void Finish();

 private:
  void Draw(TimePoint now);
  void Write(std::string_view text);

  int fd_;
  bool is_terminal_;
  bool is_bar_shown_ = false;
  bool is_started_ = false;
  ProgressState state_;
  ProgressState first_state_;
  ProgressState drawn_state_;
  TimePoint start_{};
  TimePoint drawn_at_{};
  TimePoint updated_at_{};
};

// The bar and the text in at most `columns` characters: the bar shrinks, then the epoch goes, then
// the bar, then the end of the text.
std::string ProgressBarText(const ProgressState& state, std::chrono::seconds left, size_t columns);

// "step 120/1407 · epoch 0.26 · loss 0.4312 · accuracy 87.9 % · 31,200 images/s · 0:41 left".
std::string ProgressText(const ProgressState& state, std::chrono::seconds left,
                         bool has_epoch = true);

}  // namespace pando
