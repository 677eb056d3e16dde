#include "worker/committed_versions.h"

#include "tests/worker/parts_fixture.h"

namespace pando {
namespace {

using News = std::vector<std::pair<ShardId, Version>>;

TEST_CASE("a newer version of a shard is news once, an older one is none") {
  PartsFixture f;
  f.versions.Learn(ShardId(1), Version(3));
  f.versions.Learn(ShardId(1), Version(3));
  f.versions.Learn(ShardId(1), Version(2));
  CHECK(f.committed == News{{ShardId(1), Version(3)}});
  CHECK(f.versions.known(ShardId(1)) == Version(3));
}

TEST_CASE("the version everywhere is that of the shard that is furthest behind") {
  PartsFixture f;
  f.versions.Learn(ShardId(0), Version(3));
  CHECK(f.versions.everywhere() == Version(0));
  CHECK(f.versions.lowest_shard() == ShardId(1));
  f.versions.LearnAll(Version(2));
  CHECK(f.versions.everywhere() == Version(2));
  CHECK(f.versions.lowest_incomplete() == Step(2));
  CHECK(f.versions.known(ShardId(0)) == Version(3));
}

TEST_CASE("a new generation begins with nothing committed, and that is no news (P21)") {
  PartsFixture f;
  f.Commit(4);
  f.committed.clear();
  f.versions.Forget();
  CHECK(f.versions.everywhere() == Version(0));
  CHECK(f.committed.empty());
}

TEST_CASE("a shard beyond the job's is none") {
  PartsFixture f;
  CHECK(f.versions.HasShard(ShardId(1)));
  CHECK_FALSE(f.versions.HasShard(ShardId(2)));
}

}  // namespace
}  // namespace pando
