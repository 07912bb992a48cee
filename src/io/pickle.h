// Pickles as torch writes them, read as data: a stack machine over a short list of opcodes and of names that stand for
// tensors. Nothing is imported, called or executed; any other opcode or global is refused by name.
#pragma once
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tensor/shape.h"
#include "tensor/tensor.h"

namespace lockstep {

struct PickleValue;
using PickleRef = const PickleValue*;  // into the document; shared, even in circles, as pickle's memo allows

// ("storage", type, key, location, count): where a tensor's elements are.
struct PickleStorage {
  std::string key;
  DType dtype = DType::kU8;
  bool untyped = false;  // `count` counts bytes; the tensor says its own dtype
  uint64_t count = 0;    // of complex numbers, their parts
  bool complex = false;  // read as two of `dtype` each
};

struct PickleTensor {
  PickleStorage storage;
  DType dtype = DType::kF32;
  Shape shape;
  Strides strides;  // in elements, none negative
  uint64_t offset = 0;
};

struct PickleGlobal {
  std::string name;  // "module.name", one of the accepted
};

struct PickleList {
  enum class Kind { kList, kTuple, kSet } kind = Kind::kList;
  std::vector<PickleRef> items;
};

struct PickleDict {
  std::vector<std::pair<PickleRef, PickleRef>> items;  // in order; a key set twice keeps its place and the last value
  bool ordered_type = false;                           // collections.OrderedDict
};

struct PickleValue {
  struct None {};
  struct LongInteger {  // beyond 64 bits: kept as its little-endian two's complement
    std::string bytes;
  };
  std::variant<None, bool, int64_t, double, std::string, LongInteger, PickleList, PickleDict, PickleGlobal,
               PickleStorage, PickleTensor>
      value;
};

// Owns every value in one row, so that no depth of nesting and no circle matters when it goes.
struct PickleDocument {
  std::deque<PickleValue> values;
  PickleRef root = nullptr;
  size_t consumed_bytes = 0;  // where the pickle ended
};

// Reads one pickle from the start of `bytes`.
PickleDocument parse_pickle(std::span<const std::byte> bytes, std::string_view origin);

// The tensors in a pickled object, named by their path: dictionary keys and list positions joined by dots. Depth and
// number are bounded, because a few shared lists can unfold to billions.
std::vector<std::pair<std::string, const PickleTensor*>> tensors_in(PickleRef root, std::string_view origin);

}  // namespace lockstep
