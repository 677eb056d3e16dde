#include "run/journal_rows.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

namespace pando {
namespace {

using Json = nlohmann::json;

enum TableIndex : size_t { kMeta, kViews, kMembers, kSnapshots, kEvaluations, kFaults };

// clang-format off
const std::array<JournalTable, 6>& Tables() {
  static const std::array<JournalTable, 6> tables{{
    {"meta", {"key", "value"}, 1},
    {"views", {"term", "number", "generation", "restore_generation", "restore_version", "nodes",
               "shards", "owners"}, 2},
    {"members", {"node", "incarnation", "role", "rank", "host", "process_id", "endpoints",
                 "is_ready", "kind", "probe_hash", "data_fingerprint", "is_draining"}, 1},
    {"snapshots", {"generation", "version", "shards"}, 2},
    {"evaluations", {"version", "sample_count", "correct_count", "loss_sum", "top5_count",
                     "classes", "confusion"}, 1},
    {"faults", {"id", "action", "target", "host", "process_id", "step", "injected_ms",
                "detected_ms", "detected_by", "recovered_ms"}, 1},
  }};
  return tables;
}
// clang-format on

const std::array kRoleNames{"scheduler", "server", "worker", "client"};

std::string HexOf(uint64_t value) { return fmt::format("{:016x}", value); }

// Throws nlohmann's exceptions alone, as all that reads JSON here; RowReader catches them.
uint64_t HexIn(const Json& json) {
  const auto text = json.get<std::string>();
  uint64_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value, 16);
  if (error != std::errc{} || end != last) {
    throw Json::other_error::create(501, "'" + text + "' is no hex number", &json);
  }
  return value;
}

SqlValue TextOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <class Id>
int64_t NumberOf(Id id) {
  return static_cast<int64_t>(id.value());
}
int64_t NodeNumber(NodeId node) { return node == kUnknownNode ? -1 : NumberOf(node); }
NodeId NodeIn(int64_t number) {
  return number < 0 ? kUnknownNode : NodeId(static_cast<uint32_t>(number));
}

// Times in ms since the job began.
SqlValue TimeOf(double ms) {
  if (ms < 0) return std::monostate();
  return ms;
}

// Takes a row's values in the order of the columns; the first that does not fit is the status.
class RowReader {
 public:
  RowReader(const SqlRow& row, TableIndex table) : row_(row), columns_(Tables()[table].columns) {}

  template <class T>
  void Take(T* out) {
    if constexpr (std::is_same_v<T, std::string>) {
      if (const auto* text = Next<std::string>("a text")) *out = *text;
    } else if constexpr (std::is_same_v<T, double>) {
      const auto* real = Next<double>("a number");
      if (real != nullptr) *out = *real;
    } else {
      const auto* number = Next<int64_t>("a whole number");
      if (number == nullptr) return;
      if (*number < 0 || static_cast<uint64_t>(*number) > std::numeric_limits<T>::max()) {
        return Fail(fmt::format("{} is out of range", *number));
      }
      *out = static_cast<T>(*number);
    }
  }
  template <class Tag, class Rep>
  void Take(StrongId<Tag, Rep>* out) {
    Rep value{};
    Take(&value);
    *out = StrongId<Tag, Rep>(value);
  }
  // NULL is `none`.
  void TakeOptional(double none, double* out) {
    if (at_ < row_.size() && std::holds_alternative<std::monostate>(row_[at_])) {
      *out = none;
      ++at_;
    } else {
      Take(out);
    }
  }
  void TakeHex(uint64_t* out) {
    TakeParsed([&](const std::string& text) { *out = HexIn(Json(text)); });
  }
  // `read` takes the parsed JSON and may throw its exceptions.
  template <class Read>
  void TakeJson(Read read) {
    TakeParsed([&](const std::string& text) { read(Json::parse(text)); });
  }
  void TakeRole(Role* out) {
    std::string name;
    Take(&name);
    for (size_t i = 0; i < kRoleNames.size(); ++i) {
      if (name == kRoleNames[i]) {
        *out = static_cast<Role>(i);
        return;
      }
    }
    Fail("'" + name + "' is no role");
  }
  Status status() const { return status_; }

