// Pictures that cannot be decoded: finding them, and the file that leaves them out of a run
// (data.skip). Called by `pando data check` and by image_folder.cc.
//
// A skip list has one picture per line: its name in the data set's folder, a tab, and the reason,
// which is for people. Lines that start with # are comments.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/status.h"
#include "data/picture_list.h"

namespace pando {

inline constexpr const char* kSkipListDefault = "skip.txt";  // in the data set's folder

struct BadPicture {
  std::string name;  // PictureName's
  std::string reason;
};

// Decodes every picture of the list on `thread_count` threads; returns those that cannot be
// decoded, in the list's order. kUnavailable: a file cannot be read. `on_progress` gets the number
// of pictures done, on any thread.
Result<std::vector<BadPicture>> FindBadPictures(const PictureList& list, uint32_t thread_count,
                                                const std::function<void(uint64_t)>& on_progress);
std::string SkipListText(const std::vector<BadPicture>& pictures);

// Where job.skip_list is: a relative path starts at the data set's folder.
std::string SkipListPath(const std::string& skip_list, const std::string& data_path);
// Removes the pictures that the file at `path` names. Errors: no such file, a line that names no
// picture of the list, a class or a split of which no picture is left.
Status LeaveOut(const std::string& path, PictureList* list);

}  // namespace pando
