#include "data/kinds.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <cstdlib>
#include <numeric>
#include <set>

#include "tests/contains.h"
#include "tests/data/check_message.h"
#include "tests/data/idx_files.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

constexpr size_t kPictureBytes = 3072;

// A record whose planes are all red, all green and all blue bytes of these values.
void AppendRecord(Bytes& bytes, const Bytes& labels, uint8_t red, uint8_t green, uint8_t blue) {
  bytes.insert(bytes.end(), labels.begin(), labels.end());
  for (uint8_t value : {red, green, blue}) bytes.insert(bytes.end(), kPictureBytes / 3, value);
}

Bytes File(uint32_t count, uint8_t first_label) {
  Bytes bytes;
  for (uint32_t i = 0; i < count; ++i) {
    AppendRecord(bytes, {static_cast<uint8_t>(first_label + i)}, uint8_t(i), 100, 200);
  }
  return bytes;
}

struct TinyCifar {
  TempFolder folder;
  Job job;
  TinyCifar() {
    for (uint8_t batch = 1; batch <= 5; ++batch) {
      folder.Write("data_batch_" + std::to_string(batch) + ".bin", File(2, batch));
    }
    folder.Write("test_batch.bin", File(2, 0));
    job.dataset = "cifar10";
    job.data_path = folder.path();
  }
};

TEST_CASE("CIFAR-10's planes become pixels, batch after batch") {
  TinyCifar tiny;
  auto data = OpenDataSet(tiny.job);
  REQUIRE(data.ok());
  CHECK((*data)->shape() == SampleShape{32, 32, 3});
  CHECK((*data)->class_count() == 10);
  CHECK((*data)->sample_count(Split::kTrain) == 10);
  CHECK((*data)->sample_count(Split::kTest) == 2);
  Batch batch;
  REQUIRE((*data)->Read({Split::kTrain, std::vector<uint64_t>{3}}, &batch).ok());
  CHECK(batch.labels == std::vector<int32_t>{3});
  for (size_t p = 0; p < kPictureBytes; p += 3) {
    REQUIRE(batch.bytes[p] == 1);
    REQUIRE(batch.bytes[p + 1] == 100);
    REQUIRE(batch.bytes[p + 2] == 200);
  }
  CHECK(batch.normalisation->mean == std::vector<float>{0.4914f, 0.4822f, 0.4465f});
  CHECK(batch.normalisation->stddev == std::vector<float>{0.2470f, 0.2435f, 0.2616f});
}

TEST_CASE("CIFAR-100's class is the fine label") {
  TempFolder folder;
  Bytes train, test;
  for (int i = 0; i < 5; ++i) AppendRecord(train, {7, 99}, 1, 2, 3);
  AppendRecord(test, {3, 42}, 4, 5, 6);
  folder.Write("train.bin", train);
  folder.Write("test.bin", test);
  Job job;
  job.dataset = "cifar100";
  job.data_path = folder.path();
  auto data = OpenDataSet(job);
  REQUIRE(data.ok());
  CHECK((*data)->class_count() == 100);
  Batch batch;
  REQUIRE((*data)->Read({Split::kTrain, std::vector<uint64_t>{0}}, &batch).ok());
  CHECK(batch.labels == std::vector<int32_t>{99});
  REQUIRE((*data)->Read({Split::kTest, std::vector<uint64_t>{0}}, &batch).ok());
  CHECK(batch.labels == std::vector<int32_t>{42});
}

TEST_CASE("a CIFAR file cut within a record is named with the byte") {
  TinyCifar tiny;
  Bytes cut = File(2, 0);
  cut.resize(5000);
  const std::string path = tiny.folder.Write("data_batch_3.bin", cut);
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt,
               {path, "byte 5000", "record 1", "3073 bytes", "download it again"});
  tiny.folder.Write("data_batch_3.bin", {});
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt, {path, "byte 0"});
}

