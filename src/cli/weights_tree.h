// A checkpoint as a tree by the dots of its names; numbered siblings of one structure are shown once.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/terminal.h"
#include "io/tensor_info.h"

namespace lockstep {

class WeightsTree {
 public:
  explicit WeightsTree(const std::vector<const TensorInfo*>& tensors);
  std::string text(const Terminal& terminal, int depth) const;
  Json json(int depth) const;

 private:
  struct Node {
    std::vector<std::pair<std::string, std::unique_ptr<Node>>> children;  // in file order, numbers in numeric order
    std::map<std::string, size_t> index;
    const TensorInfo* tensor = nullptr;
    int64_t tensors = 0, elements = 0;
    uint64_t bytes = 0;
    std::set<std::string> dtypes;
    std::string structure;  // equal for nodes with equal names, dtypes and shapes below
  };
  // Children first..last of `parent` drawn as one line.
  struct Run {
    size_t first, last;
  };

  static void summarise(Node& node);
  static std::vector<Run> runs(const Node& node);
  static std::string run_name(const Node& node, const Run& run);
  void draw(const Node& node, const std::string& indent, int depth, const Terminal& terminal, std::string& out) const;
  static Json node_json(const Node& node, int depth);

  Node root_;
};

}  // namespace lockstep
