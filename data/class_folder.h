// The pictures below the folder of one class, and its files that are not read. Called by
// picture_list.cc. Sub-folders are read too, as torchvision's ImageFolder does, and links are
// followed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/text.h"

namespace pando {

// Why a file or folder is not read. Those before kHidden are pictures that a run lacks.
enum class UnreadReason : uint8_t { kBrokenLink, kOtherFormat, kOutsideClass, kLoop, kHidden };
template <>
inline constexpr auto kEnumNames<UnreadReason> = std::to_array(
    {"a link that leads to no file", "a picture whose name does not end in .jpg, .jpeg or .png",
     "a picture outside the folders of classes", "a link to a folder that holds the link",
     "a hidden folder"});

struct UnreadFile {
  std::string name;  // below the folder; in a PictureList as PictureName's
  UnreadReason reason = UnreadReason::kHidden;
  bool is_lost() const { return reason < UnreadReason::kHidden; }
};

struct FolderPicture {
  std::string name;  // below the folder: "1.jpg", "left/1.jpg"
  uint64_t bytes = 0;
};

struct ClassFolder {
  std::vector<FolderPicture> pictures;  // sorted bytewise by name
  std::vector<UnreadFile> unread;       // sorted too
  uint64_t other_files = 0;             // that are no pictures
};

// kNotFound: a folder cannot be listed, or a file not be looked at.
Result<ClassFolder> ReadClassFolder(const std::string& path);
// Which of the files in `path`, sub-folders apart, are pictures: kOutsideClass. Hidden folders.
// Links that lead to no file.  kNotFound as above.
Result<std::vector<UnreadFile>> ReadOutsideClasses(const std::string& path);
// By its name; `pando` reads JPEG and PNG.
bool IsPictureName(const std::string& name);
inline bool IsHiddenName(const std::string& name) { return name.starts_with('.'); }

}  // namespace pando
