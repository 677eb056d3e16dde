// Every kind of PNG and JPEG that is met, made here with the libraries that made them.
#include "data/picture_file.h"

#include <doctest/doctest.h>
#include <png.h>
#include <turbojpeg.h>

#include <cstdio>
#include <cstdlib>
// It needs cstdio.
#include <jpeglib.h>

#include <functional>

#include "tests/data/idx_files.h"

namespace pando {
namespace {

constexpr uint32_t kSide = 9;

struct PngKind {
  int depth = 8;
  int colour = PNG_COLOR_TYPE_RGB;
  int interlace = PNG_INTERLACE_NONE;
  std::vector<png_color> palette = {};
  Bytes palette_alpha = {};  // tRNS
};

// A picture of kSide x kSide pixels, given by its raw rows.
Bytes Png(const PngKind& kind, std::vector<Bytes> rows) {
  Bytes file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &file,
      [](png_structp p, png_bytep bytes, size_t size) {
        auto* out = static_cast<Bytes*>(png_get_io_ptr(p));
        out->insert(out->end(), bytes, bytes + size);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, kSide, kSide, kind.depth, kind.colour, kind.interlace,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!kind.palette.empty())
    png_set_PLTE(png, info, kind.palette.data(), static_cast<int>(kind.palette.size()));
  if (!kind.palette_alpha.empty()) {
    png_set_tRNS(png, info, kind.palette_alpha.data(), static_cast<int>(kind.palette_alpha.size()),
                 nullptr);
  }
  std::vector<png_bytep> pointers;
  for (Bytes& row : rows) pointers.push_back(row.data());
  png_write_info(png, info);
  png_write_image(png, pointers.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return file;
}

uint8_t Value(uint32_t y, uint32_t x, uint32_t c) {
  return static_cast<uint8_t>(y * 31 + x * 7 + c * 90);
}

std::vector<Bytes> Rows(const std::function<void(uint32_t y, uint32_t x, Bytes* row)>& append) {
  std::vector<Bytes> rows(kSide);
  for (uint32_t y = 0; y < kSide; ++y) {
    for (uint32_t x = 0; x < kSide; ++x) append(y, x, &rows[y]);
  }
  return rows;
}

void CheckRgb(const Bytes& file, const std::function<uint8_t(uint32_t, uint32_t, uint32_t)>& of) {
  DecodedPicture picture;
  const Status status = DecodePicture(file, 1, &picture);
  REQUIRE_MESSAGE(status.ok(), status.message());
  REQUIRE(picture.pixels.size() == kSide * kSide * 3);
  for (uint32_t i = 0; i < picture.pixels.size(); ++i)
    REQUIRE(picture.pixels[i] == of(i / 3 / kSide, i / 3 % kSide, i % 3));
}

TEST_CASE("PNGs of 16 bits keep their upper eight") {
  CheckRgb(Png({.depth = 16}, Rows([](uint32_t y, uint32_t x, Bytes* row) {
                 for (uint32_t c = 0; c < 3; ++c)
                   row->insert(row->end(), {Value(y, x, c), static_cast<uint8_t>(255 - x)});
               })),
           Value);
}

TEST_CASE("interlaced PNGs are put together") {
  const auto rows = Rows([](uint32_t y, uint32_t x, Bytes* row) {
    for (uint32_t c = 0; c < 3; ++c) row->push_back(Value(y, x, c));
  });
  CheckRgb(Png({.interlace = PNG_INTERLACE_ADAM7}, rows), Value);
}

TEST_CASE("PNGs with a palette become its colours, see-through ones too") {
  const auto rows = Rows([](uint32_t y, uint32_t x, Bytes* row) {
    row->push_back(static_cast<uint8_t>((y + x) % 3));
  });
  const std::vector<png_color> palette{{1, 2, 3}, {250, 100, 0}, {9, 8, 7}};
  const auto colour = [&](uint32_t y, uint32_t x, uint32_t c) {
    const png_color& of = palette[(y + x) % 3];
    return c == 0 ? of.red : c == 1 ? of.green : of.blue;
  };
  const PngKind kind{.colour = PNG_COLOR_TYPE_PALETTE, .palette = palette};
  CheckRgb(Png(kind, rows), colour);
  PngKind clear = kind;
  clear.palette_alpha = {255, 0, 128};
  CheckRgb(Png(clear, rows), colour);
}

TEST_CASE("an alpha channel is dropped") {
  const auto rows = Rows([](uint32_t y, uint32_t x, Bytes* row) {
    for (uint32_t c = 0; c < 3; ++c) row->push_back(Value(y, x, c));
    row->push_back(static_cast<uint8_t>(x * 20));
  });
  CheckRgb(Png({.colour = PNG_COLOR_TYPE_RGB_ALPHA}, rows), Value);
}

TEST_CASE("grey PNGs of few bits fill the range") {
  const auto rows = Rows([](uint32_t y, uint32_t x, Bytes* row) {
    if (x % 4 == 0) row->push_back(0);
    row->back() = static_cast<uint8_t>(row->back() | ((y + x) % 4) << (6 - 2 * (x % 4)));
  });
  CheckRgb(Png({.depth = 2, .colour = PNG_COLOR_TYPE_GRAY}, rows),
           [](uint32_t y, uint32_t x, uint32_t) { return static_cast<uint8_t>((y + x) % 4 * 85); });
}

// Makes a picture of one colour, so that only JPEG's rounding changes it.
Bytes PlainJpeg(const Bytes& pixel, int format, int flags) {
  constexpr int kJpegSide = 40;
  Bytes pixels;
  for (int i = 0; i < kJpegSide * kJpegSide; ++i)
    pixels.insert(pixels.end(), pixel.begin(), pixel.end());
  tjhandle handle = tjInitCompress();
  unsigned char* out = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg-turbo's
  PANDO_CHECK(tjCompress2(handle, pixels.data(), kJpegSide, 0, kJpegSide, format, &out, &size,
                          TJSAMP_444, 95, flags) == 0);
  Bytes file(out, out + size);
  tjFree(out);
  tjDestroy(handle);
  return file;
}

void CheckColour(const Bytes& file, const Bytes& expected) {
  constexpr int kJpegTol = 3;  // of a plain colour at quality 95, measured 2
  for (uint32_t shrink : {1u, 2u, 4u, 8u}) {
    DecodedPicture picture;
    const Status status = DecodePicture(file, shrink, &picture);
    REQUIRE_MESSAGE(status.ok(), status.message());
    for (size_t i = 0; i < picture.pixels.size(); ++i)
      REQUIRE(std::abs(picture.pixels[i] - expected[i % 3]) <= kJpegTol);
  }
}

TEST_CASE("progressive JPEGs are decoded, and cut ones are errors") {
  const Bytes file = PlainJpeg({200, 30, 90}, TJPF_RGB, TJFLAG_ACCURATEDCT | TJFLAG_PROGRESSIVE);
  CheckColour(file, {200, 30, 90});
  DecodedPicture picture;
  for (size_t size = 0; size + 2 < file.size(); ++size) {
    const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    REQUIRE(DecodePicture(cut, 1, &picture).code() == StatusCode::kCorrupt);
  }
}

struct JpegKind {
  bool is_progressive = false;
  uint32_t restart_interval = 0;  // in blocks
  uint32_t shrink = 1;
};

// With pixels that differ.
Bytes MixedJpeg(const JpegKind& kind) {
  constexpr uint32_t kJpegSide = 61;
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* out = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg-turbo's
  jpeg_mem_dest(&info, &out, &size);
  info.image_width = info.image_height = kJpegSide;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  if (kind.is_progressive) jpeg_simple_progression(&info);
  info.restart_interval = kind.restart_interval;
  jpeg_start_compress(&info, TRUE);
  for (uint32_t y = 0; y < kJpegSide; ++y) {
    Bytes row;
    for (uint32_t i = 0; i < kJpegSide * 3; ++i) row.push_back(Value(y, i / 3, i % 3));
    JSAMPROW rows = row.data();
    jpeg_write_scanlines(&info, &rows, 1);
  }
  jpeg_finish_compress(&info);
  Bytes file(out, out + size);
  jpeg_destroy_compress(&info);
  std::free(out);
  return file;
}

// The file with this before each marker behind the first two, and at its end.
Bytes WithJunk(const Bytes& file, const Bytes& junk) {
  Bytes out(file.begin(), file.begin() + 2);
  bool is_in_scan = false;
  for (size_t i = 2; i < file.size();) {
    const bool is_marker = file[i] == 0xff && file[i + 1] != 0;
    if (!is_marker || !(is_in_scan || i > 2)) {
      const size_t bytes = is_in_scan ? 1 : 2 + (size_t{file[i + 2]} << 8 | file[i + 3]);
      out.insert(out.end(), &file[i], &file[i] + bytes);
      i += bytes;
      continue;
    }
    out.insert(out.end(), junk.begin(), junk.end());
    const uint8_t marker = file[i + 1];
    const bool is_alone = marker >= 0xd0 && marker <= 0xd9;  // RST, EOI
    const size_t bytes = is_alone ? 2 : 2 + (size_t{file[i + 2]} << 8 | file[i + 3]);
    out.insert(out.end(), &file[i], &file[i] + bytes);
    i += bytes;
    is_in_scan = marker == 0xda || (marker >= 0xd0 && marker < 0xd8);
  }
  out.insert(out.end(), junk.begin(), junk.end());
  return out;
}

TEST_CASE("bytes between the parts of a JPEG file change no pixel") {
  for (const JpegKind& kind :
       std::vector<JpegKind>{{},
                             {.restart_interval = 3},
                             {.is_progressive = true},
                             {.shrink = 4},
                             {.is_progressive = true, .restart_interval = 2}}) {
    const Bytes file = MixedJpeg(kind);
    DecodedPicture clean, picture;
    REQUIRE(DecodePicture(file, kind.shrink, &clean).ok());
    for (const Bytes& junk : {Bytes{0}, Bytes{1, 2, 3}, Bytes{0xff, 0, 7}, Bytes(3000, 0x5a)}) {
      const Status status = DecodePicture(WithJunk(file, junk), kind.shrink, &picture);
      REQUIRE_MESSAGE(status.ok(), status.message());
      CHECK(picture.pixels == clean.pixels);
    }
    for (const size_t lost :
         {size_t{3}, size_t{40}, file.size() / 3}) {  // other warnings are errors
      Bytes cut(file.begin(), file.end() - 2 - static_cast<std::ptrdiff_t>(lost));
      cut.insert(cut.end(), {0xff, 0xd9});
      CHECK(DecodePicture(cut, kind.shrink, &picture).code() == StatusCode::kCorrupt);
    }
  }
}

// 255 is no ink: light = ink x black / 255.
TEST_CASE("CMYK JPEGs become light") {
  const Bytes file = PlainJpeg({255, 128, 51, 204}, TJPF_CMYK, TJFLAG_ACCURATEDCT);
  CheckColour(file, {204, 102, 41});
}

}  // namespace
}  // namespace pando
