#include "data/kinds.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <turbojpeg.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <set>

#include "data/picture_file.h"
#include "data/picture_list.h"
#include "tests/data/check_message.h"
#include "tests/data/idx_files.h"
#include "tests/file_size_limit.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

Bytes Jpeg(const Bytes& pixels, int height, int width, int format) {
  tjhandle handle = tjInitCompress();
  unsigned char* out = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg-turbo's
  const int sampling = format == TJPF_GRAY ? TJSAMP_GRAY : TJSAMP_444;
  PANDO_CHECK(tjCompress2(handle, pixels.data(), width, 0, height, format, &out, &size, sampling,
                          95, TJFLAG_ACCURATEDCT) == 0);
  Bytes file(out, out + size);
  tjFree(out);
  tjDestroy(handle);
  return file;
}

Bytes PlainJpeg(uint8_t red, uint8_t green, uint8_t blue, int height = 40, int width = 60) {
  Bytes pixels;
  for (int i = 0; i < height * width; ++i) {
    for (uint8_t value : {red, green, blue}) pixels.push_back(value);
  }
  return Jpeg(pixels, height, width, TJPF_RGB);
}

// Two classes, ants and bees, of plain pictures; bees are brighter.
struct TinyFolder {
  TempFolder folder;
  Job job;
  std::vector<std::string> warnings;
  TinyFolder() {
    for (const char* split : {"train", "val"}) {
      for (const char* name : {"ants", "bees"}) {
        fs::create_directories(folder.File(split) + "/" + name);
        for (uint8_t n = 0; n < 3; ++n) {
          const uint8_t light = static_cast<uint8_t>((name[0] == 'a' ? 50 : 150) + n);
          folder.Write(Name(split, name, n), PlainJpeg(light, light, light));
        }
      }
    }
    job.dataset = "imagefolder";
    job.data_path = folder.path();
    job.resize = 16;
  }
  void CutOff(const std::string& name) const {
    fs::resize_file(folder.File(name), fs::file_size(folder.File(name)) / 2);
  }
  static std::string Name(const std::string& split, const std::string& name, int n) {
    return split + "/" + name + "/" + std::to_string(n) + ".jpg";
  }
  Result<std::unique_ptr<DataSet>> Open() {
    return OpenDataSet(job, [this](const std::string& text) { warnings.push_back(text); });
  }
  void CheckError(StatusCode code, const std::vector<std::string>& parts) {
    CheckMessage(Open().status(), code, parts);
  }
};

Batch ReadSplit(const DataSet& data, Split split) {
  std::vector<uint64_t> indices(data.sample_count(split));
  std::iota(indices.begin(), indices.end(), uint64_t{0});
  Batch batch;
  const Status status = data.Read({split, indices}, &batch);
  REQUIRE_MESSAGE(status.ok(), status.message());
  return batch;
}

TEST_CASE("folders are classes, sorted, and pictures are resized") {
  TinyFolder tiny;
  auto data = tiny.Open();
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  CHECK((*data)->shape() == SampleShape{16, 16, 3});
  CHECK((*data)->class_names() == std::vector<std::string>{"ants", "bees"});
  const Batch batch = ReadSplit(**data, Split::kTest);
  CHECK(batch.labels == std::vector<int32_t>{0, 0, 0, 1, 1, 1});
  for (size_t i = 0; i < 6; ++i) {
    const int expected = (i < 3 ? 50 : 150) + static_cast<int>(i % 3);
    CHECK(std::abs(batch.bytes[i * 16 * 16 * 3 + 77] - expected) <= 1);  // JPEG rounds
  }
  CHECK(batch.normalisation->mean == std::vector<float>{0.485f, 0.456f, 0.406f});
  tiny.job.resize = 0;
  CHECK((*tiny.Open())->shape() == SampleShape{224, 224, 3});
}

