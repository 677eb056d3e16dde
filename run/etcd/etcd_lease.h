// EtcdLease is a lease in etcd that a thread keeps alive. Keys that are put with it exist until it
// ends. Campaign makes one of several processes the leader. The scheduler's election uses both.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "run/etcd/etcd_client.h"

namespace pando {

// Threads: any. Owns a thread with a client. The destructor ends the lease, if etcd answers.
class EtcdLease {
 public:
  static constexpr std::chrono::seconds kLeaseSeconds{2};
  static constexpr Micros kInterval = std::chrono::milliseconds(500);
  static constexpr Micros kRequestLimit = std::chrono::milliseconds(500);

  static Result<std::unique_ptr<EtcdLease>> Grant(EtcdOptions options);
  ~EtcdLease();

  int64_t id() const { return id_; }
  // etcd keeps the lease at least until then. Later it may have given the keys to another process.
  Micros deadline() const { return Micros(deadline_us_); }
  // etcd answered that the lease has ended. It may have ended long before.
  bool is_lost() const { return is_lost_; }

 private:
  explicit EtcdLease(EtcdOptions options) : client_(std::move(options)) {}
  void Run(const std::stop_token& stop);

  EtcdClient client_;  // the thread's
  int64_t id_ = 0;
  std::atomic<Micros::rep> deadline_us_{0};  // SteadyNow()
  std::atomic<bool> is_lost_{false};
  std::jthread thread_;
};

struct EtcdElection {
  bool is_won = false;
  std::string leader;           // the key's value
  int64_t create_revision = 0;  // of the key, for EtcdCompare: it changes with the leader
};
// Puts the key with the lease if no process has put it. Returns the leader, which may be this one.
Result<EtcdElection> Campaign(EtcdClient& client, const EtcdLease& lease, const std::string& key,
                              const std::string& value);

}  // namespace pando
