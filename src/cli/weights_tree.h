// A checkpoint as a tree by the dots of its names; numbered siblings of one structure are shown once.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "cli/terminal.h"
#include "io/tensor_info.h"

namespace lockstep {

class WeightsTree {
 public:
  // The names stay where they are: `tensors` must outlive the tree.
  explicit WeightsTree(const std::vector<const TensorInfo*>& tensors);
  Text text(const Terminal& terminal, int depth) const;
  Json json(int depth) const;

 private:
  struct Node {
    std::vector<std::pair<std::string_view, std::unique_ptr<Node>>> children;  // in file order, numbers in their own
    std::unordered_map<std::string_view, Node*> index;                         // of the children, once they are many
    const TensorInfo* tensor = nullptr;
    int64_t tensors = 0, elements = 0;
    uint64_t bytes = 0;
    uint32_t dtypes = 0;     // a bit each
    uint64_t structure = 0;  // a hash: equal for nodes with equal names, dtypes and shapes below
  };
  // Children first..last of `parent` drawn as one line.
  struct Run {
    size_t first, last;
  };

  static Node& child(Node& parent, std::string_view name);
  static void summarise(Node& node);
  static std::vector<Run> runs(const Node& node);
  static std::string run_name(const Node& node, const Run& run);
  void draw(const Node& node, const Text& indent, int depth, const Terminal& terminal, Text& out) const;
  static Json node_json(const Node& node, int depth);

  Node root_;
};

}  // namespace lockstep
