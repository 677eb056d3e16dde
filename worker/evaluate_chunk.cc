#include "worker/evaluate_chunk.h"

#include "worker/batch_source.h"

namespace pando {

Result<BatchScore> EvaluateChunk(Network& network, const DataSet& data, TestSamples samples,
                                 const float* parameters) {
  Result<Batch> batch = ReadTestSamples(data, samples.first, samples.last);
  if (!batch.ok()) return batch.status();
  network.SetBatch(*batch, {}, Mode::kEvaluate);
  for (uint32_t layer = 0; layer < network.layer_count(); ++layer) {
    network.Forward(layer, parameters);
  }
  return network.Score();
}

}  // namespace pando
