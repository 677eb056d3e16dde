// Photographs through real processes: cropped, flipped, cached and read ahead, their weights are
// the serial trainer's (I5). A picture that cannot be decoded ends a run with any number of
// workers, unless the skip list of `pando data check` leaves it out.
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

struct PicturesRun {
  int exit_code = 0;
  Summary summary;
  std::string err;
};

PicturesRun Train(const Pictures& pictures, const Args& more) {
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
  const PicturesRun serial = Train(pictures, kSerial + augmented);
  REQUIRE(serial.exit_code == kExitCompleted);
  CHECK(Contains(serial.err, "a part of each picture is resized to 8 x 8 (--resize)"));
  const std::string cache = pictures.temp.path() + "/cache";
  const Args reading{"--data-cache", cache, "--reader-threads", "3", "--threads", "2"};
  for (int round = 0; round < 2; ++round) {  // without what the cache holds, and with it
    const PicturesRun run = Train(pictures, kDistributed + augmented + reading);
    REQUIRE(run.exit_code == kExitCompleted);
    CHECK(run.summary.weights_hash == serial.summary.weights_hash);
    CHECK(run.summary.test_loss == serial.summary.test_loss);
    CHECK(run.summary.job_hash == serial.summary.job_hash);
  }
  CHECK_FALSE(fs::is_empty(cache));
}

TEST_CASE("a picture that cannot be decoded ends the run with an error that names it") {
  const Pictures pictures(1);
  std::vector<Args> forms{kSerial};
  forms.insert(forms.end(), kOnSeveral.begin(), kOnSeveral.end());
  for (const Args& form : forms) {
    const PicturesRun run = Train(pictures, form);
    CHECK(run.exit_code == kExitFailed);
    CHECK(run.summary.status == kStatusFailed);
    for (const char* part :
         {"train/ants/3.png: a PNG file that cannot be decoded", "pando data check", "data.skip"}) {
      CHECK_MESSAGE(Contains(run.summary.failure, part), run.summary.failure);
    }
  }
}

TEST_CASE("without the pictures of the skip list the weights do not depend on the workers") {
  const Pictures pictures(2);
  Process check(pictures.temp.path(), "check", {"data", "check", pictures.path});
  check.Await();
  CHECK(check.exit_code() == kExitFailed);
  CHECK(Contains(check.out(), "train/ants/3.png: a PNG file that cannot be decoded"));
  CHECK(Contains(check.out(), "2 of 80 pictures cannot be read"));
  const Args skipping{"--set", "data.skip=skip.txt"};
  const PicturesRun serial = Train(pictures, kSerial + skipping);
  REQUIRE(serial.exit_code == kExitCompleted);
  for (const Args& form : kOnSeveral) {
    const PicturesRun run = Train(pictures, form + skipping);
    REQUIRE(run.exit_code == kExitCompleted);
    CHECK(run.summary.weights_hash == serial.summary.weights_hash);
  }
  Process again(pictures.temp.path(), "again", {"data", "check", pictures.path});
  again.Await();
  CHECK(again.exit_code() == kExitUsage);  // a run may use the list
  CHECK(Contains(again.err(), "skip.txt exists"));
}

}  // namespace
}  // namespace pando
