#include <fmt/core.h>

#include <Eigen/Core>
#include <algorithm>
#include <sstream>

#include "bench/cpp/kernels/fma_peak.h"
#include "bench/cpp/kernels/layer_timer.h"
#include "common/check.h"
#include "common/system.h"
#include "kernels/ops.h"
#include "models/graph.h"
#include "models/stage.h"
#include "models/zoo.h"
#include "plan/job.h"
#include "plan/tensor_init.h"

namespace pando::bench {
namespace {

std::vector<const Layer*> FindLayers(const Graph& graph, const StagePlan& stage) {
  std::vector<const Layer*> layers;
  std::istringstream names(stage.layers);
  for (std::string name; names >> name;) {
    const auto layer =
        std::ranges::find(graph.layers(), name, [](const Layer& l) { return l.spec.name; });
    PANDO_CHECK(layer != graph.layers().end());
    layers.push_back(&*layer);
  }
  return layers;
}

// Returns different names for layers that are computed differently.
std::string KindName(const Layer& layer) {
  const LayerSpec& spec = layer.spec;
  if (spec.kind != LayerKind::kConv2d) return LayerKindName(spec.kind);
  const bool is_depthwise = spec.groups > 1 && spec.groups == layer.in.channels;
  return fmt::format("{} {}x{}{}", LayerKindName(spec.kind), spec.window, spec.window,
                     is_depthwise ? " depthwise" : "");
}

// Returns the layer's product, if it is one. A depthwise convolution is a product only in name.
MatrixProduct MakeProduct(const Layer& layer, uint32_t batch) {
  const LayerSpec& spec = layer.spec;
  if (spec.kind == LayerKind::kLinear) {
    return {.rows = batch,
            .inner = static_cast<int64_t>(layer.in.size()),
            .columns = static_cast<int64_t>(layer.out.size()),
            .count = 1};
  }
  if (spec.kind != LayerKind::kConv2d || spec.groups != 1) return {};
  return {.rows = int64_t{layer.out.height} * layer.out.width,
          .inner = int64_t{layer.in.channels} * spec.window * spec.window,
          .columns = layer.out.channels,
          .count = batch};
}

LayerWork CountWork(const Graph& graph, const std::vector<StagePlan>& stages,
                    const StagePlan& stage, uint32_t batch) {
  const std::vector<const Layer*> layers = FindLayers(graph, stage);
  LayerWork work{.names = stage.layers,
                 .kind = KindName(*layers.front()),
                 .product = MakeProduct(*layers.front(), batch)};
  for (const Layer* layer : layers) {
    work.forward_flops += static_cast<double>(batch * ForwardFlops(*layer));
    work.backward_flops += static_cast<double>(batch * BackwardFlops(*layer));
  }
  double in = 0.0;
  for (const int input : stage.inputs)
    in += static_cast<double>((input == kGraphInput ? graph.input() : stages[input].out).size());
  double parameters = 0.0;
  for (size_t t = stage.parameters.first; t < stage.parameters.last; ++t)
    parameters += static_cast<double>(graph.layout().specs()[t].size());
  const double out = static_cast<double>(stage.out.size());
  const double in_gradient = layers.front()->has_input_gradient ? in : 0.0;
  work.forward_bytes = sizeof(float) * (batch * (in + out) + parameters);
  // dy and the inputs are read, dx is written; parameters are read, and their gradients written.
  work.backward_bytes = sizeof(float) * (batch * (out + in + in_gradient) + 2 * parameters);
  return work;
}

}  // namespace

double EigenSeconds(const MatrixProduct& product) {
  // The rows are contiguous, like those of Pando's kernels.
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Matrix a = Matrix::Constant(product.rows, product.inner, 0.5f);
  const Matrix b = Matrix::Constant(product.inner, product.columns, 0.25f);
  Matrix c = Matrix::Zero(product.rows, product.columns);
  const double start = ThreadSeconds();
  for (int64_t i = 0; i < product.count; ++i) {
    c.noalias() = a * b;
    asm volatile("" ::: "memory");  // the compiler must not notice that all products are equal
  }
  return ThreadSeconds() - start;
}

Result<LayerTimer> LayerTimer::Create(const std::string& model, uint32_t batch) {
  const ZooModel* known = FindZooModel(model);
  if (known == nullptr) {
    return InvalidArgument(
        fmt::format("--model: '{}' is none of the zoo's; pando models lists them", model));
  }
  Job job;
  job.model = model;
  PANDO_ASSIGN_OR_RETURN(Model made, Model::Create(job, known->input, known->class_count));
  SetFloatEnvironment();
  return LayerTimer(made, known->input, batch);
}

LayerTimer::LayerTimer(const Model& model, SampleShape input, uint32_t batch)
    : parameters_(model.layout().float_count() + kSlackElements),
      gradients_(model.layout().float_count() + kSlackElements),
      network_(model, batch) {
  const Graph& graph = model.graph();
  const std::vector<StagePlan> stages = PlanStages(graph);
  for (const StagePlan& stage : stages) work_.push_back(CountWork(graph, stages, stage, batch));
  PANDO_CHECK(work_.size() == network_.layer_count());
  const size_t float_count = model.layout().float_count();
  InitRange(model.layout(), /*seed=*/1, {0, float_count}, parameters_.span().first(float_count));
  normalisation_ = {std::vector<float>(input.channels, 0.5f),
                    std::vector<float>(input.channels, 0.25f)};
  batch_.shape = input;
  for (size_t i = 0; i < batch * input.size(); ++i)
    batch_.bytes.push_back(static_cast<uint8_t>(i * 7919 % 251));
  for (uint32_t i = 0; i < batch; ++i)
    batch_.labels.push_back(static_cast<int32_t>(i % graph.class_count()));
}

std::vector<LayerTime> LayerTimer::Pass() {
  batch_.normalisation = &normalisation_;  // the timer and this member may have moved
  std::vector<LayerTime> times(work_.size());
  network_.SetBatch(batch_, {.seed = 1}, Mode::kTrain);
  const auto seconds_of = [](auto&& call) {
    const double start = ThreadSeconds();
    call();
    return ThreadSeconds() - start;
  };
  for (uint32_t layer = 0; layer < times.size(); ++layer) {
    times[layer].forward_s = seconds_of([&] { network_.Forward(layer, parameters_.data()); });
  }
  for (uint32_t layer = network_.layer_count(); layer-- > 0;) {
    times[layer].backward_s =
        seconds_of([&] { network_.Backward(layer, parameters_.data(), gradients_.data()); });
  }
  return times;
}

}  // namespace pando::bench
