/* A worker whose computing is a wait: for measurements of the exchange alone, with many workers on
 * one machine.
 *
 *   timed_worker PARAMETERS COMPUTE_MS WORKERS STEPS [LAYERS [TRAIN]]
 *
 * PANDO_SCHEDULER is the run's scheduler. The model is that of `pando plan --parameters`: 64
 * layers, or LAYERS, of one tensor each, over which PARAMETERS and COMPUTE_MS are spread evenly.
 * With one layer nothing is exchanged while a synchronous step computes. Forward takes a third of
 * the time. All gradients are zeros. Each step has one micro-batch for each worker. TRAIN is one
 * more line of the job's section [train]. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "embed/pando_worker.h"

enum { kLayersMax = 64, kWaitMs = 100 };

static void wait_until(struct timespec* at, double ms) {
  at->tv_nsec += (long)(ms * 1e6);
  at->tv_sec += at->tv_nsec / 1000000000;
  at->tv_nsec %= 1000000000;
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, at, NULL);
}

/* A layer's computing begins when the layer before has ended, or when its parameters have come. */
static pando_result forward(pando_worker* worker, uint32_t layers, float** values, uint64_t* holds,
                            double ms) {
  struct timespec now;
  for (uint32_t i = 0; i < layers; ++i) {
    pando_result result;
    do result = pando_load_tensor(worker, i, values[i], &holds[i], kWaitMs);
    while (result == PANDO_AGAIN);
    if (result != PANDO_OK) return result;
    clock_gettime(CLOCK_MONOTONIC, &now);
    wait_until(&now, ms / 3 / layers);
  }
  return PANDO_OK;
}

static pando_result backward(pando_worker* worker, uint32_t layers, const float* zeros, double ms) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  for (uint32_t i = layers; i-- > 0;) {
    wait_until(&now, ms * 2 / 3 / layers);
    const pando_result result = pando_give_gradient(worker, i, zeros, 1);
    if (result != PANDO_OK) return result;
  }
  return PANDO_OK;
}

int main(int argc, char** argv) {
  const unsigned long asked = argc > 5 ? strtoul(argv[5], NULL, 10) : kLayersMax;
  const char* train = argc > 6 ? argv[6] : "";
  if (argc < 5 || argc > 7 || asked < 1 || asked > kLayersMax) {
    fprintf(stderr,
            "usage: timed_worker PARAMETERS COMPUTE_MS WORKERS STEPS [LAYERS [TRAIN]]\n"
            "with 1 to %d layers\n",
            kLayersMax);
    return 2;
  }
  const uint32_t layers = (uint32_t)asked;
  const uint64_t shape[] = {strtoul(argv[1], NULL, 10) / layers};
  const double compute_ms = strtod(argv[2], NULL);
  const unsigned long workers = strtoul(argv[3], NULL, 10);
  char job[256];
  snprintf(job, sizeof job,
           "[eval]\nevery_epochs = 0\n[train]\nsteps = %lu\nglobal_batch = %lu\n"
           "micro_batches = %lu\n%s\n",
           strtoul(argv[4], NULL, 10), workers, workers, train);
  float* zeros = calloc(shape[0], sizeof *zeros);
  float* values[kLayersMax];
  uint64_t holds[kLayersMax] = {0};
  char names[kLayersMax][16];
  pando_tensor tensors[kLayersMax];
  for (uint32_t i = 0; i < layers; ++i) {
    values[i] = calloc(shape[0], sizeof *values[i]);
    if (zeros == NULL || values[i] == NULL) {
      fprintf(stderr, "timed_worker: out of memory for %s parameters\n", argv[1]);
      return 6;
    }
    snprintf(names[i], sizeof names[i], "layer%u.weight", i);
    tensors[i] = (pando_tensor){.name = names[i],
                                .shape = shape,
                                .dimensions = 1,
                                .lr_factor = 1,
                                .weight_decay = -1,
                                .initial = values[i]};
  }
  const pando_options options = {.scheduler = getenv("PANDO_SCHEDULER"),
                                 .job = job,
                                 .model_name = "timed",
                                 .tensors = tensors,
                                 .tensor_count = layers,
                                 .train_samples = 1 << 20,
                                 .kind = "timed_worker",
                                 .wanted_rank = UINT32_MAX};
  pando_worker* worker;
  pando_result result = pando_open(&options, &worker);
  if (result == PANDO_OK) {
    do result = pando_join(worker, kWaitMs);
    while (result == PANDO_AGAIN);
  }
  while (result != PANDO_END && result != PANDO_ERROR) {
    pando_work work;
    result = pando_next_work(worker, &work, kWaitMs);
    if (result != PANDO_OK) continue;
    result = forward(worker, layers, values, holds, compute_ms);
    if (result != PANDO_OK) continue;
    result = backward(worker, layers, zeros, compute_ms);
    const double loss = 0;
    if (result == PANDO_OK) result = pando_finish_work(worker, &loss, 1);
  }
  if (result == PANDO_ERROR) fprintf(stderr, "timed_worker: %s\n", pando_last_error(worker));
  const int failed = result == PANDO_ERROR || pando_end(worker, NULL) != PANDO_COMPLETED;
  pando_close(worker);
  for (uint32_t i = 0; i < layers; ++i) free(values[i]);
  free(zeros);
  return failed;
}
