#include "node/standby/mirror_sender.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/system.h"

namespace pando {

void MirrorSender::Begin() {
  session_ = NewIncarnation().value();
  parts_.reset();
  window_.clear();
  cut_count_ = window_bytes_ = sent_ = done_changes_ = reached_ = 0;
  sent_max_ = kPartsMax;
  marks_.clear();
}

void MirrorSender::Plan(const std::vector<MirrorChange>& changes, uint64_t mark) {
  if (!parts_) return;
  parts_->Add(changes);
  if (mark > (marks_.empty() ? reached_ : marks_.back().first))
    marks_.emplace_back(mark, parts_->added_count());
  NoteReached();
}

void MirrorSender::NoteReached() {
  for (; !marks_.empty() && marks_.front().second <= done_changes_; marks_.pop_front())
    reached_ = marks_.front().first;
}

// ---- answers -----------------------------------------------------------------------------------

bool MirrorSender::OnStarted(Micros now, const MirrorStarted& started) {
  heard_at_ = now;
  if (parts_ || started.session != session_) return false;
  parts_.emplace(options_.run_dir);
  return true;
}

void MirrorSender::OnAck(Micros now, const MirrorAck& ack) {
  heard_at_ = now;
  if (!ack.failure.empty()) Warn(now, ack.failure);
  if (!parts_) return;
  if (ack.session == 0) {
    Begin();
    repeat_at_ = now + kRepeat;
  }
  if (ack.session != session_) return;
  if (Forget(ack.part)) {
    sent_max_ = kPartsMax;
    BeginWait(now);
  }
  if (!ack.failure.empty() && !window_.empty()) sent_ = sent_max_ = 0;  // until repeat_at_
}

// Begins to wait for the window's next answer.
void MirrorSender::BeginWait(Micros now) {
  repeat_at_ = now + (window_.empty() ? kAskInterval : kRepeat);
  interval_ = 2 * kRepeat;
}

// Drops the window's parts up to this one. Returns whether there are any.
bool MirrorSender::Forget(uint64_t part) {
  const size_t count_before = window_.size();
  for (; !window_.empty() && window_.front().part <= part; window_.pop_front()) {
    window_bytes_ -= window_.front().payload.size_bytes();
    done_changes_ += IsLast(window_.front()) ? 1 : 0;
    sent_ -= std::min<size_t>(sent_, 1);
  }
  NoteReached();
  return window_.size() < count_before;
}

// ---- sending -----------------------------------------------------------------------------------

void MirrorSender::Tick(Micros now) {
  if (now >= repeat_at_) Repeat(now);
  if (parts_) SendParts(now);
}

void MirrorSender::Repeat(Micros now) {
  if (parts_ && window_.empty()) {
    repeat_at_ = now + kAskInterval;
    return Send(MirrorPart{.session = session_});  // part 0 asks for an answer
  }
  repeat_at_ = now + interval_;
  interval_ = std::min(2 * interval_, kRepeatMax);
  sent_ = 0;
  sent_max_ = parts_ ? 1 : kPartsMax;
  if (!parts_) Send(MirrorStart{session_, options_.term});
}

void MirrorSender::SendParts(Micros now) {
  while (sent_ < sent_max_) {
    const bool has_room = window_.size() < kPartsMax && window_bytes_ < kWindowBytes;
    if (sent_ == window_.size() && !(has_room && Cut(now))) return;
    Send(window_[sent_++]);
  }
}

// Appends the next part to the window. Returns false if there is none, or it cannot be read now.
bool MirrorSender::Cut(Micros now) {
  Result<std::optional<MirrorPart>> part = parts_->Next();
  if (!part.ok()) Warn(now, part.status().message());
  if (!part.ok() || !*part) return false;
  window_.push_back(**std::move(part));
  if (window_.size() == 1) BeginWait(now);
  window_.back().session = session_;
  window_.back().part = ++cut_count_;
  window_bytes_ += window_.back().payload.size_bytes();
  return true;
}

void MirrorSender::Send(Message message) {
  options_.outbox.Send(
      {.sender = options_.self, .receiver = options_.standby, .message = std::move(message)});
}

void MirrorSender::Warn(Micros now, const std::string& text) {
  constexpr Micros kWarningInterval = std::chrono::minutes(1);
  if (warned_at_ && now - *warned_at_ < kWarningInterval) return;
  warned_at_ = now;
  options_.on_warning(fmt::format("a standby's run folder is not up to date: {}", text));
}

}  // namespace pando
