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
// Apart for most eyes (Okabe and Ito), then again, dashed.
constexpr std::array<const char*, 8> kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                              "#e69f00", "#56b4e9", "#000000", "#888888"};

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
    if (y_max_ <= 0) y_max_ = 1;
    const double step = std::pow(10, std::floor(std::log10(y_max_)));
    y_max_ = std::ceil(y_max_ / step) * step;
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
  const Scale scale(plot);
  const double legend = kTop + kLegendLine * static_cast<double>(plot.series.size());
  const double height = std::max(kHeight, legend + kLegendLine);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, height);
  svg += Axes(plot, scale);
  for (size_t i = 0; i < plot.series.size(); ++i) svg += Lines(plot.series[i], i, scale);
  return svg + "</svg>\n";
}

}  // namespace pando::bench
