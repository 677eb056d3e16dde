// The tables and the plot of kernels.
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

// Of what bounds it: the ceiling that would take longer for this work.
struct Share {
  double value = 0.0;
  const char* of = "";
};
// REQUIRES: it took time.
Share ShareOf(const Pass& pass, const Ceilings& ceilings) {
  const double of_peak = pass.flops / pass.seconds / ceilings.flops_per_s;
  const double of_memory = pass.bytes / pass.seconds / ceilings.bytes_per_s;
  return of_memory > of_peak ? Share{of_memory, "memory"} : Share{of_peak, "FMA"};
}

std::vector<std::string> Cells(const Pass& pass, const Ceilings& ceilings) {
  if (pass.seconds <= 0) return {"-", "-", "-", "-"};
  const Share share = ShareOf(pass, ceilings);
  return {fmt::format("{:.3f}", 1e3 * pass.seconds), NumberText(1e-9 * pass.flops / pass.seconds),
          NumberText(1e-9 * pass.bytes / pass.seconds),
          fmt::format("{:.2f} {}", share.value, share.of)};
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

using Kinds = std::map<std::string, std::pair<Pass, Pass>>;  // forward and backward
Kinds KindsOf(const std::vector<ModelWork>& models, const ResultSet& set) {
  Kinds kinds;
  for (const ModelWork& model : models) {
    for (const LayerWork& work : model.layers) {
      const Point* point = set.Find(LayerPointName(model.model, work));
      if (point == nullptr) continue;
      kinds[work.kind].first += ForwardOf(work, *point);
      kinds[work.kind].second += BackwardOf(work, *point);
    }
  }
  return kinds;
}

Table KindsTable(const Kinds& kinds, const Ceilings& ceilings) {
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

// Two bars for each kind.
Plot KindsPlot(const Kinds& kinds, const Ceilings& ceilings) {
  Plot plot{.name = "kernels-kinds",
            .title = "Kinds of layers, over all models",
            .y_label = "share of what bounds the work: multiply-adds or memory",
            .series = {},
            .x_axis = PlotAxis::kNone};
  const auto add = [&](const std::string& name, const Pass& pass) {
    if (pass.seconds <= 0) return;
    const Share share = ShareOf(pass, ceilings);
    plot.series.push_back({fmt::format("{} ({})", name, share.of), {{0.0, share.value}}});
  };
  for (const auto& [kind, passes] : kinds) {
    add(kind + ", forward", passes.first);
    add(kind + ", backward", passes.second);
  }
  return plot;
}

}  // namespace

void AddLayerSummaries(const std::vector<ModelWork>& models, ResultSet* set) {
  const Point* peak = set->Find(kPeakName);
  const Point* copy = set->Find(kCopyName);
  if (peak == nullptr || copy == nullptr) return;
  const Ceilings ceilings{1e9 * peak->MedianOf(kRate), 1e9 * copy->MedianOf(kRate)};
  const Kinds kinds = KindsOf(models, *set);
  set->tables.push_back(KindsTable(kinds, ceilings));
  set->plots.push_back(KindsPlot(kinds, ceilings));
  for (const ModelWork& model : models) set->tables.push_back(LayersTable(model, ceilings, *set));
}

}  // namespace pando::bench
