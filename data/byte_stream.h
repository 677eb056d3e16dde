// ByteStream reads a file's bytes, and unpacks a gzip file with any number of members. The readers
// of idx and CSV files use it.
#pragma once

#include <fmt/core.h>
#include <zlib.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/check.h"

namespace pando {

class ByteStream {
 public:
  ByteStream(const std::string& path, bool is_gzip) : file_(path, std::ios::binary) {
    if (!is_gzip) return;
    constexpr int kGzipWindowBits = 15 + 16;
    stream_.reset(new z_stream{});
    PANDO_CHECK(inflateInit2(stream_.get(), kGzipWindowBits) == Z_OK);
    packed_.resize(256 << 10);
  }

  bool is_open() const { return file_.is_open(); }
  bool is_gzip() const { return stream_ != nullptr; }
  // The reason why the bytes cannot be read or unpacked; empty if they can.
  const std::string& damage() const { return damage_; }
  // Returns whether a gzip file ends before the check sum of its last member.
  bool IsCutOff() const { return stream_ != nullptr && !has_ended_; }

  // Returns how many bytes came: fewer than `size` at the end, or if the data are damaged.
  size_t Read(uint8_t* out, size_t size) {
    if (stream_ == nullptr) return ReadFile(out, size);
    stream_->next_out = out;
    stream_->avail_out = static_cast<uInt>(size);
    while (stream_->avail_out > 0 && !has_ended_ && damage_.empty() && HasInput()) Unpack();
    return size - stream_->avail_out;
  }

 private:
  struct End {
    void operator()(z_stream* stream) const {
      inflateEnd(stream);
      delete stream;
    }
  };

  size_t ReadFile(uint8_t* out, size_t size) {
    file_.read(reinterpret_cast<char*>(out), static_cast<std::streamsize>(size));
    if (file_.bad()) damage_ = fmt::format("cannot be read: {}", std::strerror(errno));
    return static_cast<size_t>(file_.gcount());
  }

  bool HasInput() {
    if (stream_->avail_in > 0) return true;
    stream_->next_in = packed_.data();
    stream_->avail_in = static_cast<uInt>(ReadFile(packed_.data(), packed_.size()));
    return stream_->avail_in > 0;
  }

  void Unpack() {
    const int code = inflate(stream_.get(), Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
      constexpr uint8_t kGzipStart = 0x1f;  // begins another member; anything else is padding
      has_ended_ = !HasInput() || *stream_->next_in != kGzipStart;
      inflateReset(stream_.get());
    } else if (code != Z_OK) {
      damage_ = fmt::format("the gzip data are damaged here or further on ({})",
                            stream_->msg == nullptr ? "unknown reason" : stream_->msg);
    }
  }

  std::ifstream file_;
  std::unique_ptr<z_stream, End> stream_;  // zlib keeps its address; null: the file is plain
  std::vector<uint8_t> packed_;
  bool has_ended_ = false;
  std::string damage_;
};

}  // namespace pando
