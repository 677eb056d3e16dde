// TopScreen: the screen of `pando top`, which shows the state of a run as lines of a terminal.
// top_command uses it; it requests the status, draws the lines and reads keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/status_table.h"
#include "run/output/metrics_file.h"
#include "run/summary.h"

namespace pando {

enum class TopStyle : uint8_t { kPlain, kTitle, kHeading, kChosen, kWarning, kError };

struct TopLine {
  std::string text;  // printable ASCII: foreign text cannot move the cursor
  TopStyle style = TopStyle::kPlain;
};

struct TopSize {
  size_t rows = 0;
  size_t columns = 0;
};

// Threads: none.
class TopScreen {
 public:
  static constexpr double kSilenceShownSeconds = 2;
  static constexpr TopSize kSizeMin{.rows = 8, .columns = 48};  // fits one process, and the keys
  static bool IsEnough(TopSize size) {
    return size.rows >= kSizeMin.rows && size.columns >= kSizeMin.columns;
  }
  static std::string SizeText(TopSize size);  // for a terminal that is too small

  // `run` is the run's folder, or its scheduler's endpoint.
  explicit TopScreen(std::string run) : run_(std::move(run)) {}

  // Takes a scheduler's answer. Returns false, and changes nothing, if no scheduler of this version
  // sends such an answer.
  bool TakeStatus(const std::string& answer);
  // Takes the newest row of metrics.csv.
  void TakeRow(const std::optional<MetricsRow>& row) { row_ = row; }
  // Takes the time for which the scheduler has not answered, and the reason or what to do.
  void TakeSilence(double seconds, const std::string& reason);
  // Shows that the run has ended, until the next answer, since `pando resume` continues the run.
  void TakeEnd(const Summary& summary);
  // Takes a question to the user, or the scheduler's reply to an order.
  void TakeNotice(const std::string& notice) { notice_ = notice; }

  // Moves the choice down by `rows`, or up if they are negative.
  void MoveChoice(int rows);
  // Returns the chosen process's name; empty if there is none.
  std::string chosen() const;

  // Returns as many lines as the screen has rows, none of them wider than it. A screen that is too
  // small shows only this fact.
  std::vector<TopLine> Draw(TopSize size) const;

 private:
  struct Look {
    uint64_t clock_us = 0;
    uint64_t step = 0;
  };
  static constexpr size_t kLooksMax = 20;  // 10 s

  void TakeLook(Look look);
  std::string ProgressText() const;
  std::string LearningText() const;
  std::vector<TopLine> HeadLines() const;
  void AddNodes(size_t rows, std::vector<TopLine>* lines) const;

  const std::string run_;
  std::optional<RunStatus> status_;  // the last answer
  std::optional<MetricsRow> row_;
  std::deque<Look> looks_;  // the newest answers, for the rate of steps
  std::string silence_;     // empty: the scheduler answers
  std::string end_;         // empty: the run has not ended
  size_t doing_width_ = 0;  // the widest text so far, so that columns right of it stay in place
  std::string notice_;
  size_t chosen_ = 0;  // the row of the chosen process; in range if there are processes
};

}  // namespace pando
