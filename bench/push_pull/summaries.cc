// The tables and plots of push-pull.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/harness/units.h"
#include "bench/harness/writers.h"
#include "bench/push_pull/point_names.h"
#include "bench/push_pull/push_pull.h"

namespace pando::bench {
namespace {

// What Pando aims at: over TCP a share of raw ZeroMQ at 1 MiB, over ipc one at the same size.
const std::map<uint64_t, double> kTcpAims{
    {4 << 10, 0.16}, {64 << 10, 0.48}, {256 << 10, 0.65}, {1 << 20, 0.75}, {4 << 20, 0.75}};
constexpr uint64_t kIpcAimFromBytes = 256 << 10;
constexpr double kIpcAim = 0.75;
constexpr uint64_t kShmAimFromBytes = 1 << 20;
constexpr double kShmAim = 0.5;

// Median of what was measured; 0 where it was not.
double GbPerS(const ResultSet& set, const Point& named) {
  const Point* point = set.Find(named.name);
  return point == nullptr ? 0.0 : point->MedianOf(kThroughput);
}

// "-" where one of them was not measured.
std::string Share(double part, double whole) {
  return part > 0 && whole > 0 ? fmt::format("{:.2f}", part / whole) : "-";
}
std::string Figure(double value) { return value > 0 ? NumberText(value) : "-"; }

// As many servers as workers, of which the aims speak; else all.
struct Best {
  double gb_per_s = 0.0;
  std::string shape;
};
Best BestOf(const PushPullOptions& o, const ResultSet& set, uint64_t bytes,
            const std::string& transport, const std::string& optimizer) {
  Best best;
  for (const uint32_t servers : o.servers) {
    for (const uint32_t workers : o.workers) {
      if (servers != workers) continue;
      const double figure = GbPerS(set, PandoPoint(bytes, transport, servers, workers, optimizer));
      if (figure > best.gb_per_s) best = {figure, fmt::format("{}x{}", servers, workers)};
    }
  }
  return best;
}

std::string AimText(const std::string& transport, uint64_t bytes) {
  if (transport == "ipc")
    return bytes >= kIpcAimFromBytes ? fmt::format("{:.2f} same size", kIpcAim) : "-";
  const auto aim = kTcpAims.find(bytes);
  return aim == kTcpAims.end() ? "-" : fmt::format("{:.2f} of 1 MiB", aim->second);
}

Table SharesTable(const PushPullOptions& o, const ResultSet& set, const std::string& transport) {
  Table table{.title = fmt::format("Beside raw ZeroMQ, {}", transport),
              .note =
                  "GB/s are pushed and pulled payload, medians. Pando: the best of as many "
                  "servers as workers. Raw ZeroMQ sends without a copy, both ways, one client "
                  "and one server.",
              .header = {"shard", "memcpy", "a += b", "raw TCP", "raw ZeroMQ", "Pando, sum",
                         "shape", "of raw, same size", "of raw at 1 MiB", "aim", "Pando, momentum",
                         "of raw at 1 MiB"},
              .rows = {}};
  const double reference = GbPerS(set, PointOf(RawZmqName(transport), kReferenceBytes));
  for (const uint64_t bytes : o.bytes) {
    const double raw = GbPerS(set, PointOf(RawZmqName(transport), bytes));
    const Best sum = BestOf(o, set, bytes, transport, kSum);
    const Best momentum = BestOf(o, set, bytes, transport, "sgd-momentum");
    table.rows.push_back(
        {BytesText(bytes), Figure(GbPerS(set, PointOf(kMemcpy, bytes))),
         Figure(GbPerS(set, PointOf(kAdd, bytes))), Figure(GbPerS(set, PointOf(kRawTcp, bytes))),
         Figure(raw), Figure(sum.gb_per_s), sum.shape.empty() ? "-" : sum.shape,
         Share(sum.gb_per_s, raw), Share(sum.gb_per_s, reference), AimText(transport, bytes),
         Figure(momentum.gb_per_s), Share(momentum.gb_per_s, reference)});
  }
  return table;
}

Table SharedMemoryTable(const PushPullOptions& o, const ResultSet& set) {
  Table table{.title = "Beside a += b, shm",
              .note =
                  "GB/s are pushed and pulled payload, medians. Pando: the best of as many servers "
                  "as workers. a += b reads each byte that comes and writes each that goes, once, "
                  "on one core. Shards below 16 KiB are not shared: they travel in their messages.",
              .header = {"shard", "memcpy", "a += b", "Pando, sum", "shape", "of a += b", "aim",
                         "Pando, momentum", "of a += b"},
              .rows = {}};
  for (const uint64_t bytes : o.bytes) {
    const double ceiling = GbPerS(set, PointOf(kAdd, bytes));
    const Best sum = BestOf(o, set, bytes, "shm", kSum);
    const Best momentum = BestOf(o, set, bytes, "shm", "sgd-momentum");
    table.rows.push_back({BytesText(bytes), Figure(GbPerS(set, PointOf(kMemcpy, bytes))),
                          Figure(ceiling), Figure(sum.gb_per_s),
                          sum.shape.empty() ? "-" : sum.shape, Share(sum.gb_per_s, ceiling),
                          bytes >= kShmAimFromBytes ? fmt::format("{:.2f}", kShmAim) : "-",
                          Figure(momentum.gb_per_s), Share(momentum.gb_per_s, ceiling)});
  }
  return table;
}

// Every figure of each way to move a shard.
Table FiguresTable(const ResultSet& set) {
  Table table{.title = "Throughput, latency, processor time",
              .note =
                  "Medians over the rounds. * more processes at work than cores. Messages are "
                  "those of a worker, sent and received; small shards share one.",
              .header = {"", "GB/s", "messages/s", "p50 us", "p99 us", "processor s/GB"},
              .rows = {}};
  for (const Point& point : set.points) {
    if (point.Find("messages") == nullptr) continue;
    table.rows.push_back(
        {point.name + (point.is_oversubscribed ? " *" : ""),
         NumberText(point.MedianOf(kThroughput)), NumberText(point.MedianOf("messages")),
         NumberText(point.MedianOf("latency p50")), NumberText(point.MedianOf("latency p99")),
         NumberText(point.MedianOf("processor time"))});
  }
  return table;
}

Plot ThroughputPlot(const PushPullOptions& o, const ResultSet& set, const std::string& transport) {
  Plot plot{.name = "push-pull-" + transport,
            .title = fmt::format("Pushed and pulled, {}", transport),
            .y_label = "GB/s",
            .series = {}};
  const auto add = [&](const std::string& name, const auto& point_at) {
    Series series{.name = name, .points = {}};
    for (const uint64_t bytes : o.bytes) {
      const double figure = GbPerS(set, point_at(bytes));
      if (figure > 0) series.points.emplace_back(static_cast<double>(bytes), figure);
    }
    if (!series.points.empty()) plot.series.push_back(std::move(series));
  };
  if (transport == "shm") add(kAdd, [](uint64_t b) { return PointOf(kAdd, b); });
  add(RawZmqName(transport), [&](uint64_t b) { return PointOf(RawZmqName(transport), b); });
  if (transport == "tcp") add(kRawTcp, [](uint64_t b) { return PointOf(kRawTcp, b); });
  for (const std::string& optimizer : o.optimizers) {
    for (const uint32_t servers : o.servers) {
      for (const uint32_t workers : o.workers) {
        add(fmt::format("Pando {}x{} {}", servers, workers, optimizer),
            [&](uint64_t b) { return PandoPoint(b, transport, servers, workers, optimizer); });
      }
    }
  }
  return plot;
}

}  // namespace

void AddSummaries(const PushPullOptions& options, ResultSet* set) {
  for (const std::string& transport : options.transports) {
    set->tables.push_back(transport == "shm" ? SharedMemoryTable(options, *set)
                                             : SharesTable(options, *set, transport));
    set->plots.push_back(ThroughputPlot(options, *set, transport));
  }
  set->tables.push_back(FiguresTable(*set));
}

}  // namespace pando::bench
