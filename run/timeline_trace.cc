#include "run/timeline_trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "common/atomic_file.h"
#include "common/system.h"
#include "train/step_timeline.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBufferBytes = 1 << 20;
constexpr const char* kExtension = ".bin";

// Returns JSON as a text, with invalid UTF-8 replaced.
std::string JsonText(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Returns nanoseconds as the microseconds of the trace format.
std::string Microseconds(int64_t ns) {
  const char* sign = ns < 0 ? "-" : "";
  const uint64_t size =
      ns < 0 ? uint64_t{0} - static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  return fmt::format("{}{}.{:03}", sign, size / 1000, size % 1000);
}

// ---- finding the files --------------------------------------------------------------------------

Result<std::vector<std::string>> FindFiles(const std::vector<std::string>& sources) {
  std::vector<std::string> files;
  for (const std::string& source : sources) {
    std::error_code error;
    if (fs::is_regular_file(source, error)) {
      files.push_back(source);
      continue;
    }
    const std::string inner = source + "/timeline";
    const std::string folder = fs::is_directory(inner, error) ? inner : source;
    const size_t before = files.size();
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == kExtension) files.push_back(entry.path().string());
    }
    if (error) return FileError("read the folder", folder, error.value());
    if (files.size() == before) {
      return NotFound(
          fmt::format("{} holds no timeline; train with --timeline FILE to have one", source));
    }
  }
  std::ranges::sort(files);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

// ---- the processes' lives -----------------------------------------------------------------------

// A period of time. An empty period ends before it begins.
struct Extent {
  int64_t begin_ns = INT64_MAX;
  int64_t end_ns = INT64_MIN;
  void Add(int64_t begin, int64_t end) {
    begin_ns = std::min(begin_ns, begin);
    end_ns = std::max(end_ns, end);
  }
};

struct Life {
  TimelineFile file;                   // without its spans
  Extent spans, marks;                 // on the file's clock
  std::string name;                    // "worker 1", later lives "worker 1, life 2"
  std::optional<TimelineClock> clock;  // set after all files were read
};

int RoleRank(const std::string& process) {
  if (process.starts_with("scheduler")) return 0;
  return process.starts_with("server") ? 1 : 2;
}

bool IsScheduler(const TimelineFile& file) { return file.process == "scheduler"; }

// Returns the scheduler by which a process measured its clock: the newest one that began before it.
const TimelineFile& ReferenceFor(const TimelineFile& file, const std::vector<Life>& lives) {
  // If none began before it, the first of the later ones counts.
  const auto rank = [&](const TimelineFile& other) {
    const bool is_before = other.head.unix_ns <= file.head.unix_ns;
    return std::pair(is_before, is_before ? other.head.unix_ns : -other.head.unix_ns);
  };
  const TimelineFile* best = nullptr;
  for (const Life& life : lives) {
    const bool is_better = best == nullptr || rank(life.file) > rank(*best);
    if (IsScheduler(life.file) && is_better) best = &life.file;
  }
  return best == nullptr ? lives.front().file : *best;
}

bool IsSpan(const TimelineRecord& record) {
  return record.kind == TimelineKind::kSpan || record.kind == TimelineKind::kFlow;
}

// Returns how far the second clock is ahead, by the time of day at which both files were made.
int64_t AheadByTimeOfDay(const TimelineFile& file, const TimelineFile& other) {
  return (file.head.unix_ns - file.head.steady_ns) - (other.head.unix_ns - other.head.steady_ns);
}

}  // namespace

TimelineClock::TimelineClock(const TimelineFile& file, const TimelineFile& scheduler,
                             const TimelineFile& origin) {
  const bool is_same = file.boot == scheduler.boot;
  for (const TimelineTrackRecords& track : file.tracks) {
    for (const TimelineRecord& record : track.records) {
      if (record.kind == TimelineKind::kClock && !is_same)
        samples_.push_back({record.begin_ns, record.duration_ns});
    }
  }
  std::ranges::sort(samples_, {}, &Sample::at_ns);
  is_by_time_of_day_ = samples_.empty() && !is_same;
  if (samples_.empty()) samples_.push_back({0, is_same ? 0 : AheadByTimeOfDay(file, scheduler)});
  if (scheduler.boot == origin.boot) return;
  for (Sample& sample : samples_) sample.ahead_ns += AheadByTimeOfDay(scheduler, origin);
}

