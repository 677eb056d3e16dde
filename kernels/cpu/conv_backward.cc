// Convolution backward on the CPU, using only the non-zero gradients.
//
// After a 2x2 max pool three of four gradients of the convolution's output are zero; after relu and
// dropout2d even more (MNIST CNN, conv2: at least seven in eight are). So each sample's non-zero
// gradients are first gathered into lists, and both products then walk lists:
//   weights: per output channel, sum over its list of  g · (the pixels under the kernel)
//   data:    per output pixel (cell), sum over its list of  g · (the channel's kernel)
// The pixels under a kernel row are one run of floats, so each walk keeps a block of the result in
// registers and does one multiply-add per load. A dense gradient (no pool) costs no more in this
// way. Every list is in order (sample, cell, channel), and so is every sum.
#include <bit>

#include "kernels/cpu/conv_paths.h"
#include "kernels/scratch_carver.h"

namespace pando::cpu {
namespace {

struct Entry {
  float gradient;
  int32_t offset;  // floats from the start of the images (weights) or of the kernels (data)
};

// Returns x != 0 without the floating-point unit and its NaN rules (NaN counts as not zero).
bool IsNonZero(float x) { return std::bit_cast<uint32_t>(x) << 1 != 0; }

constexpr size_t kSumsMax = kRegisters - 2;  // vectors of sums; one broadcast and one load remain
constexpr size_t kWeightVecsMax = 7;         // of one kernel row, so that two rows fit in registers
constexpr size_t kDataVecsMax = 8;
constexpr size_t kBlockGradients =
    1536;  // per block of samples, so that its 12 KB of entries stay in the L1 cache

struct BackwardGeometry : ConvGeometry {
  // Floats from the first to the last pixel of a pool window's row.
  size_t reach = (pool - 1) * stride * channels;
  // Rows of pixels that one cell's gradient reaches, and vectors of such a row.
  size_t region_rows = (pool - 1) * stride + kernel;
  size_t region_vecs = RoundUpToLanes(reach + run) / kLanes;
  // A kernel row: [reach zeros][run][zeros]. Reads begin at reach − (shift within the window).
  size_t kernel_row = reach + region_vecs * kLanes;
  size_t dkernel_row = RoundUpToLanes(run);
  size_t block_samples = std::max<size_t>(1, kBlockGradients / (cells * out_channels));
  // One more than the maximum, because ListNonZero writes each entry before it decides to keep it.
  size_t list_capacity = block_samples * cells + 1;
};

struct Scratch {
  const BackwardGeometry& g;
  ScratchCarver carver = {};
  // [out][kernel rows][kernel_row]: weights with zeros at both ends of a row
  float* kernels = carver.Take<float>(g.out_channels * g.kernel * g.kernel_row);
  // [out][kernel rows][dkernel_row]: gradient sums
  float* dkernels = carver.Take<float>(g.out_channels * g.kernel * g.dkernel_row);
  float* dbias = carver.Take<float>(g.out_channels_padded);
  // [samples of a block], padded; unused without padding
  float* images =
      carver.Take<float>(g.padding == 0 ? 0 : g.block_samples * g.image + kSlackElements);
  float* dimage = carver.Take<float>(g.image + kSlackElements);  // one padded image
  // [samples of a block · cells][out_channels_padded], zeros included
  Entry* entries = carver.Take<Entry>(g.block_samples * g.cells * g.out_channels_padded);
  Entry* list = carver.Take<Entry>(g.list_capacity);  // the non-zero entries of one channel
  // First float of a kernel's run.
  int32_t* kernel_starts = carver.Take<int32_t>(g.out_channels_padded);
  // The current cell's entries. is_upper and is_lower are 1 if the entry's gradient is not zero and
  // is in this row of the pool's window, else 0.
  Entry* data_entries = carver.Take<Entry>(g.out_channels_padded);
  int32_t* is_upper = carver.Take<int32_t>(g.out_channels_padded);
  int32_t* is_lower = carver.Take<int32_t>(g.out_channels_padded);
  Entry* upper_list = carver.Take<Entry>(2 * (g.out_channels + 1));  // then those of the lower row
};

// Not inlined, because g++ 12 would make slower loops over the entries (MNIST's conv2: 5 %).
[[gnu::noinline]] Scratch MakeScratch(const BackwardGeometry& g, std::span<std::byte> memory) {
  return Scratch{g, ScratchCarver(memory)};
}

// Calls f(row of the kernels, float in the row) for each of PyTorch's weights, in order.
template <class F>
void ForEachWeight(const BackwardGeometry& g, F&& f) {
  for (size_t o = 0; o < g.out_channels; ++o) {
    for (size_t c = 0; c < g.channels; ++c) {
      for (size_t ky = 0; ky < g.kernel; ++ky) {
        for (size_t kx = 0; kx < g.kernel; ++kx) f(o * g.kernel + ky, kx * g.channels + c);
      }
    }
  }
}

void PackKernels(const BackwardGeometry& g, const float* weight, float* kernels) {
  std::fill_n(kernels, g.out_channels * g.kernel * g.kernel_row, 0.0f);
  ForEachWeight(
      g, [&](size_t row, size_t at) { kernels[row * g.kernel_row + g.reach + at] = *weight++; });
}

void UnpackKernelGradients(const BackwardGeometry& g, const float* dkernels, float* dweight) {
  ForEachWeight(g, [&](size_t row, size_t at) { *dweight++ = dkernels[row * g.dkernel_row + at]; });
}

// ------------------------------------------------------------------------ sums over lists

// sums[rows][vecs] += Σ gradient · pixels, in list order.
struct WeightTask {
  const Entry* list;
  const Entry* list_end;
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
  for (const Entry* entry = t.list; entry != t.list_end; ++entry) {
    const Vec gradient = Broadcast(entry->gradient);
    const float* pixels = t.images + entry->offset;
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

constexpr auto kAddWeightRows = MakeTable<kWeightVecsMax>([]<size_t kVec>() {
  return MakeTable<kWeightRowsMax>([]<size_t kRow>() -> WeightFunction {
    if constexpr (kRow < WeightRowsMax(kVec + 1)) return AddWeightRows<kRow + 1, kVec + 1>;
    return nullptr;
  });
});

// Adds the gradients of all rows of one channel's kernel.
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

// A cell's lists, and the region of pixels that they reach.
struct DataTask {
  const Entry* first;  // those of the pool window's upper row, ...
  const Entry* lower;  // ... then those of its lower row
  const Entry* last;
  const float* kernels;
  size_t kernel_rows;
  size_t kernel_row;
  float* region;
  size_t region_rows;
  size_t region_row;
};

// region[rows][vecs] += Σ gradient · kernel row, in list order.
template <size_t kVecs>
void AddDataRows(const DataTask& t) {
  for (size_t r = 0; r < t.region_rows; ++r) {
    const Entry* entry = r < t.kernel_rows ? t.first : t.lower;
    const Entry* const last = r < t.region_rows - t.kernel_rows ? t.lower : t.last;
    const float* const kernels = t.kernels + r * t.kernel_row;
    float* const out = t.region + r * t.region_row;
    Vec sums[kVecs];
    for (size_t v = 0; v < kVecs; ++v) sums[v] = Vec{};
    for (; entry != last; ++entry) {
      const Vec gradient = Broadcast(entry->gradient);
      const float* kernel = kernels + entry->offset;
      for (size_t v = 0; v < kVecs; ++v) sums[v] += gradient * Load(kernel + v * kLanes);
    }
    for (size_t v = 0; v < kVecs; ++v) Store(out + v * kLanes, Load(out + v * kLanes) + sums[v]);
  }
}

using DataFunction = void (*)(const DataTask&);

constexpr auto kAddDataRows =
    MakeTable<kDataVecsMax>([]<size_t kVec>() -> DataFunction { return AddDataRows<kVec + 1>; });

// -------------------------------------------------------------------------------- one sample

class BackwardPass {
 public:
  BackwardPass(const Scratch& s, const Conv2dBackwardArgs& args)
      : g_(s.g), s_(s), args_(args), wants_data_(args.dx != nullptr) {}

  // Makes the sample's entries of the block and, if needed, computes its data gradient.
  void AddSample(size_t sample, size_t index_in_block) {
    if (wants_data_) std::fill_n(s_.dimage, g_.image, 0.0f);
    const float* scale = args_.channel_scale;
    if (scale != nullptr) scale += sample * g_.out_channels;
    for (size_t y = 0; y < g_.out_height; ++y) {
      for (size_t x = 0; x < g_.out_width; ++x) {
        const size_t corner = g_.CellOffset(y, x), cell = y * g_.out_width + x;
        MakeEntries(sample * g_.cells + cell, scale, index_in_block * g_.image + corner,
                    s_.entries + (index_in_block * g_.cells + cell) * g_.out_channels_padded);
        if (wants_data_) AddCellToData(s_.dimage + corner);
      }
    }
  }

  // Adds the block's weight gradients, channel by channel.
  void SumBlock(size_t sample_count, const float* images) {
    for (size_t o = 0; o < g_.out_channels; ++o) {
      AddKernelGradient(g_, {.list = s_.list,
                             .list_end = ListNonZero(o, sample_count * g_.cells),
                             .images = images,
                             .image_row = g_.row,
                             .sums = s_.dkernels + o * g_.kernel * g_.dkernel_row,
                             .sum_row = g_.dkernel_row});
    }
  }

 private:
  // Lists the channel's non-zero entries in the block's first `cell_count` cells; returns the end.
  const Entry* ListNonZero(size_t channel, size_t cell_count) {
    const Entry* entry = s_.entries + channel;
    const size_t step = g_.out_channels_padded;
    Entry* end = s_.list;
    for (size_t i = 0; i < cell_count; ++i, entry += step) {
      const Entry copy = *entry;
      *end = copy;
      end += IsNonZero(copy.gradient);  // written before the decision: no branch to mispredict
    }
    return end;
  }

  // Makes the gradient of the convolution's output in this cell, through relu and dropout2d, for
  // all channels at once. Lanes past the last channel have undefined values, which are not read.
  // `scale` is the sample's, or null. `corner` is in the block's images.
  void MakeEntries(size_t cell, const float* scale, size_t corner, Entry* entries) {
    const auto right = static_cast<int32_t>(g_.stride * g_.channels);
    const auto down = static_cast<int32_t>(g_.stride * g_.row);
    const auto kernel_down = static_cast<int32_t>(g_.stride * g_.kernel_row);
    const size_t first = cell * g_.out_channels;
    const float* const dy = args_.dy + first;
    const float* const passed = g_.spec.relu ? args_.y + first : nullptr;
    const int32_t* const argmax = g_.pool == 2 ? args_.argmax + first : nullptr;
    for (size_t o = 0; o < g_.out_channels_padded; o += kLanes) {
      Vec gradient = Load(dy + o);
      if (passed != nullptr) gradient = Load(passed + o) > 0.0f ? gradient : Vec{};
      if (scale != nullptr) gradient *= Load(scale + o);
      Store(s_.dbias + o, Load(s_.dbias + o) + gradient);

      const IntVec where = argmax == nullptr ? IntVec{} : Load(argmax + o);
      const IntVec x = where & 1, y = (where >> 1) & 1;
      const auto bits = reinterpret_cast<IntVec>(gradient);
      StorePairs(entries + o, bits, x * right + y * down + static_cast<int32_t>(corner));
      if (!wants_data_) continue;
      const IntVec is_nonzero = (gradient != 0.0f) & 1;
      Store(s_.is_upper + o, is_nonzero & (1 - y));
      Store(s_.is_lower + o, is_nonzero & y);
      StorePairs(s_.data_entries + o, bits,
                 Load(s_.kernel_starts + o) - x * right - y * kernel_down);
    }
  }

  // Adds the cell's gradients to the region of pixels that its pool window reaches.
  void AddCellToData(float* region) {
    Entry* upper = s_.upper_list;
    Entry* const lower_list = s_.upper_list + g_.out_channels + 1;
    Entry* lower = lower_list;
    for (size_t o = 0; o < g_.out_channels; ++o) {
      *upper = *lower = s_.data_entries[o];
      upper += s_.is_upper[o];
      lower += s_.is_lower[o];
    }
    DataTask task{.first = s_.upper_list,
                  .lower = upper,
                  .last = std::copy(lower_list, lower, upper),
                  .kernels = s_.kernels,
                  .kernel_rows = g_.kernel,
                  .kernel_row = g_.kernel_row,
                  .region = region,
                  .region_rows = g_.region_rows,
                  .region_row = g_.row};
    if (task.first == task.last) return;
    ForEvenPieces(g_.region_vecs, kDataVecsMax, [&](size_t vec, size_t vecs) {
      task.kernels = s_.kernels + vec * kLanes;
      task.region = region + vec * kLanes;
      kAddDataRows[vecs - 1](task);
    });
  }

  const BackwardGeometry& g_;
  const Scratch& s_;
  const Conv2dBackwardArgs& args_;
  bool wants_data_;
};

void ClearSums(const Scratch& s) {
  const BackwardGeometry& g = s.g;
  for (size_t o = 0; o < g.out_channels_padded; ++o) {
    s.kernel_starts[o] = static_cast<int32_t>(o * g.kernel * g.kernel_row + g.reach);
  }
  std::fill_n(s.dkernels, g.out_channels * g.kernel * g.dkernel_row, 0.0f);
  std::fill_n(s.dbias, g.out_channels_padded, 0.0f);
}

}  // namespace

void SmallConvBackward(const Conv2dSpec& spec, const Conv2dBackwardArgs& args,
                       std::span<std::byte> scratch) {
  const BackwardGeometry g{{spec}};
  const Scratch s = MakeScratch(g, scratch);
  if (args.dx != nullptr) PackKernels(g, args.weight, s.kernels);
  ClearSums(s);

  BackwardPass pass(s, args);
  for (size_t first = 0; first < args.sample_count; first += g.block_samples) {
    const size_t last = std::min<size_t>(first + g.block_samples, args.sample_count);
    for (size_t sample = first; sample < last; ++sample) {
      const float* x = args.x + sample * g.unpadded_image;
      if (g.padding > 0) PadImage(g, x, s.images + (sample - first) * g.image);
      pass.AddSample(sample, sample - first);
      if (args.dx != nullptr) UnpadImage(g, s.dimage, args.dx + sample * g.unpadded_image);
    }
    pass.SumBlock(last - first, g.padding > 0 ? s.images : args.x + first * g.unpadded_image);
  }
  UnpackKernelGradients(g, s.dkernels, args.dweight);
  if (args.dbias != nullptr) std::copy_n(s.dbias, g.out_channels, args.dbias);
}

size_t SmallConvBackwardScratchBytes(const Conv2dSpec& spec) {
  return Scratch{{{spec}}}.carver.used_bytes();
}

}  // namespace pando::cpu
