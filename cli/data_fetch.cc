#include "cli/data_fetch.h"

#include <archive.h>
#include <archive_entry.h>
#include <curl/curl.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "common/atomic_file.h"
#include "common/text.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr long kConnectSeconds = 15;
constexpr long kSilentSeconds = 30;  // a transfer without bytes for this time is stopped
constexpr int kTriesMax = 5;         // per file; each try continues where the last one ended

struct PublishedFile {
  std::string name;
  uint64_t bytes = 0;
  std::string sha256;
};

struct Publication {
  std::string data_set;
  std::string base_url;
  std::vector<PublishedFile> files;
  // For an archive (one .tar.gz): the folder to which it unpacks, and the sizes of its files.
  std::string folder;
  std::map<std::string, uint64_t> unpacked_bytes;
  bool is_archive() const { return !unpacked_bytes.empty(); }
};

const std::vector<Publication>& Publications() {
  static const std::vector<Publication> kPublications{
      {"mnist",
       "https://ossci-datasets.s3.amazonaws.com/mnist",
       {{"train-images-idx3-ubyte.gz", 9912422,
         "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
        {"train-labels-idx1-ubyte.gz", 28881,
         "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
        {"t10k-images-idx3-ubyte.gz", 1648877,
         "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
        {"t10k-labels-idx1-ubyte.gz", 4542,
         "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"}}},
      {"fashion-mnist",
       "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
       {{"train-images-idx3-ubyte.gz", 26421880,
         "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
        {"train-labels-idx1-ubyte.gz", 29515,
         "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
        {"t10k-images-idx3-ubyte.gz", 4422102,
         "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
        {"t10k-labels-idx1-ubyte.gz", 5148,
         "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"}}},
      {"cifar10",
       "https://www.cs.toronto.edu/~kriz",
       {{"cifar-10-binary.tar.gz", 170052171,
         "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"}},
       "cifar-10-batches-bin",
       {{"data_batch_1.bin", 30'730'000},
        {"data_batch_2.bin", 30'730'000},
        {"data_batch_3.bin", 30'730'000},
        {"data_batch_4.bin", 30'730'000},
        {"data_batch_5.bin", 30'730'000},
        {"test_batch.bin", 30'730'000}}},
      {"cifar100",
       "https://www.cs.toronto.edu/~kriz",
       {{"cifar-100-binary.tar.gz", 168513733,
         "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"}},
       "cifar-100-binary",
       {{"train.bin", 153'700'000}, {"test.bin", 30'740'000}}}};
  return kPublications;
}

Result<std::string> Sha256OfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return FileError("cannot read", path, errno);
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                     &EVP_MD_CTX_free);
  bool ok = hash && EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1;
  std::vector<char> piece(size_t{1} << 20);
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())), file.gcount() > 0)
    ok = ok && EVP_DigestUpdate(hash.get(), piece.data(), static_cast<size_t>(file.gcount())) == 1;
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (!ok || EVP_DigestFinal_ex(hash.get(), digest.data(), &size) != 1) {
    return Internal("libcrypto computes no SHA-256 here: reinstall Debian's package libssl3");
  }
  return fmt::format("{:02x}", fmt::join(std::span(digest).first(size), ""));
}

uint64_t FileSize(const std::string& path) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

bool IsThere(const std::string& path, const PublishedFile& wanted) {
  if (FileSize(path) != wanted.bytes) return false;
  Result<std::string> hash = Sha256OfFile(path);
  return hash.ok() && *hash == wanted.sha256;
}

// The file to which a transfer appends, unbuffered. A taken byte is in it, unless `error` is set.
struct Sink {
  UniqueFd fd;
  uint64_t bytes_max = 0;  // one more than wanted, to recognise a longer file
  int error = 0;           // errno of the write that failed
};

size_t AppendToFile(char* bytes, size_t, size_t count, void* to) {
  Sink& sink = *static_cast<Sink*>(to);
  const size_t all = count;
  count = std::min(count, sink.bytes_max);
  sink.bytes_max -= count;
  for (size_t done = 0; done < count;) {
    const ssize_t put = write(sink.fd.get(), bytes + done, count - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      sink.error = errno;
      return 0;
    }
    done += static_cast<size_t>(put);
  }
  return count < all ? 0 : count;  // 0 ends the transfer
}

// The result of one try. `message` is curl's, if the try failed.
struct Try {
  CURLcode code = CURLE_OK;
  std::string message;
  bool is_all = false;  // the server announced the size, and all bytes arrived
};

// Appends a download to `part`, which then has at most one byte more than `wanted_bytes`.
Result<Try> Transfer(const std::string& url, const std::string& part, uint64_t wanted_bytes) {
  Sink sink{.fd = UniqueFd(open(part.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644)),
            .bytes_max = wanted_bytes + 1 - FileSize(part)};
  if (!sink.fd.is_open()) return FileError("cannot write", part, errno);
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 &curl_easy_cleanup);
  PANDO_CHECK(curl != nullptr);
  std::array<char, CURL_ERROR_SIZE> error{};
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "http,https,file");
  curl_easy_setopt(curl.get(), CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_TIME, kSilentSeconds);
  curl_easy_setopt(curl.get(), CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(FileSize(part)));
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, AppendToFile);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &sink);
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, error.data());
  const CURLcode code = curl_easy_perform(curl.get());
  if (sink.error != 0) return FileError("cannot write", part, sink.error);
  curl_off_t length = -1;
  curl_easy_getinfo(curl.get(), CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
  return Try{.code = code,
             .message = error[0] != 0 ? error.data() : curl_easy_strerror(code),
             .is_all = code == CURLE_OK && length >= 0};
}

