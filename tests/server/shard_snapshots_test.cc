#include "server/shard_snapshots.h"

#include "server/lane_limits.h"
#include "tests/server/part_fixture.h"

namespace pando {
namespace {

struct SnapshotsFixture : PartFixture {
  SnapshotsFixture() : PartFixture(SnapshotJob()) { Place(0, 1); }
  void EnterAll() { snapshots.EnterView(now, Enter()); }
  void MakeAndStore(int versions) {
    for (int i = 0; i < versions; ++i) {
      MakeVersion(0);
      snapshots.StoreIfDue(now, shard(0));
    }
  }
  std::vector<Message> Reports() const {
    std::vector<Message> reports;
    snapshots.AddReports(&reports);
    return reports;
  }
  MemorySnapshots port;
  Reports::Clock clock;
  ShardSnapshots snapshots{{member, replicas, plan}, port, clock};
};

TEST_CASE("a due version is stored, and reported until it is acknowledged") {
  SnapshotsFixture f;
  f.EnterAll();
  f.MakeAndStore(2);
  REQUIRE(f.port.stores.size() == 1);
  CHECK(f.port.stores[0].snapshot == SnapshotRef{0, Version(2)});
  CHECK(f.Reports().empty());
  f.snapshots.OnEvent(f.now, RecordStored{.snapshot = {0, Version(2)}, .file = "file"});
  CHECK(f.clock.IsDue(f.now));
  REQUIRE(f.Reports().size() == 1);
  CHECK(std::get<SnapshotStored>(f.Reports()[0]).items.at(0).file == "file");
  f.snapshots.OnSnapshotAck({{{ShardId(0), Version(2)}}});
  CHECK(f.Reports().empty());
}

TEST_CASE("a version that is due while too many are being written fails") {
  SnapshotsFixture f;
  f.EnterAll();
  f.MakeAndStore(6);
  CHECK(f.port.stores.size() == kStoresInFlightMax);
  REQUIRE(f.Reports().size() == 1);
  CHECK_FALSE(std::get<SnapshotStored>(f.Reports()[0]).items.at(0).failure.empty());
}

TEST_CASE("a version on demand is stored once, and fails where it is past") {
  SnapshotsFixture f;
  f.EnterAll();
  f.MakeAndStore(1);
  for (int i = 0; i < 2; ++i)
    f.snapshots.OnSnapshotAt(f.now, f.From(PartFixture::kScheduler), {Version(1)});
  CHECK(f.TakeSent<SnapshotAtAck>().size() == 2);
  CHECK(f.port.stores.size() == 1);
  f.MakeAndStore(4);
  f.snapshots.OnSnapshotAt(f.now, f.From(PartFixture::kScheduler), {Version(3)});
  CHECK(std::get<SnapshotStored>(f.Reports().at(0)).items.at(0).version == Version(3));
}

TEST_CASE("a replica in sync without data is loaded once, and has it then") {
  SnapshotsFixture f;
  f.view.restore = {0, Version(4)};
  f.EnterAll();
  f.EnterAll();
  REQUIRE(f.port.loads.size() == 1);
  CHECK(f.snapshots.IsLoading(ShardId(0)));
  const auto buffer = [](size_t floats) { return std::make_shared<FloatBuffer>(floats); };
  const LoadRequest& load = f.port.loads[0];
  const auto restored =
      f.snapshots.OnEvent(f.now, RecordLoaded{.snapshot = {0, Version(4)},
                                              .parameters = buffer(load.parameter_floats),
                                              .state = buffer(load.state_floats)});
  CHECK(restored == ShardId(0));
  CHECK(f.shard(0).newest() == Version(4));
  CHECK_FALSE(f.snapshots.IsLoading(ShardId(0)));
}

TEST_CASE("a record that cannot be read, or of another size, is reported") {
  SnapshotsFixture f;
  f.view.restore = {0, Version(4)};
  f.EnterAll();
  RecordLoaded loaded{.snapshot = {0, Version(4)}, .status = Internal("no such file")};
  CHECK_FALSE(f.snapshots.OnEvent(f.now, loaded));
  CHECK_FALSE(std::get<RestoreFailed>(f.Reports().at(0)).is_corrupt);
  f.EnterAll();  // tries again
  loaded.status = {};
  CHECK_FALSE(f.snapshots.OnEvent(f.now, loaded));
  CHECK(std::get<RestoreFailed>(f.Reports().at(0)).is_corrupt);
}

TEST_CASE("a promoted replica stores what its old primary may not have stored") {
  SnapshotsFixture f;
  f.EnterAll();
  f.MakeVersion(0);
  f.MakeVersion(0);
  f.Place(0, 2, {1});
  f.EnterAll();
  CHECK(f.port.stores.empty());
  f.Place(0, 1);
  f.EnterAll();
  CHECK(f.port.stores.size() == 1);
}

}  // namespace
}  // namespace pando