 private:
  void Fail(const std::string& text) {
    if (status_.ok()) status_ = Corrupt(fmt::format("column {}: {}", columns_[at_ - 1], text));
  }
  template <class T>
  const T* Next(const char* expected) {
    PANDO_CHECK(at_ < columns_.size() && row_.size() == columns_.size());
    const T* value = std::get_if<T>(&row_[at_++]);
    if (value == nullptr) Fail(fmt::format("expected {}", expected));
    return value;
  }
  template <class Parse>
  void TakeParsed(Parse parse) {
    const auto* text = Next<std::string>("a text");
    if (text == nullptr) return;
    try {
      parse(*text);
    } catch (const Json::exception& error) {
      Fail(error.what());
    }
  }

  const SqlRow& row_;
  const std::vector<const char*>& columns_;
  size_t at_ = 0;
  Status status_;
};

}  // namespace

std::span<const JournalTable> JournalTables() { return Tables(); }

// ---- views
// ---------------------------------------------------------------------------------------

namespace {

// [node, incarnation, lane].
Json JsonOf(const PeerId& peer) {
  return {NodeNumber(peer.node), HexOf(peer.incarnation.value()), peer.lane};
}
PeerId PeerIn(const Json& json) {
  return {NodeIn(json.at(0)), Incarnation(HexIn(json.at(1))), json.at(2).get<uint16_t>()};
}

Json JsonOf(const NodeInfo& node) {
  return {{"node", NodeNumber(node.node)},
          {"incarnation", HexOf(node.incarnation.value())},
          {"role", kRoleNames[static_cast<size_t>(node.role)]},
          {"rank", node.rank},
          {"host", node.host},
          {"endpoints", node.lane_endpoints},
          {"probe_hash", HexOf(node.probe_hash)}};
}
NodeInfo NodeInfoIn(const Json& json) {
  NodeInfo node{.node = NodeIn(json.at("node")),
                .incarnation = Incarnation(HexIn(json.at("incarnation"))),
                .role = json.at("role") == "server" ? Role::kServer : Role::kWorker,
                .rank = json.at("rank").get<uint32_t>(),
                .host = json.at("host").get<std::string>()};
  json.at("endpoints").get_to(node.lane_endpoints);
  node.probe_hash = HexIn(json.at("probe_hash"));
  return node;
}

// [primary, [in-sync backup, ...], [[syncing backup, term, number], ...]].
Json JsonOf(const ShardPlacement& placement) {
  Json in_sync = Json::array();
  for (const PeerId& peer : placement.in_sync_backups) in_sync.push_back(JsonOf(peer));
  Json syncing = Json::array();
  for (const SyncingBackup& backup : placement.syncing_backups) {
    syncing.push_back({JsonOf(backup.peer), backup.since.term, backup.since.number});
  }
  return Json::array({JsonOf(placement.primary), in_sync, syncing});
}
ShardPlacement PlacementIn(const Json& json) {
  ShardPlacement placement{.primary = PeerIn(json.at(0))};
  for (const Json& peer : json.at(1)) placement.in_sync_backups.push_back(PeerIn(peer));
  for (const Json& backup : json.at(2)) {
    placement.syncing_backups.push_back(
        {PeerIn(backup.at(0)), {backup.at(1).get<uint64_t>(), backup.at(2).get<uint64_t>()}});
  }
  return placement;
}

// [worker, first step, previous worker].
Json JsonOf(const MicroBatchOwner& owner) {
  return {NodeNumber(owner.worker), owner.first_step.value(), NodeNumber(owner.previous)};
}
MicroBatchOwner OwnerIn(const Json& json) {
  return {NodeIn(json.at(0)), Step(json.at(1).get<uint64_t>()), NodeIn(json.at(2))};
}

template <class T>
SqlValue ListText(const std::vector<T>& items) {
  Json list = Json::array();
  for (const T& item : items) list.push_back(JsonOf(item));
  return TextOf(list);
}

// A reader of a list whose elements `read` makes.
template <class T, class Read>
auto ListReader(Read read, std::vector<T>* out) {
  return [read, out](const Json& list) {
    out->clear();
    for (const Json& item : list) out->push_back(read(item));
  };
}

}  // namespace

SqlRow RowOf(const View& view) {
  return {static_cast<int64_t>(view.id.term),
          static_cast<int64_t>(view.id.number),
          int64_t{view.generation},
          int64_t{view.restore.generation},
          NumberOf(view.restore.version),
          ListText(view.nodes),
          ListText(view.shards),
          ListText(view.owners)};
}

