#include "data/augmenter.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "data/picture_set.h"

namespace pando {
namespace {

using Bytes = std::vector<uint8_t>;

Job AugmentedJob(std::vector<std::string> augment, uint64_t seed = 1) {
  Job job;
  job.augment = std::move(augment);
  job.seed = seed;
  return job;
}

Bytes Moved(const SampleShape& shape, PictureMove move, const Bytes& picture) {
  Bytes moved;
  for (uint32_t y = 0; y < shape.height; ++y) {
    for (uint32_t x = 0; x < shape.width; ++x) {
      const int64_t pixel = SourcePixel(shape, move, y, x);
      moved.push_back(pixel < 0 ? uint8_t{0} : picture[static_cast<size_t>(pixel)]);
    }
  }
  return moved;
}

// Moved by hand: what comes in is black, and what was moved is flipped, not the other way round.
TEST_CASE("a picture moves in any direction and is then turned left to right") {
  const Bytes picture{1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<std::pair<PictureMove, Bytes>> cases{
      {{0, 0, false}, picture},
      {{0, 0, true}, {3, 2, 1, 6, 5, 4, 9, 8, 7}},
      {{1, 0, false}, {0, 0, 0, 1, 2, 3, 4, 5, 6}},
      {{-1, 0, false}, {4, 5, 6, 7, 8, 9, 0, 0, 0}},
      {{0, 1, false}, {0, 1, 2, 0, 4, 5, 0, 7, 8}},
      {{0, 1, true}, {2, 1, 0, 5, 4, 0, 8, 7, 0}},
      {{0, -2, false}, {3, 0, 0, 6, 0, 0, 9, 0, 0}},
      {{2, -1, false}, {0, 0, 0, 0, 0, 0, 2, 3, 0}},
      {{2, -1, true}, {0, 0, 0, 0, 0, 0, 0, 3, 2}},
      {{-3, 3, false}, {0, 0, 0, 0, 0, 0, 0, 0, 0}}};
  for (const auto& [move, expected] : cases) CHECK(Moved({3, 3, 1}, move, picture) == expected);
}

TEST_CASE("shifts of 32 pixels reach 4 either way, and half of the pictures are flipped") {
  const Augmenter augmenter(AugmentedJob({"crop", "flip"}));
  std::set<std::pair<int, int>> shifts;
  uint32_t flipped = 0;
  constexpr uint32_t kDraws = 4000;
  for (uint32_t sample = 0; sample < kDraws; ++sample) {
    const PictureMove move = augmenter.DrawMove({3, sample}, 32, 32);
    CHECK(std::abs(move.down) <= 4);
    CHECK(std::abs(move.right) <= 4);
    shifts.insert({move.down, move.right});
    flipped += move.is_flipped ? 1 : 0;
  }
  CHECK(shifts.size() == 81);      // every one of them
  CHECK(flipped > 0.47 * kDraws);  // four standard deviations
  CHECK(flipped < 0.53 * kDraws);
}

TEST_CASE("boxes lie within the picture and keep to a photograph's areas and sides") {
  const Augmenter augmenter(AugmentedJob({"crop"}));
  double area_sum = 0;
  constexpr uint32_t kDraws = 2000;
  for (uint32_t sample = 0; sample < kDraws; ++sample) {
    const PictureBox box = augmenter.DrawBox({0, sample}, 375, 500);
    CHECK(box.height >= 1);
    CHECK(box.width >= 1);
    CHECK(box.y + box.height <= 375);
    CHECK(box.x + box.width <= 500);
    const double area = box.height * box.width / (375.0 * 500.0);
    const double ratio = double(box.width) / box.height;
    CHECK(area > 0.079);  // rounded to pixels
    CHECK(ratio > 0.74);
    CHECK(ratio < 1.35);
    area_sum += area;
  }
  CHECK(area_sum / kDraws >
        0.40);  // torchvision's is 0.47 on such pictures: large ones may not fit
  CHECK(area_sum / kDraws < 0.54);
}

TEST_CASE("a picture too narrow for any box gives its middle") {
  const Augmenter augmenter(AugmentedJob({"crop"}));
  for (uint32_t sample = 0; sample < 50; ++sample) {
    const PictureBox box = augmenter.DrawBox({0, sample}, 1000, 3);
    CHECK(box.width <= 3);
    CHECK(box.height <= 4);
    CHECK(box.y + box.height <= 1000);
  }
  const PictureBox dot = augmenter.DrawBox({0, 0}, 1, 1);
  CHECK(dot.height == 1);
  CHECK(dot.width == 1);
}

PictureSet SmallSet(const Job& job) {
  Bytes pixels(100 * 16 * 16);
  std::iota(pixels.begin(), pixels.end(), uint8_t{1});
  return PictureSet({.shape = {16, 16, 1},
                     .class_count = 10,
                     .class_names = {},
                     .normalisation = {{0.0f}, {1.0f}},
                     .train = {pixels, Bytes(100, 3)},
                     .test = {pixels, Bytes(100, 3)}},
                    job);
}

Bytes ReadEpoch(const PictureSet& data, uint64_t epoch, const std::vector<uint64_t>& indices) {
  Batch batch;
  REQUIRE(data.Read({Split::kTrain, indices, epoch}, &batch).ok());
  if (batch.moves.empty()) return batch.bytes;
  const size_t size = batch.shape.size();
  Bytes all;
  for (size_t i = 0; i < indices.size(); ++i) {
    const Bytes picture(&batch.bytes[i * size], &batch.bytes[i * size] + size);
    const Bytes moved = Moved(batch.shape, batch.moves[i], picture);
    all.insert(all.end(), moved.begin(), moved.end());
  }
  return all;
}

TEST_CASE("augmentation follows from seed, epoch and sample, not from the reader or the batch") {
  const PictureSet one = SmallSet(AugmentedJob({"crop", "flip"}, 7));
  const PictureSet same = SmallSet(AugmentedJob({"flip", "crop"}, 7));
  const PictureSet other = SmallSet(AugmentedJob({"crop", "flip"}, 8));
  const std::vector<uint64_t> all{5, 9, 63, 2};
  const Bytes together = ReadEpoch(one, 4, all);
  Bytes apart;
  for (uint64_t index : all) {
    const Bytes picture = ReadEpoch(same, 4, {index});
    apart.insert(apart.end(), picture.begin(), picture.end());
  }
  CHECK(together == apart);
  CHECK(together != ReadEpoch(one, 5, all));
  CHECK(together != ReadEpoch(other, 4, all));
}

TEST_CASE("without data.augment, and in the test split, pictures are as they lie there") {
  Batch batch;
  const PictureSet plain = SmallSet(AugmentedJob({}));
  const PictureSet augmented = SmallSet(AugmentedJob({"crop", "flip"}));
  REQUIRE(plain.Read({Split::kTest, std::vector<uint64_t>{1, 2}}, &batch).ok());
  const Bytes expected = batch.bytes;
  REQUIRE(augmented.Read({Split::kTest, std::vector<uint64_t>{1, 2}}, &batch).ok());
  CHECK(batch.bytes == expected);
  CHECK(batch.moves.empty());
  CHECK(ReadEpoch(plain, 3, {1, 2}) == expected);
}

TEST_CASE("a test batch read where a training batch was has none of its moves") {
  const PictureSet augmented = SmallSet(AugmentedJob({"flip"}));
  Batch batch;
  REQUIRE(augmented.Read({Split::kTrain, std::vector<uint64_t>{1, 2}, 0}, &batch).ok());
  CHECK(batch.moves.size() == 2);
  REQUIRE(augmented.Read({Split::kTest, std::vector<uint64_t>{1}}, &batch).ok());
  CHECK(batch.moves.empty());
}

TEST_CASE("data.resize changes the shape that a model sees") {
  Job job;
  job.resize = 32;
  const PictureSet data = SmallSet(job);
  CHECK(data.shape() == SampleShape{32, 32, 1});
  Batch batch;
  REQUIRE(data.Read({Split::kTest, std::vector<uint64_t>{0, 99}}, &batch).ok());
  CHECK(batch.shape == data.shape());
  CHECK(batch.bytes.size() == 2 * 32 * 32);
}

}  // namespace
}  // namespace pando
