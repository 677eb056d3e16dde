#include "tests/ptx/block.h"

#include <algorithm>
#include <numeric>

namespace pando::ptx {

Block::Block(LaunchSetting& setting, Random& random)
    : setting_(setting),
      random_(random),
      shared_(setting.kernel.shared_bytes),
      cells_((setting.kernel.shared_bytes >> setting.kernel.access_shift) + 1) {
  const auto threads = static_cast<uint32_t>(setting.block.count());
  for (uint32_t first = 0; first < threads; first += kWarpLanes) {
    const uint32_t count = std::min(kWarpLanes, threads - first);
    warps_.emplace_back(setting.kernel, *this, first / kWarpLanes,
                        count == kWarpLanes ? ~0u : (1u << count) - 1);
  }
  order_.resize(warps_.size());
  std::iota(order_.begin(), order_.end(), 0);
}

void Block::Run(Size3 position, uint32_t stamp) {
  position_ = position;
  stamp_ = stamp;
  first_epoch_ = ++epoch_;
  for (Warp& warp : warps_) warp.Begin();
  while (RunWarps()) {
    CheckBarrier();
    ++epoch_;
    for (Warp& warp : warps_) warp.PassBarrier();
  }
}

// Returns whether any thread waits at a barrier.
bool Block::RunWarps() {
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_.Below(i)]);
  bool is_waiting = false;
  for (const uint32_t i : order_) {
    if (!warps_[i].IsDone()) warps_[i].Run();
    is_waiting = is_waiting || !warps_[i].IsDone();
  }
  return is_waiting;
}

// All threads that have not exited wait. They must do so at the same barrier.
void Block::CheckBarrier() {
  const LaneGroup* first = nullptr;
  for (const Warp& warp : warps_) {
    for (const LaneGroup& group : warp.groups()) {
      if (first == nullptr) first = &group;
      if (group.place == first->place) continue;
      const auto line = [this](uint32_t place) {
        return setting_.kernel.lines[setting_.kernel.code[place].line];
      };
      const uint32_t early = std::min(group.place, first->place);
      const uint32_t late = std::max(group.place, first->place);
      TheFindings().Add("a barrier that some threads of the block do not reach",
                        setting_.kernel.name, line(early), "others wait at " + line(late));
      return;
    }
  }
}

bool Block::IsInVariable(uint64_t address, uint32_t bytes) const {
  for (const Parameter& variable : setting_.kernel.shared_variables) {
    const uint64_t at = address - variable.offset;
    if (at < variable.size_bytes && bytes <= variable.size_bytes - at) return true;
  }
  return false;
}

std::byte* Block::AccessShared(Warp& warp, uint32_t lane, uint64_t address, uint32_t bytes,
                               bool is_store) {
  if (!warp.IsAligned(lane, address, bytes)) return nullptr;
  if (!IsInVariable(address, bytes)) [[unlikely]] {
    warp.Report("an access beyond an array of shared memory", lane,
                [=] { return "address " + std::to_string(address); });
    return nullptr;
  }
  const uint32_t shift = setting_.kernel.access_shift;
  for (uint64_t i = address >> shift; i < (address + bytes) >> shift; ++i) {
    if (is_store) {
      NoteSharedStore(warp, lane, cells_[i]);
    } else {
      NoteSharedLoad(warp, lane, cells_[i]);
    }
  }
  return shared_.data() + address;
}

void Block::NoteSharedStore(Warp& warp, uint32_t lane, Cell& cell) {
  const uint32_t self = warp.Thread(lane);
  if (cell.write_epoch == epoch_ && cell.writer != self) [[unlikely]]
    ReportRace(warp, lane, "store", "store", cell.writer);
  if (cell.read_epoch == epoch_ && cell.reader != self) [[unlikely]]
    ReportRace(warp, lane, "store", "load", cell.reader);
  cell.writer = self;
  cell.write_epoch = epoch_;
}

void Block::NoteSharedLoad(Warp& warp, uint32_t lane, Cell& cell) {
  const uint32_t self = warp.Thread(lane);
  if (cell.write_epoch < first_epoch_) [[unlikely]]
    warp.Report("a load from shared memory that was never written", lane);
  if (cell.write_epoch == epoch_ && cell.writer != self) [[unlikely]]
    ReportRace(warp, lane, "load", "store", cell.writer);
  const bool is_other = cell.read_epoch == epoch_ && cell.reader != self;
  cell.reader = is_other ? kManyReaders : self;
  cell.read_epoch = epoch_;
}

void Block::ReportRace(Warp& warp, uint32_t lane, const char* access, const char* earlier,
                       uint32_t other) {
  const std::string thread =
      other == kManyReaders ? "others'" : "thread " + std::to_string(other) + "'s";
  warp.Report(
      "a race in shared memory", lane,
      std::string("a ") + access + " after " + thread + " " + earlier + ", without a barrier");
}

}  // namespace pando::ptx
