#include "data/dataset.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <cstdlib>
#include <numeric>
#include <string>

#include "data/kinds.h"
#include "data/picture_set.h"
#include "tests/data/check_message.h"
#include "tests/data/idx_files.h"
#include "tests/data/read_all.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

// A folder with a tiny data set: 5 training and 3 test pictures of 3 x 2.
struct TinyMnist {
  TempFolder folder;
  Job job;
  TinyMnist() {
    folder.Write("train-images-idx3-ubyte.gz", Gzip(PicturesFile(5)));
    folder.Write("train-labels-idx1-ubyte", LabelsFile({5, 0, 4, 1, 9}));
    folder.Write("t10k-images.idx3-ubyte", PicturesFile(3));
    folder.Write("t10k-labels-idx1-ubyte.gz", Gzip(LabelsFile({7, 2, 1})));
    job.dataset = "mnist";
    job.data_path = folder.path();
  }
};

TEST_CASE("a data set hands out the samples asked for, in the order asked for") {
  TinyMnist tiny;
  auto data = OpenDataSet(tiny.job);
  REQUIRE(data.ok());
  const DataSet& set = **data;
  CHECK(set.shape() == SampleShape{3, 2, 1});
  CHECK(set.class_count() == 10);
  CHECK(set.sample_count(Split::kTrain) == 5);
  CHECK(set.sample_count(Split::kTest) == 3);
  Batch batch;
  batch.values = {1.0f};  // left from another use
  REQUIRE(set.Read({Split::kTrain, std::vector<uint64_t>{4, 0, 4}}, &batch).ok());
  CHECK(batch.shape == set.shape());
  CHECK(batch.values.empty());
  CHECK(batch.labels == std::vector<int32_t>{9, 5, 9});
  CHECK(batch.bytes == Bytes{24, 25, 26, 27, 28, 29, 0, 1, 2, 3, 4, 5, 24, 25, 26, 27, 28, 29});
  REQUIRE(batch.normalisation != nullptr);
  CHECK(batch.normalisation->mean == std::vector<float>{0.1307f});
  CHECK(batch.normalisation->stddev == std::vector<float>{0.3081f});
  REQUIRE(set.Read({Split::kTest, {}}, &batch).ok());
  CHECK(batch.sample_count() == 0);
  CHECK(batch.bytes.empty());
}

TEST_CASE("Fashion-MNIST is normalised by its own constants") {
  TinyMnist tiny;
  tiny.job.dataset = "fashion-mnist";
  auto data = OpenDataSet(tiny.job);
  REQUIRE(data.ok());
  Batch batch;
  REQUIRE((*data)->Read({Split::kTest, std::vector<uint64_t>{1}}, &batch).ok());
  CHECK(batch.normalisation->mean == std::vector<float>{0.2860f});
  CHECK(batch.normalisation->stddev == std::vector<float>{0.3530f});
}

TEST_CASE("the fingerprint differs when a label, a pixel, an order or a count differs") {
  auto fingerprint = [](Bytes pixels, Bytes labels, Bytes test_labels) {
    Bytes test_pixels(test_labels.size(), 7);
    return PictureSet({.shape = {1, 1, 1},
                       .class_count = 10,
                       .class_names = {},
                       .normalisation = {},
                       .train = {std::move(pixels), std::move(labels)},
                       .test = {std::move(test_pixels), std::move(test_labels)}})
        .fingerprint();
  };
  const uint64_t base = fingerprint({1, 2}, {3, 4}, {5});
  CHECK(fingerprint({1, 2}, {3, 4}, {5}) == base);
  CHECK(fingerprint({1, 9}, {3, 4}, {5}) != base);
  CHECK(fingerprint({1, 2}, {3, 5}, {5}) != base);
  CHECK(fingerprint({2, 1}, {4, 3}, {5}) != base);
  CHECK(fingerprint({1, 2}, {3, 4}, {5, 5}) != base);
}

TEST_CASE("counts of pictures and labels that differ are an error that names both files") {
  TinyMnist tiny;
  tiny.folder.Write("t10k-labels-idx1-ubyte.gz", Gzip(LabelsFile({7, 2})));
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt,
               {tiny.folder.File("t10k-images.idx3-ubyte"), "3 pictures",
                tiny.folder.File("t10k-labels-idx1-ubyte.gz"), "2 labels"});
}

TEST_CASE("splits of different picture sizes are an error") {
  TinyMnist tiny;
  tiny.folder.Write("t10k-images.idx3-ubyte", PicturesFile(3, 2, 3));
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt, {"3 x 2", "2 x 3"});
}

