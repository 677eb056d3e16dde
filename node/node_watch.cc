#include "node/node_watch.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <thread>

#include "common/hash.h"
#include "run/run_folder.h"

namespace pando {
namespace {

// Acknowledgements that are missing when the log says that the scheduler is away.
constexpr int kMissingAcks = 3;
// A core that only waits for messages has no deadline that would wake its loop.
constexpr Micros kLookInterval = std::chrono::milliseconds(250);
constexpr Micros kFolderInterval = std::chrono::seconds(1);

}  // namespace

LocalEvents NodeWatch::Source() {
  return {shutdown_.fd(), [this](Micros now) { Look(now); }, kLookInterval};
}

void NodeWatch::Look(Micros now) {
  if (!verdict_) LookAtSignals(now);
  if (!verdict_) LookAtScheduler(now);
}

// Any signal concerns only this process; the run continues.
void NodeWatch::LookAtSignals(Micros now) {
  int signal = shutdown_.Take();
  if (signal == 0 && !is_leaving()) signal = shutdown_.first_signal();  // taken by an earlier watch
  for (; signal != 0; signal = shutdown_.Take()) {
    if (is_leaving()) {
      verdict_ = StoppedBy(signal);
      return;
    }
    spdlog::info(
        "leaving: others take over the work first; another signal ends the process at once");
    leaving_since_ = now;
    leave_(now);
  }
}

void NodeWatch::LookAtScheduler(Micros now) {
  if (heartbeat_.is_given_up()) {
    verdict_ = ConcludeMembership({StopReason::kFailed, "this process was declared dead"},
                                  RefusalKind::kGivenUp, is_leaving());
    return;
  }
  const Micros silence = now - heartbeat_.answered_at();
  const Micros heartbeat = std::chrono::milliseconds(membership_.job.heartbeat_ms);
  const int per_ack = static_cast<int>(membership_.job.heartbeats_per_ack());
  const Micros silence_max = std::chrono::milliseconds(membership_.job.scheduler_timeout_ms);
  if (const bool was_alone = std::exchange(is_alone_, silence > kMissingAcks * per_ack * heartbeat);
      was_alone != is_alone_) {
    spdlog::info("{}", is_alone_ ? "the scheduler does not answer; continuing without it"
                                 : "the scheduler answers again");
  }
  if (is_alone_) LookAtFolder(now);
  if (verdict_) return;
  const Micros patience = std::max(kLeavePatience, 2 * heartbeat);
  if (is_leaving() && silence > patience && now - *leaving_since_ > patience) {
    verdict_ = Interrupted(
        fmt::format("stopped by a signal; the scheduler has not answered for {} s, so its work is "
                    "not reassigned yet",
                    silence / std::chrono::seconds(1)));
  } else if (silence > silence_max) {
    verdict_ = Unavailable(
        fmt::format("the scheduler has not answered for {} s: it was killed, or cannot be "
                    "reached any more; look at its log",
                    silence_max / std::chrono::seconds(1)));
  }
}

// The scheduler writes the summary when the run ends, and removes it when the run goes on.
void NodeWatch::LookAtFolder(Micros now) {
  if (folder_look_ && folder_look_->is_done) {
    stop_ = folder_look_->end;
    folder_look_.reset();
    if (stop_) verdict_ = ConcludeMembership(*stop_, std::nullopt, /*is_leaving=*/false);
  } else if (!folder_look_ && now >= folder_at_) {
    folder_at_ = now + kFolderInterval;
    folder_look_ = std::make_shared<FolderLook>();
    std::thread([look = folder_look_, run_dir = RunDirFor(membership_),
                 run_id = HexText(membership_.job_id.value())] {
      Read(run_dir, run_id, *look);
    }).detach();
  }
}

void NodeWatch::Read(const std::string& run_dir, const std::string& run_id, FolderLook& look) {
  const Result<Summary> summary = RunFolder::Open(run_dir).ReadSummary();
  if (summary.ok() && summary->run_id == run_id) {
    const StopReason reason = summary->status == kStatusCompleted ? StopReason::kCompleted
                              : summary->status == kStatusFailed  ? StopReason::kFailed
                                                                  : StopReason::kInterrupted;
    look.end = Stop{reason, fmt::format("{}, as {} says{}{}", summary->status, run_dir,
                                        summary->failure.empty() ? "" : ": ", summary->failure)};
  }
  look.is_done = true;
}

}  // namespace pando