TEST_CASE("a grayscale JPEG and PNGs of any kind become three channels") {
  DecodedPicture picture;
  REQUIRE(DecodePicture(Jpeg(Bytes(8 * 8, 77), 8, 8, TJPF_GRAY), 1, &picture).ok());
  CHECK(picture.pixels == Bytes(8 * 8 * 3, 77));
  TempFolder folder;
  for (uint32_t channels : {1u, 3u}) {
    Bytes pixels(5 * 7 * channels);
    std::iota(pixels.begin(), pixels.end(), uint8_t{9});
    const std::string path = folder.File("p.png");
    REQUIRE(WritePng(path, {pixels.data(), 5, 7, channels}).ok());
    Bytes rgb;
    for (size_t i = 0; i < size_t{5} * 7 * 3; ++i) rgb.push_back(pixels[i * channels / 3]);
    REQUIRE(DecodePicture(*ReadFileBytes(path), 1, &picture).ok());
    CHECK(picture.height == 5);
    CHECK(picture.width == 7);
    CHECK(picture.pixels == rgb);
  }
}

TEST_CASE("a PNG cut at any byte is an error") {
  TempFolder folder;
  Bytes pixels(5 * 7 * 3, 3);
  REQUIRE(WritePng(folder.File("p.png"), {pixels.data(), 5, 7, 3}).ok());
  const Bytes whole = *ReadFileBytes(folder.File("p.png"));
  DecodedPicture picture;
  for (size_t size = 0; size < whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK(DecodePicture(cut, 1, &picture).code() == StatusCode::kCorrupt);
  }
}

TEST_CASE("a JPEG cut at any byte but its last is an error") {
  const Bytes whole = PlainJpeg(10, 200, 30, 24, 24);
  DecodedPicture picture;
  REQUIRE(DecodePicture(whole, 1, &picture).ok());
  for (size_t size = 0; size + 2 < whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK(DecodePicture(cut, 1, &picture).code() == StatusCode::kCorrupt);
  }
}

// Where the segment of this marker begins, and where the next one does.
struct Segment {
  size_t first = 0;
  size_t last = 0;
};
Segment FindSegment(const Bytes& jpeg, uint8_t marker) {
  for (size_t at = 2; at + 4 <= jpeg.size();) {
    REQUIRE(jpeg[at] == 0xff);
    const size_t next = at + 2 + (size_t{jpeg[at + 2]} << 8 | jpeg[at + 3]);
    if (jpeg[at + 1] == marker) return {at, next};
    at = next;
  }
  FAIL("no such segment");
  return {};
}
constexpr uint8_t kTablesMarker = 0xdb, kScanMarker = 0xda;

TEST_CASE("a JPEG whose first trouble is harmless and whose second is not is an error") {
  const Bytes whole = PlainJpeg(10, 200, 30, 64, 64);
  Bytes damaged = whole;
  const Segment scan = FindSegment(whole, kScanMarker);
  damaged.resize(scan.last + (damaged.size() - scan.last) / 2);
  const auto place = damaged.begin() + static_cast<std::ptrdiff_t>(scan.first);
  damaged.insert(place, {1, 2, 3, 4, 5});
  DecodedPicture picture;
  const Status status = DecodePicture(damaged, 1, &picture);
  CHECK(status.code() == StatusCode::kCorrupt);
}

TEST_CASE("a JPEG without tables is not decoded by those of the picture before") {
  const Bytes good = PlainJpeg(10, 200, 30);
  Bytes bare = good;
  const Segment tables = FindSegment(good, kTablesMarker);
  bare.erase(bare.begin() + static_cast<std::ptrdiff_t>(tables.first),
             bare.begin() + static_cast<std::ptrdiff_t>(tables.last));
  DecodedPicture picture;
  REQUIRE(DecodePicture(good, 1, &picture).ok());
  CHECK(DecodePicture(bare, 1, &picture).code() == StatusCode::kCorrupt);
  TinyFolder tiny;
  tiny.folder.Write("train/ants/1.jpg", bare);
  auto data = tiny.Open();
  REQUIRE(data.ok());
  Batch batch;
  CheckMessage((*data)->Read({Split::kTrain, std::vector<uint64_t>{0, 1}}, &batch),
               StatusCode::kCorrupt, {"train/ants/1.jpg"});
}