TEST_CASE("errors of a file's content reach the caller") {
  TinyMnist tiny;
  tiny.folder.Write("train-labels-idx1-ubyte", LabelsFile({5, 0, 4, 1, 10}));
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt,
               {tiny.folder.File("train-labels-idx1-ubyte"), "label 4 is 10"});
}

TEST_CASE("a missing folder, no folder and a file in its place say what to do") {
  TinyMnist tiny;
  tiny.job.data_path = tiny.folder.File("nowhere");
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kNotFound,
               {tiny.job.data_path, "no such folder", "--data", "synthetic-digits"});
  tiny.job.data_path = tiny.folder.File("train-labels-idx1-ubyte");
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kNotFound, {"is not a folder"});
  tiny.job.data_path = "";
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kInvalidArgument,
               {"no folder", "--data", "synthetic-digits"});
}

TEST_CASE("a missing file is an error that says which names were looked for") {
  TinyMnist tiny;
  std::filesystem::remove(tiny.folder.File("t10k-labels-idx1-ubyte.gz"));
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kNotFound,
               {tiny.folder.path(),
                "t10k-labels-idx1-ubyte.gz, t10k-labels-idx1-ubyte, "
                "t10k-labels.idx1-ubyte, t10k-labels.idx1-ubyte.gz"});
}

TEST_CASE("a folder holds the idx files only when all four are there") {
  TinyMnist tiny;
  CHECK(HoldsIdxFiles(tiny.folder.path()));
  std::filesystem::remove(tiny.folder.File("train-labels-idx1-ubyte"));
  CHECK_FALSE(HoldsIdxFiles(tiny.folder.path()));
  CHECK_FALSE(HoldsIdxFiles(tiny.folder.File("nowhere")));
  CHECK_FALSE(HoldsIdxFiles(""));
}

TEST_CASE("an unknown data set is an error that names the nearest one") {
  Job job;
  job.dataset = "mnsit";
  CheckMessage(OpenDataSet(job).status(), StatusCode::kInvalidArgument,
               {"'mnsit'", "did you mean 'mnist'?", "known are mnist, fashion-mnist, cifar10"});
  job.dataset = "fashion";
  CheckMessage(OpenDataSet(job).status(), StatusCode::kInvalidArgument,
               {"did you mean 'fashion-mnist'?"});
  job.dataset = "kitchens";
  Status unlike = OpenDataSet(job).status();
  CHECK(unlike.message().find("did you mean") == std::string::npos);
}

// Opens a real data set; null, loudly, where PANDO_TEST_DATA does not hold it.
std::unique_ptr<DataSet> OpenReal(const std::string& name) {
  const char* root = std::getenv("PANDO_TEST_DATA");
  const std::string folder = root == nullptr ? name : std::string(root) + "/" + name;
  if (root == nullptr || !HoldsIdxFiles(folder)) {
    MESSAGE("SKIPPED: PANDO_TEST_DATA does not hold ", name);
    return nullptr;
  }
  Job job;
  job.dataset = name;
  job.data_path = folder;
  auto data = OpenDataSet(job);
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  return std::move(*data);
}

// Sums and CRCs were computed from the files by Python's gzip and zlib modules.
void CheckSplit(const DataSet& data, Split split, uint64_t pixel_sum, uint64_t pixel_crc,
                int64_t label_sum, int32_t first_label) {
  const Batch batch = ReadAll(data, split);
  CHECK(std::accumulate(batch.bytes.begin(), batch.bytes.end(), uint64_t{0}) == pixel_sum);
  CHECK(crc32_z(0, batch.bytes.data(), batch.bytes.size()) == pixel_crc);
  CHECK(std::accumulate(batch.labels.begin(), batch.labels.end(), int64_t{0}) == label_sum);
  CHECK(batch.labels[0] == first_label);
}

TEST_CASE("MNIST is read as it was published") {
  auto data = OpenReal("mnist");
  if (data == nullptr) return;
  CHECK(data->shape() == SampleShape{28, 28, 1});
  CHECK(data->sample_count(Split::kTrain) == 60000);
  CHECK(data->sample_count(Split::kTest) == 10000);
  CheckSplit(*data, Split::kTrain, 1567298545, 0xf3639b56, 267236, 5);
  CheckSplit(*data, Split::kTest, 264923200, 0xe4ca5f57, 44434, 7);
}

TEST_CASE("Fashion-MNIST is read as it was published") {
  auto data = OpenReal("fashion-mnist");
  if (data == nullptr) return;
  CheckSplit(*data, Split::kTrain, 3431114169, 0xae65dccd, 270000, 9);
  CheckSplit(*data, Split::kTest, 573469082, 0x12728439, 45000, 9);
}

}  // namespace
}  // namespace pando
