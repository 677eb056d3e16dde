#include "proto/view_member.h"

#include <doctest/doctest.h>

#include <vector>

#include "proto/view_delta.h"
#include "tests/fake_seal.h"

namespace pando {
namespace {

constexpr JobId kJob{7};
constexpr PeerId kSelf{NodeId(3), Incarnation(33), 0};
constexpr PeerId kScheduler{kSchedulerNode, Incarnation(10), 0};
constexpr PeerId kNextScheduler{kSchedulerNode, Incarnation(11), 0};
constexpr PeerId kMember{NodeId(4), Incarnation(44), 1};
constexpr PeerId kStranger{NodeId(5), Incarnation(55), 0};

class Sent : public Outbox {
 public:
  void Send(Envelope envelope) override { envelopes.push_back(std::move(envelope)); }
  std::vector<Envelope> envelopes;
};

View MakeView(ViewId id, uint32_t generation) {
  View view{.id = id, .generation = generation};
  view.nodes.push_back({.node = kSelf.node, .incarnation = kSelf.incarnation});
  view.nodes.push_back({.node = kMember.node, .incarnation = kMember.incarnation});
  return view;
}

struct Fixture {
  // In view (2, 5) of generation 1, as the first scheduler announced it.
  explicit Fixture(FakeSeal* seal = nullptr) : member({kSelf, kScheduler, kJob, seal}, sent) {
    const View view = MakeView({2, 5}, 1);
    REQUIRE(member.Enter(kScheduler, view, seal ? seal->Sign(SealedText(kJob, view)) : ""));
  }

  bool Admits(const PeerId& from, Message message, uint32_t generation = 1, ViewId view = {2, 5}) {
    return member.Admit(now, {.job = kJob,
                              .generation = generation,
                              .view = view,
                              .sender = from,
                              .receiver = kSelf,
                              .message = std::move(message)});
  }
  ViewAck LastAck(const PeerId& to) {
    REQUIRE(!sent.envelopes.empty());
    CHECK(sent.envelopes.back().receiver == to);
    return std::get<ViewAck>(sent.envelopes.back().message);
  }

