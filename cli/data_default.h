// What data a job trains on when nobody said so.
#pragma once

#include <string>

#include "cli/job_file.h"

namespace pando {

// Without data.name and data.path: MNIST where data/mnist or ../shared/data/mnist holds it, else
// synthetic-digits. With a name alone: its folder in those places. Returns a notice for people, or
// nothing where all was given.
std::string ChooseData(JobDraft* draft);

}  // namespace pando
