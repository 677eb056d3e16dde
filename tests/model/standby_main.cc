// A model of standby schedulers alone, beside the one in model.h: three seats, each a process with
// its run folder, and one etcd. The leader mirrors rows, a snapshot and the final weights, while
// processes, disks and connections fail. Exits with 0 if the leading seat has each acknowledged row
// and each file that the journal names, no deposed leader speaks, a listed seat has its disk, and
// the run ends by what is repeated until it happens (P10, I7). With --mutation=NAME one rule is
// left out, and it exits with 0 if that breaks what the table of mutations says.
#include "tests/model/standby_state.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/model/small_search.h"

namespace pando::model::standby {
namespace {

enum class Rule : uint8_t {
  kAll,
  kFence,          // a leader goes on after a stop without a look at the clock and the election
  kDeadline,       // a leader that is cut off speaks when its lease may have ended
  kRowMirrored,    // a row is acknowledged when the leader alone has it
  kFileMirrored,   // a manifest is committed when the leader alone has the file
  kWeightsFirst,   // the run is finished when the leader alone has the weights
  kWriteDrop,      // the leader stops waiting for a standby that stays listed
  kListedOnly,     // the winner of an election does not read the list
  kFilledFirst,    // a standby is listed before it has everything
  kEmptyFirst,     // a former leader keeps its items when it is filled
  kCompareHead,    // a commit does not compare the head's revision
  kRepeat,         // a part is sent once
  kNewerSession,   // a standby obeys a late message that begins an old session
  kKeepSession,    // a standby that restarts has forgotten its session, and begins it again
  kWaitThenWrite,  // the leader waits for a new standby only when the list's commit is answered
  kOneRecord,      // a commit of the list alone does not change the head's revision
};

using Mutation = NamedMutation<Rule>;
constexpr std::array kMutations{
    Mutation{"fencing-dropped", Rule::kFence, Finding::kLoss},
    Mutation{"no-deadline", Rule::kDeadline, Finding::kLoss},
    Mutation{"row-before-mirror", Rule::kRowMirrored, Finding::kLoss},
    Mutation{"manifest-before-mirror", Rule::kFileMirrored, Finding::kLoss},
    Mutation{"finish-before-weights", Rule::kWeightsFirst, Finding::kLoss},
    Mutation{"drop-standby-silently", Rule::kWriteDrop, Finding::kLoss},
    Mutation{"any-standby-leads", Rule::kListedOnly, Finding::kLoss},
    Mutation{"add-before-filled", Rule::kFilledFirst, Finding::kLoss},
    Mutation{"keep-old-disk", Rule::kEmptyFirst, Finding::kLoss},
    Mutation{"head-without-compare", Rule::kCompareHead, Finding::kLoss},
    Mutation{"mirror-once", Rule::kRepeat, Finding::kHang},
    Mutation{"obey-old-session", Rule::kNewerSession, Finding::kLoss},
    Mutation{"forget-session", Rule::kKeepSession, Finding::kLoss},
    Mutation{"list-before-wait", Rule::kWaitThenWrite, Finding::kLoss},
    Mutation{"list-beside-head", Rule::kOneRecord, Finding::kLoss},
};

class StandbyModel {
 public:
  using State = standby::State;
  using Step = model::Step<State>;
  explicit StandbyModel(Rule left_out) : left_out_(left_out) {}

  std::vector<Step> Steps(const State& state) const {
    std::vector<Step> steps;
    for (int8_t seat = 0; seat < kSeats; ++seat) {
      const Process& process = At(state, seat).process;
      if (IsUp(process) && state.ReachesEtcd(seat)) AddElection(state, seat, steps);
      if (MaySpeak(process)) AddProgress(state, seat, steps);
      for (int8_t other = 0; other < kSeats; ++other) {
        if (other != seat) AddMirror(state, seat, other, steps);
      }
      AddEnds(state, seat, steps);
      if (state.faults < kFaultsMax) AddFaults(state, seat, steps);
    }
    AddEtcd(state, steps);
    return steps;
  }

  static bool IsBroken(const State&, const State& after) {
    bool has_folder = false;
    for (int8_t seat = 0; seat < kSeats; ++seat) {
      const Process& process = At(after, seat).process;
      const Disk& disk = At(after, seat).disk;
      if (MaySpeak(process) && process.session != after.journal.term) return true;
      if (process.phase == kLost) continue;
      has_folder = has_folder || (after.journal.complete & Bit(seat)) != 0;
      for (size_t item = 0; seat == after.journal.leader && item < kItems; ++item) {
        const uint8_t promised = after.Promised(item);
        if (promised != 0 && disk.items[item] != promised) return true;
      }
    }
    return !has_folder;
  }
  static bool IsDone(const State& state) { return state.Promised(kWeights) != 0; }

