#include "data/picture_file.h"

#include <fmt/core.h>
#include <png.h>

#include <cstdio>
// These headers need cstdio.
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <cerrno>
#include <csetjmp>
#include <cstring>
#include <fstream>

#include "common/atomic_file.h"
#include "common/check.h"
#include "files/file_kind.h"

namespace pando {
namespace {

bool IsJpeg(std::span<const uint8_t> bytes) {
  return bytes.size() >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

constexpr size_t kPngSignatureBytes = 8;
bool IsPng(std::span<const uint8_t> bytes) {
  return bytes.size() >= kPngSignatureBytes &&
         png_sig_cmp(bytes.data(), 0, kPngSignatureBytes) == 0;
}

// Mixes an ink with black, as Photoshop writes them (255: none) in every CMYK JPEG of ImageNet.
uint8_t Light(uint32_t ink, uint32_t black) {
  return static_cast<uint8_t>((ink * black + 127) / 255);
}

}  // namespace

Status CheckPictureHead(std::span<const uint8_t> bytes) {
  if (IsJpeg(bytes) || IsPng(bytes)) return Status();
  if (bytes.empty()) return Corrupt("not a picture: the file is empty");
  const std::string other =
      NameOtherKind({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, FileUse::kPicture);
  if (!other.empty()) return Corrupt(other);
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

struct JpegErrors {
  jpeg_error_mgr manager;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = "";
};

void OnJpegError(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  info->err->format_message(info, errors->message);
  std::longjmp(errors->jump, 1);
}

// Bytes between the parts of a file are not pixels, and every reader skips them.
void OnJpegMessage(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code != JWRN_EXTRANEOUS_DATA) OnJpegError(info);
}

// Refuses too many scans: a small file with many of them would take minutes.
void CheckScans(j_common_ptr info) {
  constexpr int kScansMax = 500;
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kScansMax) return;
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  std::snprintf(errors->message, sizeof(errors->message), "more than %d scans", kScansMax);
  std::longjmp(errors->jump, 1);
}

// JpegDecoder decodes one picture. libjpeg-turbo keeps a picture's tables for a next picture
// without tables, but a damaged file must not be decoded with another file's tables. Its errors
// jump out of the functions Try..., which have no object with a destructor.
class JpegDecoder {
 public:
  explicit JpegDecoder(std::span<const uint8_t> bytes) : bytes_(bytes) {
    info_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = OnJpegError;
    errors_.manager.emit_message = OnJpegMessage;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;

  Result<PictureSize> ReadHead() {
    if (!TryHead()) return Wrong();
    return PictureSize{info_.image_height, info_.image_width};
  }
  // REQUIRES: the head was read.
  Status Decode(uint32_t shrink, DecodedPicture* picture) {
    const bool has_inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = has_inks ? JCS_CMYK : JCS_RGB;
    info_.scale_num = 1;
    info_.scale_denom = has_inks ? 1 : shrink;
    info_.dct_method = JDCT_ISLOW;
    if (!TryStart()) return Wrong();
    picture->width = info_.output_width;
    picture->height = info_.output_height;
    const size_t pixel_count = size_t{picture->width} * picture->height;
    picture->pixels.resize(pixel_count * 3);
    if (!has_inks) return TryRows(picture->pixels.data()) ? Status() : Wrong();
    std::vector<uint8_t> inks(pixel_count * 4);
    if (!TryRows(inks.data())) return Wrong();
    for (size_t p = 0; p < pixel_count; ++p) {
      for (size_t c = 0; c < 3; ++c)
        picture->pixels[p * 3 + c] = Light(inks[p * 4 + c], inks[p * 4 + 3]);
    }
    return Status();
  }

 private:
  bool TryHead() {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    progress_.progress_monitor = CheckScans;
    jpeg_mem_src(&info_, bytes_.data(), bytes_.size());
    jpeg_read_header(&info_, TRUE);
    return true;
  }
  bool TryStart() {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_start_decompress(&info_);
    return true;
  }
  bool TryRows(uint8_t* out) {
    if (setjmp(errors_.jump) != 0) return false;
    const size_t row_bytes =
        size_t{info_.output_width} * static_cast<size_t>(info_.output_components);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = out + info_.output_scanline * row_bytes;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }
  Status Wrong() const {
    return Corrupt(fmt::format("a JPEG file that cannot be decoded: {}", errors_.message));
  }

  const std::span<const uint8_t> bytes_;
  jpeg_decompress_struct info_{};
  JpegErrors errors_{};
  jpeg_progress_mgr progress_{};
};

constexpr size_t kPngHeadBytes =
    24;  // signature, length and name of the first chunk, width, height

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

// Converts any PNG to 8-bit RGB, independent of gamma, whose tables would need pow (P36).
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

Result<PictureSize> ReadPngSize(std::span<const uint8_t> bytes) {
  if (bytes.size() < kPngHeadBytes) return Corrupt("a PNG file that is cut off within its head");
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
  PANDO_RETURN_IF_ERROR(CheckPictureHead(bytes));
  Result<PictureSize> size = IsPng(bytes) ? ReadPngSize(bytes) : JpegDecoder(bytes).ReadHead();
  if (!size.ok()) return size;
  PANDO_RETURN_IF_ERROR(CheckSize(*size));
  return size;
}

Status DecodePicture(std::span<const uint8_t> bytes, uint32_t shrink, DecodedPicture* picture) {
  PANDO_CHECK(shrink == 1 || shrink == 2 || shrink == 4 || shrink == 8);
  PANDO_RETURN_IF_ERROR(CheckPictureHead(bytes));
  if (IsPng(bytes)) {
    if (Result<PictureSize> size = ReadPictureSize(bytes); !size.ok()) return size.status();
    return DecodePng(bytes, picture);
  }
  JpegDecoder decoder(bytes);
  PANDO_ASSIGN_OR_RETURN(PictureSize size, decoder.ReadHead());
  PANDO_RETURN_IF_ERROR(CheckSize(size));
  return decoder.Decode(shrink, picture);
}

namespace {

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
