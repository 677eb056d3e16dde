#include "data/picture_list.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "common/hash.h"
#include "common/text.h"
#include "data/kinds.h"
#include "data/picture_file.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPictureNameBytesMax = 512;
constexpr const char* kLayout =
    "an image folder is ROOT/train/CLASS/*.jpg and ROOT/val/CLASS/*.jpg (JPEG or PNG)";

// Returns the name in the data set's folder, in the form of PictureName.
std::string NameInRoot(const PictureList& list, const std::string& path) {
  const size_t root_bytes =
      list.train_folder.size() - fs::path(list.train_folder).filename().string().size();
  const std::string name = AsUtf8(path.substr(root_bytes));
  if (name.size() <= kPictureNameBytesMax) return name;
  const std::string mark = fmt::format("{:016x}...", Hash64(name));  // two may end alike
  size_t start = name.size() - (kPictureNameBytesMax - mark.size());
  while ((name[start] & 0xc0) == 0x80) ++start;  // between characters
  return mark + name.substr(start);
}

void AddUnread(const std::string& folder, std::vector<UnreadFile> unread, PictureList* list) {
  for (UnreadFile& file : unread)
    list->unread.push_back({NameInRoot(*list, folder + "/" + file.name), file.reason});
}

// Returns the folders of classes, sorted. Adds to list->unread.
Result<std::vector<std::string>> FoldersIn(const std::string& folder, PictureList* list) {
  PANDO_ASSIGN_OR_RETURN(std::vector<UnreadFile> outside, ReadOutsideClasses(folder));
  AddUnread(folder, std::move(outside), list);
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!IsHiddenName(name) && at->is_directory(error)) names.push_back(name);
  }
  if (error) return NotFound(fmt::format("{}: cannot be listed: {}", folder, error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

// Appends the pictures of one class, sorted by name.
Status ListClass(const std::string& folder, int32_t label, std::vector<PictureFile>* files,
                 PictureList* list) {
  PANDO_ASSIGN_OR_RETURN(ClassFolder found, ReadClassFolder(folder));
  for (FolderPicture& picture : found.pictures)
    files->push_back({std::move(picture.name), label, picture.bytes});
  list->ignored_files += found.other_files;
  if (found.pictures.empty()) {
    const std::string example = found.unread.empty()
                                    ? ""
                                    : fmt::format("; '{}' is {}", Printable(found.unread[0].name),
                                                  EnumName(found.unread[0].reason));
    return NotFound(fmt::format("{}: holds no picture (.jpg, .jpeg, .png){}; add some or remove it",
                                folder, example));
  }
  AddUnread(folder, std::move(found.unread), list);
  return Status();
}

Status ListTrain(PictureList* list) {
  PANDO_ASSIGN_OR_RETURN(std::vector<std::string> names, FoldersIn(list->train_folder, list));
  list->class_names = std::move(names);
  if (list->class_names.size() < 2) {
    return NotFound(fmt::format("{}: holds {} class folder{}, a classifier needs two or more; {}",
                                list->train_folder, list->class_names.size(),
                                list->class_names.size() == 1 ? "" : "s", kLayout));
  }
  for (size_t label = 0; label < list->class_names.size(); ++label) {
    PANDO_RETURN_IF_ERROR(ListClass(list->train_folder + "/" + list->class_names[label],
                                    static_cast<int32_t>(label), &list->train, list));
  }
  return Status();
}

Status ListTest(PictureList* list) {
  PANDO_ASSIGN_OR_RETURN(std::vector<std::string> names, FoldersIn(list->test_folder, list));
  const std::vector<std::string>& known = list->class_names;
  for (const std::string& name : names) {
    const auto at = std::lower_bound(known.begin(), known.end(), name);
    if (at == known.end() || *at != name) {
      const std::string question = DidYouMean(name, known);
      return Corrupt(
          fmt::format("{}/{}: unknown class '{}' in the test split: {} has no such folder{}{}",
                      list->test_folder, name, name, list->train_folder,
                      question.empty() ? "" : "; ", question));
    }
    PANDO_RETURN_IF_ERROR(ListClass(list->test_folder + "/" + name,
                                    static_cast<int32_t>(at - known.begin()), &list->test, list));
  }
  if (!list->test.empty()) return Status();
  return NotFound(fmt::format("{}: holds no class folder; {}", list->test_folder, kLayout));
}

// Returns the first of these names that is a folder in `root`; empty if none is.
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

Status NoSplit(const std::string& root, const PictureList& list) {
  std::error_code error;
  if (fs::status(root + "/train", error).type() == fs::file_type::none) {
    return NotFound(
        fmt::format("{}: cannot be looked into: {}; mend its permissions", root, error.message()));
  }
  const char* missing = list.train_folder.empty() ? "'train'" : "'val' or 'test'";
  return NotFound(fmt::format("{}: holds no folder {}; {}", root, missing, kLayout));
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
  if (list.train_folder.empty() || list.test_folder.empty()) return NoSplit(root, list);
  PANDO_RETURN_IF_ERROR(ListTrain(&list));
  PANDO_RETURN_IF_ERROR(ListTest(&list));
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
  return NameInRoot(list, PicturePath(list, split, file));
}

std::vector<std::string> UnreadNotices(const PictureList& list) {
  std::map<UnreadReason, std::vector<const UnreadFile*>> by_reason;
  for (const UnreadFile& file : list.unread) by_reason[file.reason].push_back(&file);
  std::vector<std::string> lines;
  for (const auto& [reason, files] : by_reason) {
    lines.push_back(fmt::format("{} not read: '{}'{} is {}", files.size(), files[0]->name,
                                files.size() == 1 ? "" : ", for example,", EnumName(reason)));
  }
  return lines;
}

Status CheckUnread(const std::string& root, const PictureList& list) {
  constexpr uint64_t kOneIn = 10;
  const auto lost = static_cast<uint64_t>(std::ranges::count_if(list.unread, &UnreadFile::is_lost));
  const uint64_t all = lost + list.train.size() + list.test.size();
  if (lost * kOneIn <= all) return Status();
  std::string reasons;
  for (const std::string& line : UnreadNotices(list)) reasons += "; " + line;
  return Corrupt(
      fmt::format("{}: {} of {} pictures are not read{}; mend them, or leave them out: `pando data "
                  "check {}` writes a skip list, which data.skip names",
                  root, lost, all, reasons, root));
}

// ---- pictures that cannot be read ---------------------------------------------------------------

namespace {

Status Decode(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, ReadFileBytes(path));
  if (Result<PictureSize> size = ReadPictureSize(bytes); !size.ok()) return size.status();
  DecodedPicture picture;
  return DecodePicture(bytes, 1, &picture);
}

// Returns the names in a skip list, with their lines.
Result<std::map<std::string, size_t>> ReadNames(const std::string& path) {
  std::ifstream stream(path);
  if (!stream) {
    return NotFound(
        fmt::format("{}: cannot be opened: {}; `pando data check FOLDER` writes a skip "
                    "list, and data.skip names it",
                    path, std::strerror(errno)));
  }
  std::map<std::string, size_t> names;
  std::string line;
  for (size_t number = 1; std::getline(stream, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with('#')) continue;
    names.emplace(line.substr(0, line.find('\t')), number);
  }
  if (stream.bad()) return Unavailable(path + ": cannot be read: " + std::strerror(errno));
  return names;
}

Status CheckClasses(const std::string& path, const PictureList& list) {
  if (list.test.empty()) return Corrupt(path + ": leaves no picture in the test split");
  std::set<int32_t> labels;
  for (const PictureFile& file : list.train) labels.insert(file.label);
  for (size_t label = 0; label < list.class_names.size(); ++label) {
    if (labels.contains(static_cast<int32_t>(label))) continue;
    return Corrupt(
        fmt::format("{}: leaves no training picture of class '{}'; mend some or remove "
                    "the class's folders",
                    path, Printable(list.class_names[label])));
  }
  return Status();
}

}  // namespace

Result<std::vector<BadPicture>> FindBadPictures(const PictureList& list, uint32_t thread_count,
                                                const std::function<void(uint64_t)>& on_progress) {
  const size_t train_count = list.train.size(), count = train_count + list.test.size();
  const auto split_of = [&](size_t i) { return i < train_count ? Split::kTrain : Split::kTest; };
  const auto file_at = [&](size_t i) -> const PictureFile& {
    return i < train_count ? list.train[i] : list.test[i - train_count];
  };
  std::vector<Status> found(count);  // by picture
  std::atomic<size_t> next = 0, done = 0;
  {
    std::vector<std::jthread> threads;
    for (uint32_t t = 0; t < thread_count; ++t) {
      threads.emplace_back([&] {
        for (size_t i = next++; i < count; i = next++) {
          found[i] = Decode(PicturePath(list, split_of(i), file_at(i)));
          on_progress(++done);
        }
      });
    }
  }
  std::vector<BadPicture> bad;
  for (size_t i = 0; i < count; ++i) {
    if (found[i].ok()) continue;
    if (found[i].code() != StatusCode::kCorrupt) {
      return Status(found[i].code(),
                    PicturePath(list, split_of(i), file_at(i)) + ": " + found[i].message());
    }
    bad.push_back({PictureName(list, split_of(i), file_at(i)), found[i].message()});
  }
  for (const UnreadFile& file : list.unread) {
    if (file.is_lost()) bad.push_back({file.name, EnumName(file.reason)});
  }
  return bad;
}

std::string SkipListText(const std::vector<BadPicture>& pictures) {
  std::string text = "# Pictures that cannot be read, found by `pando data check`.\n";
  for (const BadPicture& picture : pictures)
    text += fmt::format("{}\t{}\n", picture.name, AsUtf8(picture.reason));
  return text;
}

std::string SkipListPath(const std::string& skip_list, const std::string& data_path) {
  return (std::filesystem::path(data_path) / skip_list).string();
}

Status LeaveOut(const std::string& path, PictureList* list) {
  Result<std::map<std::string, size_t>> names = ReadNames(path);
  if (!names.ok()) return names.status();
  const auto is_named = [&](Split split, const PictureFile& file) {
    return names->erase(PictureName(*list, split, file)) > 0;
  };
  const size_t before = list->train.size() + list->test.size();
  std::erase_if(list->train, [&](const auto& file) { return is_named(Split::kTrain, file); });
  std::erase_if(list->test, [&](const auto& file) { return is_named(Split::kTest, file); });
  const size_t unread = std::erase_if(
      list->unread, [&](const UnreadFile& file) { return names->erase(file.name) > 0; });
  list->skipped_files = before - list->train.size() - list->test.size() + unread;
  if (names->empty()) return CheckClasses(path, *list);
  const auto& [name, line] = *names->begin();
  return InvalidArgument(
      fmt::format("{}:{}: names '{}', but the data set has no such picture; run `pando data check` "
                  "again, or remove the line",
                  path, line, Printable(name)));
}

}  // namespace pando
