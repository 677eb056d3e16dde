#include "cli/watch/top_screen.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace pando {
namespace {

constexpr size_t kFootLines = 2;  // the notice, and the keys
constexpr size_t kFaultLines =
    5;  // a blank line, a heading and three faults; more if there is room
constexpr size_t kNodesMin = 3;
constexpr size_t kDoingWidthMax = 100;
// The columns of the table of processes.
constexpr const char* kColumns = "{:<12} {:>10} {:>8}  {:<{}}  {:<20} {:>8}";

// Cuts the text to `columns` cells, one per character. All except printable ASCII become question
// marks: their widths are not known, and they could control the terminal.
std::string Fit(const std::string& text, size_t columns) {
  std::string fitting;
  for (const char c : text) {
    if (fitting.size() == columns) break;
    const auto byte = static_cast<unsigned char>(c);
    const bool is_inside_character = (byte & 0xc0) == 0x80;  // of UTF-8
    if (!is_inside_character) fitting += byte >= 0x20 && byte < 0x7f ? c : '?';
  }
  return fitting;
}

}  // namespace

bool TopScreen::TakeStatus(const std::string& answer) {
  Result<RunStatus> status = ParseStatus(answer);
  if (!status.ok()) return false;
  const std::vector<RunStatus::Node>& nodes = status->nodes;
  const auto same = std::ranges::find(nodes, chosen(), &RunStatus::Node::name);
  if (same != nodes.end()) chosen_ = static_cast<size_t>(same - nodes.begin());
  TakeLook({.clock_us = status->clock_us.value_or(0), .step = status->step});
  for (const RunStatus::Node& node : nodes)
    doing_width_ = std::max(doing_width_, std::min(DoingText(node).size(), kDoingWidthMax));
  status_ = *std::move(status);
  end_.clear();
  MoveChoice(0);
  return true;
}

// Adds a look. After a rollback, or on another machine's clock, the rate starts again.
void TopScreen::TakeLook(Look look) {
  if (!looks_.empty()) {
    if (look.clock_us == looks_.back().clock_us) return;
    if (look.clock_us < looks_.back().clock_us || look.step < looks_.back().step) looks_.clear();
  }
  looks_.push_back(look);
  if (looks_.size() > kLooksMax) looks_.pop_front();
}

void TopScreen::TakeSilence(double seconds, const std::string& reason) {
  silence_ = seconds < kSilenceShownSeconds
                 ? ""
                 : fmt::format("no answer for {:.0f} s: {}", seconds, reason);
}

void TopScreen::TakeEnd(const Summary& summary) {
  end_ = fmt::format("the run has ended: {} after {} steps", summary.status, summary.steps);
  if (!summary.failure.empty()) end_ += ": " + summary.failure;
  looks_.clear();
  if (!status_) return;
  status_->phase = "ended";
  status_->step = summary.steps;
  status_->waiting_for.reset();
  status_->nodes.clear();
  MoveChoice(0);
}

std::string TopScreen::SizeText(TopSize size) {
  return fmt::format("this terminal has {} lines of {} columns; top needs {} of {}", size.rows,
                     size.columns, kSizeMin.rows, kSizeMin.columns);
}

void TopScreen::MoveChoice(int rows) {
  const auto count = static_cast<int64_t>(status_ ? status_->nodes.size() : 0);
  const int64_t wanted = std::min(static_cast<int64_t>(chosen_) + rows, count - 1);
  chosen_ = static_cast<size_t>(std::max(wanted, int64_t{0}));
}

std::string TopScreen::chosen() const {
  return status_ && !status_->nodes.empty() ? status_->nodes[chosen_].name : "";
}

std::string TopScreen::ProgressText() const {
  const auto step = static_cast<double>(status_->step);
  std::string text = fmt::format("{} on {}: {}, step {} of {}", status_->model, status_->dataset,
                                 status_->phase, status_->step, status_->step_count);
  if (status_->step_count > 0)
    text += fmt::format(" ({:.1f} %)", 100 * step / static_cast<double>(status_->step_count));
  if (looks_.size() < 2) return text;
  const auto us = static_cast<double>(looks_.back().clock_us - looks_.front().clock_us);
  return text + fmt::format(", {:.1f} steps/s",
                            (step - static_cast<double>(looks_.front().step)) * 1e6 / us);
}

