// Mirror copies a leading scheduler's run folder to its standbys (P47), on its own thread, and
// says which standbys have what. The scheduler's process makes it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/event_fd.h"
#include "common/result.h"
#include "net/stop_flag.h"
#include "net/transport.h"

namespace pando {

class Mirror {
 public:
  struct Options {
    ZmqContext& context;  // outlives the mirror
    std::string run_dir;
    uint64_t term;                                            // as MirrorSender's
    std::function<void(const std::string& text)> on_warning;  // on the mirror's thread
  };
  // kNotFound: there is no such folder.
  static Result<std::unique_ptr<Mirror>> Start(const Options& options);
  ~Mirror();

  // Any thread. The standbys to copy to: endpoint by folder id. Others are dropped.
  void SetStandbys(const std::map<std::string, std::string>& endpoint_of);
  // Any thread. Returns a number for everything that is in the folder now. A standby has reached it
  // when it has all of these bytes durably. It is cheap: many marks share one look at the folder.
  uint64_t Mark();
  // Any thread. Returns the standbys that have reached the mark. A standby that has never had
  // everything, or that lost it, has reached none.
  std::vector<std::string> ReachedBy(uint64_t mark) const;
  // Any thread. Returns when the standby last answered (common/clock.h), and none if it never did.
  // A standby that is there answers every second, and after lost messages within 5 seconds.
  std::optional<Micros> HeardAt(const std::string& folder) const;

  // The descriptor is readable when a standby has reached a new mark, until Clear.
  int fd() const { return news_.fd(); }
  void Clear() { news_.Clear(); }

 private:
  class Core;
  struct Standby {
    std::string endpoint;
    uint64_t reached = 0;
    std::optional<Micros> heard_at;
  };
  explicit Mirror(const Options& options);
  void Run(const Options& options);

  EventFd wake_;
  EventFd news_;
  StopFlag stop_;
  std::atomic<uint64_t> mark_ = 1;                // the first one is everything at the start
  std::atomic<bool> has_other_standbys_ = false;  // the thread has not seen them yet
  mutable std::mutex mutex_;                      // guards standbys_
  std::map<std::string, Standby> standbys_;
  std::thread thread_;  // last: it uses all members above
};

}  // namespace pando
