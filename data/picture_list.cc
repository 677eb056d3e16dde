#include "data/picture_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "common/hash.h"
#include "common/text.h"
#include "data/kinds.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPictureNameBytesMax = 512;
constexpr const char* kLayout =
    "an image folder is ROOT/train/CLASS/*.jpg and ROOT/val/CLASS/*.jpg (JPEG or PNG)";

bool IsPictureName(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

Result<std::vector<std::string>> FoldersIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->is_directory(error)) names.push_back(at->path().filename().string());
  }
  if (error) return NotFound(fmt::format("{}: cannot be listed: {}", folder, error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

// Appends the pictures of one class, sorted by name.
Status ListClass(const std::string& folder, int32_t label, std::vector<PictureFile>* files,
                 uint64_t* ignored_files) {
  const size_t before = files->size();
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (!IsPictureName(at->path()) || !at->is_regular_file(error)) {
      ++*ignored_files;
      continue;
    }
    files->push_back({at->path().filename().string(), label, at->file_size(error)});
  }
  if (error) return NotFound(fmt::format("{}: cannot be listed: {}", folder, error.message()));
  if (files->size() == before) {
    return NotFound(
        fmt::format("{}: holds no picture (.jpg, .jpeg, .png); add some or remove it", folder));
  }
  std::sort(files->begin() + static_cast<std::ptrdiff_t>(before), files->end(),
            [](const PictureFile& a, const PictureFile& b) { return a.name < b.name; });
  return Status();
}

Status ListTrain(PictureList* list) {
  Result<std::vector<std::string>> names = FoldersIn(list->train_folder);
  if (!names.ok()) return names.status();
  list->class_names = *std::move(names);
  if (list->class_names.size() < 2) {
    return NotFound(fmt::format("{}: holds {} class folder{}, a classifier needs two or more; {}",
                                list->train_folder, list->class_names.size(),
                                list->class_names.size() == 1 ? "" : "s", kLayout));
  }
  for (size_t label = 0; label < list->class_names.size(); ++label) {
    Status s = ListClass(list->train_folder + "/" + list->class_names[label],
                         static_cast<int32_t>(label), &list->train, &list->ignored_files);
    if (!s.ok()) return s;
  }
  return Status();
}

Status ListTest(PictureList* list) {
  Result<std::vector<std::string>> names = FoldersIn(list->test_folder);
  if (!names.ok()) return names.status();
  const std::vector<std::string>& known = list->class_names;
  for (const std::string& name : *names) {
    const auto at = std::lower_bound(known.begin(), known.end(), name);
    if (at == known.end() || *at != name) {
      const std::string question = DidYouMean(name, known);
      return Corrupt(
          fmt::format("{}/{}: unknown class '{}' in the test split: {} has no such folder{}{}",
                      list->test_folder, name, name, list->train_folder,
                      question.empty() ? "" : "; ", question));
    }
    Status s = ListClass(list->test_folder + "/" + name, static_cast<int32_t>(at - known.begin()),
                         &list->test, &list->ignored_files);
    if (!s.ok()) return s;
  }
  if (!list->test.empty()) return Status();
  return NotFound(fmt::format("{}: holds no class folder; {}", list->test_folder, kLayout));
}

// The first of these names that is a folder in `root`; empty if none is.
std::string FindSplit(const std::string& root, const std::vector<std::string>& names) {
  std::error_code ignored;
  for (const std::string& name : names) {
    const std::string path = root + "/" + name;
    if (fs::is_directory(path, ignored)) return path;
  }
  return "";
}

std::string TestFolderIn(const std::string& root) {
  return FindSplit(root, {"val", "test", "validation"});
}

}  // namespace

Result<PictureList> ListPictures(const std::string& root) {
  if (root.empty()) {
    return InvalidArgument(
        fmt::format("no folder given for imagefolder: set data.path (--data); {}", kLayout));
  }
  std::error_code ignored;
  if (!fs::is_directory(root, ignored))
    return NotFound(fmt::format("{}: no such folder; {}", root, kLayout));
  PictureList list;
  list.train_folder = FindSplit(root, {"train"});
  list.test_folder = TestFolderIn(root);
  if (list.train_folder.empty())
    return NotFound(fmt::format("{}: holds no folder 'train'; {}", root, kLayout));
  if (list.test_folder.empty())
    return NotFound(fmt::format("{}: holds no folder 'val' or 'test'; {}", root, kLayout));
  if (Status s = ListTrain(&list); !s.ok()) return s;
  if (Status s = ListTest(&list); !s.ok()) return s;
  return list;
}

bool HoldsPictureFolders(const std::string& root) {
  return !FindSplit(root, {"train"}).empty() && !TestFolderIn(root).empty();
}

std::string PicturePath(const PictureList& list, Split split, const PictureFile& file) {
  const std::string& folder = split == Split::kTrain ? list.train_folder : list.test_folder;
  return folder + "/" + list.class_names[static_cast<size_t>(file.label)] + "/" + file.name;
}

std::string PictureName(const PictureList& list, Split split, const PictureFile& file) {
  const size_t root_bytes =
      list.train_folder.size() - fs::path(list.train_folder).filename().string().size();
  const std::string name = AsUtf8(PicturePath(list, split, file).substr(root_bytes));
  if (name.size() <= kPictureNameBytesMax) return name;
  const std::string mark = fmt::format("{:016x}...", Hash64(name));  // two may end alike
  size_t start = name.size() - (kPictureNameBytesMax - mark.size());
  while ((name[start] & 0xc0) == 0x80) ++start;  // between characters
  return mark + name.substr(start);
}

}  // namespace pando
