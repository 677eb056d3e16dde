// Measures how much of libjpeg-turbo's speed is left when photographs become training pictures:
// decoding alone, beside reading, decoding, cropping and resizing to 224 (as ImageFolder does). It
// uses one thread.
//
//   decode_bench FOLDER_OF_JPEGS [SECONDS]
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <numeric>
#include <vector>

#include "bench/cpp/kernels/fma_peak.h"
#include "data/dataset.h"
#include "data/picture_file.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 7;

// Rate is the pictures per second of the best and of the middle round.
struct Rate {
  double best = 0;
  double median = 0;
};

Rate Measure(double seconds, size_t pictures_per_call, const std::function<void()>& call) {
  std::vector<double> rates;
  for (int round = 0; round < kRounds; ++round) {
    const double start = ThreadSeconds();
    double spent = 0;
    size_t count = 0;
    while (spent < seconds / kRounds) {
      call();
      count += pictures_per_call;
      spent = ThreadSeconds() - start;
    }
    rates.push_back(static_cast<double>(count) / spent);
  }
  std::sort(rates.begin(), rates.end());
  return {rates.back(), rates[kRounds / 2]};
}

std::vector<std::string> JpegsIn(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) paths.push_back(fs::absolute(entry.path()).string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// LinkedFolder is an image folder whose two classes are the same pictures.
class LinkedFolder {
 public:
  explicit LinkedFolder(const std::vector<std::string>& paths) {
    std::string name = (fs::temp_directory_path() / "pando_decode_XXXXXX").string();
    PANDO_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
    for (const char* folder : {"train/a", "train/b", "val/a", "val/b"}) {
      fs::create_directories(path_ / folder);
      for (const std::string& path : paths) {
        fs::create_symlink(path, path_ / folder / (fs::path(path).stem().string() + ".jpg"));
      }
    }
  }
  ~LinkedFolder() { fs::remove_all(path_); }
  LinkedFolder(const LinkedFolder&) = delete;
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

Rate MeasureDecoding(const std::vector<std::string>& paths, double seconds) {
  std::vector<std::vector<uint8_t>> files;
  for (const std::string& path : paths) files.push_back(*ReadFileBytes(path));
  DecodedPicture picture;
  return Measure(seconds, files.size(), [&] {
    for (const std::vector<uint8_t>& file : files)
      PANDO_CHECK(DecodePicture(file, /*shrink=*/1, &picture).ok());
  });
}

Rate MeasureReading(const std::string& root, size_t picture_count, double seconds,
                    const std::vector<std::string>& augment) {
  Job job;
  job.dataset = "imagefolder";
  job.data_path = root;
  job.augment = augment;
  auto data = OpenDataSet(job);
  PANDO_CHECK(data.ok());
  std::vector<uint64_t> indices(picture_count);
  std::iota(indices.begin(), indices.end(), uint64_t{0});
  Batch batch;
  uint64_t epoch = 0;
  return Measure(seconds, picture_count, [&] {
    PANDO_CHECK((*data)->Read({Split::kTrain, indices, epoch++}, &batch).ok());
  });
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "decode_bench FOLDER_OF_JPEGS [SECONDS]\n");
    return 2;
  }
  const std::vector<std::string> paths = JpegsIn(argv[1]);
  const double seconds = argc > 2 ? std::atof(argv[2]) : 7;
  const LinkedFolder folder(paths);
  const Rate alone = MeasureDecoding(paths, seconds);
  const auto print = [&](const char* what, const Rate& rate) {
    fmt::print("{:<34} {:>8.1f} {:>8.1f} {:>6.2f}\n", what, rate.median, rate.best,
               rate.median / alone.median);
  };
  fmt::print("{} photographs, one thread\n{:<34} {:>8} {:>8} {:>6}\n", paths.size(), "pictures/s",
             "median", "best", "share");
  print("decoding alone", alone);
  print("read, decode, middle, 224", MeasureReading(folder.path(), paths.size(), seconds, {}));
  print("read, decode, random crop, flip, 224",
        MeasureReading(folder.path(), paths.size(), seconds, {"crop", "flip"}));
  return 0;
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) { return pando::Main(argc, argv); }
