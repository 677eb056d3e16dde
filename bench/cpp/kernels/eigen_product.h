// The matrix product of a layer by Eigen, for comparison. Used by layers.cc alone: the product uses
// no Eigen.
#pragma once

#include <cstdint>

namespace pando::bench {

// [rows, inner] times [inner, columns], `count` times. A convolution is the product of its unfolded
// picture with its weights, once a sample; groups are separate products.
struct MatrixProduct {
  int64_t rows = 0;
  int64_t inner = 0;
  int64_t columns = 0;
  int64_t count = 0;  // 0: the layer is no product
};

// Processor time of this thread. The matrices are at hand: nothing is unfolded.
double EigenSeconds(const MatrixProduct& product);

}  // namespace pando::bench
