#include "cli/standby/etcd_options.h"

#include <fmt/core.h>

#include <filesystem>

#include "cli/commands.h"

namespace pando {
namespace {

constexpr const char* kGroup = "Standby schedulers (docs/clusters.md)";

}  // namespace

void AddEtcdOptions(CLI::App& command, EtcdChoice* choice) {
  const auto add = [&](const std::string& flag, std::string* value, const std::string& help) {
    AddOption(command, flag, value, help).Group(kGroup);
  };
  add("--etcd URLS", &choice->endpoints,
      "where the run's schedulers meet: http://HOST:2379,... of an etcd; one leads, and the others "
      "stand by");
  add("--etcd-prefix PREFIX", &choice->prefix,
      "the run's keys there [/pando/ and the name of the run folder]");
  const auto as_etcdctl = [&](const std::string& flag, std::string* value, const char* variable,
                              const std::string& help) {
    command
        .add_option(flag.substr(0, flag.find(' ')), *value,
                    fmt::format("{}, or {}", help, variable))
        ->envname(variable)
        ->type_name(flag.substr(flag.find(' ') + 1))
        ->group(kGroup);
  };
  as_etcdctl("--etcd-cacert FILE", &choice->ca_file, "ETCDCTL_CACERT", "etcd's CA");
  as_etcdctl("--etcd-cert FILE", &choice->certificate_file, "ETCDCTL_CERT", "certificate for etcd");
  as_etcdctl("--etcd-key FILE", &choice->key_file, "ETCDCTL_KEY", "its key");
  as_etcdctl("--etcd-user NAME:PASSWORD", &choice->user, "ETCDCTL_USER",
             "user of etcd (other users of this machine can read a flag)");
  command
      .add_flag("--standby", choice->is_standby,
                "wait until the run's leader is lost, with a copy of its run folder in --run-dir; "
                "no job file")
      ->group(kGroup);
}

Result<std::optional<EtcdPlace>> ReadEtcdChoice(const EtcdChoice& choice,
                                                const std::string& run_dir) {
  if (choice.endpoints.empty()) {
    if (choice.is_standby || !choice.prefix.empty())
      return InvalidArgument("--standby and --etcd-prefix need --etcd");
    return std::optional<EtcdPlace>();
  }
  Result<EtcdOptions> options = ParseEtcdUrls(choice.endpoints);
  if (!options.ok()) return InvalidArgument("--etcd: " + options.status().message());
  options->ca_file = choice.ca_file;
  options->certificate_file = choice.certificate_file;
  options->key_file = choice.key_file;
  const size_t colon = choice.user.find(':');
  if (!choice.user.empty() && colon == std::string::npos)
    return InvalidArgument("--etcd-user has no password: give NAME:PASSWORD");
  options->user = choice.user.substr(0, colon);
  if (colon != std::string::npos) options->password = choice.user.substr(colon + 1);
  std::string prefix = choice.prefix;
  if (prefix.empty()) {
    prefix = "/pando/" + std::filesystem::absolute(run_dir).lexically_normal().filename().string();
  }
  if (!prefix.ends_with('/')) prefix += '/';
  return std::optional(EtcdPlace{*std::move(options), prefix});
}

}  // namespace pando
