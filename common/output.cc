#include "common/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <tuple>

namespace pando {
namespace {

std::atomic<int> said_error = 0;     // errno of the first lost message
std::atomic<int> printed_error = 0;  // errno of the first lost part of a result
std::atomic<bool> has_told_lost = false;

void Note(int error, std::atomic<int>& first_error) {
  int none = 0;
  first_error.compare_exchange_strong(none, error == 0 ? EIO : error);
}

void Write(std::string_view text, std::FILE* file, std::atomic<int>& first_error) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), file) != text.size()) Note(errno, first_error);
}

}  // namespace

void OpenStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // open() returns the lowest free descriptor, which is this one.
    if (fcntl(fd, F_GETFD) < 0)
      std::ignore = open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  }
}

void NoteLostMessage(int error) { Note(error, said_error); }
void SayText(std::string_view text) { Write(text, stderr, said_error); }

void PrintText(std::string_view text) { Write(text, stdout, printed_error); }

std::string TakeLostMessages() {
  if (said_error == 0 || has_told_lost.exchange(true)) return "";
  return std::strerror(said_error);
}

Status FinishOutput() {
  if (std::fflush(stdout) != 0) Note(errno, printed_error);
  if (printed_error == 0 || printed_error == EPIPE) return Status();  // `| head` has read enough
  return Internal(fmt::format("the output could not be written: {}", std::strerror(printed_error)));
}

}  // namespace pando
