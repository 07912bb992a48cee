#include "zoom/tape.h"

#include <fmt/format.h>

#include <unordered_map>

#include "base/error.h"

namespace lockstep::zoom {
namespace {

constexpr size_t kMostSteps = 200'000, kMostValues = 1'000'000, kMostFrames = 64, kMostOperands = 4096;

class TapeReader {
 public:
  explicit TapeReader(const fs::path& run)
      : lines_(MappedFile::open(run / "operations.jsonl")), data_(MappedFile::open(run / "operations.bin")) {}

  std::vector<Tape> read() {
    const std::string_view all(reinterpret_cast<const char*>(lines_->bytes().data()), lines_->bytes().size());
    size_t at = 0;
    while (at < all.size()) {
      const size_t end = all.find('\n', at);
      if (end == std::string_view::npos) break;  // torn: the program ended while it was written
      ++line_;
      take(parse_json(all.substr(at, end - at), fmt::format("operations.jsonl:{}", line_)));
      at = end + 1;
    }
    // A call without its end was left by an exception: what it had done so far has no outputs to compare.
    if (!tapes_.empty() && !ended_) tapes_.pop_back();
    return std::move(tapes_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& expected) const {
    fail(Code::kCorrupt, "zoom", fmt::format("operations.jsonl, line {}: {}", line_, what), {.expected = expected});
  }

  int64_t integer(const Json& json, const char* what) const {
    if (!json.is_number_integer()) refuse(what, "an integer");
    return json.get<int64_t>();
  }

  std::string text(const Json& line, const char* key) const {
    const auto at = line.find(key);
    return at != line.end() && at->is_string() ? at->get<std::string>() : std::string();
  }

  Tape& tape() {
    if (tapes_.empty() || ended_) refuse("no call was begun", "a line with \"call\" first");
    return tapes_.back();
  }

  int known(const Json& json) {
    const auto at = numbers_.find(integer(json, "a value's number"));
    if (at == numbers_.end()) refuse("an unknown value", "a value of this call");
    return at->second;
  }

  void take(const Json& line) {
    if (!line.is_object()) refuse("no object", "one JSON object a line");
    if (line.contains("call")) return begin(line);
    if (line.contains("value")) return add_value(line);
    if (line.contains("op")) return add_step(line);
    if (line.contains("end")) return end(line);
  }

  void begin(const Json& line) {
    if (!tapes_.empty() && !ended_) tapes_.pop_back();
    Tape made;
    made.data = data_;
    made.call = text(line, "call");
    made.framework = text(line, "framework");
    if (const auto at = line.find("step"); at != line.end() && at->is_number_integer()) made.step = at->get<int64_t>();
    if (const auto at = line.find("hit"); at != line.end() && at->is_number_integer()) made.hit = at->get<int64_t>();
    if (const auto at = line.find("tags"); at != line.end() && at->is_object()) made.pass = text(*at, "pass");
    if (const auto at = line.find("glue"); at != line.end()) made.glue = *at == Json(true);
    if (const auto at = line.find("fed"); at != line.end() && at->is_array())
      for (const Json& path : *at)
        if (path.is_string() && made.fed.size() < kMostOperands) made.fed.push_back(path);
    tapes_.push_back(std::move(made));
    numbers_.clear();
    ended_ = false;
  }

  void add_value(const Json& line) {
    Tape& to = tape();
    if (to.values.size() >= kMostValues) refuse("too many values", fmt::format("at most {}", kMostValues));
    Value value;
    const std::string kind = text(line, "kind");
    value.origin = kind == "result"      ? Origin::kResult
                   : kind == "input"     ? Origin::kInput
                   : kind == "parameter" ? Origin::kParameter
                                         : Origin::kConstant;
    value.name = text(line, "name");
    value.shape = sizes(line, "shape");
    if (const auto at = line.find("complex"); at != line.end()) value.is_complex = *at == Json(true);
    const int64_t count = checked_numel(value.shape);
    const std::optional<DType> dtype = dtype_from_name(text(line, "dtype"));
    if (const auto at = line.find("offset"); at != line.end() && dtype)
      value.tensor = tensor_at(integer(*at, "an offset"), *dtype, value.shape, sizes(line, "strides"), count);
    if (value.tensor.defined()) value.totals = totals_from(line, count);
    const int index = static_cast<int>(to.values.size());
    if (!numbers_.emplace(integer(line["value"], "a value's number"), index).second)
      refuse("a value twice", "each number once");
    if (value.origin == Origin::kInput) to.inputs.emplace_back(value.name, index);
    to.values.push_back(std::move(value));
  }

  // "sums": [infinite, nan, sum, absolute, squares, uniform, binary]. They only save looking at the elements, which
  // decide.
  std::optional<Totals> totals_from(const Json& line, int64_t count) const {
    const auto at = line.find("sums");
    if (at == line.end() || !at->is_array() || at->size() != 7) return std::nullopt;
    for (size_t i = 0; i < 5; ++i)
      if (!(*at)[i].is_number()) return std::nullopt;
    return Totals{count,
                  (*at)[0].get<int64_t>(),
                  (*at)[1].get<int64_t>(),
                  (*at)[2].get<double>(),
                  (*at)[3].get<double>(),
                  (*at)[4].get<double>(),
                  (*at)[5] == Json(true),
                  (*at)[6] == Json(true)};
  }

  std::vector<int64_t> sizes(const Json& line, const char* key) const {
    std::vector<int64_t> out;
    const auto at = line.find(key);
    if (at == line.end()) return out;
    if (!at->is_array() || at->size() > kMaxRank) refuse(key, "an array of integers");
    for (const Json& one : *at) out.push_back(integer(one, key));
    return out;
  }

  // Every element lies inside operations.bin, whatever strides a line claims.
  Tensor tensor_at(int64_t offset, DType dtype, const Shape& shape, Strides strides, int64_t count) const {
    if (strides.empty()) strides = contiguous_strides(shape);
    if (strides.size() != shape.size()) refuse("strides", "one stride an axis");
    const auto limit = static_cast<int64_t>(data_->bytes().size());
    const auto size = static_cast<int64_t>(dtype_bytes(dtype));
    int64_t lowest = 0, highest = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] > limit + 1 || std::abs(strides[axis]) > limit) refuse("strides", "elements inside the file");
      int64_t reach = 0;
      if (__builtin_mul_overflow(std::max<int64_t>(shape[axis] - 1, 0), strides[axis], &reach) ||
          __builtin_add_overflow(reach < 0 ? lowest : highest, reach, reach < 0 ? &lowest : &highest))
        refuse("strides", "elements inside the file");
    }
    int64_t first = 0, last = 0;
    if (offset < 0 || offset > limit || __builtin_mul_overflow(lowest, size, &first) ||
        __builtin_mul_overflow(highest + 1, size, &last) || offset + first < 0 ||
        (count > 0 && (last > limit || offset > limit - last)))
      refuse("a value beyond operations.bin", fmt::format("at most {} bytes", limit));
    return Tensor::wrap(data_->bytes().data() + offset, dtype, shape, data_, strides);
  }

