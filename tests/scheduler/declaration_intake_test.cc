// P43: how a scheduler gets the declaration of a run, with lost messages and dead workers.
#include "scheduler/declaration_intake.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "common/float_buffer.h"
#include "tests/contains.h"

namespace pando {
namespace {

constexpr uint64_t kFirst = 20, kSecond = 21;
constexpr uint64_t kBytes = 24;
constexpr const char* kToml = "[train]\nsteps = 1\n";

class SentMessages : public Outbox {
 public:
  void Send(Envelope envelope) override { all.push_back(std::move(envelope)); }
  std::vector<Envelope> all;
};

struct IntakeFixture {
  SentMessages sent;
  Micros now{1000};
  DeclarationIntake intake{{kSchedulerNode, Incarnation(1), 0},
                           [](const std::string& toml) -> Result<uint64_t> {
                             if (toml == kToml) return kBytes;
                             return InvalidArgument("not that job");
                           },
                           sent};

  template <class M>
  void Receive(uint64_t from, M message) {
    sent.all.clear();
    intake.OnMessage(now, {.sender = {kUnknownNode, Incarnation(from), 0},
                           .receiver = {kSchedulerNode, {}, 0},
                           .message = std::move(message)});
  }
  // The offset that the last answer wants of this worker; −1: none.
  int64_t Wanted(uint64_t of) const {
    if (sent.all.empty()) return -1;
    const auto* wanted = std::get_if<DeclarationWanted>(&sent.all.back().message);
    if (wanted == nullptr || sent.all.back().receiver.incarnation != Incarnation(of)) return -1;
    return static_cast<int64_t>(wanted->offset);
  }
  static Declaration Part(uint64_t offset, size_t count, float value = 1,
                          const std::string& toml = kToml) {
    auto floats = std::make_shared<FloatBuffer>(count);
    for (float& f : floats->span()) f = value;
    return {toml, offset, ToBlob(std::move(floats))};
  }
};

TEST_CASE("one worker supplies the job and version 0, part by part") {
  IntakeFixture f;
  f.Receive(kFirst, Register{});
  CHECK(f.Wanted(kFirst) == 0);
  f.Receive(kFirst, f.Part(0, 4));
  CHECK(f.Wanted(kFirst) == 16);
  CHECK(!f.intake.is_whole());
  f.Receive(kFirst, f.Part(16, 2, 2, ""));
  REQUIRE(f.intake.is_whole());
  CHECK(f.intake.job_toml() == kToml);
  const std::vector<std::byte> bytes = f.intake.TakeBytes();
  REQUIRE(bytes.size() == kBytes);
  CHECK(reinterpret_cast<const float*>(bytes.data())[0] == 1);
  CHECK(reinterpret_cast<const float*>(bytes.data())[5] == 2);
}

TEST_CASE("a lost part is wanted again with the next registration, and a repeated one is dropped") {
  IntakeFixture f;
  f.Receive(kFirst, Register{});
  f.Receive(kFirst, f.Part(0, 2));
  f.Receive(kFirst, Register{});
  CHECK(f.sent.all.empty());  // the part may be on its way
  f.now += DeclarationIntake::kLostAfter;
  f.Receive(kFirst, Register{});
  CHECK(f.Wanted(kFirst) == 8);
  f.Receive(kFirst, f.Part(0, 2));
  CHECK(f.sent.all.empty());
  f.Receive(kFirst, f.Part(12, 1));
  CHECK(f.sent.all.empty());
  f.Receive(kFirst, f.Part(8, 1));
  CHECK(f.Wanted(kFirst) == 12);
}

TEST_CASE("a second worker waits, and supplies all if the first one falls silent") {
  IntakeFixture f;
  f.Receive(kFirst, Register{});
  f.Receive(kFirst, f.Part(0, 4));
  f.Receive(kSecond, Register{});
  CHECK(f.sent.all.empty());
  f.Receive(kSecond, f.Part(16, 2));
  CHECK(!f.intake.is_whole());
  f.now += DeclarationIntake::kPatience;
  f.Receive(kSecond, Register{});
  CHECK(f.Wanted(kSecond) == 0);
  f.Receive(kFirst, f.Part(16, 2));  // it only slept; its bytes are not mixed with the others
  CHECK(f.sent.all.empty());
  f.Receive(kSecond, f.Part(0, 6, 3));
  REQUIRE(f.intake.is_whole());
  CHECK(reinterpret_cast<const float*>(f.intake.TakeBytes().data())[0] == 3);
}

TEST_CASE("a part that an earlier scheduler wanted is dropped, and its worker is not refused") {
  IntakeFixture f;
  f.Receive(kFirst, Register{});
  f.Receive(kFirst, f.Part(16, 2, 1, ""));
  CHECK(f.sent.all.empty());
  f.Receive(kFirst, f.Part(0, 4));
  CHECK(f.Wanted(kFirst) == 16);
}

TEST_CASE("servers wait without an answer") {
  IntakeFixture f;
  f.Receive(kFirst, Register{.role = Role::kServer});
  CHECK(f.sent.all.empty());
  f.Receive(kSecond, Register{});
  CHECK(f.Wanted(kSecond) == 0);
}

TEST_CASE("a declaration that cannot be is refused, and another worker may supply one") {
  IntakeFixture f;
  f.Receive(kFirst, Register{});
  SUBCASE("a job that is none") { f.Receive(kFirst, f.Part(0, 2, 1, "nonsense")); }
  SUBCASE("more bytes than its tensors have") { f.Receive(kFirst, f.Part(0, 7)); }
  REQUIRE(f.sent.all.size() == 1);
  const auto* refused = std::get_if<Refused>(&f.sent.all[0].message);
  REQUIRE(refused != nullptr);
  CHECK(refused->kind == RefusalKind::kNotThisOne);
  f.Receive(kSecond, Register{});
  CHECK(f.Wanted(kSecond) == 0);
}

TEST_CASE("a client hears that the run waits, and may stop it") {
  IntakeFixture f;
  f.Receive(kFirst, StatusRequest{});
  REQUIRE(f.sent.all.size() == 1);
  CHECK(Contains(std::get<StatusReport>(f.sent.all[0].message).json, "\"gathering\""));
  f.Receive(kFirst, FaultNote{.number = 7});
  CHECK(f.sent.all.empty());  // its sender repeats it until the scheduler has it
  f.Receive(kFirst, Command{.kind = CommandKind::kSnapshot});
  CHECK(std::get<CommandReply>(f.sent.all[0].message).outcome == CommandOutcome::kRefused);
  CHECK(f.intake.stop_text().empty());
  f.Receive(kFirst, Command{.kind = CommandKind::kStop});
  CHECK(std::get<CommandReply>(f.sent.all[0].message).outcome == CommandOutcome::kDone);
  CHECK(!f.intake.stop_text().empty());
}

}  // namespace
}  // namespace pando
