#include "worker/parameters.h"

#include "tests/worker/parts_fixture.h"

namespace pando {
namespace {

using Versions = std::vector<Version>;

Job LayeredJob() {
  Job job = PartsFixture::SmallJob();
  job.parameter_residency = ParameterResidency::kLayer;
  return job;
}

TEST_CASE("compute gets each version of the steps in the works once") {
  PartsFixture f;
  f.Start();
  f.parameters.OnParams(f.Params(0, 0));
  f.parameters.OnParams(f.Params(0, 0));
  f.parameters.OnParams(f.Params(0, 7));  // of no step in the works
  CHECK(f.compute.parameters == Versions{Version(0)});
  CHECK(f.parameters.HasVersion(ShardId(0), Version(0)));
  CHECK_FALSE(f.parameters.HasWhole(Version(0)));
  f.parameters.OnParams(f.Params(1, 0));
  CHECK(f.parameters.HasWhole(Version(0)));
}

TEST_CASE("with staleness a version of a shard that is ahead of others is kept for a later step") {
  PartsFixture f(PartsFixture::StaleJob());
  f.Start();  // steps 0, 1 and 2 read versions 0, 0 and 1
  for (uint64_t version : {0, 1, 2, 3}) f.parameters.OnParams(f.Params(0, version));
  CHECK(f.compute.parameters == Versions{Version(0), Version(1), Version(2)});
  CHECK(f.parameters.HasVersion(ShardId(0), Version(2)));
  CHECK(f.parameters.HasVersion(ShardId(0), Version(0)));
  CHECK_FALSE(f.parameters.VersionToPull(ShardId(0)).has_value());
}

TEST_CASE("parameters of another size, or of no shard, are not sound") {
  PartsFixture f;
  CHECK(f.parameters.IsSound(f.Params(0, 0)));
  CHECK_FALSE(f.parameters.IsSound({ShardId(2), Version(0), f.Payload(0)}));
  CHECK_FALSE(f.parameters.IsSound({ShardId(0), Version(0), Blob()}));
}

TEST_CASE("what compute lacks is pulled unless a push of ours asks for it, or is still to come") {
  PartsFixture f;
  CHECK_FALSE(f.parameters.VersionToPull(ShardId(0)).has_value());  // nothing has started
  f.Start();
  CHECK(f.parameters.VersionToPull(ShardId(0)) == Version(0));
  f.parameters.OnParams(f.Params(0, 0));
  CHECK_FALSE(f.parameters.VersionToPull(ShardId(0)).has_value());
  f.AddGradients(0);
  f.steps.OnStepComputed(kMs, {Step(0)});
  CHECK_FALSE(f.parameters.VersionToPull(ShardId(0)).has_value());
  f.gradients.Clear();
  CHECK(f.parameters.VersionToPull(ShardId(0)) == Version(1));
}

TEST_CASE("with layer residency compute gets what it wants, and nothing else") {
  PartsFixture f(LayeredJob());
  f.Start();
  f.parameters.OnParams(f.Params(0, 0));
  CHECK(f.compute.parameters.empty());
  f.parameters.OnParametersWanted({ParameterUse::kTraining, Version(0), {ShardId(0)}});
  CHECK(f.parameters.wanted().TakeDue(kMs).size() == 1);
  CHECK(f.parameters.wanted().TakeDue(2 * kMs).empty());
  f.parameters.OnParams(f.Params(0, 0));
  CHECK(f.compute.parameters == Versions{Version(0)});
  CHECK(f.parameters.wanted().size() == 0);
}

TEST_CASE("a wanted version that is not known to be committed comes by a push") {
  PartsFixture f(LayeredJob());
  f.Start();
  f.parameters.OnParametersWanted({ParameterUse::kTraining, Version(1), {ShardId(0)}});
  CHECK(f.parameters.wanted().TakeDue(kMs).empty());
  CHECK(f.parameters.wanted().NextDeadline() == kNever);
  f.Commit(1);
  CHECK(f.parameters.wanted().TakeDue(kMs).size() == 1);
}

TEST_CASE("a version that is gone is wanted no more, and compute learns it") {
  PartsFixture f(LayeredJob());
  f.parameters.OnParametersWanted({ParameterUse::kTraining, Version(3), {ShardId(0)}});
  f.parameters.OnParametersWanted({ParameterUse::kEvaluation, Version(3), {ShardId(0)}});
  f.parameters.OnGone(ParameterUse::kTraining, Version(3));
  CHECK(f.parameters.wanted().size() == 1);
  CHECK(f.compute.gone == Versions{Version(3)});
  f.parameters.OnGone(ParameterUse::kEvaluation, Version(3));
  CHECK(f.compute.evaluation_gone == Versions{Version(3)});
}

}  // namespace
}  // namespace pando
