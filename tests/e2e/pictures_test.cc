// Photographs through real processes: cropped, flipped, cached and read ahead, their weights are
// the serial trainer's (I5); and undecodable pictures belong to the job, not to a reader:
// their number, and what becomes of the run, are the same for any number of workers.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "common/exit_codes.h"
#include "common/philox.h"
#include "data/picture_file.h"
#include "tests/e2e/run_files.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

// Two classes of small pictures of many sizes; `bad` of the training ones are cut off.
struct Pictures {
  TempFolder temp;
  std::string path = temp.path() + "/pictures";
  explicit Pictures(uint32_t bad) {
    uint32_t seed = 0;
    for (const char* folder : {"train/ants", "train/bees", "val/ants", "val/bees"}) {
      fs::create_directories(path + "/" + folder);
      for (uint32_t n = 0; n < 20; ++n) Draw(std::string(folder) + "/" + Name(n), ++seed);
    }
    for (uint32_t n = 0; n < bad; ++n) {
      const std::string file = path + "/train/ants/" + Name(3 + 5 * n);
      fs::resize_file(file, fs::file_size(file) - 20);
    }
  }
  static std::string Name(uint32_t n) { return std::to_string(n) + ".png"; }
  void Draw(const std::string& name, uint32_t seed) const {
    const uint32_t height = 12 + seed % 7, width = 12 + seed % 5;
    std::vector<uint8_t> pixels;
    for (uint32_t i = 0; i < height * width * 3; ++i)
      pixels.push_back(static_cast<uint8_t>(Philox4x32({i, seed, 0, 0}, {7, 7})[0]));
    REQUIRE(WritePng(path + "/" + name, {pixels.data(), height, width, 3}).ok());
  }
};

struct Run {
  int exit_code = 0;
  Summary summary;
  std::string err;
};

Run Train(const Pictures& pictures, const Args& more) {
  TempFolder temp;
  const std::string run_dir = temp.path() + "/run";
  Process train(temp.path(), "train",
                Args{"train", "--run-dir", run_dir, "--set", "run.lease_ms=20000", "--model", "mlp",
                     "--dataset", "imagefolder", "--data", pictures.path, "--resize", "8",
                     "--global-batch", "8", "--micro-batches", "4", "--epochs", "2"} +
                    more);
  train.Await();
  INFO(train.err());
  return {train.exit_code(), SummaryIn(run_dir), train.err()};
}

const Args kSerial{"--serial"};
const Args kDistributed{"--workers", "2", "--servers", "2", "--transport", "ipc"};
#ifdef PANDO_HAS_GLOO
const std::vector<Args> kOnSeveral{kDistributed, {"--workers", "2", "--strategy", "allreduce"}};
#else
const std::vector<Args> kOnSeveral{kDistributed};
#endif

TEST_CASE("photographs that are cropped, flipped, cached and read ahead give the serial weights") {
  const Pictures pictures(0);
  const Args augmented{"--set", "data.augment=[\"crop\", \"flip\"]"};
  const Run serial = Train(pictures, kSerial + augmented);
  REQUIRE(serial.exit_code == kExitCompleted);
  const std::string cache = pictures.temp.path() + "/cache";
  const Args reading{"--data-cache", cache, "--reader-threads", "3", "--threads", "2"};
  for (int round = 0; round < 2; ++round) {  // without what the cache holds, and with it
    const Run run = Train(pictures, kDistributed + augmented + reading);
    REQUIRE(run.exit_code == kExitCompleted);
    CHECK(run.summary.weights_hash == serial.summary.weights_hash);
    CHECK(run.summary.test_loss == serial.summary.test_loss);
    CHECK(run.summary.job_hash == serial.summary.job_hash);
    CHECK(run.summary.bad_pictures == 0);
  }
  CHECK_FALSE(fs::is_empty(cache));
}

TEST_CASE("bad pictures are named and counted alike for any number of workers") {
  const Pictures pictures(2);
  const Args allowed{"--set", "data.bad_pictures_max=2"};
  const Run serial = Train(pictures, kSerial + allowed);
  REQUIRE(serial.exit_code == kExitCompleted);
  CHECK(serial.summary.bad_pictures == 2);
  std::vector<Run> runs{serial};
  for (const Args& form : kOnSeveral) runs.push_back(Train(pictures, form + allowed));
  for (const Run& run : runs) {
    REQUIRE(run.exit_code == kExitCompleted);
    CHECK(run.summary.bad_pictures == 2);
    CHECK(run.summary.weights_hash == serial.summary.weights_hash);
    CHECK(Contains(run.err, "train/ants/3.png: a PNG file that cannot be decoded"));
    CHECK(Contains(run.err, "train/ants/8.png: a PNG file that cannot be decoded"));
    CHECK(Contains(run.err, "2 of 2 that may be"));
  }
}

TEST_CASE("more bad pictures than may be end the run, for any number of workers") {
  const Pictures pictures(2);
  std::vector<Args> forms{kSerial};
  forms.insert(forms.end(), kOnSeveral.begin(), kOnSeveral.end());
  for (const Args& form : forms) {
    const Run run = Train(pictures, form + Args{"--set", "data.bad_pictures_max=1"});
    CHECK(run.exit_code == kExitFailed);
    CHECK(run.summary.status == kStatusFailed);
    CHECK(run.summary.bad_pictures == 2);
    for (const char* part : {"2 pictures that cannot be decoded", "train/ants/3.png",
                             "train/ants/8.png", "data.bad_pictures_max is 1"}) {
      CHECK_MESSAGE(Contains(run.summary.failure, part), run.summary.failure);
    }
  }
}

}  // namespace
}  // namespace pando
