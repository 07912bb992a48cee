// A run as compare sees it: records in execution order whose values are loaded only when asked for. Where the values
// come from (a run on disk, a folder of files, a test) is the loader's business.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "capture/record.h"
#include "tensor/statistics.h"
#include "tensor/tap.h"

namespace lockstep {

class Run;
class WeightSource;

struct RecordedTensor {
  TensorKey key;
  Role role = Role::kOutput;
  DType dtype = DType::kF32;
  Shape shape;
  std::string where;     // "file:line function", empty when unknown
  std::string checksum;  // of the bytes; equal checksums of equal dtype and shape need no reading
  std::optional<Statistics> stats;
  std::function<Tensor()> load;  // empty: only statistics were kept
  bool substituted = false;      // the program went on with the reference's value
};

struct RunView {
  std::string id;
  Json header;  // run.json
  std::vector<RecordedTensor> records;
  std::shared_ptr<const WeightSource> weights{};  // that the run kept of its modules; null: not all of them
};

// A program that names its tensors itself, or was recorded without them.
bool has_no_inputs(const RunView& run);

RunView view_of(std::shared_ptr<const Run> run);  // the view keeps the run alive

}  // namespace lockstep