// Downloads, and tries again as long as each try brings some bytes. Ok means that no more bytes
// exist, whether they are the wanted ones or not.
Status Download(const std::string& url, const std::string& part, const PublishedFile& wanted) {
  std::error_code ignored;
  std::string message;
  for (int attempt = 0; attempt < kTriesMax; ++attempt) {
    const uint64_t before = FileSize(part);
    if (before == wanted.bytes) return Status();
    if (before > wanted.bytes) fs::remove(part, ignored);
    PANDO_ASSIGN_OR_RETURN(Try last, Transfer(url, part, wanted.bytes));
    if (last.is_all || FileSize(part) >= wanted.bytes) return Status();
    message = last.code == CURLE_OK ? "the connection ended early" : last.message;
    const bool cannot_resume =
        last.code == CURLE_RANGE_ERROR || last.code == CURLE_BAD_DOWNLOAD_RESUME;
    if (cannot_resume) fs::remove(part, ignored);
    if (!cannot_resume && FileSize(part) <= before) break;
  }
  return Unavailable(fmt::format(
      "{}: {}; {} of {} bytes are kept: run the command again when there is a network, or bring "
      "the file from another machine",
      url, message, FileSize(part), wanted.bytes));
}

Status FetchFile(const FetchOptions& options, const std::string& base_url,
                 const PublishedFile& wanted) {
  const std::string path = options.folder + "/" + wanted.name;
  if (IsThere(path, wanted)) {
    options.tell(fmt::format("{} is there", path));
    return Status();
  }
  const std::string url = base_url + "/" + wanted.name;
  const std::string part = path + ".part";
  const uint64_t kept = FileSize(part);
  options.tell(
      kept == 0 ? fmt::format("fetching {} ({} bytes)", url, wanted.bytes)
                : fmt::format("fetching {} ({} bytes, from byte {} on)", url, wanted.bytes, kept));
  PANDO_RETURN_IF_ERROR(Download(url, part, wanted));
  PANDO_ASSIGN_OR_RETURN(std::string hash, Sha256OfFile(part));
  std::error_code error;
  if (hash != wanted.sha256) {
    const uint64_t size = FileSize(part);
    fs::remove(part, error);
    return Corrupt(fmt::format(
        "{}: {} bytes with sha256 {}, expected {} bytes with {}; removed: this is not the "
        "published file, try again or another --mirror",
        url, size, hash, wanted.bytes, wanted.sha256));
  }
  fs::rename(part, path, error);
  return error ? FileError("cannot write", path, error.value()) : Status();
}

