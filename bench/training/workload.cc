#include "bench/training/workload.h"

#include <fmt/format.h>

#include "models/zoo.h"
#include "worker/dataset.h"

namespace pando::bench {
namespace {

constexpr uint32_t kDigitsBatch = 128, kPicturesBatch = 32;

// What a model of these pictures learns from: files, and what is drawn where there are none.
struct Source {
  const char* name;    // null: none is looked for
  const char* folder;  // of the data sets' folder
  const char* stand_in;
};

Source SourceOf(const ZooModel& model) {
  if (model.input.channels == 1) return {"mnist", "mnist", "synthetic-digits"};
  if (model.input.height > 32) return {nullptr, "", "synthetic-imagenet"};
  return {"cifar10", "cifar-10-batches-bin", "synthetic-imagenet"};
}

}  // namespace

Result<Workload> FindWorkload(const std::string& model, uint32_t worker_batch,
                              const std::vector<std::string>& folders) {
  const ZooModel* known = FindZooModel(model);
  if (known == nullptr) {
    return InvalidArgument(
        fmt::format("--model: '{}' is none of the zoo's; pando models lists them", model));
  }
  const Source source = SourceOf(*known);
  const bool is_digits = known->input.channels == 1;
  Workload workload{.model = model,
                    .data_set = source.stand_in,
                    .data_path = "",
                    .resize = is_digits ? 0 : known->input.height,
                    .worker_batch = is_digits ? kDigitsBatch : kPicturesBatch};
  if (worker_batch != 0) workload.worker_batch = worker_batch;
  for (const std::string& folder : folders) {
    if (source.name == nullptr) break;
    for (const std::string& path : {folder + "/" + source.name, folder + "/" + source.folder}) {
      if (!HoldsDataSet(source.name, path)) continue;
      workload.data_set = source.name;
      workload.data_path = path;
      workload.resize = 0;
      return workload;
    }
  }
  return workload;
}

std::vector<std::string> DataFolders(const std::string& first) {
  std::vector<std::string> folders{"data", "../shared/data"};
  if (!first.empty()) folders.insert(folders.begin(), first);
  return folders;
}

std::string Workload::DataText() const { return is_synthetic() ? data_set + " (drawn)" : data_set; }

std::vector<std::string> Workload::Flags() const {
  std::vector<std::string> flags{"--model", model, "--dataset", data_set};
  if (!data_path.empty()) flags.insert(flags.end(), {"--data", data_path});
  if (resize != 0) flags.insert(flags.end(), {"--resize", fmt::format("{}", resize)});
  return flags;
}

}  // namespace pando::bench
