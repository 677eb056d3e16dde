#include "proto/engine_agreement.h"

#include <doctest/doctest.h>

#include <vector>

namespace pando {
namespace {

using std::chrono::milliseconds;

struct AgreementFixture : Outbox {
  void Send(Envelope envelope) override { sent.push_back(std::move(envelope)); }
  void Receive(Message message, const PeerId& from = kScheduler) {
    agreement.OnMessage(now, {.job = kJob, .sender = from, .receiver = kSelf, .message = message});
  }
  void Decide(const std::string& engines) { Receive(EngineDecision{"H200", engines}); }
  // What is sent within this time; each text is a proposal's.
  std::vector<std::string> ProposalsIn(Micros time) {
    sent.clear();
    for (const Micros until = now + time; now < until; now += milliseconds(10)) agreement.Tick(now);
    std::vector<std::string> proposals;
    for (const Envelope& envelope : sent) {
      const auto* proposal = std::get_if<EngineProposal>(&envelope.message);
      if (proposal == nullptr) continue;
      CHECK(proposal->kind == "H200");
      CHECK(envelope.receiver.node == kSchedulerNode);
      proposals.push_back(proposal->engines);
    }
    return proposals;
  }
  template <class M>
  bool HasSent() const {
    for (const Envelope& envelope : sent) {
      if (std::holds_alternative<M>(envelope.message)) return true;
    }
    return false;
  }

  static constexpr JobId kJob{9};
  static constexpr PeerId kScheduler{kSchedulerNode, Incarnation(1), 0};
  static constexpr PeerId kSelf{NodeId(3), Incarnation(20), 0};
  Micros now{1'000'000};
  std::vector<Envelope> sent;
  EngineAgreement agreement{{kSelf, kScheduler, kJob}, "H200", *this};
};

using Texts = std::vector<std::string>;

TEST_CASE("a worker asks until it is answered, and takes what was decided before") {
  AgreementFixture f;
  CHECK(f.ProposalsIn(milliseconds(500)) == Texts{"", "", ""});
  f.Decide("of another");
  CHECK(f.agreement.is_over());
  CHECK(f.agreement.engines() == "of another");
  CHECK(f.ProposalsIn(milliseconds(500)).empty());
  CHECK(f.agreement.NextDeadline() == kNever);
}

TEST_CASE("a worker whose kind has no engines measures in silence, and repeats its proposal") {
  AgreementFixture f;
  f.ProposalsIn(milliseconds(10));
  f.Decide("");
  CHECK(f.agreement.is_asked_to_measure());
  CHECK(f.ProposalsIn(milliseconds(500)).empty());
  f.agreement.Propose("mine");
  CHECK_FALSE(f.agreement.is_asked_to_measure());
  CHECK(f.ProposalsIn(milliseconds(300)) == Texts{"mine", "mine"});
  f.Decide("");  // the question's answer, a second time
  CHECK_FALSE(f.agreement.is_asked_to_measure());
  CHECK(f.ProposalsIn(milliseconds(200)).size() == 1);
  f.Decide("of another");
  CHECK(f.agreement.engines() == "of another");
}

TEST_CASE("engines that are decided while the worker measures end the measuring's use") {
  AgreementFixture f;
  f.Decide("");
  f.Decide("of another");
  CHECK(f.agreement.is_over());
  CHECK(f.agreement.engines() == "of another");
}

TEST_CASE("what is not the scheduler's answer to this worker counts for nothing") {
  AgreementFixture f;
  f.Receive(EngineDecision{"A100", "of another kind"});
  f.Receive(EngineDecision{"H200", "of a stranger"}, {NodeId(4), Incarnation(21), 0});
  f.agreement.OnMessage(f.now, {.job = JobId(8),
                                .sender = AgreementFixture::kScheduler,
                                .receiver = AgreementFixture::kSelf,
                                .message = EngineDecision{"H200", "of another job"}});
  f.agreement.OnMessage(f.now, {.job = AgreementFixture::kJob,
                                .sender = AgreementFixture::kScheduler,
                                .receiver = {NodeId(3), Incarnation(19), 0},
                                .message = EngineDecision{"H200", "of another life"}});
  CHECK_FALSE(f.agreement.is_over());
  // Another life of the scheduler is the scheduler.
  f.Receive(EngineDecision{"H200", "of its successor"}, {kSchedulerNode, Incarnation(2), 0});
  CHECK(f.agreement.engines() == "of its successor");
}

TEST_CASE("a run that ends, a refusal and a wish to leave end the agreement") {
  AgreementFixture stopped;
  stopped.Receive(Stop{StopReason::kCompleted, "completed"});
  CHECK(stopped.agreement.end()->reason == StopReason::kCompleted);
  CHECK(stopped.HasSent<Bye>());
  CHECK_FALSE(stopped.agreement.refusal());
  AgreementFixture refused;
  refused.Receive(Refused{"declared dead", RefusalKind::kGivenUp});
  CHECK(refused.agreement.refusal() == RefusalKind::kGivenUp);
  CHECK(refused.agreement.end()->text == "declared dead");
  AgreementFixture leaving;
  leaving.agreement.Leave();
  leaving.ProposalsIn(milliseconds(300));
  CHECK(leaving.HasSent<Leave>());
  CHECK(leaving.agreement.is_leaving());
  CHECK_FALSE(leaving.agreement.is_over());
}

}  // namespace
}  // namespace pando
