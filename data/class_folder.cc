#include "data/class_folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "data/picture_file.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHeadBytes = 8;
constexpr uint64_t kHeadsReadMax = 20'000;  // of files with other endings, in at most a second

std::string Ending(const std::string& name) {
  std::string ending = fs::path(name).extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending;
}

// Recognises formats that torchvision or browsers read, but Pando does not.
bool IsOtherPictureName(const std::string& name) {
  constexpr auto kEndings =
      std::to_array<std::string_view>({".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm",
                                       ".jfif", ".jpe", ".jp2", ".heic", ".avif"});
  return std::ranges::find(kEndings, Ending(name)) != kEndings.end();
}

bool BeginsAsPicture(const std::string& path) {
  std::array<char, kHeadBytes> head{};
  std::ifstream stream(path, std::ios::binary);
  stream.read(head.data(), head.size());
  const auto got = static_cast<size_t>(stream.gcount());
  return CheckPictureHead({reinterpret_cast<const uint8_t*>(head.data()), got}).ok();
}

// Returns the names in a folder, sorted.
Result<std::vector<std::string>> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  if (error) {
    return NotFound(fmt::format("{}: cannot be listed: {}; mend its permissions or remove it",
                                folder, error.message()));
  }
  std::ranges::sort(names);
  return names;
}

// Returns the type, through links; not_found: a link is broken. kNotFound: it cannot be examined.
Result<fs::file_type> ReadType(const std::string& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  const bool is_loop = error == std::errc::too_many_symbolic_link_levels;
  if (type == fs::file_type::not_found || is_loop) return fs::file_type::not_found;
  if (!error) return type;
  return NotFound(fmt::format("{}: cannot be looked at: {}; mend the permissions or remove it",
                              path, error.message()));
}

// Walk lists all files below a folder.
class Walk {
 public:
  explicit Walk(std::string root) : root_(std::move(root)) {}

  Status Read(const std::string& below) {
    const std::string folder = root_ + (below.empty() ? "" : "/" + below);
    std::error_code ignored;
    const fs::path real = fs::canonical(folder, ignored);
    if (std::ranges::find(around_, real) != around_.end()) {
      Add(below, UnreadReason::kLoop);
      return Status();
    }
    around_.push_back(real);
    PANDO_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
    for (const std::string& name : names)
      PANDO_RETURN_IF_ERROR(ReadEntry(below.empty() ? name : below + "/" + name, name));
    around_.pop_back();
    return Status();
  }

  ClassFolder TakeFound() {
    std::ranges::sort(found_.pictures, {}, &FolderPicture::name);
    std::ranges::sort(found_.unread, {}, &UnreadFile::name);
    return std::move(found_);
  }

 private:
  void Add(const std::string& name, UnreadReason reason) {
    found_.unread.push_back({name, reason});
  }

  Status ReadEntry(const std::string& below, const std::string& name) {
    const std::string path = root_ + "/" + below;
    PANDO_ASSIGN_OR_RETURN(const fs::file_type type, ReadType(path));
    if (type == fs::file_type::directory) {
      if (!IsHiddenName(name)) return Read(below);
      Add(below, UnreadReason::kHidden);
    } else if (name.starts_with("._")) {  // macOS's data about a picture
      ++found_.other_files;
    } else if (type == fs::file_type::not_found) {
      Add(below, UnreadReason::kBrokenLink);
    } else if (type != fs::file_type::regular) {
      ++found_.other_files;
    } else if (IsPictureName(name)) {
      std::error_code error;
      found_.pictures.push_back({below, fs::file_size(path, error)});
    } else if (IsLost(path, name)) {
      Add(below, UnreadReason::kOtherFormat);
    } else {
      ++found_.other_files;
    }
    return Status();
  }

  bool IsLost(const std::string& path, const std::string& name) const {
    if (IsOtherPictureName(name)) return true;
    return found_.other_files < kHeadsReadMax && BeginsAsPicture(path);
  }

  const std::string root_;
  std::vector<fs::path> around_;  // the folders that are being read, from the root
  ClassFolder found_;
};

}  // namespace

bool IsPictureName(const std::string& name) {
  const std::string ending = Ending(name);
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

Result<ClassFolder> ReadClassFolder(const std::string& path) {
  Walk walk(path);
  PANDO_RETURN_IF_ERROR(walk.Read(""));
  return walk.TakeFound();
}

Result<std::vector<UnreadFile>> ReadOutsideClasses(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(path));
  std::vector<UnreadFile> found;
  for (const std::string& name : names) {
    PANDO_ASSIGN_OR_RETURN(const fs::file_type type, ReadType(path + "/" + name));
    if (type == fs::file_type::directory && IsHiddenName(name)) {
      found.push_back({name, UnreadReason::kHidden});
    } else if (type == fs::file_type::not_found) {
      found.push_back({name, UnreadReason::kBrokenLink});
    } else if (type == fs::file_type::regular && !name.starts_with("._") &&
               (IsPictureName(name) || IsOtherPictureName(name))) {
      found.push_back({name, UnreadReason::kOutsideClass});
    }
  }
  return found;
}

}  // namespace pando
