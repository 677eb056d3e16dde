#include "run/etcd/etcd_lease.h"

#include <utility>

#include "common/stop_wait.h"

namespace pando {

Result<std::unique_ptr<EtcdLease>> EtcdLease::Grant(EtcdOptions options) {
  options.connect_limit = options.request_limit = kRequestLimit;
  std::unique_ptr<EtcdLease> lease(new EtcdLease(std::move(options)));
  const Micros start = SteadyNow();
  PANDO_ASSIGN_OR_RETURN(const EtcdLeaseTime granted, lease->client_.Grant(kLeaseSeconds));
  lease->id_ = granted.id;
  lease->deadline_us_ = (start + granted.left).count();
  lease->thread_ =
      std::jthread([raw = lease.get()](const std::stop_token& stop) { raw->Run(stop); });
  return lease;
}

EtcdLease::~EtcdLease() {
  thread_ = {};                              // joined
  if (!is_lost_) (void)client_.Revoke(id_);  // otherwise it ends by itself
}

void EtcdLease::Run(const std::stop_token& stop) {
  while (WaitUnlessStopped(stop, kInterval)) {
    const Micros start = SteadyNow();
    const Result<EtcdLeaseTime> kept = client_.KeepAlive(id_);
    if (!kept.ok()) continue;  // silence alone does not end it
    is_lost_ = kept->left.count() <= 0;
    if (is_lost_) return;
    deadline_us_ = (start + kept->left).count();
  }
}

Result<EtcdElection> Campaign(EtcdClient& client, const EtcdLease& lease, const std::string& key,
                              const std::string& value) {
  PANDO_ASSIGN_OR_RETURN(
      const EtcdOutcome outcome,
      client.Transact({.compares = {{key, EtcdCompare::Revision::kCreate, 0}},
                       .success = {EtcdPut{key, value, lease.id()}, EtcdGet{key}},
                       .failure = {EtcdGet{key}}}));
  if (outcome.records.empty()) return Unavailable("etcd's answer to " + key + " lacks the key");
  // A request that was sent twice finds the key of its first time.
  const EtcdRecord& found = outcome.records[0];
  return EtcdElection{found.lease == lease.id(), found.value, found.create_revision};
}

}  // namespace pando
