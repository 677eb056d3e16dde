#include "data/kinds.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/data/idx_files.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

constexpr uint32_t kClasses = 10;

// The one line a user reads must name the file and hold each of these.
void CheckError(const Status& status, StatusCode code, const std::string& path,
                const std::vector<std::string>& parts) {
  CHECK(status.code() == code);
  CHECK(status.message().starts_with(path));
  CHECK(status.message().find('\n') == std::string::npos);
  for (const std::string& part : parts) {
    INFO(status.message());
    CHECK_MESSAGE(status.message().find(part) != std::string::npos, part);
  }
}

TEST_CASE("pictures and labels come back, plain or gzip-compressed") {
  TempFolder folder;
  for (uint32_t count : {1u, 2u, 7u}) {
    const Bytes pictures = PicturesFile(count);
    for (const std::string& path :
         {folder.Write("p", pictures), folder.Write("p.gz", Gzip(pictures))}) {
      Result<IdxPictures> read = ReadIdxPictures(path);
      REQUIRE(read.ok());
      CHECK(read->count == count);
      CHECK(read->height == 3);
      CHECK(read->width == 2);
      CHECK(read->pixels == Bytes(pictures.begin() + 16, pictures.end()));
    }
  }
  const Bytes labels{0, 9, 5};
  for (const std::string& path :
       {folder.Write("l", LabelsFile(labels)), folder.Write("l.gz", Gzip(LabelsFile(labels)))}) {
    auto read = ReadIdxLabels(path, kClasses);
    REQUIRE(read.ok());
    CHECK(*read == labels);
  }
}

TEST_CASE("a pointer of Git LFS in place of an idx file is named") {
  TempFolder folder;
  const std::string text = "version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 9\n";
  for (const char* name : {"p", "p.gz"}) {
    const Status status =
        ReadIdxPictures(folder.Write(name, Bytes(text.begin(), text.end()))).status();
    CHECK(status.message().find("it is a pointer of Git LFS, expected an idx file") !=
          std::string::npos);
    CHECK(status.message().find("git lfs pull") != std::string::npos);
  }
}

TEST_CASE("a file larger than one read comes back whole") {
  TempFolder folder;
  const Bytes pictures = PicturesFile(3, 2000, 1500);  // 9,000,000 bytes
  for (const std::string& path :
       {folder.Write("p", pictures), folder.Write("p.gz", Gzip(pictures))}) {
    Result<IdxPictures> read = ReadIdxPictures(path);
    REQUIRE(read.ok());
    CHECK(read->pixels == Bytes(pictures.begin() + 16, pictures.end()));
  }
}

TEST_CASE("a file truncated at any byte is an error that names the place") {
  TempFolder folder;
  const Bytes whole = PicturesFile(2);
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string path = folder.Write("p", Bytes(whole.begin(), whole.begin() + long(size)));
    CheckError(ReadIdxPictures(path).status(), StatusCode::kCorrupt, path,
               {"byte " + std::to_string(size), "truncated", "download it again"});
  }
}

TEST_CASE("a gzip file truncated at any byte, its check sum included, is an error") {
  TempFolder folder;
  const Bytes whole = Gzip(PicturesFile(20));
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string path = folder.Write("p.gz", Bytes(whole.begin(), whole.begin() + long(size)));
    CheckError(ReadIdxPictures(path).status(), StatusCode::kCorrupt, path, {"download it again"});
  }
  const std::string path = folder.Write("p.gz", Bytes(whole.begin(), whole.begin() + 60));
  CheckError(ReadIdxPictures(path).status(), StatusCode::kCorrupt, path,
             {"of the unpacked data", "truncated here", "136 bytes"});
}

// Up to 1 MiB, which was read in one piece, the fault was found.
TEST_CASE("a gzip file that is larger than the buffer and cut in its check sum is an error") {
  TempFolder folder;
  Bytes pictures = PicturesFile(2, 800, 1000);
  uint32_t noise = 1;  // is not compressed: the file has 1.6 MB, too
  for (size_t i = 16; i < pictures.size(); ++i) {
    noise = noise * 1664525 + 1013904223;
    pictures[i] = static_cast<uint8_t>(noise >> 24);
  }
  const Bytes whole = Gzip(pictures);
  REQUIRE(whole.size() > 1'500'000);
  CHECK(ReadIdxPictures(folder.Write("p.gz", whole)).ok());
  for (long missing = 1; missing <= 8; ++missing) {
    const std::string path = folder.Write("p.gz", Bytes(whole.begin(), whole.end() - missing));
    CheckError(ReadIdxPictures(path).status(), StatusCode::kCorrupt, path,
               {"truncated in its last bytes, the check sum"});
  }
}

