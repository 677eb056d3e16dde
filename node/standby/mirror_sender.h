// MirrorSender brings one standby's copy of the run folder up to date (P47). It sends the changes
// that MirrorScan finds, in their order, and knows up to which mark the standby has them. Mirror
// has one for each standby. Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "node/standby/mirror_parts.h"
#include "proto/outbox.h"

namespace pando {

class MirrorSender {
 public:
  static constexpr size_t kPartsMax = 64;            // that are unanswered
  static constexpr uint64_t kWindowBytes = 4 << 20;  // of them, without the last
  // The time after which an unanswered message is repeated. It doubles until an answer comes.
  static constexpr Micros kRepeat = std::chrono::milliseconds(500);
  static constexpr Micros kRepeatMax = std::chrono::seconds(4);
  static constexpr Micros kAskInterval = std::chrono::seconds(1);

  struct Options {
    std::string run_dir;
    PeerId self;
    PeerId standby;
    uint64_t term;   // the leader's, which orders leaders: EtcdCompare::revision of its election
    Outbox& outbox;  // outlives the sender
    std::function<void(const std::string& text)> on_warning;
  };
  explicit MirrorSender(Options options) : options_(std::move(options)) { Begin(); }

  // The standby has all changes up to this mark durably. 0: it lacks files that no change names.
  uint64_t reached() const { return reached_; }
  // When the standby last answered.
  std::optional<Micros> heard_at() const { return heard_at_; }

  // Takes the changes that lead to the mark. Without a session they are dropped: OnStarted returns
  // true when one has begun, and the next call must name all files of the folder.
  void Plan(const std::vector<MirrorChange>& changes, uint64_t mark);
  bool OnStarted(Micros now, const MirrorStarted& started);
  void OnAck(Micros now, const MirrorAck& ack);

  void Tick(Micros now);
  Micros NextDeadline() const { return repeat_at_; }

 private:
  void Begin();
  bool Forget(uint64_t part);
  void BeginWait(Micros now);
  void NoteReached();
  void Repeat(Micros now);
  void SendParts(Micros now);
  bool Cut(Micros now);
  void Send(Message message);
  void Warn(Micros now, const std::string& text);

  const Options options_;
  uint64_t session_ = 0;
  std::optional<MirrorParts> parts_;  // none before the session has begun
  uint64_t cut_count_ = 0;            // parts of the session
  std::deque<MirrorPart> window_;     // those without an acknowledgement
  uint64_t window_bytes_ = 0;
  size_t sent_ = 0;              // parts of the window that were sent since the last silence
  size_t sent_max_ = kPartsMax;  // one after a silence
  uint64_t done_changes_ = 0;    // those that are acknowledged
  std::deque<std::pair<uint64_t, uint64_t>> marks_;  // ascending; each with the changes before it
  uint64_t reached_ = 0;
  Micros interval_ = kRepeat;  // the next wait, if there is no answer
  Micros repeat_at_{0};
  std::optional<Micros> heard_at_;
  std::optional<Micros> warned_at_;
};

}  // namespace pando
