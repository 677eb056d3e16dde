#include "run/output/tensorboard_file.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "common/system.h"
#include "job/job_file.h"
#include "job/job_key.h"

namespace pando {
namespace {

// ---- protocol buffers (https://protobuf.dev/programming-guides/encoding) ------------------------

enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void PutVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) *out += static_cast<char>(value | 0x80);
  *out += static_cast<char>(value);
}

template <class Number>
std::string Raw(Number number) {  // little-endian, like all machines that Pando runs on
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

std::string Tag(int field, WireType type) {
  std::string out;
  PutVarint(static_cast<uint64_t>(field) << 3 | type, &out);
  return out;
}

std::string Count(int field, uint64_t value) {
  std::string out = Tag(field, kVarint);
  PutVarint(value, &out);
  return out;
}

std::string Double(int field, double value) { return Tag(field, kFixed64) + Raw(value); }

std::string Float(int field, double value) {
  return Tag(field, kFixed32) + Raw(static_cast<float>(value));
}

std::string Bytes(int field, std::string_view value) {
  std::string out = Tag(field, kBytes);
  PutVarint(value.size(), &out);
  return out.append(value);
}

// ---- TFRecord -----------------------------------------------------------------------------------

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  constexpr uint32_t kCastagnoli = 0x82f63b78;  // reflected
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ kCastagnoli : crc >> 1;
    table[byte] = crc;
  }
  return table;
}

std::string Record(const std::string& event) {
  const std::string size = Raw(uint64_t{event.size()});
  return size + Raw(MaskedCrc32c(size)) + event + Raw(MaskedCrc32c(event));
}

// ---- events -------------------------------------------------------------------------------------

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Makes a Summary.Value with the metadata that the plugin hparams reads.
std::string HparamsValue(std::string_view tag, const std::string& data) {
  const std::string plugin = Bytes(1, "hparams") + Bytes(2, data);
  return Bytes(1, tag) + Bytes(9, Bytes(1, plugin));
}

// Makes a google.protobuf.Value.
std::string HparamText(const JobValue& value) {
  if (const auto* count = std::get_if<uint64_t>(&value))
    return Double(2, static_cast<double>(*count));
  if (const auto* real = std::get_if<double>(&value)) return Double(2, *real);
  if (const auto* flag = std::get_if<bool>(&value)) return Count(4, *flag ? 1 : 0);
  if (const auto* text = std::get_if<std::string>(&value)) return Bytes(3, *text);
  return Bytes(3, JobValueToml(value));
}

// Makes the record of the values that decide the weights.
std::string SessionStart(const Job& job) {
  std::string info;
  for (const JobKey& key : JobKeys()) {
    if (IsIdentityKey(key))
      info += Bytes(1, Bytes(1, key.name) + Bytes(2, HparamText(key.get(job))));
  }
  info += Bytes(4, job.name) + Double(5, WallSeconds());
  return HparamsValue("_hparams_/session_start_info", Bytes(3, info));
}

std::string SessionEnd(bool has_completed) {
  const std::string info = Count(1, has_completed ? 1 : 2) + Double(2, WallSeconds());
  return HparamsValue("_hparams_/session_end_info", Bytes(4, info));
}

std::string NewPath(const RunFolder& folder) {
  for (auto time = static_cast<uint64_t>(WallSeconds());; ++time) {
    const std::string path =
        fmt::format("{}/{}{:010}.{}", folder.path(), kTensorBoardPrefix, time, HostName());
    if (std::error_code error; !std::filesystem::exists(path, error)) return path;
  }
}

}  // namespace

uint32_t MaskedCrc32c(std::string_view bytes) {
  static constexpr auto kTable = MakeCrcTable();
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return std::rotr(~crc, 15) + 0xa282ead8;
}

Result<TensorBoardFile> TensorBoardFile::Create(const RunFolder& folder, const Job& job) {
  PANDO_ASSIGN_OR_RETURN(RowFile file, RowFile::Create(NewPath(folder)));
  return TensorBoardFile(std::move(file), job);
}

TensorBoardFile::TensorBoardFile(RowFile file, const Job& job)
    : rows_(std::move(file)), columns_(EvaluationColumns::For(job)) {
  WriteEvent(0, Bytes(3, "brain.Event:2"));
  WriteEvent(0, Bytes(5, Bytes(1, SessionStart(job))));
}

void TensorBoardFile::Append(const MetricsRow& row) {
  later_.reset();
  if (written_at_ >= 0 && row.elapsed_seconds - written_at_ < kIntervalSeconds) {
    later_ = row;
  } else {
    Write(row);
  }
}

void TensorBoardFile::Write(const MetricsRow& row) {
  written_at_ = row.elapsed_seconds;
  Scalars scalars{{"train/loss", row.loss},
                  {"train/accuracy", row.accuracy},
                  {"train/lr", row.lr},
                  {"train/epoch", row.epoch},
                  {"speed/images_per_second", row.images_per_second},
                  {"speed/step_ms", row.step_ms},
                  {"speed/data_stall_ms", row.data_stall_ms},
                  {"speed/exposed_sync_ms", row.exposed_sync_ms}};
  if (row.gpu_memory_mb > 0) {
    scalars.emplace_back("gpu/memory_mb", row.gpu_memory_mb);
    scalars.emplace_back("gpu/percent", row.gpu_percent);
  }
  for (size_t i = 0; i < std::min(row.logged.size(), columns_.logged.size()); ++i)
    scalars.emplace_back("train/" + columns_.logged[i], row.logged[i]);
  Write(row.step, scalars);
}

void TensorBoardFile::Append(const EvaluationRow& row) {
  const std::string& on = columns_.evaluated_on;
  Scalars scalars{{on + "/accuracy", row.test_accuracy}, {on + "/loss", row.test_loss}};
  for (size_t i = 0; i < std::min(row.means.size(), columns_.means.size()); ++i)
    scalars.emplace_back(on + "/" + columns_.means[i].name, row.means[i]);
  Write(row.step, scalars);
}

void TensorBoardFile::End(bool has_completed) {
  if (later_) Write(*later_);
  later_.reset();
  WriteEvent(0, Bytes(5, Bytes(1, SessionEnd(has_completed))));
}

void TensorBoardFile::Write(uint64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    if (!std::isnan(value)) summary += Bytes(1, Bytes(1, tag) + Float(2, value));
  }
  WriteEvent(step, Bytes(5, summary));
}

void TensorBoardFile::WriteEvent(uint64_t step, const std::string& body) {
  const std::string at = step > 0 ? Count(2, step) : "";  // zeros are left out
  std::ignore = rows_.Append(Record(Double(1, WallSeconds()) + at + body));
}

}  // namespace pando
