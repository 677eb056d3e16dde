#include "data/picture_list.h"

#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "data/picture_file.h"
#include "tests/data/check_message.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

// Classes a and b, each with the pictures 0.png and 1.png in both splits.
struct Photographs {
  TempFolder temp;
  Photographs() {
    const std::vector<uint8_t> pixels(8 * 8 * 3, 60);
    for (const char* folder : {"train/a", "train/b", "val/a", "val/b"}) {
      fs::create_directories(File(folder));
      for (const char* name : {"/0.png", "/1.png"})
        REQUIRE(WritePng(File(folder) + name, {pixels.data(), 8, 8, 3}).ok());
    }
  }
  std::string File(const std::string& name) const { return temp.path() + "/" + name; }
  void CutOff(const std::string& name) const {
    fs::resize_file(File(name), fs::file_size(File(name)) - 20);
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(File(name)) << text;
  }
  PictureList List() const {
    Result<PictureList> list = ListPictures(temp.path());
    REQUIRE_MESSAGE(list.ok(), list.status().message());
    return *std::move(list);
  }
  std::vector<BadPicture> Find(uint32_t thread_count) const {
    std::atomic<uint64_t> most = 0;
    const auto bad = FindBadPictures(List(), thread_count, [&](uint64_t done) {
      for (uint64_t seen = most; done > seen && !most.compare_exchange_weak(seen, done);) {
      }
    });
    REQUIRE_MESSAGE(bad.ok(), bad.status().message());
    CHECK(most == List().train.size() + List().test.size());
    return *bad;
  }
  Status LeaveOutText(const std::string& text) const {
    Write("skip.txt", text);
    PictureList list = List();
    return LeaveOut(File("skip.txt"), &list);
  }
};

TEST_CASE("pictures that cannot be decoded are found, in order, by any number of threads") {
  const Photographs photographs;
  CHECK(photographs.Find(2).empty());
  photographs.CutOff("val/b/1.png");
  photographs.CutOff("train/a/0.png");
  photographs.Write("train/b/0.png", "hello");
  for (uint32_t thread_count : {1u, 3u, 20u}) {
    const std::vector<BadPicture> bad = photographs.Find(thread_count);
    REQUIRE(bad.size() == 3);
    CHECK(bad[0].name == "train/a/0.png");
    CHECK(bad[0].reason.find("cannot be decoded") != std::string::npos);
    CHECK(bad[1].name == "train/b/0.png");
    CHECK(bad[2].name == "val/b/1.png");
  }
}

TEST_CASE("the pictures of a written list are left out, the others keep their order") {
  const Photographs photographs;
  photographs.CutOff("train/a/0.png");
  photographs.CutOff("val/b/1.png");
  photographs.Write("skip.txt", SkipListText(photographs.Find(1)));
  PictureList list = photographs.List();
  const Status status = LeaveOut(photographs.File("skip.txt"), &list);
  REQUIRE_MESSAGE(status.ok(), status.message());
  CHECK(list.skipped_files == 2);
  REQUIRE(list.train.size() == 3);
  CHECK(PictureName(list, Split::kTrain, list.train[0]) == "train/a/1.png");
  REQUIRE(list.test.size() == 3);
  CHECK(PictureName(list, Split::kTest, list.test[2]) == "val/b/0.png");
}

TEST_CASE("a list may be written by hand") {
  const Photographs photographs;
  CHECK(photographs.LeaveOutText("").ok());
  CHECK(photographs.LeaveOutText("# blurred\r\n\r\ntrain/a/0.png\r\ntrain/b/1.png").ok());
}

TEST_CASE("names with any byte are found again") {
  const Photographs photographs;
  for (const char* name : {"train/a/caf\xe9.png", "train/a/tab\tand\nline.png", "train/a/#.png"})
    photographs.Write(name, "hello");
  const std::vector<BadPicture> bad = photographs.Find(1);
  REQUIRE(bad.size() == 3);
  CHECK(photographs.LeaveOutText(SkipListText(bad)).ok());
}

TEST_CASE("a list that does not fit the folder is an error with its line") {
  const Photographs photographs;
  CheckMessage(photographs.LeaveOutText("train/a/0.png\ntrain/a/9.png\tcut off\n"),
               StatusCode::kInvalidArgument, {"skip.txt:2", "train/a/9.png", "pando data check"});
  CheckMessage(photographs.LeaveOutText("train/b/0.png\ntrain/b/1.png\n"), StatusCode::kCorrupt,
               {"skip.txt", "class 'b'"});
  CheckMessage(photographs.LeaveOutText("val/a/0.png\nval/a/1.png\nval/b/0.png\nval/b/1.png\n"),
               StatusCode::kCorrupt, {"skip.txt", "test split"});
  PictureList list = photographs.List();
  CheckMessage(LeaveOut(photographs.File("none.txt"), &list), StatusCode::kNotFound,
               {"none.txt", "pando data check"});
}

TEST_CASE("a relative path starts at the data set's folder") {
  CHECK(SkipListPath("skip.txt", "/data/photographs") == "/data/photographs/skip.txt");
  CHECK(SkipListPath("/lists/a.txt", "/data/photographs") == "/lists/a.txt");
}

}  // namespace
}  // namespace pando
