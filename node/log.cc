#include "node/log.h"

#include <fmt/core.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "common/exit_codes.h"
#include "common/output.h"

namespace pando {
namespace {

// Escapes %, which spdlog reads in patterns.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (char c : text) escaped += c == '%' ? std::string("%%") : std::string(1, c);
  return escaped;
}

std::shared_ptr<spdlog::sinks::sink> FileSink(const std::string& file) {
  try {
    return std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
  } catch (const spdlog::spdlog_ex&) {
    return nullptr;  // the terminal still gets all lines
  }
}

// Most likely the disk is full, and each message would fail.
void TellOnce(const std::string& what) {
  static std::atomic<bool> has_told = false;
  if (!has_told.exchange(true)) Say("the log lacks messages: {}\n", what);
}

// Replaces spdlog's sink for standard error; ignores lines that it cannot write.
class TerminalSink : public spdlog::sinks::base_sink<std::mutex> {
 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    SayText({text.data(), text.size()});
  }
  void flush_() override {}  // standard error has no buffer
};

}  // namespace

void SetUpLog(const LogOptions& options) {
  const std::string pattern = fmt::format("%H:%M:%S.%e %^%l%$ [{}] %v", Escaped(options.process));
  auto terminal = std::make_shared<TerminalSink>();
  // On a terminal each line first wipes the progress bar (run/run_recorder.h), which is then drawn
  // again below.
  terminal->set_pattern(isatty(STDERR_FILENO) ? "\r\033[K" + pattern : pattern);
  std::vector<std::shared_ptr<spdlog::sinks::sink>> sinks{terminal};
  if (auto file = options.file.empty() ? nullptr : FileSink(options.file)) {
    file->set_pattern(pattern);
    sinks.push_back(file);
  }
  auto logger = std::make_shared<spdlog::logger>("pando", sinks.begin(), sinks.end());
  logger->set_level(options.is_verbose ? spdlog::level::debug : spdlog::level::info);
  logger->flush_on(spdlog::level::debug);
  logger->set_error_handler(TellOnce);
  spdlog::set_default_logger(std::move(logger));
}

void LogEngine(const EngineNote& note) {
  spdlog::log(note.is_fallback ? spdlog::level::warn : spdlog::level::info, "{}", note.text);
}

void LogWarning(const std::string& text) { spdlog::warn("{}", text); }

int ExitWith(const Result<int>& exit_code) {
  if (exit_code.ok()) return *exit_code;
  spdlog::error("{}", exit_code.status().message());
  return ExitCodeFor(exit_code.status());
}

}  // namespace pando