TEST_CASE("a CIFAR file cut between records differs from its sisters") {
  TinyCifar tiny;
  tiny.folder.Write("data_batch_4.bin", File(1, 0));
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt,
               {"data_batch_4.bin has 1 records, expected 2", "test_batch.bin has 2"});
  TinyCifar other;
  other.folder.Write("test_batch.bin", File(1, 0));
  CheckMessage(OpenDataSet(other.job).status(), StatusCode::kCorrupt, {"test_batch.bin has 1"});
}

TEST_CASE("the one training file of CIFAR-100 cut between records differs from its test file") {
  TempFolder folder;
  Bytes train, test;
  for (int i = 0; i < 9; ++i) AppendRecord(train, {0, 1}, 1, 2, 3);
  for (int i = 0; i < 2; ++i) AppendRecord(test, {0, 1}, 1, 2, 3);
  folder.Write("train.bin", train);
  folder.Write("test.bin", test);
  Job job;
  job.dataset = "cifar100";
  job.data_path = folder.path();
  CheckMessage(OpenDataSet(job).status(), StatusCode::kCorrupt,
               {"train.bin has 9 records, expected 10", "test.bin has 2"});
}

TEST_CASE("a label that CIFAR-10 has not is named with its record") {
  TinyCifar tiny;
  const std::string path = tiny.folder.Write("test_batch.bin", File(3, 8));
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt,
               {path, "label 10", "record 2", "byte 6146", "expected 0 to 9"});
}

TEST_CASE("a missing CIFAR file and a missing folder are named") {
  TinyCifar tiny;
  std::filesystem::remove(tiny.folder.File("data_batch_5.bin"));
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kNotFound,
               {tiny.folder.path(), "holds no data_batch_5.bin"});
  tiny.job.data_path = tiny.folder.File("nowhere");
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kNotFound,
               {tiny.job.data_path, "no such folder", "--data"});
  tiny.job.data_path = "";
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kInvalidArgument,
               {"no folder given for CIFAR-10", "--data"});
}

TEST_CASE("the folder that holds the unpacked archive will do, and is found by name") {
  TinyCifar tiny;
  TempFolder parent;
  const std::string own = parent.File("cifar-10-batches-bin");
  std::filesystem::copy(tiny.folder.path(), own);
  tiny.job.data_path = parent.path();
  CHECK(OpenDataSet(tiny.job).ok());
  CHECK(FindDataFolder("cifar10", parent.path() + "/") == own);
  CHECK(FindDataFolder("cifar100", parent.path() + "/").empty());
}

TEST_CASE("a subset is drawn from the seed, without repeats, and is its own data set") {
  TinyCifar tiny;
  tiny.job.train_limit = 4;
  tiny.job.test_limit = 1;
  auto data = OpenDataSet(tiny.job);
  REQUIRE(data.ok());
  CHECK((*data)->sample_count(Split::kTrain) == 4);
  CHECK((*data)->sample_count(Split::kTest) == 1);
  Batch batch;
  REQUIRE((*data)->Read({Split::kTrain, std::vector<uint64_t>{0, 1, 2, 3}}, &batch).ok());
  std::set<std::pair<int, int>> seen;  // label and red value name a record
  for (size_t i = 0; i < 4; ++i) seen.insert({batch.labels[i], batch.bytes[i * kPictureBytes]});
  CHECK(seen.size() == 4);
  auto again = OpenDataSet(tiny.job);
  CHECK((*again)->fingerprint() == (*data)->fingerprint());
  tiny.job.seed = 2;
  CHECK((*OpenDataSet(tiny.job))->fingerprint() != (*data)->fingerprint());
  tiny.job.train_limit = tiny.job.test_limit = 1000;  // more than there are: all
  CHECK((*OpenDataSet(tiny.job))->sample_count(Split::kTrain) == 10);
  CHECK((*OpenDataSet(tiny.job))->sample_count(Split::kTest) == 2);
}

