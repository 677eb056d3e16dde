#include "tests/sim/storage/files.h"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

#include "common/hash.h"

namespace pando::sim {
namespace {

constexpr const char* kFolder = "snapshots/";

// A file: this, then the parameters and the state.
struct Head {
  uint32_t generation = 0;
  uint32_t shard = 0;
  uint64_t version = 0;
  uint64_t hash = 0;
  uint64_t parameters = 0;
  uint64_t state = 0;
};

std::span<const float> ValuesIn(const SharedBuffer& buffer) {
  return buffer == nullptr ? std::span<const float>() : std::as_const(*buffer).span();
}

std::vector<std::byte> MakeFile(const Head& head, std::span<const float> parameters,
                                std::span<const float> state) {
  std::vector<std::byte> bytes;
  for (const auto part :
       {std::as_bytes(std::span(&head, 1)), std::as_bytes(parameters), std::as_bytes(state)})
    bytes.insert(bytes.end(), part.begin(), part.end());
  return bytes;
}

// The head, and the record without its file's name; a head without a version where it is damaged.
std::pair<Head, VirtualDisk::Record> ParseFile(std::span<const std::byte> bytes) {
  Head head;
  VirtualDisk::Record record;
  if (bytes.size() < sizeof head) return {Head(), record};
  std::memcpy(&head, bytes.data(), sizeof head);
  const uint64_t floats = (bytes.size() - sizeof head) / sizeof(float);
  if (head.parameters > floats || head.state != floats - head.parameters) return {Head(), record};
  record.hash = head.hash;
  record.parameters.resize(head.parameters);
  record.state.resize(head.state);
  const std::byte* at = bytes.data() + sizeof head;
  if (head.parameters > 0) std::memcpy(record.parameters.data(), at, head.parameters * 4);
  at += head.parameters * 4;
  if (head.state > 0) std::memcpy(record.state.data(), at, head.state * 4);
  return {head, record};
}

std::string PrefixFor(const SnapshotRef& snapshot) {
  return fmt::format("{}g{:03}-v{:09}-", kFolder, snapshot.generation, snapshot.version.value());
}

}  // namespace

// ---- the store's side --------------------------------------------------------------------------

class VirtualDraft : public FileDraft {
 public:
  VirtualDraft(VirtualDisk& disk, std::function<bool()> is_ours, std::string name)
      : disk_(disk), is_ours_(std::move(is_ours)), name_(std::move(name)) {}
  ~VirtualDraft() override {
    if (!is_done_) disk_.NoteLost();
  }
  Status Append(std::span<const std::byte> bytes) override {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return Status();
  }
  Status Commit() override {
    is_done_ = true;
    if (!is_ours_()) return Status();
    auto [head, record] = ParseFile(bytes_);
    record.file = name_.substr(std::strlen(kFolder));
    disk_.Keep({{head.generation, Version(head.version)}, ShardId(head.shard)}, std::move(record));
    return Status();
  }

 private:
  VirtualDisk& disk_;
  const std::function<bool()> is_ours_;
  const std::string name_;
  std::vector<std::byte> bytes_;
  bool is_done_ = false;
};

bool VirtualFolder::Has(const std::string& name) {
  return disk_.FindFile(name.substr(std::strlen(kFolder))).second != nullptr;
}

Result<std::unique_ptr<FileDraft>> VirtualFolder::Create(const std::string& name) {
  if (disk_.FailsNow()) return NoSpace("the simulated disk is full");
  std::unique_ptr<FileDraft> draft = std::make_unique<VirtualDraft>(disk_, is_ours_, name);
  return draft;
}

Result<FileDisk::Part> VirtualFolder::Read(const std::string& name, uint64_t offset,
                                           uint64_t size) {
  const auto [key, record] = disk_.FindFile(name.substr(std::strlen(kFolder)));
  if (record == nullptr) return NotFound("the simulated disk has no " + name);
  if (disk_.FailsNow()) {
    disk_.NoteUnread();
    return Unavailable("the simulated disk cannot be read");
  }
  const Head head{.generation = key.first.generation,
                  .shard = key.second.value(),
                  .version = key.first.version.value(),
                  .hash = record->hash,
                  .parameters = record->parameters.size(),
                  .state = record->state.size()};
  const std::vector<std::byte> whole = MakeFile(head, record->parameters, record->state);
  const auto from =
      whole.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(offset, whole.size()));
  const auto left = static_cast<uint64_t>(whole.end() - from);
  auto part = std::make_shared<std::vector<std::byte>>(
      from, from + static_cast<ptrdiff_t>(std::min(size, left)));
  const std::span<const std::byte> all = *part;
  return Part{whole.size(), Blob(all, std::move(part))};
}

