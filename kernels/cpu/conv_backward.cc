// Convolution backward on the CPU, by the non-zero gradients alone.
//
// After a 2x2 max pool three of four gradients of the convolution's output are zero, after relu and
// dropout2d more still (MNIST CNN, conv2: about one in twelve is left). So each sample's gradients
// are first gathered into lists of the non-zero ones, and both products then walk lists:
//   weights: per output channel, sum over its list of  g · (the pixels under the kernel)
//   data:    per output pixel (cell), sum over its list of  g · (the channel's kernel)
// The pixels under a kernel row are one run of floats, so either walk keeps a block of the result in
// registers and does one multiply-add per load. A dense gradient (no pool) costs no more this way.
// Every list is in order (sample, cell, channel), hence so is every sum.
#include <array>
#include <utility>

#include "kernels/cpu/conv_geometry.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/scratch.h"

namespace pando::cpu {
namespace {

struct Entry {
  float gradient;
  int32_t offset;  // floats from the start of the images (weights) or of the kernels (data)
};

constexpr size_t kSumsMax = kRegisters - 2;  // vectors of sums in registers: one broadcast, one load
constexpr size_t kWeightVecsMax = 7;         // of one kernel row, so that two rows fit in registers
constexpr size_t kDataVecsMax = 8;
constexpr size_t kListedGradients = 1536;  // per block of samples: the lists stay in the first cache

struct BackwardScratch {
  float* kernels;   // [out][kernel rows][kernel_row]: weights with zeros at both ends of a row
  float* dkernels;  // [out][kernel rows][dkernel_row]: gradient sums
  float* dbias;     // [out_channels_padded]
  float* images;    // [samples of a block], padded; unused without padding
  float* dimage;    // one padded image
  Entry* lists;     // [out][list_capacity]
  size_t* list_sizes;  // [out]
  float* cell_gradients;  // [out_channels_padded] of one cell
  int32_t* cell_windows;  // the same: which pixel of the pool window
  Entry* cell_entries;    // [2][out]
};

struct BackwardGeometry : ConvGeometry {
  explicit BackwardGeometry(const Conv2dSpec& spec)
      : ConvGeometry(spec),
        reach((pool - 1) * stride * channels),
        region_rows((pool - 1) * stride + kernel),
        region_vecs(RoundUpToLanes(reach + run) / kLanes),
        kernel_row(reach + region_vecs * kLanes),
        dkernel_row(RoundUpToLanes(run)),
        block_samples(std::max<size_t>(1, kListedGradients / (cells * out_channels))),
        list_capacity(block_samples * cells + 1) {}