// Label and red value, which name a record, of all samples of a split.
std::set<std::pair<int, int>> RecordsIn(const DataSet& data, Split split) {
  std::vector<uint64_t> indices(data.sample_count(split));
  std::iota(indices.begin(), indices.end(), uint64_t{0});
  Batch batch;
  REQUIRE(data.Read({split, indices}, &batch).ok());
  std::set<std::pair<int, int>> records;
  for (size_t i = 0; i < indices.size(); ++i) {
    records.insert({batch.labels[i], batch.bytes[i * kPictureBytes]});
    CHECK(*data.Label(split, i) == batch.labels[i]);
  }
  CHECK(records.size() == indices.size());
  return records;
}

TEST_CASE("validation samples are training samples that are not trained on, drawn from the seed") {
  TinyCifar tiny;
  const auto all = RecordsIn(**OpenDataSet(tiny.job), Split::kTrain);
  tiny.job.validation_share = 0.3;
  const auto data = OpenDataSet(tiny.job);
  REQUIRE(data.ok());
  auto both = RecordsIn(**data, Split::kTrain);
  const auto validation = RecordsIn(**data, Split::kTest);
  CHECK(both.size() == 7);
  CHECK(validation.size() == 3);
  both.insert(validation.begin(), validation.end());
  CHECK(both == all);
  CHECK(RecordsIn(**OpenDataSet(tiny.job), Split::kTest) == validation);
  const uint64_t fingerprint = (*data)->fingerprint();
  tiny.job.validation_share = 0.4;
  CHECK((*OpenDataSet(tiny.job))->fingerprint() != fingerprint);
  tiny.job.validation_share = 0.3;
  tiny.job.seed = 2;
  CHECK((*OpenDataSet(tiny.job))->fingerprint() != fingerprint);
  tiny.job.train_limit = 5;
  tiny.job.test_limit = 1;  // of the test set, which is not here
  CHECK((*OpenDataSet(tiny.job))->sample_count(Split::kTrain) == 3);
  CHECK((*OpenDataSet(tiny.job))->sample_count(Split::kTest) == 2);
  tiny.job.train_limit = 0;
  for (const double share : {0.01, 0.99}) {
    tiny.job.validation_share = share;
    const Status refused = OpenDataSet(tiny.job).status();
    CHECK(refused.code() == StatusCode::kInvalidArgument);
    CHECK(Contains(refused.message(), "of 10 training samples; give a share that leaves some"));
  }
}

// Sums, the CRC and the deviations were computed from the files by Python.
TEST_CASE("CIFAR-10 is read as it was published") {
  const char* root = std::getenv("PANDO_TEST_DATA");
  Job job;
  job.dataset = "cifar10";
  if (root != nullptr) job.data_path = std::string(root) + "/cifar-10-batches-bin";
  if (!HoldsCifar10(job.data_path)) {
    MESSAGE("SKIPPED: PANDO_TEST_DATA does not hold cifar-10-batches-bin");
    return;
  }
  auto data = OpenDataSet(job);
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  CHECK((*data)->sample_count(Split::kTrain) == 50000);
  CHECK((*data)->sample_count(Split::kTest) == 10000);
  CHECK((*data)->class_names()[0] == "airplane");
  CHECK((*data)->class_names()[9] == "truck");
  std::vector<uint64_t> indices(50000);
  std::iota(indices.begin(), indices.end(), uint64_t{0});
  Batch batch;
  REQUIRE((*data)->Read({Split::kTrain, indices}, &batch).ok());
  CHECK(std::accumulate(batch.labels.begin(), batch.labels.end(), int64_t{0}) == 225000);
  CHECK(crc32_z(0, batch.bytes.data(), batch.bytes.size()) == 0x680a9ce0);
  CHECK(batch.labels[0] == 6);
}

}  // namespace
}  // namespace pando
