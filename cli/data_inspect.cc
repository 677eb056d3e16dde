#include "cli/data_inspect.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "data/picture_file.h"
#include "data/resampler.h"

namespace pando {
namespace {

constexpr size_t kClassRowsMax = 100;
constexpr uint64_t kMeasuredBytesMax = 200'000'000;  // of pictures; all of CIFAR fit
constexpr size_t kMeasuredAtOnce = 64;
constexpr size_t kSheetRowsMax = 20, kSheetColumns = 10;
constexpr uint32_t kCellSideMax = 96;

using Counts = std::vector<uint64_t>;  // by class

Result<Counts> CountClasses(const DataSet& data, Split split) {
  Counts counts(data.class_count());
  for (uint64_t i = 0; i < data.sample_count(split); ++i) {
    PANDO_ASSIGN_OR_RETURN(int32_t label, data.Label(split, i));
    ++counts[static_cast<size_t>(label)];
  }
  return counts;
}

std::string ClassTable(const DataSet& data, const Counts& train, const Counts& test) {
  const std::vector<std::string> names = data.class_names();
  std::string text = fmt::format("{:<24} {:>10} {:>10}\n", "class", "train", "test");
  for (size_t c = 0; c < std::min(names.size(), kClassRowsMax); ++c)
    text += fmt::format("{:<24} {:>10} {:>10}\n", names[c], train[c], test[c]);
  if (names.size() > kClassRowsMax)
    text += fmt::format("... {} more classes\n", names.size() - kClassRowsMax);
  return text;
}

struct Moments {  // by channel
  std::vector<double> sum;
  std::vector<double> squares;
  uint64_t picture_count = 0;
};

Result<Moments> Measure(const DataSet& data) {
  const SampleShape shape = data.shape();
  Moments moments{std::vector<double>(shape.channels), std::vector<double>(shape.channels)};
  const uint64_t all = data.sample_count(Split::kTrain);
  const uint64_t wanted = std::clamp<uint64_t>(kMeasuredBytesMax / shape.size(), 1, all);
  Batch batch;
  for (uint64_t first = 0; first < wanted; first += kMeasuredAtOnce) {
    std::vector<uint64_t> indices;
    for (uint64_t i = first; i < std::min(first + kMeasuredAtOnce, wanted); ++i)
      indices.push_back(i * all / wanted);
    PANDO_RETURN_IF_ERROR(data.Read({Split::kTrain, indices}, &batch));
    for (size_t i = 0; i < batch.bytes.size(); ++i) {
      const double value = batch.bytes[i] / 255.0;
      moments.sum[i % shape.channels] += value;
      moments.squares[i % shape.channels] += value * value;
    }
  }
  moments.picture_count = wanted;
  return moments;
}

Result<std::string> MomentsText(const DataSet& data) {
  PANDO_ASSIGN_OR_RETURN(Moments moments, Measure(data));
  const double count =
      static_cast<double>(moments.picture_count) * data.shape().height * data.shape().width;
  std::string mean, deviation;
  for (size_t c = 0; c < moments.sum.size(); ++c) {
    const double m = moments.sum[c] / count;
    mean += fmt::format(" {:.4f}", m);
    deviation +=
        fmt::format(" {:.4f}", std::sqrt(std::max(0.0, moments.squares[c] / count - m * m)));
  }
  return fmt::format("mean{}, deviation{} (of byte / 255, {} training pictures)\n", mean, deviation,
                     moments.picture_count);
}

// Returns the first training samples of each of the first classes.
Result<std::vector<std::vector<uint64_t>>> SheetRows(const DataSet& data) {
  std::vector<std::vector<uint64_t>> rows(std::min<size_t>(data.class_count(), kSheetRowsMax));
  size_t missing = rows.size() * kSheetColumns;
  for (uint64_t i = 0; i < data.sample_count(Split::kTrain) && missing > 0; ++i) {
    PANDO_ASSIGN_OR_RETURN(int32_t label, data.Label(Split::kTrain, i));
    const auto row = static_cast<size_t>(label);
    if (row >= rows.size() || rows[row].size() == kSheetColumns) continue;
    rows[row].push_back(i);
    --missing;
  }
  return rows;
}

}  // namespace

bool HoldsPictures(const DataSet& data) {
  return data.shape().height > 1 && (data.shape().channels == 1 || data.shape().channels == 3);
}

Result<std::string> DescribeData(const DataSet& data) {
  const SampleShape shape = data.shape();
  PANDO_ASSIGN_OR_RETURN(const Counts train, CountClasses(data, Split::kTrain));
  PANDO_ASSIGN_OR_RETURN(const Counts test, CountClasses(data, Split::kTest));
  std::string text = fmt::format("{} training samples, {} test samples, {} classes\n",
                                 data.sample_count(Split::kTrain), data.sample_count(Split::kTest),
                                 data.class_count());
  text +=
      HoldsPictures(data)
          ? fmt::format("pictures of {} x {} pixels, {} channels\n", shape.height, shape.width,
                        shape.channels)
          : fmt::format("rows of {} columns, standardised by the training rows\n", shape.channels);
  text += fmt::format("fingerprint {:016x}\n", data.fingerprint());
  text += ClassTable(data, train, test);
  for (const std::string& remark : data.remarks()) text += remark + "\n";
  for (const std::string& notice : data.notices()) text += notice + "\n";
  if (!HoldsPictures(data)) return text;
  PANDO_ASSIGN_OR_RETURN(std::string moments, MomentsText(data));
  return text + moments;
}

Status WriteContactSheet(const DataSet& data, const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(const auto rows, SheetRows(data));
  const SampleShape shape = data.shape();
  const uint32_t height = std::min(shape.height, kCellSideMax);
  const uint32_t width = std::min(shape.width, kCellSideMax);
  const size_t row_bytes = kSheetColumns * width * shape.channels;
  std::vector<uint8_t> sheet(rows.size() * height * row_bytes);
  std::vector<uint8_t> cell(size_t{height} * width * shape.channels);
  Resampler resampler;
  Batch batch;
  for (size_t row = 0; row < rows.size(); ++row) {
    const std::vector<uint64_t>& indices = rows[row];
    PANDO_RETURN_IF_ERROR(data.Read({Split::kTrain, indices}, &batch));
    for (size_t column = 0; column < indices.size(); ++column) {
      const PictureView picture{&batch.bytes[column * shape.size()], shape.height, shape.width,
                                shape.channels};
      resampler.Resize(picture, {0, 0, shape.height, shape.width}, height, width, cell.data());
      const size_t cell_row_bytes = size_t{width} * shape.channels;
      for (size_t y = 0; y < height; ++y) {
        std::copy_n(&cell[y * cell_row_bytes], cell_row_bytes,
                    &sheet[(row * height + y) * row_bytes + column * cell_row_bytes]);
      }
    }
  }
  return WritePng(path, {sheet.data(), static_cast<uint32_t>(rows.size() * height),
                         static_cast<uint32_t>(kSheetColumns * width), shape.channels});
}

}  // namespace pando