Status ReadRow(const SqlRow& row, View* view) {
  RowReader reader(row, kViews);
  reader.Take(&view->id.term);
  reader.Take(&view->id.number);
  reader.Take(&view->generation);
  reader.Take(&view->restore.generation);
  reader.Take(&view->restore.version);
  reader.TakeJson(ListReader(NodeInfoIn, &view->nodes));
  reader.TakeJson(ListReader(PlacementIn, &view->shards));
  reader.TakeJson(ListReader(OwnerIn, &view->owners));
  return reader.status();
}

// ---- members, snapshots, evaluations, faults
// -----------------------------------------------------

SqlRow RowOf(const MemberRecord& member) {
  const Register& registration = member.registration;
  return {NodeNumber(member.peer.node),
          HexOf(member.peer.incarnation.value()),
          std::string(kRoleNames[static_cast<size_t>(registration.role)]),
          int64_t{member.rank},
          registration.host,
          int64_t{registration.process_id},
          TextOf(registration.lane_endpoints),
          int64_t{member.is_ready},
          member.ready.kind,
          HexOf(member.ready.probe_hash),
          HexOf(member.ready.data_fingerprint),
          int64_t{member.is_draining}};
}

Status ReadRow(const SqlRow& row, MemberRecord* member) {
  Register& registration = member->registration;
  uint64_t incarnation = 0;
  RowReader reader(row, kMembers);
  reader.Take(&member->peer.node);
  reader.TakeHex(&incarnation);
  reader.TakeRole(&registration.role);
  reader.Take(&member->rank);
  reader.Take(&registration.host);
  reader.Take(&registration.process_id);
  reader.TakeJson([&](const Json& list) { list.get_to(registration.lane_endpoints); });
  reader.Take(&member->is_ready);
  reader.Take(&member->ready.kind);
  reader.TakeHex(&member->ready.probe_hash);
  reader.TakeHex(&member->ready.data_fingerprint);
  reader.Take(&member->is_draining);
  member->peer.incarnation = Incarnation(incarnation);
  return reader.status();
}

SqlRow RowOf(const SnapshotManifest& manifest) {
  Json shards = Json::array();
  for (const StoredShard& shard : manifest.shards) {
    shards.push_back(Json::array({HexOf(shard.hash), shard.file}));
  }
  return {int64_t{manifest.snapshot.generation}, NumberOf(manifest.snapshot.version),
          TextOf(shards)};
}

Status ReadRow(const SqlRow& row, SnapshotManifest* manifest) {
  RowReader reader(row, kSnapshots);
  reader.Take(&manifest->snapshot.generation);
  reader.Take(&manifest->snapshot.version);
  reader.TakeJson(ListReader(
      [](const Json& json) {
        return StoredShard{HexIn(json.at(0)), json.at(1).get<std::string>()};
      },
      &manifest->shards));
  return reader.status();
}

// A sum that is not a number is NULL to SQLite. Classes are [samples, correct].
SqlRow RowOf(const EvaluationSummary& evaluation) {
  Json classes = Json::array();
  for (const ClassScore& score : evaluation.classes)
    classes.push_back(Json::array({score.sample_count, score.correct_count}));
  return {NumberOf(evaluation.version),
          static_cast<int64_t>(evaluation.sample_count),
          static_cast<int64_t>(evaluation.correct_count),
          evaluation.loss_sum,
          static_cast<int64_t>(evaluation.top5_count),
          TextOf(classes),
          TextOf(Json(evaluation.confusion))};
}

Status ReadRow(const SqlRow& row, EvaluationSummary* evaluation) {
  RowReader reader(row, kEvaluations);
  reader.Take(&evaluation->version);
  reader.Take(&evaluation->sample_count);
  reader.Take(&evaluation->correct_count);
  reader.TakeOptional(std::numeric_limits<double>::quiet_NaN(), &evaluation->loss_sum);
  reader.Take(&evaluation->top5_count);
  reader.TakeJson(ListReader(
      [](const Json& json) {
        return ClassScore{json.at(0).get<uint64_t>(), json.at(1).get<uint64_t>()};
      },
      &evaluation->classes));
  reader.TakeJson([&](const Json& list) { list.get_to(evaluation->confusion); });
  return reader.status();
}

SqlRow RowOf(const FaultRecord& fault) {
  return {static_cast<int64_t>(fault.id),
          fault.action,
          fault.target,
          fault.host,
          int64_t{fault.process_id},
          NumberOf(fault.step),
          TimeOf(fault.injected_ms),
          TimeOf(fault.detected_ms),
          fault.detected_by,
          TimeOf(fault.recovered_ms)};
}

