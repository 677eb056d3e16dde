#include "data/picture_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "common/check.h"
#include "common/hash.h"

namespace pando {
namespace {

constexpr size_t kHashBytes = sizeof(uint64_t);

}  // namespace

Result<PictureCache> PictureCache::Open(const std::string& folder, const std::string& file_name,
                                        size_t picture_bytes) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string path = folder + "/" + file_name;
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (fd.is_open()) return PictureCache(std::move(fd), picture_bytes);
  return NotFound(
      fmt::format("{}: cannot be opened for run.data_cache: {}; pictures are decoded again in "
                  "every epoch",
                  path, std::strerror(errno)));
}

bool PictureCache::HasRoomFor(uint64_t index) const {
  return index < kFileBytesMax / (picture_bytes_ + kHashBytes);
}

bool PictureCache::Read(uint64_t index, std::span<uint8_t> pixels) const {
  PANDO_CHECK(pixels.size() == picture_bytes_);
  if (!HasRoomFor(index)) return false;
  std::vector<uint8_t> slot(picture_bytes_ + kHashBytes);
  const ssize_t got =
      pread(fd_.get(), slot.data(), slot.size(), static_cast<off_t>(index * slot.size()));
  if (got != static_cast<ssize_t>(slot.size())) return false;
  uint64_t hash = 0;
  std::memcpy(&hash, &slot[picture_bytes_], kHashBytes);
  if (hash != Hash64(std::as_bytes(std::span(slot.data(), picture_bytes_)))) return false;
  std::memcpy(pixels.data(), slot.data(), picture_bytes_);
  return true;
}

void PictureCache::Write(uint64_t index, std::span<const uint8_t> pixels) {
  PANDO_CHECK(pixels.size() == picture_bytes_);
  if (is_full_ || !HasRoomFor(index)) return;
  std::vector<uint8_t> slot(picture_bytes_ + kHashBytes);
  std::memcpy(slot.data(), pixels.data(), picture_bytes_);
  const uint64_t hash = Hash64(std::as_bytes(pixels));
  std::memcpy(&slot[picture_bytes_], &hash, kHashBytes);
  const ssize_t put =
      pwrite(fd_.get(), slot.data(), slot.size(), static_cast<off_t>(index * slot.size()));
  if (put != static_cast<ssize_t>(slot.size())) is_full_ = true;
}

}  // namespace pando
