// Leadership belongs to a leading scheduler process in a run with standbys: the election's lease
// and the copies of its run folder.
#pragma once

#include <poll.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/mailbox.h"
#include "node/log.h"
#include "node/processes.h"
#include "node/standby/standby_keeper.h"
#include "scheduler/leader_gate.h"
#include "scheduler/members/member.h"

namespace pando {

class Leadership : public StandbyCopies {
 public:
  struct Change {
    std::string event;  // empty: the schedulers have changed otherwise
    std::string text;
  };
  // `context` outlives it.
  static Result<std::unique_ptr<Leadership>> Take(const SchedulerArgs& args, const Seat& seat,
                                                  Lead lead, ZmqContext& context) {
    std::unique_ptr<Leadership> leadership(new Leadership(std::move(lead)));
    PANDO_ASSIGN_OR_RETURN(
        leadership->mirror_,
        Mirror::Start({context, args.run_dir,
                       static_cast<uint64_t>(leadership->election().revision), LogWarning}));
    leadership->keeper_ = std::make_unique<StandbyKeeper>(
        StandbyKeeper::Options{
            *args.etcd, seat.folder(), leadership->election(),
            [raw = leadership.get()](const std::string& event, const std::string& text) {
              std::ignore = raw->changes_.Push({event, text});
            }},
        *leadership->mirror_);
    return leadership;
  }

  const EtcdCompare& election() const { return lead_.election; }
  StandbyKeeper& keeper() { return *keeper_; }
  Mirror& mirror() { return *mirror_; }
  // Returns the news about standbys since the last call.
  std::deque<Change> TakeChanges() {
    places_ = keeper_->Places();
    return changes_.Drain();
  }
  // The run's schedulers, as they were at the last call of TakeChanges.
  const std::vector<SchedulerPlace>& places() const { return places_; }
  // A standby may lead only when all members know where it listens.
  void NoteMembers(const std::map<NodeId, Member>& members) {
    const uint64_t hash = keeper_->awaited_hash();
    if (hash != 0 && std::ranges::all_of(members, [&](const auto& entry) {
          return entry.second.heartbeat.schedulers_hash == hash;
        }))
      keeper_->NoteMembersKnow(hash);
  }
  int changes_fd() const { return changes_.fd(); }  // readable while there is news
  uint64_t Mark() override { return mirror_->Mark(); }
  bool HasReached(uint64_t mark) const override { return keeper_->HasReached(mark); }
  bool MaySpeak() const override { return SteadyNow() < lead_.lease->deadline(); }
  // etcd says that the lease has ended.
  bool is_lost() const { return lead_.lease->is_lost(); }
  // Waits a moment until the standbys have all that is in the folder now.  Returns whether they do.
  bool AwaitStandbys(Micros patience) {
    const uint64_t mark = Mark();
    const Micros deadline = SteadyNow() + patience;
    while (!HasReached(mark)) {
      if (SteadyNow() >= deadline) return false;
      pollfd reached{mirror_->fd(), POLLIN, 0};
      poll(&reached, 1, /*timeout=*/20);
      mirror_->Clear();
    }
    return true;
  }

 private:
  explicit Leadership(Lead lead) : lead_(std::move(lead)) {}

  Lead lead_;
  Mailbox<Change> changes_;
  std::vector<SchedulerPlace> places_;
  std::unique_ptr<Mirror> mirror_;
  std::unique_ptr<StandbyKeeper> keeper_;
};

}  // namespace pando
