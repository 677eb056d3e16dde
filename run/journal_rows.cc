#include "run/sqlite_journal.h"

#include <fmt/format.h>

#include <array>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/hash.h"
#include "files/json_depth.h"
#include "proto/codec_fields.h"

namespace pando {
namespace {

using Json = nlohmann::json;

template <class T, class U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

// In ms since the job began, < 0: unknown, stored as NULL.
template <class T>
struct Time {
  T& ms;
};
template <class T>
Time(T&) -> Time<T>;  // clang 14 does not deduce it

// ---- what the tables hold: one walk over the fields serves names, writing and reading -----------

void ForEachColumn(Is<View> auto& view, auto&& column) {
  column("term", view.id.term);
  column("number", view.id.number);
  column("view", view);
}

void ForEachColumn(Is<MemberRecord> auto& member, auto&& column) {
  column("node", member.peer.node);
  column("peer", member.peer);
  column("rank", member.rank);
  column("is_ready", member.is_ready);
  column("is_draining", member.is_draining);
  column("registration", member.registration);
  column("ready", member.ready);
}

void ForEachColumn(Is<SnapshotManifest> auto& manifest, auto&& column) {
  column("generation", manifest.snapshot.generation);
  column("version", manifest.snapshot.version);
  column("shards", manifest.shards);
}

void ForEachColumn(Is<EvaluationSummary> auto& evaluation, auto&& column) {
  column("version", evaluation.version);
  column("sample_count", evaluation.sample_count);
  column("correct_count", evaluation.correct_count);
  column("loss_sum", evaluation.loss_sum);
  column("top5_count", evaluation.top5_count);
  column("classes", evaluation.classes);
  column("confusion", evaluation.confusion);
  column("sums", evaluation.sums);
}

void ForEachColumn(Is<FaultRecord> auto& fault, auto&& column) {
  column("id", fault.id);
  column("action", fault.action);
  column("target", fault.target);
  column("host", fault.host);
  column("process_id", fault.process_id);
  column("step", fault.step);
  column("injected_ms", Time{fault.injected_ms});
  column("detected_ms", Time{fault.detected_ms});
  column("detected_by", fault.detected_by);
  column("recovered_ms", Time{fault.recovered_ms});
}

// Rows of "meta": key and value.
void ForEachMetaRow(Is<SchedulerState> auto& state, auto&& row) {
  row("agreed_count", state.verification.agreed_count);
  row("given_up", state.given_up);
  row("is_finished", state.is_finished);
  row("job", state.job);
  row("next_node", state.next_node);
  row("open_dispute", state.verification.open_dispute);
  row("settled_below", state.verification.settled_below);
  row("term", state.term);
  row("unverified_count", state.verification.unverified_count);
}

// ---- what the JSON in columns holds: objects with the members' names. Those of messages are
// visited in proto/codec_fields.h.

template <class T>
struct NamedField {
  std::string_view name;
  T& member;
};
template <class T>
NamedField(std::string_view, T&) -> NamedField<T>;  // clang 14 does not deduce it
#define PANDO_FIELD(member) \
  NamedField { MemberName(#member), member }

void Visit(auto io, StoredShard& m) { io(PANDO_FIELD(m.hash), PANDO_FIELD(m.file)); }

void Visit(auto io, ClassScore& m) {
  io(PANDO_FIELD(m.sample_count), PANDO_FIELD(m.correct_count));
}

void Visit(auto io, Opinion& m) {
  io(PANDO_FIELD(m.worker), PANDO_FIELD(m.name), PANDO_FIELD(m.probe_hash), PANDO_FIELD(m.hash));
}

void Visit(auto io, Dispute& m) {
  io(PANDO_FIELD(m.generation), PANDO_FIELD(m.step), PANDO_FIELD(m.micro_batch),
     PANDO_FIELD(m.first), PANDO_FIELD(m.second));
}

void Visit(auto io, GivenUpSnapshots& m) { io(PANDO_FIELD(m.below), PANDO_FIELD(m.versions)); }

// ---- values as JSON, and back -------------------------------------------------------------------

template <class T>
concept HasFields = requires(T& value) {
  Visit([](const auto&...) {}, value);
};

template <class T>
Json ToJson(const T& value);

Json ToJson(Incarnation incarnation) { return HexText(incarnation.value()); }
Json ToJson(JobId job) { return HexText(job.value()); }
Json ToJson(Role role) { return EnumName(role); }
template <class Tag, class Rep>
Json ToJson(StrongId<Tag, Rep> id) {
  return id.value();
}
template <class T>
Json ToJson(const std::vector<T>& items) {
  Json list = Json::array();
  for (const T& item : items) list.push_back(ToJson(item));
  return list;
}
template <class T>
Json ToJson(const std::optional<T>& value) {
  return value ? ToJson(*value) : Json();
}

struct FieldWriter {
  Json& json;
  void operator()(const auto&... fields) {
    ((json[std::string(fields.name)] = ToJson(fields.member)), ...);
  }
};
template <class T>
Json ToJson(const T& value) {
  Json json;
  if constexpr (HasFields<T>) {
    Visit(FieldWriter{json}, const_cast<T&>(value));  // Visit is shared with the reader
  } else {
    json = value;
  }
  return json;
}

// These throw nlohmann's exceptions alone; RowReader catches them.
template <class T>
void FromJson(const Json& json, T& value);

template <std::integral T>
void FromJson(const Json& json, T& number) {
  const bool is_bool = std::same_as<T, bool>;
  const bool fits =
      is_bool ? json.is_boolean()
              : json.is_number_unsigned() && json.get<uint64_t>() <= std::numeric_limits<T>::max();
  if (!fits) throw Json::other_error::create(501, json.dump() + " is out of range", &json);
  json.get_to(number);
}
// JSON writes null for a number that is not finite.
void FromJson(const Json& json, double& real) {
  real = json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}
void FromJson(const Json& json, Role& role) {
  const auto name = json.get<std::string>();
  const std::optional<Role> found = ParseEnum<Role>(name);
  if (!found) throw Json::other_error::create(501, "'" + name + "' is no role", &json);
  role = *found;
}
template <class Tag, class Rep>
void FromJson(const Json& json, StrongId<Tag, Rep>& id) {
  Rep number{};
  FromJson(json, number);
  id = StrongId<Tag, Rep>(number);
}
uint64_t FromHex(const Json& json) {
  const std::optional<uint64_t> number = ParseHex(json.get<std::string>());
  if (!number) throw Json::other_error::create(501, json.dump() + " is no hex number", &json);
  return *number;
}
void FromJson(const Json& json, Incarnation& to) { to = Incarnation(FromHex(json)); }
void FromJson(const Json& json, JobId& job) { job = JobId(FromHex(json)); }
template <class T>
void FromJson(const Json& json, std::vector<T>& items) {
  items.clear();
  for (const Json& item : json) FromJson(item, items.emplace_back());
}
template <class T>
void FromJson(const Json& json, std::optional<T>& value) {
  value.reset();
  if (!json.is_null()) FromJson(json, value.emplace());
}

struct FieldReader {
  const Json& json;
  void operator()(const auto&... fields) {
    (FromJson(json.at(std::string(fields.name)), fields.member), ...);
  }
};
template <class T>
void FromJson(const Json& json, T& value) {
  if constexpr (HasFields<T>) {
    Visit(FieldReader{json}, value);
  } else {
    json.get_to(value);
  }
}

// ---- values as SQLite has them, and back --------------------------------------------------------

template <class T>
SqlValue ToSql(Time<T> time) {
  if (time.ms < 0) return std::monostate();
  return time.ms;
}
template <class T>
SqlValue ToSql(const T& value) {
  const Json json = ToJson(value);
  if (json.is_string()) return json.get<std::string>();
  if (json.is_number_float()) return json.get<double>();  // NULL to SQLite if it is not a number
  if (json.is_number()) return json.get<int64_t>();
  if (json.is_boolean()) return int64_t{json.get<bool>()};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Takes a row's values in the order of the columns; the first that does not fit is the status.
class RowReader {
 public:
  explicit RowReader(const SqlRow& row) : row_(row) {}
  void operator()(const char* column, auto&& value) {
    PANDO_CHECK(at_ < row_.size());
    column_ = column;
    Read(row_[at_++], value);
  }
  const Status& status() const { return status_; }

 private:
  void Fail(const std::string& text) {
    if (status_.ok()) status_ = Corrupt(fmt::format("column {}: {}", column_, text));
  }
  template <class T>
  const T* Expect(const SqlValue& from, const char* expected) {
    const T* value = std::get_if<T>(&from);
    if (value == nullptr) Fail(fmt::format("expected {}", expected));
    return value;
  }
  void Read(const SqlValue& from, std::string& text) {
    if (const auto* found = Expect<std::string>(from, "a text")) text = *found;
  }
  // NULL is `none`.
  void ReadReal(const SqlValue& from, double none, double& real) {
    const bool is_null = std::holds_alternative<std::monostate>(from);
    const double* found = is_null ? &none : Expect<double>(from, "a number");
    if (found != nullptr) real = *found;
  }
  void Read(const SqlValue& from, double& real) {
    ReadReal(from, std::numeric_limits<double>::quiet_NaN(), real);
  }
  void Read(const SqlValue& from, Time<double> time) { ReadReal(from, -1, time.ms); }
  template <std::integral T>
  void Read(const SqlValue& from, T& number) {
    const auto* found = Expect<int64_t>(from, "a whole number");
    if (found == nullptr) return;
    if (*found < 0 || static_cast<uint64_t>(*found) > std::numeric_limits<T>::max())
      return Fail(fmt::format("{} is out of range", *found));
    number = static_cast<T>(*found);
  }
  template <class Tag, class Rep>
  void Read(const SqlValue& from, StrongId<Tag, Rep>& id) {
    Rep number{};
    Read(from, number);
    id = StrongId<Tag, Rep>(number);
  }
  void Read(const SqlValue& from, JobId& job) {
    ReadParsed(from, [&](const std::string& text) { FromJson(Json(text), job); });
  }
  template <class T>
  void Read(const SqlValue& from, T& value) {
    if (const auto* text = std::get_if<std::string>(&from); text != nullptr && IsDeepJson(*text))
      return Fail("its JSON is nested too deeply");
    ReadParsed(from, [&](const std::string& text) { FromJson(Json::parse(text), value); });
  }
  void ReadParsed(const SqlValue& from, auto parse) {
    const auto* text = Expect<std::string>(from, "a text");
    if (text == nullptr) return;
    try {
      parse(*text);
    } catch (const Json::exception& error) {
      Fail(error.what());
    }
  }

  const SqlRow& row_;
  const char* column_ = "";
  size_t at_ = 0;
  Status status_;
};

// ---- rows ---------------------------------------------------------------------------------------

template <class Record>
std::vector<std::string> ColumnsFor() {
  std::vector<std::string> columns;
  const Record record{};
  ForEachColumn(record, [&](const char* name, const auto&) { columns.emplace_back(name); });
  return columns;
}

template <class Record>
SqlRow RowFor(const Record& record) {
  SqlRow row;
  ForEachColumn(record, [&](const char*, const auto& value) { row.push_back(ToSql(value)); });
  return row;
}

template <class Record>
std::vector<SqlRow> RowsFor(const std::vector<Record>& records) {
  std::vector<SqlRow> rows;
  for (const Record& record : records) rows.push_back(RowFor(record));
  return rows;
}

std::vector<SqlRow> MetaRows(const SchedulerState& state) {
  std::vector<SqlRow> rows;
  ForEachMetaRow(state, [&](const char* key, const auto& value) {
    rows.push_back({key, ToSql(value)});
  });
  return rows;
}

Status ReadRow(const SqlRow& row, auto& record) {
  RowReader reader(row);
  ForEachColumn(record, reader);
  return reader.status();
}

Status ReadMetaRow(const SqlRow& row, SchedulerState& state) {
  std::string key;
  RowReader reader(row);
  reader("key", key);
  ForEachMetaRow(state, [&](const char* name, auto&& value) {
    if (name == key) reader("value", value);
  });
  return reader.status();
}

// Rows come in the order of their views: the newest stays.
Status ReadViewRow(const SqlRow& row, SchedulerState& state) {
  PANDO_RETURN_IF_ERROR(ReadRow(row, state.view));
  state.holders.Add(state.view);
  return Status();
}

Status ReadRow(const std::string& table, const SqlRow& row, SchedulerState& state) {
  if (table == "meta") return ReadMetaRow(row, state);
  if (table == "views") return ReadViewRow(row, state);
  if (table == "members") return ReadRow(row, state.members.emplace_back());
  if (table == "snapshots") return ReadRow(row, state.snapshots.emplace_back());
  if (table == "evaluations") return ReadRow(row, state.evaluations.emplace_back());
  return ReadRow(row, state.faults.emplace_back());
}

}  // namespace

std::span<const JournalTable> JournalTables() {
  static const std::array<JournalTable, 6> kTables{{
      {"meta", {"key", "value"}, 1},
      {"views", ColumnsFor<View>(), 2},
      {"members", ColumnsFor<MemberRecord>(), 1},
      {"snapshots", ColumnsFor<SnapshotManifest>(), 2},
      {"evaluations", ColumnsFor<EvaluationSummary>(), 1},
      {"faults", ColumnsFor<FaultRecord>(), 1},
  }};
  return kTables;
}

std::map<std::string, std::vector<SqlRow>> MakeRows(const SchedulerState& state) {
  return {{"meta", MetaRows(state)},
          {"members", RowsFor(state.members)},
          {"snapshots", RowsFor(state.snapshots)},
          {"evaluations", RowsFor(state.evaluations)},
          {"faults", RowsFor(state.faults)}};
}

SqlRow MakeRow(const View& view) { return RowFor(view); }

Status ReadRows(const std::string& table, std::span<const SqlRow> rows, SchedulerState* state) {
  for (const SqlRow& row : rows) {
    Status s = ReadRow(table, row, *state);
    if (!s.ok()) return Corrupt(fmt::format("table {}, {}", table, s.message()));
  }
  return Status();
}

}  // namespace pando
