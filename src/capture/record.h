// One line of records.jsonl: what was seen at one hit of one name.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tensor/statistics.h"
#include "tensor/tap.h"

namespace lockstep {

enum class Role { kOutput, kInput, kCheckpoint, kVariable };

std::string_view role_name(Role role);       // "output", "input", "checkpoint", "variable"
Role role_from_name(std::string_view name);  // unknown names count as checkpoints

// Where in the recorded program the tensor was seen. line 0: unknown.
struct Where {
  std::string file, function;
  int line = 0;
};

struct Record {
  int64_t seq = 0;
  TensorKey key;
  Role role = Role::kCheckpoint;
  std::string dtype_text;      // as written; complex and other types we cannot load keep their name
  std::optional<DType> dtype;  // absent: the record is listed, its values cannot be read
  Shape shape;
  std::optional<Statistics> stats;
  std::vector<double> preview;  // the first values in row-major order, at most 10
  std::string checksum;         // XXH3-128 of the packed bytes, 32 hex digits; empty when unknown
  std::string file;             // relative to the run folder; empty: only statistics were kept
  Where where;
  double secs = 0;           // since the run began
  int64_t same_as = -1;      // the earlier record of this run that had the very same values; its file is this one's too
  bool substituted = false;  // the program went on with the reference's value in its place
};

inline constexpr size_t kPreviewValues = 10;
inline constexpr size_t kMaxRecordBytes = 1 << 20;  // a longer line is not one of ours

size_t most_line_bytes(const Record& record);        // of its line, as long as it has neither statistics nor preview
std::string line_from_record(const Record& record);  // strict JSON without the line break
// Nothing when the line is torn, malformed or out of bounds: a hostile line costs its reader no more than a skip.
std::optional<Record> record_from_line(std::string_view line);

}  // namespace lockstep
