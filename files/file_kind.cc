#include "files/file_kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace pando {
namespace {

using namespace std::string_view_literals;

constexpr size_t kAnywhere = std::string_view::npos;
constexpr std::string_view kConvert = "mogrify -format png FILE (ImageMagick)";
constexpr const char* kPage =
    "a server's answer may have been saved in its place: download the file again";

struct Kind {
  size_t place;  // the mark's offset in the file
  std::string_view mark;
  const char* name;
  std::string_view advice = "";  // pandas' reader, kConvert, or advice for each use
};

// If several marks match, the first one in the table counts.
constexpr auto kBinaryKinds = std::to_array<Kind>(
    {{0, "PAR1", "a Parquet file", "read_parquet"},
     {0, "ARROW1", "an Arrow or Feather file", "read_feather"},
     {0, "\x89HDF", "an HDF5 file", "read_hdf"},
     {0, "\x93NUMPY", "a NumPy file", "DataFrame(numpy.load"},
     {0, "SQLite format 3", "an SQLite database",
      "read_sql(\"SELECT * FROM TABLE\", sqlite3.connect"},
     {0, "\xd0\xcf\x11\xe0", "an Excel workbook (.xls)", "read_excel"},
     {kAnywhere, "[Content_Types].xml", "an Excel workbook (.xlsx)", "read_excel"},
     {kAnywhere, "docProps/app.xml", "an Excel workbook (.xlsx)", "read_excel"},
     {0, "PK\x03\x04", "a zip archive", "unpack it: unzip FILE"},
     {0, "\x1f\x8b", "a gzip file", "unpack it: gunzip -k FILE"},
     {4, "1AY&SY", "a bzip2 file", "unpack it: bunzip2 -k FILE"},
     {0,
      "\xfd"
      "7zXZ",
      "an xz file", "unpack it: unxz -k FILE"},
     {0, "\x28\xb5\x2f\xfd", "a zstd file", "unpack it: zstd -d FILE"},
     {257, "ustar", "a tar archive", "unpack it: tar -xf FILE"},
     {0, "\x80", "a file of Python's pickle", "read_pickle"},
     {0, "\x89PNG", "a PNG picture"},
     {0, "\xff\xd8\xff", "a JPEG picture"},
     {0, "GIF8", "a GIF picture", kConvert},
     {0, "BM", "a BMP picture", kConvert},
     {0, "II*\0"sv, "a TIFF picture", kConvert},
     {0, "MM\0*"sv, "a TIFF picture", kConvert},
     {8, "WEBP", "a WebP picture", kConvert},
     {4, "ftyp", "a HEIC or AVIF picture, or a video", kConvert}});

// Marks in lower case. They are compared with the text after its byte order mark and blanks.
constexpr auto kTextKinds = std::to_array<Kind>(
    {{0, "version https://git-lfs", "a pointer of Git LFS", "fetch the file itself: git lfs pull"},
     {0, "<svg", "an SVG drawing", kConvert},
     {0, "<!doctype", "an HTML page", kPage},
     {0, "<html", "an HTML page", kPage},
     {0, "<?xml", "an XML file", kPage},
     {0, "%pdf", "a PDF document"},
     {0, "{\"", "a JSON file", "read_json"},
     {0, "[{", "a JSON file", "read_json"}});

const Kind* FindIn(const auto& kinds, std::string_view head) {
  const auto kind = std::ranges::find_if(kinds, [&](const Kind& k) {
    const size_t at = head.find(k.mark, k.place == kAnywhere ? 0 : k.place);
    return at != head.npos && (k.place == kAnywhere || at == k.place);
  });
  return kind == kinds.end() ? nullptr : &*kind;
}

// Returns whether the bytes are text: a column's name may begin with a mark made of letters.
bool IsText(std::string_view head) {
  const auto is_control = [](char c) { return (c >= 0 && c < '\t') || (c > '\r' && c < ' '); };
  return !head.empty() && head[0] >= ' ' && std::ranges::none_of(head, is_control);
}

const Kind* FindKind(std::string_view head) {
  std::string_view text = head.substr(head.starts_with("\xef\xbb\xbf") ? 3 : 0);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  std::string folded(text);
  for (char& c : folded) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const Kind* kind = FindIn(kTextKinds, folded);
  if (kind == nullptr) return IsText(head) ? nullptr : FindIn(kBinaryKinds, head);
  return folded.starts_with("<?xml") && folded.find("<svg") != folded.npos ? &kTextKinds[1] : kind;
}

std::string Advice(const Kind& kind, FileUse use) {
  if (kind.advice.empty() || (kind.advice == kConvert && use != FileUse::kPicture)) return "";
  if (!kind.advice.starts_with("read_") && !kind.advice.starts_with("DataFrame"))
    return fmt::format("; {}", kind.advice);
  if (use != FileUse::kTable) return "";
  const bool is_nested = kind.advice.find('(') != std::string_view::npos;
  return fmt::format(
      "; convert it, in Python: pandas.{}(\"FILE\"){}.to_csv(\"FILE.csv\", "
      "index=False)",
      kind.advice, is_nested ? ")" : "");
}

}  // namespace

std::string NameOtherKind(std::string_view head, FileUse use) {
  constexpr auto kExpected = std::to_array<const char*>(
      {"a CSV file", "a JPEG or PNG picture", "a safetensors file", "an idx file"});
  const Kind* kind = FindKind(head.substr(0, kFileHeadBytes));
  if (kind == nullptr) return "";
  return fmt::format("it is {}, expected {}{}", kind->name, kExpected[static_cast<size_t>(use)],
                     Advice(*kind, use));
}

}  // namespace pando
