#include "run/safetensors_file.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <vector>

#include "common/philox.h"
#include "job/job_file.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

// Two tensors with padding after each, a metric between and one after.
TensorLayout HandMadeLayout() {
  return TensorLayout({{.name = "fc.weight", .shape = {1, 3}},
                       {.name = "step.metrics", .shape = {2}, .kind = TensorKind::kMetric},
                       {.name = "bn.running_mean", .shape = {3}, .kind = TensorKind::kStatistic},
                       MetricTensorSpec()});
}

std::vector<float> HandMadeWeights(const TensorLayout& layout, float elsewhere) {
  std::vector<float> flat(layout.float_count(), elsewhere);
  const std::vector<float> weight{1.0f, -2.5f, 3.25f};
  const std::vector<float> mean{0.5f, -0.0f, 4.0f};
  std::copy(weight.begin(), weight.end(), flat.begin() + static_cast<ptrdiff_t>(layout.offset(0)));
  std::copy(mean.begin(), mean.end(), flat.begin() + static_cast<ptrdiff_t>(layout.offset(2)));
  return flat;
}

TEST_CASE("the weights hash is that of the plain values in model order") {
  const TensorLayout layout = HandMadeLayout();
  // python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<6f", 1, -2.5, 3.25, .5,
  // -0., 4))' | xxh128sum
  const std::string expected = "36ad97771323579dfe8ab72c20514bda";
  CHECK(WeightsHash(layout, HandMadeWeights(layout, 0.0f)) == expected);
  CHECK(WeightsHash(layout, HandMadeWeights(layout, 7.0f)) == expected);
}

TEST_CASE("the weights hash of no weights is xxh3-128's of nothing") {
  // printf '' | xxh128sum
  CHECK(WeightsHash(TensorLayout({MetricTensorSpec()}), std::vector<float>(16)) ==
        "99aa06d3014798d86001c324468d497f");
}

// Reads the file as its specification says, without a library for it.
constexpr const char* kReader = R"(
import json, struct, sys
data = open(sys.argv[1], 'rb').read()
size, = struct.unpack('<Q', data[:8])
assert size % 8 == 0
header = json.loads(data[8:8 + size])
del header['__metadata__']
for name, t in header.items():
    a, b = t['data_offsets']
    values = struct.unpack('<%df' % ((b - a) // 4), data[8 + size + a:8 + size + b])
    print(name, t['dtype'], t['shape'], *values)
print(len(data) - 8 - size)
)";

std::string Output(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string output;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) output += static_cast<char>(c);
  CHECK(pclose(pipe) == 0);
  return output;
}

TEST_CASE("Python reads the exported weights back") {
  if (std::system("python3 -c '' > /dev/null 2>&1") != 0) {
    MESSAGE("SKIPPED: no python3 here");
    return;
  }
  TempFolder temp;
  const std::string path = temp.path() + "/final.safetensors";
  const std::string reader = temp.path() + "/read.py";
  const TensorLayout layout = HandMadeLayout();
  REQUIRE(WriteWeights(path, layout, HandMadeWeights(layout, 7.0f)).ok());
  std::ofstream(reader) << kReader;
  CHECK(Output("python3 " + reader + " " + path) ==
        "fc.weight F32 [1, 3] 1.0 -2.5 3.25\n"
        "bn.running_mean F32 [3] 0.5 -0.0 4.0\n"
        "24\n");
}

TEST_CASE("weights that cannot be written name the file") {
  const TensorLayout layout = HandMadeLayout();
  Status s = WriteWeights("no/such/folder/w.safetensors", layout, HandMadeWeights(layout, 0));
  REQUIRE_FALSE(s.ok());
  CHECK(s.message().find("no/such/folder/w.safetensors") != std::string::npos);
}

TEST_CASE("weights are read back bit for bit, metrics and padding as zeros") {
  TempFolder temp;
  const std::string path = temp.path() + "/w.safetensors";
  const TensorLayout layout = HandMadeLayout();
  REQUIRE(WriteWeights(path, layout, HandMadeWeights(layout, 7.0f)).ok());
  Result<FloatBuffer> read = ReadWeights(path, layout);
  REQUIRE_MESSAGE(read.ok(), read.status().message());
  const std::vector<float> expected = HandMadeWeights(layout, 0.0f);
  CHECK(std::ranges::equal(std::as_bytes(read->span()), std::as_bytes(std::span(expected))));
}