// Returns whether all files exist. It compares sizes, so that a truncated file is fetched again.
bool IsUnpacked(const Publication& publication, const std::string& folder) {
  const auto holds_all = [&](const std::string& at) {
    return std::ranges::all_of(publication.unpacked_bytes, [&](const auto& file) {
      return FileSize(at + "/" + file.first) == file.second;
    });
  };
  std::error_code ignored;
  const std::string own = folder + "/" + publication.folder;  // is read first if it exists
  return holds_all(fs::is_directory(own, ignored) ? own : folder);
}

Status Unpack(const FetchOptions& options, const std::string& archive) {
  options.tell("unpacking " + archive);
  PANDO_RETURN_IF_ERROR(UnpackArchive(archive, options.folder));
  std::error_code ignored;  // an archive that stays is harmless
  fs::remove(archive, ignored);
  return Status();
}

bool LeadsOut(const fs::path& name) {
  return name.is_absolute() || std::ranges::find(name, "..") != name.end();
}

// Writes the reader's current entry to a file. `cut` is the error of a damaged archive.
Status UnpackFile(archive* reader, const fs::path& path, const Status& cut) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  PANDO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path.string()));
  std::vector<std::byte> piece(size_t{1} << 20);
  while (const la_ssize_t size = archive_read_data(reader, piece.data(), piece.size())) {
    if (size < 0) return cut;
    PANDO_RETURN_IF_ERROR(file.Write(std::span(piece).first(static_cast<size_t>(size))));
  }
  return file.Commit();
}

}  // namespace

Status UnpackArchive(const std::string& path, const std::string& folder) {
  const std::unique_ptr<archive, decltype(&archive_read_free)> reader(archive_read_new(),
                                                                      &archive_read_free);
  PANDO_CHECK(reader != nullptr);
  archive_read_support_filter_gzip(reader.get());
  archive_read_support_format_tar(reader.get());
  const Status cut = Corrupt(fmt::format("{}: not a whole .tar.gz; download it again", path));
  if (archive_read_open_filename(reader.get(), path.c_str(), size_t{1} << 16) != ARCHIVE_OK)
    return fs::exists(path) ? cut : FileError("cannot read", path, ENOENT);
  archive_entry* entry = nullptr;
  int result = ARCHIVE_OK;
  while ((result = archive_read_next_header(reader.get(), &entry)) == ARCHIVE_OK) {
    const char* name = archive_entry_pathname(entry);
    if (name == nullptr) return cut;
    if (LeadsOut(name)) {
      return Corrupt(fmt::format("{}: holds '{}', which leads out of its folder", path, name));
    }
    const bool is_link = archive_entry_hardlink(entry) != nullptr;
    if (is_link || archive_entry_filetype(entry) != AE_IFREG) continue;
    PANDO_RETURN_IF_ERROR(UnpackFile(reader.get(), fs::path(folder) / name, cut));
  }
  return result == ARCHIVE_EOF ? Status() : cut;
}

std::vector<std::string> FetchableDataSets() {
  std::vector<std::string> names;
  for (const Publication& publication : Publications()) names.push_back(publication.data_set);
  return names;
}

Status FetchDataSet(const FetchOptions& options) {
  const auto& all = Publications();
  const auto publication = std::ranges::find(all, options.name, &Publication::data_set);
  if (publication == all.end()) {
    const std::string question = DidYouMean(options.name, FetchableDataSets());
    return InvalidArgument(fmt::format("cannot fetch '{}': {}{}published are {}", options.name,
                                       question, question.empty() ? "" : " ",
                                       Joined(FetchableDataSets())));
  }
  if (publication->is_archive() && IsUnpacked(*publication, options.folder)) {
    options.tell(fmt::format("{} holds {} already", options.folder, options.name));
    return Status();
  }
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error) return FileError("cannot make", options.folder, error.value());
  curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::string base = options.mirror.empty() ? publication->base_url : options.mirror;
  for (const PublishedFile& file : publication->files)
    PANDO_RETURN_IF_ERROR(FetchFile(options, base, file));
  if (!publication->is_archive()) return Status();
  return Unpack(options, options.folder + "/" + publication->files[0].name);
}

}  // namespace pando