TEST_CASE("a JPEG that claims more pixels than may be, and a file of too many bytes, are errors") {
  Bytes bomb = PlainJpeg(10, 200, 30);
  const Segment frame = FindSegment(bomb, 0xc0);
  for (size_t i : {5, 6, 7, 8}) bomb[frame.first + i] = i % 2 == 1 ? 0x7f : 0xff;
  DecodedPicture picture;
  const Status status = DecodePicture(bomb, 1, &picture);
  CHECK(status.code() == StatusCode::kCorrupt);
  CHECK(status.message().find("32767 x 32767") != std::string::npos);
  CHECK(picture.pixels.empty());
  TempFolder folder;
  const std::string path = folder.Write("large.jpg", {0xff, 0xd8, 0xff});
  fs::resize_file(path, kPictureFileBytesMax + 1);  // sparse
  CHECK(ReadFileBytes(path).status().code() == StatusCode::kCorrupt);
}

TEST_CASE("a picture that claims a size without bound is an error") {
  const Bytes png{0x89, 'P', 'N', 'G', 13,   10,   26,   10,   0, 0, 0, 13,
                  'I',  'H', 'D', 'R', 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1};
  CHECK(ReadPictureSize(png).status().message().find("1 x 2147483647") != std::string::npos);
}

TEST_CASE("training pictures depend on seed, epoch and sample, not on the reader") {
  TinyFolder tiny;
  Bytes pixels(64 * 64 * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i / 3 * 7);
  tiny.folder.Write("train/ants/0.jpg", Jpeg(pixels, 64, 64, TJPF_RGB));
  tiny.job.augment = {"crop", "flip"};
  auto one = tiny.Open();
  auto other = tiny.Open();
  std::set<std::string> seen;
  for (uint64_t epoch = 0; epoch < 8; ++epoch) {
    Batch batch, again;
    REQUIRE((*one)->Read({Split::kTrain, std::vector<uint64_t>{0}, epoch}, &batch).ok());
    REQUIRE((*other)->Read({Split::kTrain, std::vector<uint64_t>{5, 0}, epoch}, &again).ok());
    CHECK(std::equal(batch.bytes.begin(), batch.bytes.end(), again.bytes.begin() + 16 * 16 * 3));
    CHECK(batch.moves[0].is_flipped == again.moves[1].is_flipped);
    seen.emplace(batch.bytes.begin(), batch.bytes.end());
  }
  CHECK(seen.size() == 8);
}

TEST_CASE("a text file named .jpg is an error that names it, at the start") {
  TinyFolder tiny;
  tiny.folder.Write("val/bees/1.jpg", {'h', 'e', 'l', 'l', 'o'});
  tiny.CheckError(StatusCode::kCorrupt, {tiny.folder.path(), "val/bees/1.jpg", "not a JPEG or PNG",
                                         "68 65 6c 6c", "pando data check", "data.skip"});
  tiny.folder.Write("val/bees/1.jpg", {});
  tiny.CheckError(StatusCode::kCorrupt, {"val/bees/1.jpg", "empty"});
}

TEST_CASE("a bad picture whose name is not UTF-8 is named in UTF-8") {
  TinyFolder tiny;
  tiny.folder.Write("train/ants/caf\xe9.jpg", {'x'});
  tiny.CheckError(StatusCode::kCorrupt, {"train/ants/caf\\xe9.jpg", "not a JPEG or PNG"});
}

