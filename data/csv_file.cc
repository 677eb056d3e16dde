#include "data/csv_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "common/text.h"
#include "data/ascii_form.h"
#include "data/csv_suspects.h"
#include "data/unit_counter.h"
#include "files/file_kind.h"

namespace pando {
namespace {

// "+0.5" is a number, and so is 1e-400, which becomes 0. A number beyond doubles is infinity.
std::optional<double> ReadNumber(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc()) return std::isfinite(number) ? std::optional(number) : std::nullopt;
  return std::strtod(std::string(text).c_str(), nullptr);
}

Result<std::vector<size_t>> FindAll(const CsvFile& file, const std::vector<std::string>& names) {
  std::vector<size_t> places;
  for (const std::string& name : names) {
    PANDO_ASSIGN_OR_RETURN(size_t place, file.Find(name, "data.columns"));
    places.push_back(place);
  }
  return places;
}

using Fields = UnitCounter::Found;  // the fields of one kind in a column

struct Kinds {
  Fields numbers;
  Fields suspects;    // words that look like numbers
  Fields words;       // other words
  UnitCounter units;  // among the words

  void Add(const std::string& text, uint64_t line) {
    if (IsMissing(text)) return;
    Fields& fields = ReadNumber(text) ? numbers : SuspectNumber(text).empty() ? words : suspects;
    if (fields.count++ == 0) fields = {1, line, text};
    if (&fields == &words) units.Add(text, line);
  }
  bool has_words() const { return words.count + suspects.count > 0; }
};

// Writes a field for an error.
std::string Shown(const std::string& text) { return Printable(AsUtf8(text)); }

struct Place {  // a field's place
  const CsvFile& file;
  const std::string& column;
  std::string Text() const {
    return fmt::format("{}: line {}: column '{}'", file.path(), file.line(), column);
  }
};

constexpr const char* kHowLatin1 =
    "is the file Latin-1 or Windows-1252? convert it: iconv -f WINDOWS-1252 -t UTF-8";
constexpr const char* kHowUnits =
    "they look like numbers with a unit; write the numbers alone, or, if they are names, each with "
    "a letter in front (n5 kg)";
constexpr const char* kHowMixed =
    "a column holds numbers or categories; if it stands for a missing value, write NA "
    "(data.missing)";
constexpr const char* kHowMissing =
    "data.missing (--missing mean, --missing category) says what a missing value becomes";

Result<double> TakeNumber(const Place& place, const std::string& text, MissingValues missing) {
  if (IsMissing(text)) {
    if (missing != MissingValues::kError) return std::numeric_limits<double>::quiet_NaN();
    return Corrupt(
        fmt::format("{} holds '{}', expected a number; {}", place.Text(), text, kHowMissing));
  }
  const std::optional<double> number = ReadNumber(text);
  if (!number) {
    const std::string suspect = SuspectNumber(text);
    return Corrupt(fmt::format("{} holds '{}', expected a number{}{}", place.Text(), Shown(text),
                               suspect.empty() ? "" : "; ", suspect));
  }
  if (std::abs(*number) <= kCsvNumberMax) return *number;
  return Corrupt(fmt::format(
      "{} holds '{}', expected a number from -{:g} to {:g}, so that a double can hold its square; "
      "does it stand for a missing value? write NA (data.missing), or leave the column out "
      "(data.columns)",
      place.Text(), text, kCsvNumberMax, kCsvNumberMax));
}

Status TakeWord(const Place& place, const std::string& text, MissingValues missing) {
  if (!IsUtf8(text)) {
    return Corrupt(
        fmt::format("{} holds '{}', expected UTF-8; {}", place.Text(), AsUtf8(text), kHowLatin1));
  }
  if (!text.empty() || missing == MissingValues::kCategory) return Status();
  return Corrupt(fmt::format("{} is empty, expected a text{}; {}", place.Text(),
                             missing == MissingValues::kMean ? ", which has no mean" : "",
                             kHowMissing));
}

Status TakeLabel(const Place& place, const std::string& text) {
  if (!IsMissing(text)) return TakeWord(place, text, MissingValues::kError);
  if (text.empty())
    return Corrupt(fmt::format("{} is empty, expected a class; remove the row or add its class",
                               place.Text()));
  return Corrupt(fmt::format(
      "{} holds '{}', which says that a value is missing, expected a class; remove the row or add "
      "its class; if a class has this name, give it another one in the file ('class {}')",
      place.Text(), text, text));
}

// Says why a word among numbers is an error.
std::string WhyNoNumber(const std::string& word, const char* otherwise) {
  if (!IsUtf8(word)) return kHowLatin1;
  const std::string suspect = SuspectNumber(word);
  return suspect.empty() ? otherwise : suspect;
}

Status CheckKinds(const std::string& path, const std::string& column, const Kinds& kinds) {
  const auto& [numbers, suspects, words, unit_counter] = kinds;
  if (!kinds.has_words()) return Status();
  if (numbers.count > 0) {
    const bool is_suspect_first =
        words.count == 0 || (suspects.count > 0 && suspects.first_line < words.first_line);
    const Fields& wrong = is_suspect_first ? suspects : words;
    return Corrupt(
        fmt::format("{}: line {}: column '{}' holds '{}', and a number in line {}; {}: correct the "
                    "file, or leave the column out (data.columns)",
                    path, wrong.first_line, column, Shown(wrong.first), numbers.first_line,
                    WhyNoNumber(wrong.first, kHowMixed)));
  }
  const Fields units = unit_counter.Find();
  const uint64_t count = suspects.count + units.count, all = suspects.count + words.count;
  if (count * 2 <= all) return Status();  // a dash among them may stand for a missing value
  const Fields& first = suspects.count >= units.count ? suspects : units;
  return Corrupt(
      fmt::format("{}: line {}: column '{}' holds '{}', and {} of {} values are like it; {}", path,
                  first.first_line, column, Shown(first.first), count, all,
                  WhyNoNumber(first.first, kHowUnits)));
}

}  // namespace

