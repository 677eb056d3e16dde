// Skip lists, and the names in them. An input is a file's name in its class's folder, a zero, and a
// skip list's text.
#include <algorithm>

#include "common/check.h"
#include "common/text.h"
#include "data/picture_list.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_file.h"

namespace pando {
namespace {

// Two classes with two pictures each in both splits, and the named one.
PictureList List(const std::string& name) {
  PictureList list{.train_folder = "/data/train", .test_folder = "/data/val"};
  list.class_names = {"a", "b"};
  for (const int32_t label : {0, 1}) {
    for (const char* file : {"0.png", "1.png"}) {
      list.train.push_back({file, label, 10});
      list.test.push_back({file, label, 10});
    }
  }
  if (!name.empty()) list.train.push_back({name, 1, 10});
  return list;
}

// A name that is no other picture's.
bool IsFileName(std::string_view name) {
  return !name.empty() && name.size() < 4096 && name != "0.png" && name != "1.png" &&
         name.front() != '/' && name.find("//") == std::string_view::npos;
}

// `pando data check` writes a list with this picture, and a run leaves it out.
void CheckSkipped(const std::string& name, const InputFile& file) {
  PictureList list = List(name);
  const std::string in_list = PictureName(list, Split::kTrain, list.train.back());
  PANDO_CHECK(in_list.size() <= 512 && IsUtf8(in_list));
  PANDO_CHECK(in_list.find_first_of("\n\t\r") == std::string::npos);
  PANDO_CHECK(LeaveOut(file.path(), &list).ok());
  PANDO_CHECK(list.train.size() == 4 && list.skipped_files == 1);
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const std::string text = SkipListText({{"train/a/0.png", "cut off"}, {"val/b/1.png", "\xff"}});
  return {std::string("2.png\0", 6) + text, std::string("left/caf\xe9\n.jpg\0", 15) + text};
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  static InputFile input;
  const std::string_view all = TextIn(data, size);
  const std::string name(all.substr(0, all.find('\0')));
  input.Write(all.substr(std::min(name.size() + 1, all.size())));
  PictureList list = List("");
  const size_t before = list.train.size() + list.test.size();
  if (LeaveOut(input.path(), &list).ok())
    PANDO_CHECK(list.train.size() + list.test.size() + list.skipped_files == before);
  if (IsFileName(name)) {
    const PictureList named = List(name);
    input.Write(SkipListText({{PictureName(named, Split::kTrain, named.train.back()), name}}));
    CheckSkipped(name, input);
  }
  return 0;
}