  size_t reach;        // floats from the first to the last pixel of a pool window's row
  size_t region_rows;  // rows of pixels that one cell's gradient reaches
  size_t region_vecs;  // vectors of a row of that region
  size_t kernel_row;   // [reach zeros][run][zeros]: read at reach − (shift within the window)
  size_t dkernel_row;
  size_t block_samples;
  size_t list_capacity;  // one more than can be: the list's writer writes before it decides
};

BackwardScratch Carve(const BackwardGeometry& g, ScratchCarver& carver) {
  BackwardScratch s{};
  s.kernels = carver.Take<float>(g.out_channels * g.kernel * g.kernel_row);
  s.dkernels = carver.Take<float>(g.out_channels * g.kernel * g.dkernel_row);
  s.dbias = carver.Take<float>(g.out_channels_padded);
  s.images = carver.Take<float>(g.padding == 0 ? 0 : g.block_samples * g.image + kSlackFloats);
  s.dimage = carver.Take<float>(g.image + kSlackFloats);
  s.lists = carver.Take<Entry>(g.out_channels * g.list_capacity);
  s.list_sizes = carver.Take<size_t>(g.out_channels);
  s.cell_gradients = carver.Take<float>(g.out_channels_padded);
  s.cell_windows = carver.Take<int32_t>(g.out_channels_padded);
  s.cell_entries = carver.Take<Entry>(2 * (g.out_channels + 1));
  return s;
}

// ------------------------------------------------------------------------------------- layouts

void PackKernels(const BackwardGeometry& g, const float* weight, float* kernels) {
  std::fill_n(kernels, g.out_channels * g.kernel * g.kernel_row, 0.0f);
  for (size_t o = 0; o < g.out_channels; ++o) {
    for (size_t c = 0; c < g.channels; ++c) {
      for (size_t ky = 0; ky < g.kernel; ++ky) {
        float* row = kernels + (o * g.kernel + ky) * g.kernel_row + g.reach;
        for (size_t kx = 0; kx < g.kernel; ++kx) row[kx * g.channels + c] = *weight++;
      }
    }
  }
}

void UnpackKernelGradients(const BackwardGeometry& g, const float* dkernels, float* dweight) {
  for (size_t o = 0; o < g.out_channels; ++o) {
    for (size_t c = 0; c < g.channels; ++c) {
      for (size_t ky = 0; ky < g.kernel; ++ky) {
        const float* row = dkernels + (o * g.kernel + ky) * g.dkernel_row;
        for (size_t kx = 0; kx < g.kernel; ++kx) *dweight++ = row[kx * g.channels + c];
      }
    }
  }
}

// ------------------------------------------------------------------------ sums over lists

// sums[rows][vecs] += Σ gradient · pixels, in list order.
struct WeightTask {
  const Entry* list;
  size_t list_size;
  const float* images;
  size_t image_row;
  float* sums;
  size_t sum_row;
};

template <size_t kRows, size_t kVecs>
void AddWeightRows(const WeightTask& t) {
  Vec sums[kRows][kVecs];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVecs; ++v) sums[r][v] = Load(t.sums + r * t.sum_row + v * kLanes);
  }
  for (size_t i = 0; i < t.list_size; ++i) {
    const Vec gradient = Broadcast(t.list[i].gradient);
    const float* pixels = t.images + t.list[i].offset;
    for (size_t r = 0; r < kRows; ++r, pixels += t.image_row) {
      for (size_t v = 0; v < kVecs; ++v) sums[r][v] += gradient * Load(pixels + v * kLanes);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVecs; ++v) Store(t.sums + r * t.sum_row + v * kLanes, sums[r][v]);
  }
}

constexpr size_t kWeightRowsMax = 7;
constexpr size_t WeightRowsMax(size_t vecs) { return std::min(kWeightRowsMax, kSumsMax / vecs); }

using WeightFunction = void (*)(const WeightTask&);

template <size_t kVecs, size_t... kIndex>
constexpr auto WeightColumn(std::index_sequence<kIndex...>) {
  return std::array<WeightFunction, kWeightRowsMax>{AddWeightRows<kIndex + 1, kVecs>...};
}

template <size_t... kIndex>
constexpr auto WeightTable(std::index_sequence<kIndex...>) {
  return std::array{
      WeightColumn<kIndex + 1>(std::make_index_sequence<WeightRowsMax(kIndex + 1)>())...};
}

constexpr auto kAddWeightRows = WeightTable(std::make_index_sequence<kWeightVecsMax>());

// All rows of one channel's kernel.
void AddKernelGradient(const BackwardGeometry& g, WeightTask task) {
  const float* images = task.images;
  float* sums = task.sums;
  ForEvenPieces(g.dkernel_row / kLanes, kWeightVecsMax, [&](size_t vec, size_t vecs) {
    ForEvenPieces(g.kernel, WeightRowsMax(vecs), [&](size_t row, size_t rows) {
      task.images = images + row * g.row + vec * kLanes;
      task.sums = sums + row * g.dkernel_row + vec * kLanes;
      kAddWeightRows[vecs - 1][rows - 1](task);
    });
  });
}

// out[vecs] += Σ gradient · kernel row, in list order.
template <size_t kVecs>
void AddDataRow(const Entry* first, const Entry* last, const float* kernels, float* out) {
  Vec sums[kVecs] = {};
  for (; first != last; ++first) {
    const Vec gradient = Broadcast(first->gradient);
    const float* kernel = kernels + first->offset;
    for (size_t v = 0; v < kVecs; ++v) sums[v] += gradient * Load(kernel + v * kLanes);
  }
  for (size_t v = 0; v < kVecs; ++v) Store(out + v * kLanes, Load(out + v * kLanes) + sums[v]);
}

