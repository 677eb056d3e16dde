// The run's status, as the scheduler fills it and as JSON has it.
#include <doctest/doctest.h>

#include "scheduler/run_status.h"
#include "tests/scheduler/scheduler_fixture.h"

namespace pando {
namespace {

JobPlan FilledPlan() {
  JobPlan plan = MakePlan(2, 2);
  plan.job.verify_every = 1;
  plan.job.model = "mlp";
  plan.job.dataset = "mnist";
  return plan;
}

// A run with one of everything that a status can have, after the scheduler's second start.
struct FilledRun : Fixture {
  const std::vector<SchedulerPlace> places{{"tcp://a:7070", "leads"}, {"tcp://b:7070", "may lead"}};
  FilledRun() : Fixture(FilledPlan()) {
    StartAll();
    SchedulerState& state = *journal.state;
    state.snapshots = {{{1, Version(40)}, {}}, {{1, Version(50)}, {}}};
    state.evaluations = {{Version(50), 4, 3, 0.25, 4, {}, {}, {}}};
    state.verification.agreed_count = 7;
    state.verification.unverified_count = 2;
    state.faults = {{.id = 1,
                     .action = "kill",
                     .target = "worker 1",
                     .host = "h",
                     .process_id = 121,
                     .step = Step(7),
                     .injected_ms = 100.5,
                     .detected_ms = 120,
                     .detected_by = "exit",
                     .recovered_ms = 250.25},
                    {.id = 2,
                     .action = "stop",
                     .target = "server 0",
                     .host = "h",
                     .process_id = 110,
                     .step = Step(9),
                     .injected_ms = 300}};
    schedulers = &places;
    StartScheduler();
    From(10, Heartbeat{.activity = Activity::kServing, .step = Step(51)});
    From(11, Heartbeat{.activity = Activity::kServing, .step = Step(50)});
    From(20, Heartbeat{.activity = Activity::kComputing,
                       .step = Step(51),
                       .micro_batch_us = 2500,
                       .data_stall_us = 11,
                       .exposed_sync_us = 12,
                       .gpu_memory_bytes = 1 << 20,
                       .gpu_percent = 93,
                       .tcp_lines = 1,
                       .shm_lines = 2,
                       .tcp_traffic = {100, 200},
                       .shm_traffic = {300, 400}});
    From(21, Heartbeat{.activity = Activity::kWaitingForParameters,
                       .step = Step(51),
                       .waiting_for = {NodeFor(10), Incarnation(10), 0},
                       .waiting_ms = 5,
                       .samples_wait_ms = 3});
    now += milliseconds(20);
  }
};

// As `pando status --json` printed it before the status had one description; since then a fault has
// its id, host and process_id, too.
constexpr const char* kGolden =
    R"({"phase":"training","waiting_for":"for a write: the disk is full",)"
    R"("stall":{"waiter":"the scheduler","waited_for":"its journal","what":"a write",)"
    R"("since_ms":1500,)"
    R"("text":"the scheduler has waited 1.5 s for its journal (a write): the disk is full",)"
    R"("log_line":""},"clock_us":1020000,"step":0,"step_count":1000,"term":2,"view":2,)"
    R"("generation":0,"model":"mlp","dataset":"mnist",)"
    R"("schedulers":[{"endpoint":"tcp://a:7070","state":"leads"},)"
    R"({"endpoint":"tcp://b:7070","state":"may lead"}],"nodes":[{"name":"server 0",)"
    R"("role":"server","rank":0,"host":"h","pid":110,"health":"ready","draining":false,)"
    R"("activity":"serving","step":51,"silent_ms":20,"primaries":4,"backups":5,"syncing":0,)"
    R"("endpoints":["tcp://10.0.0.1:1"]},{"name":"server 1","role":"server","rank":1,)"
    R"("host":"h","pid":111,"health":"ready","draining":false,"activity":"serving","step":50,)"
    R"("silent_ms":20,"primaries":5,"backups":4,"syncing":0,"endpoints":["tcp://10.0.0.1:1"]},)"
    R"({"name":"worker 0","role":"worker","rank":0,"host":"h","pid":120,"health":"ready",)"
    R"("draining":false,"activity":"computing","step":51,"silent_ms":20,"micro_batches":4,)"
    R"("micro_batch_us":2500,"data_stall_us":11,"exposed_sync_us":12,)"
    R"("gpu_memory_bytes":1048576,"gpu_percent":93,"lines":{"tcp":1,"ipc":0,"shm":2},)"
    R"("traffic":{"tcp":[100,200],"shm":[300,400]}},{"name":"worker 1","role":"worker",)"
    R"("rank":1,"host":"h","pid":121,"health":"ready","draining":false,)"
    R"("activity":"waiting for parameters","step":51,"silent_ms":20,"micro_batches":4,)"
    R"("micro_batch_us":0,"data_stall_us":0,"exposed_sync_us":0,"waiting_for":"server 0",)"
    R"("waiting_ms":5}],"verification":{"agreed":7,"unverified":2},"evaluation":{"version":50,)"
    R"("evaluated_on":"test","accuracy":0.75,"top5_accuracy":1.0,)"
    R"("text":"test accuracy 75.00 %, test loss 0.0625"},"snapshots":[{"generation":1,)"
    R"("version":40},{"generation":1,"version":50}],"faults":[{"id":1,"action":"kill",)"
    R"("target":"worker 1","host":"h","process_id":121,"step":7,"injected_ms":100.5,)"
    R"("detected_ms":120.0,"detected_by":"exit","recovered_ms":250.25},{"id":2,"action":"stop",)"
    R"("target":"server 0","host":"h","process_id":110,"step":9,"injected_ms":300.0,)"
    R"("detected_ms":null,"detected_by":null,"recovered_ms":null},{"id":3,"action":"exit",)"
    R"("target":"scheduler","host":"","process_id":0,"step":0,"injected_ms":null,)"
    R"("detected_ms":1000.0,"detected_by":"exit","recovered_ms":null}],"fault_count":3})";

TEST_CASE("a filled status has the members and values that clients know") {
  const FilledRun f;
  const Stall stall{.waiter = "the scheduler",
                    .waited_for = "its journal",
                    .what = "a write",
                    .why = "the disk is full",
                    .since = f.now - milliseconds(1500)};
  CHECK(f.scheduler->StatusJson(f.now, stall) == kGolden);
}

TEST_CASE("a status reads back, and what another release lacks or adds does no harm") {
  const Result<RunStatus> read = ParseStatus(kGolden);
  REQUIRE_MESSAGE(read.ok(), read.status().message());
  CHECK(StatusText(*read) == kGolden);
  const Result<RunStatus> other =
      ParseStatus(R"({"phase":"x","new":{"a":[1]},"nodes":[{"name":"a","new":1}]})");
  REQUIRE_MESSAGE(other.ok(), other.status().message());
  CHECK(other->nodes[0].name == "a");
  CHECK(other->nodes[0].health == "ready");
  CHECK_FALSE(other->clock_us);
}

TEST_CASE("a hostile status is an error that names the place") {
  const auto error = [](const std::string& text) { return ParseStatus(text).status().message(); };
  for (const char* text : {"", "[]", "7", "{", "{}", R"({"nodes":[]})", R"({"phase":""})", "\xff"})
    CHECK_FALSE(error(text).empty());
  const auto with = [&](const std::string& more) { return error(R"({"phase":"x",)" + more + "}"); };
  CHECK(with(R"("step":"7")") == "step: expected a whole number, found \"7\"");
  CHECK(with(R"("step":-1)") == "step: -1 is out of range");
  CHECK(with(R"("stall":7)") == "stall: expected an object, found 7");
  CHECK(with(R"("nodes":{"a":1})") == "nodes: expected a list, found {\"a\":1}");
  CHECK(with(R"("nodes":[{},{"pid":4294967296}])") == "nodes[1].pid: 4294967296 is out of range");
  CHECK(with(R"("nodes":[{"traffic":{"tcp":[1]}}])") ==
        "nodes[0].traffic.tcp: expected a list of 2, found [1]");
  CHECK(with(R"("faults":[{"injected_ms":[]}])") ==
        "faults[0].injected_ms: expected a number, found []");
  CHECK(with(R"("new":)" + std::string(200'000, '[')) == "its JSON is nested too deeply");
}

}  // namespace
}  // namespace pando
