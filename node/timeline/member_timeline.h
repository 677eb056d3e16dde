// MemberTimeline is the timeline of a server or worker, with the scheduler's clock. On a machine
// that does not share the run folder it is kept in a temporary folder, and sent to the scheduler at
// the end (P45). If the process is killed there, it is lost.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/timeline/timeline.h"
#include "files/temporary_folder.h"
#include "node/node_join.h"

namespace pando {

class MemberTimeline {
 public:
  // `context` and `membership` outlive it.
  MemberTimeline(ZmqContext& context, const Membership& membership, Role role);
  ~MemberTimeline();
  Timeline* get() const { return timeline_.get(); }  // null: the job asks for none
  TimelineTrack* OpenTrack(const std::string& name) const {
    return timeline_ ? &timeline_->OpenTrack(name) : nullptr;
  }
  // Call it at the process's end. Waits some seconds for the scheduler, or for `stop_fd`.
  void Close(int stop_fd) const;

 private:
  class ClockProbe;
  Status Send(int stop_fd) const;

  ZmqContext& context_;
  const Membership& membership_;
  std::optional<TemporaryFolder> folder_;  // none: the run folder has it
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<ClockProbe> clock_;
};

}  // namespace pando
