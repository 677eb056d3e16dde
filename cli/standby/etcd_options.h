// The flags with which a scheduler reaches etcd, named as etcdctl's.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "common/result.h"
#include "node/standby/seat.h"

namespace pando {

struct EtcdChoice {
  std::string endpoints;  // empty: the run has one scheduler, and its journal is in the run folder
  std::string prefix;     // empty: "/pando/" and the name of the run folder
  std::string ca_file, certificate_file, key_file;
  std::string user;  // "NAME:PASSWORD"
  bool is_standby = false;
};

void AddEtcdOptions(CLI::App& command, EtcdChoice* choice);
// Returns none without --etcd. `run_dir` is the run's folder. kInvalidArgument names the flag.
Result<std::optional<EtcdPlace>> ReadEtcdChoice(const EtcdChoice& choice,
                                                const std::string& run_dir);

}  // namespace pando
