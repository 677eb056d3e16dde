// ResultSet is what one benchmark measured, with what it takes to understand and compare it: the
// machine, the commit, every sample. Benchmarks fill it, writers.h makes files of it, and
// `pando bench report` reads it again.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/machine.h"

namespace pando::bench {

// Of all samples; zeros where there are none.
struct Statistics {
  size_t count = 0;
  double min = 0.0;
  double p50 = 0.0;
  double p99 = 0.0;
  double max = 0.0;
};
Statistics StatisticsOf(std::vector<double> samples);
// `share` in [0, 1] of the samples, ascending, are at or below it: linear between two of them.
// REQUIRES: `ascending` is not empty.
double Quantile(const std::vector<double>& ascending, double share);
double Median(std::vector<double> samples);  // 0 where there are none

using Parameters = std::vector<std::pair<std::string, std::string>>;  // in the order of reading

struct Measurement {
  std::string metric;  // "throughput"
  std::string unit;    // "GB/s"
  std::vector<double> samples;
};

// One of the things compared.
struct Point {
  std::string name;
  Parameters parameters;
  bool is_oversubscribed = false;  // more processes at work than the machine has cores
  std::vector<Measurement> measurements;

  // Null if there is none.
  const Measurement* Find(const std::string& metric) const;
  // None if there is none.
  std::vector<double> SamplesOf(const std::string& metric) const;
  double MedianOf(const std::string& metric) const;  // 0 where there are no samples
  void Add(const std::string& metric, const std::string& unit, double sample);
};

struct Table {
  std::string title;
  std::string note;  // below it; may be empty
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // as long as the header
};

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // (x, y)
};
enum class PlotAxis { kBytes, kCount, kNone };
// Lines over a logarithmic axis; with none, a bar for each series: the median of its y, and a line
// from the least to the largest.
struct Plot {
  std::string name;  // of its file: "push-pull-tcp"
  std::string title;
  std::string y_label;
  std::vector<Series> series;
  PlotAxis x_axis = PlotAxis::kBytes;  // how x is written
};

struct ResultSet {
  std::string benchmark;  // "push-pull": names its files
  std::string title;
  std::string date;  // UTC
  std::string commit;
  Machine machine;
  Parameters options;
  std::vector<Point> points;
  std::vector<Table> tables;
  std::vector<Plot> plots;

  // Null if there is none.
  const Point* Find(const std::string& point_name) const;
};
// For a plot of bars: the samples of one metric, by round. None if the point has no such metric.
Series BarOf(const Point& point, const std::string& metric);
// A set of now, of this machine and this build, without figures.
ResultSet NewResultSet(std::string benchmark, std::string title, Parameters options);

}  // namespace pando::bench
