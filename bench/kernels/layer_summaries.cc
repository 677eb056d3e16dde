// The tables of kernels.
#include <fmt/format.h>

#include <map>

#include "bench/harness/writers.h"
#include "bench/kernels/layer_bench.h"

namespace pando::bench {
namespace {

struct Ceilings {
  double flops_per_s = 0.0;
  double bytes_per_s = 0.0;
};

// Time and work of one pass over some layers.
struct Pass {
  double seconds = 0.0;
  double flops = 0.0;
  double bytes = 0.0;
  void operator+=(const Pass& other) {
    seconds += other.seconds;
    flops += other.flops;
    bytes += other.bytes;
  }
};
Pass ForwardOf(const LayerWork& work, const Point& point) {
  return {1e-3 * point.MedianOf(kForwardTime), work.forward_flops, work.forward_bytes};
}
Pass BackwardOf(const LayerWork& work, const Point& point) {
  return {1e-3 * point.MedianOf(kBackwardTime), work.backward_flops, work.backward_bytes};
}

// What bounds it: the ceiling that would take longer for this work.
std::vector<std::string> Cells(const Pass& pass, const Ceilings& ceilings) {
  if (pass.seconds <= 0) return {"-", "-", "-", "-"};
  const double of_peak = pass.flops / pass.seconds / ceilings.flops_per_s;
  const double of_memory = pass.bytes / pass.seconds / ceilings.bytes_per_s;
  const bool is_memory = of_memory > of_peak;
  return {fmt::format("{:.3f}", 1e3 * pass.seconds), NumberText(1e-9 * pass.flops / pass.seconds),
          NumberText(1e-9 * pass.bytes / pass.seconds),
          fmt::format("{:.2f} {}", is_memory ? of_memory : of_peak, is_memory ? "memory" : "FMA")};
}

std::vector<std::string> Header(const char* first) {
  std::vector<std::string> header{first, "kind"};
  for (const char* pass : {"forward", "backward"}) {
    for (const char* what : {"ms", "GFLOP/s", "GB/s", "share of"})
      header.push_back(fmt::format("{} {}", pass, what));
  }
  return header;
}

std::vector<std::string> Row(const std::string& name, const std::string& kind, const Pass& forward,
                             const Pass& backward, const Ceilings& ceilings) {
  std::vector<std::string> row{name, kind};
  for (const Pass& pass : {forward, backward}) {
    const std::vector<std::string> cells = Cells(pass, ceilings);
    row.insert(row.end(), cells.begin(), cells.end());
  }
  return row;
}

Table LayersTable(const ModelWork& model, const Ceilings& ceilings, const ResultSet& set) {
  Table table{.title = model.model, .note = "", .header = Header("layers"), .rows = {}};
  for (const LayerWork& work : model.layers) {
    const Point* point = set.Find(LayerPointName(model.model, work));
    if (point == nullptr) continue;
    table.rows.push_back(
        Row(work.names, work.kind, ForwardOf(work, *point), BackwardOf(work, *point), ceilings));
  }
  return table;
}

Table KindsTable(const std::vector<ModelWork>& models, const Ceilings& ceilings,
                 const ResultSet& set) {
  std::map<std::string, std::pair<Pass, Pass>> kinds;
  for (const ModelWork& model : models) {
    for (const LayerWork& work : model.layers) {
      const Point* point = set.Find(LayerPointName(model.model, work));
      if (point == nullptr) continue;
      kinds[work.kind].first += ForwardOf(work, *point);
      kinds[work.kind].second += BackwardOf(work, *point);
    }
  }
  Table table{
      .title = "Kinds of layers, over all models",
      .note = fmt::format(
          "Processor time, medians. Shares are of what bounds the work: {} GFLOP/s of "
          "fused multiply-adds, or {} GB/s of memcpy over 64 MiB, read and written, both "
          "measured in turns with the models. Each array counts once, so what stays in a "
          "cache may have more than all of the memory's bandwidth. Layers that are computed "
          "in one go are one; the first says the kind.",
          NumberText(1e-9 * ceilings.flops_per_s), NumberText(1e-9 * ceilings.bytes_per_s)),
      .header = Header("models"),
      .rows = {}};
  for (const auto& [kind, passes] : kinds)
    table.rows.push_back(Row("all", kind, passes.first, passes.second, ceilings));
  return table;
}

}  // namespace

void AddLayerSummaries(const std::vector<ModelWork>& models, ResultSet* set) {
  const Point* peak = set->Find(kPeakName);
  const Point* copy = set->Find(kCopyName);
  if (peak == nullptr || copy == nullptr) return;
  const Ceilings ceilings{1e9 * peak->MedianOf(kRate), 1e9 * copy->MedianOf(kRate)};
  set->tables.push_back(KindsTable(models, ceilings, *set));
  for (const ModelWork& model : models) set->tables.push_back(LayersTable(model, ceilings, *set));
}

}  // namespace pando::bench
