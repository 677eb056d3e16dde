#include "bench/harness/result.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"

namespace pando::bench {

double Quantile(const std::vector<double>& ascending, double share) {
  PANDO_CHECK(!ascending.empty() && share >= 0.0 && share <= 1.0);
  const double place = share * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<size_t>(std::floor(place));
  const size_t above = std::min(below + 1, ascending.size() - 1);
  const double part = place - static_cast<double>(below);
  return ascending[below] + part * (ascending[above] - ascending[below]);
}

Statistics StatisticsOf(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  return {.count = samples.size(),
          .min = samples.front(),
          .p50 = Quantile(samples, 0.5),
          .p99 = Quantile(samples, 0.99),
          .max = samples.back()};
}

double Median(std::vector<double> samples) { return StatisticsOf(std::move(samples)).p50; }

const Measurement* Point::Find(const std::string& metric) const {
  const auto it = std::ranges::find(measurements, metric, &Measurement::metric);
  return it == measurements.end() ? nullptr : &*it;
}

std::vector<double> Point::SamplesOf(const std::string& metric) const {
  const Measurement* measurement = Find(metric);
  return measurement == nullptr ? std::vector<double>() : measurement->samples;
}

double Point::MedianOf(const std::string& metric) const { return Median(SamplesOf(metric)); }

void Point::Add(const std::string& metric, const std::string& unit, double sample) {
  auto it = std::ranges::find(measurements, metric, &Measurement::metric);
  if (it == measurements.end()) it = measurements.insert(it, {metric, unit, {}});
  it->samples.push_back(sample);
}

const Point* ResultSet::Find(const std::string& point_name) const {
  const auto it = std::ranges::find(points, point_name, &Point::name);
  return it == points.end() ? nullptr : &*it;
}

Series BarOf(const Point& point, const std::string& metric) {
  Series series{.name = point.name, .points = {}};
  for (const double sample : point.SamplesOf(metric))
    series.points.emplace_back(static_cast<double>(series.points.size()), sample);
  return series;
}

ResultSet NewResultSet(std::string benchmark, std::string title, Parameters options) {
  return {.benchmark = std::move(benchmark),
          .title = std::move(title),
          .date = NowUtc(),
          .commit = BuiltCommit(),
          .machine = ReadMachine(),
          .options = std::move(options),
          .points = {},
          .tables = {},
          .plots = {}};
}

}  // namespace pando::bench
