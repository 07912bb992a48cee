// Operations of one traced call as a program left them: values, and the steps that made them, in order of execution.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "tensor/tensor.h"
#include "tensor/totals.h"

namespace lockstep::zoom {

struct Place {
  std::string file, function;
  int line = 0;
  bool operator==(const Place&) const = default;
};

enum class Origin { kResult, kInput, kParameter, kConstant };

struct Value {
  Origin origin = Origin::kConstant;
  std::string name;                   // of a parameter or an input; empty otherwise
  Tensor tensor;                      // a view of operations.bin; undefined where the value was not kept
  Shape shape;                        // known even where the value is not
  int step = -1;                      // what made it; -1: it was there before
  int expanded = -1;                  // the last of the simple steps that a fused step stands for; -1: none
  bool is_complex = false;            // the last axis holds the two parts
  bool made_here = false;             // not recorded: computed while a fused step was taken apart
  std::optional<Totals> totals = {};  // as the program summed them up; absent: not done there
};

// An operand of a step: its parameter's name and the value.
struct Operand {
  std::string parameter;
  int value = -1;
};

struct Step {
  std::string kind;  // one word for all frameworks: add, linear, layer_norm, ...
  std::vector<Operand> operands;
  Json arguments = Json::object();  // what is no tensor
  std::vector<int> outputs;
  std::vector<Place> where;  // the program's frames, the innermost first
  bool in_place = false;
  bool simple = false;  // made by taking a fused step apart

  int operand(std::string_view parameter) const;  // -1: absent
};

struct Tape {
  std::string call, framework;
  int64_t step = -1, hit = 0;
  std::string pass;
  std::vector<Value> values;
  std::vector<Step> steps;
  std::vector<std::pair<std::string, int>> inputs, outputs;  // by path: "0", "hidden_states", "1.0"
  std::vector<std::string> fed;            // paths of inputs that were the reference's, not the program's own
  std::shared_ptr<const MappedFile> data;  // what the values are views of; null where they are not
  bool glue = false;                       // code between modules: each of these is one step, the outputs go by name
  bool truncated = false;                  // operations or values are missing
  bool uncompiled = false;                 // what torch.compile or MLX would have compiled was run as it was written
};

// All calls in a run's operations.jsonl. Error{kNotFound} where the run has none, Error{kCorrupt} where a line cannot
// be.
std::vector<Tape> read_tapes(const fs::path& run);

}  // namespace lockstep::zoom