using DataFunction = void (*)(const Entry*, const Entry*, const float*, float*);

template <size_t... kIndex>
constexpr auto DataTable(std::index_sequence<kIndex...>) {
  return std::array<DataFunction, kDataVecsMax>{AddDataRow<kIndex + 1>...};
}

constexpr auto kAddDataRow = DataTable(std::make_index_sequence<kDataVecsMax>());

// -------------------------------------------------------------------------------- one sample

struct Sample {
  size_t index_in_block;
  const float* dy;  // [cells, out], and so the next two
  const float* y;
  const int32_t* argmax;       // null without pool
  const float* channel_scale;  // [out] or null
};

class BackwardPass {
 public:
  BackwardPass(const BackwardGeometry& g, const BackwardScratch& s, bool relu, bool wants_data)
      : g_(g), s_(s), relu_(relu), wants_data_(wants_data) {}

  // Appends the sample's gradients to the lists; where wanted, computes its data gradient.
  void AddSample(const Sample& sample) {
    if (wants_data_) std::fill_n(s_.dimage, g_.image, 0.0f);
    for (size_t y = 0; y < g_.out_height; ++y) {
      for (size_t x = 0; x < g_.out_width; ++x) AddCell(sample, y, x);
    }
  }

  void SumLists(const float* images) {
    for (size_t o = 0; o < g_.out_channels; ++o) {
      AddKernelGradient(g_, {.list = s_.lists + o * g_.list_capacity,
                             .list_size = s_.list_sizes[o],
                             .images = images,
                             .image_row = g_.row,
                             .sums = s_.dkernels + o * g_.kernel * g_.dkernel_row,
                             .sum_row = g_.dkernel_row});
      s_.list_sizes[o] = 0;
    }
  }

 private:
  void AddCell(const Sample& sample, size_t y, size_t x) {
    const size_t cell = y * g_.out_width + x;
    const size_t corner = g_.CellOffset(y, x);
    MaskCell(sample, cell);
    AppendToLists(sample.index_in_block * g_.image + corner);
    if (wants_data_) AddCellToData(s_.dimage + corner);
  }

  // The gradient of the convolution's output under this cell, of all channels: relu and dropout2d
  // undone. Lanes past the last channel hold what lies there; nobody reads them.
  void MaskCell(const Sample& sample, size_t cell) {
    const size_t first = cell * g_.out_channels;
    for (size_t o = 0; o < g_.out_channels_padded; o += kLanes) {
      Vec gradient = Load(sample.dy + first + o);
      if (relu_) gradient = Load(sample.y + first + o) > 0.0f ? gradient : Vec{};
      if (sample.channel_scale != nullptr) gradient *= Load(sample.channel_scale + o);
      Store(s_.cell_gradients + o, gradient);
      Store(s_.dbias + o, Load(s_.dbias + o) + gradient);
      if (sample.argmax != nullptr) Store(s_.cell_windows + o, Load(sample.argmax + first + o));
    }
  }

  void AppendToLists(size_t corner) {
    const size_t down = g_.stride * g_.row, right = g_.stride * g_.channels;
    const size_t window[4] = {0, right, down, down + right};
    for (size_t o = 0; o < g_.out_channels; ++o) {
      const float gradient = s_.cell_gradients[o];
      const size_t offset = corner + window[s_.cell_windows[o]];
      size_t& size = s_.list_sizes[o];
      s_.lists[o * g_.list_capacity + size] = {gradient, static_cast<int32_t>(offset)};
      size += gradient != 0.0f;  // written before it is decided: no branch to mispredict
    }
  }

  // Adds the cell's gradients to the region of pixels that its pool window reaches.
  void AddCellToData(float* region) {
    const std::array<size_t, 2> sizes = SplitByWindowRow();
    const Entry* const upper = s_.cell_entries;
    const Entry* const lower = upper + sizes[0];
    const Entry* const end = lower + sizes[1];
    const size_t lower_first_row = g_.region_rows - g_.kernel;
    for (size_t r = 0; r < g_.region_rows; ++r) {
      const Entry* const first = r < g_.kernel ? upper : lower;
      const Entry* const last = r < lower_first_row ? lower : end;
      if (first == last) continue;
      const float* kernels = s_.kernels + r * g_.kernel_row;
      float* row = region + r * g_.row;
      ForEvenPieces(g_.region_vecs, kDataVecsMax, [&](size_t vec, size_t vecs) {
        kAddDataRow[vecs - 1](first, last, kernels + vec * kLanes, row + vec * kLanes);
      });
    }
  }

