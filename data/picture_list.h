// The files of an image folder: ROOT/train/CLASS/*.jpg and ROOT/val/CLASS/*.jpg (or test),
// ImageNet's layout, with sub-folders of classes. image_folder.cc and `pando data check` call it.
// Lists are sorted bytewise, so that every machine numbers classes and pictures alike (P38).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/result.h"
#include "data/class_folder.h"
#include "data/dataset.h"

namespace pando {

struct PictureFile {
  std::string name;  // the file's name below its class's folder
  int32_t label = 0;
  uint64_t bytes = 0;
};

struct PictureList {
  std::string train_folder;
  std::string test_folder;
  std::vector<std::string> class_names;  // the folders in train_folder
  std::vector<PictureFile> train;
  std::vector<PictureFile> test;
  std::vector<UnreadFile> unread;
  uint64_t ignored_files = 0;  // files that are not pictures
  uint64_t skipped_files = 0;  // left out by a skip list (LeaveOut)
};

// Lists the pictures; hidden folders are not classes. Errors: no such folder, no split, fewer than
// two classes, a class without pictures, a class of the test split that the training split lacks.
Result<PictureList> ListPictures(const std::string& root);

std::string PicturePath(const PictureList& list, Split split, const PictureFile& file);
// Example: "train/ants/1.jpg": one line of UTF-8, equal on all machines, of at most 512 bytes.
std::string PictureName(const PictureList& list, Split split, const PictureFile& file);

// Describes files that are not read, by count, reason and an example: one line per reason.
std::vector<std::string> UnreadNotices(const PictureList& list);
// Returns kCorrupt if more than one picture in ten is not read. Call it after LeaveOut.
Status CheckUnread(const std::string& root, const PictureList& list);

// ---- pictures that cannot be read ---------------------------------------------------------------
// `pando data check` finds such pictures, and a skip list (data.skip) leaves them out of a run. The
// list has one picture per line: its name in the data set's folder, a tab, and the reason, which is
// for people. Lines that start with # are comments.

inline constexpr const char* kSkipListDefault = "skip.txt";  // in the data set's folder

struct BadPicture {
  std::string name;  // as PictureName writes it
  std::string reason;
};

// Decodes every picture of the list on `thread_count` threads; returns those that cannot be
// decoded, in the list's order, and then the lost ones of list.unread. kUnavailable: a file cannot
// be read. `on_progress` gets the number of pictures done, on any thread.
Result<std::vector<BadPicture>> FindBadPictures(const PictureList& list, uint32_t thread_count,
                                                const std::function<void(uint64_t)>& on_progress);
std::string SkipListText(const std::vector<BadPicture>& pictures);

// Returns the path of job.skip_list: a relative path starts at the data set's folder.
std::string SkipListPath(const std::string& skip_list, const std::string& data_path);
// Removes the pictures that the file at `path` names. Errors: no such file; a line that names no
// picture of the list; a class or a split that has no picture left.
Status LeaveOut(const std::string& path, PictureList* list);

}  // namespace pando
