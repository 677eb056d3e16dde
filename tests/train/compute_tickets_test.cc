#include "train/compute_tickets.h"

#include <doctest/doctest.h>

namespace pando {
namespace {

constexpr uint64_t kVersionsKept = 2;

TEST_CASE("events of a call are current until the end of the call was seen") {
  ComputeTickets tickets(kVersionsKept);
  const ComputeTicket first = tickets.ForCall(Step(0)), second = tickets.ForCall(Step(0));
  CHECK(first != second);
  CHECK(tickets.IsCurrent(first, GradientReady{}));
  CHECK(tickets.IsCurrent(first, StepComputed{}));
  CHECK_FALSE(tickets.IsCurrent(first, StepComputed{}));
  CHECK_FALSE(tickets.IsCurrent(first, GradientReady{}));
  CHECK(tickets.IsCurrent(second, GradientReady{}));
}

TEST_CASE("calls whose parameters are gone end with a later call") {
  ComputeTickets tickets(kVersionsKept);
  const ComputeTicket first = tickets.ForCall(Step(0)), second = tickets.ForCall(Step(1));
  tickets.ForCall(Step(kVersionsKept));
  CHECK_FALSE(tickets.IsCurrent(first, GradientReady{}));
  CHECK(tickets.IsCurrent(second, GradientReady{}));
}

TEST_CASE("abandoned calls are stale, evaluations and hashes are not") {
  ComputeTickets tickets(kVersionsKept);
  const ComputeTicket earlier = tickets.ForCall(Step(4)), later = tickets.ForCall(Step(5));
  tickets.Abandon(Step(5));
  CHECK(tickets.IsCurrent(earlier, GradientReady{}));
  CHECK_FALSE(tickets.IsCurrent(later, GradientReady{}));
  const ComputeEvent hashed = GradientHashed{};
  CHECK(tickets.IsCurrent(tickets.lasting(), hashed));
}

TEST_CASE("nothing of before is current after a new generation") {
  ComputeTickets tickets(kVersionsKept);
  const ComputeTicket call = tickets.ForCall(Step(4)), lasting = tickets.lasting();
  tickets.Forget();
  CHECK_FALSE(tickets.IsCurrent(call, GradientReady{}));
  CHECK_FALSE(tickets.IsCurrent(lasting, EvaluationResult{}));
  CHECK(tickets.IsCurrent(tickets.lasting(), EvaluationResult{}));
}

}  // namespace
}  // namespace pando
