// Reader of the binary CIFAR-10 and CIFAR-100 files. Called by dataset.cc. Bad files are errors
// that name the file, the byte, what was found and what to do.
//
//   CIFAR-10   data_batch_1.bin to data_batch_5.bin, test_batch.bin
//              record: label, then 3 x 32 x 32 pixels: the red plane, the green, the blue, row by
//              row
//   CIFAR-100  train.bin, test.bin
//              record: coarse label, fine label (the class), then pixels as above
//
// Source: Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"
#include "data/dataset.h"
#include "plan/job.h"

namespace pando {

enum class CifarKind : uint8_t { kCifar10, kCifar100 };

Result<std::unique_ptr<DataSet>> OpenCifar(const Job& job, CifarKind kind);
// The folder that the published archive unpacks to.
std::string CifarFolder(CifarKind kind);
// Whether the files of both splits are in `folder`.
bool HoldsCifar(const std::string& folder, CifarKind kind);

}  // namespace pando
