#include "files/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>

namespace pando {
namespace {

using namespace std::string_view_literals;

enum class Group : uint8_t { kTable, kPicture, kPacked, kPickle, kPointer, kPage, kOther };

struct Kind {
  size_t place;  // of the mark in the file
  std::string_view mark;
  const char* name;
  Group group = Group::kOther;
  const char* detail = "";  // a table's reader in pandas, a command that unpacks or fetches
};

// Of several marks the first one counts.
constexpr auto kBinaryKinds = std::to_array<Kind>({
    {0, "PAR1", "a Parquet file", Group::kTable, "pandas.read_parquet(\"FILE\")"},
    {0, "ARROW1", "an Arrow or Feather file", Group::kTable, "pandas.read_feather(\"FILE\")"},
    {0, "FEA1", "a Feather file", Group::kTable, "pandas.read_feather(\"FILE\")"},
    {0, "ORC", "an ORC file", Group::kTable, "pandas.read_orc(\"FILE\")"},
    {0, "Obj\x01", "an Avro file"},
    {0, "\x89HDF\r\n\x1a\n", "an HDF5 file", Group::kTable, "pandas.read_hdf(\"FILE\")"},
    {0, "\x93NUMPY", "a NumPy file (.npy)", Group::kTable,
     "pandas.DataFrame(numpy.load(\"FILE\"))"},
    {0, "SQLite format 3", "an SQLite database", Group::kTable,
     "pandas.read_sql(\"SELECT * FROM TABLE\", sqlite3.connect(\"FILE\"))"},
    {0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook (.xls)", Group::kTable,
     "pandas.read_excel(\"FILE\")"},
    {30, "[Content_Types].xml", "an Excel workbook (.xlsx)", Group::kTable,
     "pandas.read_excel(\"FILE\")"},
    {30, "docProps/", "an Excel workbook (.xlsx)", Group::kTable, "pandas.read_excel(\"FILE\")"},
    {30, "_rels/", "an Excel workbook (.xlsx)", Group::kTable, "pandas.read_excel(\"FILE\")"},
    {30, "xl/", "an Excel workbook (.xlsx)", Group::kTable, "pandas.read_excel(\"FILE\")"},
    {30, "mimetypeapplication/vnd.oasis", "an OpenDocument sheet (.ods)", Group::kTable,
     "pandas.read_excel(\"FILE\")"},
    {0, "PK\x03\x04", "a zip archive", Group::kPacked, "unzip"},
    {0, "PK\x05\x06", "an empty zip archive"},
    {0, "\x1f\x8b", "a gzip file", Group::kPacked, "gunzip -k"},
    {4, "1AY&SY", "a bzip2 file", Group::kPacked, "bunzip2 -k"},
    {0,
     "\xfd"
     "7zXZ",
     "an xz file", Group::kPacked, "unxz -k"},
    {0, "\x28\xb5\x2f\xfd", "a zstd file", Group::kPacked, "zstd -d"},
    {0, "\x04\x22\x4d\x18", "an lz4 file", Group::kPacked, "lz4 -d"},
    {0, "7z\xbc\xaf\x27\x1c", "a 7-Zip archive", Group::kPacked, "7z x"},
    {0, "Rar!\x1a", "a RAR archive", Group::kPacked, "unrar x"},
    {257, "ustar", "a tar archive", Group::kPacked, "tar -xf"},
    {0, "\x80\x02", "a file of Python's pickle", Group::kPickle},
    {0, "\x80\x03", "a file of Python's pickle", Group::kPickle},
    {0, "\x80\x04", "a file of Python's pickle", Group::kPickle},
    {0, "\x80\x05", "a file of Python's pickle", Group::kPickle},
    {0, "GGUF", "a GGUF file"},
    {0, "\x89PNG", "a PNG picture", Group::kPicture},
    {0, "\xff\xd8\xff", "a JPEG picture", Group::kPicture},
    {0, "GIF8", "a GIF picture", Group::kPicture},
    {0, "BM", "a BMP picture", Group::kPicture},
    {0, "II*\0"sv, "a TIFF picture", Group::kPicture},
    {0, "MM\0*"sv, "a TIFF picture", Group::kPicture},
    {8, "WEBP", "a WebP picture", Group::kPicture},
    {4, "ftypavi", "an AVIF picture", Group::kPicture},
    {4, "ftyphe", "a HEIC picture", Group::kPicture},
    {4, "ftypmif1", "a HEIC or AVIF picture", Group::kPicture},
    {4, "ftypmsf1", "a HEIC or AVIF picture", Group::kPicture},
    {4, "ftyp", "a video (MP4)"},
    {4, "jP  \r\n", "a JPEG 2000 picture", Group::kPicture},
    {4, "JXL ", "a JPEG XL picture", Group::kPicture},
    {0, "\xff\x0a", "a JPEG XL picture", Group::kPicture},
    {0, "8BPS", "a Photoshop picture", Group::kPicture},
    {0, "\0\0\1\0"sv, "an icon (.ico)", Group::kPicture},
    {0, "%PDF", "a PDF document"},
});

// In lower case, without blanks and a byte order mark before the text.
constexpr auto kTextKinds = std::to_array<Kind>({
    {0, "version https://git-lfs", "a pointer of Git LFS", Group::kPointer, "git lfs pull"},
    {0, "/annex/objects/", "a pointer of git-annex", Group::kPointer, "git annex get FILE"},
    {0, "<!doctype", "an HTML page", Group::kPage},
    {0, "<html", "an HTML page", Group::kPage},
    {0, "<head", "an HTML page", Group::kPage},
    {0, "<svg", "an SVG drawing", Group::kPicture},
    {0, "<?xml", "an XML file", Group::kPage},
    {0, "%pdf", "a PDF document"},
    {0, "{\"", "a JSON file", Group::kTable, "pandas.read_json(\"FILE\")"},
    {0, "[{", "a JSON file", Group::kTable, "pandas.read_json(\"FILE\")"},
    {0, "{\n", "a JSON file", Group::kTable, "pandas.read_json(\"FILE\")"},
    {0, "@relation", "an ARFF file", Group::kTable,
     "pandas.DataFrame(scipy.io.arff.loadarff(\"FILE\")[0])"},
});

const Kind* FindIn(const auto& kinds, std::string_view head) {
  const auto kind = std::ranges::find_if(kinds, [&](const Kind& k) {
    return head.size() >= k.place && head.substr(k.place).starts_with(k.mark);
  });
  return kind == kinds.end() ? nullptr : &*kind;
}

// A mark of letters may begin a text, such as the name of a column.
bool IsText(std::string_view head) {
  const auto is_control = [](char c) { return (c >= 0 && c < '\t') || (c > '\r' && c < ' '); };
  return !head.empty() && head[0] >= ' ' && std::ranges::none_of(head, is_control);
}

std::string Folded(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  std::string folded(text);
  for (char& c : folded) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return folded;
}

const Kind* FindKind(std::string_view head) {
  static constexpr Kind kSvg{0, "<svg", "an SVG drawing", Group::kPicture};
  const std::string text = Folded(head);
  const Kind* kind = FindIn(kTextKinds, text);
  if (kind == nullptr) return IsText(head) ? nullptr : FindIn(kBinaryKinds, head);
  return kind->group == Group::kPage && text.find(kSvg.mark) != text.npos ? &kSvg : kind;
}

std::string Advice(const Kind& kind, FileUse use) {
  const bool is_table = use == FileUse::kTable;
  switch (kind.group) {
    case Group::kTable:
      if (!is_table) return "";
      return fmt::format("; convert it, in Python: {}.to_csv(\"FILE.csv\", index=False)",
                         kind.detail);
    case Group::kPickle:
      if (is_table)
        return "; convert it, in Python: pandas.read_pickle(\"FILE\").to_csv(\"FILE.csv\", "
               "index=False)";
      return use == FileUse::kWeights
                 ? "; if it is of torch.save, in Python: safetensors.torch.save_file("
                   "model.state_dict(), \"weights.safetensors\")"
                 : "";
    case Group::kPicture:
      return use == FileUse::kPicture ? "; convert it: mogrify -format png FILE (ImageMagick)" : "";
    case Group::kPacked:
      return fmt::format("; unpack it: {} FILE", kind.detail);
    case Group::kPointer:
      return fmt::format("; fetch the file itself: {}", kind.detail);
    case Group::kPage:
      return "; a server's answer may have been saved in its place: download the file again";
    case Group::kOther:
      break;
  }
  return "";
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

bool IsOtherKind(const std::string& path, FileUse use) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, kFileHeadBytes> head{};
  file.read(head.data(), head.size());
  return !NameOtherKind({head.data(), static_cast<size_t>(file.gcount())}, use).empty();
}

}  // namespace pando