TEST_CASE("a gzip file may have several members, and padding") {
  TempFolder folder;
  const Bytes pictures = PicturesFile(7);
  Bytes packed = Gzip(Bytes(pictures.begin(), pictures.begin() + 20));
  const Bytes rest = Gzip(Bytes(pictures.begin() + 20, pictures.end()));
  packed.insert(packed.end(), rest.begin(), rest.end());
  const std::string cut = folder.Write("cut.gz", Bytes(packed.begin(), packed.end() - 3));
  CheckError(ReadIdxPictures(cut).status(), StatusCode::kCorrupt, cut, {"truncated"});
  packed.resize(packed.size() + 100);
  const Result<IdxPictures> read = ReadIdxPictures(folder.Write("p.gz", packed));
  REQUIRE(read.ok());
  CHECK(read->pixels == Bytes(pictures.begin() + 16, pictures.end()));
}

TEST_CASE("a damaged gzip file is an error") {
  TempFolder folder;
  Bytes packed = Gzip(PicturesFile(20));
  packed[packed.size() - 6] ^= 1;  // in the check sum
  const std::string path = folder.Write("p.gz", packed);
  CheckError(ReadIdxPictures(path).status(), StatusCode::kCorrupt, path,
             {"byte 136 of", "damaged here or further on", "incorrect data check"});
}

TEST_CASE("name and content must agree about compression") {
  TempFolder folder;
  const std::string not_gzip = folder.Write("p.gz", PicturesFile(2));
  CheckError(ReadIdxPictures(not_gzip).status(), StatusCode::kCorrupt, not_gzip,
             {"not a gzip file", "00 00", "byte 0", "expected 1f 8b", "remove .gz"});
  const std::string packed = folder.Write("p", Gzip(PicturesFile(2)));
  CheckError(ReadIdxPictures(packed).status(), StatusCode::kCorrupt, packed,
             {"gzip-compressed", "add .gz"});
}

TEST_CASE("a wrong magic is an error, and swapped files are recognised") {
  TempFolder folder;
  const std::string labels = folder.Write("l", LabelsFile({1, 2}));
  CheckError(ReadIdxPictures(labels).status(), StatusCode::kCorrupt, labels,
             {"wrong magic", "byte 0", "00000801", "holds labels", "expected 00000803"});
  const std::string pictures = folder.Write("p", PicturesFile(1));
  CheckError(ReadIdxLabels(pictures, kClasses).status(), StatusCode::kCorrupt, pictures,
             {"wrong magic", "00000803", "holds pictures", "expected 00000801"});
  const std::string html = folder.Write("h", {'<', 'h', 't', 'm', 'l', '>'});
  CheckError(ReadIdxLabels(html, kClasses).status(), StatusCode::kCorrupt, html,
             {"an HTML page", "download the file again"});
  const std::string other = folder.Write("o", {'t', 'e', 'x', 't', '.'});
  CheckError(ReadIdxLabels(other, kClasses).status(), StatusCode::kCorrupt, other,
             {"wrong magic", "74657874"});
}

TEST_CASE("zero pictures and impossible sizes are errors") {
  TempFolder folder;
  std::string path = folder.Write("p", IdxHeader({0x803, 0, 28, 28}));
  CheckError(ReadIdxPictures(path).status(), StatusCode::kCorrupt, path,
             {"byte 4", "0 pictures", "at least 1"});
  path = folder.Write("l", IdxHeader({0x801, 0}));
  CheckError(ReadIdxLabels(path, kClasses).status(), StatusCode::kCorrupt, path,
             {"byte 4", "0 labels"});
  path = folder.Write("p", IdxHeader({0x803, 1, 0, 28}));
  CheckError(ReadIdxPictures(path).status(), StatusCode::kCorrupt, path, {"byte 8", "height is 0"});
  path = folder.Write("p", IdxHeader({0x803, 1, 28, 0xffffffff}));
  CheckError(ReadIdxPictures(path).status(), StatusCode::kCorrupt, path,
             {"byte 12", "width is 4294967295", "1 to 65535"});
}

TEST_CASE("a header that promises more than there is costs no memory") {
  TempFolder folder;
  const std::string path = folder.Write("p", IdxHeader({0x803, 0xffffffff, 65535, 65535}));
  CheckError(ReadIdxPictures(path).status(), StatusCode::kCorrupt, path,
             {"byte 16", "truncated", "18446181123756261391"});  // 16 + 4294967295 * 65535^2
}

TEST_CASE("trailing bytes are an error") {
  TempFolder folder;
  Bytes bytes = PicturesFile(2);
  bytes.push_back(0);
  for (const std::string& path : {folder.Write("p", bytes), folder.Write("p.gz", Gzip(bytes))}) {
    CheckError(ReadIdxPictures(path).status(), StatusCode::kCorrupt, path,
               {"byte 28", "more bytes follow"});
  }
}

TEST_CASE("a label out of range is an error that names which one") {
  TempFolder folder;
  const std::string path = folder.Write("l", LabelsFile({3, 9, 10, 11}));
  CheckError(ReadIdxLabels(path, kClasses).status(), StatusCode::kCorrupt, path,
             {"byte 10", "label 2 is 10", "expected 0 to 9", "MNIST", "EMNIST", "imagefolder"});
}

TEST_CASE("a missing file is an error") {
  TempFolder folder;
  CheckError(ReadIdxPictures(folder.File("none")).status(), StatusCode::kNotFound,
             folder.File("none"), {"cannot be opened", "No such file"});
}

}  // namespace
}  // namespace pando