std::vector<std::string> VirtualFolder::List(const std::string& prefix, const std::string& after,
                                             size_t count) {
  std::vector<std::string> names;
  for (const std::string& file : disk_.Files()) {
    const std::string name = kFolder + file;
    if (name.starts_with(prefix) && name > after) names.push_back(name);
  }
  std::ranges::sort(names);
  if (names.size() > count) names.resize(count);
  return names;
}

SchedulerFiles::SchedulerFiles(VirtualFolder folder, Loop& loop, const PeerId& scheduler, JobId job)
    : self_{kSchedulerNode, scheduler.incarnation, kFilesLane},
      folder_(std::move(folder)),
      loop_(loop) {
  auto core = std::make_unique<FileStore>(self_, job, folder_, loop.outbox());
  store_ = core.get();
  loop.SetCore(std::move(core), {});
}

void SchedulerFiles::Admit(const Scheduler& scheduler) {
  for (const auto& [node, member] : scheduler.membership().members().all())
    store_->Admit(member.peer.incarnation, member.registration.role);
}

// ---- the server's side -------------------------------------------------------------------------

void RecordQueue::Push(std::variant<StoreRequest, LoadRequest> request, Answer answer) {
  auto queued = std::make_shared<Queued>(Queued{std::move(request), std::move(answer)});
  loop_.Post([this, queued] { queue_.push_back(std::move(*queued)); });
}

void RecordQueue::Advance() {
  while (!queue_.empty() && client_.is_done()) {
    const Queued& first = queue_.front();
    const auto* store = std::get_if<StoreRequest>(&first.request);
    const bool is_over = store != nullptr
                             ? Store(*store, first.answer)
                             : Load(std::get<LoadRequest>(first.request), first.answer);
    if (!is_over) return loop_.WakeSoon();
    doing_ = Doing::kNothing;
    queue_.pop_front();
  }
}

bool RecordQueue::Store(const StoreRequest& request, const Answer& answer) {
  if (doing_ == Doing::kStoring) {
    answer(RecordStored{request.snapshot, request.shard, request.hash,
                        client_.status().ok() ? name_.substr(std::strlen(kFolder)) : "",
                        client_.status()});
    return true;
  }
  const auto parameters = ValuesIn(request.parameters);
  const auto state = ValuesIn(request.state);
  bytes_ = MakeFile({.generation = request.snapshot.generation,
                     .shard = request.shard.value(),
                     .version = request.snapshot.version.value(),
                     .hash = request.hash,
                     .parameters = parameters.size(),
                     .state = state.size()},
                    parameters, state);
  name_ = fmt::format("{}{}-{}.safetensors", PrefixFor(request.snapshot), HexText(self_.value()),
                      file_count_++);
  client_.Store(name_, {std::span<const std::byte>(bytes_)});
  doing_ = Doing::kStoring;
  return false;
}

bool RecordQueue::Load(const LoadRequest& request, const Answer& answer) {
  const auto fail = [&](Status status) {
    answer(RecordLoaded{request.snapshot, request.shard, std::move(status), nullptr, nullptr});
    return true;
  };
  if (doing_ == Doing::kNothing) {
    client_.List(PrefixFor(request.snapshot));
    doing_ = Doing::kListing;
    return false;
  }
  const bool is_missing = client_.status().code() == StatusCode::kNotFound;
  if (!client_.status().ok() && !is_missing) return fail(client_.status());
  if (doing_ == Doing::kListing) names_.assign(client_.names().begin(), client_.names().end());
  if (doing_ == Doing::kOpening && !is_missing) {
    bytes_.resize(client_.file_size());
    client_.Read(name_, 0, bytes_);
    doing_ = Doing::kReading;
    return false;
  }
  if (doing_ == Doing::kReading && !is_missing) {
    auto [head, record] = ParseFile(bytes_);
    if (head.shard == request.shard.value() &&
        VirtualDisk::IsSound(request.snapshot.version, record)) {
      const auto copy = [](const std::vector<float>& values) {
        auto buffer = std::make_shared<FloatBuffer>(values.size());
        std::ranges::copy(values, buffer->data());
        return buffer;
      };
      answer(RecordLoaded{request.snapshot, request.shard, Status(), copy(record.parameters),
                          copy(record.state)});
      return true;
    }
  }
  if (names_.empty()) return fail(NotFound("the simulated disk has no such record"));
  name_ = names_.front();
  names_.pop_front();
  client_.Read(name_, 0, {});
  doing_ = Doing::kOpening;
  return false;
}

}  // namespace pando::sim
