#include <set>

#include "kernels/batch_block.h"
#include "kernels/device_memory.h"
#include "tests/kernels/support.h"

namespace pando {
namespace {

constexpr double kElementwiseTol = 1e-6;  // one or two roundings of fp32, measured 1.4e-7

TEST_CASE("relu passes what is positive, and its gradient") {
  for (size_t count : {1u, 15u, 16u, 17u, 1000u}) {
    Doubles x = RandomDoubles(count, 1);
    const Doubles dy = RandomDoubles(count, 2);
    Floats in = ToFloats(x), grad = ToFloats(dy), y = Poisoned(count), dx = Poisoned(count);
    ActivationForward(TestDevice(), count, in.data(), Activation::kRelu, y.data());
    ActivationBackward(TestDevice(), count, y.data(), Activation::kRelu, grad.data(), dx.data());
    auto forward = [&] {
      Doubles out;
      for (double v : x) out.push_back(std::max(v, 0.0));
      return out;
    };
    CHECK(RelativeError(y.data(), forward()) == 0.0);
    CHECK(FiniteDifferenceError(
              x, [&] { return DotProduct(forward(), dy); }, dx.data()) < kElementwiseTol);
  }
}

TEST_CASE("relu has gradient 0 at 0") {
  Floats y = ToFloats({0.0, -0.0, 1.0}), dy = ToFloats({5, 5, 5}), dx = Poisoned(3);
  ActivationBackward(TestDevice(), 3, y.data(), Activation::kRelu, dy.data(), dx.data());
  CHECK(dx.data()[0] == 0.0f);
  CHECK(dx.data()[1] == 0.0f);
  CHECK(dx.data()[2] == 5.0f);
}

TEST_CASE("relu6 passes what lies between 0 and 6, and its gradient") {
  for (size_t count : {1u, 15u, 17u, 1000u}) {
    Doubles x = RandomDoubles(count, 1);
    for (double& v : x) v *= 12;
    const Doubles dy = RandomDoubles(count, 2);
    Floats in = ToFloats(x), grad = ToFloats(dy), y = Poisoned(count), dx = Poisoned(count);
    ActivationForward(TestDevice(), count, in.data(), Activation::kRelu6, y.data());
    ActivationBackward(TestDevice(), count, y.data(), Activation::kRelu6, grad.data(), dx.data());
    auto forward = [&] {
      Doubles out;
      for (double v : x) out.push_back(std::clamp(v, 0.0, 6.0));
      return out;
    };
    CHECK(RelativeError(y.data(), forward()) < kElementwiseTol);
    CHECK(FiniteDifferenceError(
              x, [&] { return DotProduct(forward(), dy); }, dx.data()) < kElementwiseTol);
  }
}

TEST_CASE("an addition with its activation, and its gradient, also in place") {
  constexpr size_t kCount = 1003;
  Doubles a = RandomDoubles(kCount, 1), b = RandomDoubles(kCount, 2);
  for (double& v : a) v *= 10;
  const Doubles dy = RandomDoubles(kCount, 3);
  for (Activation activation : {Activation::kNone, Activation::kRelu, Activation::kRelu6}) {
    auto forward = [&] {
      Doubles out;
      for (size_t i = 0; i < kCount; ++i) {
        double sum = a[i] + b[i];
        if (activation != Activation::kNone) sum = std::max(sum, 0.0);
        if (activation == Activation::kRelu6) sum = std::min(sum, 6.0);
        out.push_back(sum);
      }
      return out;
    };
    Floats first = ToFloats(a), second = ToFloats(b), grad = ToFloats(dy), y = Poisoned(kCount),
           dx = Poisoned(kCount);
    AddForward(TestDevice(), kCount, first.data(), second.data(), activation, y.data());
    ActivationBackward(TestDevice(), kCount, y.data(), activation, grad.data(), dx.data());
    CHECK(RelativeError(y.data(), forward()) < kElementwiseTol);
    auto loss = [&] { return DotProduct(forward(), dy); };
    CHECK(FiniteDifferenceError(a, loss, dx.data()) < kElementwiseTol);
    CHECK(FiniteDifferenceError(b, loss, dx.data()) < kElementwiseTol);
    AddForward(TestDevice(), kCount, first.data(), second.data(), activation, first.data());
    ActivationBackward(TestDevice(), kCount, y.data(), activation, grad.data(), grad.data());
    CHECK(SameBits(first.data(), y.data(), kCount));
    CHECK(SameBits(grad.data(), dx.data(), kCount));
  }
}

TEST_CASE("an addition without activation needs no result for its gradient") {
  Floats dy = ToFloats({1, -2}), dx = Poisoned(2);
  ActivationBackward(TestDevice(), 2, nullptr, Activation::kNone, dy.data(), dx.data());
  CHECK(dx.data()[0] == 1.0f);
  CHECK(dx.data()[1] == -2.0f);
}

TEST_CASE("adding in place adds each element once") {
  const Doubles x = RandomDoubles(77, 1), y = RandomDoubles(77, 2);
  Floats in = ToFloats(x), sum = ToFloats(y);
  AddInPlace(TestDevice(), 77, in.data(), sum.data());
  Doubles expected;
  for (size_t i = 0; i < 77; ++i) expected.push_back(x[i] + y[i]);
  CHECK(RelativeError(sum.data(), expected) < kElementwiseTol);
}

TEST_CASE("channel factors reach every pixel of their channel and no other, forward and backward") {
  const SampleShape shape{3, 5, 7};
  Doubles x = RandomDoubles(shape.size() * 2, 1);
  const Doubles factor = RandomDoubles(2 * 7, 2), dy = RandomDoubles(x.size(), 3);
  auto forward = [&] {
    Doubles out;
    for (size_t i = 0; i < x.size(); ++i) {
      out.push_back(x[i] * factor[i / shape.size() * 7 + i % 7]);
    }
    return out;
  };
  Floats in = ToFloats(x), f = ToFloats(factor), grad = ToFloats(dy), y = Poisoned(x.size()),
         dx = Poisoned(x.size());
  MultiplyChannels(TestDevice(), 2, shape, in.data(), f.data(), y.data());
  MultiplyChannels(TestDevice(), 2, shape, grad.data(), f.data(), dx.data());
  CHECK(RelativeError(y.data(), forward()) < kElementwiseTol);
  CHECK(FiniteDifferenceError(
            x, [&] { return DotProduct(forward(), dy); }, dx.data()) < kElementwiseTol);
}

TEST_CASE("factors multiply each element once, forward and backward") {
  for (size_t count : {1u, 15u, 17u, 1000u}) {
    Doubles x = RandomDoubles(count, 1);
    const Doubles factor = RandomDoubles(count, 2), dy = RandomDoubles(count, 3);
    auto forward = [&] {
      Doubles out;
      for (size_t i = 0; i < count; ++i) out.push_back(x[i] * factor[i]);
      return out;
    };
    Floats in = ToFloats(x), f = ToFloats(factor), grad = ToFloats(dy), y = Poisoned(count),
           dx = Poisoned(count);
    Multiply(TestDevice(), count, in.data(), f.data(), y.data());
    Multiply(TestDevice(), count, grad.data(), f.data(), dx.data());
    CHECK(RelativeError(y.data(), forward()) < kElementwiseTol);
    CHECK(FiniteDifferenceError(
              x, [&] { return DotProduct(forward(), dy); }, dx.data()) < kElementwiseTol);
  }
}

std::vector<float> DrawFactors(PhiloxKey key, PassNumbers numbers, float probability,
                               size_t count) {
  Array<PassNumbers> at(1);
  *at.data() = numbers;
  Floats factor = Poisoned(count);
  DropoutFactors(TestDevice(), key, at.data(), probability, count, factor.data());
  CHECK(IsAllWritten(factor, count));
  return {factor.data(), factor.data() + count};
}

TEST_CASE("dropout drops its share, and scales the rest so that the mean stays") {
  constexpr size_t kCount = 100'003;
  for (float probability : {0.1f, 0.5f, 0.9f}) {
    const std::vector<float> factor =
        DrawFactors(MakePhiloxKey(7, RandomPurpose::kDropout, "drop"), {3, 1}, probability, kCount);
    const auto dropped = static_cast<size_t>(std::count(factor.begin(), factor.end(), 0.0f));
    const float kept = 1.0f / (1.0f - probability);
    CHECK(dropped + std::count(factor.begin(), factor.end(), kept) == kCount);
    const double share = static_cast<double>(dropped) / kCount;
    const double five_sigma = 5 * std::sqrt(probability * (1 - probability) / kCount);
    CHECK(std::abs(share - probability) < five_sigma);
  }
}

TEST_CASE("dropout's decisions are those of the Philox block that the contract names") {
  const PhiloxKey key = MakePhiloxKey(7, RandomPurpose::kDropout, "drop");
  const std::vector<float> factor = DrawFactors(key, {1ull << 40, 9}, 0.25f, 21);
  for (unsigned i = 0; i < factor.size(); ++i) {
    const PhiloxBlock block = Philox4x32({i / 8, 0, 1u << 8, 9}, key);
    CHECK((factor[i] == 0.0f) == (Uniform16(block, i % 8) < 16384));
  }
}

TEST_CASE("dropout differs between seeds, layers, steps and micro-batches, and repeats itself") {
  auto draw = [](uint64_t seed, const char* layer, uint64_t step, uint32_t micro_batch) {
    return DrawFactors(MakePhiloxKey(seed, RandomPurpose::kDropout, layer), {step, micro_batch},
                       0.5f, 64);
  };
  const std::set<std::vector<float>> all{draw(1, "a", 0, 0), draw(2, "a", 0, 0),
                                         draw(1, "b", 0, 0), draw(1, "a", 1, 0),
                                         draw(1, "a", 0, 1), draw(1, "a", 1ull << 32, 0)};
  CHECK(all.size() == 6);
  CHECK(draw(1, "a", 5, 2) == draw(1, "a", 5, 2));
}

TEST_CASE("dropout with probability 0 keeps everything as it is") {
  CHECK(DrawFactors({}, {}, 0.0f, 10) == std::vector<float>(10, 1.0f));
}

TEST_CASE("a copy is its original, and scaled floats are multiples of theirs") {
  const Doubles x = RandomDoubles(77, 1);
  Floats in = ToFloats(x), same = Poisoned(77), scaled = Poisoned(77);
  Copy(TestDevice(), 77, in.data(), same.data());
  CHECK(SameBits(same.data(), in.data(), 77));
  CHECK(IsAllWritten(same, 77));
  ScaleFloats(TestDevice(), 77, in.data(), -2.0f, scaled.data());
  Doubles expected;
  for (double v : x) expected.push_back(-2 * v);
  CHECK(RelativeError(scaled.data(), expected) == 0.0);
  CHECK(IsAllWritten(scaled, 77));
  std::vector<float> host(77);
  ExportFloats(TestDevice(), 77, in.data(), host.data());
  CHECK(SameBits(host.data(), in.data(), 77));
}

// The definition, with PyTorch's targets: (1 − smoothing) · label + smoothing / classes everywhere.
double CrossEntropy(const Doubles& logits, const std::vector<int32_t>& labels, double smoothing) {
  const size_t classes = logits.size() / labels.size();
  double sum = 0;
  for (size_t s = 0; s < labels.size(); ++s) {
    double exponentials = 0;
    for (size_t c = 0; c < classes; ++c) exponentials += std::exp(logits[s * classes + c]);
    for (size_t c = 0; c < classes; ++c) {
      const double is_label = c == static_cast<size_t>(labels[s]) ? 1 : 0;
      const double target = (1 - smoothing) * is_label + smoothing / static_cast<double>(classes);
      sum += target * (std::log(exponentials) - logits[s * classes + c]);
    }
  }
  return sum;
}

struct Scored {
  CrossEntropyScore score;
  Floats gradient;
};
Scored Score(const Doubles& logits, const std::vector<int32_t>& labels, float smoothing = 0) {
  const auto n = static_cast<uint32_t>(labels.size());
  Floats in = ToFloats(logits), gradient = Poisoned(logits.size());
  Array<int32_t> label(n);
  std::copy(labels.begin(), labels.end(), label.data());
  Array<CrossEntropyScore> score(1);
  Array<std::byte> scratch(CrossEntropyScratchBytes(TestDevice(), n));
  SoftmaxCrossEntropy(TestDevice(),
                      {.sample_count = n,
                       .class_count = static_cast<uint32_t>(logits.size()) / n,
                       .label_smoothing = smoothing,
                       .logits = in.data(),
                       .labels = label.data(),
                       .dlogits = gradient.data(),
                       .score = score.data()},
                      scratch.bytes());
  return {*score.data(), std::move(gradient)};
}

TEST_CASE("cross-entropy and its gradient follow the definition, summed over samples") {
  for (uint32_t n : {1u, 2u, 17u}) {
    for (uint32_t classes : {1u, 2u, 10u, 33u}) {
      for (float smoothing : {0.0f, 0.125f, 1.0f}) {
        Doubles logits = RandomDoubles(n * classes, n + classes);
        std::vector<int32_t> labels;
        for (uint32_t s = 0; s < n; ++s) labels.push_back(static_cast<int32_t>(s * 7 % classes));
        auto loss = [&] { return CrossEntropy(logits, labels, smoothing); };
        const Scored scored = Score(logits, labels, smoothing);
        CHECK(IsAllWritten(scored.gradient, logits.size()));
        CHECK(scored.score.loss_sum == doctest::Approx(loss()).epsilon(kElementwiseTol));
        if (classes > 1)
          CHECK(FiniteDifferenceError(logits, loss, scored.gradient.data()) < kElementwiseTol);
      }
    }
  }
}

TEST_CASE("a label is among the first five when at most four classes are ahead of it") {
  const Doubles logits{7, 6, 6, 5, 4, 3};  // of two equal ones the first is ahead
  const uint32_t expected_correct[] = {1, 0, 0, 0, 0, 0}, expected_top5[] = {1, 1, 1, 1, 1, 0};
  for (int32_t label = 0; label < 6; ++label) {
    const CrossEntropyScore score = Score(logits, {label}).score;
    CHECK(score.correct_count == expected_correct[label]);
    CHECK(score.top5_count == expected_top5[label]);
  }
  const Doubles ties(6, 1.0);
  for (int32_t label = 0; label < 6; ++label) {
    const CrossEntropyScore score = Score(ties, {label}).score;
    CHECK(score.correct_count == (label == 0 ? 1 : 0));
    CHECK(score.top5_count == (label < 5 ? 1 : 0));
  }
}

TEST_CASE("a label whose logit is not a number is never among the first") {
  const CrossEntropyScore score = Score({std::nan(""), 0}, {0}).score;
  CHECK(score.correct_count == 0);
  CHECK(score.top5_count == 0);
}

TEST_CASE("cross-entropy survives logits whose exponentials do not") {
  const Doubles logits{1000, 0, -1000};
  const Scored right = Score(logits, {0}), wrong = Score(logits, {2});
  CHECK(right.score.loss_sum == 0.0);
  CHECK(right.score.correct_count == 1);
  CHECK(wrong.score.loss_sum == 2000.0);
  CHECK(wrong.score.correct_count == 0);
  CHECK(wrong.gradient.data()[2] == -1.0f);
}

TEST_CASE("pictures are normalised per channel, tables are taken as they are") {
  const Normalisation normalisation{{0.5f, 0.25f}, {0.5f, 2.0f}};
  Batch pictures{.shape = {1, 2, 2},
                 .bytes = {0, 0, 255, 255, 51, 51, 102, 204},
                 .values = {},
                 .normalisation = &normalisation,
                 .labels = {0, 1}};
  Floats x = Poisoned(8);
  Array<int32_t> labels(2);
  ImportBatch(TestDevice(), pictures, 2, x.data(), labels.data());
  CHECK(IsAllWritten(x, 8));
  CHECK(labels.data()[1] == 1);
  const Doubles expected{-1,
                         -0.125,
                         1,
                         0.375,
                         (0.2 - 0.5) / 0.5,
                         (0.2 - 0.25) / 2,
                         (0.4 - 0.5) / 0.5,
                         (0.8 - 0.25) / 2};
  CHECK(RelativeError(x.data(), expected) < kElementwiseTol);

  Batch table{.shape = {1, 1, 3}, .bytes = {}, .values = {1, 2, 3, 4, 5, 6}, .labels = {0, 1}};
  ImportBatch(TestDevice(), table, table.shape.channels, x.data(), labels.data());
  CHECK(RelativeError(x.data(), {1, 2, 3, 4, 5, 6}) == 0.0);
}

TEST_CASE("one channel feeds three by repetition, normalised by its own mean and deviation") {
  const Normalisation normalisation{{0.5f}, {0.25f}};
  const Batch pictures{.shape = {1, 2, 1},
                       .bytes = {0, 255, 51, 0},
                       .normalisation = &normalisation,
                       .labels = {0, 0}};
  Floats x = Poisoned(12);
  Array<int32_t> labels(2);
  ImportBatch(TestDevice(), pictures, 3, x.data(), labels.data());
  const float expected[] = {-2.0f, 2.0f, (0.2f - 0.5f) / 0.25f, -2.0f};
  for (size_t i = 0; i < 12; ++i) CHECK(x.data()[i] == doctest::Approx(expected[i / 3]));
  const Batch values{.shape = {1, 1, 1}, .values = {7, 8}, .labels = {0, 0}};
  ImportBatch(TestDevice(), values, 3, x.data(), labels.data());
  for (size_t i = 0; i < 6; ++i) CHECK(x.data()[i] == (i < 3 ? 7 : 8));
}

// 2 x 3 pixels of two channels; a black pixel is normalised as any other.
TEST_CASE("pictures are moved and flipped on their way in, each its own way") {
  const Normalisation normalisation{{0.0f, 1.0f}, {1 / 255.0f, 1 / 255.0f}};  // byte; byte - 255
  Batch pictures{.shape = {2, 3, 2},
                 .bytes = {},
                 .moves = {{1, 0, false}, {0, -1, true}, {0, 0, false}},
                 .normalisation = &normalisation,
                 .labels = {0, 1, 2}};
  for (int i = 0; i < 36; ++i) pictures.bytes.push_back(static_cast<uint8_t>(i + 1));
  Floats x = Poisoned(36);
  Array<int32_t> labels(3);
  ImportBatch(TestDevice(), pictures, 2, x.data(), labels.data());
  CHECK(IsAllWritten(x, 36));
  const int expected[] = {0,  0,  0,  0,  0,  0,  1,  2,  3,  4,  5,  6,    // one row down
                          0,  0,  17, 18, 15, 16, 0,  0,  23, 24, 21, 22,   // left, then flipped
                          25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36};  // as it was
  for (size_t i = 0; i < 36; ++i)
    CHECK(x.data()[i] == doctest::Approx(expected[i] - (i % 2 == 0 ? 0 : 255)).epsilon(1e-5));
}

TEST_CASE("pictures of one pixel are moved too, and nothing beyond the last is read") {
  for (uint32_t samples : {1u, 2u, 5u}) {
    Batch dots{.shape = {1, 1, 1}, .bytes = std::vector<uint8_t>(samples, 255)};
    dots.labels.resize(samples);
    dots.moves.resize(samples, {.is_flipped = true});
    Floats x = Poisoned(samples);
    Array<int32_t> labels(samples);
    ImportBatch(TestDevice(), dots, 1, x.data(), labels.data());
    CHECK(IsAllWritten(x, samples));
    for (uint32_t i = 0; i < samples; ++i) CHECK(x.data()[i] == 1.0f);
  }
}

// [x, labels] of a batch that crosses in its parts, and of the same in one block.
void CheckBlock(const Batch& batch, uint32_t channels) {
  const size_t count = batch.sample_count() * batch.shape.height * batch.shape.width * channels;
  Floats x[2] = {Poisoned(count), Poisoned(count)};
  Array<int32_t> labels[2] = {Array<int32_t>(batch.sample_count()),
                              Array<int32_t>(batch.sample_count())};
  ImportBatch(TestDevice(), batch, channels, x[0].data(), labels[0].data());
  const BatchBlock block(batch);
  DeviceMemory there(TestDevice(), block.size_bytes());
  Batch pinned = batch;
  PinBatch(TestDevice(), &pinned);
  Upload(TestDevice(), std::as_bytes(pinned.pinned->span()).first(block.size_bytes()),
         there.data());
  ImportBatch(TestDevice(), block.At(there.data()), channels, x[1].data(), labels[1].data());
  CHECK(IsAllWritten(x[1], count));
  CHECK(SameBits(x[0].data(), x[1].data(), count));
  for (const Array<int32_t>& got : labels)
    CHECK(std::equal(got.data(), got.data() + batch.sample_count(), batch.labels.begin()));
}

TEST_CASE("a batch in one block becomes what it is in its parts") {
  const Normalisation normalisation{{0.5f, 0.25f, 0.1f}, {0.5f, 2.0f, 0.3f}};
  for (uint32_t samples : {1u, 7u, 64u}) {
    Batch pictures{.shape = {3, 5, 3}, .normalisation = &normalisation};
    Batch table{.shape = {1, 1, 5}}, gray{.shape = {2, 3, 1}};
    for (uint32_t i = 0; i < samples; ++i) {
      for (Batch* batch : {&pictures, &table, &gray}) batch->labels.push_back(int32_t(i % 10));
    }
    for (uint32_t i = 0; i < samples * 45; ++i)
      pictures.bytes.push_back(static_cast<uint8_t>(i * 37));
    for (uint32_t i = 0; i < samples * 6; ++i) gray.bytes.push_back(static_cast<uint8_t>(i * 91));
    for (uint32_t i = 0; i < samples * 5; ++i) table.values.push_back(0.5f * float(i) - 3);
    CheckBlock(pictures, 3);
    CheckBlock(table, 5);
    CheckBlock(gray, 3);
    for (uint32_t i = 0; i < samples; ++i) {
      pictures.moves.push_back({int16_t(int(i % 3) - 1), int16_t(i % 2), i % 4 < 2});
      gray.moves.push_back({0, int16_t(int(i % 3) - 1), i % 2 == 0});
    }
    CheckBlock(pictures, 3);
    CheckBlock(gray, 3);
  }
}

TEST_CASE("pinned memory that is large enough is used again") {
  Batch batch{.shape = {1, 1, 2}, .values = {1, 2, 3, 4}, .labels = {0, 1}};
  PinBatch(TestDevice(), &batch);
  const float* memory = batch.pinned->data();
  batch.values.resize(2);
  batch.labels.resize(1);
  PinBatch(TestDevice(), &batch);
  CHECK(batch.pinned->data() == memory);
  batch.values.resize(1000);
  batch.labels.resize(500);
  PinBatch(TestDevice(), &batch);
  CHECK(batch.pinned->size() >= 1500);
}

TEST_CASE("flatten puts channels first, and back") {
  Doubles x(24);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  Floats in = ToFloats(x), y = Poisoned(24), back = Poisoned(24);
  TransposeSamples(TestDevice(), 2, 4, 3, in.data(), y.data());
  CHECK(RelativeError(y.data(), {0,  3,  6,  9,  1,  4,  7,  10, 2,  5,  8,  11,  //
                                 12, 15, 18, 21, 13, 16, 19, 22, 14, 17, 20, 23}) == 0.0);
  TransposeSamples(TestDevice(), 2, 3, 4, y.data(), back.data());
  CHECK(RelativeError(back.data(), x) == 0.0);
}

TEST_CASE("flatten's gradient equals finite differences on odd shapes") {
  const SampleShape shape{3, 5, 7};
  const uint32_t pixels = 15, channels = 7;
  Doubles x = RandomDoubles(2 * shape.size(), 1);
  const Doubles dy = RandomDoubles(x.size(), 2);
  auto loss = [&] {  // [sample, pixel, channel] against [sample, channel, pixel]
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t s = i / shape.size(), p = i / channels % pixels, c = i % channels;
      sum += x[i] * dy[(s * channels + c) * pixels + p];
    }
    return sum;
  };
  Floats grad = ToFloats(dy), dx = Poisoned(x.size());
  TransposeSamples(TestDevice(), 2, channels, pixels, grad.data(), dx.data());
  CHECK(FiniteDifferenceError(x, loss, dx.data()) < kElementwiseTol);
}

}  // namespace
}  // namespace pando