TEST_CASE("a picture that cannot be decoded is an error that names it and says what to do") {
  TinyFolder tiny;
  tiny.CutOff("train/ants/1.jpg");
  auto data = tiny.Open();
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  Batch batch;
  CHECK((*data)->Read({Split::kTrain, std::vector<uint64_t>{0, 2}}, &batch).ok());
  CheckMessage((*data)->Read({Split::kTrain, std::vector<uint64_t>{0, 1}}, &batch),
               StatusCode::kCorrupt,
               {tiny.folder.path() + ": train/ants/1.jpg: ", "pando data check", "data.skip"});
}

TEST_CASE("a file that cannot be opened is not called a bad picture") {
  TinyFolder tiny;
  fs::remove(tiny.folder.File("train/ants/1.jpg"));
  fs::create_symlink(tiny.folder.File("val/ants/1.jpg"), tiny.folder.File("train/ants/1.jpg"));
  REQUIRE(tiny.Open().ok());
  if (geteuid() == 0) return;  // root ignores permissions
  fs::permissions(tiny.folder.File("val/ants/1.jpg"), fs::perms::none);
  tiny.CheckError(StatusCode::kNotFound, {"train/ants/1.jpg", "cannot be opened", "ermission"});
}

TEST_CASE("sub-folders of a class are read, as torchvision does, and links followed") {
  TinyFolder tiny;
  fs::create_directories(tiny.folder.File("train/bees/left/far"));
  fs::rename(tiny.folder.File("train/bees/1.jpg"), tiny.folder.File("train/bees/left/1.jpg"));
  fs::rename(tiny.folder.File("train/bees/2.jpg"), tiny.folder.File("train/bees/left/far/2.jpg"));
  fs::create_directories(tiny.folder.File("elsewhere"));
  tiny.folder.Write("elsewhere/9.jpg", PlainJpeg(90, 90, 90));
  fs::create_directory_symlink(tiny.folder.File("elsewhere"), tiny.folder.File("train/ants/z"));
  auto data = tiny.Open();
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  const Batch batch = ReadSplit(**data, Split::kTrain);
  CHECK(batch.labels == std::vector<int32_t>{0, 0, 0, 0, 1, 1, 1});
  const std::vector<int> lights{50, 51, 52, 90, 150, 151, 152};
  for (size_t i = 0; i < lights.size(); ++i)
    CHECK(std::abs(batch.bytes[i * 16 * 16 * 3 + 77] - lights[i]) <= 1);
  CHECK((*data)->notices().empty());
}

// Pictures 10, 11, ... of train/ants, made by `add`.
template <class Add>
void AddMany(const TinyFolder& tiny, int count, const char* ending, Add add) {
  for (int n = 10; n < 10 + count; ++n)
    add(tiny.folder.File("train/ants/" + std::to_string(n) + ending));
}

TEST_CASE("pictures that are not read are named by reason, and many of them are an error") {
  const auto link = [](const std::string& path) { fs::create_symlink("/nowhere/1.jpg", path); };
  const auto copy = [](const std::string& path) {
    fs::copy_file(fs::path(path).parent_path() / "0.jpg", path);
  };
  const auto text = [](const std::string& path) { std::ofstream(path) << "BM"; };
  struct Kind {
    const char* ending;
    std::function<void(const std::string&)> add;
    const char* reason;
  };
  const std::vector<Kind> kinds{
      {".jpg", link, "a link that leads to no file"},
      {".bmp", text, "a picture whose name does not end in .jpg, .jpeg or .png"},
      {".WEBP", text, "a picture whose name does not end in .jpg, .jpeg or .png"},
      {"", copy, "a picture whose name does not end in .jpg, .jpeg or .png"},
      {".jpg_large", copy, "a picture whose name does not end in .jpg, .jpeg or .png"},
  };
  for (const Kind& kind : kinds) {
    CAPTURE(kind.ending);
    TinyFolder tiny;
    AddMany(tiny, 1, kind.ending, kind.add);
    const std::string first = "train/ants/10" + std::string(kind.ending);
    auto data = tiny.Open();  // 1 of 13
    REQUIRE_MESSAGE(data.ok(), data.status().message());
    CHECK((*data)->notices() ==
          std::vector<std::string>{"1 not read: '" + first + "' is " + kind.reason});
    fs::remove(tiny.folder.File(first));
    AddMany(tiny, 30, kind.ending, kind.add);
    tiny.CheckError(StatusCode::kCorrupt,
                    {tiny.folder.path(), "30 of 42 pictures are not read", "30 not read: '" + first,
                     kind.reason, "pando data check", "data.skip"});
    auto list = ListPictures(tiny.folder.path());
    REQUIRE(list.ok());
    const auto bad = FindBadPictures(*list, 1, [](uint64_t) {});
    REQUIRE(bad.ok());
    CHECK(bad->size() == 30);
    std::ofstream(tiny.folder.File("skip.txt")) << SkipListText(*bad);
    tiny.job.skip_list = "skip.txt";
    data = tiny.Open();
    REQUIRE_MESSAGE(data.ok(), data.status().message());
    CHECK((*data)->sample_count(Split::kTrain) == 6);
    CHECK((*data)->remarks() ==
          std::vector<std::string>{"30 pictures are left out by the skip list"});
  }
}

