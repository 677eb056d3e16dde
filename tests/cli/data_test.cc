#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "cli/data_fetch.h"
#include "cli/data_inspect.h"
#include "common/unique_fd.h"
#include "data/picture_file.h"
#include "job/job_file.h"
#include "tests/contains.h"
#include "tests/file_size_limit.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

void Write(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string Read(const std::string& path) { return *ReadTextFile(path); }

// ---- fetch --------------------------------------------------------------------------------------

// The published files of MNIST as a mirror on this machine; empty, loudly, where they are not.
std::string MnistMirror() {
  const char* root = std::getenv("PANDO_TEST_DATA");
  const std::string folder = root == nullptr ? "" : fs::absolute(root).string() + "/mnist";
  if (root != nullptr && HoldsDataSet("mnist", folder)) return "file://" + folder;
  MESSAGE("SKIPPED: PANDO_TEST_DATA does not hold mnist");
  return "";
}

struct Fetched {
  Status status;
  std::vector<std::string> lines;
};

Fetched Fetch(const std::string& name, const std::string& folder, const std::string& mirror) {
  Fetched fetched;
  fetched.status = FetchDataSet(
      {name, folder, mirror, [&](const std::string& line) { fetched.lines.push_back(line); }});
  return fetched;
}

TEST_CASE("a data set is fetched, goes on where a try broke off, and is not fetched twice") {
  const std::string mirror = MnistMirror();
  if (mirror.empty()) return;
  TempFolder temp;
  const std::string folder = temp.path() + "/data/mnist";
  const std::string file = folder + "/train-labels-idx1-ubyte.gz";
  const std::string original = Read(mirror.substr(7) + "/train-labels-idx1-ubyte.gz");
  Write(file + ".part", original.substr(0, 1000));
  const Fetched first = Fetch("mnist", folder, mirror);
  REQUIRE_MESSAGE(first.status.ok(), first.status.message());
  CHECK(HoldsDataSet("mnist", folder));
  CHECK(Read(file) == original);
  CHECK(Contains(first.lines[1], "from byte 1000 on"));
  CHECK_FALSE(fs::exists(file + ".part"));
  const Fetched second = Fetch("mnist", folder, mirror);
  CHECK(second.status.ok());
  for (const std::string& line : second.lines) CHECK(Contains(line, "is there"));
}

TEST_CASE("a file that is not the published one is named, refused and removed") {
  TempFolder temp;
  const std::string mirror = temp.path() + "/mirror";
  Write(mirror + "/train-images-idx3-ubyte.gz", "<html>not found</html>");
  const std::string folder = temp.path() + "/mnist";
  const Status status = Fetch("mnist", folder, "file://" + mirror).status;
  CHECK(status.code() == StatusCode::kCorrupt);
  CHECK(Contains(status.message(), "train-images-idx3-ubyte.gz"));
  CHECK(Contains(status.message(), "22 bytes"));
  CHECK(Contains(status.message(), "440fcabf"));
  CHECK(fs::is_empty(folder));
}

TEST_CASE("a fetch without a network is an error, and existing files are kept") {
  TempFolder temp;
  const std::string part = temp.path() + "/cifar-10-binary.tar.gz.part";
  Write(part, "begun");
  // Port 1 of this machine does not answer.
  const Status status = Fetch("cifar10", temp.path(), "http://127.0.0.1:1").status;
  CHECK(status.code() == StatusCode::kUnavailable);
  CHECK(Contains(status.message(), "http://127.0.0.1:1/cifar-10-binary.tar.gz"));
  CHECK(Contains(status.message(), "5 of 170052171 bytes are kept"));
  CHECK(Contains(status.message(), "network"));
  CHECK(status.message().find('\n') == std::string::npos);
  CHECK(Read(part) == "begun");
}

TEST_CASE("an unpacked archive is not fetched again, unless one of its files was cut") {
  TempFolder temp;
  const std::string folder = temp.path() + "/cifar-100-binary";
  for (const auto& [name, bytes] :
       {std::pair("train.bin", 153'700'000), {"test.bin", 30'740'000}}) {
    Write(folder + "/" + name, "");
    fs::resize_file(folder + "/" + name, static_cast<uintmax_t>(bytes));  // sparse
  }
  const std::string nowhere = "file://" + temp.path() + "/nowhere";
  const Fetched whole = Fetch("cifar100", temp.path(), nowhere);
  REQUIRE_MESSAGE(whole.status.ok(), whole.status.message());
  CHECK(Contains(whole.lines[0], "holds cifar100 already"));
  fs::resize_file(folder + "/test.bin", 30'740'000 - 3074);
  CHECK(Fetch("cifar100", temp.path(), nowhere).status.code() == StatusCode::kUnavailable);
}

TEST_CASE("a full disk is named, and existing files are kept") {
  const std::string mirror = MnistMirror();
  if (mirror.empty()) return;
  TempFolder temp;
  Status status;
  {
    const FileSizeLimit limit(5000);
    status = Fetch("mnist", temp.path(), mirror).status;
  }
  CHECK(Contains(status.message(), "cannot write"));
  CHECK(Contains(status.message(), "train-images-idx3-ubyte.gz.part"));
  CHECK(fs::file_size(temp.path() + "/train-images-idx3-ubyte.gz.part") == 5000);
}

// ---- a mirror on this machine -------------------------------------------------------------------

// Answers GET requests from a folder, one connection at a time, each of which serves one request.
// Threads: its own; it ends with the object.
class Mirror {
 public:
  struct Manner {
    bool takes_ranges = true;
    size_t bytes_max = SIZE_MAX;  // of a body: then the connection breaks
    bool says_length = true;
  };
  Mirror(std::string folder, Manner manner) : folder_(std::move(folder)), manner_(manner) {
    listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(listener_.get(), 8) == 0);
    socklen_t size = sizeof(address);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { Serve(); });
  }
  ~Mirror() {
    shutdown(listener_.get(), SHUT_RDWR);  // accept returns
    thread_.join();
  }
  Mirror(const Mirror&) = delete;
  const std::string& url() const { return url_; }
  std::vector<std::string> requests() const {
    std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void Serve() {
    while (true) {
      const UniqueFd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!peer.is_open()) return;
      std::string request(8192, '\0');
      request.resize(static_cast<size_t>(
          std::max<ssize_t>(0, recv(peer.get(), request.data(), request.size(), 0))));
      {
        std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      const std::string answer = AnswerTo(request);
      for (size_t done = 0; done < answer.size();) {
        const ssize_t put =
            send(peer.get(), answer.data() + done, answer.size() - done, MSG_NOSIGNAL);
        if (put <= 0) break;
        done += static_cast<size_t>(put);
      }
    }
  }
  std::string AnswerTo(const std::string& request) const {
    const size_t name = request.find('/');
    const std::string path = folder_ + request.substr(name, request.find(' ', name) - name);
    const std::string whole = Read(path);
    const size_t range = request.find("Range: bytes=");
    const bool is_part = manner_.takes_ranges && range != std::string::npos;
    const size_t first = is_part ? std::stoul(request.substr(range + 13)) : 0;
    std::string head = is_part ? "HTTP/1.1 206 Partial Content\r\n" : "HTTP/1.1 200 OK\r\n";
    if (is_part) {
      head += "Content-Range: bytes " + std::to_string(first) + "-" +
              std::to_string(whole.size() - 1) + "/" + std::to_string(whole.size()) + "\r\n";
    }
    if (manner_.says_length)
      head += "Content-Length: " + std::to_string(whole.size() - first) + "\r\n";
    return head + "Connection: close\r\n\r\n" + whole.substr(first, manner_.bytes_max);
  }

  const std::string folder_;
  const Manner manner_;
  UniqueFd listener_;
  std::string url_;
  mutable std::mutex mutex_;  // guards requests_
  std::vector<std::string> requests_;
  std::thread thread_;
};

