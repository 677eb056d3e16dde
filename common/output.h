// What a program says to people (standard error) and prints as its result (standard output). A full
// disk, a closed terminal or `| head` ends no run: what is said is best effort, and a result that
// was not written is an error at the end of the command. Threads: any.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "common/status.h"

namespace pando {

// Opens those of the descriptors 0 to 2 that are closed on /dev/null.  REQUIRES: called first.
void OpenStandardStreams();

void SayText(std::string_view text);
// A message for people.
template <class... Args>
void Say(fmt::format_string<Args...> format, Args&&... args) {
  SayText(fmt::format(format, std::forward<Args>(args)...));
}

void PrintText(std::string_view text);
// A part of the command's result.
template <class... Args>
void Print(fmt::format_string<Args...> format, Args&&... args) {
  PrintText(fmt::format(format, std::forward<Args>(args)...));
}

// The same by other means: `error`, an errno, lost it.
void NoteLostMessage(int error);
// Why something that was said is lost, once; empty: nothing is.
std::string TakeLostMessages();

// An error where not all of the result could be written. A reader that left, as `head` does, is
// none.
Status FinishOutput();

}  // namespace pando
