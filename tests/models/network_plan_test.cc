#include "models/network_plan.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "models/zoo.h"
#include "tests/models/support.h"

namespace pando {
namespace {

Graph MakeGraph(const std::string& name, SampleShape data) {
  Job job;
  job.model = name;
  Result<Graph> graph = BuildModelGraph(job, data, 10);
  REQUIRE_MESSAGE(graph.ok(), graph.status().message());
  return *std::move(graph);
}

bool IsLiveAt(const PlannedBuffer& buffer, size_t event) {
  return buffer.first_event <= event && event <= buffer.last_event;
}

void CheckApart(const MemoryPlan& plan) {
  size_t overlap_count = 0;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const PlannedBuffer& a = plan.buffers[i];
    CHECK(a.offset % kBufferAlignmentBytes == 0);
    CHECK(a.offset + a.bytes <= plan.allocated_bytes);
    for (size_t j = 0; j < i; ++j) {
      const PlannedBuffer& b = plan.buffers[j];
      const bool is_together = IsLiveAt(a, b.first_event) || IsLiveAt(b, a.first_event);
      const bool is_apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
      overlap_count += is_together && !is_apart;
    }
  }
  CHECK(overlap_count == 0);
}

TEST_CASE("buffers that are needed at the same time lie apart, and little room is lost") {
  constexpr double kLostShareMax = 0.03;  // measured at most 0.02
  for (const char* name : {"mnist-cnn", "resnet18-cifar", "resnet50", "mobilenet-v2", "vgg16-bn"}) {
    CAPTURE(name);
    const SampleShape input = FindZooModel(name)->input;
    const std::vector<StagePlan> stages = PlanStages(MakeGraph(name, input));
    const SampleShape entrance = MakeGraph(name, input).input();
    const NetworkPlan training = PlanTraining({stages, entrance, 4}, {});
    CheckApart(training.memory);
    CHECK(static_cast<double>(training.memory.allocated_bytes) <=
          static_cast<double>(training.memory.PeakLiveBytes()) * (1 + kLostShareMax));
    const NetworkPlan evaluation = PlanEvaluation({stages, entrance, 4});
    CheckApart(evaluation.memory);
    CHECK(evaluation.memory.allocated_bytes < training.memory.allocated_bytes);
  }
}

TEST_CASE("layers that one operation computes are one stage") {
  const std::vector<StagePlan> resnet = PlanStages(MakeGraph("resnet18-cifar", {32, 32, 3}));
  std::vector<std::string> names;
  for (const StagePlan& stage : resnet) names.push_back(stage.layers);
  const auto has = [&](const std::string& name) { return std::ranges::count(names, name) == 1; };
  CHECK(has("conv1"));
  CHECK(has("bn1 relu"));
  CHECK(has("layer1.0.bn2 layer1.0.add layer1.0.relu"));
  CHECK(has("layer2.0.bn2"));  // the shortcut's batch norm comes between it and the addition
  CHECK(has("layer2.0.downsample.1 layer2.0.add layer2.0.relu"));
  const std::vector<StagePlan> mobile = PlanStages(MakeGraph("mobilenet-v2-small", {32, 32, 3}));
  names.clear();
  for (const StagePlan& stage : mobile) names.push_back(stage.layers);
  CHECK(has("features.3.conv.0.1 features.3.conv.0.2"));
  CHECK(has("features.3.conv.3 features.3.add"));
}

TEST_CASE("an activation that others read too is not lost in a stage") {
  const Model model = MakeGoldenNetwork("residual.toml");
  std::vector<std::string> names;
  for (const StagePlan& stage : PlanStages(model.graph())) names.push_back(stage.layers);
  const std::vector<std::string> tail{"conv7", "bn7 add3", "add4 relu7", "windows",
                                      "pairs", "mean",     "fc1 relu8",  "fc2"};
  REQUIRE(names.size() > tail.size());
  CHECK(std::equal(tail.rbegin(), tail.rend(), names.rbegin()));
}

TEST_CASE("the network's input gets no gradient, nor does what nothing trained makes") {
  const Model model = MakeModel("resnet18-cifar", {32, 32, 3});
  const std::vector<StagePlan> stages = PlanStages(model.graph());
  const NetworkPlan plan = PlanTraining({stages, {32, 32, 3}, 2}, {});
  CHECK(plan.backward[0].dx[0] == kNoBuffer);
  const Model mlp = MakeModel("mlp");
  const std::vector<StagePlan> flat = PlanStages(mlp.graph());
  const NetworkPlan mlp_plan = PlanTraining({flat, {28, 28, 1}, 2}, {});
  CHECK_FALSE(mlp_plan.has_backward[0]);  // flatten
  CHECK(mlp_plan.backward[1].dx[0] == kNoBuffer);
}

TEST_CASE("what is read behind a segment is not dropped, and what is made again lies apart") {
  const Model model = MakeGoldenNetwork("residual.toml");
  const std::vector<StagePlan> stages = PlanStages(model.graph());
  const auto stage_of = [&](const std::string& layers) {
    const auto at = std::ranges::find(stages, layers, &StagePlan::layers);
    REQUIRE(at != stages.end());
    return static_cast<size_t>(at - stages.begin());
  };
  // relu2's output is read by conv3 within the segment, and by "down" behind it.
  const size_t first = stage_of("conv2"), kept = stage_of("bn2 add1 relu2");
  const size_t again = stage_of("conv3"), last = stage_of("bn3 relu3");
  REQUIRE(stage_of("down") > last);
  const StageRun segment{first, last + 1};
  const NetworkPlan plan = PlanTraining({stages, {28, 28, 1}, 3}, {&segment, 1});
  CHECK(plan.made_again[last] == std::vector<size_t>{first, again});
  CHECK(plan.again[kept].y == kNoBuffer);
  CHECK(plan.forward[kept].y != kNoBuffer);
  CHECK(plan.backward[stage_of("down")].x == plan.forward[kept].y);
  CHECK(plan.again[again].x[0] == plan.forward[kept].y);
  CHECK(plan.backward[last].x == plan.again[again].y);
  CHECK(plan.again[again].y != plan.forward[again].y);
  CHECK(std::ranges::count_if(plan.memory.events, &MemoryEvent::is_again) == 2);
  // After forward its result is not needed any more.
  const PlannedBuffer& dropped = plan.memory.buffers[plan.forward[again].y];
  CHECK_FALSE(plan.memory.events[dropped.last_event].is_backward);
  CHECK(plan.memory.events[plan.memory.buffers[plan.forward[kept].y].last_event].is_backward);
  CheckApart(plan.memory);
}

TEST_CASE("checkpointed plans lie apart too") {
  for (const char* name : {"resnet18-cifar", "resnet50-cifar", "mobilenet-v2-small", "vgg16-bn"}) {
    CAPTURE(name);
    const Graph graph = MakeGraph(name, FindZooModel(name)->input);
    const NetworkPlan plan =
        PlanCheckpointed({PlanStages(graph), graph.input(), 4}, /*evaluation_bytes=*/0);
    CHECK(std::ranges::any_of(plan.memory.events, &MemoryEvent::is_again));
    CheckApart(plan.memory);
  }
}

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t total_pages = 0, resident_pages = 0;
  file >> total_pages >> resident_pages;
  return resident_pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

TEST_CASE("a network takes the memory that its plan says") {
  constexpr double kTol = 0.05;  // the issue's
  const Model model = MakeModel("resnet18-cifar", {32, 32, 3});
  const SampleCounts samples{.training = 16, .evaluation = 64};
  const FloatBuffer parameters = InitialParameters(model);
  FloatBuffer gradients(model.layout().float_count());
  Batch batch = NoiseBatch(16);
  batch.shape = {32, 32, 1};
  batch.bytes.resize(16 * 32 * 32, uint8_t{9});
  const uint64_t before = ResidentBytes();
  Network network(model, samples);
  network.SetBatch(batch, {}, Mode::kTrain);
  ForwardAll(network, parameters.data());
  BackwardAll(network, parameters.data(), gradients.data());
  const auto measured = static_cast<double>(ResidentBytes() - before);
  const auto planned = static_cast<double>(Network::PlanMemory(model, samples).allocated_bytes());
  MESSAGE("planned " << planned << ", measured " << measured << " bytes");
  CHECK(measured == doctest::Approx(planned).epsilon(kTol));
}

}  // namespace
}  // namespace pando
