// PictureCache: a file of decoded and resized pictures of one size, so that they are decoded once
// and not in every epoch. image_folder.cc uses it for what random augmentation does not change.
// Several processes may read and write one file. A slot has the hash of its pixels, so a slot that
// is empty or being written is recognised.
//
//   file: at most kFileBytesMax; slots of picture_bytes pixels and 8 bytes of their hash, by
//   picture index; sparse
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "common/atomic_file.h"
#include "common/status.h"

namespace pando {

// Threads: any, at once.
class PictureCache {
 public:
  // Further pictures are decoded in every epoch. ImageNet at 224 pixels fits.
  static constexpr uint64_t kFileBytesMax = uint64_t{256} << 30;

  // Makes the folder and the file if they do not exist.
  static Result<PictureCache> Open(const std::string& folder, const std::string& file_name,
                                   size_t picture_bytes);
  PictureCache(PictureCache&& other) noexcept
      : fd_(std::move(other.fd_)), picture_bytes_(other.picture_bytes_) {}

  // Returns whether the picture was there. REQUIRES: pixels.size() == picture_bytes.
  bool Read(uint64_t index, std::span<uint8_t> pixels) const;
  // Keeps it if there is room. After a failure nothing more is written.
  void Write(uint64_t index, std::span<const uint8_t> pixels);

 private:
  PictureCache(UniqueFd fd, size_t picture_bytes)
      : fd_(std::move(fd)), picture_bytes_(picture_bytes) {}
  UniqueFd fd_;
  size_t picture_bytes_;
  bool HasRoomFor(uint64_t index) const;
  std::atomic<bool> is_full_ = false;
};

}  // namespace pando