 private:
  bool Keeps(Rule rule) const { return left_out_ != rule; }
  template <class Change>
  void Add(std::vector<Step>& steps, const std::string& name, bool is_repeated, const State& state,
           Change change) const {
    State next = state;
    change(next);
    const LateCommit& late = next.late;
    // A late commit that changes nothing is dropped: there are fewer states then.
    const bool is_harmless =
        late.stage > kOnItsWay || (Keeps(Rule::kFence) && !next.IsHolder(late.seat, late.session));
    if (late.stage != kNoCommit && is_harmless && Keeps(Rule::kCompareHead) &&
        !At(next, late.seat).process.has_late_commit)
      next.late = {};
    if (next != state) steps.push_back({name, next, is_repeated});
  }
  static std::string Name(int8_t seat) { return "seat " + std::to_string(seat); }

  // The steps of a process that reaches etcd, until it leads.
  void AddElection(const State& state, int8_t seat, std::vector<Step>& steps) const {
    const Process& process = At(state, seat).process;
    const bool is_listed = (state.journal.complete & Bit(seat)) != 0;
    const bool is_holder = state.IsHolder(seat, process.session);
    const auto add = [&](const std::string& name, bool is_repeated, auto change) {
      Add(steps, Name(seat) + name, is_repeated, state,
          [&](State& s) { change(s, At(s, seat).process); });
    };
    if (process.phase == kStandby && state.holder == kNone) {
      // A standby may have read an old list. That is rare, so it counts as a fault.
      if (!is_listed && state.faults == kFaultsMax) return;
      add(is_listed ? " wins" : " wins, with an old list", is_listed, [&](State& s, Process& p) {
        if (!is_listed) ++s.faults;
        s.holder = seat;
        p = {.phase = kWon, .believes = true, .session = ++s.revision};
      });
    } else if (process.phase > kStandby && !is_holder) {
      add(" steps down", true, [](State&, Process& p) { p = {}; });
    } else if (process.phase > kStandby && !process.believes) {
      add(" renews its lease", true, [](State&, Process& p) { p.believes = true; });
    } else if (process.has_late_commit) {
      add(" repeats its commit", true, [&](State& s, Process&) {
        if (s.late.stage == kExecuted) return OnCommitted(s, seat);
        Commit(s, seat, s.late.journal, s.late.stage == kOnItsWay);
      });
    } else if (process.phase == kWon && !is_listed && Keeps(Rule::kListedOnly)) {
      add(" resigns", true, [](State& s, Process& p) {
        s.holder = kNone;
        p = {};
      });
    } else if (process.phase == kWon) {
      add(" reads the journal", true, [](State&, Process& p) {
        p.phase = kHasRead;
        p.knows_head = true;
      });
    } else if (process.phase == kHasRead) {
      AddCommit(state, seat, steps, " takes the journal",
                {seat, process.session, Bit(seat), state.journal.files});
    }
  }

  // The steps of a leader, except mirroring.
  void AddProgress(const State& state, int8_t seat, std::vector<Step>& steps) const {
    const Process& process = At(state, seat).process;
    const Disk& disk = At(state, seat).disk;
    const size_t missing = disk.FirstMissing();
    bool is_all_promised = true;
    for (size_t item = 0; item < missing; ++item) {
      const std::string name = std::to_string(item);
      if (state.Promised(item) != 0) continue;
      is_all_promised = false;
      if (!IsMirrored(state, seat, item)) continue;
      if (item < kRows) {
        Add(steps, Name(seat) + " acknowledges row " + name, true, state,
            [&](State& s) { s.acked[item] = disk.items[item]; });
      } else if (state.ReachesEtcd(seat)) {
        Journal journal = state.journal;
        journal.files[item - kRows] = disk.items[item];
        AddCommit(state, seat, steps, " commits file " + name, journal);
      }
    }
    if (missing < kWeights || (missing == kWeights && is_all_promised))
      Add(steps, Name(seat) + " gets item " + std::to_string(missing), true, state,
          [&](State& s) { At(s, seat).disk.items[missing] = process.session; });
    for (int8_t other = 0; other < kSeats; ++other) {
      if (other != seat) AddListing(state, seat, other, steps);
    }
  }

