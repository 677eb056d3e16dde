// PNG by libpng, for picture_file.cc.
#pragma once

#include <cstdint>
#include <span>

#include "data/picture_file.h"

namespace pando {

bool IsPng(std::span<const uint8_t> bytes);
Result<PictureSize> ReadPngSize(std::span<const uint8_t> bytes);
Status DecodePng(std::span<const uint8_t> bytes, DecodedPicture* picture);

}  // namespace pando
