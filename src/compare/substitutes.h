// The reference's tensors under the names of a program that calls them otherwise, as a run that `record --substitute`
// takes values from.
#pragma once
#include <string>
#include <vector>

#include "compare/pairing.h"

namespace lockstep {

// A folder with such a run, removed with this.
class Substitutes {
 public:
  // For a program that has not run yet: every rule of the map backwards. Names that no rule covers stay as they are.
  Substitutes(const RunView& reference, const std::vector<MapRule>& map, const fs::path& home);
  // For one that was recorded once, as `candidate`: by its pairs, in its own steps, hits and layouts.
  Substitutes(const RunView& reference, const RunView& candidate, const std::vector<MapRule>& map,
              const fs::path& home);
  ~Substitutes();
  Substitutes(const Substitutes&) = delete;
  Substitutes& operator=(const Substitutes&) = delete;

  const fs::path& path() const { return folder_; }
  size_t size() const { return count_; }
  const std::vector<std::string>& notes() const { return notes_; }  // what could not be brought into the program's form

 private:
  void begin(const fs::path& home);
  void add(const TensorKey& key, Role role, const Tensor& tensor);
  void finish(const RunView& reference);

  fs::path folder_;
  std::string lines_;
  size_t count_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace lockstep
