#include "bench/kernels/layer_bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <utility>

#include "bench/kernels/fma_peak.h"

namespace pando::bench {
namespace {

// Beyond every cache; nothing interrupts its measurement.
constexpr uint64_t kCopyBytes = 64 << 20;
constexpr int kCopies = 4;
constexpr int kPeakTurns = 20;  // of some 0.1 ms

Variant PeakVariant() {
  return {{.name = kPeakName, .parameters = {{"kind", kPeakName}}}, [](Point* point) {
            std::vector<double> peaks;
            for (int i = 0; i < kPeakTurns; ++i) peaks.push_back(MeasurePeak());
            point->Add(kRate, "GFLOP/s", 1e-9 * Median(std::move(peaks)));
            return Status();
          }};
}

// By the same clock as the layers: push-pull's memcpy is by the wall's.
double MeasureCopy() {
  const FloatBuffer from(kCopyBytes / sizeof(float));
  FloatBuffer to(kCopyBytes / sizeof(float));
  std::memcpy(to.data(), from.data(), kCopyBytes);  // touches it
  const double start = ThreadSeconds();
  for (int i = 0; i < kCopies; ++i) {
    std::memcpy(to.data(), from.data(), kCopyBytes);
    asm volatile("" ::: "memory");  // the compiler must not see that nobody reads
  }
  return 2.0 * kCopies * static_cast<double>(kCopyBytes) / (ThreadSeconds() - start);
}

Variant CopyVariant() {
  return {{.name = kCopyName, .parameters = {{"kind", kCopyName}}}, [](Point* point) {
            point->Add(kRate, "GB/s", 1e-9 * MeasureCopy());
            return Status();
          }};
}

// A model, and the points of its layers.
struct Measured {
  std::string model;
  LayerTimer timer;
  std::vector<Point> points;
};

Result<Measured> Prepare(const std::string& model, uint32_t batch) {
  Result<LayerTimer> timer = LayerTimer::Create(model, batch);
  if (!timer.ok()) return timer.status();
  Measured measured{model, *std::move(timer), {}};
  for (const LayerWork& work : measured.timer.work()) {
    measured.points.push_back({.name = LayerPointName(model, work),
                               .parameters = {{"model", model}, {"kind", work.kind}}});
  }
  measured.timer.Pass();  // touches all memory
  return measured;
}

Status Measure(Measured* measured, ShutdownSignal& shutdown, Point* point) {
  if (shutdown.Take() != 0) return Interrupted("stopped by a signal");
  const std::vector<LayerTime> times = measured->timer.Pass();
  LayerTime sum;
  for (size_t i = 0; i < times.size(); ++i) {
    measured->points[i].Add(kForwardTime, "ms", 1e3 * times[i].forward_s);
    measured->points[i].Add(kBackwardTime, "ms", 1e3 * times[i].backward_s);
    sum.forward_s += times[i].forward_s;
    sum.backward_s += times[i].backward_s;
  }
  point->Add(kForwardTime, "ms", 1e3 * sum.forward_s);
  point->Add(kBackwardTime, "ms", 1e3 * sum.backward_s);
  return Status();
}

}  // namespace

std::string LayerPointName(const std::string& model, const LayerWork& work) {
  return fmt::format("{}: {}", model, work.names);
}

Result<ResultSet> RunLayerBench(const LayerBenchOptions& options, ShutdownSignal& shutdown,
                                const OnProgress& on_progress) {
  ResultSet set = NewResultSet("kernels", "Kernels on one core",
                               {{"models", fmt::format("{}", fmt::join(options.models, " "))},
                                {"batch", fmt::format("{}", options.batch)},
                                {"rounds", fmt::format("{}", options.rounds)}});
  std::vector<Measured> models;
  for (const std::string& model : options.models) {
    Result<Measured> measured = Prepare(model, options.batch);
    if (!measured.ok()) return measured.status();
    models.push_back(*std::move(measured));
  }
  std::vector<Variant> variants{PeakVariant(), CopyVariant()};
  for (Measured& measured : models) {
    variants.push_back(
        {{.name = measured.model, .parameters = {{"model", measured.model}}},
         [&measured, &shutdown](Point* point) { return Measure(&measured, shutdown, point); }});
  }
  Result<std::vector<Point>> points =
      MeasureInTurns(std::move(variants), options.rounds, on_progress);
  if (!points.ok()) return points.status();
  set.points = *std::move(points);
  std::vector<ModelWork> work;
  for (Measured& measured : models) {
    for (Point& point : measured.points) set.points.push_back(std::move(point));
    work.push_back({measured.model, measured.timer.work()});
  }
  AddLayerSummaries(work, &set);
  return set;
}

}  // namespace pando::bench