std::string ReadLabels(const std::string& folder) {
  return Read(folder + "/train-labels-idx1-ubyte.gz");
}

TEST_CASE("a fetch goes on where a connection broke, with or without a length") {
  const std::string mirror = MnistMirror();
  if (mirror.empty()) return;
  const std::string original = mirror.substr(7);
  for (bool says_length : {true, false}) {
    TempFolder temp;
    // All but 10,000 bytes are there: the rest comes in three pieces.
    const std::string images = Read(original + "/train-images-idx3-ubyte.gz");
    Write(temp.path() + "/train-images-idx3-ubyte.gz.part",
          images.substr(0, images.size() - 10000));
    Mirror server(original, {.bytes_max = 4000, .says_length = says_length});
    const Fetched fetched = Fetch("mnist", temp.path(), server.url());
    // The next file is too long for five pieces, and what came of it is kept.
    CHECK(Read(temp.path() + "/train-images-idx3-ubyte.gz") == images);
    CHECK(fetched.status.code() == StatusCode::kUnavailable);
    CHECK(Contains(fetched.status.message(), "20000 of 28881 bytes are kept"));
    CHECK(Contains(server.requests()[1], "Range: bytes=" + std::to_string(images.size() - 6000)));
    CHECK(Fetch("mnist", temp.path(), server.url()).status.code() == StatusCode::kUnavailable);
    CHECK(ReadLabels(temp.path()) == ReadLabels(original));
  }
}