Status ReadRow(const SqlRow& row, FaultRecord* fault) {
  RowReader reader(row, kFaults);
  reader.Take(&fault->id);
  reader.Take(&fault->action);
  reader.Take(&fault->target);
  reader.Take(&fault->host);
  reader.Take(&fault->process_id);
  reader.Take(&fault->step);
  reader.TakeOptional(-1, &fault->injected_ms);
  reader.TakeOptional(-1, &fault->detected_ms);
  reader.Take(&fault->detected_by);
  reader.TakeOptional(-1, &fault->recovered_ms);
  return reader.status();
}

// ---- verification
// --------------------------------------------------------------------------------

namespace {

Json JsonOf(const Opinion& opinion) {
  return {{"worker", NodeNumber(opinion.worker)},
          {"name", opinion.name},
          {"probe_hash", HexOf(opinion.probe_hash)},
          {"hash", HexOf(opinion.hash)}};
}
Opinion OpinionIn(const Json& json) {
  return {NodeIn(json.at("worker")), json.at("name").get<std::string>(),
          HexIn(json.at("probe_hash")), HexIn(json.at("hash"))};
}

// null, or an object.
Json JsonOf(const std::optional<Dispute>& dispute) {
  if (!dispute) return Json();
  return {{"generation", dispute->generation},
          {"step", dispute->step.value()},
          {"micro_batch", dispute->micro_batch.value()},
          {"first", JsonOf(dispute->first)},
          {"second", JsonOf(dispute->second)}};
}
std::optional<Dispute> DisputeIn(const Json& json) {
  if (json.is_null()) return std::nullopt;
  return Dispute{json.at("generation").get<uint32_t>(), Step(json.at("step").get<uint64_t>()),
                 MicroBatch(json.at("micro_batch").get<uint32_t>()), OpinionIn(json.at("first")),
                 OpinionIn(json.at("second"))};
}

Json JsonOf(const GivenUpSnapshots& given_up) {
  Json versions = Json::array();
  for (const Version version : given_up.versions) versions.push_back(version.value());
  return {{"below", given_up.below.value()}, {"versions", std::move(versions)}};
}
GivenUpSnapshots GivenUpIn(const Json& json) {
  GivenUpSnapshots given_up{.below = Version(json.at("below").get<uint64_t>()), .versions = {}};
  for (const Json& version : json.at("versions"))
    given_up.versions.push_back(Version(version.get<uint64_t>()));
  return given_up;
}

}  // namespace

// ---- meta
// ----------------------------------------------------------------------------------------

std::vector<SqlRow> MetaRowsOf(const SchedulerState& state) {
  const VerificationState& verification = state.verification;
  return {{"agreed_count", static_cast<int64_t>(verification.agreed_count)},
          {"given_up", TextOf(JsonOf(state.given_up))},
          {"is_finished", int64_t{state.is_finished}},
          {"job", HexOf(state.job.value())},
          {"next_node", int64_t{state.next_node}},
          {"open_dispute", TextOf(JsonOf(verification.open_dispute))},
          {"settled_below", NumberOf(verification.settled_below)},
          {"term", static_cast<int64_t>(state.term)},
          {"unverified_count", static_cast<int64_t>(verification.unverified_count)}};
}

Status ReadMetaRow(const SqlRow& row, SchedulerState* state) {
  std::string key;
  uint64_t job = 0;
  RowReader reader(row, kMeta);
  reader.Take(&key);
  if (key == "job") {
    reader.TakeHex(&job);
    state->job = JobId(job);
  } else if (key == "term") {
    reader.Take(&state->term);
  } else if (key == "next_node") {
    reader.Take(&state->next_node);
  } else if (key == "is_finished") {
    reader.Take(&state->is_finished);
  } else if (key == "given_up") {
    reader.TakeJson([&](const Json& json) { state->given_up = GivenUpIn(json); });
  } else if (key == "agreed_count") {
    reader.Take(&state->verification.agreed_count);
  } else if (key == "unverified_count") {
    reader.Take(&state->verification.unverified_count);
  } else if (key == "settled_below") {
    reader.Take(&state->verification.settled_below);
  } else if (key == "open_dispute") {
    reader.TakeJson([&](const Json& json) { state->verification.open_dispute = DisputeIn(json); });
  }
  return reader.status();
}

}  // namespace pando
