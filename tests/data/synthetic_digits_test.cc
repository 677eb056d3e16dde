#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "data/kinds.h"

namespace pando {
namespace {

constexpr size_t kPixels = kDigitSide * kDigitSide;
using Picture = std::array<uint8_t, kPixels>;

Picture Draw(Split split, uint64_t index) {
  Picture picture{};
  DrawDigit(split, index, picture);
  return picture;
}

TEST_CASE("the same index is the same picture in any order") {
  const Picture third = Draw(Split::kTrain, 3);
  Draw(Split::kTrain, 99);
  CHECK(Draw(Split::kTrain, 3) == third);
  const uint64_t far = std::numeric_limits<uint64_t>::max();
  CHECK(Draw(Split::kTest, far) == Draw(Split::kTest, far));
}

TEST_CASE("another index or another split is another picture") {
  std::set<Picture> seen;
  for (uint64_t i = 0; i < 200; ++i) {
    CHECK(seen.insert(Draw(Split::kTrain, i)).second);
    CHECK(seen.insert(Draw(Split::kTest, i)).second);
  }
  // Beyond 32 bits the index counts too.
  CHECK(seen.insert(Draw(Split::kTrain, uint64_t{1} << 32)).second);
}

TEST_CASE("each ten pictures in a row hold every digit once") {
  for (uint64_t start : {0u, 10u, 59990u}) {
    std::set<int> digits;
    for (uint64_t i = start; i < start + 10; ++i) digits.insert(DigitLabel(i));
    CHECK(digits.size() == 10);
    CHECK(*digits.rbegin() == 9);
  }
}

TEST_CASE("every picture has ink in its middle and little at its rim") {
  for (uint64_t i = 0; i < 500; ++i) {
    const Picture picture = Draw(Split::kTrain, i);
    int bright_inside = 0, bright_rim = 0;
    for (size_t p = 0; p < kPixels; ++p) {
      const size_t x = p % kDigitSide, y = p / kDigitSide;
      const bool rim = x == 0 || y == 0 || x == 27 || y == 27;
      if (picture[p] >= 100) ++(rim ? bright_rim : bright_inside);
    }
    CHECK(bright_inside >= 10);   // the thinnest and shortest "1": 14 high, 1.2 wide
    CHECK(bright_inside <= 400);  // half the picture
    CHECK(bright_rim <= 25);      // of 108 rim pixels
  }
}

// The nearest of ten mean pictures: a linear classifier of pixels. It must be far better than
// chance (0.1), but such a simple classifier must not suffice.
TEST_CASE("digits of a class are similar, but mean pictures do not classify them all") {
  constexpr uint64_t kTrain = 2000, kTest = 500;
  constexpr double kLearnable = 0.35, kNotTrivial = 0.75;  // measured: 0.486
  std::array<std::array<double, kPixels>, 10> means{};
  for (uint64_t i = 0; i < kTrain; ++i) {
    const Picture picture = Draw(Split::kTrain, i);
    for (size_t p = 0; p < kPixels; ++p) means[DigitLabel(i)][p] += picture[p] * 10.0 / kTrain;
  }
  uint64_t right = 0;
  for (uint64_t i = 0; i < kTest; ++i) {
    const Picture picture = Draw(Split::kTest, i);
    int nearest = 0;
    double nearest_distance = std::numeric_limits<double>::max();
    for (int digit = 0; digit < 10; ++digit) {
      double distance = 0;
      for (size_t p = 0; p < kPixels; ++p) {
        const double d = picture[p] - means[size_t(digit)][p];
        distance += d * d;
      }
      if (distance < nearest_distance) nearest = digit;
      nearest_distance = std::min(nearest_distance, distance);
    }
    right += nearest == DigitLabel(i) ? 1 : 0;
  }
  const double accuracy = double(right) / kTest;
  INFO("accuracy of the nearest mean: ", accuracy);
  CHECK(accuracy > kLearnable);
  CHECK(accuracy < kNotTrivial);
}

TEST_CASE("the data set is the painter's pictures, normalised by their mean and deviation") {
  constexpr float kSampleTol = 0.004f;  // 6,000 of 60,000 pictures, measured 0.0006
  Job job;
  job.dataset = "synthetic-digits";
  job.synthetic_train_samples = 6000;
  job.synthetic_test_samples = 11;
  auto data = OpenDataSet(job);
  REQUIRE(data.ok());
  CHECK((*data)->shape() == SampleShape{28, 28, 1});
  CHECK((*data)->class_count() == 10);
  CHECK((*data)->sample_count(Split::kTest) == 11);
  std::vector<uint64_t> indices(6000);
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  Batch batch;
  REQUIRE((*data)->Read({Split::kTrain, indices}, &batch).ok());
  const Picture last = Draw(Split::kTrain, 5999);
  CHECK(std::equal(last.begin(), last.end(), batch.bytes.end() - kPixels));
  CHECK(batch.labels[5999] == 9);
  double sum = 0, square_sum = 0;
  for (uint8_t byte : batch.bytes) {
    sum += byte / 255.0;
    square_sum += byte / 255.0 * (byte / 255.0);
  }
  const double mean = sum / double(batch.bytes.size());
  const double stddev = std::sqrt(square_sum / double(batch.bytes.size()) - mean * mean);
  CHECK(std::abs(mean - batch.normalisation->mean[0]) < kSampleTol);
  CHECK(std::abs(stddev - batch.normalisation->stddev[0]) < kSampleTol);
}

TEST_CASE("sizes out of range are errors that name the key") {
  Job job;
  job.dataset = "synthetic-digits";
  job.synthetic_train_samples = 0;
  Status status = OpenDataSet(job).status();
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(status.message().find("data.synthetic_train_samples is 0") != std::string::npos);
  job.synthetic_train_samples = 10;
  job.synthetic_test_samples = uint64_t{1} << 60;
  status = OpenDataSet(job).status();
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(status.message().find("data.synthetic_test_samples") != std::string::npos);
}

}  // namespace
}  // namespace pando
