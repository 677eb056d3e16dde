#include "bench/push_pull/push_pull.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/harness/units.h"
#include "bench/push_pull/memory_ceilings.h"
#include "bench/push_pull/point_names.h"

namespace pando::bench {
namespace {

// A ceiling of memory is soon known, and nothing interrupts its measurement.
constexpr double kMemorySecondsMax = 0.2;

void AddFigures(const TrialFigures& figures, Point* point) {
  point->Add(kThroughput, "GB/s", figures.gb_per_s);
  point->Add("messages", "1/s", figures.messages_per_s);
  point->Add("latency p50", "us", figures.latency_p50_us);
  point->Add("latency p99", "us", figures.latency_p99_us);
  point->Add("processor time", "s/GB", figures.cpu_s_per_gb);
}

Status Take(const Result<TrialFigures>& figures, Point* point) {
  if (figures.ok()) AddFigures(*figures, point);
  return figures.ok() ? Status() : figures.status();
}

// Makes the variants; what they refer to outlives them.
class VariantMaker {
 public:
  VariantMaker(const PushPullOptions& options, TrialRunner& runner, uint32_t cores)
      : options_(options), runner_(runner), cores_(cores) {}

  std::vector<Variant> MakeAll() {
    std::vector<uint64_t> raw_bytes = options_.bytes;  // and what shares are of
    if (std::ranges::find(raw_bytes, kReferenceBytes) == raw_bytes.end())
      raw_bytes.push_back(kReferenceBytes);
    for (const uint64_t bytes : options_.bytes) AddMemory(bytes);
    for (const uint64_t bytes : raw_bytes) AddRaw(bytes);
    for (const uint64_t bytes : options_.bytes) {
      for (const std::string& transport : options_.transports) AddPando(bytes, transport);
    }
    return std::move(variants_);
  }

 private:
  void AddMemory(uint64_t bytes) {
    const auto add = [&](const std::string& kind, auto measure) {
      const uint32_t buffers = options_.in_flight;
      const double seconds = std::min(options_.times.window_s / 2, kMemorySecondsMax);
      Add(PointOf(kind, bytes), [=](Point* point) {
        point->Add(kThroughput, "GB/s", measure(bytes, buffers, seconds));
        return Status();
      });
    };
    add(kMemcpy, MemcpyGbPerS);
    add(kAdd, AddGbPerS);
  }

  void AddRaw(uint64_t bytes) {
    const Load load{.shard_bytes = bytes, .shards_per_server = options_.in_flight};
    const auto add = [&](const std::string& kind, RawKind raw) {
      Add(PointOf(kind, bytes),
          [this, load, raw](Point* point) { return Take(runner_.RunRaw(load, raw), point); });
    };
    for (const std::string& transport : options_.transports) {
      if (transport == "shm") continue;  // its ceiling is a += b
      const bool is_ipc = transport == "ipc";
      add(RawZmqName(transport), is_ipc ? RawKind::kZmqIpc : RawKind::kZmqTcp);
      if (!is_ipc) add(kRawTcp, RawKind::kTcp);
    }
  }

  void AddPando(uint64_t bytes, const std::string& transport) {
    for (const uint32_t servers : options_.servers) {
      for (const uint32_t workers : options_.workers) {
        for (const std::string& optimizer : options_.optimizers) {
          const Load load{.shard_bytes = bytes,
                          .shards_per_server = options_.in_flight,
                          .servers = servers,
                          .workers = workers,
                          .has_momentum = optimizer != kSum,
                          .has_barrier = options_.has_barrier,
                          .shares_memory = transport == "shm",
                          .copies = options_.copies};
          Point point = PandoPoint(bytes, transport, servers, workers, optimizer);
          point.is_oversubscribed = servers + workers > cores_;
          Add(std::move(point), [this, load, is_ipc = transport != "tcp"](Point* p) {
            return Take(runner_.RunPando(load, is_ipc), p);
          });
        }
      }
    }
  }

  void Add(Point point, std::function<Status(Point*)> measure) {
    variants_.push_back({std::move(point), std::move(measure)});
  }

  const PushPullOptions& options_;
  TrialRunner& runner_;
  const uint32_t cores_;
  std::vector<Variant> variants_;
};

Parameters OptionsOf(const PushPullOptions& o) {
  std::vector<std::string> bytes;
  for (const uint64_t b : o.bytes) bytes.push_back(BytesText(b));
  return {{"bytes", fmt::format("{}", fmt::join(bytes, " "))},
          {"servers", fmt::format("{}", fmt::join(o.servers, " "))},
          {"workers", fmt::format("{}", fmt::join(o.workers, " "))},
          {"transports", fmt::format("{}", fmt::join(o.transports, " "))},
          {"optimizers", fmt::format("{}", fmt::join(o.optimizers, " "))},
          {"shards in flight per server", fmt::format("{}", o.in_flight)},
          {"rounds", fmt::format("{}", o.rounds)},
          {"seconds", fmt::format("{} after {}", o.times.window_s, o.times.warm_up_s)},
          {"barrier (P4)", o.has_barrier ? "yes" : "no"},
          {"parameters copied out", o.copies ? "yes" : "no"}};
}

}  // namespace

Result<ResultSet> RunPushPull(const PushPullOptions& options, ShutdownSignal& shutdown,
                              const OnProgress& on_progress) {
  ResultSet set =
      NewResultSet("push-pull", "Push and pull between workers and servers", OptionsOf(options));
  Result<TrialRunner> runner = TrialRunner::Create(options.times, shutdown);
  if (!runner.ok()) return runner.status();
  VariantMaker maker(options, *runner, set.machine.cores);
  Result<std::vector<Point>> points = MeasureInTurns(maker.MakeAll(), options.rounds, on_progress);
  if (!points.ok()) return points.status();
  set.points = *std::move(points);
  AddSummaries(options, &set);
  return set;
}

}  // namespace pando::bench
