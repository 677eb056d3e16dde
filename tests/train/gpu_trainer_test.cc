// What a trainer on a GPU must do beyond what one on the CPU does (the other tests run on both).
#include <doctest/doctest.h>

#include <cmath>

#include "kernels/device.h"
#include "kernels/ops.h"
#include "run/serial_trainer.h"
#include "tests/train/trainer_fixture.h"
#include "train/gpu/input_copies.h"

namespace pando {
namespace {

TEST_CASE("a thousand steps take no more of the GPU's memory than a hundred") {
  Job job = TestJob::SmallMlp();
  job.mlp_hidden = {8};
  job.micro_batches = 8;
  job.steps = 1000;
  job.eval_every_steps = 50;
  job.eval_every_epochs = 0;
  const TestJob test(job);
  uint64_t free_at_100 = 0, free_at_end = 0;
  const auto result = TrainSerially(job, test.data, test.model,
                                    {.on_step =
                                         [&](const SerialStep& step) {
                                           const uint64_t now = ReadRoom(TestDevice()).free_bytes;
                                           if (step.metrics.step == Step(100)) free_at_100 = now;
                                           free_at_end = now;
                                         }},
                                    {}, TestDevice());
  REQUIRE(result.ok());
  CHECK(free_at_100 > 0);
  CHECK(free_at_end == free_at_100);
}

// As the CPU learns, so learns the GPU: the losses lie on one curve, though their bits differ.
TEST_CASE("the losses of training are those of the CPU, within what rounding grows to") {
  constexpr double kLossTol = 2e-3;  // relative, after 50 steps; on the host in its place 1e-7
  Job job = TestJob::MnistCnn();
  job.steps = 50;
  job.optimizer = {.kind = OptimizerKind::kSgd, .lr = 0.02, .momentum = 0.9};
  const TestJob test(job, {28, 28, 1});
  const auto losses = [&](Device device) {
    std::vector<double> all;
    const auto result = TrainSerially(
        job, test.data, test.model,
        {.on_step = [&](const SerialStep& step) { all.push_back(step.metrics.loss); }}, {}, device);
    REQUIRE(result.ok());
    return all;
  };
  const std::vector<double> expected = losses({});
  const std::vector<double> got = losses(TestDevice());
  REQUIRE(got.size() == expected.size());
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i)
    largest = std::max(largest, std::abs(got[i] / expected[i] - 1));
  MESSAGE("off by at most " << largest);
  CHECK(largest < kLossTol);
}

// Signs and sizes that round, and subnormal sums: a tree's nodes may be added on either device.
TEST_CASE("floats are added as on the CPU, bit for bit, wherever they begin") {
  SetFloatEnvironment();
  constexpr size_t kCount = 1027;
  std::vector<float> x(kCount), y(kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    const PhiloxBlock block = Philox4x32({i, 0, 0, 0}, {});
    const auto draw = [&](int word) {
      return std::ldexp(static_cast<float>(static_cast<int32_t>(block[word])),
                        static_cast<int>(block[word + 1] % 40) - (i % 3 == 0 ? 160 : 20));
    };
    x[i] = draw(0);
    y[i] = draw(2);
  }
  for (const auto& [x_first, y_first] : {std::pair(0, 0), std::pair(3, 3), std::pair(1, 2)}) {
    std::vector<float> expected = y;
    AddFloats({}, kCount - 5, x.data() + x_first, expected.data() + y_first);
    FloatBuffer a = DeviceFloats(TestDevice(), kCount), b = DeviceFloats(TestDevice(), kCount);
    Upload(TestDevice(), std::as_bytes(std::span(x)), a.data());
    Upload(TestDevice(), std::as_bytes(std::span(y)), b.data());
    AddFloats(TestDevice(), kCount - 5, a.data() + x_first, b.data() + y_first);
    std::vector<float> got(kCount);
    Download(TestDevice(), b.data(), std::as_writable_bytes(std::span(got)));
    CHECK(got == expected);
  }
}

TEST_CASE("copies beside kernels begin and wait as requested") {
  const Device device = TestDevice();
  constexpr size_t kCount = 1000;
  CopyQueue queue(device);
  FloatBuffer host = PinnedFloats(device, kCount), back = PinnedFloats(device, kCount);
  FloatBuffer x = DeviceFloats(device, kCount), y = DeviceFloats(device, kCount);
  for (int round = 0; round < 50; ++round) {
    queue.Await(queue.Mark());
    std::ranges::fill(host.span(), static_cast<float>(round));
    queue.AwaitLaunched();  // the round before has read x
    queue.ToDevice(std::as_bytes(host.span()), x.data());
    queue.HoldLaunches();
    ScaleFloats(device, kCount, x.data(), 2, y.data());
    queue.AwaitLaunched();
    queue.ToHost(y.data(), std::as_writable_bytes(back.span()));
    const CopyQueue::Ticket ticket = queue.Mark();
    while (round % 2 == 0 && !queue.IsDone(ticket)) {
    }
    queue.Await(ticket);
    CHECK(std::ranges::all_of(back.span(),
                              [&](float f) { return f == 2.0f * static_cast<float>(round); }));
  }
}

TEST_CASE("parameters that come over leave those alone that launched kernels still read") {
  const Device device = TestDevice();
  const TestJob test(TestJob::SmallMlp());
  const size_t count = test.plan.layout.float_count();
  const ShardPlan::Run all{0, test.plan.shards.shard_count()};
  CopyQueue queue(device);
  ParameterCopy copy(device, test.plan.shards, queue);
  FloatBuffer host[2] = {PinnedFloats(device, count), PinnedFloats(device, count)};
  FloatBuffer read[2] = {DeviceFloats(device, count), DeviceFloats(device, count)};
  for (int i = 0; i < 2; ++i) {
    std::ranges::fill(host[i].span(), static_cast<float>(i + 1));
    copy.Follow(
        i, [&](ShardId shard) { return host[i].data() + test.plan.shards.range(shard).first; });
    copy.Bring(all);
    ScaleFloats(device, count, copy.values(), 1, read[i].data());
  }
  for (int i = 0; i < 2; ++i) {
    std::vector<float> got(count);
    Download(device, read[i].data(), std::as_writable_bytes(std::span(got)));
    CHECK(got == std::vector<float>(count, static_cast<float>(i + 1)));
  }
}

// Streams are as late as they may be (CUDA on the host): a wait that is missing changes a score.
TEST_CASE("samples come over while those before them are still to be read") {
  const TestJob test(TestJob::SmallMlp());
  const Device device = TestDevice();
  const auto finish = [&](Batch* batch) { PinBatch(device, batch); };
  BatchSource source(test.data, test.plan.steps, test.job.seed, 0, 1, finish);
  const SharedBuffer host = test.Parameters();
  FloatBuffer parameters = DeviceFloats(device, host->size());
  Upload(device, std::as_bytes(host->span()), parameters.data());
  Network network(test.model, 8, device), plain(test.model, 8, device);
  const auto forward = [&](Network& n) {
    for (uint32_t layer = 0; layer < n.layer_count(); ++layer) n.Forward(layer, parameters.data());
  };
  BatchUpload upload(device);
  std::shared_ptr<const Batch> now = *source.Take(Step(0), MicroBatch(0));
  for (uint32_t i = 1; i < 30; ++i) {
    const std::shared_ptr<const Batch> next = *source.Take(Step(i / 4 % 8), MicroBatch(i % 4));
    upload.SetIn(network, now, {});
    if (i % 5 != 0) upload.Bring(next);  // at once: the import is most likely still to run
    forward(network);
    plain.SetBatch(*now, {}, Mode::kTrain);
    forward(plain);
    CHECK(network.Score().loss_sum == plain.Score().loss_sum);
    now = next;
  }
}

TEST_CASE("a recording is launched with the values of each launch") {
  const Device device = TestDevice();
  FloatBuffer x = DeviceFloats(device, 4), y = DeviceFloats(device, 4);
  ScaleFloats(device, 4, x.data(), 3, y.data());
  const LaunchGraph graph(device, [&] {
    ScaleFloats(device, 4, x.data(), 3, y.data());
    AddFloats(device, 4, x.data(), y.data());
  });
  for (const float value : {1.0f, 2.5f}) {
    const std::vector<float> host(4, value);
    Upload(device, std::as_bytes(std::span(host)), x.data());
    graph.Launch();
    std::vector<float> got(4);
    Download(device, y.data(), std::as_writable_bytes(std::span(got)));
    CHECK(got == std::vector<float>(4, 4 * value));
  }
}

}  // namespace
}  // namespace pando
