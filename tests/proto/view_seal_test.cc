#include "proto/view_seal.h"

#include <doctest/doctest.h>

#include <functional>
#include <set>
#include <vector>

namespace pando {
namespace {

View SampleView() {
  return {.id = {2, 5},
          .generation = 1,
          .restore = {1, Version(7)},
          .nodes = {{.node = NodeId(3),
                     .incarnation = Incarnation(33),
                     .role = Role::kServer,
                     .host = "grove",
                     .lane_endpoints = {"tcp://a:1", "tcp://b:2"},
                     .public_key = "k"}},
          .shards = {{.primary = {NodeId(3), Incarnation(33), 0},
                      .in_sync_backups = {{NodeId(4), Incarnation(44), 1}},
                      .syncing_backups = {{{NodeId(5), Incarnation(55), 0}, {2, 4}}}}},
          .owners = {{.worker = NodeId(6), .first_step = Step(8)}}};
}

TEST_CASE("each field of a view, and the job, change the text that is signed") {
  const std::vector<std::function<void(View&)>> changes = {
      [](View&) {},
      [](View& v) { v.id.term += 1; },
      [](View& v) { v.id.number += 1; },
      [](View& v) { v.generation += 1; },
      [](View& v) { v.restore.generation += 1; },
      [](View& v) { v.restore.version = Version(8); },
      [](View& v) { v.nodes.push_back(v.nodes[0]); },
      [](View& v) { v.nodes[0].node = NodeId(9); },
      [](View& v) { v.nodes[0].incarnation = Incarnation(9); },
      [](View& v) { v.nodes[0].role = Role::kWorker; },
      [](View& v) { v.nodes[0].rank += 1; },
      [](View& v) { v.nodes[0].host = "other"; },
      [](View& v) {
        v.nodes[0].lane_endpoints = {"tcp://a:1tcp://b:2", ""};
      },
      [](View& v) { v.nodes[0].lane_endpoints.pop_back(); },
      [](View& v) { v.nodes[0].probe_hash += 1; },
      [](View& v) { v.nodes[0].public_key = ""; },
      [](View& v) { v.shards.clear(); },
      [](View& v) { v.shards[0].primary.lane = 1; },
      [](View& v) { v.shards[0].in_sync_backups.clear(); },
      [](View& v) { v.shards[0].syncing_backups[0].since.number += 1; },
      [](View& v) { v.owners[0].worker = NodeId(7); },
      [](View& v) { v.owners[0].first_step = Step(9); },
      [](View& v) { v.owners[0].previous = NodeId(7); },
  };
  std::set<std::string> texts = {SealedText(JobId(2), SampleView())};
  for (const auto& change : changes) {
    View view = SampleView();
    change(view);
    CHECK(texts.insert(SealedText(JobId(1), view)).second);
    CHECK(SealedText(JobId(1), view) == SealedText(JobId(1), View(view)));
  }
}

}  // namespace
}  // namespace pando