  // The leader knows which items a standby of its session has. It does not know their bytes.
  static bool HasItem(const State& state, int8_t seat, int8_t standby, size_t item) {
    const Disk& disk = At(state, standby).disk;
    return disk.session == At(state, seat).disk.session && disk.items[item] != 0;
  }
  bool IsMirrored(const State& state, int8_t seat, size_t item) const {
    const Rule rule = item < kRows       ? Rule::kRowMirrored
                      : item == kWeights ? Rule::kWeightsFirst
                                         : Rule::kFileMirrored;
    const uint8_t waits_for = Keeps(rule) ? At(state, seat).process.waits_for : 0;
    for (int8_t other = 0; other < kSeats; ++other) {
      if ((waits_for & Bit(other)) != 0 && !HasItem(state, seat, other, item)) return false;
    }
    return true;
  }

  // The leader adds a standby to the list, or drops it.
  void AddListing(const State& state, int8_t seat, int8_t other, std::vector<Step>& steps) const {
    const Process& process = At(state, seat).process;
    const Disk& disk = At(state, seat).disk;
    const std::string name = std::to_string(other);
    if ((process.waits_for & Bit(other)) != 0 && !Keeps(Rule::kWriteDrop))
      Add(steps, Name(seat) + " waits no more for " + name, false, state,
          [&](State& s) { At(s, seat).process.waits_for &= static_cast<uint8_t>(~Bit(other)); });
    if (!state.ReachesEtcd(seat)) return;
    Journal journal = state.journal;
    journal.complete ^= Bit(other);
    if ((journal.complete & Bit(other)) == 0)  // a standby that is up may be slow
      return AddCommit(state, seat, steps, " drops " + name, journal,
                       !IsUp(At(state, other).process));
    bool is_filled = At(state, other).disk.session == disk.session;
    for (size_t item = 0; item < kItems && Keeps(Rule::kFilledFirst); ++item)
      is_filled = is_filled && (disk.items[item] == 0 || HasItem(state, seat, other, item));
    if (is_filled) AddCommit(state, seat, steps, " adds " + name, journal);
  }

  void AddCommit(const State& state, int8_t seat, std::vector<Step>& steps, const std::string& name,
                 const Journal& journal, bool is_repeated = true) const {
    if (At(state, seat).process.has_late_commit) return;
    Add(steps, Name(seat) + name, is_repeated, state,
        [&](State& s) { Commit(s, seat, journal, At(s, seat).process.knows_head); });
    if (state.faults == kFaultsMax || state.late.stage != kNoCommit) return;
    Add(steps, Name(seat) + name + "; no answer", false, state, [&](State& s) {
      Process& process = At(s, seat).process;
      ++s.faults;
      s.late = {process.knows_head ? kOnItsWay : kOutdated, seat, process.session, journal};
      process.has_late_commit = true;
      if (Keeps(Rule::kWaitThenWrite)) process.waits_for |= journal.complete;
    });
  }

  // As EtcdJournal's transactions.
  bool IsAccepted(const State& state, int8_t seat, uint8_t session, bool is_head) const {
    return (is_head || !Keeps(Rule::kCompareHead)) &&
           (state.IsHolder(seat, session) || !Keeps(Rule::kFence));
  }
  void Execute(State& state, const Journal& journal) const {
    const Journal& old = state.journal;
    const bool is_head_written =
        Keeps(Rule::kOneRecord) || journal.term != old.term || journal.files != old.files;
    state.journal = journal;
    if (!is_head_written) return;
    for (Seat& seat : state.seats) seat.process.knows_head = false;
    if (state.late.stage != kNoCommit) state.late.stage = kOutdated;
  }
  void Commit(State& state, int8_t seat, const Journal& journal, bool is_head) const {
    Process& process = At(state, seat).process;
    if (IsAccepted(state, seat, process.session, is_head)) {
      Execute(state, journal);
      OnCommitted(state, seat);
    } else if (state.IsHolder(seat, process.session)) {
      process = {.phase = kWon, .believes = true, .session = process.session};
    } else {
      process = {};
    }
  }
  static void OnCommitted(State& state, int8_t seat) {
    Process& process = At(state, seat).process;
    Disk& disk = At(state, seat).disk;
    process.has_late_commit = false;
    process.knows_head = true;
    process.waits_for = state.journal.complete;
    if (process.phase == kLeads) return;
    process.phase = kLeads;
    disk.session = process.session;
    disk.is_source = true;
  }

