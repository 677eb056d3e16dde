#include "data/byte_stream.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "common/check.h"

namespace pando {
namespace {

constexpr unsigned kGzipBufferBytes = 256 << 10;
constexpr uint8_t kGzipStart = 0x1f;

}  // namespace

ByteStream::ByteStream(const std::string& path, bool is_gzip) : file_(path, std::ios::binary) {
  if (!is_gzip) return;
  constexpr int kGzipWindowBits = 15 + 16;
  stream_.reset(new z_stream{});
  PANDO_CHECK(inflateInit2(stream_.get(), kGzipWindowBits) == Z_OK);
  packed_.resize(kGzipBufferBytes);
}

void ByteStream::End::operator()(z_stream* stream) const {
  inflateEnd(stream);
  delete stream;
}

size_t ByteStream::Read(uint8_t* out, size_t size) {
  if (stream_ == nullptr) return ReadFile(out, size);
  stream_->next_out = out;
  stream_->avail_out = static_cast<uInt>(size);
  while (stream_->avail_out > 0 && !has_ended_ && damage_.empty() && HasInput()) Unpack();
  return size - stream_->avail_out;
}

size_t ByteStream::ReadFile(uint8_t* out, size_t size) {
  file_.read(reinterpret_cast<char*>(out), static_cast<std::streamsize>(size));
  if (file_.bad()) damage_ = fmt::format("cannot be read: {}", std::strerror(errno));
  return static_cast<size_t>(file_.gcount());
}

bool ByteStream::HasInput() {
  if (stream_->avail_in > 0) return true;
  stream_->next_in = packed_.data();
  stream_->avail_in = static_cast<uInt>(ReadFile(packed_.data(), packed_.size()));
  return stream_->avail_in > 0;
}

void ByteStream::Unpack() {
  const int code = inflate(stream_.get(), Z_NO_FLUSH);
  if (code == Z_STREAM_END) {
    // Another member begins in the same way; anything else is padding.
    has_ended_ = !HasInput() || *stream_->next_in != kGzipStart;
    inflateReset(stream_.get());
  } else if (code != Z_OK) {
    damage_ = fmt::format("the gzip data are damaged here or further on ({})",
                          stream_->msg == nullptr ? "unknown reason" : stream_->msg);
  }
}

bool IsGzip(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 2> head{};
  file.read(head.data(), head.size());
  return static_cast<uint8_t>(head[0]) == kGzipStart && static_cast<uint8_t>(head[1]) == 0x8b;
}

}  // namespace pando
