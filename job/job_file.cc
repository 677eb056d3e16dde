#include "job/job_file.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/hash.h"
#include "job/job_draft.h"
#include "models/zoo.h"

namespace pando {
namespace {

std::string WriteSections(const Job& given, bool identity_only) {
  Job job = given;
  if (job.steps > 0) job.epochs = 0;
  if (job.eval_every_steps > 0) job.eval_every_epochs = 0;
  std::string text;
  std::string_view section;
  for (const JobKey& key : JobKeys()) {
    if (identity_only && !IsIdentityKey(key)) continue;
    if (key.section() != section) {
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", key.section());
      section = key.section();
    }
    text += fmt::format("{} = {}\n", key.leaf(), JobValueToml(key.get(job)));
  }
  return text;
}

}  // namespace

Result<Job> ParseJobText(std::string_view text, const std::string& file_name) {
  JobDraft draft;
  PANDO_RETURN_IF_ERROR(draft.AddToml(text, file_name));
  return draft.Finish();
}

Result<std::string> ReadTextFile(const std::string& path) {
  std::error_code ignored;  // if it fails, opening the file reports it
  if (std::filesystem::is_directory(path, ignored))
    return InvalidArgument(path + " is a folder, and a file was expected");
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) return NotFound(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  return text.str();
}

Result<Job> ReadJobFile(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(std::string text, ReadTextFile(path));
  return ParseJobText(text, path);
}

Status LoadNetwork(Job* job) {
  constexpr size_t kNetworkBytesMax = 1 << 20;
  if (!IsNetworkFile(job->model) || !job->network.empty()) return Status();
  PANDO_ASSIGN_OR_RETURN(std::string text, ReadTextFile(job->model));
  if (text.empty() || text.size() > kNetworkBytesMax) {
    return InvalidArgument(fmt::format("{}: has {} bytes, and a network's file has 1 to {}",
                                       job->model, text.size(), kNetworkBytesMax));
  }
  job->network = std::move(text);
  return Status();
}

std::string WriteJobText(const Job& job) { return WriteSections(job, /*identity_only=*/false); }

// The keys of four sections say where, how and how safely to compute, and do not affect the result.
bool IsIdentityKey(const JobKey& key) {
  // This key says how a step is trained, but changes no bit: it exchanges memory for time.
  if (key.name == "train.activation_checkpointing") return false;
  if (key.name == "model.init" || key.name == "model.init_partial") return false;  // init_hash is
  const std::string_view section = key.section();
  return section != "run" && section != "snapshot" && section != "verify" && section != "worker";
}

std::string JobIdentityText(const Job& job) { return WriteSections(job, /*identity_only=*/true); }

JobId MakeJobId(const Job& job, uint64_t run_salt) {
  const uint64_t hash = Hash64(JobIdentityText(job), run_salt);
  return JobId(hash == 0 ? 1 : hash);  // 0 on the wire means "does not know the job yet"
}

}  // namespace pando