TEST_CASE("hidden folders are no classes, and other files no pictures") {
  TinyFolder tiny;
  const uint64_t before = (*tiny.Open())->fingerprint();
  for (const char* name :
       {"train/.ipynb_checkpoints", "val/.ipynb_checkpoints", "train/bees/.old"}) {
    fs::create_directories(tiny.folder.File(name));
    tiny.folder.Write(std::string(name) + "/0.jpg", PlainJpeg(1, 1, 1));
  }
  tiny.folder.Write("train/bees/._0.jpg", {0, 5, 22, 7});
  AddMany(tiny, 30, ".txt", [](const std::string& path) { std::ofstream(path) << "a label"; });
  auto data = tiny.Open();
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  CHECK((*data)->class_names() == std::vector<std::string>{"ants", "bees"});
  CHECK((*data)->fingerprint() == before);
  CHECK((*data)->notices() ==
        std::vector<std::string>{
            "3 not read: 'train/.ipynb_checkpoints', for example, is a hidden folder"});
  CHECK((*data)->remarks() ==
        std::vector<std::string>{"31 files are ignored: they are no pictures"});
}

TEST_CASE("pictures beside the classes, and links in a circle, are not read") {
  TinyFolder tiny;
  tiny.folder.Write("train/1.jpg", PlainJpeg(1, 1, 1));
  auto data = tiny.Open();
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  CHECK((*data)->notices() ==
        std::vector<std::string>{
            "1 not read: 'train/1.jpg' is a picture outside the folders of classes"});
  fs::remove(tiny.folder.File("train/1.jpg"));
  fs::create_directory_symlink(tiny.folder.File("train/ants"), tiny.folder.File("train/ants/all"));
  data = tiny.Open();
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  CHECK((*data)->sample_count(Split::kTrain) == 6);
  CHECK((*data)->notices() ==
        std::vector<std::string>{
            "1 not read: 'train/ants/all' is a link to a folder that holds the link"});
}

// Returns the result of `look` without root's rights. The test's folder is open to others.
template <class Look>
Status WithoutRights(const TinyFolder& tiny, Look look) {
  fs::permissions(tiny.folder.path(), fs::perms::all);
  // tools/test.sh keeps its temporary files in a folder of its user alone.
  fs::permissions(fs::temp_directory_path(), fs::perms::group_exec | fs::perms::others_exec,
                  fs::perm_options::add);
  constexpr uid_t kNobody = 65534;
  const bool is_root = geteuid() == 0;
  if (is_root) REQUIRE(seteuid(kNobody) == 0);
  const Status status = look();
  if (is_root) REQUIRE(seteuid(0) == 0);
  return status;
}