std::string TopScreen::LearningText() const {
  const std::string evaluated = EvaluatedText(*status_);
  if (!row_) return evaluated;
  std::string text;
  if (!std::isnan(row_->loss)) text += fmt::format("loss {:.4g}, ", row_->loss);
  if (!std::isnan(row_->accuracy)) text += fmt::format("accuracy {:.2f} %, ", 100 * row_->accuracy);
  text += fmt::format("{:.0f} images/s", row_->images_per_second);
  return evaluated.empty() ? text : text + "; " + evaluated;
}

std::vector<TopLine> TopScreen::HeadLines() const {
  std::vector<TopLine> lines{{"pando top " + run_, TopStyle::kTitle}};
  if (status_) {
    lines.push_back({ProgressText()});
    if (status_->stall) lines.push_back({status_->stall->text, TopStyle::kError});
    lines.push_back({LearningText()});
    if (status_->waiting_for) lines.push_back({WaitText(*status_), TopStyle::kWarning});
  }
  lines.push_back(end_.empty() ? TopLine{silence_, TopStyle::kError}
                               : TopLine{end_, TopStyle::kTitle});
  return lines;
}

// Adds a heading, and `rows` processes with the chosen one among them.
void TopScreen::AddNodes(size_t rows, std::vector<TopLine>* lines) const {
  const std::vector<RunStatus::Node>& nodes = status_->nodes;
  lines->push_back(
      {fmt::format(kColumns, "NODE", "STEP", "HEARD ms", "DOING", doing_width_, "HOST", "PID"),
       TopStyle::kHeading});
  const size_t shown = std::min(rows, nodes.size());
  const size_t first = chosen_ < shown ? 0 : chosen_ + 1 - shown;
  for (size_t i = first; i < first + shown; ++i) {
    const RunStatus::Node& node = nodes[i];
    const TopStyle style = node.health == "ready" ? TopStyle::kPlain : TopStyle::kWarning;
    lines->push_back({fmt::format(kColumns, node.name, node.step, node.silent_ms, DoingText(node),
                                  doing_width_, node.host, node.pid),
                      i == chosen_ ? TopStyle::kChosen : style});
  }
}

std::vector<TopLine> TopScreen::Draw(TopSize size) const {
  if (!IsEnough(size)) {
    std::vector<TopLine> lines(size.rows);
    if (!lines.empty()) lines[0].text = Fit(SizeText(size), size.columns);
    return lines;
  }
  const size_t body_rows = size.rows - std::min(size.rows, kFootLines);
  std::vector<TopLine> lines = HeadLines();
  if (status_) {
    const std::vector<FaultRecord>& faults = status_->faults;
    const size_t kept = lines.size() + 1 + (faults.empty() ? 0 : kFaultLines);
    AddNodes(std::max(body_rows, kept + kNodesMin) - kept, &lines);
    if (!faults.empty()) {
      lines.push_back({});
      lines.push_back(
          {fmt::format("FAULTS: {}, the newest first", status_->fault_count), TopStyle::kHeading});
    }
    for (auto fault = faults.rbegin(); fault != faults.rend(); ++fault)
      lines.push_back(
          {FaultText(*fault), fault->recovered_ms < 0 ? TopStyle::kWarning : TopStyle::kPlain});
  }
  lines.resize(body_rows);
  lines.push_back({notice_, TopStyle::kTitle});
  lines.push_back({"arrows choose   d drain   s snapshot   q quit", TopStyle::kHeading});
  lines.resize(size.rows);
  for (TopLine& line : lines) {
    line.text = Fit(line.text, size.columns);
    if (line.style == TopStyle::kChosen) line.text.resize(size.columns, ' ');  // a bar
  }
  return lines;
}

}  // namespace pando
