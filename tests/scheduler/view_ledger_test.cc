#include "scheduler/views/view_ledger.h"

#include <doctest/doctest.h>

#include "scheduler/members/lane_acks.h"

namespace pando {
namespace {

using std::chrono::milliseconds;

// The journal has view 5 of term 3 in generation 2.
std::optional<SchedulerState> OldState() {
  SchedulerState state{.term = 3};
  state.view.id = {3, 5};
  state.view.generation = 2;
  return state;
}

TEST_CASE("the earliest request for a view counts") {
  ViewLedger views(std::nullopt);
  CHECK(views.due_at() == kNever);
  views.RequestView(milliseconds(20));
  views.RequestView(milliseconds(10));
  views.RequestView(milliseconds(30));
  CHECK(views.due_at() == milliseconds(10));
  views.DropRequest();
  CHECK(views.due_at() == kNever);
}

TEST_CASE("a new life of the scheduler has a new term and announces the view again") {
  ViewLedger views(OldState());
  CHECK(views.term() == 4);
  CHECK_FALSE(views.HasAnnounced());
  CHECK(views.NextId() == ViewId{4, 6});
  View next = views.view();
  next.id = views.NextId();
  views.Publish(next);
  CHECK(views.HasAnnounced());
}

TEST_CASE("views that the journal knew, or this life made, are ours; others are news (P26)") {
  ViewLedger views(OldState());
  CHECK(views.IsOurs({3, 5}, 2));
  CHECK(views.IsOurs({9, 9}, 1));        // of an older generation
  CHECK_FALSE(views.IsOurs({3, 6}, 2));  // lost with the journal's end
  CHECK_FALSE(views.IsOurs({3, 5}, 3));
  views.OnNewsBeyond({7, 1}, 4);
  CHECK(views.term() == 8);
  CHECK(views.NextGeneration() == 5);
}

TEST_CASE("a worker has work until it has handed its micro-batch over") {
  View view;
  view.owners = {{.worker = NodeId(2), .first_step = Step(10), .previous = NodeId(1)}};
  CHECK(HasWorkFor(view, NodeId(2), Version(0)));
  CHECK(HasWorkFor(view, NodeId(1), Version(9)));
  CHECK_FALSE(HasWorkFor(view, NodeId(1), Version(10)));
  CHECK_FALSE(HasWorkFor(view, NodeId(3), Version(0)));
}

TEST_CASE("an older acknowledgement changes nothing, and a forgotten lane has none") {
  LaneAcks<Version> acks;
  const PeerId lane{NodeId(1), Incarnation(1), 3};
  CHECK(acks.Newest(lane) == Version(0));
  acks.OnAck(lane, Version(5));
  acks.OnAck(lane, Version(4));
  CHECK(acks.Newest(lane) == Version(5));
  CHECK(acks.Newest({NodeId(1), Incarnation(1), 2}) == Version(0));
  acks.Forget(Incarnation(1));
  CHECK(acks.Newest(lane) == Version(0));
}

}  // namespace
}  // namespace pando