  void add_step(const Json& line) {
    Tape& to = tape();
    if (to.steps.size() >= kMostSteps) refuse("too many operations", fmt::format("at most {}", kMostSteps));
    Step step;
    step.kind = text(line, "op");
    if (const auto at = line.find("in_place"); at != line.end()) step.in_place = *at == Json(true);
    if (const auto at = line.find("arguments"); at != line.end() && at->is_object()) step.arguments = *at;
    if (const auto at = line.find("inputs"); at != line.end()) step.operands = operands(*at);
    if (const auto at = line.find("outputs"); at != line.end() && at->is_array())
      for (const Json& one : *at) step.outputs.push_back(known(one));
    if (const auto at = line.find("where"); at != line.end() && at->is_array())
      for (const Json& frame : *at)
        if (step.where.size() < kMostFrames && frame.is_array() && frame.size() == 3 && frame[0].is_string() &&
            frame[1].is_number_integer() && frame[2].is_string())
          step.where.push_back({frame[0], frame[2], frame[1]});
    const int index = static_cast<int>(to.steps.size());
    for (const int output : step.outputs)
      if (to.values[static_cast<size_t>(output)].origin == Origin::kResult)
        to.values[static_cast<size_t>(output)].step = index;
    to.steps.push_back(std::move(step));
  }

  std::vector<Operand> operands(const Json& list) {
    if (!list.is_array() || list.size() > kMostOperands) refuse("inputs", "an array of [parameter, value]");
    std::vector<Operand> out;
    for (const Json& one : list) {
      if (!one.is_array() || one.size() != 2 || !one[0].is_string()) refuse("inputs", "an array of [parameter, value]");
      out.push_back({one[0], known(one[1])});
    }
    return out;
  }

  void end(const Json& line) {
    Tape& to = tape();
    if (const auto at = line.find("outputs"); at != line.end())
      for (const Operand& one : operands(*at)) to.outputs.emplace_back(one.parameter, one.value);
    if (const auto at = line.find("truncated"); at != line.end()) to.truncated = *at == Json(true);
    if (const auto at = line.find("uncompiled"); at != line.end()) to.uncompiled = *at == Json(true);
    ended_ = true;
  }

  std::shared_ptr<const MappedFile> lines_, data_;
  std::vector<Tape> tapes_;
  std::unordered_map<int64_t, int> numbers_;  // of the call that is being read → index in its values
  bool ended_ = true;
  int64_t line_ = 0;
};

}  // namespace

int Step::operand(std::string_view parameter) const {
  for (const Operand& one : operands)
    if (one.parameter == parameter) return one.value;
  return -1;
}

std::vector<Tape> read_tapes(const fs::path& run) {
  std::error_code error;
  if (!fs::exists(run / "operations.jsonl", error))
    fail(Code::kNotFound, "zoom", run.string() + " holds no operations",
         {.hint = "recording again with --operations NAME"});
  return TapeReader(run).read();
}

}  // namespace lockstep::zoom
