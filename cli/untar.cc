#include "cli/untar.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/atomic_file.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

// A header, padded to a block; then the file's bytes, padded to blocks. Numbers are octal text.
constexpr size_t kBlockBytes = 512;
constexpr size_t kNameBytes = 100, kSizeAt = 124, kSizeBytes = 12, kTypeAt = 156;
constexpr size_t kPieceBytes = size_t{1} << 20;
using Header = std::array<char, kBlockBytes>;

struct CloseGz {
  void operator()(gzFile file) const { gzclose(file); }
};
using GzFile = std::unique_ptr<gzFile_s, CloseGz>;

bool ReadWhole(gzFile file, void* out, size_t size) {
  return gzread(file, out, static_cast<unsigned>(size)) == static_cast<int>(size);
}

std::string NameOf(const Header& header) {
  return {header.data(), strnlen(header.data(), kNameBytes)};
}

std::optional<uint64_t> SizeOf(const Header& header) {
  uint64_t size = 0;
  for (size_t i = kSizeAt; i < kSizeAt + kSizeBytes && header[i] != 0 && header[i] != ' '; ++i) {
    if (header[i] < '0' || header[i] > '7') return std::nullopt;
    size = size * 8 + static_cast<uint64_t>(header[i] - '0');
  }
  return size;
}

bool LeadsOut(const fs::path& name) {
  return name.is_absolute() || std::find(name.begin(), name.end(), "..") != name.end();
}

// Copies `size` bytes of the archive, and their padding; to nowhere without a file.
bool Copy(gzFile archive, uint64_t size, AtomicFile* file, Status* failure) {
  std::vector<std::byte> piece(kPieceBytes);
  const uint64_t padded = (size + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  for (uint64_t at = 0; at < padded;) {
    const size_t part = static_cast<size_t>(std::min<uint64_t>(kPieceBytes, padded - at));
    if (!ReadWhole(archive, piece.data(), part)) return false;
    const uint64_t wanted = at >= size ? 0 : std::min<uint64_t>(part, size - at);
    if (file != nullptr && wanted > 0)
      *failure = file->Write(std::span(piece).first(static_cast<size_t>(wanted)));
    if (!failure->ok()) return false;
    at += part;
  }
  return true;
}

}  // namespace

Status UnpackTarGz(const std::string& archive, const std::string& folder) {
  const GzFile file(gzopen(archive.c_str(), "rb"));
  if (file == nullptr) return FileError("cannot read", archive, errno);
  const Status cut = Corrupt(fmt::format("{}: not a whole .tar.gz; download it again", archive));
  Header header{};
  while (true) {
    if (!ReadWhole(file.get(), header.data(), header.size())) return cut;
    if (header[0] == 0) return Status();  // the end is marked
    const std::string name = NameOf(header);
    const std::optional<uint64_t> size = SizeOf(header);
    if (!size) return cut;
    if (LeadsOut(name)) {
      return Corrupt(fmt::format("{}: holds '{}', which leads out of its folder", archive, name));
    }
    const bool is_file = header[kTypeAt] == '0' || header[kTypeAt] == 0;
    Status failure;
    if (!is_file) {
      if (!Copy(file.get(), *size, nullptr, &failure)) return cut;
      continue;
    }
    const fs::path path = fs::path(folder) / name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    Result<AtomicFile> out = AtomicFile::Create(path.string());
    if (!out.ok()) return out.status();
    if (!Copy(file.get(), *size, &*out, &failure)) return failure.ok() ? cut : failure;
    if (Status s = out->Commit(); !s.ok()) return s;
  }
}

}  // namespace pando