TEST_CASE("where the mirror takes no ranges a file is fetched from its beginning") {
  const std::string mirror = MnistMirror();
  if (mirror.empty()) return;
  TempFolder temp;
  const std::string original = mirror.substr(7);
  Write(temp.path() + "/train-labels-idx1-ubyte.gz.part", ReadLabels(original).substr(0, 1000));
  Mirror server(original, {.takes_ranges = false});
  const Status status = Fetch("mnist", temp.path(), server.url()).status;
  REQUIRE_MESSAGE(status.ok(), status.message());
  CHECK(ReadLabels(temp.path()) == ReadLabels(original));
}

TEST_CASE("of a file that is longer than the published one no more is taken") {
  constexpr uint64_t kPublishedBytes = 9912422;
  const TempFolder temp;
  Write(temp.path() + "/mirror/train-images-idx3-ubyte.gz", std::string(4 * kPublishedBytes, 'x'));
  for (bool says_length : {true, false}) {
    const Mirror server(temp.path() + "/mirror", {.says_length = says_length});
    Status status;
    {
      const FileSizeLimit limit(kPublishedBytes + 1);  // a longer file could not be written
      status = Fetch("mnist", temp.path() + "/mnist", server.url()).status;
    }
    CHECK(status.code() == StatusCode::kCorrupt);
    CHECK(Contains(status.message(), "9912423 bytes with sha256"));
    CHECK(Contains(status.message(), "this is not the published file"));
    CHECK_FALSE(fs::exists(temp.path() + "/mnist/train-images-idx3-ubyte.gz.part"));
  }
}

TEST_CASE("what cannot be fetched is named with what can") {
  const Status status = Fetch("cifar-10", "unused", "").status;
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(Contains(status.message(), "did you mean 'cifar10'"));
  CHECK_FALSE(fs::exists("unused"));
}

// ---- archives -----------------------------------------------------------------------------------

// One entry of a tar file: header and bytes, padded to blocks.
std::string TarEntry(const std::string& name, const std::string& bytes, char type = '0') {
  std::string header(512, '\0');
  std::memcpy(header.data(), name.data(), name.size());
  std::snprintf(&header[124], 12, "%011o", static_cast<unsigned>(bytes.size()));
  header[156] = type;
  header.replace(148, 8, 8, ' ');  // the sum counts its own field as spaces
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(&header[148], 8, "%06o", sum);
  std::string padded = bytes;
  padded.resize((bytes.size() + 511) / 512 * 512);
  return header + padded;
}

void WriteGz(const std::string& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) ==
          static_cast<int>(bytes.size()));
  gzclose(file);
}

TEST_CASE("an archive's files come out whole, its links do not") {
  TempFolder temp;
  const std::string archive = temp.path() + "/a.tar.gz";
  const std::string large(1'500'000, 'x');
  WriteGz(archive, TarEntry("d/", "", '5') + TarEntry("d/large", large) + TarEntry("d/empty", "") +
                       TarEntry("d/link", "", '2') + TarEntry("d/small", "abc") +
                       std::string(1024, '\0'));
  const Status status = UnpackArchive(archive, temp.path() + "/out");
  REQUIRE_MESSAGE(status.ok(), status.message());
  CHECK(Read(temp.path() + "/out/d/large") == large);
  CHECK(Read(temp.path() + "/out/d/empty").empty());
  CHECK(Read(temp.path() + "/out/d/small") == "abc");
  CHECK_FALSE(fs::exists(temp.path() + "/out/d/link"));
}

TEST_CASE("an archive that is cut, or leads out of its folder, is an error") {
  TempFolder temp;
  const std::string archive = temp.path() + "/a.tar.gz";
  for (const char* name : {"../evil", "/tmp/evil", "d/../../evil"}) {
    WriteGz(archive, TarEntry(name, "abc") + std::string(1024, '\0'));
    CHECK(Contains(UnpackArchive(archive, temp.path() + "/out").message(), "leads out"));
  }
  const std::string whole = TarEntry("a", std::string(1000, 'x')) + std::string(1024, '\0');
  for (size_t size : {size_t{0}, size_t{511}, size_t{512}, size_t{1000}, size_t{1535}}) {
    WriteGz(archive, whole.substr(0, size));
    const Status status = UnpackArchive(archive, temp.path() + "/out");
    CHECK(status.code() == StatusCode::kCorrupt);
    CHECK_FALSE(fs::exists(temp.path() + "/out/a"));
  }
}

