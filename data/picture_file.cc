#include "data/picture_file.h"

#include <fmt/format.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "common/check.h"
#include "data/png_file.h"

namespace pando {
namespace {

bool IsJpeg(std::span<const uint8_t> bytes) {
  return bytes.size() >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

// Inks as Photoshop writes them (255 for none), and so in every CMYK JPEG of ImageNet.
uint8_t Light(uint32_t ink, uint32_t black) {
  return static_cast<uint8_t>((ink * black + 127) / 255);
}

}  // namespace

Status CheckPictureHead(std::span<const uint8_t> bytes) {
  if (IsJpeg(bytes) || IsPng(bytes)) return Status();
  if (bytes.empty()) return Corrupt("not a picture: the file is empty");
  std::string head;
  for (size_t i = 0; i < std::min<size_t>(4, bytes.size()); ++i)
    head += fmt::format("{}{:02x}", i == 0 ? "" : " ", bytes[i]);
  return Corrupt(fmt::format(
      "not a JPEG or PNG picture: begins with {}, expected ff d8 ff or 89 50 4e 47", head));
}

Result<std::vector<uint8_t>> ReadFileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return NotFound(fmt::format("cannot be opened: {}", std::strerror(errno)));
  const std::streamoff size = file.tellg();
  if (size > static_cast<std::streamoff>(kPictureFileBytesMax))
    return Corrupt(
        fmt::format("a file of {} bytes, expected at most {}", size, kPictureFileBytesMax));
  std::vector<uint8_t> bytes(static_cast<size_t>(std::max<std::streamoff>(size, 0)));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) return Unavailable(fmt::format("cannot be read: {}", std::strerror(errno)));
  return bytes;
}

namespace {

// One picture's decoder. libjpeg-turbo keeps a picture's tables for the next one that brings none,
// and a damaged file must not be decoded with another file's tables.
class JpegDecoder {
 public:
  explicit JpegDecoder(std::span<const uint8_t> bytes) : bytes_(bytes) {
    PANDO_CHECK(handle_ != nullptr);
  }
  ~JpegDecoder() { tjDestroy(handle_); }
  JpegDecoder(const JpegDecoder&) = delete;

  Result<PictureSize> ReadHead() {
    if (tjDecompressHeader3(handle_, bytes_.data(), bytes_.size(), &width_, &height_, &subsampling_,
                            &colours_) != 0) {
      return Wrong();
    }
    return PictureSize{static_cast<uint32_t>(height_), static_cast<uint32_t>(width_)};
  }
  // REQUIRES: the head was read.
  Status Decode(uint32_t shrink, DecodedPicture* picture) {
    if (colours_ == TJCS_CMYK || colours_ == TJCS_YCCK) return DecodeCmyk(picture);
    const tjscalingfactor scale{1, static_cast<int>(shrink)};
    const int width = TJSCALED(width_, scale);
    const int height = TJSCALED(height_, scale);
    picture->width = static_cast<uint32_t>(width);
    picture->height = static_cast<uint32_t>(height);
    picture->pixels.resize(size_t{picture->width} * picture->height * 3);
    return Decompress(width, height, TJPF_RGB, picture->pixels.data());
  }

 private:
  Status DecodeCmyk(DecodedPicture* picture) {
    picture->width = static_cast<uint32_t>(width_);
    picture->height = static_cast<uint32_t>(height_);
    const size_t pixel_count = size_t{picture->width} * picture->height;
    std::vector<uint8_t> inks(pixel_count * 4);
    if (Status s = Decompress(width_, height_, TJPF_CMYK, inks.data()); !s.ok()) return s;
    picture->pixels.resize(pixel_count * 3);
    for (size_t p = 0; p < pixel_count; ++p) {
      for (size_t c = 0; c < 3; ++c)
        picture->pixels[p * 3 + c] = Light(inks[p * 4 + c], inks[p * 4 + 3]);
    }
    return Status();
  }
  // Warnings fail too: only the first one is reported, and it may be the least important.
  Status Decompress(int width, int height, int format, uint8_t* out) {
    const int flags = TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS | TJFLAG_STOPONWARNING;
    const int result =
        tjDecompress2(handle_, bytes_.data(), bytes_.size(), out, width, 0, height, format, flags);
    return result == 0 ? Status() : Wrong();
  }
  Status Wrong() const {
    return Corrupt(fmt::format("a JPEG file that cannot be decoded: {}", tjGetErrorStr2(handle_)));
  }

  const std::span<const uint8_t> bytes_;
  const tjhandle handle_ = tjInitDecompress();
  int width_ = 0, height_ = 0, subsampling_ = 0, colours_ = 0;
};

Status CheckSize(const PictureSize& size) {
  const bool fits = size.height >= 1 && size.height <= kPictureSideMax && size.width >= 1 &&
                    size.width <= kPictureSideMax &&
                    uint64_t{size.height} * size.width <= kPicturePixelsMax;
  if (fits) return Status();
  return Corrupt(fmt::format("a picture of {} x {} pixels, expected 1 to {} each, {} in all",
                             size.height, size.width, kPictureSideMax, kPicturePixelsMax));
}

}  // namespace

Result<PictureSize> ReadPictureSize(std::span<const uint8_t> bytes) {
  if (Status s = CheckPictureHead(bytes); !s.ok()) return s;
  Result<PictureSize> size = IsPng(bytes) ? ReadPngSize(bytes) : JpegDecoder(bytes).ReadHead();
  if (!size.ok()) return size;
  if (Status s = CheckSize(*size); !s.ok()) return s;
  return size;
}

Status DecodePicture(std::span<const uint8_t> bytes, uint32_t shrink, DecodedPicture* picture) {
  PANDO_CHECK(shrink == 1 || shrink == 2 || shrink == 4 || shrink == 8);
  if (Status s = CheckPictureHead(bytes); !s.ok()) return s;
  if (IsPng(bytes)) {
    if (Result<PictureSize> size = ReadPictureSize(bytes); !size.ok()) return size.status();
    return DecodePng(bytes, picture);
  }
  JpegDecoder decoder(bytes);
  Result<PictureSize> size = decoder.ReadHead();
  if (!size.ok()) return size.status();
  if (Status s = CheckSize(*size); !s.ok()) return s;
  return decoder.Decode(shrink, picture);
}

}  // namespace pando
