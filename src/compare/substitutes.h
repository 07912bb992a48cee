// The reference's tensors under the names of a program that calls them otherwise, as a run that `record --substitute`
// takes values from.
#pragma once
#include <string>
#include <vector>

#include "base/new_folder.h"
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

  const fs::path& path() const { return folder_.path(); }
  size_t size() const { return count_; }
  const std::vector<std::string>& notes() const { return notes_; }  // what could not be brought into the program's form

 private:
  explicit Substitutes(const fs::path& home);
  void add(const TensorKey& key, Role role, const Tensor& tensor);
  void finish(const RunView& reference);

  TemporaryFolder folder_;
  std::string lines_;
  size_t count_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace lockstep
