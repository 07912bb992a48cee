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

// What the ranks of a program of several processes hold of one tensor.
struct RankShards {
  std::vector<int> ranks;
  std::vector<std::function<Tensor()>> load;  // one a rank, in their order
  std::string words{};                        // "concatenated along axis 1"
  bool is_whole = false;                      // each rank has all of it
  bool is_sum = false;                        // no rank has it: it is the sum of theirs
  bool differ = false;                        // each has all of it, and they do not agree
  size_t shown = 0;                           // whose is compared, where they differ
};

struct RecordedTensor {
  TensorKey key;
  Role role = Role::kOutput;
  DType dtype = DType::kF32;
  Shape shape;
  std::string where;     // "file:line function", empty when unknown
  std::string checksum;  // of the bytes; equal checksums of equal dtype and shape need no reading
  std::optional<Statistics> stats;
  std::function<Tensor()> load;                // empty: only statistics were kept
  bool substituted = false;                    // the program went on with the reference's value
  std::shared_ptr<const RankShards> shards{};  // null: one process has it
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