TEST_CASE("a folder that cannot be listed is an error that names it") {
  TinyFolder tiny;
  fs::create_directories(tiny.folder.File("train/bees/closed"));
  fs::permissions(tiny.folder.File("train/bees/closed"), fs::perms::none);
  CheckMessage(WithoutRights(tiny, [&] { return tiny.Open().status(); }), StatusCode::kNotFound,
               {"train/bees/closed: cannot be listed: Permission denied", "permissions"});
  fs::permissions(tiny.folder.File("train/bees/closed"), fs::perms::all);
}

TEST_CASE("a folder that cannot be entered and a picture that cannot be opened are errors") {
  TinyFolder tiny;
  const auto open = [&] { return tiny.Open().status(); };
  fs::permissions(tiny.folder.File("train/bees"),
                  fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read);
  CheckMessage(WithoutRights(tiny, open), StatusCode::kNotFound,
               {"train/bees/0.jpg: cannot be looked at: Permission denied", "permissions"});
  fs::permissions(tiny.folder.File("train/bees"), fs::perms::all);
  fs::permissions(tiny.folder.File("val/ants/1.jpg"), fs::perms::none);
  CheckMessage(WithoutRights(tiny, open), StatusCode::kNotFound,
               {"val/ants/1.jpg: cannot be opened: Permission denied", "permissions"});
  tiny.job.data_path = tiny.folder.File("inner");
  fs::create_directories(tiny.job.data_path);
  fs::permissions(tiny.job.data_path, fs::perms::none);
  CheckMessage(WithoutRights(tiny, open), StatusCode::kNotFound,
               {"inner: cannot be looked into: Permission denied", "permissions"});
}

TEST_CASE("a link to itself leads to no file, and a pipe is no picture") {
  TinyFolder tiny;
  REQUIRE(mkfifo(tiny.folder.File("train/bees/pipe.jpg").c_str(), 0600) == 0);
  for (const std::string link : {"train/flies", "train/bees/x.jpg"}) {
    fs::create_symlink(fs::path(link).filename(), tiny.folder.File(link));
    auto data = tiny.Open();
    REQUIRE_MESSAGE(data.ok(), data.status().message());
    CHECK((*data)->sample_count(Split::kTrain) == 6);
    CHECK((*data)->notices() ==
          std::vector<std::string>{"1 not read: '" + link + "' is a link that leads to no file"});
    CHECK((*data)->remarks()[0].find("1 files are ignored") != std::string::npos);
    fs::remove(tiny.folder.File(link));
  }
}

TEST_CASE("one class, no class, an empty class and an unknown class are errors") {
  TinyFolder tiny;
  const std::string train = tiny.folder.File("train");
  fs::create_directories(tiny.folder.File("val/wasps"));
  tiny.CheckError(StatusCode::kCorrupt, {"val/wasps", "unknown class 'wasps'", train});
  fs::remove(tiny.folder.File("val/wasps"));
  fs::create_directories(tiny.folder.File("train/cats"));
  tiny.CheckError(StatusCode::kNotFound, {"train/cats", "no picture"});
  fs::remove(tiny.folder.File("train/cats"));
  fs::remove_all(tiny.folder.File("train/ants"));
  tiny.CheckError(StatusCode::kNotFound, {train, "1 class folder,", "two or more"});
  fs::remove_all(train);
  tiny.CheckError(StatusCode::kNotFound, {tiny.folder.path(), "no folder 'train'"});
}

TEST_CASE("the fingerprint follows names, sizes and bytes, not the folder's own name") {
  TinyFolder tiny, twin;
  const uint64_t before = (*tiny.Open())->fingerprint();
  CHECK((*twin.Open())->fingerprint() == before);
  twin.folder.Write("val/ants/2.jpg", PlainJpeg(90, 20, 150));
  CHECK((*twin.Open())->fingerprint() != before);
  fs::rename(tiny.folder.File("train/bees/2.jpg"), tiny.folder.File("train/bees/9.jpg"));
  CHECK((*tiny.Open())->fingerprint() != before);
}

