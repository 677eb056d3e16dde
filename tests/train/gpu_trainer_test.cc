// Tests of a trainer's additional duties on a GPU (the other tests run on both).
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "kernels/batch_block.h"
#include "kernels/copy_queue.h"
#include "kernels/launch_graph.h"
#include "run/serial_trainer.h"
#include "tests/train/plain_training.h"
#include "tests/train/trainer_fixture.h"
#include "train/gpu/batch_upload.h"
#include "train/gpu/device_codec.h"
#include "train/gpu/parameter_copy.h"

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

TEST_CASE("updates on separate threads make the bits of a plain loop (I5)") {
  Job job = TestJob::SmallMlp();
  job.mlp_hidden = {560, 512};  // of 1.2 MiB: smaller ones are updated by the launching thread
  job.micro_batches = 3;
  const TestJob test(job);
  std::vector<float> parameters(test.plan.layout.float_count());
  InitRange(test.plan.layout, job.seed, {0, parameters.size()}, parameters);
  const auto result = TrainSerially(job, test.data, test.model, {}, {}, TestDevice());
  REQUIRE(result.ok());
  const std::vector<float> expected =
      TrainPlainly(job, test.data, test.model, std::move(parameters));
  CHECK(std::ranges::equal(result->parameters->span(), expected));
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

constexpr PayloadCodec kCodedOnGpu[] = {PayloadCodec::kFp16, PayloadCodec::kBf16,
                                        PayloadCodec::kInt8};

// Numbers of every size; and blocks with what is not finite, with subnormal ones, with ties.
std::vector<float> ManyFloats(size_t count) {
  std::vector<float> floats(count);
  for (uint32_t i = 0; i < count; ++i) {
    const PhiloxBlock block = Philox4x32({i, 1, 0, 0}, {});
    const uint32_t kind = i / 256 % 8;
    floats[i] = std::ldexp(static_cast<float>(static_cast<int32_t>(block[0])),
                           static_cast<int>(block[1] % (8 * kind + 1)) - 45);
    if (kind == 0) floats[i] = std::bit_cast<float>(block[0] & 0x807fffff);  // ldexp gives zeros
    if (kind == 5) floats[i] = std::bit_cast<float>((block[0] & 0x800fffff) | 0x05400000);  // 1e-35
    if (kind == 6) floats[i] = std::bit_cast<float>(block[0]);  // NaNs of all bits among them
    if (kind == 7) floats[i] = static_cast<float>(static_cast<int32_t>(block[0]) >> 12 << 3);
  }
  if (count > 600) floats[600] = -0.0f;
  return floats;
}

std::vector<uint32_t> BitsFor(std::span<const float> floats) {
  std::vector<uint32_t> bits(floats.size());
  std::ranges::transform(floats, bits.begin(), [](float x) { return std::bit_cast<uint32_t>(x); });
  return bits;
}

TEST_CASE("a GPU encodes and decodes payloads to the CPU's bits, wherever shards are cut") {
  SetFloatEnvironment();
  const Device device = TestDevice();
  const TensorLayout layout({{.name = "w", .shape = {4103}},
                             {.name = "mean", .shape = {37}, .kind = TensorKind::kStatistic},
                             {.name = "b", .shape = {301}},
                             MetricTensorSpec()});
  const std::vector<float> floats = ManyFloats(layout.float_count());
  for (const uint64_t shard_bytes : {uint64_t{4000}, uint64_t{1} << 20}) {
    const ShardPlan shards(layout, {.target_bytes = shard_bytes});
    for (const PayloadCodec kind : kCodedOnGpu) {
      CAPTURE(static_cast<int>(kind));
      const PayloadPlan payloads({kind}, layout, shards);
      const DeviceCodec codec(device, payloads, shards.shard_count());
      FloatBuffer there = DeviceFloats(device, floats.size());
      FloatBuffer encoded = DeviceFloats(device, payloads.float_count());
      FloatBuffer decoded = DeviceFloats(device, floats.size());
      Upload(device, std::as_bytes(std::span(floats)), there.data());
      std::vector<float> expected(payloads.float_count()), expected_back(floats.size());
      for (uint32_t s = 0; s < shards.shard_count(); ++s) {
        const ShardRange& range = shards.range(ShardId(s));
        codec.Encode(ShardId(s), there.data() + range.first, encoded.data());
        codec.Decode(ShardId(s), encoded.data(), decoded.data() + range.first);
        const ShardRange place = payloads.range(ShardId(s));
        const std::span payload =
            std::as_writable_bytes(std::span(expected).subspan(place.first, place.size()));
        const ShardCodec& on_cpu = *payloads.codec(ShardId(s));
        on_cpu.Encode(std::span(floats).subspan(range.first, range.size()), payload);
        on_cpu.Decode(payload, std::span(expected_back).subspan(range.first, range.size()));
      }
      std::vector<float> got(expected.size()), back(floats.size());
      Download(device, encoded.data(), std::as_writable_bytes(std::span(got)));
      Download(device, decoded.data(), std::as_writable_bytes(std::span(back)));
      CHECK(BitsFor(got) == BitsFor(expected));
      CHECK(BitsFor(back) == BitsFor(expected_back));
    }
  }
}

// The payloads of a step, one for each (micro-batch, shard), in that order. `pulled`: how the
// parameters come in.
std::vector<Blob> PayloadsOfStep(const Job& job,
                                 const std::function<Blob(const JobPlan&, uint32_t)>& pulled) {
  const TestJob test(job);
  EventLog log;
  Trainer trainer({test.plan, test.model, test.data, TestDevice()}, 1, log.sink());
  trainer.Compute(Step(0), MicroBatches({0, 1, 2, 3}));
  for (uint32_t s = 0; s < test.plan.shards.shard_count(); ++s)
    trainer.ParametersArrived(ShardId(s), Version(0), pulled(test.plan, s));
  log.Await<StepComputed>(trainer);
  std::map<std::pair<TreeNode, ShardId>, Blob> by_place;
  for (const GradientReady& gradient : log.gradients)
    by_place[{gradient.node, gradient.shard}] = gradient.payload;
  std::vector<Blob> payloads;
  for (auto& [place, payload] : by_place) payloads.push_back(payload);
  return payloads;
}

TEST_CASE("what a GPU encodes and decodes makes the payloads that the CPU's codecs make") {
  Job job = TestJob::SmallMlp();
  const TestJob exact(job);
  const SharedBuffer values = exact.Parameters();
  for (const PayloadCodec kind : kCodedOnGpu) {
    CAPTURE(static_cast<int>(kind));
    job.push_codec = job.pull_codec = kind;
    const TestJob coded(job);
    const auto encoded = [&](const JobPlan& plan, uint32_t s) {
      auto payload = std::make_shared<FloatBuffer>(coded.plan.pulls.PayloadBytes(ShardId(s)) / 4);
      coded.plan.pulls.codec(ShardId(s))
          ->Encode(ShardBlob(plan, values, s).floats(), std::as_writable_bytes(payload->span()));
      return ToBlob(payload);
    };
    const auto decoded = [&](const JobPlan& plan, uint32_t s) {
      auto floats = std::make_shared<FloatBuffer>(plan.shards.range(ShardId(s)).size());
      coded.plan.pulls.codec(ShardId(s))->Decode(encoded(plan, s).bytes(), floats->span());
      return ToBlob(floats);
    };
    Job pushing = job;
    pushing.pull_codec = PayloadCodec::kFp32;  // the parameters are decoded by the CPU
    const std::vector<Blob> by_gpu = PayloadsOfStep(job, encoded);
    const std::vector<Blob> pulled_by_cpu = PayloadsOfStep(pushing, decoded);
    REQUIRE(by_gpu.size() == pulled_by_cpu.size());
    REQUIRE(by_gpu.size() == 4 * coded.plan.shards.shard_count());
    for (size_t i = 0; i < by_gpu.size(); ++i)
      CHECK(std::ranges::equal(by_gpu[i].bytes(), pulled_by_cpu[i].bytes()));
    // Each micro-batch by hand, encoded by the CPU.
    auto parameters = std::make_shared<FloatBuffer>(exact.plan.layout.float_count());
    for (uint32_t s = 0; s < exact.plan.shards.shard_count(); ++s) {
      const ShardRange& range = exact.plan.shards.range(ShardId(s));
      std::ranges::copy(decoded(exact.plan, s).floats(), parameters->data() + range.first);
    }
    size_t at = 0;
    for (uint32_t m = 0; m < 4; ++m) {
      const std::vector<float> gradient = NaiveGradient(exact, Step(0), MicroBatch(m), *parameters);
      for (uint32_t s = 0; s < exact.plan.shards.shard_count(); ++s) {
        const ShardRange& range = exact.plan.shards.range(ShardId(s));
        std::vector<std::byte> expected(coded.plan.pushes.PayloadBytes(ShardId(s)));
        coded.plan.pushes.codec(ShardId(s))
            ->Encode(std::span(gradient).subspan(range.first, range.size()), expected);
        CHECK(std::ranges::equal(by_gpu[at++].bytes(), expected));
      }
    }
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
