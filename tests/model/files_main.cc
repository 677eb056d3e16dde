// A model of P45 alone, beside the one in model.h: a server stores two files of two parts each, one
// after the other, or gives the first one up, while the store dies. A part and an answer may be
// lost, repeated and late. Exits with 0 if each file that has its name is whole, the server counts
// none as stored that is not, and in the end both are stored by what is repeated until it happens
// (P10, I7). With --mutation=NAME one rule is left out, and it exits with 0 if that breaks what the
// table of mutations says.
#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/model/small_search.h"

namespace {

using pando::model::Finding;

constexpr int kFiles = 2;
constexpr int kParts = 2;
constexpr int kDeathsMax = 2;
constexpr int8_t kNone = -1;  // no file

enum class Rule : uint8_t {
  kAll,
  kInOrder,       // the store appends any part
  kWholeOnly,     // a file has its name from its first part on
  kAckedOnly,     // a file counts as stored when its last part is sent
  kGoBack,        // the server does not begin again when the store has lost the beginning
  kRepeat,        // a part is sent once
  kOneDraftEach,  // a part of another file is appended to the draft at hand
};

using Mutation = pando::model::NamedMutation<Rule>;
constexpr std::array kMutations{
    Mutation{"any-offset", Rule::kInOrder, Finding::kLoss},
    Mutation{"name-at-first-part", Rule::kWholeOnly, Finding::kLoss},
    Mutation{"stored-when-sent", Rule::kAckedOnly, Finding::kLoss},
    Mutation{"no-way-back", Rule::kGoBack, Finding::kHang},
    Mutation{"send-once", Rule::kRepeat, Finding::kHang},
    Mutation{"one-draft-for-all", Rule::kOneDraftEach, Finding::kLoss},
};

struct State {
  // The store. What it has of a draft is right if each part came at its place.
  int8_t draft = kNone;
  uint8_t drafted = 0;  // parts
  bool is_right = true;
  std::array<uint8_t, kFiles> named{};  // parts in the file of this name; 0: there is none
  std::array<bool, kFiles> is_wrong{};
  uint8_t deaths = 0;
  // The server.
  int8_t storing = 0;  // the file; kFiles: all are stored
  uint8_t stored = 0;  // parts, by the newest answer
  uint8_t sent = 0;
  uint8_t given_up = 0;  // files that it gave up
  // Messages that were sent and may still arrive, any number of times. By file and part.
  uint8_t parts = 0;
  uint16_t answers = 0;  // by file: "go on at part i", and "stored"
  auto operator<=>(const State&) const = default;
};

constexpr int kAnswers = kParts + 1;  // the last one: stored

class FilesModel {
 public:
  using State = ::State;
  using Step = pando::model::Step<State>;
  explicit FilesModel(Rule left_out) : left_out_(left_out) {}

  std::vector<Step> Steps(const State& state) const {
    std::vector<Step> steps;
    const auto add = [&](const std::string& name, bool is_repeated, auto change) {
      State next = state;
      change(next);
      if (next != state) steps.push_back({name, next, is_repeated});
    };
    if (state.storing < kFiles) {
      if (state.sent < kParts) add("send the next part", true, [&](State& s) { SendNext(s); });
      if (state.storing == 0)
        add("the server gives the first file up", false, [](State& s) {
          s.given_up = 1;
          BeginNext(s);
        });
      const bool may_repeat = Keeps(Rule::kRepeat) && state.stored < kParts;
      if (may_repeat)
        add("the first missing part is repeated and answered", true,
            [&](State& s) { Take(s, s.storing, Arrive(s, s.storing, s.stored)); });
    }
    for (int8_t file = 0; file < kFiles; ++file) {
      const std::string name = " of file " + std::to_string(file);
      for (int part = 0; part < kParts; ++part) {
        if ((state.parts >> (file * kParts + part) & 1) == 0) continue;
        add("part " + std::to_string(part) + name + " arrives", false, [&](State& s) {
          const int answer = Arrive(s, file, part);
          s.answers = static_cast<uint16_t>(s.answers | 1 << (file * kAnswers + answer));
        });
      }
      for (int answer = 0; answer < kAnswers; ++answer) {
        if ((state.answers >> (file * kAnswers + answer) & 1) == 0) continue;
        add("answer " + std::to_string(answer) + name + " arrives", false,
            [&](State& s) { Take(s, file, answer); });
      }
    }
    if (state.deaths < kDeathsMax)
      add("the store dies", false, [](State& s) {
        ++s.deaths;
        s.draft = kNone;
        s.drafted = 0;
        s.is_right = true;
      });
    return steps;
  }

  static bool IsBroken(const State&, const State& after) {
    for (int8_t file = 0; file < kFiles; ++file) {
      const auto at = static_cast<size_t>(file);
      const bool is_partial = after.named[at] != 0 && after.named[at] < kParts;
      const bool is_given_up = (after.given_up >> file & 1) != 0;
      const bool is_missed = file < after.storing && !is_given_up && after.named[at] == 0;
      if (after.is_wrong[at] || is_partial || is_missed) return true;
    }
    return false;
  }
  static bool IsDone(const State& state) { return state.storing == kFiles; }

 private:
  bool Keeps(Rule rule) const { return left_out_ != rule; }

  void SendNext(State& s) const {
    s.parts = static_cast<uint8_t>(s.parts | 1 << (s.storing * kParts + s.sent));
    ++s.sent;
    if (s.sent == kParts && !Keeps(Rule::kAckedOnly)) BeginNext(s);
  }
  static void BeginNext(State& s) {
    ++s.storing;
    s.stored = s.sent = 0;
  }

  // As FileStore::OnStore. Returns the answer.
  int Arrive(State& s, int8_t file, int part) const {
    const auto at = static_cast<size_t>(file);
    if (s.named[at] == kParts) return kParts;
    const bool is_other = s.draft != file;
    if (is_other && (Keeps(Rule::kOneDraftEach) || s.draft == kNone)) {
      if (s.draft != kNone) s.draft = kNone;  // it was given up
      if (part != 0 && Keeps(Rule::kInOrder)) return 0;
      s.draft = file;
      s.drafted = 0;
      s.is_right = true;
    }
    if (part != s.drafted && Keeps(Rule::kInOrder)) return s.drafted;
    s.is_right = s.is_right && part == s.drafted && s.draft == file;
    ++s.drafted;
    const auto drafted = static_cast<size_t>(s.draft);
    if (s.drafted == kParts || !Keeps(Rule::kWholeOnly)) {
      s.named[drafted] = s.drafted;
      s.is_wrong[drafted] = !s.is_right;
    }
    if (s.drafted < kParts) return s.drafted;
    s.draft = kNone;
    s.drafted = 0;
    return kParts;
  }

  // As FileClient::OnAck.
  void Take(State& s, int8_t file, int answer) const {
    if (file != s.storing) return;
    if (answer == kParts) return BeginNext(s);
    if (answer < s.stored && !Keeps(Rule::kGoBack)) return;
    const bool is_lost = answer < s.stored;
    s.stored = static_cast<uint8_t>(answer);
    s.sent = is_lost ? s.stored : std::max(s.sent, s.stored);
  }

  const Rule left_out_;
};

}  // namespace

int main(int argc, char** argv) {
  return pando::model::SearchAsAsked<FilesModel>(argc, argv, kMutations,
                                                 "a file is not what it should be, or is missed",
                                                 "a file is never stored");
}
