#include "node/shared_memory.h"

#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace pando {
namespace {

Status StartSharing(Transport& transport, bool is_required) {
  Result<std::shared_ptr<SharedPool>> pool = SharedPool::Create();
  if (!pool.ok()) return pool.status();
  return transport.ShareMemory(
      {.pool = *std::move(pool),
       .is_required = is_required,
       .on_note = [](const std::string& text) { spdlog::info("{}", text); }});
}

}  // namespace

Result<BufferSource> ShareMemory(const Job& job, Transport& transport) {
  const bool is_required = job.transport == "shm";
  if (job.transport != "auto" && !is_required) return BufferSource();
  if (transport.shared_pool() == nullptr) {
    const Status status = StartSharing(transport, is_required);
    if (!status.ok() && is_required) {
      return Unavailable(
          fmt::format("run.transport is shm: {}; use --transport auto", status.message()));
    }
    if (!status.ok()) spdlog::info("{}; payloads go as bytes", status.message());
    if (!status.ok()) return BufferSource();
  }
  return transport.shared_pool()->source();
}

}  // namespace pando
