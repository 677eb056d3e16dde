// Reader of idx files, the format of MNIST and Fashion-MNIST, plain or gzip-compressed. Called by
// dataset.cc. Bad files are errors that name the file, the byte, what was found and what to do.
//
//   byte 0  magic, big-endian: 0x00000803 pictures (3 sizes), 0x00000801 labels (1 size)
//   byte 4  record count, big-endian; for pictures then height and width
//   then    the records, one unsigned byte per pixel or label, row by row
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"

namespace pando {

struct IdxPictures {
  uint32_t count = 0;
  uint32_t height = 0;
  uint32_t width = 0;
  std::vector<uint8_t> pixels;  // [picture, height, width]
};

Result<IdxPictures> ReadIdxPictures(const std::string& path);

// Labels are checked to be below `class_count`.
Result<std::vector<uint8_t>> ReadIdxLabels(const std::string& path, uint32_t class_count);

}  // namespace pando
