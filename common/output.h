// A program's messages for people (standard error) and its result (standard output). A full disk, a
// closed terminal or `| head` ends no run: messages are best effort, and a result that was not
// written is an error at the end of the command. Threads: any.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "common/status.h"

namespace pando {

// Opens /dev/null for each closed descriptor of 0 to 2. REQUIRES: no file was opened before.
void OpenStandardStreams();

void SayText(std::string_view text);
// Writes a message for people.
template <class... Args>
void Say(fmt::format_string<Args...> format, Args&&... args) {
  SayText(fmt::format(format, std::forward<Args>(args)...));
}

void PrintText(std::string_view text);
// Prints a part of the command's result.
template <class... Args>
void Print(fmt::format_string<Args...> format, Args&&... args) {
  PrintText(fmt::format(format, std::forward<Args>(args)...));
}

// Notes a message that was lost elsewhere; `error` is the errno.
void NoteLostMessage(int error);
// Returns once why a message was lost; empty if none was.
std::string TakeLostMessages();

// Returns an error if a part of the result could not be written. A reader that closed the pipe, as
// `head` does, is no error.
Status FinishOutput();

}  // namespace pando
