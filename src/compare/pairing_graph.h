// A run as pairing sees it: one node for what a module gives and one for what it is given, with their tensors, and how
// the modules lie in each other.
#pragma once
#include <string>
#include <vector>

#include "diagnose/case/run_view.h"

namespace lockstep {

struct PairingSlot {
  std::string name;             // which of several tensors; empty when there is one
  std::string record_name;      // as the records call it
  std::vector<size_t> records;  // one a call, in order
};

struct PairingNode {
  std::string name;  // of the module, or of a tensor that was named by hand
  bool input = false;
  bool by_hand = false;  // a checkpoint, a variable, a stage of the pipeline
  std::vector<PairingSlot> slots;
  size_t first = 0;          // record
  size_t made = 0;           // the first record of the results of its call: those have no order among them
  size_t twin = SIZE_MAX;    // the node of the same module's other side
  size_t parent = SIZE_MAX;  // the nearest node above it by name, of the same side where there is one
  std::vector<size_t> children;
  std::vector<std::string> segments;  // of the name
  std::string pattern;                // "blocks.#.attn"
  std::vector<int64_t> numbers;       // {7}
};

struct PairingGraph {
  std::vector<PairingNode> nodes;  // in order of their first records
};

// Of the records given: those that have no partner yet. `apart`: each of several results of a call is a node of its
// own, as whoever names tensors by hand sees them.
PairingGraph pairing_graph(const RunView& run, const std::vector<size_t>& records, bool apart);

}  // namespace lockstep
