#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "bench/harness/units.h"
#include "bench/harness/writers.h"

namespace pando::bench {
namespace {

constexpr double kWidth = 860, kHeight = 420;
constexpr double kLeft = 70, kRight = 560, kTop = 40, kBottom = 360;  // of the area of the lines
constexpr double kLegendX = 580, kLegendLine = 18;
constexpr int kTicks = 5;
// Of bars: names to the left, figures to the right.
constexpr double kBarsLeft = 330, kBarsRight = 780, kBarLine = 22, kBarHeight = 12;
// Apart for most eyes (Okabe and Ito), then again, dashed.
constexpr std::array<const char*, 8> kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                              "#e69f00", "#56b4e9", "#000000", "#888888"};

// A round number for the end of an axis.
double RoundedUp(double value) {
  if (value <= 0) return 1;
  const double step = std::pow(10, std::floor(std::log10(value)));
  return std::ceil(value / step) * step;
}

// From sizes and figures to places on the page.
class Scale {
 public:
  explicit Scale(const Plot& plot) {
    for (const Series& series : plot.series) {
      for (const auto& [x, y] : series.points) {
        xs_.insert(x);
        y_max_ = std::max(y_max_, y);
      }
    }
    y_max_ = RoundedUp(y_max_);
  }
  double X(double x) const {
    if (xs_.size() < 2) return (kLeft + kRight) / 2;
    const double first = std::log2(*xs_.begin()), last = std::log2(*xs_.rbegin());
    return kLeft + (std::log2(x) - first) / (last - first) * (kRight - kLeft);
  }
  // What is below 0, by noise, lies on the axis.
  double Y(double y) const { return kBottom - std::max(y, 0.0) / y_max_ * (kBottom - kTop); }
  const std::set<double>& xs() const { return xs_; }
  double y_max() const { return y_max_; }

 private:
  std::set<double> xs_;
  double y_max_ = 0;
};

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     EscapeXml(text));
}

std::string Line(double x1, double y1, double x2, double y2, const std::string& style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                     x2, y2, style);
}

std::string Axes(const Plot& plot, const Scale& scale) {
  std::string svg = Text(kLeft, kTop - 18, "start", plot.title);
  for (int i = 0; i <= kTicks; ++i) {
    const double value = scale.y_max() * i / kTicks, y = scale.Y(value);
    svg += Line(kLeft, y, kRight, y, "stroke=\"#ddd\"");
    svg += Text(kLeft - 6, y + 4, "end", NumberText(value));
  }
  for (const double x : scale.xs()) {
    const auto count = static_cast<uint64_t>(x);
    const bool is_bytes = plot.x_axis == PlotAxis::kBytes;
    svg += Text(scale.X(x), kBottom + 18, "middle",
                is_bytes ? BytesText(count) : fmt::format("{}", count));
  }
  svg += fmt::format("<text transform=\"translate(16 {:.1f}) rotate(-90)\" text-anchor=\"middle\">",
                     (kTop + kBottom) / 2);
  return svg + EscapeXml(plot.y_label) + "</text>\n";
}

std::string Lines(const Series& series, size_t index, const Scale& scale) {
  const char* colour = kColours[index % kColours.size()];
  const char* dashes = index < kColours.size() ? "" : " stroke-dasharray=\"5 3\"";
  std::string places, marks;
  for (const auto& [x, y] : series.points) {
    places += fmt::format("{:.1f},{:.1f} ", scale.X(x), scale.Y(y));
    marks += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", scale.X(x),
                         scale.Y(y), colour);
  }
  const std::string stroke = fmt::format("stroke=\"{}\" stroke-width=\"2\"{}", colour, dashes);
  const double y = kTop + kLegendLine * static_cast<double>(index);
  return fmt::format("<polyline points=\"{}\" fill=\"none\" {}/>\n", places, stroke) + marks +
         Line(kLegendX, y, kLegendX + 22, y, stroke) +
         Text(kLegendX + 28, y + 4, "start", series.name);
}

std::string LinesSvg(const Plot& plot) {
  const Scale scale(plot);
  std::string svg = Axes(plot, scale);
  for (size_t i = 0; i < plot.series.size(); ++i) svg += Lines(plot.series[i], i, scale);
  return svg;
}

double BarX(double value, double value_max) {
  return kBarsLeft + std::max(value, 0.0) / value_max * (kBarsRight - kBarsLeft);
}

std::string Bar(const Series& series, size_t index, double value_max) {
  std::vector<double> samples;
  for (const auto& [x, y] : series.points) samples.push_back(y);
  const Statistics s = StatisticsOf(samples);
  const double y = kTop + kBarLine * (static_cast<double>(index) + 0.5);
  const double left = BarX(s.min, value_max), right = BarX(s.max, value_max);
  std::string svg = Text(kBarsLeft - 8, y + 4, "end", series.name);
  if (samples.empty()) return svg + Text(kBarsLeft + 8, y + 4, "start", "-");
  svg += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
      kBarsLeft, y - kBarHeight / 2, BarX(s.p50, value_max) - kBarsLeft, kBarHeight, kColours[5]);
  if (samples.size() > 1) svg += Line(left, y, right, y, "stroke=\"#000\"");
  return svg + Text(right + 8, y + 4, "start", NumberText(s.p50));
}

std::string BarsSvg(const Plot& plot) {
  double value_max = 0;
  for (const Series& series : plot.series) {
    for (const auto& [x, y] : series.points) value_max = std::max(value_max, y);
  }
  value_max = RoundedUp(value_max);
  const double bottom = kTop + kBarLine * static_cast<double>(plot.series.size());
  std::string svg = Text(kLeft, kTop - 18, "start", plot.title);
  for (int i = 0; i <= kTicks; ++i) {
    const double value = value_max * i / kTicks, x = BarX(value, value_max);
    svg += Line(x, kTop, x, bottom, "stroke=\"#ddd\"");
    svg += Text(x, bottom + 18, "middle", NumberText(value));
  }
  svg += Text((kBarsLeft + kBarsRight) / 2, bottom + 36, "middle", plot.y_label);
  for (size_t i = 0; i < plot.series.size(); ++i) svg += Bar(plot.series[i], i, value_max);
  return svg;
}

// Of bars as many lines as there are; beside lines their legend has to fit.
double HeightOf(const Plot& plot) {
  const auto count = static_cast<double>(plot.series.size());
  if (plot.x_axis == PlotAxis::kNone) return kTop + kBarLine * count + 48;
  return std::max(kHeight, kTop + kLegendLine * (count + 1));
}

}  // namespace

std::string EscapeXml(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        // What XML cannot hold at all.
        escaped += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return escaped;
}

std::string ToSvg(const Plot& plot) {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, HeightOf(plot));
  svg += plot.x_axis == PlotAxis::kNone ? BarsSvg(plot) : LinesSvg(plot);
  return svg + "</svg>\n";
}

}  // namespace pando::bench
