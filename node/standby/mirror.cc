#include "node/standby/mirror.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common/system.h"
#include "net/event_loop.h"
#include "node/standby/mirror_scan.h"
#include "node/standby/mirror_sender.h"
#include "proto/dispatch.h"
#include "proto/message_limits.h"

namespace pando {

// The thread's part: it looks at the folder, and has a sender for each standby. The receiver's lane
// in a message numbers the standby, and comes back as the sender's.
class Mirror::Core : public ProtocolCore {
 public:
  Core(Mirror& mirror, const Options& options)
      : mirror_(mirror),
        options_(options),
        transport_(options.context, self_, {.linger_ms = 0, .on_warning = options.on_warning}),
        scan_(options.run_dir) {}

  Transport& transport() { return transport_; }
  void OnMessage(Micros now, const Envelope& envelope) override;
  void Tick(Micros now) override;
  Micros NextDeadline() const override;

 private:
  struct Target {
    std::string folder;
    std::string endpoint;
    std::unique_ptr<MirrorSender> sender;
  };
  static PeerId PeerAt(uint16_t lane) { return {kSchedulerNode, Incarnation(), lane}; }
  void TakeStandbys();
  void Add(const std::string& folder, const std::string& endpoint);
  void Look(Micros now);
  void Publish();

  Mirror& mirror_;
  const Options options_;
  const PeerId self_{kUnknownNode, NewIncarnation(), 0};
  Transport transport_;
  MirrorScan scan_;
  std::map<uint16_t, Target> targets_;  // by lane
  uint64_t looked_mark_ = 0;            // the newest mark before the last look at the whole folder
  Micros look_at_{0};
  Micros warn_at_{0};
};

Mirror::Mirror(const Options& options) : thread_([this, options] { Run(options); }) {}

Mirror::~Mirror() {
  stop_.Request();
  thread_.join();
}

Result<std::unique_ptr<Mirror>> Mirror::Start(const Options& options) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(options.run_dir, ignored))
    return NotFound(fmt::format("there is no run folder {}", options.run_dir));
  return std::unique_ptr<Mirror>(new Mirror(options));
}

void Mirror::Run(const Options& options) {
  TakeShortTimeSlices();
  Core core(*this, options);
  RunLoop(core, core.transport(),
          {.stop = &stop_,
           .local = {{wake_.fd(), [this](Micros) { wake_.Clear(); }}},
           .is_finished = [] { return false; }});
}

// ---- any thread --------------------------------------------------------------------------------

void Mirror::SetStandbys(const std::map<std::string, std::string>& endpoint_of) {
  const std::lock_guard lock(mutex_);
  std::map<std::string, Standby> next;
  for (const auto& [folder, endpoint] : endpoint_of) {
    const auto known = standbys_.find(folder);
    const bool stays = known != standbys_.end() && known->second.endpoint == endpoint;
    next[folder] = stays ? known->second : Standby{.endpoint = endpoint};
  }
  standbys_ = std::move(next);
  has_other_standbys_ = true;
  wake_.Raise();
}

uint64_t Mirror::Mark() {
  const uint64_t mark = ++mark_;
  wake_.Raise();
  return mark;
}

std::vector<std::string> Mirror::ReachedBy(uint64_t mark) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> folders;
  for (const auto& [folder, standby] : standbys_)
    if (standby.reached != 0 && standby.reached >= mark) folders.push_back(folder);
  return folders;
}

std::optional<Micros> Mirror::HeardAt(const std::string& folder) const {
  const std::lock_guard lock(mutex_);
  const auto standby = standbys_.find(folder);
  return standby == standbys_.end() ? std::nullopt : standby->second.heard_at;
}

// ---- the thread --------------------------------------------------------------------------------

void Mirror::Core::OnMessage(Micros now, const Envelope& envelope) {
  const auto target = targets_.find(envelope.sender.lane);
  if (target == targets_.end()) return;
  MirrorSender& sender = *target->second.sender;
  Dispatch<pando::Core::kMirror>(
      envelope.message,
      [&](const MirrorStarted& started) {
        if (sender.OnStarted(now, started)) sender.Plan(scan_.All(), looked_mark_);
      },
      [&](const MirrorAck& ack) { sender.OnAck(now, ack); });
}

void Mirror::Core::Tick(Micros now) {
  TakeStandbys();
  Look(now);
  for (auto& [lane, target] : targets_) target.sender->Tick(now);
  Publish();
}

Micros Mirror::Core::NextDeadline() const {
  Micros next = look_at_;
  for (const auto& [lane, target] : targets_) next = std::min(next, target.sender->NextDeadline());
  return next;
}

void Mirror::Core::TakeStandbys() {
  if (!mirror_.has_other_standbys_.exchange(false)) return;
  std::map<std::string, std::string> wanted;
  {
    const std::lock_guard lock(mirror_.mutex_);
    for (const auto& [folder, standby] : mirror_.standbys_) wanted[folder] = standby.endpoint;
  }
  std::erase_if(targets_, [&](const auto& entry) {
    const auto& [lane, target] = entry;
    const auto found = wanted.find(target.folder);
    const bool stays = found != wanted.end() && found->second == target.endpoint;
    if (stays) wanted.erase(found);
    if (!stays) transport_.HangUp(PeerAt(lane));
    return !stays;
  });
  for (const auto& [folder, endpoint] : wanted) Add(folder, endpoint);
}

void Mirror::Core::Add(const std::string& folder, const std::string& endpoint) {
  uint16_t lane = kStandbyLane;
  while (targets_.contains(lane)) ++lane;
  const Status dialed = lane < kLanesMax ? transport_.Dial(PeerAt(lane), endpoint)
                                         : Unavailable("there are too many standbys");
  if (!dialed.ok())
    return options_.on_warning(
        fmt::format("the standby at {} gets no copy of the run: {}", endpoint, dialed.message()));
  targets_[lane] = {
      folder, endpoint,
      std::make_unique<MirrorSender>(MirrorSender::Options{.run_dir = options_.run_dir,
                                                           .self = self_,
                                                           .standby = PeerAt(lane),
                                                           .term = options_.term,
                                                           .outbox = transport_,
                                                           .on_warning = options_.on_warning})};
}

// Marks that were made before the look are reached with its changes.
void Mirror::Core::Look(Micros now) {
  const uint64_t mark = mirror_.mark_;
  if (mark == looked_mark_ && now < look_at_) return;
  look_at_ = now + MirrorScan::kListInterval;
  if (targets_.empty()) return;  // no mark is asked for
  std::vector<MirrorChange> changes;
  const Status looked = scan_.Look(now, &changes);
  if (looked.ok()) looked_mark_ = mark;
  if (!looked.ok() && now >= warn_at_) {
    warn_at_ = now + std::chrono::minutes(1);
    options_.on_warning(
        fmt::format("standbys do not get the whole run folder: {}", looked.message()));
  }
  for (auto& [lane, target] : targets_) target.sender->Plan(changes, looked_mark_);
}

void Mirror::Core::Publish() {
  const std::lock_guard lock(mirror_.mutex_);
  for (const auto& [lane, target] : targets_) {
    const auto standby = mirror_.standbys_.find(target.folder);
    if (standby == mirror_.standbys_.end() || standby->second.endpoint != target.endpoint) continue;
    if (target.sender->reached() > standby->second.reached) mirror_.news_.Raise();
    standby->second.reached = target.sender->reached();
    standby->second.heard_at = target.sender->heard_at();
  }
}

}  // namespace pando
