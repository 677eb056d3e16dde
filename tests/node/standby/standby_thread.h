// A leader's mirror and a standby's process, for tests over real sockets.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "net/event_loop.h"
#include "node/standby/mirror.h"
#include "node/standby/mirror_receiver.h"
#include "tests/net/net_fixture.h"
#include "tests/node/standby/mirror_fixture.h"

namespace pando {

// A standby's process: a thread with a scheduler's endpoint.
class StandbyThread {
 public:
  StandbyThread(ZmqContext& context, const MirroredFolder& folder,
                const std::string& endpoint = kAnyTcpPort)
      : transport_(context, {kSchedulerNode, NewIncarnation(), 0}, {}),
        receiver_(folder.path(), transport_),
        endpoint_(MustBind(transport_, endpoint)),
        thread_([this] {
          RunLoop(receiver_, transport_, {.stop = &stop_, .is_finished = [] { return false; }});
        }) {}
  ~StandbyThread() {
    stop_.Request();
    thread_.join();
  }
  const std::string& endpoint() const { return endpoint_; }

 private:
  StopFlag stop_;
  Transport transport_;
  MirrorReceiver receiver_;
  std::string endpoint_;
  std::thread thread_;
};

inline std::unique_ptr<Mirror> MustStart(ZmqContext& context, const MirroredFolder& folder) {
  Result<std::unique_ptr<Mirror>> mirror = Mirror::Start({.context = context,
                                                          .run_dir = folder.path(),
                                                          .term = 7,
                                                          .on_warning = [](const std::string&) {}});
  REQUIRE(mirror.ok());
  return *std::move(mirror);
}

}  // namespace pando
