// These functions make version 0 of the parameters. It is a pure function of (seed, tensor), unless
// the job starts from given weights, so servers make their own shards and nothing travels. The
// functions use only + − × ÷ √ (P36), so there is a separate logarithm.
#pragma once

#include <cstdint>
#include <span>

#include "plan/job_plan.h"
#include "plan/shard_plan.h"
#include "plan/tensor_layout.h"

namespace pando {

// Fills floats [range.first, range.last) of the flat vector. REQUIRES: out.size() == range.size().
void InitRange(const TensorLayout& layout, uint64_t seed, ShardRange range, std::span<float> out);

// Does the same for a job, from the seed or from the weights with which the job starts.
void FillVersionZero(const JobPlan& plan, ShardRange range, std::span<float> out);

}  // namespace pando
