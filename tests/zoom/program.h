// A small program of operations, written by hand: what a traced call would have left.
#pragma once
#include <gtest/gtest.h>

#include <random>

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

  // The result of one operation at a line of the program, computed as the framework would.
  int operation(int line, std::string kind, std::vector<Operand> operands, Json arguments = Json::object()) {
    Step step;
    step.kind = std::move(kind);
    step.operands = std::move(operands);
    step.arguments = std::move(arguments);
    step.where = {{file_, "forward", line}};
    const int index = add({Origin::kResult, "", {}, {}, static_cast<int>(tape_.steps.size()), -1, false, false});
    step.outputs = {index};
    const Side side(tape_);
    const auto made = evaluate(side, step, index, [&](int value) { return side.numbers(value); });
    EXPECT_TRUE(made.has_value()) << step.kind;
    Value& value = tape_.values[static_cast<size_t>(index)];
    value.shape = made->shape;
    value.tensor = Tensor::from<float>(made->shape, made->values);
    tape_.steps.push_back(std::move(step));
    return index;
  }

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
  int add(Value value) {
    tape_.values.push_back(std::move(value));
    return static_cast<int>(tape_.values.size()) - 1;
  }

  std::string file_;
  Tape tape_;
};

}  // namespace lockstep::zoom
