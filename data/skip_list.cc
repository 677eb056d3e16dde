#include "data/skip_list.h"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "common/text.h"
#include "data/picture_file.h"

namespace pando {
namespace {

Status Decode(const std::string& path) {
  Result<std::vector<uint8_t>> bytes = ReadFileBytes(path);
  if (!bytes.ok()) return bytes.status();
  if (Result<PictureSize> size = ReadPictureSize(*bytes); !size.ok()) return size.status();
  DecodedPicture picture;
  return DecodePicture(*bytes, 1, &picture);
}

// The names in a skip list, with their lines.
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
  return bad;
}

std::string SkipListText(const std::vector<BadPicture>& pictures) {
  std::string text = "# Pictures that cannot be decoded, found by `pando data check`.\n";
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
  list->skipped_files = before - list->train.size() - list->test.size();
  if (names->empty()) return CheckClasses(path, *list);
  const auto& [name, line] = *names->begin();
  return InvalidArgument(
      fmt::format("{}:{}: names '{}', but the data set has no such picture; run `pando data check` "
                  "again, or remove the line",
                  path, line, Printable(name)));
}

}  // namespace pando