Result<CsvFile> CsvFile::Open(const std::string& path) {
  std::string start(2, '\0');
  std::ifstream(path, std::ios::binary).read(start.data(), 2);
  CsvFile csv(path, ByteStream(path, start == "\x1f\x8b"));
  if (!csv.bytes_.is_open())
    return NotFound(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  PANDO_RETURN_IF_ERROR(csv.Fill().status());
  const std::string other = NameOtherKind(csv.buffer_, FileUse::kTable);
  if (!other.empty()) return Corrupt(fmt::format("{}: {}", path, other));
  std::string line;
  PANDO_ASSIGN_OR_RETURN(bool has_line, csv.ReadLine(&line));
  if (!has_line) return Corrupt(fmt::format("{}: is empty, expected a line of column names", path));
  PANDO_RETURN_IF_ERROR(csv.CheckHeader(line));
  PANDO_ASSIGN_OR_RETURN(csv.header_, csv.Split(line));
  const std::string suspect = SuspectHeader(csv.header_, HeaderNames::kMayFit);
  if (!suspect.empty()) return Corrupt(fmt::format("{}: line 1: {}", path, suspect));
  return csv;
}

// Checks the header and the first row.
Status CsvFile::CheckHeader(const std::string& line) {
  std::string suspect = SuspectEncoding(line);
  if (suspect.empty() && !IsUtf8(line)) {
    suspect = fmt::format("'{}' is not UTF-8; {}", Printable(AsUtf8(line)), kHowLatin1);
  }
  if (suspect.empty()) {
    std::string row;
    PANDO_ASSIGN_OR_RETURN(const bool has_row, ReadLine(&row));
    suspect = SuspectSeparator(line, row);
    if (has_row) next_row_ = std::move(row);
    line_ = 1;
  }
  if (suspect.empty()) return Status();
  return Corrupt(fmt::format("{}: line 1: {} < {} > NEW.csv", path_, suspect,
                             bytes_.is_gzip() ? fmt::format("<(gunzip -c {})", path_) : path_));
}

// Fills the buffer. Returns false at the end.
Result<bool> CsvFile::Fill() {
  constexpr size_t kBufferBytes = 256 << 10;
  buffer_.resize(kBufferBytes);
  buffer_.resize(bytes_.Read(reinterpret_cast<uint8_t*>(buffer_.data()), buffer_.size()));
  at_ = 0;
  std::string wrong = bytes_.damage();
  if (wrong.empty() && buffer_.empty() && bytes_.IsCutOff()) wrong = "the gzip file is cut off";
  if (wrong.empty()) return !buffer_.empty();
  if (!bytes_.is_gzip())
    return Unavailable(fmt::format("{}: after line {}: {}", path_, line_, wrong));
  return Corrupt(fmt::format("{}: after line {}: {}; copy the file again", path_, line_, wrong));
}

// Reads the next line. Returns false at the end.
Result<bool> CsvFile::ReadLine(std::string* line) {
  line->clear();
  for (size_t end = buffer_.npos; !next_row_ && end == buffer_.npos;) {
    if (at_ == buffer_.size()) {
      PANDO_ASSIGN_OR_RETURN(const bool has_more, Fill());
      if (!has_more && line->empty()) return false;
      if (!has_more) break;
    }
    end = buffer_.find('\n', at_);
    line->append(buffer_, at_, end - at_);
    at_ = std::min(end, buffer_.size() - 1) + 1;
  }
  if (next_row_) *line = *std::exchange(next_row_, std::nullopt);
  while (!line->empty() && line->back() == '\r') line->pop_back();
  ++line_;
  return true;
}

// "a,"b ""c"", d",e" -> a | b "c", d | e. Blanks around a field are not part of it.
Result<std::vector<std::string>> CsvFile::Split(const std::string& line) const {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && is_quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[++i];
    } else if (c == '"') {
      is_quoted = !is_quoted;
    } else if (c == ',' && !is_quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (is_quoted) {
    return Corrupt(fmt::format(
        "{}: line {}: a quote is not closed; a field may not contain a line break", path_, line_));
  }
  for (std::string& field : fields) field = std::string(Trimmed(field));
  return fields;
}

Result<size_t> CsvFile::Find(const std::string& column, const char* key) const {
  const auto count = std::ranges::count(header_, column);
  if (count == 1) return static_cast<size_t>(std::ranges::find(header_, column) - header_.begin());
  if (count > 1)
    return Corrupt(fmt::format("{}: line 1: has {} columns '{}'", path_, count, column));
  const std::string suspect = SuspectHeader(header_, HeaderNames::kOneIsUnknown);
  if (!suspect.empty()) {
    return Corrupt(fmt::format("{}: line 1: has no column '{}', and {}", path_, column, suspect));
  }
  const std::string question = DidYouMean(column, header_);
  return Corrupt(fmt::format("{}: line 1: has no column '{}', only {}{}{}; {} names columns", path_,
                             column, Joined(header_), question.empty() ? "" : "; ", question, key));
}

Result<bool> CsvFile::Next(std::vector<std::string>* fields) {
  std::string line;
  do {
    PANDO_ASSIGN_OR_RETURN(bool has_line, ReadLine(&line));
    if (!has_line) return false;
  } while (line.empty());
  PANDO_ASSIGN_OR_RETURN(*fields, Split(line));
  if (fields->size() == header_.size()) return true;
  return Corrupt(
      fmt::format("{}: line {}: {} fields, expected {} as in the header; the file may be cut off, "
                  "or a field with a comma (a decimal comma?) lacks quotes",
                  path_, line_, fields->size(), header_.size()));
}

Result<CsvRows> ReadCsv(const std::string& path, const CsvColumns& columns) {
  PANDO_ASSIGN_OR_RETURN(CsvFile file, CsvFile::Open(path));
  PANDO_ASSIGN_OR_RETURN(std::vector<size_t> numbers, FindAll(file, columns.numbers));
  PANDO_ASSIGN_OR_RETURN(std::vector<size_t> words, FindAll(file, columns.words));
  const bool has_labels = !columns.label.empty();
  size_t label = 0;
  if (has_labels) {
    PANDO_ASSIGN_OR_RETURN(label, file.Find(columns.label, "data.label"));
  }
  CsvRows rows{.path = path, .words = std::vector<std::vector<std::string>>(words.size())};
  std::vector<std::string> fields;
  while (true) {
    PANDO_ASSIGN_OR_RETURN(bool has_row, file.Next(&fields));
    if (!has_row) break;
    for (size_t c = 0; c < numbers.size(); ++c) {
      PANDO_ASSIGN_OR_RETURN(double number, TakeNumber({file, columns.numbers[c]},
                                                       fields[numbers[c]], columns.missing));
      rows.numbers.push_back(number);
    }
    for (size_t c = 0; c < words.size(); ++c) {
      PANDO_RETURN_IF_ERROR(TakeWord({file, columns.words[c]}, fields[words[c]], columns.missing));
      rows.words[c].push_back(fields[words[c]]);
    }
    if (has_labels) {
      PANDO_RETURN_IF_ERROR(TakeLabel({file, columns.label}, fields[label]));
      rows.labels.push_back(fields[label]);
    }
    rows.lines.push_back(file.line());
  }
  if (rows.row_count() > 0) return rows;
  return Corrupt(fmt::format("{}: has no rows below its header", path));
}

Result<CsvColumns> SortColumns(const std::string& path, const std::vector<std::string>& names) {
  PANDO_ASSIGN_OR_RETURN(CsvFile file, CsvFile::Open(path));
  PANDO_ASSIGN_OR_RETURN(std::vector<size_t> places, FindAll(file, names));
  std::vector<Kinds> kinds(names.size());
  std::vector<std::string> fields;
  while (true) {
    PANDO_ASSIGN_OR_RETURN(bool has_row, file.Next(&fields));
    if (!has_row) break;
    for (size_t c = 0; c < places.size(); ++c) kinds[c].Add(fields[places[c]], file.line());
  }
  CsvColumns sorted;
  for (size_t c = 0; c < names.size(); ++c) {
    PANDO_RETURN_IF_ERROR(CheckKinds(path, names[c], kinds[c]));
    (kinds[c].has_words() ? sorted.words : sorted.numbers).push_back(names[c]);
  }
  return sorted;
}

}  // namespace pando
