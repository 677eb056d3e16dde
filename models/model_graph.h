// The graph of a job's model on the job's data. Called by Model::Create, and by `pando model`,
// which shows models without computing them.
#pragma once

#include "common/status.h"
#include "models/graph.h"
#include "plan/job.h"

namespace pando {

// `data`: the shape of the data set's samples. The graph's input has its height and width. If the
// model is for pictures of three channels and the data have one, it has three (ImportBatch repeats
// the channel).
// kInvalidArgument if the model is unknown (names the nearest), its file is invalid (names the
// line), or it does not fit the data (names the layer and both shapes).
Result<Graph> BuildModelGraph(const Job& job, SampleShape data, uint32_t class_count);

}  // namespace pando
