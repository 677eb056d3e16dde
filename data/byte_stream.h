// A file's bytes, unpacked where it is gzip-compressed, of any number of members. Called by the
// readers of idx and CSV files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

struct z_stream_s;

namespace pando {

class ByteStream {
 public:
  ByteStream(const std::string& path, bool is_gzip);

  bool is_open() const { return file_.is_open(); }
  bool is_gzip() const { return stream_ != nullptr; }
  // What is wrong besides an early end; empty if nothing is.
  const std::string& damage() const { return damage_; }
  // A gzip file ends with the check sum of its last member.
  bool IsCutOff() const { return stream_ != nullptr && !has_ended_; }

  // Returns how many bytes came: fewer than `size` at the end, or where the data are damaged.
  size_t Read(uint8_t* out, size_t size);

 private:
  struct End {
    void operator()(z_stream_s* stream) const;
  };
  size_t ReadFile(uint8_t* out, size_t size);
  bool HasInput();
  void Unpack();

  std::ifstream file_;
  std::unique_ptr<z_stream_s, End> stream_;  // zlib keeps its address; null: the file is plain
  std::vector<uint8_t> packed_;
  bool has_ended_ = false;
  std::string damage_;
};

// Whether the file begins as gzip does.
bool IsGzip(const std::string& path);

}  // namespace pando