TEST_CASE("weights that were changed after they were written are refused") {
  TempFolder temp;
  const std::string path = temp.path() + "/w.safetensors";
  const TensorLayout layout = HandMadeLayout();
  REQUIRE(WriteWeights(path, layout, HandMadeWeights(layout, 0)).ok());
  std::string bytes = *ReadTextFile(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
  const Status status = ReadWeights(path, layout).status();
  CHECK(status.code() == StatusCode::kCorrupt);
  CHECK(status.message().starts_with(path + ": its values have the hash "));
  CHECK(status.message().find("damaged or changed") != std::string::npos);
}

TEST_CASE("weights of another model are refused by the tensor's name") {
  TempFolder temp;
  const std::string path = temp.path() + "/w.safetensors";
  const TensorLayout layout = HandMadeLayout();
  REQUIRE(WriteWeights(path, layout, HandMadeWeights(layout, 0)).ok());
  const TensorLayout wider({{.name = "fc.weight", .shape = {1, 4}}});
  CHECK(ReadWeights(path, wider).status().message() ==
        path + ": tensor 'fc.weight' has shape [1,3], and the model wants [1,4]");
  const TensorLayout other({{.name = "fc.bias", .shape = {1}}});
  CHECK(ReadWeights(path, other).status().message() ==
        path + " has no tensor 'fc.bias', which the model has");
  const TensorLayout fewer({{.name = "fc.weight", .shape = {1, 3}}});
  CHECK(ReadWeights(path, fewer).status().message() ==
        path + ": the model has no tensor 'bn.running_mean'");
}

// ---- files that are not what they claim --------------------------------------------------------

std::string FileBytes(const std::string& header, size_t data_bytes) {
  const uint64_t size = header.size();
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  return bytes + header + std::string(data_bytes, '\1');
}

// Opens the bytes as a file; the error without the file's name, or "" and every tensor was read.
std::string OpenError(const TempFolder& temp, const std::string& bytes) {
  const std::string path = temp.path() + "/f";
  std::ofstream(path, std::ios::binary) << bytes;
  const auto message = [&](const Status& status) {
    CHECK(status.code() == StatusCode::kCorrupt);
    CHECK(status.message().starts_with(path + ": "));
    return status.message().substr(path.size() + 2);
  };
  Result<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return message(file.status());
  for (const auto& [name, tensor] : file->tensors()) {
    std::vector<float> values(tensor.float_count);
    if (Status s = file->Read(tensor, values); !s.ok()) return message(s);
  }
  return "";
}

TEST_CASE("the smallest files are read: no tensors, an empty tensor, a scalar") {
  TempFolder temp;
  CHECK(OpenError(temp, FileBytes("{}", 0)) == "");
  CHECK(OpenError(temp,
                  FileBytes(R"({"a": {"dtype": "F32", "shape": [3, 0], "data_offsets": [0, 0]}})",
                            0)) == "");
  CHECK(OpenError(temp, FileBytes(R"({"a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}})",
                                  4)) == "");
}

