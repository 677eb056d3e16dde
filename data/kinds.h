// The kinds of data sets. Each opener is in a file with its name, and dataset.cc calls it with the
// job. Bad files are errors that name the file, the place, what was found and what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace pando {

// idx: four files, plain or gzip-compressed.
OpenedDataSet OpenMnist(const Job& job, const DataWarning& warn);
OpenedDataSet OpenFashionMnist(const Job& job, const DataWarning& warn);
bool HoldsIdxFiles(const std::string& folder);

// cifar: the binary files. The archive unpacks to a folder with this name.
inline constexpr const char* kCifar10Folder = "cifar-10-batches-bin";
inline constexpr const char* kCifar100Folder = "cifar-100-binary";
OpenedDataSet OpenCifar10(const Job& job, const DataWarning& warn);
OpenedDataSet OpenCifar100(const Job& job, const DataWarning& warn);
bool HoldsCifar10(const std::string& folder);
bool HoldsCifar100(const std::string& folder);

// table_set: a CSV file, a folder with one, or a folder with train.csv and test.csv.
OpenedDataSet OpenSdss(const Job& job, const DataWarning& warn);
OpenedDataSet OpenCsv(const Job& job, const DataWarning& warn);
bool IsSdss(const std::string& path);  // whether the table there has the columns of sdss

// image_folder: if a cache cannot be opened, it warns and works without it.
OpenedDataSet OpenImageFolder(const Job& job, const DataWarning& warn);
bool HoldsPictureFolders(const std::string& folder);

// The program draws the pictures. Ten consecutive digits have each digit once.
OpenedDataSet OpenSyntheticDigits(const Job& job, const DataWarning& warn);
OpenedDataSet OpenSyntheticImageNet(const Job& job, const DataWarning& warn);
inline constexpr uint32_t kDigitSide = 28;  // pictures are 28 x 28 x 1, like MNIST's
constexpr uint8_t DigitLabel(uint64_t index) { return static_cast<uint8_t>(index % 10); }
// REQUIRES: picture.size() == kDigitSide * kDigitSide.
void DrawDigit(Split split, uint64_t index, std::span<uint8_t> picture);

// The readers of single idx files, for tests.
struct IdxPictures {
  uint32_t count = 0;
  uint32_t height = 0;
  uint32_t width = 0;
  std::vector<uint8_t> pixels;  // [picture, height, width]
};
Result<IdxPictures> ReadIdxPictures(const std::string& path);
// Reads labels, and checks that they are below `class_count`.
Result<std::vector<uint8_t>> ReadIdxLabels(const std::string& path, uint32_t class_count);

}  // namespace pando
