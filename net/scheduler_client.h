// SchedulerClient: how a program that is not a member of the run talks to its scheduler. `pando
// status`, the commands and supervisors use it; supervisors report the faults that they saw or
// made. It stays connected and repeats each request until it is answered. So a scheduler that is
// killed and restarted at the same endpoint answers too. Use:
//
//   SchedulerClient client(context, {.on_warning = ...});
//   if (Status s = client.Dial(endpoint); !s.ok()) return s;
//   client.Ask(FaultNote{.number = 1, ...});
//   while (...) {
//     client.Wait(own_deadline, own_fds);  // or any wait that ends by client.NextDeadline()
//     while (std::optional<Message> answer = client.Poll()) ...
//   }
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "common/status.h"
#include "net/transport.h"

namespace pando {

// Threads: one at a time.
class SchedulerClient {
 public:
  struct Options {
    Micros repeat_interval = std::chrono::milliseconds(200);
    std::function<void(const std::string& text)> on_warning;  // as Transport's
  };
  // `context` outlives the client.
  SchedulerClient(ZmqContext& context, Options options);

  // Never blocks. The scheduler may start later.
  Status Dial(const std::string& endpoint);

  // Sends a StatusRequest, a Command or a FaultNote at once, and again after each interval until it
  // is answered. At most one StatusRequest and one Command are open; a later one replaces it. Fault
  // notes are identified by their numbers. Returns false and sends nothing if kOpenRequestsMax are
  // open. REQUIRES: one command per client and scheduler incarnation; another command needs another
  // client.
  static constexpr size_t kOpenRequestsMax = 1024;
  [[nodiscard]] bool Ask(Message request);

  // Repeats what is due and returns the next answer, if there is one. A StatusReport, a
  // FaultNoteAck and a CommandReply other than kAccepted close their request. kAccepted may come
  // several times. Never blocks.
  std::optional<Message> Poll();

  // Returns when Poll has something to do, one of `fds` is readable, or at `deadline`
  // (common/clock.h).
  void Wait(Micros deadline, std::span<const int> fds = {});
  Micros NextDeadline() const;  // when a request is due again; kNever: nothing is open

  size_t open_count() const { return open_.size(); }

 private:
  enum class Kind { kStatus, kCommand, kFaultNote };
  using Key = std::pair<Kind, uint64_t>;  // and the number of a fault note
  struct Open {
    Message request;
    Micros due{0};
  };
  static std::optional<Key> KeyFor(const Message& message);
  void Send(const Message& request);
  void RepeatDue(Micros now);
  bool Close(const Message& answer);

  const Options options_;
  const PeerId self_;
  Transport transport_;
  std::map<Key, Open> open_;
};

// Asks the scheduler at `endpoint` for the run's status until it answers, and returns its JSON.
// kUnavailable if there is no answer by `deadline` (common/clock.h); `next`: what to try then.
Result<std::string> RequestStatus(ZmqContext& context, const std::string& endpoint, Micros deadline,
                                  const std::string& next);

// How long a command waits, and what its errors advise.
struct CommandPatience {
  Micros answer_max{0};        // for the scheduler's first words
  Micros done_max{0};          // for all of it
  std::string after_silence;   // what to try where nothing answered
  std::string after_slowness;  // and where the scheduler goes on with it
};
// Gives the scheduler at `endpoint` a command, and returns what it says once it has carried it out.
// `on_said` gets what it says before, each text once. kInvalidArgument: refused. kUnavailable: not
// done in time.
Result<std::string> RequestCommand(ZmqContext& context, const std::string& endpoint,
                                   const Command& command, const CommandPatience& patience,
                                   const std::function<void(const std::string& text)>& on_said);

}  // namespace pando