int64_t TimelineClock::ToReference(int64_t at_ns) const {
  const auto after = std::ranges::upper_bound(samples_, at_ns, {}, &Sample::at_ns);
  if (after == samples_.begin()) return at_ns + after->ahead_ns;
  const Sample& before = *std::prev(after);
  if (after == samples_.end()) return at_ns + before.ahead_ns;
  const double share =
      static_cast<double>(at_ns - before.at_ns) / static_cast<double>(after->at_ns - before.at_ns);
  const auto drift = static_cast<double>(after->ahead_ns - before.ahead_ns);
  return at_ns + before.ahead_ns + static_cast<int64_t>(share * drift);
}

namespace {

// ---- the trace ----------------------------------------------------------------------------------

struct SyncOfStep {
  int64_t begin_ns = INT64_MAX;  // begin of the step's first span, on the file's clock
  int64_t waited_ns = 0;         // all computing threads' waits for parameters
};

// The waits for parameters by step; empty for processes that do not compute.
struct ExposedSync {
  explicit ExposedSync(const TimelineFile& file) {
    for (const TimelineTrackRecords& track : file.tracks) {
      const auto computes = [&](const TimelineRecord& record) {
        return IsSpan(record) && file.names[record.name].category == "compute";
      };
      if (std::ranges::none_of(track.records, computes)) continue;
      ++thread_count;
      for (const TimelineRecord& record : track.records) {
        if (!IsSpan(record)) continue;
        SyncOfStep& step = steps[record.step];
        step.begin_ns = std::min(step.begin_ns, record.begin_ns);
        if (file.names[record.name].text == StepTimeline::kAwaitParametersName)
          step.waited_ns += record.duration_ns;
      }
    }
  }
  std::map<uint64_t, SyncOfStep> steps;
  size_t thread_count = 0;
};

class TraceWriter {
 public:
  TraceWriter(AtomicFile file, Extent extent, bool is_bounded)
      : file_(std::move(file)), extent_(extent), is_bounded_(is_bounded) {}
  Status AddLife(size_t pid, const Life& life, const TimelineFile& file);
  Status End(const std::vector<std::string>& warnings);
  uint64_t span_count() const { return span_count_; }

 private:
  // The spans of one thread, or of one kind of flow, on as many rows as they need so that none
  // overlaps another. A thread's work needs one row.
  struct Row {
    size_t tid = 0;
    int64_t end_ns = INT64_MIN;
  };
  Status AddTrack(const TimelineTrackRecords& track, const TimelineFile& file,
                  const TimelineClock& clock);
  Row& RowFor(const std::string& track, int64_t begin_ns, std::vector<Row>* rows);
  void AddSpan(size_t tid, int64_t begin_ns, const TimelineRecord& record,
               const TimelineFile& file);
  void AddMark(int64_t at_ns, const std::string& name, const std::string& text);
  void AddMetadata(size_t tid, const char* what, const std::string& value);
  void AddExposedSync(const TimelineFile& file, const TimelineClock& clock);
  void Separate();
  Status Flush();
  std::string Time(int64_t at_ns) const { return Microseconds(at_ns - extent_.begin_ns); }

