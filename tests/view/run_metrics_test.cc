#include "view/run_metrics.h"

#include <doctest/doctest.h>
#include <prometheus/text_serializer.h>

#include <cmath>
#include <string>

#include "tests/contains.h"

namespace pando {
namespace {

StepRow RowAt(double step, double elapsed) {
  StepRow row{};
  row[kCellStep] = step;
  row[kCellElapsed] = elapsed;
  row[kCellLoss] = 0.5;
  row[kCellStepMs] = 20;
  row[kCellDataStallMs] = 2;
  row[kCellExposedSyncMs] = 5;
  return row;
}

struct Metrics {
  void Add(double step, double elapsed) {
    run.OnRow({.step = RowAt(step, elapsed), .evaluation = {}, .names = {}}, {}, plan);
  }
  StepPlan plan{{.sample_count = 6400, .global_batch = 64}};
  std::string Text() const { return prometheus::TextSerializer().Serialize(registry.Collect()); }
  prometheus::Registry registry;
  RunMetrics run{registry, "first"};
};

TEST_CASE("counters count each step once, also those between two rows") {
  Metrics metrics;
  metrics.Add(10, 1);
  metrics.Add(20, 1.2);
  metrics.Add(20, 1.3);  // a rollback came between
  const std::string text = metrics.Text();
  CHECK(Contains(text, "pando_steps_total{run=\"first\"} 20\n"));
  CHECK(Contains(text, "pando_samples_total{run=\"first\"} 1280\n"));
  CHECK(Contains(text, "pando_data_stall_seconds_total{run=\"first\"} 0.04\n"));
  CHECK(Contains(text, "pando_exposed_sync_ratio{run=\"first\"} 0.25\n"));
  CHECK(Contains(text, "pando_step_duration_seconds_count{run=\"first\"} 10\n"));
  CHECK(Contains(text, "pando_step_duration_seconds_bucket{run=\"first\",le=\"0.025\"} 10\n"));
  CHECK(Contains(text, "pando_step_duration_seconds_bucket{run=\"first\",le=\"0.01\"} 0\n"));
}

TEST_CASE("what a program logs is a gauge of its name") {
  Metrics metrics;
  StepRow row = RowAt(1, 1);
  row.logged = {0.25, NAN};
  metrics.run.OnRow({.step = row, .evaluation = {}, .names = {}}, {"d_loss", "g_loss"},
                    metrics.plan);
  CHECK(Contains(metrics.Text(), "pando_train_logged{name=\"d_loss\",run=\"first\"} 0.25\n"));
  CHECK_FALSE(Contains(metrics.Text(), "g_loss"));
}

TEST_CASE("what a program does not give is no gauge") {
  Metrics metrics;
  StepRow row = RowAt(1, 1);
  row[kCellLoss] = NAN;
  metrics.run.OnRow({.step = row, .evaluation = {}, .names = {}}, {}, metrics.plan);
  metrics.run.OnRow({.step = {}, .evaluation = EvaluatedRow{1, 1, 1, NAN, 0.5}, .names = {}}, {},
                    metrics.plan);
  CHECK_FALSE(Contains(metrics.Text(), "pando_train_loss"));
  CHECK_FALSE(Contains(metrics.Text(), "pando_evaluation_accuracy"));
  metrics.Add(2, 2);
  CHECK(Contains(metrics.Text(), "pando_train_loss{run=\"first\"} 0.5\n"));
}

TEST_CASE(
    "samples are those that steps had: data that fill no batch, and an epoch's short last step") {
  Metrics small;
  small.plan = StepPlan({.sample_count = 48, .global_batch = 128});
  small.Add(1, 1);
  small.Add(30, 2);
  CHECK(Contains(small.Text(), "pando_samples_total{run=\"first\"} 1440\n"));
  Metrics uneven;
  uneven.plan = StepPlan({.sample_count = 100, .global_batch = 64});
  uneven.Add(3, 1);
  CHECK(Contains(uneven.Text(), "pando_samples_total{run=\"first\"} 164\n"));
  uneven.Add(4, 2);
  CHECK(Contains(uneven.Text(), "pando_samples_total{run=\"first\"} 200\n"));
}

TEST_CASE("noticed faults and recoveries are counted, also once the run's files begin again") {
  Metrics metrics;
  metrics.run.OnFault({});
  metrics.run.OnFault({.is_noticed = true, .recovery_ms = {}});
  metrics.run.OnRestart();
  metrics.run.OnFault({.is_noticed = true, .recovery_ms = 200});
  metrics.run.OnFault({.is_noticed = false, .recovery_ms = 100});
  CHECK(Contains(metrics.Text(), "pando_faults_total{run=\"first\"} 2\n"));
  CHECK(Contains(metrics.Text(), "pando_recovery_seconds_sum{run=\"first\"} 0.3"));
}

TEST_CASE("processes are counted by role and state, and not at all without a scheduler") {
  Metrics metrics;
  metrics.run.OnStatus({.step = 30,
                        .nodes = {{.role = "worker"},
                                  {.role = "worker", .health = "suspect"},
                                  {.role = "server", .step = 28}}});
  std::string text = metrics.Text();
  CHECK(Contains(text, "pando_up{run=\"first\"} 1\n"));
  CHECK(Contains(text, "pando_members{role=\"worker\",run=\"first\",state=\"suspect\"} 1\n"));
  CHECK(Contains(text, "pando_members{role=\"scheduler\",run=\"first\",state=\"ready\"} 1\n"));
  CHECK(Contains(text, "pando_shard_versions_behind{run=\"first\"} 2\n"));
  metrics.run.OnNoStatus();
  text = metrics.Text();
  CHECK(Contains(text, "pando_up{run=\"first\"} 0\n"));
  CHECK(Contains(text, "pando_members{role=\"worker\",run=\"first\",state=\"suspect\"} 0\n"));
}

TEST_CASE("a stall lasts until the status has none, or nothing answers") {
  Metrics metrics;
  const auto tell = [&](uint64_t since_ms) {
    metrics.run.OnStatus({.stall = RunStatus::Stall{.since_ms = since_ms}});
  };
  const auto has = [&](const char* value) {
    return Contains(metrics.Text(),
                    std::string("pando_stalled_seconds{run=\"first\"} ") + value + "\n");
  };
  CHECK(has("0"));
  tell(1400);
  CHECK(has("1.4"));
  metrics.run.OnStatus({});
  CHECK(has("0"));
  tell(2000);
  CHECK(has("2"));
  metrics.run.OnNoStatus();
  CHECK(has("0"));
}

}  // namespace
}  // namespace pando
