// A small program of operations, written by hand: what a traced call would have left.
#pragma once
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "zoom/evaluate.h"
#include "zoom/search.h"

namespace lockstep::zoom {

class Program {
 public:
  explicit Program(std::string file) : file_(std::move(file)) {}

  int leaf(Origin origin, std::string name, const Shape& shape, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(checked_numel(shape)));
    for (float& value : values) value = normal(random);
    return add({origin, std::move(name), Tensor::from<float>(shape, values), shape, -1, -1, false, false});
  }

  // What follows is in another file.
  void in_file(std::string file) { file_ = std::move(file); }
  // What follows happens in a function that was called in this line of `forward`; 0: in `forward` itself.
  void in_call_of(int line) { called_from_ = line; }

  // The result of one operation at a line of the program, computed as the framework would.
  int operation(int line, std::string kind, std::vector<Operand> operands, Json arguments = Json::object()) {
    const Step step = step_of(line, std::move(kind), std::move(operands), std::move(arguments));
    const Side side(tape_);
    const auto made = evaluate(side, step, next(), [&](int value) { return side.numbers(value); });
    EXPECT_TRUE(made.has_value()) << step.kind;
    return add_result(step, *made);
  }

  // The same where the framework's result is known.
  int result_of(int line, std::string kind, std::vector<Operand> operands, Numbers result,
                Json arguments = Json::object()) {
    return add_result(step_of(line, std::move(kind), std::move(operands), std::move(arguments)), result);
  }

  // The same elements in another shape.
  int reshaped(int line, std::string kind, int value, const Shape& shape) {
    return result_of(line, std::move(kind), {{"input", value}}, {shape, numbers(value).values});
  }

  Numbers numbers(int value) const { return *Side(tape_).numbers(value); }

  Side result(int value) {
    tape_.outputs = {{"", value}};
    return Side(tape_);
  }

  // As the code between modules: what it passes on, by name.
  Side stages(std::vector<std::pair<std::string, int>> passed_on) {
    tape_.glue = true;
    tape_.outputs = std::move(passed_on);
    return Side(tape_);
  }

 private:
  int next() const { return static_cast<int>(tape_.values.size()); }

  Step step_of(int line, std::string kind, std::vector<Operand> operands, Json arguments) const {
    Step step;
    step.kind = std::move(kind);
    step.operands = std::move(operands);
    step.arguments = std::move(arguments);
    step.where = {{file_, called_from_ > 0 ? "called" : "forward", line}};
    if (called_from_ > 0) step.where.push_back({file_, "forward", called_from_});
    step.outputs = {next()};
    return step;
  }

  int add_result(const Step& step, const Numbers& made) {
    const int index = add({Origin::kResult, "", Tensor::from<float>(made.shape, made.values), made.shape,
                           static_cast<int>(tape_.steps.size()), -1, false, false});
    tape_.steps.push_back(step);
    return index;
  }

  int add(Value value) {
    tape_.values.push_back(std::move(value));
    return static_cast<int>(tape_.values.size()) - 1;
  }

  std::string file_;
  int called_from_ = 0;
  Tape tape_;
};

// Lines of yours that an answer names.
inline std::set<int> lines_named_for(Side& reference, Side& yours) {
  std::set<int> out;
  for (const Region& region : search(reference, yours).regions)
    for (const Place& place : yours_of(yours, region)) out.insert(place.line);
  return out;
}

}  // namespace lockstep::zoom