  AtomicFile file_;
  const Extent extent_;
  const bool is_bounded_;  // it has only some steps, so marks of other times are left out
  std::string text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  bool has_events_ = false;
  size_t pid_ = 0;
  size_t last_tid_ = 0;
  std::vector<std::string> heads_;  // by name of the file: the beginning of a span's text
  uint64_t span_count_ = 0;
};

void TraceWriter::Separate() {
  text_ += has_events_ ? ",\n" : "\n";
  has_events_ = true;
}

Status TraceWriter::Flush() {
  Status written = file_.Write(std::as_bytes(std::span(text_)));
  text_.clear();
  return written;
}

void TraceWriter::AddMetadata(size_t tid, const char* what, const std::string& value) {
  Separate();
  text_ += fmt::format("{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"args\":{{{}}}}}",
                       pid_, tid, what, value);
}

Status TraceWriter::AddLife(size_t pid, const Life& life, const TimelineFile& file) {
  pid_ = pid;
  last_tid_ = 0;
  AddMetadata(0, "process_name", "\"name\":" + JsonText(life.name));
  const std::string label = fmt::format("process {} on {}", file.head.process_id, file.host);
  AddMetadata(0, "process_labels", "\"labels\":" + JsonText(label));
  AddMetadata(0, "process_sort_index", fmt::format("\"sort_index\":{}", pid));
  heads_.clear();
  for (const TimelineName& name : file.names) {
    heads_.push_back(fmt::format("\"name\":{},\"cat\":{},\"args\":{{", JsonText(name.text),
                                 JsonText(name.category)));
  }
  for (const TimelineTrackRecords& track : file.tracks)
    PANDO_RETURN_IF_ERROR(AddTrack(track, file, *life.clock));
  AddExposedSync(file, *life.clock);
  return Flush();
}

// Adds the counter exposed_sync_ms, whose value holds from a step's beginning to the next one's. It
// is the value of the progress line and of metrics.csv, step by step.
void TraceWriter::AddExposedSync(const TimelineFile& file, const TimelineClock& clock) {
  const ExposedSync sync(file);
  for (const auto& [step, of_step] : sync.steps) {
    Separate();
    const double ms =
        1e-6 * static_cast<double>(of_step.waited_ns) / static_cast<double>(sync.thread_count);
    text_ += fmt::format(
        "{{\"ph\":\"C\",\"pid\":{},\"tid\":0,\"ts\":{},\"name\":\"exposed_sync_ms\","
        "\"args\":{{\"ms\":{:.3f}}}}}",
        pid_, Time(clock.ToReference(of_step.begin_ns)), ms);
  }
}

Status TraceWriter::AddTrack(const TimelineTrackRecords& track, const TimelineFile& file,
                             const TimelineClock& clock) {
  std::vector<TimelineRecord> records = track.records;
  std::ranges::stable_sort(records, {}, &TimelineRecord::begin_ns);
  std::vector<Row> rows;
  for (const TimelineRecord& record : records) {
    const int64_t begin_ns = clock.ToReference(record.begin_ns);
    if (record.kind == TimelineKind::kMark)
      AddMark(begin_ns, file.names[record.name].text, file.names[record.number].text);
    if (!IsSpan(record)) continue;
    Row& row = RowFor(track.name, begin_ns, &rows);
    row.end_ns = begin_ns + record.duration_ns;
    AddSpan(row.tid, begin_ns, record, file);
    if (text_.size() < kBufferBytes) continue;
    PANDO_RETURN_IF_ERROR(Flush());
  }
  return Flush();
}

TraceWriter::Row& TraceWriter::RowFor(const std::string& track, int64_t begin_ns,
                                      std::vector<Row>* rows) {
  for (Row& row : *rows) {
    if (row.end_ns <= begin_ns) return row;
  }
  const size_t tid = ++last_tid_;
  const std::string name = rows->empty() ? track : fmt::format("{} ({})", track, rows->size() + 1);
  AddMetadata(tid, "thread_name", "\"name\":" + JsonText(name));
  AddMetadata(tid, "thread_sort_index", fmt::format("\"sort_index\":{}", tid));
  return rows->emplace_back(Row{.tid = tid});
}

void TraceWriter::AddSpan(size_t tid, int64_t begin_ns, const TimelineRecord& record,
                          const TimelineFile& file) {
  Separate();
  ++span_count_;
  const std::string& number = file.names[record.name].number;
  text_ += fmt::format("{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},{}\"step\":{}",
                       pid_, tid, Time(begin_ns), Microseconds(record.duration_ns),
                       heads_[record.name], record.step);
  if (!number.empty()) text_ += fmt::format(",{}:{}", JsonText(number), record.number);
  text_ += "}}";
}

void TraceWriter::AddMark(int64_t at_ns, const std::string& name, const std::string& text) {
  if (is_bounded_ && (at_ns < extent_.begin_ns || at_ns > extent_.end_ns)) return;
  Separate();
  text_ += fmt::format(
      "{{\"ph\":\"i\",\"s\":\"g\",\"pid\":{},\"tid\":0,\"ts\":{},\"name\":{},\"cat\":\"run\","
      "\"args\":{{\"text\":{}}}}}",
      pid_, Time(at_ns), JsonText(name), JsonText(text));
}

Status TraceWriter::End(const std::vector<std::string>& warnings) {
  const nlohmann::ordered_json other{{"made_by", fmt::format("pando {}", PandoVersion())},
                                     {"warnings", warnings}};
  text_ += "\n],\"otherData\":" + JsonText(other) + "}\n";
  PANDO_RETURN_IF_ERROR(Flush());
  return file_.Commit();
}

// ---- two passes over the files: first places and times, then contents ---------------------------

Result<Life> ReadLife(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(TimelineFile file, ReadTimelineFile(path));
  Life life{.file = std::move(file)};
  life.name = life.file.process;
  for (TimelineTrackRecords& track : life.file.tracks) {
    for (const TimelineRecord& record : track.records) {
      const int64_t end_ns = record.begin_ns + record.duration_ns;
      if (IsSpan(record)) life.spans.Add(record.begin_ns, end_ns);
      if (record.kind == TimelineKind::kMark) life.marks.Add(record.begin_ns, end_ns);
    }
    std::erase_if(track.records, [](const auto& r) { return r.kind != TimelineKind::kClock; });
  }
  return life;
}

void PlaceOnOneClock(std::vector<Life>* lives) {
  const TimelineFile* origin = &lives->front().file;
  for (const Life& life : *lives) {
    const bool is_earlier = life.file.head.unix_ns < origin->head.unix_ns || !IsScheduler(*origin);
    if (IsScheduler(life.file) && is_earlier) origin = &life.file;
  }
  for (Life& life : *lives)
    life.clock = TimelineClock(life.file, ReferenceFor(life.file, *lives), *origin);
}

std::vector<std::string> Warnings(const std::vector<Life>& lives) {
  std::vector<std::string> warnings;
  for (const Life& life : lives) {
    const TimelineFile& file = life.file;
    if (file.head.lost_count > 0) {
      warnings.push_back(fmt::format("{} ({}) lacks its last {} spans: its file or disk was full",
                                     file.process, file.path, file.head.lost_count));
    }
    if (life.clock->is_by_time_of_day()) {
      warnings.push_back(fmt::format(
          "{} on {} is placed by its time of day: it has not measured the scheduler's clock",
          file.process, file.host));
    }
  }
  return warnings;
}

// Sorts the lives by role, rank and time. A process that was restarted has several lives.
void SortAndName(std::vector<Life>* lives) {
  const auto place = [](const Life& life) {
    return std::tuple(RoleRank(life.name), life.name.size(), life.name,
                      life.clock->ToReference(life.file.head.steady_ns));
  };
  std::ranges::sort(*lives, {}, place);
  std::map<std::string, int> counts;
  for (Life& life : *lives) {
    const int count = ++counts[life.name];
    if (count > 1) life.name += fmt::format(", life {}", count);
  }
}

bool IsBounded(const Life& life) {
  return life.file.head.first_step != 0 || life.file.head.last_step != UINT64_MAX;
}

Extent WholeExtent(const std::vector<Life>& lives, bool is_bounded) {
  Extent whole;
  for (const Life& life : lives) {
    const auto add = [&](const Extent& extent) {
      if (extent.begin_ns > extent.end_ns) return;  // empty
      whole.Add(life.clock->ToReference(extent.begin_ns), life.clock->ToReference(extent.end_ns));
    };
    add(life.spans);
    if (!is_bounded) add(life.marks);
  }
  return whole.begin_ns > whole.end_ns ? Extent{0, 0} : whole;
}

}  // namespace