  // The cell's non-zero gradients, those from the window's upper row first. An entry's offset leads
  // to the kernel row that meets row 0 of the region (for the lower: that would meet it).
  std::array<size_t, 2> SplitByWindowRow() {
    Entry* const upper = s_.cell_entries;
    Entry* const lower = upper + g_.out_channels + 1;
    size_t upper_size = 0, lower_size = 0;
    for (size_t o = 0; o < g_.out_channels; ++o) {
      const float gradient = s_.cell_gradients[o];
      const size_t right = s_.cell_windows[o] % 2, down = s_.cell_windows[o] / 2;
      const Entry entry{gradient, static_cast<int32_t>(o * g_.kernel * g_.kernel_row + g_.reach -
                                                       right * g_.stride * g_.channels -
                                                       down * g_.stride * g_.kernel_row)};
      upper[upper_size] = entry;
      lower[lower_size] = entry;
      upper_size += (gradient != 0.0f) & (down == 0);
      lower_size += (gradient != 0.0f) & (down == 1);
    }
    std::copy_n(lower, lower_size, upper + upper_size);
    return {upper_size, lower_size};
  }

  const BackwardGeometry& g_;
  const BackwardScratch& s_;
  bool relu_;
  bool wants_data_;
};

void ClearSums(const BackwardGeometry& g, const BackwardScratch& s) {
  std::fill_n(s.dkernels, g.out_channels * g.kernel * g.dkernel_row, 0.0f);
  std::fill_n(s.dbias, g.out_channels_padded, 0.0f);
  std::fill_n(s.list_sizes, g.out_channels, size_t{0});
  std::fill_n(s.cell_windows, g.out_channels_padded, 0);
}

Sample SampleAt(const BackwardGeometry& g, const Conv2dBackwardArgs& args, size_t sample) {
  const size_t first = sample * g.cells * g.out_channels;
  const float* scale = args.channel_scale;
  return {.index_in_block = sample % g.block_samples,
          .dy = args.dy + first,
          .y = args.y + first,
          .argmax = g.pool == 2 ? args.argmax + first : nullptr,
          .channel_scale = scale == nullptr ? nullptr : scale + sample * g.out_channels};
}

}  // namespace

void Conv2dBackward(const Conv2dSpec& spec, const Conv2dBackwardArgs& args,
                    std::span<std::byte> scratch) {
  const BackwardGeometry g(spec);
  ScratchCarver carver(scratch);
  const BackwardScratch s = Carve(g, carver);
  if (args.dx != nullptr) PackKernels(g, args.weight, s.kernels);
  ClearSums(g, s);

  BackwardPass pass(g, s, spec.relu, args.dx != nullptr);
  for (size_t first = 0; first < args.sample_count; first += g.block_samples) {
    const size_t last = std::min<size_t>(first + g.block_samples, args.sample_count);
    for (size_t sample = first; sample < last; ++sample) {
      const float* x = args.x + sample * g.unpadded_image;
      if (g.padding > 0) PadImage(g, x, s.images + (sample - first) * g.image);
      pass.AddSample(SampleAt(g, args, sample));
      if (args.dx != nullptr) UnpadImage(g, s.dimage, args.dx + sample * g.unpadded_image);
    }
    pass.SumLists(g.padding > 0 ? s.images : args.x + first * g.unpadded_image);
  }
  UnpackKernelGradients(g, s.dkernels, args.dweight);
  std::copy_n(s.dbias, g.out_channels, args.dbias);
}

size_t Conv2dBackwardScratchBytes(const Conv2dSpec& spec) {
  ScratchCarver counter;
  Carve(BackwardGeometry(spec), counter);
  return counter.used_bytes();
}

}  // namespace pando::cpu