  Sent sent;
  ViewMember member;
  Micros now{0};
};

TEST_CASE("an acknowledgement names the newest view and its generation (P26)") {
  Fixture f;
  CHECK(f.LastAck(kScheduler).id == ViewId{2, 5});
  CHECK_FALSE(f.member.Enter(kScheduler, MakeView({2, 4}, 1)));
  CHECK(f.LastAck(kScheduler).id == ViewId{2, 5});
  CHECK(f.LastAck(kScheduler).generation == 1);
  CHECK(f.sent.envelopes.back().view == ViewId{2, 5});
}

TEST_CASE("messages of members and the scheduler are accepted, those of strangers are not") {
  Fixture f;
  CHECK(f.Admits(kMember, Question{}));
  CHECK(f.Admits(kScheduler, ReleasePin{}));
  CHECK_FALSE(f.Admits(kStranger, Question{}));
  CHECK_FALSE(f.Admits(kStranger, ViewUpdate{}));
}

TEST_CASE("only the scheduler may say what is the scheduler's to say") {
  Fixture f;
  const std::vector<Message> words = {Stop{},        Refused{},    Evaluate{},
                                      ReleasePin{},  SnapshotAt{}, SnapshotAck{},
                                      ProgressAck{}, Scalars{},    GradientHashesAck{}};
  for (const Message& word : words) {
    CHECK_FALSE(f.Admits(kMember, word));
    CHECK(f.Admits(kScheduler, word));
  }
}

TEST_CASE("a member's message is accepted only in the role that may send it (P44)") {
  Fixture f;
  View view = MakeView({2, 6}, 1);
  for (const Role role : {Role::kWorker, Role::kServer}) {
    view.nodes[1].role = role;
    view.id.number += 1;
    REQUIRE(f.member.Enter(kScheduler, view));
    const bool is_worker = role == Role::kWorker;
    CHECK(f.Admits(kMember, Push{}, 1, view.id) == is_worker);
    CHECK(f.Admits(kMember, Question{}, 1, view.id) == is_worker);
    CHECK(f.Admits(kMember, Root{}, 1, view.id) == !is_worker);
    CHECK(f.Admits(kMember, PushReply{}, 1, view.id) == !is_worker);
    CHECK(f.Admits(kMember, Params{}, 1, view.id));
    CHECK_FALSE(f.Admits(kMember, Register{}, 1, view.id));
    CHECK_FALSE(f.Admits(kMember, Command{}, 1, view.id));
  }
}

TEST_CASE("a message for an earlier life of this node, or another lane of it, is refused (P19)") {
  Fixture f;
  Envelope envelope{.job = kJob, .generation = 1, .sender = kMember, .receiver = kSelf};
  envelope.message = Question{};
  envelope.receiver.incarnation = Incarnation(32);
  CHECK_FALSE(f.member.Admit(Micros(0), envelope));
  envelope.receiver = {kSelf.node, kSelf.incarnation, 1};
  CHECK_FALSE(f.member.Admit(Micros(0), envelope));
}

TEST_CASE("other generations are refused, except a newer one's view (P21)") {
  Fixture f;
  CHECK_FALSE(f.Admits(kMember, Question{}, 2, {2, 6}));
  CHECK_FALSE(f.Admits(kScheduler, ReleasePin{}, 2, {2, 6}));
  CHECK(f.Admits(kMember, ViewUpdate{}, 2, {2, 6}));
  CHECK(f.Admits(kScheduler, ViewUpdate{}, 2, {2, 6}));
  CHECK(f.member.Enter(kMember, MakeView({2, 6}, 2)));
  CHECK(f.member.view().generation == 2);
  CHECK_FALSE(f.Admits(kMember, Question{}, 1));
  CHECK_FALSE(f.Admits(kMember, ViewUpdate{}, 1));
}

TEST_CASE("which view will be entered is known before, and asking changes nothing") {
  Fixture f;
  const auto will_enter = [&](const PeerId& from, const View& view, const PeerId& to = kSelf,
                              JobId job = kJob) {
    return f.member
        .NextView({.job = job,
                   .generation = view.generation,
                   .view = view.id,
                   .sender = from,
                   .receiver = to,
                   .message = ViewUpdate{view}})
        .has_value();
  };
  f.sent.envelopes.clear();
  CHECK(will_enter(kScheduler, MakeView({2, 6}, 1)));
  CHECK(will_enter(kNextScheduler, MakeView({3, 6}, 2)));
  CHECK(will_enter(kMember, MakeView({2, 6}, 2)));
  CHECK_FALSE(will_enter(kStranger, MakeView({2, 6}, 1)));
  CHECK_FALSE(will_enter(kScheduler, MakeView({2, 5}, 1)));
  CHECK_FALSE(will_enter(kScheduler, MakeView({2, 6}, 0)));
  const PeerId earlier_life{kSelf.node, Incarnation(32), kSelf.lane};
  CHECK_FALSE(will_enter(kScheduler, MakeView({2, 6}, 1), earlier_life));
  CHECK_FALSE(will_enter(kScheduler, MakeView({2, 6}, 1), kSelf, JobId(8)));
  CHECK_FALSE(will_enter(kMember, MakeView({2, 4}, 1)));
  CHECK(f.sent.envelopes.empty());
  CHECK(f.member.view().id == ViewId{2, 5});
}

TEST_CASE("a member that stays in an older view gets a hint, rate-limited (P13)") {
  Fixture f;
  REQUIRE(f.member.Enter(kScheduler, MakeView({2, 6}, 2)));
  f.sent.envelopes.clear();
  CHECK_FALSE(f.Admits(kMember, Question{}, 1));
  CHECK(f.sent.envelopes.empty());  // the scheduler's message may be on its way
  f.now += std::chrono::milliseconds(100);
  CHECK_FALSE(f.Admits(kMember, Question{}, 1));
  CHECK_FALSE(f.Admits(kMember, Question{}, 1));
  REQUIRE(f.sent.envelopes.size() == 1);
  CHECK(std::holds_alternative<ViewHint>(f.sent.envelopes[0].message));
  CHECK(f.sent.envelopes[0].view == ViewId{2, 6});
  CHECK(f.sent.envelopes[0].generation == 2);

  REQUIRE(f.member.Enter(kScheduler, MakeView({2, 7}, 2)));
  f.sent.envelopes.clear();
  CHECK(f.Admits(kMember, Question{}, 2, {2, 6}));
  CHECK(f.sent.envelopes.empty());  // again
}

TEST_CASE("a member that gets hints asks one peer for the view, and is answered") {
  Fixture f;
  f.sent.envelopes.clear();
  Envelope hint{.generation = 1, .view = {2, 5}, .sender = kMember, .message = ViewHint{}};
  f.member.OnHint(f.now, hint);
  CHECK(f.sent.envelopes.empty());  // it is in that view
  hint.generation = 2;
  hint.view = {2, 6};
  CHECK(f.Admits(kMember, ViewHint{}, 2, {2, 6}));
  for (int i = 0; i < 3; ++i) f.member.OnHint(f.now, hint);
  REQUIRE(f.sent.envelopes.size() == 1);
  CHECK(f.sent.envelopes[0].receiver == kMember);
  CHECK(std::holds_alternative<ViewWanted>(f.sent.envelopes[0].message));
}

TEST_CASE("a view is sent to a peer that wants it and has an older one, rate-limited") {
  Fixture f;
  f.sent.envelopes.clear();
  const auto wants = [&](const PeerId& from, ViewId view) {
    CHECK(f.Admits(from, ViewWanted{}, 0, view));
    f.sent.envelopes.clear();  // a hint
    f.member.OnViewWanted(f.now, {.view = view, .sender = from, .message = ViewWanted{}});
    return f.sent.envelopes.size();
  };
  CHECK(wants(kMember, {2, 5}) == 0);
  CHECK(wants(kMember, {2, 4}) == 1);
  CHECK(std::get<ViewUpdate>(f.sent.envelopes[0].message).view->id == ViewId{2, 5});
  CHECK(wants(kMember, {2, 4}) == 0);
  f.now += std::chrono::milliseconds(100);
  CHECK(wants(kMember, {2, 4}) == 1);
  CHECK(wants(kScheduler, {2, 5}) == 1);  // P26
  CHECK(wants(kScheduler, {2, 5}) == 1);
}

// The scheduler's message with the view that follows the fixture's.
struct NextView {
  explicit NextView(const Fixture& f) {
    View next = f.member.view();
    next.id.number += 1;
    next.nodes.push_back({.node = kStranger.node, .incarnation = kStranger.incarnation});
    change = *Difference(f.member.view(), next);
  }
  Envelope Message() const {
    return {.job = kJob,
            .generation = change.generation,
            .view = change.id,
            .sender = kScheduler,
            .receiver = kSelf,
            .message = ViewDelta{change, signature}};
  }
  ViewChange change;
  std::string signature;
};

bool Enters(Fixture& f, const Envelope& envelope) {
  f.sent.envelopes.clear();
  const bool enters = f.member.OnView(f.now, envelope);
  REQUIRE(f.sent.envelopes.size() == 1);
  CHECK(f.sent.envelopes[0].receiver == envelope.sender);
  return enters;
}

TEST_CASE("a difference from the own view is entered and acknowledged (P17a)") {
  Fixture f;
  const NextView next(f);
  CHECK(f.member.Admit(f.now, next.Message()));
  CHECK(f.member.NextView(next.Message()).has_value());
  CHECK(Enters(f, next.Message()));
  CHECK(f.LastAck(kScheduler).id == ViewId{2, 6});
  CHECK(f.member.view().nodes.size() == 3);
  CHECK(f.Admits(kStranger, Question{}, 1, {2, 6}));
  CHECK_FALSE(Enters(f, next.Message()));  // a repeated one is acknowledged again
  CHECK(f.LastAck(kScheduler).id == ViewId{2, 6});
}

TEST_CASE("a difference that does not fit is not entered, and the whole view is asked for") {
  Fixture f;
  NextView next(f);
  SUBCASE("from another view") { next.change.base.number -= 1; }
  SUBCASE("from a view of another content") { next.change.base_hash += 1; }
  SUBCASE("to a view of another content") { next.change.hash += 1; }
  SUBCASE("with a shard that does not exist") { next.change.shards = {{ShardId(1), {}}}; }
  SUBCASE("with micro-batches that do not exist") { next.change.owners = {{MicroBatch(0), 1, {}}}; }
  CHECK_FALSE(f.member.NextView(next.Message()).has_value());
  CHECK_FALSE(Enters(f, next.Message()));
  CHECK(std::holds_alternative<ViewWanted>(f.sent.envelopes[0].message));
  CHECK(f.member.view().id == ViewId{2, 5});
}

TEST_CASE("a view that is not of the member's job is ignored, and not acknowledged") {
  Sent sent;
  ViewMember member({kSelf, kScheduler, kJob}, sent,
                    [](const View& view) { return view.shards.size() == 1; });
  View view = MakeView({2, 5}, 1);
  const auto message = [&] {
    return Envelope{.job = kJob,
                    .generation = 1,
                    .view = view.id,
                    .sender = kScheduler,
                    .receiver = kSelf,
                    .message = ViewUpdate{view}};
  };
  CHECK_FALSE(member.NextView(message()).has_value());
  CHECK_FALSE(member.OnView(Micros(0), message()));
  CHECK(sent.envelopes.empty());
  view.shards.resize(1);
  CHECK(member.NextView(message()).has_value());
  CHECK(member.OnView(Micros(0), message()));
}

TEST_CASE("only the scheduler sends differences, and with keys only with its signature (P44)") {
  FakeSeal seal;
  Fixture f(&seal);
  NextView next(f);
  Envelope by_member = next.Message();
  by_member.sender = kMember;
  CHECK_FALSE(f.member.Admit(f.now, by_member));
  CHECK_FALSE(f.member.NextView(next.Message()).has_value());
  const SharedView after = *Apply(f.member.view(), next.change);
  next.signature = seal.Sign(SealedText(kJob, *after));
  CHECK(f.member.NextView(next.Message()).has_value());
  CHECK(Enters(f, next.Message()));
}

TEST_CASE("a restarted scheduler is known by its first view, and the old one is not heard again") {
  Fixture f;
  CHECK_FALSE(f.Admits(kNextScheduler, ReleasePin{}));
  CHECK(f.Admits(kNextScheduler, ViewUpdate{}, 1, {3, 6}));
  CHECK(f.member.Enter(kNextScheduler, MakeView({3, 6}, 1)));
  CHECK(f.member.scheduler() == kNextScheduler);
  CHECK(f.Admits(kNextScheduler, ReleasePin{}, 1, {3, 6}));
  CHECK_FALSE(f.Admits(kScheduler, ReleasePin{}, 1, {3, 6}));
  CHECK_FALSE(f.member.Enter(kScheduler, MakeView({2, 5}, 1)));
  CHECK(f.LastAck(kScheduler).id == ViewId{3, 6});
  CHECK(f.member.scheduler() == kNextScheduler);
}

TEST_CASE("a scheduler with an older view gets our view's id and is not followed (P26)") {
  Fixture f;
  CHECK_FALSE(f.member.Enter(kNextScheduler, MakeView({2, 4}, 1)));
  CHECK(f.LastAck(kNextScheduler).id == ViewId{2, 5});
  CHECK_FALSE(f.member.Enter(kNextScheduler, MakeView({3, 1}, 0)));
  CHECK(f.LastAck(kNextScheduler).generation == 1);
  CHECK(f.member.scheduler() == kScheduler);
  CHECK(f.member.view().id == ViewId{2, 5});
}

TEST_CASE("with keys a view counts only with the scheduler's signature, from any peer (P44)") {
  FakeSeal seal, of_others(2);
  Fixture f(&seal);
  const View view = MakeView({2, 6}, 1);
  const std::string good = seal.Sign(SealedText(kJob, view));
  const std::string of_last = seal.Sign(SealedText(kJob, MakeView({2, 5}, 1)));
  View changed = view;
  changed.nodes[1].public_key = "forged";
  const auto tries = [&](const PeerId& from, const View& tried, const std::string& signature) {
    const int forged_count = seal.forged_count;
    const bool will_enter = f.member
                                .NextView({.job = kJob,
                                           .generation = tried.generation,
                                           .view = tried.id,
                                           .sender = from,
                                           .receiver = kSelf,
                                           .message = ViewUpdate{tried, signature}})
                                .has_value();
    CHECK(seal.forged_count == forged_count);
    CHECK(f.member.Enter(from, tried, signature) == will_enter);
    CHECK((seal.forged_count == forged_count) == will_enter);
    return will_enter;
  };
  f.sent.envelopes.clear();
  for (const PeerId& from : {kMember, kScheduler, kNextScheduler}) {
    CHECK_FALSE(tries(from, view, ""));
    CHECK_FALSE(tries(from, view, of_last));
    CHECK_FALSE(tries(from, view, of_others.Sign(SealedText(kJob, view))));
    CHECK_FALSE(tries(from, view, seal.Sign(SealedText(JobId(8), view))));
    CHECK_FALSE(tries(from, changed, good));
  }
  CHECK(f.sent.envelopes.empty());  // they are not acknowledged either
  CHECK(f.member.scheduler() == kScheduler);
  CHECK(f.member.view().id == ViewId{2, 5});
  CHECK(tries(kMember, view, good));
  for (const PeerId& asker :
       {kMember, kNextScheduler}) {  // the next one gets it with its signature
    CHECK(f.Admits(asker, ViewWanted{}, 1, {3, 1}));
    f.sent.envelopes.clear();
    f.member.SendView(asker);
  }
  REQUIRE(f.sent.envelopes.size() == 1);
  CHECK(std::get<ViewUpdate>(f.sent.envelopes[0].message).signature == good);
}

TEST_CASE("any incarnation of the scheduler, in any generation, may give a member up") {
  Fixture f;
  CHECK(f.Admits(kNextScheduler, Refused{}, 4, {9, 9}));
  CHECK(f.Admits(kScheduler, Stop{}, 4, {2, 9}));
}

TEST_CASE("any later incarnation of the scheduler may end the run, but no earlier one") {
  Fixture f;
  CHECK(f.Admits(kNextScheduler, Stop{}, 4, {9, 9}));
  CHECK_FALSE(f.Admits(kNextScheduler, Stop{}, 4, {2, 4}));
}

// A member brought its newest view, and an older view of it arrived first. It takes our
// acknowledgement as one of the newest view and does not repeat that view.
TEST_CASE("a scheduler of a term that a member told us is ours by any of its views (P26)") {
  Fixture f;
  REQUIRE(f.member.Enter(kMember, MakeView({3, 7}, 1)));
  CHECK(f.member.scheduler() == kScheduler);
  CHECK_FALSE(f.member.Enter(kNextScheduler, MakeView({3, 6}, 1)));
  CHECK(f.member.scheduler() == kNextScheduler);
  CHECK(f.LastAck(kNextScheduler).id == ViewId{3, 7});
  CHECK_FALSE(f.member.Enter(kScheduler, MakeView({2, 9}, 1)));
  CHECK(f.member.scheduler() == kNextScheduler);
}

}  // namespace
}  // namespace pando
