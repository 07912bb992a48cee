// y = conv(x, W) + b over a single frame, with everything that can be different about it: what all the questions about
// a convolution are asked of. Looked at in a few places and channels, the ones where the two sides differ most among
// them.
#pragma once
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "diagnose/search/edits.h"
#include "diagnose/search/fit.h"
#include "diagnose/search/functions.h"
#include "diagnose/search/number_formats.h"

namespace lockstep {

enum class Border { kZero, kReplicate, kReflect, kCircular };

// The weight's memory with its axes [out, in, time, rows, columns] in another order: laid down so and read as if it
// were not, or the other way round.
struct KernelMemory {
  std::array<int, 5> axes = {0, 1, 2, 3, 4};
  bool read = false;  // taken for memory in that order, which it is not
  bool plain() const { return axes == std::array<int, 5>{0, 1, 2, 3, 4}; }
  std::string words() const;
};

struct ConvParams {
  int64_t stride = 1, top = 1, left = 1, dilation = 1;
  unsigned taps = 0;  // of time, summed: one bit each; 0: the last
  bool taps_average = false;
  bool flip_rows = false, flip_columns = false, swap_rows_columns = false, transposed = false;
  Border border = Border::kZero;
  int bias = 1;  // how many times
  KernelMemory memory;
  int order = 0;                                              // of the input's channels, see channel_orders
  bool middle = false;                                        // the middle tap of the kernel alone
  Format kernel = nullptr, added = nullptr, input = nullptr;  // weight, bias, input in a poorer format
  const ElementFunction* before = nullptr;                    // of the input
  std::vector<int64_t> seams_rows, seams_columns;             // where one tile ends and the next begins
  std::string weight = {};                                    // empty: its own
};

struct ChannelOrder {
  std::string words;
  std::vector<int64_t> from;
};

// [.., channels, length] and a kernel of one axis as pictures of one row; others as they are.
Values as_picture(const Values& x, bool one_axis);

// What takes the place of the layer's own weight or bias.
struct ConvInstead {
  const Values* weight = nullptr;  // a whole one
  const Values* rows = nullptr;    // [channels, in * taps * rows * columns], of the channels that are looked at
  const std::vector<float>* bias = nullptr;
};

class ConvProbe {
 public:
  ConvProbe(Case& failing, const Item& input, const Values& weight);
  bool possible() const;

  struct Geometry {
    int64_t in = 1, out = 1, taps = 1, rows = 1, columns = 1;
    std::array<int64_t, 5> axes() const { return {out, in, taps, rows, columns}; }
  };
  const Geometry& geometry() const { return g_; }
  const std::vector<ChannelOrder>& channel_orders() const { return orders_; }
  const std::vector<float>& bias() const { return bias_; }
  const std::vector<int64_t>& channels() const { return channels_; }
  // Rows or columns behind which a wrong band of the kernel's width begins.
  std::vector<int64_t> seams(bool columns) const;

  // ||conv + b - y|| / ||y|| of one side; `quick`: in few of the places and channels.
  double measure(bool candidate, const ConvParams& p, const ConvInstead& instead = {}, bool quick = false) const;
  // What the reference's formula makes of the candidate's input, and what the candidate has: [channels, places], the
  // bias taken away from both.
  std::pair<Values, Values> products(const ConvParams& r) const;
  Values own_rows() const;  // of the weight, for channels()
  // What the kernel meets at places spread over the picture, each as [in, rows, columns] in a row, and what the
  // candidate has there in channels(), or in all.
  std::pair<Values, Values> patches(const ConvParams& r, int64_t most, bool all_channels = false) const;
  Values kernel_rows(const ConvParams& r) const;  // of channels(), as such a patch meets them
  int64_t patch_size() const { return g_.in * g_.rows * g_.columns; }
  int64_t places() const { return y_[1].dim(-2) * y_[1].dim(-1); }

 private:
  struct Place {
    int64_t y, x;
  };
  double sums(bool candidate, const ConvParams& p, const ConvInstead& instead, bool quick,
              std::vector<double>* into) const;
  void choose_places();
  std::vector<float> kernel(const ConvParams& p, const ConvInstead& instead,
                            const std::vector<int64_t>& channels) const;
  void patch(bool candidate, const ConvParams& p, const Place& at, std::vector<float>& into) const;
  int64_t source(int64_t at, int64_t tap, int64_t n, const ConvParams& p, bool columns) const;

  Values w_, x_[2], y_[2];
  Geometry g_;
  std::vector<float> bias_;
  std::vector<ChannelOrder> orders_;
  std::vector<Place> places_, few_places_;
  std::vector<int64_t> channels_, few_channels_;
  double tolerance_ = 0;
};

// Yours with a kernel that must be solved for, where nothing that is known explains it.
bool search_solved_kernel(Case& failing, const ConvProbe& probe, const ConvParams& r, const Report& report);

}  // namespace lockstep
