// The memory of one step over its events, as CSV and as a picture.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "cli/model_report.h"
#include "common/text.h"

namespace pando {
namespace {

// What a worker has: parameters, gradients, the plan's uses. Then the servers' optimizer state.
constexpr size_t kWorkerSeriesCount = 2 + kBufferUseCount;
constexpr size_t kSeriesCount = kWorkerSeriesCount + 1;
using Row = std::array<uint64_t, kSeriesCount>;

std::array<const char*, kSeriesCount> SeriesNames() {
  std::array<const char*, kSeriesCount> names{"parameters", "gradients"};
  for (size_t use = 0; use < kBufferUseCount; ++use) {
    names[2 + use] = EnumName(static_cast<BufferUse>(use));
  }
  names[kWorkerSeriesCount] = "servers_optimizer_state";
  return names;
}

std::vector<Row> MakeRows(const ModelBytes& bytes, const MemoryPlan& plan) {
  std::vector<Row> rows;
  for (const BytesByUse& live : plan.LiveBytes()) {
    Row& row = rows.emplace_back(Row{bytes.parameters, bytes.gradients});
    std::copy(live.begin(), live.end(), row.begin() + 2);
    row[kWorkerSeriesCount] = bytes.optimizer_state;
  }
  return rows;
}

uint64_t WorkerTotal(const Row& row) {
  return std::accumulate(row.begin(), row.begin() + kWorkerSeriesCount, uint64_t{0});
}

const char* PhaseName(const MemoryEvent& event) {
  if (event.is_again) return "again";
  return event.is_backward ? "backward" : "forward";
}

// The picture's measures, in its own units.
constexpr double kWidth = 1000, kHeight = 480;
constexpr double kLeft = 90, kTop = 50, kRight = 200, kBottom = 50;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;
constexpr const char* kColours[kSeriesCount] = {"#4e79a7", "#a0cbe8", "#59a14f", "#8cd17d",
                                                "#f28e2b", "#bab0ac", "#b6992d"};

class Picture {
 public:
  Picture(const std::string& title, std::vector<Row> rows) : rows_(std::move(rows)) {
    for (const Row& row : rows_) {
      peak_ = std::max(peak_, WorkerTotal(row) + row[kWorkerSeriesCount]);
    }
    svg_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" "
        "font-family=\"sans-serif\" "
        "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        kWidth, kHeight);
    Text(kLeft, 24, "start", title);
  }

  std::string Draw(const MemoryPlan& plan) {
    for (size_t series = kSeriesCount; series-- > 0;) Area(series);
    for (int tick = 0; tick <= 4; ++tick) {
      const uint64_t bytes = peak_ * static_cast<uint64_t>(tick) / 4;
      Text(kLeft - 8, Y(bytes) + 4, "end", BytesText(bytes));
      svg_ +=
          fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ccc\"/>\n",
                      kLeft, kLeft + kPlotWidth, Y(bytes), Y(bytes));
    }
    const auto first_backward =
        std::find_if(plan.events.begin(), plan.events.end(),
                     [](const MemoryEvent& event) { return event.is_backward; });
    const double middle = X(static_cast<size_t>(first_backward - plan.events.begin()));
    Text((kLeft + middle) / 2, kHeight - 20, "middle", "forward");
    Text((middle + kLeft + kPlotWidth) / 2, kHeight - 20, "middle", "backward");
    Legend();
    return svg_ + "</svg>\n";
  }

 private:
  double X(size_t event) const {
    return kLeft + kPlotWidth * static_cast<double>(event) / static_cast<double>(rows_.size());
  }
  double Y(uint64_t bytes) const {
    return kTop + kPlotHeight * (1 - static_cast<double>(bytes) /
                                         static_cast<double>(std::max<uint64_t>(peak_, 1)));
  }

  // Everything up to and with the series; those above were drawn before.
  void Area(size_t series) {
    std::string points = fmt::format("{:.1f},{:.1f}", kLeft, Y(0));
    for (size_t event = 0; event < rows_.size(); ++event) {
      uint64_t top = 0;
      for (size_t s = 0; s <= series; ++s) top += rows_[event][s];
      points += fmt::format(" {:.1f},{:.1f} {:.1f},{:.1f}", X(event), Y(top), X(event + 1), Y(top));
    }
    points += fmt::format(" {:.1f},{:.1f}", X(rows_.size()), Y(0));
    svg_ += fmt::format("<polygon fill=\"{}\" points=\"{}\"/>\n", kColours[series], points);
  }

  void Legend() {
    const auto names = SeriesNames();
    const double x = kLeft + kPlotWidth + 12;
    for (size_t series = 0; series < kSeriesCount; ++series) {
      const double y = kTop + 20.0 * static_cast<double>(kSeriesCount - 1 - series);
      svg_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", x,
                          y, kColours[series]);
      Text(x + 18, y + 10, "start", names[series]);
    }
  }

  void Text(double x, double y, const char* anchor, std::string_view text) {
    svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">", x, y, anchor);
    for (char c : text) {
      if (c == '<' || c == '>' || c == '&') {
        svg_ += c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&amp;";
      } else {
        svg_ += c;
      }
    }
    svg_ += "</text>\n";
  }

  std::vector<Row> rows_;
  uint64_t peak_ = 0;
  std::string svg_;
};

}  // namespace

std::string TimelineCsv(const ModelBytes& bytes, const MemoryPlan& plan) {
  std::string text = "event,phase,layers";
  for (const char* name : SeriesNames()) text += fmt::format(",{}_bytes", name);
  text += ",worker_total_bytes\n";
  const std::vector<Row> rows = MakeRows(bytes, plan);
  for (size_t event = 0; event < plan.events.size(); ++event) {
    const Row& row = rows[event];
    text +=
        fmt::format("{},{},{}", event, PhaseName(plan.events[event]), plan.events[event].layers);
    for (uint64_t value : row) text += fmt::format(",{}", value);
    text += fmt::format(",{}\n", WorkerTotal(row));
  }
  return text;
}

std::string TimelineSvg(const std::string& title, const ModelBytes& bytes, const MemoryPlan& plan) {
  return Picture(title, MakeRows(bytes, plan)).Draw(plan);
}

}  // namespace pando
