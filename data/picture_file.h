// Decodes JPEG files by libjpeg-turbo, with the exact integer DCT (P38), and PNG files by libpng.
// image_folder.cc calls it. Grayscale gives three equal channels; an alpha channel is dropped.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "data/resampler.h"

namespace pando {

struct DecodedPicture {
  std::vector<uint8_t> pixels;  // [height, width, 3]
  uint32_t height = 0;
  uint32_t width = 0;
  PictureView view() const { return {pixels.data(), height, width, 3}; }
};

struct PictureSize {
  uint32_t height = 0;
  uint32_t width = 0;
};

// The limits of one picture; one that claims more is an error. They mean 192 MiB of pixels, and
// twice that in libjpeg-turbo while it gathers the scans of a progressive picture.
inline constexpr uint32_t kPictureSideMax = 32768;
inline constexpr uint64_t kPicturePixelsMax = uint64_t{1} << 26;
inline constexpr uint64_t kPictureFileBytesMax = uint64_t{1} << 26;

// Returns kCorrupt if the bytes do not begin like a JPEG or PNG file; it says how they begin.
Status CheckPictureHead(std::span<const uint8_t> bytes);

// Reads a whole file. kCorrupt: it has more than kPictureFileBytesMax.
Result<std::vector<uint8_t>> ReadFileBytes(const std::string& path);

// Reads only the file's head. Errors (kCorrupt) say what is wrong, but not in which file.
Result<PictureSize> ReadPictureSize(std::span<const uint8_t> bytes);
// Decodes a picture. A JPEG may be decoded smaller by `shrink`, 1, 2, 4 or 8, to save work. A
// decoder's warning is an error too, because most warnings mean guessed pixels; as in PIL, the
// warning about bytes between the parts of a JPEG file is not. The result depends only on these
// bytes: no state is kept between pictures.
Status DecodePicture(std::span<const uint8_t> bytes, uint32_t shrink, DecodedPicture* picture);

// Writes a PNG file, for contact sheets and tests.
Status WritePng(const std::string& path, const PictureView& picture);

}  // namespace pando
