// The data of a job that names none.
#pragma once

#include <string>

#include "job/job_file.h"

namespace pando {

// Without data.name and data.path: MNIST where data/mnist or ../shared/data/mnist holds it, else
// synthetic-digits. With a name alone: its folder in those places. Returns a notice for people, or
// nothing where all was given.
std::string ChooseData(JobDraft* draft);

}  // namespace pando
