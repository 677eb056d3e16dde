// Finds the pictures below the folder of one class, and the files there that are not read. Reads
// sub-folders too, as torchvision's ImageFolder does, and follows links. picture_list.cc calls it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/text.h"

namespace pando {

// The reasons why a file or folder is not read. Those before kHidden mean pictures that are lost.
enum class UnreadReason : uint8_t { kBrokenLink, kOtherFormat, kOutsideClass, kLoop, kHidden };
template <>
inline constexpr auto kEnumNames<UnreadReason> = std::to_array(
    {"a link that leads to no file", "a picture whose name does not end in .jpg, .jpeg or .png",
     "a picture outside the folders of classes", "a link to a folder that holds the link",
     "a hidden folder"});

struct UnreadFile {
  std::string name;  // below the folder; in a PictureList as PictureName writes it
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
  uint64_t other_files = 0;             // files that are not pictures
};

// Reads all below `path`. kNotFound: a folder cannot be listed, or a file cannot be examined.
Result<ClassFolder> ReadClassFolder(const std::string& path);
// Returns the pictures directly in `path`, not in sub-folders (kOutsideClass), hidden folders, and
// links that lead to no file. kNotFound as above.
Result<std::vector<UnreadFile>> ReadOutsideClasses(const std::string& path);
// Returns whether the name ends like that of a JPEG or PNG file.
bool IsPictureName(const std::string& name);
inline bool IsHiddenName(const std::string& name) { return name.starts_with('.'); }

}  // namespace pando