  // A message may arrive when its sender is dead or deposed. Only a standby takes it.
  void AddMirror(const State& state, int8_t seat, int8_t other, std::vector<Step>& steps) const {
    const Disk& disk = At(state, seat).disk;
    const Disk& copy = At(state, other).disk;
    const Process& receiver = At(state, other).process;
    if (!disk.is_source || !IsUp(receiver) || receiver.phase != kStandby) return;
    const bool is_repeated = MaySpeak(At(state, seat).process);
    const std::string names = Name(seat) + " to " + Name(other) + ": ";
    if (copy.session < disk.session ||
        (copy.session != disk.session && !Keeps(Rule::kNewerSession)))
      return Add(steps, names + "begins a session", is_repeated, state, [&](State& s) {
        Disk& filled = At(s, other).disk;
        if (Keeps(Rule::kEmptyFirst) || !filled.is_source) filled.items = {};
        filled.session = disk.session;
        filled.is_source = false;
      });
    const size_t missing = copy.FirstMissing();
    if (copy.session == disk.session && missing < kItems && disk.items[missing] != 0)
      Add(steps, names + "item " + std::to_string(missing), is_repeated && Keeps(Rule::kRepeat),
          state, [&](State& s) { At(s, other).disk.items[missing] = disk.items[missing]; });
  }

  // Deadlines, and the ends of faults.
  void AddEnds(const State& state, int8_t seat, std::vector<Step>& steps) const {
    const Process& process = At(state, seat).process;
    const auto add = [&](const std::string& name, auto change) {
      Add(steps, Name(seat) + name, true, state, [&](State& s) { change(At(s, seat)); });
    };
    if (process.believes && IsUp(process) && !state.ReachesEtcd(seat) && Keeps(Rule::kDeadline))
      add("'s deadline passes", [](Seat& s) { s.process.believes = false; });
    if (At(state, seat).is_cut_off)
      add(" reaches etcd again", [](Seat& s) { s.is_cut_off = false; });
    if (process.phase == kDead) add(" restarts", [](Seat& s) { s.process = {}; });
    if (process.is_stopped)
      add(" goes on", [&](Seat& s) {
        s.process.is_stopped = false;
        s.process.believes = s.process.believes && !Keeps(Rule::kFence);
      });
  }

  void AddFaults(const State& state, int8_t seat, std::vector<Step>& steps) const {
    const Process& process = At(state, seat).process;
    const auto add = [&](const std::string& name, auto change) {
      Add(steps, Name(seat) + name, false, state, [&](State& s) {
        ++s.faults;
        change(At(s, seat));
      });
    };
    if (process.phase == kLost) return;
    if (process.phase != kDead)
      add(" dies", [&](Seat& s) {
        s.process = {.phase = kDead};
        if (!Keeps(Rule::kKeepSession)) s.disk.session = 0;
      });
    if (IsUp(process)) add(" is stopped", [](Seat& s) { s.process.is_stopped = true; });
    if (!At(state, seat).is_cut_off)
      add(" is cut off from etcd", [](Seat& s) { s.is_cut_off = true; });
    if (MayBeLost(state, seat)) add(" is lost", [](Seat& s) { s = {{.phase = kLost}, {}}; });
  }

  // True if another seat has everything, also after a commit that is on its way.
  static bool MayBeLost(const State& state, int8_t seat) {
    const LateCommit& late = state.late;
    uint8_t complete = state.journal.complete;
    if (late.stage == kOnItsWay && state.IsHolder(late.seat, late.session))
      complete &= late.journal.complete;
    for (int8_t other = 0; other < kSeats; ++other) {
      if (other != seat && (complete & Bit(other)) != 0 && At(state, other).process.phase != kLost)
        return true;
    }
    return false;
  }

  void AddEtcd(const State& state, std::vector<Step>& steps) const {
    const LateCommit& late = state.late;
    if (state.is_away)
      return Add(steps, "etcd is back", true, state, [](State& s) { s.is_away = false; });
    if (state.faults < kFaultsMax)
      Add(steps, "etcd is away", false, state, [](State& s) {
        ++s.faults;
        s.is_away = true;
      });
    if (late.stage != kNoCommit &&
        IsAccepted(state, late.seat, late.session, late.stage == kOnItsWay))
      Add(steps, "the late commit is executed", false, state, [&](State& s) {
        Execute(s, late.journal);
        if (s.late.stage == kOutdated) s.late.stage = kExecuted;
      });
    if (state.holder == kNone) return;
    const Process& process = At(state, state.holder).process;
    const bool is_sure = IsUp(process) && process.session == state.revision && process.believes;
    if (!is_sure || (!state.ReachesEtcd(state.holder) && !Keeps(Rule::kDeadline)))
      Add(steps, "the lease expires", true, state, [](State& s) { s.holder = kNone; });
  }

  const Rule left_out_;
};

}  // namespace
}  // namespace pando::model::standby

int main(int argc, char** argv) {
  using pando::model::standby::StandbyModel;
  return pando::model::SearchAsAsked<StandbyModel>(
      argc, argv, pando::model::standby::kMutations,
      "a seat leads without everything, or speaks after its lease", "the run never ends");
}
