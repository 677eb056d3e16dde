#include "models/graph.h"

#include <algorithm>

#include "kernels/ops.h"
#include "models/zoo.h"
#include "tests/models/support.h"

namespace pando {
namespace {

Graph MakeGraph(const std::string& name) {
  Job job;
  job.model = name;
  const ZooModel& model = *FindZooModel(name);
  Result<Graph> graph = BuildModelGraph(job, model.input, model.class_count);
  REQUIRE(graph.ok());
  return *std::move(graph);
}

TEST_CASE("operations are counted as the closed forms say") {
  const Graph graph = MakeGraph("lenet5");
  const std::vector<Layer>& layers = graph.layers();
  CHECK(ForwardFlops(layers[0]) == 28 * 28 * 6 * (2 * 25 + 1));       // conv1: 5 x 5 x 1, bias
  CHECK(BackwardFlops(layers[0]) == ForwardFlops(layers[0]));         // weights alone
  CHECK(ForwardFlops(layers[1]) == 28 * 28 * 6);                      // relu1
  CHECK(ForwardFlops(layers[2]) == 14 * 14 * 6 * 4);                  // pool1
  CHECK(ForwardFlops(layers[3]) == 10 * 10 * 16 * (2 * 25 * 6 + 1));  // conv2
  CHECK(BackwardFlops(layers[3]) == 2 * ForwardFlops(layers[3]));
  CHECK(ForwardFlops(layers[6]) == 0);                    // flatten
  CHECK(ForwardFlops(layers[7]) == 120 * (2 * 400 + 1));  // fc1
}

TEST_CASE("gradients are counted where they are made: none of what nothing before it is trained") {
  const Graph graph = MakeGraph("mlp");
  const std::vector<Layer>& layers = graph.layers();  // flatten, fc1, relu1, fc2
  REQUIRE(layers.size() == 4);
  CHECK_FALSE(layers[0].has_backward);
  CHECK(BackwardFlops(layers[0]) == 0);
  CHECK(BackwardFlops(layers[1]) == ForwardFlops(layers[1]));  // weights alone
  CHECK(BackwardFlops(layers[2]) == ForwardFlops(layers[2]));
  CHECK(BackwardFlops(layers[3]) == 2 * ForwardFlops(layers[3]));
}

// Multiply-adds of torchvision's documentation: 1.814, 4.089, 15.47 and 0.301 billion.
TEST_CASE("the papers' networks cost what torchvision says, and a few per cent of small layers") {
  const std::pair<const char*, double> known[] = {
      {"resnet18", 1.814e9}, {"resnet50", 4.089e9}, {"vgg16", 15.470e9}, {"mobilenet-v2", 0.301e9}};
  for (const auto& [name, multiply_adds] : known) {
    CAPTURE(name);
    const double flops = static_cast<double>(CountCost(MakeGraph(name)).forward_flops);
    CHECK(flops >= 2 * multiply_adds * 0.999);
    CHECK(flops <= 2 * multiply_adds * 1.06);
  }
}

TEST_CASE("depthwise convolutions cost one channel each") {
  const Graph graph = MakeGraph("mobilenet-v2");
  const auto depthwise =
      std::find_if(graph.layers().begin(), graph.layers().end(),
                   [](const Layer& layer) { return layer.spec.name == "features.1.conv.0.0"; });
  REQUIRE(depthwise != graph.layers().end());
  CHECK(ForwardFlops(*depthwise) == 2 * 9 * 112 * 112 * 32);
}

TEST_CASE("a memory plan has every stage's output live from its forward to its backward") {
  const Model model = MakeModel("lenet5");
  const MemoryPlan plan = Network::PlanMemory(model, {.training = 8}).training;
  const std::vector<BytesByUse> live = plan.LiveBytes();
  const auto activations = static_cast<size_t>(BufferUse::kActivation);
  const Network network(model, 8);
  REQUIRE(plan.events.size() == 2 * network.layer_count());
  CHECK(plan.events.front().layers == "conv1 relu1 pool1");
  CHECK_FALSE(plan.events.front().is_backward);
  CHECK(plan.events.back().layers == plan.events.front().layers);
  CHECK(plan.events.back().is_backward);
  // The input alone and conv1's pooled output.
  const size_t slack = kSlackElements * sizeof(float);
  REQUIRE(live.size() == plan.events.size());
  CHECK(live[0][activations] == 8 * sizeof(float) * (28 * 28 + 14 * 14 * 6) + 2 * slack);
  const size_t middle = network.layer_count() - 1;
  for (size_t event = 0; event < plan.events.size(); ++event) {
    CHECK(live[event][activations] <= live[middle][activations]);
  }
  CHECK(plan.PeakLiveBytes() <= plan.allocated_bytes);
  CHECK(plan.PeakLiveBytes() > live[middle][activations]);
}

}  // namespace
}  // namespace pando
