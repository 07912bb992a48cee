// What the families share: rows to fit on, the items that could have made the tensor, vectors and constants by name.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "diagnose/case/family.h"

namespace lockstep {

inline constexpr int64_t kFitRows = 192;  // rows a fit looks at first

// The tensor as [rows, channels]: channels are axis 1 of pictures, else the last axis.
struct Rows {
  Values values;  // [rows, channels]
  int64_t channels() const { return values.last(); }
};
int channel_axis(const std::string& name, const Shape& shape);
Values channels_last(const Values& x, int axis);              // [rows, channels]
Values sampled(const Values& rows, int64_t most = kFitRows);  // evenly spread rows

// Of a batch, the item in which the two sides differ most; 0 when there is no batch.
int64_t worst_item(const Case& failing);
Values batch_item(const Values& x, int64_t item, int64_t batch);  // x itself when its first axis is no such batch

// Items of as many elements as the bad tensor, floats, each content once; nearest first.
std::vector<const Item*> equal_size_items(Case& failing, size_t most);
// Items that hold the module's input: the recorded one, or where none was recorded the nearest whose last axis fits.
std::vector<const Item*> input_items(Case& failing, int64_t last_axis);

// A vector over the channels with a name: parts of modulations, weights, embeddings.
struct NamedVector {
  std::string name;
  std::vector<float> r, c;  // each side's own
};
std::vector<NamedVector> vector_dictionary(Case& failing, int64_t channels);

// "1", "-1", "1/sqrt(128)", "1000": when the value is one of the constants models are made of; else empty.
std::string constant_name(double value, const Shape& shape, double tolerance);
std::string number(double value);
std::string ordinal(size_t i);  // "1st"

}  // namespace lockstep
