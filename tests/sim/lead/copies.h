// The copies of a leading scheduler's run folder, in the simulator (P47). The folder itself is the
// virtual disk and the rows that ResultChecker has seen; a copy lacks the newest of both.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "scheduler/leader_gate.h"
#include "tests/sim/world.h"

namespace pando::sim {

// The contents of a run folder.
struct FolderState {
  Step next_row;
  uint64_t file_count = 0;  // files that were ever written
  bool has_final_weights = false;
};

// The standby of one life of the leading scheduler, if there is one: it comes, follows the folder
// after some time, and is lost, again and again. It stands for the product's StandbyKeeper, with an
// etcd that always answers.
class VirtualCopies : public StandbyCopies {
 public:
  struct Around {  // all outlive it
    World& world;
    Micros lag_max;                     // of the copy
    std::function<FolderState()> look;  // into the folder, now
    std::function<bool()> is_running;   // the leader's process
    std::function<void()> on_reached;   // something that waits may go on
  };
  explicit VirtualCopies(Around around) : around_(std::move(around)) { Come(); }

  uint64_t Mark() override;
  bool HasReached(uint64_t mark) const override {
    return !is_deposed_ && (stage_ < Stage::kAwaited || reached_ >= mark);
  }
  bool MaySpeak() const override { return !is_deposed_; }

  // The folder of the standby that may lead; none if there is none.
  std::optional<FolderState> ListedFolder() const {
    return stage_ == Stage::kListed && !is_deposed_ ? std::optional(copy_) : std::nullopt;
  }
  // The lease has ended, and the standby leads.
  void Depose() { is_deposed_ = true; }
  bool is_deposed() const { return is_deposed_; }

 private:
  enum class Stage : uint8_t { kAbsent, kFilled, kAwaited, kListed };
  void Come();
  void Leave();
  void OnReached(uint64_t mark, const FolderState& folder);

  const Around around_;
  Stage stage_ = Stage::kAbsent;
  uint64_t standby_ = 0;  // one more with each that comes
  uint64_t mark_ = 0;
  uint64_t due_ = 0;  // the mark before the next stage
  uint64_t reached_ = 0;
  Micros reaches_at_{0};  // the newest mark
  FolderState copy_;
  bool is_deposed_ = false;
};

}  // namespace pando::sim
