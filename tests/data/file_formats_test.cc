// Tables and pictures in other formats: gzip is read, and the others are named with what to do.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include "data/dataset.h"
#include "data/picture_file.h"
#include "data/unlabelled.h"
#include "tests/data/check_message.h"
#include "tests/data/idx_files.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

Bytes ToBytes(std::string_view text) { return Bytes(text.begin(), text.end()); }

std::string Rows(size_t count) {
  std::string text = "x,kind,label\n";
  for (size_t i = 0; i < count; ++i) text += fmt::format("{},{},{}\n", i, "uv"[i % 2], "ab"[i % 2]);
  return text;
}

Job JobFor(const std::string& path) {
  Job job;
  job.dataset = "csv";
  job.data_path = path;
  job.label = "label";
  return job;
}

uint64_t Fingerprint(const std::string& path) {
  const auto data = OpenDataSet(JobFor(path));
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  return (*data)->fingerprint();
}

TEST_CASE("a gzip-compressed table is read as the plain one, under each name") {
  const TempFolder folder;
  const std::string text = Rows(50'000);  // of several buffers
  const uint64_t plain = Fingerprint(folder.Write("plain.csv", ToBytes(text)));
  const Bytes packed = Gzip(ToBytes(text));
  for (const char* name : {"a.csv.gz", "b.csv", "c.gz"})
    CHECK(Fingerprint(folder.Write(name, packed)) == plain);
  Bytes parts = Gzip(ToBytes(text.substr(0, 400'000)));  // as cat and bgzip write them
  const Bytes second = Gzip(ToBytes(text.substr(400'000)));
  parts.insert(parts.end(), second.begin(), second.end());
  CHECK(Fingerprint(folder.Write("parts.csv.gz", parts)) == plain);
  CHECK(GuessDataSet(folder.File("a.csv.gz")) == "csv");
  const TempFolder one, two;
  one.Write("a.csv.gz", packed);
  CHECK(Fingerprint(one.path()) == plain);
  two.Write("train.csv.gz", packed);
  two.Write("test.csv", ToBytes(Rows(10)));
  CHECK(Fingerprint(two.path()) != plain);
}

TEST_CASE("a gzip file that is cut off, damaged or holds no table is an error that names it") {
  const TempFolder folder;
  const auto check = [&](const Bytes& bytes, const std::vector<std::string>& parts) {
    const std::string path = folder.Write("a.csv.gz", bytes);
    CheckMessage(OpenDataSet(JobFor(path)).status(), StatusCode::kCorrupt, parts);
  };
  const Bytes whole = Gzip(ToBytes(Rows(50'000)));
  Bytes cut(whole.begin(), whole.end() - 1);
  check(cut, {"a.csv.gz: after line 50001: the gzip file is cut off"});
  cut.resize(whole.size() / 2);
  check(cut, {"a.csv.gz: after line ", "cut off", "copy the file again"});
  Bytes damaged = whole;
  damaged[whole.size() - 6] ^= 0xff;  // of the check sum
  check(damaged, {"a.csv.gz: after line ", "damaged", "incorrect data check"});
  check(Gzip({}), {"is empty"});
  check(Gzip(ToBytes("x;v;label\n1;2;a\n")), {"semicolons", "tr ';' , < <(gunzip -c"});
  check(Gzip(ToBytes("PAR1\x15\x04\x15")), {"it is a Parquet file"});
}

// The first bytes of files as programs write them.
struct Example {
  std::string head;
  const char* name;
  const char* advice;
};

TEST_CASE("a table of another format is named, with what to do") {
  using namespace std::string_literals;
  const TempFolder folder;
  const std::string lfs =
      "version https://git-lfs.github.com/spec/v1\noid "
      "sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
  const std::string zip =
      "PK\x03\x04\x14\0\x06\0\x08\0\0\0!\0"
      "b\xee\x9dh^\x01\0\0\x90\x04\0\0"s;
  const std::string tar = "table.csv"s + std::string(248, '\0') + "ustar\000"s;
  const std::vector<Example> examples{
      {lfs, "a pointer of Git LFS", "git lfs pull"},
      {zip + "\x13\0\x08\x02[Content_Types].xml"s, "an Excel workbook (.xlsx)",
       "pandas.read_excel"},
      {zip + "\x10\0\0\0docProps/app.xml"s, "an Excel workbook (.xlsx)", "pandas.read_excel"},
      {zip + "\x09\0\0\0table.csv"s, "a zip archive", "unzip FILE"},
      {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0"s, "an Excel workbook (.xls)", "pandas.read_excel"},
      {"PAR1\x15\x04\x15\x10"s, "a Parquet file", "pandas.read_parquet"},
      {"ARROW1\0\0\xff\xff"s, "an Arrow or Feather file", "pandas.read_feather"},
      {"BZh91AY&SY\x01\x02"s, "a bzip2 file", "bunzip2"},
      {"\xfd"
       "7zXZ\0\0\x04"s,
       "an xz file", "unxz"},
      {"\x28\xb5\x2f\xfd\x04\x58"s, "a zstd file", "zstd -d"},
      {"\x89HDF\r\n\x1a\n\0"s, "an HDF5 file", "pandas.read_hdf"},
      {"\x93NUMPY\x01\0v\0{'descr'"s, "a NumPy file", "numpy.load"},
      {"SQLite format 3\0\x10\0"s, "an SQLite database", "pandas.read_sql"},
      {"\x80\x04\x95\x10\0"s, "a file of Python's pickle", "pandas.read_pickle"},
      {"<!DOCTYPE html>\n<html>"s, "an HTML page", "download the file again"},
      {"\xef\xbb\xbf\n <HTML lang=en>"s, "an HTML page", "download the file again"},
      {"<?xml version=\"1.0\"?><Error><Code>AccessDenied"s, "an XML file", "download"},
      {tar, "a tar archive", "tar -xf"},
      {"{\"x\": 1, \"label\": \"a\"}\n"s, "a JSON file", "pandas.read_json"},
      {"%PDF-1.7\n"s, "a PDF document", ""},
      {"\x89PNG\r\n\x1a\n\0\0"s, "a PNG picture", "expected a CSV file"}};
  for (const Example& example : examples) {
    CAPTURE(example.name);
    const std::string path = folder.Write("a.csv", ToBytes(example.head));
    const std::string expected = fmt::format("a.csv: it is {}", example.name);
    CheckMessage(OpenDataSet(JobFor(path)).status(), StatusCode::kCorrupt,
                 {expected, ", expected a CSV file", example.advice});
    CHECK(GuessDataSet(folder.Write("a.other", ToBytes(example.head))) == "csv");
  }
  for (const char* header : {"PAR1,label", "BMI,label", "ORC,label", "GIF89a,label", "größe,label",
                             "BMI größe,label", "RIFF WEBP,label", "version https,label"}) {
    CAPTURE(header);
    Fingerprint(folder.Write("a.csv", ToBytes(fmt::format("{}\n1,a\n2,b\n3,a\n4,b\n", header))));
  }
}

TEST_CASE("a picture of another format is named, with what to do") {
  using namespace std::string_literals;
  const std::vector<Example> examples{
      {"RIFF\x24\0\0\0WEBPVP8 "s, "a WebP picture", "mogrify -format png"},
      {"GIF89a\x09\0"s, "a GIF picture", "mogrify"},
      {"BM\x36\x01\0\0\0\0\0\0"s, "a BMP picture", "mogrify"},
      {"II*\0\x08\0\0\0"s, "a TIFF picture", "mogrify"},
      {"MM\0*\0\0\0\x08"s, "a TIFF picture", "mogrify"},
      {"\0\0\0\x18"
       "ftypheic\0\0\0\0"s,
       "a HEIC or AVIF picture, or a video", "mogrify"},
      {"\0\0\0\x1c"
       "ftypmif1\0\0\0\0"s,
       "a HEIC or AVIF picture, or a video", "mogrify"},
      {"\0\0\0\x20"
       "ftypavif\0\0\0\0"s,
       "a HEIC or AVIF picture, or a video", "mogrify"},
      {"<svg xmlns=\"http://www.w3.org/2000/svg\">"s, "an SVG drawing", "mogrify"},
      {"<?xml version=\"1.0\"?>\n<svg>"s, "an SVG drawing", "mogrify"},
      {"\n\n<!doctype HTML><title>404"s, "an HTML page", "download the file again"},
      {"version https://git-lfs.github.com/spec/v1\noid"s, "a pointer of Git LFS", "git lfs pull"},
      {"\x1f\x8b\x08\0"s, "a gzip file", "gunzip"}};
  for (const Example& example : examples) {
    CAPTURE(example.name);
    const Status status = CheckPictureHead(ToBytes(example.head));
    CheckMessage(status, StatusCode::kCorrupt,
                 {"it is " + std::string(example.name), "expected a JPEG or PNG", example.advice});
  }
}

// The names of inputs tell `pando predict` which columns they are of.
TEST_CASE("columns whose names are another column's input are an error before training") {
  const TempFolder folder;
  const auto open = [&](const std::string& header, const std::vector<std::string>& columns = {}) {
    std::string text = header + ",label\n";
    for (size_t i = 0; i < 20; ++i)
      text += fmt::format("{},{},{}\n", i, "xy"[i % 2], "ab"[i % 3 == 0]);
    Job job = JobFor(folder.Write("a.csv", ToBytes(text)));
    job.columns = columns;
    return OpenDataSet(job).status();
  };
  for (const char* header : {"kind=x,kind", "kind=,kind", "kind=x=1,kind", "kind=no value,kind"})
    CheckMessage(open(header), StatusCode::kCorrupt,
                 {"a.csv: line 1: has columns 'kind' and 'kind="});
  // A column that is not learned is in the file all the same.
  CheckMessage(open("kind=x,kind", {"kind"}), StatusCode::kCorrupt, {"'kind=x'", "rename"});
  for (const char* header : {"a=b,c=d", "a=,b=", "a==b,c", "=,kind", "kind =x,kind"}) {
    const Status status = open(header);
    CHECK_MESSAGE(status.ok(), status.message());
  }
}

TEST_CASE("rows to predict with a column that may be another one's input are an error") {
  const TempFolder folder;
  std::string text = "kind,u,label\n";
  for (size_t i = 0; i < 20; ++i)
    text += fmt::format("{},{},{}\n", "xy"[i % 2], i, "ab"[i % 3 == 0]);
  const Job job = JobFor(folder.Write("a.csv", ToBytes(text)));
  const auto data = OpenDataSet(job);
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  const JobPlan plan(job, (*data)->facts(), TensorLayout({{.name = "x", .shape = {1}}}));
  const std::string rows = folder.Write("b.csv", ToBytes("kind=x,kind,u\n0.5,x,1\n"));
  CheckMessage(OpenRows(rows, plan).status(), StatusCode::kCorrupt,
               {"b.csv", "'kind=x'", "rename"});
  CHECK(OpenRows(folder.Write("c.csv", ToBytes("kind,u\nx,1\n")), plan).ok());
}

}  // namespace
}  // namespace pando
