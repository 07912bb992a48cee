// What the ranks of a program hold of one tensor, and how it is put together from that.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

enum class Join {
  kReplicate,    // each rank has it whole
  kConcatenate,  // each has a slice of one axis
  kSum           // each has a term of it
};

struct JoinStep {
  Join join = Join::kReplicate;
  int axis = 0;
  int parts = 1;     // of the axis, each cut by itself: 3 for q, k and v in one matrix
  size_t count = 0;  // pieces that become one
  friend bool operator==(const JoinStep&, const JoinStep&) = default;
};

// Neighbouring ranks first, then the groups they make: a model cut for two ranks and run on two batches has two steps.
using Assembly = std::vector<JoinStep>;

// In the order in which they are believed where the values do not tell. `nested`: in two steps.
std::vector<Assembly> possible_assemblies(std::span<const Shape> shards, bool nested);
std::optional<Shape> assembled_shape(const Assembly& assembly, std::span<const Shape> shards);  // nothing: does not fit
// `representative`: the piece that stands for replicas.
Tensor assembled(const Assembly& assembly, std::vector<Tensor> shards, size_t representative = 0);

bool is_replicated(const Assembly& assembly);
bool has_sum(const Assembly& assembly);
std::string words_of(const Assembly& assembly);  // "concatenated along axis 1"
std::string text_of(const Assembly& assembly);   // as a map file says it: "concatenate 1"
// Error{kBadInput}. `ranks`: how many there are, for a step that does not say its count.
Assembly assembly_from_text(std::string_view text, size_t ranks);

}  // namespace lockstep
