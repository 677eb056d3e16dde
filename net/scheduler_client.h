// SchedulerClient connects a program that is not a member of the run to the run's scheduler. `pando
// status`, the commands and supervisors use it; supervisors report the faults that they saw or
// injected. The client stays connected and repeats each request until it is answered, so a
// scheduler that is killed and restarted at the same endpoint answers too. Example:
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

#include "common/result.h"
#include "net/transport.h"

namespace pando {

// Threads: one at a time.
class SchedulerClient {
 public:
  struct Options {
    Micros repeat_interval = std::chrono::milliseconds(200);
    std::function<void(const std::string& text)> on_warning;  // as in Transport
  };
  // `context` outlives the client.
  SchedulerClient(ZmqContext& context, Options options);

  // Connects to the scheduler, which may start later. Never blocks.
  Status Dial(const std::string& endpoint);

  // Sends a StatusRequest, a Command or a FaultNote at once, and again after each interval until it
  // is answered. At most one StatusRequest and one Command are open; a later one replaces it. Fault
  // notes are identified by their numbers. Returns false and sends nothing if kOpenRequestsMax are
  // open. REQUIRES: one command per client and scheduler incarnation; another command needs another
  // client.
  static constexpr size_t kOpenRequestsMax = 1024;
  [[nodiscard]] bool Ask(Message request);

  // Repeats the requests that are due and returns the next answer, if there is one. A StatusReport,
  // a FaultNoteAck and a CommandReply other than kAccepted close their request. kAccepted may come
  // several times. Never blocks.
  std::optional<Message> Poll();

  // Returns when Poll has something to do, when one of `fds` is readable, or at `deadline`
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
// kUnavailable: there is no answer by `deadline` (common/clock.h); `next` says what to try then.
Result<std::string> RequestStatus(ZmqContext& context, const std::string& endpoint, Micros deadline,
                                  const std::string& next);

// The times for which a command waits, and the advice of its errors.
struct CommandPatience {
  Micros answer_max{0};        // until the scheduler's first reply
  Micros done_max{0};          // until the command is done
  std::string after_silence;   // advice if the scheduler did not answer
  std::string after_slowness;  // advice if the scheduler is still at work
};
// Sends a command to the scheduler at `endpoint`, and returns its last text when it has carried the
// command out. `on_said` gets its earlier texts, each once. kInvalidArgument: the scheduler
// refused. kUnavailable: the command was not done in time.
Result<std::string> RequestCommand(ZmqContext& context, const std::string& endpoint,
                                   const Command& command, const CommandPatience& patience,
                                   const std::function<void(const std::string& text)>& on_said);

}  // namespace pando