Result<TraceSummary> WriteTrace(const std::vector<std::string>& sources, const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(std::vector<std::string> files, FindFiles(sources));
  std::vector<Life> lives;
  for (const std::string& file : files) {
    PANDO_ASSIGN_OR_RETURN(Life life, ReadLife(file));
    lives.push_back(std::move(life));
  }
  PlaceOnOneClock(&lives);
  TraceSummary summary{.process_count = lives.size(), .warnings = Warnings(lives)};
  SortAndName(&lives);
  const bool is_bounded = std::ranges::any_of(lives, IsBounded);
  PANDO_ASSIGN_OR_RETURN(AtomicFile out, AtomicFile::Create(path));
  TraceWriter writer(std::move(out), WholeExtent(lives, is_bounded), is_bounded);
  for (size_t i = 0; i < lives.size(); ++i) {
    PANDO_ASSIGN_OR_RETURN(TimelineFile file, ReadTimelineFile(lives[i].file.path));
    PANDO_RETURN_IF_ERROR(writer.AddLife(i + 1, lives[i], file));
  }
  summary.span_count = writer.span_count();
  PANDO_RETURN_IF_ERROR(writer.End(summary.warnings));
  return summary;
}

Result<std::vector<TimelineSum>> SumTimeline(const std::vector<std::string>& sources) {
  PANDO_ASSIGN_OR_RETURN(const std::vector<std::string> paths, FindFiles(sources));
  std::map<std::tuple<std::string, std::string, std::string>, TimelineSum> sums;
  for (const std::string& path : paths) {
    PANDO_ASSIGN_OR_RETURN(const TimelineFile file, ReadTimelineFile(path));
    const std::string role = file.process.substr(0, file.process.find(' '));
    for (const TimelineTrackRecords& track : file.tracks) {
      for (const TimelineRecord& record : track.records) {
        if (record.kind != TimelineKind::kSpan) continue;
        const TimelineName& name = file.names[record.name];
        TimelineSum& sum = sums[{role, name.category, name.text}];
        sum.seconds += 1e-9 * static_cast<double>(record.duration_ns);
        ++sum.span_count;
      }
    }
  }
  std::vector<TimelineSum> list;
  for (auto& [key, sum] : sums) {
    std::tie(sum.role, sum.category, sum.name) = key;
    list.push_back(std::move(sum));
  }
  std::ranges::stable_sort(list, {}, [](const TimelineSum& sum) {
    return std::tuple(RoleRank(sum.role), sum.role, -sum.seconds);
  });
  return list;
}

}  // namespace pando
