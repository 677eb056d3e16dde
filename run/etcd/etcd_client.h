// EtcdClient sends requests to etcd (3.4 or later) as JSON over HTTP. The journal, the lease and
// the election of the scheduler use it.
//
// Threads: none; each thread has its own client. A request goes to the endpoint that answered last,
// then to the others. A write may be sent twice, and may take effect although it failed with
// kUnavailable: writers compare revisions.
//
// Errors: kUnavailable if no endpoint answers, or etcd has no leader; kNoSpace if etcd's database
// is full; both may be retried. kInvalidArgument for refused certificates, users and requests.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/result.h"

namespace pando {

struct EtcdOptions {
  std::vector<std::string> endpoints;               // "https://HOST:PORT", at least one
  std::string ca_file, certificate_file, key_file;  // PEM; empty: the system's CAs, no certificate
  std::string user, password;                       // empty: etcd has no authentication
  Micros connect_limit = std::chrono::seconds(1);   // for each endpoint
  Micros request_limit = std::chrono::seconds(2);   // for each endpoint
};
// Reads "http://a:2379,http://b:2379".
Result<EtcdOptions> ParseEtcdUrls(const std::string& urls);

struct EtcdRecord {
  std::string key, value;
  int64_t create_revision = 0;
  int64_t mod_revision = 0;
  int64_t lease = 0;
};

// True if the key's revision is this one. A key that does not exist has 0.
struct EtcdCompare {
  enum class Revision : uint8_t { kCreate, kMod };
  std::string key;
  Revision which = Revision::kMod;
  int64_t revision = 0;
};

// EtcdGet and EtcdDelete are for the keys from `key` to before `end`; only `key` if `end` is empty.
struct EtcdGet {
  std::string key, end;
  int64_t records_max = 0;  // 0: all
};
struct EtcdDelete {
  std::string key, end;
};
struct EtcdPut {
  std::string key, value;
  int64_t lease = 0;  // the key ends with this lease; 0: none
};
using EtcdOp = std::variant<EtcdGet, EtcdDelete, EtcdPut>;

// Executes `success` if all compares are true, else `failure`. etcd takes up to 1.5 MiB.
struct EtcdTransaction {
  std::vector<EtcdCompare> compares;
  std::vector<EtcdOp> success;
  std::vector<EtcdOp> failure;
};
struct EtcdOutcome {
  bool has_succeeded = false;
  int64_t revision = 0;             // etcd's, and that of the keys that the transaction put
  std::vector<EtcdRecord> records;  // of each EtcdGet, in the order of their keys
};

struct EtcdLeaseTime {
  int64_t id = 0;
  std::chrono::seconds left{0};  // 0 or less: the lease has ended
};

class EtcdClient {
 public:
  explicit EtcdClient(EtcdOptions options);
  EtcdClient(EtcdClient&& other) noexcept;
  ~EtcdClient();

  Result<EtcdOutcome> Transact(const EtcdTransaction& transaction);
  // Reads all records in parts. The parts are of several moments if others write in between.
  Result<std::vector<EtcdRecord>> Get(const std::string& key, const std::string& end = {});
  Result<EtcdLeaseTime> Grant(std::chrono::seconds time);
  Result<EtcdLeaseTime> KeepAlive(int64_t lease);
  Status Revoke(int64_t lease);

 private:
  struct Connection;  // libcurl's
  // Returns etcd's answer. `what` completes an error's "cannot ...".
  Result<nlohmann::json> Call(const std::string& path, const std::string& what,
                              const nlohmann::json& body);
  Result<nlohmann::json> CallEndpoint(const std::string& path, const std::string& body);
  Status LogIn();

  EtcdOptions options_;
  std::unique_ptr<Connection> connection_;
  std::string token_;    // of the user
  size_t endpoint_ = 0;  // index; it answered last
};

}  // namespace pando
