// Operations on bfloat16 and half beside the same on floats, on one GPU: what is read is exactly
// the same, so that they differ by what is rounded when it is written.
#include "tests/kernels/bench.h"

namespace pando {
namespace {

TEST_CASE("convolutions of small elements are those of floats") {
  const std::vector<Conv2dSpec> specs{{{9, 7, 16}, 24, 3, 1, 1, false, true},
                                      {{8, 8, 3}, 16, 3, 2, 1},
                                      {{12, 12, 10}, 20, 5, 1, 0, true, true},
                                      {{7, 6, 32}, 32, 3, 2, 1, false, false, 32},
                                      {{5, 5, 9}, 9, 3, 1, 1, false, false, 9}};
  constexpr uint32_t kSamples = 3;
  for (const Conv2dSpec& spec : specs) {
    CAPTURE(spec.input.channels);
    CheckElements([&](Bench& b) {
      const size_t in = spec.input.size() * kSamples, out = spec.output().size() * kSamples;
      void *x = b.Elements(ExactValues(in, 1)), *y = b.Elements(out), *dx = b.Elements(in);
      float* weight = b.Floats(ExactValues(spec.weight_size(), 2));
      float* bias = b.Floats(ExactValues(spec.out_channels, 3));
      float *dweight = b.Numbers<float>(spec.weight_size()),
            *dbias = b.Numbers<float>(spec.out_channels);
      auto* argmax = b.Numbers<int32_t>(out);
      const auto scratch = b.Scratch(Conv2dScratchBytes(b.device(), spec, kSamples));
      Conv2dForward(b.device(), spec, {kSamples, x, weight, bias, nullptr, y, argmax}, scratch);
      Results results{b.ReadElements(y, out)};
      // The two may mask and pool differently: only plain gradients are compared.
      if (spec.relu || spec.max_pool) return results;
      void* dy = b.Elements(ExactValues(out, 4));
      Conv2dBackward(b.device(), spec,
                     {kSamples, x, weight, nullptr, y, argmax, dy, dx, dweight, dbias}, scratch);
      results.push_back(b.ReadElements(dx, in));
      results.push_back(b.ReadFloats(dweight, spec.weight_size()));
      results.push_back(b.ReadFloats(dbias, spec.out_channels));
      return results;
    });
  }
}

TEST_CASE("a convolution's data gradient can be added to another one") {
  const std::vector<Conv2dSpec> specs{{{9, 7, 16}, 24, 3, 1, 1},
                                      {{8, 8, 4}, 6, 3, 2, 1, false, false, 2},
                                      {{7, 6, 32}, 32, 3, 2, 1, false, false, 32},
                                      {{5, 5, 9}, 9, 3, 1, 1, false, false, 9}};
  constexpr uint32_t kSamples = 3;
  for (const Conv2dSpec& spec : specs) {
    CAPTURE(spec.input.channels);
    CheckElements([&](Bench& b) {
      const size_t in = spec.input.size() * kSamples, out = spec.output().size() * kSamples;
      const Doubles before = ExactValues(in, 1);
      void *dx = b.Elements(in), *added = b.Elements(before);
      Conv2dBackwardArgs args{.sample_count = kSamples,
                              .x = b.Elements(ExactValues(in, 2)),
                              .weight = b.Floats(ExactValues(spec.weight_size(), 3)),
                              .dy = b.Elements(ExactValues(out, 4)),
                              .dx = dx,
                              .dweight = b.Numbers<float>(spec.weight_size())};
      const auto scratch = b.Scratch(Conv2dScratchBytes(b.device(), spec, kSamples));
      Conv2dBackward(b.device(), spec, args, scratch);
      args.dx = added;
      args.adds_dx = true;
      Conv2dBackward(b.device(), spec, args, scratch);
      Doubles sums = b.ReadElements(dx, in), got = b.ReadElements(added, in);
      for (size_t i = 0; i < in; ++i) sums[i] += before[i];
      const bool is_sum = got == sums;
      CHECK((is_sum || b.device().element != ElementType::kFloat32));  // exact in floats
      return Results{got};
    });
  }
}

// [samples, shape] with the channels that the network's input is stored with, or with its own.
void* ImportInput(Bench& b, const Batch& batch, uint32_t channels, bool is_padded) {
  const uint32_t stored = is_padded ? StoredChannels(b.device(), channels) : channels;
  void* x =
      b.Elements(size_t{batch.sample_count()} * batch.shape.height * batch.shape.width * stored);
  ImportBatch(b.device(), batch, channels, x, b.Numbers<int32_t>(batch.sample_count()), stored);
  return x;
}

void CheckPaddedImport(Bench& b, const Batch& batch, uint32_t channels) {
  constexpr size_t kStored = 8;
  const size_t pixels = size_t{batch.sample_count()} * batch.shape.height * batch.shape.width;
  REQUIRE(StoredChannels(b.device(), channels) == kStored);
  const Doubles own = b.ReadElements(ImportInput(b, batch, channels, false), pixels * channels);
  Doubles expected;
  for (size_t i = 0; i < pixels; ++i) {
    for (size_t c = 0; c < kStored; ++c)
      expected.push_back(c < channels ? own[i * channels + c] : 0.0);
  }
  CHECK(b.ReadElements(ImportInput(b, batch, channels, true), pixels * kStored) == expected);
}

TEST_CASE("an input that is stored with eight channels has zeros behind its own") {
  const Normalisation normalisation{{0.5f, 0.25f, 0.125f, 0, 0, 0, 0}, {0.5f, 2, 3, 1, 1, 1, 1}};
  constexpr uint32_t kSamples = 3;
  for (ElementType element : {ElementType::kBfloat16, ElementType::kFloat16}) {
    Result<OpenedGpu> gpu = OpenCuda({.element = element});
    REQUIRE(gpu.ok());
    Bench b(gpu->device());
    for (uint32_t channels : {3u, 5u, 7u}) {
      CAPTURE(channels);
      Batch batch{.shape = {5, 7, channels}, .normalisation = &normalisation, .labels = {0, 1, 2}};
      for (size_t i = 0; i < kSamples * batch.shape.size(); ++i)
        batch.bytes.push_back(static_cast<uint8_t>(i * 37));
      CheckPaddedImport(b, batch, channels);
      batch.moves = {{1, 0, false}, {0, -1, true}, {9, 9, false}};  // the last one is black
      CheckPaddedImport(b, batch, channels);
      batch.shape.channels = 1;
      batch.bytes.resize(kSamples * batch.shape.size());
      CheckPaddedImport(b, batch, channels);
      const Doubles values = ExactValues(kSamples * batch.shape.size(), 1);
      CheckPaddedImport(b,
                        {.shape = batch.shape,
                         .values = std::vector<float>(values.begin(), values.end()),
                         .labels = {0, 1, 2}},
                        channels);
    }
  }
}

TEST_CASE("the CPU, floats, and inputs of 1, 2, 8 and more channels are stored without padding") {
  CHECK(StoredChannels({}, 3) == 3);
  CHECK(StoredChannels(TestDevice(), 3) == 3);
  for (uint32_t channels : {1u, 2u, 8u, 9u})
    CHECK(StoredChannels({DeviceKind::kCuda, ElementType::kFloat16}, channels) == channels);
}

// The result and the gradients of a first layer.
Results FirstLayer(Bench& b, const Conv2dSpec& spec, bool is_padded) {
  constexpr uint32_t kSamples = 3;
  const size_t out = spec.output().size() * kSamples;
  const Doubles values = ExactValues(spec.input.size() * kSamples, 1);
  const Batch batch{.shape = spec.input,
                    .values = std::vector<float>(values.begin(), values.end()),
                    .labels = {0, 1, 2}};
  const void* x = ImportInput(b, batch, spec.input.channels, is_padded);
  const uint32_t x_channels = is_padded ? StoredChannels(b.device(), spec.input.channels) : 0;
  const float* weight = b.Floats(ExactValues(spec.weight_size(), 2));
  float *dweight = b.Numbers<float>(spec.weight_size()),
        *dbias = b.Numbers<float>(spec.out_channels);
  void* y = b.Elements(out);
  auto* argmax = b.Numbers<int32_t>(out);
  const auto scratch = b.Scratch(Conv2dScratchBytes(b.device(), spec, kSamples));
  Conv2dForward(b.device(), spec,
                {.sample_count = kSamples,
                 .x = x,
                 .weight = weight,
                 .bias = b.Floats(ExactValues(spec.out_channels, 3)),
                 .y = y,
                 .argmax = argmax,
                 .x_channels = x_channels},
                scratch);
  Conv2dBackward(b.device(), spec,
                 {.sample_count = kSamples,
                  .x = x,
                  .weight = weight,
                  .y = y,
                  .argmax = argmax,
                  .dy = b.Elements(ExactValues(out, 4)),
                  .dweight = dweight,
                  .dbias = dbias,
                  .x_channels = x_channels},
                 scratch);
  return {b.ReadElements(y, out), b.ReadFloats(dweight, spec.weight_size()),
          b.ReadFloats(dbias, spec.out_channels)};
}

TEST_CASE("a first layer with an input of eight stored channels computes as with its own") {
  const std::vector<Conv2dSpec> specs{{{11, 13, 3}, 32, 7, 2, 3},
                                      {{9, 8, 5}, 17, 3, 1, 1, true, true},
                                      {{24, 24, 3}, 6, 11, 4, 2},
                                      {{5, 4, 7}, 3, 1}};
  for (ElementType element : {ElementType::kBfloat16, ElementType::kFloat16}) {
    Result<OpenedGpu> gpu = OpenCuda({.element = element});
    REQUIRE(gpu.ok());
    Bench b(gpu->device());
    for (const Conv2dSpec& spec : specs) {
      CAPTURE(spec.input.channels);
      const Results own = FirstLayer(b, spec, false), padded = FirstLayer(b, spec, true);
      for (size_t i = 0; i < own.size(); ++i) {
        CAPTURE(i);
        const std::vector<float> values(padded[i].begin(), padded[i].end());
        CHECK(RelativeError(values.data(), own[i]) < Tolerance(element));
      }
    }
  }
}

TEST_CASE("linear layers of small elements are those of floats") {
  const LinearSpec spec{40, 24};
  constexpr uint32_t kSamples = 17;
  CheckElements([&](Bench& b) {
    void *x = b.Elements(ExactValues(kSamples * 40, 1)), *y = b.Elements(kSamples * 24);
    void *dy = b.Elements(ExactValues(kSamples * 24, 2)), *dx = b.Elements(kSamples * 40);
    float *weight = b.Floats(ExactValues(24 * 40, 3)), *bias = b.Floats(ExactValues(24, 4));
    float *dweight = b.Numbers<float>(24 * 40), *dbias = b.Numbers<float>(24);
    const auto scratch = b.Scratch(LinearScratchBytes(b.device(), spec, kSamples));
    LinearForward(b.device(), spec, {kSamples, x, weight, bias, y}, scratch);
    LinearBackward(b.device(), spec, {kSamples, x, weight, y, dy, dx, dweight, dbias}, scratch);
    return Results{b.ReadElements(y, kSamples * 24), b.ReadElements(dx, kSamples * 40),
                   b.ReadFloats(dweight, 24 * 40), b.ReadFloats(dbias, 24)};
  });
}

TEST_CASE("batch norm of small elements is that of floats") {
  for (uint32_t channels : {16u, 7u}) {
    const BatchNormSpec spec{.shape = {6, 5, channels}, .has_residual = true};
    constexpr uint32_t kSamples = 4;
    const size_t count = spec.shape.size() * kSamples;
    CheckElements([&](Bench& b) {
      void *x = b.Elements(ExactValues(count, 1)), *residual = b.Elements(ExactValues(count, 2));
      void *dy = b.Elements(ExactValues(count, 3)), *y = b.Elements(count);
      void *dx = b.Elements(count), *dresidual = b.Elements(count);
      float *weight = b.Floats(ExactValues(channels, 4)),
            *bias = b.Floats(ExactValues(channels, 5));
      float *mean = b.Numbers<float>(channels), *inverse_std = b.Numbers<float>(channels);
      float *variance = b.Numbers<float>(channels), *dweight = b.Numbers<float>(channels);
      float* dbias = b.Numbers<float>(channels);
      const auto scratch = b.Scratch(BatchNormScratchBytes(b.device(), spec));
      BatchNormForward(b.device(), spec,
                       {kSamples, x, weight, bias, residual, y, mean, inverse_std, variance},
                       scratch);
      BatchNormBackward(
          b.device(), spec,
          {kSamples, x, weight, bias, mean, inverse_std, y, dy, dx, dresidual, dweight, dbias},
          scratch);
      return Results{b.ReadElements(y, count),         b.ReadFloats(mean, channels),
                     b.ReadFloats(variance, channels), b.ReadElements(dx, count),
                     b.ReadElements(dresidual, count), b.ReadFloats(dweight, channels),
                     b.ReadFloats(dbias, channels)};
    });
  }
}

// The gradients that a batch norm's activation passes: from x, or from y if it has a residual.
Results MaskedGradients(Device device, BatchNormSpec spec, bool from_x) {
  constexpr uint32_t kSamples = 4;
  Bench b(device);
  const uint32_t channels = spec.shape.channels;
  const size_t count = spec.shape.size() * kSamples;
  // Results near 0 that half rounds to it, on both sides of 0, near 6, and far apart.
  Doubles weights{0x1p-22, 1, 0.01, 4}, biases{0, 0, 6, 3};
  for (size_t c = 4; c < channels; ++c) {
    weights.push_back(weights[c % 4]);
    biases.push_back(biases[c % 4]);
  }
  void *x = b.Elements(RandomDoubles(count, 1)), *dy = b.Elements(RandomDoubles(count, 2));
  void *y = b.Elements(count), *dx = b.Elements(count);
  float *weight = b.Floats(weights), *bias = b.Floats(biases);
  float *mean = b.Numbers<float>(channels), *inverse_std = b.Numbers<float>(channels);
  float *variance = b.Numbers<float>(channels), *dweight = b.Numbers<float>(channels);
  float* dbias = b.Numbers<float>(channels);
  const auto scratch = b.Scratch(BatchNormScratchBytes(device, spec));
  BatchNormForward(device, spec,
                   {kSamples, x, weight, bias, nullptr, y, mean, inverse_std, variance}, scratch);
  spec.has_residual = !from_x;
  BatchNormBackward(
      device, spec,
      {kSamples, x, weight, bias, mean, inverse_std, y, dy, dx, nullptr, dweight, dbias}, scratch);
  return {b.ReadElements(dx, count), b.ReadFloats(dweight, channels),
          b.ReadFloats(dbias, channels)};
}

TEST_CASE("a batch norm's activation passes the same gradients by x as by y") {
  for (ElementType element :
       {ElementType::kFloat32, ElementType::kBfloat16, ElementType::kFloat16}) {
    Result<OpenedGpu> gpu = OpenCuda({.element = element});
    REQUIRE(gpu.ok());
    for (Activation activation : {Activation::kRelu, Activation::kRelu6}) {
      for (uint32_t channels : {16u, 7u}) {
        CAPTURE(static_cast<int>(element));
        CAPTURE(static_cast<int>(activation));
        CAPTURE(channels);
        const BatchNormSpec spec{.shape = {6, 5, channels}, .activation = activation};
        CHECK(MaskedGradients(gpu->device(), spec, true) ==
              MaskedGradients(gpu->device(), spec, false));
      }
    }
  }
}

TEST_CASE("group norm of small elements is that of floats") {
  const GroupNormSpec spec{.shape = {6, 5, 12}, .groups = 3};
  constexpr uint32_t kSamples = 4, kChannels = 12;
  const size_t count = spec.shape.size() * kSamples, rows = kSamples * spec.groups;
  CheckElements([&](Bench& b) {
    void *x = b.Elements(ExactValues(count, 1)), *dy = b.Elements(ExactValues(count, 3));
    void *y = b.Elements(count), *dx = b.Elements(count);
    float *weight = b.Floats(ExactValues(kChannels, 4)),
          *bias = b.Floats(ExactValues(kChannels, 5));
    float *mean = b.Numbers<float>(rows), *inverse_std = b.Numbers<float>(rows);
    float *dweight = b.Numbers<float>(kChannels), *dbias = b.Numbers<float>(kChannels);
    const auto scratch = b.Scratch(GroupNormScratchBytes(b.device(), spec, kSamples));
    GroupNormForward(b.device(), spec, {kSamples, x, weight, bias, y, mean, inverse_std}, scratch);
    GroupNormBackward(b.device(), spec,
                      {kSamples, x, weight, mean, inverse_std, dy, dx, dweight, dbias}, scratch);
    return Results{b.ReadElements(y, count), b.ReadFloats(mean, rows), b.ReadElements(dx, count),
                   b.ReadFloats(dweight, kChannels), b.ReadFloats(dbias, kChannels)};
  });
}

TEST_CASE("pools, additions, layouts and the loss of small elements are those of floats") {
  const Pool2dSpec spec{{9, 7, 12}, 3, 2, 1};
  constexpr uint32_t kSamples = 2;
  const size_t in = spec.input.size() * kSamples, out = spec.output().size() * kSamples;
  CheckElements([&](Bench& b) {
    const Device d = b.device();
    void *x = b.Elements(ExactValues(in, 1)), *other = b.Elements(ExactValues(in, 2));
    void *largest = b.Elements(out), *average = b.Elements(out), *sum = b.Elements(in);
    void *flat = b.Elements(in), *global = b.Elements(kSamples * 12), *dlogits = b.Elements(24);
    auto* argmax = b.Numbers<int32_t>(out);
    auto* labels = b.Numbers<int32_t>(kSamples);
    auto* score = b.Numbers<CrossEntropyScore>(1);
    const std::vector<int32_t> host_labels{3, 11};
    Upload(d, std::as_bytes(std::span(host_labels)), labels);
    MaxPoolForward(d, spec, kSamples, x, largest, argmax);
    AveragePoolForward(d, spec, kSamples, x, average);
    AddForward(d, in, x, other, Activation::kRelu6, sum);
    TransposeSamples(d, kSamples, spec.input.height * spec.input.width, spec.input.channels, x,
                     flat);
    AdaptiveAveragePoolForward(d, {.input = spec.input}, kSamples, x, global);
    SoftmaxCrossEntropy(d,
                        {.sample_count = kSamples,
                         .class_count = 12,
                         .logits = x,
                         .labels = labels,
                         .dlogits = dlogits,
                         .score = score},
                        b.Scratch(CrossEntropyScratchBytes(d, kSamples)));
    return Results{b.ReadElements(largest, out), b.ReadElements(average, out),
                   b.ReadElements(sum, in),      b.ReadElements(flat, in),
                   b.ReadElements(global, 24),   b.ReadElements(dlogits, 24)};
  });
}

}  // namespace
}  // namespace pando