TEST_CASE("a cache gives the same bytes, serves two data sets at once and survives damage") {
  TinyFolder tiny;
  const Batch plain = ReadSplit(**tiny.Open(), Split::kTest);
  tiny.job.data_cache = tiny.folder.File("cache");
  auto one = tiny.Open();
  auto other = tiny.Open();
  REQUIRE_MESSAGE(one.ok(), one.status().message());
  CHECK(ReadSplit(**one, Split::kTest).bytes == plain.bytes);
  // The pictures are not read any more.
  const fs::path file = tiny.folder.File("val/ants/0.jpg");
  fs::rename(file, tiny.folder.File("away"));
  CHECK(ReadSplit(**other, Split::kTest).bytes == plain.bytes);
  fs::rename(tiny.folder.File("away"), file);
  for (const auto& entry : fs::directory_iterator(tiny.job.data_cache)) {
    std::fstream cache(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    cache.seekp(100);
    cache.put('?');
  }
  CHECK(ReadSplit(**other, Split::kTest).bytes == plain.bytes);
  tiny.warnings.clear();
  tiny.job.data_cache = "/dev/null/cache";
  auto without = tiny.Open();
  REQUIRE_MESSAGE(without.ok(), without.status().message());
  REQUIRE(tiny.warnings.size() == 1);
  CHECK(tiny.warnings[0].find("/dev/null/cache") != std::string::npos);
  CHECK(tiny.warnings[0].find("run.data_cache") != std::string::npos);
  CHECK(ReadSplit(**without, Split::kTest).bytes == plain.bytes);
}

TEST_CASE("a cache that cannot be written is done without") {
  TinyFolder tiny;
  const Batch plain = ReadSplit(**tiny.Open(), Split::kTest);
  tiny.job.data_cache = tiny.folder.File("cache");
  auto data = tiny.Open();
  {
    const FileSizeLimit limit(1000);  // one picture and its hash take 776 bytes
    CHECK(ReadSplit(**data, Split::kTest).bytes == plain.bytes);
    CHECK(ReadSplit(**data, Split::kTest).bytes == plain.bytes);
  }
  CHECK(ReadSplit(**tiny.Open(), Split::kTest).bytes == plain.bytes);
}

TEST_CASE("real photographs are decoded, the grayscale ones too") {
  const char* root = std::getenv("PANDO_TEST_DATA");
  Job job;
  job.dataset = "imagefolder";
  job.resize = 32;
  if (root != nullptr) job.data_path = std::string(root) + "/imagefolder-mini";
  if (!HoldsPictureFolders(job.data_path)) {
    MESSAGE("SKIPPED: PANDO_TEST_DATA does not hold imagefolder-mini");
    return;
  }
  auto data = OpenDataSet(job);
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  CHECK((*data)->class_count() == 10);
  CHECK((*data)->sample_count(Split::kTrain) == 600);
  CHECK((*data)->sample_count(Split::kTest) == 200);
  ReadSplit(**data, Split::kTrain);
  ReadSplit(**data, Split::kTest);
}

TEST_CASE("synthetic-imagenet draws the same pictures for everybody") {
  Job job;
  job.dataset = "synthetic-imagenet";
  job.resize = 64;
  job.synthetic_train_samples = 5000;
  auto data = OpenDataSet(job);
  auto again = OpenDataSet(job);
  REQUIRE(data.ok());
  CHECK((*data)->class_count() == 1000);
  Batch one, two;
  REQUIRE((*data)->Read({Split::kTrain, std::vector<uint64_t>{7, 4321}}, &one).ok());
  REQUIRE((*again)->Read({Split::kTrain, std::vector<uint64_t>{4321}}, &two).ok());
  CHECK(one.labels == std::vector<int32_t>{7, 321});
  CHECK(std::equal(two.bytes.begin(), two.bytes.end(), one.bytes.begin() + 64 * 64 * 3));
  CHECK((*data)->fingerprint() == (*again)->fingerprint());
}

}  // namespace
}  // namespace pando
