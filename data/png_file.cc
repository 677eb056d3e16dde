#include "data/png_file.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cerrno>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "common/atomic_file.h"

namespace pando {
namespace {

constexpr size_t kSignatureBytes = 8;
constexpr size_t kHeadBytes = 24;  // signature, length and name of the first chunk, width, height

struct Source {
  std::span<const uint8_t> bytes;
  size_t at = 0;
  char message[256] = "";
};

void ReadBytes(png_structp png, png_bytep out, size_t size) {
  auto* source = static_cast<Source*>(png_get_io_ptr(png));
  if (source->bytes.size() - source->at < size) png_error(png, "the file is cut off");
  std::memcpy(out, source->bytes.data() + source->at, size);
  source->at += size;
}

void OnError(png_structp png, png_const_charp message) {
  auto* source = static_cast<Source*>(png_get_error_ptr(png));
  std::snprintf(source->message, sizeof(source->message), "%s", message);
  png_longjmp(png, 1);
}

void OnWarning(png_structp, png_const_charp) {}

// Converts any PNG to 8-bit RGB. Nothing depends on gamma, whose tables would need pow (P36).
void AskForRgb(png_structp png, png_infop info) {
  png_read_info(png, info);
  png_set_expand(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  png_set_gray_to_rgb(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
}

// This function has no object with a destructor, because libpng's errors jump out of it.
bool DecodeRows(png_structp png, png_infop info, DecodedPicture* picture) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  AskForRgb(png, info);
  picture->width = png_get_image_width(png, info);
  picture->height = png_get_image_height(png, info);
  const size_t row_bytes = size_t{picture->width} * 3;
  if (png_get_rowbytes(png, info) != row_bytes) png_error(png, "its pixels are not RGB");
  picture->pixels.resize(row_bytes * picture->height);
  const int passes = png_set_interlace_handling(png);
  for (int pass = 0; pass < passes; ++pass) {
    for (uint32_t y = 0; y < picture->height; ++y) {
      png_read_row(png, picture->pixels.data() + y * row_bytes, nullptr);
    }
  }
  png_read_end(png, nullptr);
  return true;
}

uint32_t BigEndian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

bool WriteRows(png_structp png, png_infop info, const PictureView& picture) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  const int colour = picture.channels == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY;
  png_set_IHDR(png, info, picture.width, picture.height, 8, colour, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (uint32_t y = 0; y < picture.height; ++y) {
    png_write_row(png, picture.pixels + size_t{y} * picture.width * picture.channels);
  }
  png_write_end(png, nullptr);
  return true;
}

void AppendBytes(png_structp png, png_bytep bytes, size_t size) {
  auto* out = static_cast<std::string*>(png_get_io_ptr(png));
  out->append(reinterpret_cast<const char*>(bytes), size);
}

void Flush(png_structp) {}

}  // namespace

bool IsPng(std::span<const uint8_t> bytes) {
  return bytes.size() >= kSignatureBytes && png_sig_cmp(bytes.data(), 0, kSignatureBytes) == 0;
}

Result<PictureSize> ReadPngSize(std::span<const uint8_t> bytes) {
  if (bytes.size() < kHeadBytes) return Corrupt("a PNG file that is cut off within its head");
  return PictureSize{BigEndian(&bytes[20]), BigEndian(&bytes[16])};
}

Status DecodePng(std::span<const uint8_t> bytes, DecodedPicture* picture) {
  Source source{.bytes = bytes};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, OnError, OnWarning);
  PANDO_CHECK(png != nullptr);
  png_infop info = png_create_info_struct(png);
  PANDO_CHECK(info != nullptr);
  png_set_read_fn(png, &source, ReadBytes);
  png_set_user_limits(png, kPictureSideMax, kPictureSideMax);
  const bool is_decoded = DecodeRows(png, info, picture);
  png_destroy_read_struct(&png, &info, nullptr);
  if (is_decoded) return Status();
  return Corrupt(fmt::format("a PNG file that cannot be decoded: {}", source.message));
}

Status WritePng(const std::string& path, const PictureView& picture) {
  Source source;
  std::string bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &source, OnError, OnWarning);
  PANDO_CHECK(png != nullptr);
  png_infop info = png_create_info_struct(png);
  PANDO_CHECK(info != nullptr);
  png_set_write_fn(png, &bytes, AppendBytes, Flush);
  const bool is_written = WriteRows(png, info, picture);
  png_destroy_write_struct(&png, &info);
  if (!is_written) return Internal(fmt::format("{}: no PNG: {}", path, source.message));
  return WriteFileAtomically(path, bytes);
}

}  // namespace pando