TEST_CASE("each wrong header is one error that says the place and what was expected") {
  TempFolder temp;
  CHECK(OpenError(temp, "") == "0 bytes, too short for a safetensors file");
  CHECK(
      OpenError(temp, std::string(8, '\xff'))
          .starts_with("byte 0: the header is said to have 18446744073709551615 bytes, expected at "
                       "most 0"));
  CHECK(OpenError(temp, FileBytes("[]", 0)) == "byte 8: the header is not a JSON object");
  CHECK(OpenError(temp, FileBytes("{\"a\": ", 0)).starts_with("byte 8: the header is not JSON: "));
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  CHECK(OpenError(temp, FileBytes("{\"a\": {\"dtype\": " + deep + "}}", 0)) ==
        "byte 8: the header's JSON is nested too deeply");
  CHECK(OpenError(temp, FileBytes(R"({"__metadata__": {"a": 1}})", 0)) ==
        "header, '__metadata__': expected an object of texts");
  const auto tensor = [&](const char* type, const char* shape, const char* offsets) {
    return OpenError(temp, FileBytes(std::string(R"({"a": {"dtype": )") + type + R"(, "shape": )" +
                                         shape + R"(, "data_offsets": )" + offsets + "}}",
                                     16));
  };
  CHECK(tensor("\"F32\"", "[4]", "[0, 16]") == "");
  CHECK(tensor("\"F16\"", "[8]", "[0, 16]").starts_with("header, 'a': dtype is not \"F32\""));
  CHECK(tensor("\"F32\"", "4", "[0, 16]") == "header, 'a': expected a list as shape");
  CHECK(tensor("\"F32\"", "[-4]", "[0, 16]") == "header, 'a': expected whole numbers in shape");
  CHECK(tensor("\"F32\"", "[4294967296, 4294967296]", "[0, 0]") ==
        "header, 'a': shape has more elements than any file");
  CHECK(tensor("\"F32\"", "[4]", "[0]") ==
        "header, 'a': expected two whole numbers as data_offsets");
  CHECK(tensor("\"F32\"", "[4]", "[4, 20]") ==
        "header, 'a': data_offsets [4, 20] are not within the 16 bytes after the header");
  CHECK(tensor("\"F32\"", "[4]", "[16, 0]").starts_with("header, 'a': data_offsets [16, 0]"));
  CHECK(tensor("\"F32\"", "[4]", "[0, 12]") ==
        "header, 'a': data_offsets hold 12 bytes, expected 16 for this shape");
  CHECK(tensor("\"F32\"", "[3]", "[0, 12]") == "16 bytes after the header, expected 12");
  CHECK(tensor("\"F32\"", "[3]", "[4, 16]") ==
        "tensor 'a' begins at byte 4 after the header, expected 0: tensors overlap or leave a gap");
  CHECK(
      OpenError(temp, FileBytes(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},)"
                                R"("b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}})",
                                12))
          .starts_with("tensor 'b' begins at byte 4 after the header, expected 8"));
  CHECK(OpenError(temp, std::string("PK\3\4", 4) + std::string(60, '\0'))
            .starts_with("a file of torch.save, expected safetensors; in Python: "));
}

TEST_CASE("a file of another format is named, with what to do") {
  using namespace std::string_literals;
  TempFolder temp;
  const std::string gzip = "\x1f\x8b\x08\0\0\0\0\0\0\x03"s + std::string(600'000, 'x');
  for (const auto& [bytes, parts] : std::vector<std::pair<std::string, std::vector<const char*>>>{
           {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
            {"a pointer of Git LFS", "git lfs pull"}},
           {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20"s,
            {"a file of torch.save", "safetensors.torch"}},
           {gzip, {"a gzip file", "gunzip"}},
           {"\x89HDF\r\n\x1a\n\0\0"s, {"an HDF5 file", "expected a safetensors file"}},
           {"<!DOCTYPE html><html>", {"an HTML page", "download the file again"}}}) {
    const std::string message = OpenError(temp, bytes);
    for (const char* part : parts) CHECK_MESSAGE(message.find(part) != std::string::npos, message);
  }
}

// Two shards and their index, as Hugging Face writes them.
struct Shards {
  TempFolder temp;
  std::string index = temp.path() + "/model.safetensors.index.json";
  std::string first = temp.path() + "/model-00001-of-00002.safetensors";
  std::string second = temp.path() + "/model-00002-of-00002.safetensors";
  Shards() {
    const std::vector<float> weight{1, -2.5f, 3.25f}, mean{0.5f, -0.0f, 4};
    REQUIRE(WriteSafetensors(first, {{"format", "pt"}},
                             std::vector<NamedTensor>{{"fc.weight", {1, 3}, weight}})
                .ok());
    REQUIRE(WriteSafetensors(second, {}, std::vector<NamedTensor>{{"bn.running_mean", {3}, mean}})
                .ok());
    WriteIndex(R"({"metadata": {"total_size": 24}, "weight_map": {
      "bn.running_mean": "model-00002-of-00002.safetensors",
      "fc.weight": "model-00001-of-00002.safetensors"}})");
  }
  void WriteIndex(const std::string& text) const { std::ofstream(index) << text; }
};