// ---- inspect ------------------------------------------------------------------------------------

TEST_CASE("a data set is described by its counts, its classes and its moments") {
  Job job;
  job.dataset = "synthetic-digits";
  job.synthetic_train_samples = 500;
  job.synthetic_test_samples = 20;
  auto data = OpenDataSet(job);
  REQUIRE(data.ok());
  Result<std::string> text = DescribeData(**data);
  REQUIRE(text.ok());
  for (const char* part : {"500 training samples, 20 test samples, 10 classes",
                           "28 x 28 pixels, 1 channels", "500 training pictures", "mean 0.1"}) {
    CHECK_MESSAGE(Contains(*text, part), *text);
  }
  CHECK(Contains(*text, "7                                50          2\n"));
}

TEST_CASE("a table is described by its columns' moments") {
  TempFolder temp;
  std::string rows = "u,g,class\n";
  for (int i = 0; i < 10; ++i) rows += i % 2 == 0 ? "1,10,STAR\n" : "3,10,QSO\n";
  Write(temp.path() + "/train.csv", rows);
  Write(temp.path() + "/test.csv", rows);
  Job job;
  job.dataset = "sdss";
  job.data_path = temp.path();
  job.columns = {"u", "g"};
  auto data = OpenDataSet(job);
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  Result<std::string> text = DescribeData(**data);
  REQUIRE(text.ok());
  CHECK(Contains(*text, "column u: mean 2, deviation 1 (of the training rows)"));
  CHECK(Contains(*text, "column g: constant in the training rows"));
}

TEST_CASE("a folder is described by what is ignored and left out") {
  TempFolder temp;
  const std::vector<uint8_t> pixels(8 * 8 * 3, 60);
  for (const char* folder : {"train/a", "train/b", "val/a", "val/b"}) {
    fs::create_directories(temp.path() + "/" + folder);
    for (const char* name : {"0.png", "1.png"}) {
      const std::string path = temp.path() + "/" + folder + "/" + name;
      REQUIRE(WritePng(path, {pixels.data(), 8, 8, 3}).ok());
    }
  }
  const std::string bad = temp.path() + "/train/b/1.png";
  fs::resize_file(bad, fs::file_size(bad) - 20);
  fs::create_directories(temp.path() + "/train/.ipynb_checkpoints");
  Write(temp.path() + "/train/a/notes.txt", "not a picture");
  Write(temp.path() + "/skip.txt", "train/b/1.png\tit is cut off\n");
  Job job;
  job.dataset = "imagefolder";
  job.data_path = temp.path();
  job.resize = 8;
  auto data = OpenDataSet(job);
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  CHECK(Contains(DescribeData(**data).status().message(), "train/b/1.png: a PNG file"));
  job.skip_list = "skip.txt";
  auto skipping = OpenDataSet(job);
  REQUIRE_MESSAGE(skipping.ok(), skipping.status().message());
  Result<std::string> text = DescribeData(**skipping);
  REQUIRE_MESSAGE(text.ok(), text.status().message());
  CHECK(Contains(*text, "3 training samples"));
  CHECK(Contains(*text, "1 files are ignored"));
  CHECK(Contains(*text, "1 pictures are left out"));
  CHECK(Contains(*text, "1 not read: 'train/.ipynb_checkpoints' is a hidden folder"));
}

TEST_CASE("a contact sheet has a row for each class") {
  TempFolder temp;
  Job job;
  job.dataset = "synthetic-digits";
  job.synthetic_train_samples = 200;
  auto data = OpenDataSet(job);
  REQUIRE(data.ok());
  const std::string path = temp.path() + "/sheet.png";
  REQUIRE(WriteContactSheet(**data, path).ok());
  DecodedPicture sheet;
  REQUIRE(DecodePicture(*ReadFileBytes(path), 1, &sheet).ok());
  CHECK(sheet.height == 280);
  CHECK(sheet.width == 280);
  // Row 3, column 4 is the fifth picture of class 3: sample 43.
  Batch batch;
  REQUIRE((*data)->Read({Split::kTrain, std::vector<uint64_t>{43}}, &batch).ok());
  for (size_t y = 0; y < 28; ++y) {
    for (size_t x = 0; x < 28; ++x)
      REQUIRE(sheet.pixels[((3 * 28 + y) * 280 + 4 * 28 + x) * 3] == batch.bytes[y * 28 + x]);
  }
}

}  // namespace
}  // namespace pando