TEST_CASE("shards are read by their folder, their index and each shard") {
  const Shards shards;
  const TensorLayout layout = HandMadeLayout();
  const std::vector<float> expected = HandMadeWeights(layout, 0);
  for (const std::string& path :
       {shards.temp.path(), shards.temp.path() + "/", shards.index, shards.first, shards.second}) {
    const Result<FloatBuffer> flat = ReadWeights(path, layout);
    REQUIRE_MESSAGE(flat.ok(), flat.status().message());
    CHECK(std::equal(expected.begin(), expected.end(), flat->span().begin()));
  }
  const TempFolder whole;  // one file has no index
  for (const char* name : {"model.safetensors", "model-00001-of-00001.safetensors"})
    std::filesystem::copy_file(shards.first, whole.path() + "/" + name);
  CHECK(SafetensorsFile::Open(whole.path())->tensors().size() == 1);
  CHECK(SafetensorsFile::Open(whole.path() + "/model-00001-of-00001.safetensors").ok());
}

TEST_CASE("shards that are missing, damaged or named by a wrong index are errors") {
  const Shards shards;
  const auto check = [&](StatusCode code, const std::vector<std::string>& parts) {
    const Status status = SafetensorsFile::Open(shards.temp.path()).status();
    CHECK(status.code() == code);
    for (const std::string& part : parts)
      CHECK_MESSAGE(status.message().find(part) != std::string::npos, status.message());
  };
  for (const char* text : {"", "[]", "{}", "{\"weight_map\": 1}", "{\"weight_map\": {}}",
                           "{\"weight_map\": {\"a\": 1}}", "{\"weight_map\": {\"a\": \"b.bin\"}}",
                           "{\"weight_map\": {\"a\": \"../model.safetensors\"}}"}) {
    shards.WriteIndex(text);
    check(StatusCode::kCorrupt, {"model.safetensors.index.json", "weight_map"});
  }
  const auto name = [](const std::string& tensor, const std::string& shard) {
    return "\"" + tensor + "\": \"model-0000" + shard + "-of-00002.safetensors\"";
  };
  shards.WriteIndex("{\"weight_map\": {" + name("fc.weight", "2") + "}}");
  check(StatusCode::kCorrupt, {"'fc.weight' is said to be in", "00002-of-00002", "lacks it"});
  shards.WriteIndex("{\"weight_map\": {" + name("fc.weight", "1") + "," +
                    name("bn.running_mean", "2") + "}}");
  std::filesystem::copy_file(shards.first, shards.second,
                             std::filesystem::copy_options::overwrite_existing);
  check(StatusCode::kCorrupt, {"'bn.running_mean' is said to be in"});
  std::ofstream(shards.second) << "version https://git-lfs.github.com/spec/v1\noid sha256:4d\n";
  check(StatusCode::kCorrupt, {"00002-of-00002.safetensors: it is a pointer of Git LFS"});
  std::filesystem::remove(shards.second);
  check(StatusCode::kNotFound, {"00002-of-00002.safetensors", "download all 2 shards"});
}

TEST_CASE("what is no file is an error") {
  TempFolder temp;
  CHECK(SafetensorsFile::Open(temp.path()).status().message() ==
        temp.path() + ": a folder, expected a file; `pando export` writes one of a run's weights");
  CHECK(SafetensorsFile::Open(temp.path() + "/none").status().code() == StatusCode::kNotFound);
}

TEST_CASE("cut and changed bytes of a file are errors or other values, never a crash") {
  TempFolder temp;
  const std::string path = temp.path() + "/w.safetensors";
  const TensorLayout layout = HandMadeLayout();
  REQUIRE(WriteWeights(path, layout, HandMadeWeights(layout, 0)).ok());
  std::ifstream file(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), {});
  for (size_t size = 0; size < whole.size(); ++size) {
    CHECK(OpenError(temp, whole.substr(0, size)) != "");
  }
  constexpr uint32_t kMutations = 4000;
  for (uint32_t i = 0; i < kMutations; ++i) {
    const PhiloxBlock draw = Philox4x32({i, 0, 0, 0}, {17, 0});
    std::string changed = whole;
    changed[draw[0] % changed.size()] = static_cast<char>(draw[1]);
    if (draw[2] % 2 == 0)
      changed.insert(draw[3] % changed.size(), 1, static_cast<char>(draw[2] >> 8));
    CAPTURE(i);
    OpenError(temp, changed);
  }
}

}  // namespace
}  // namespace pando
