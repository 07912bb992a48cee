// The copy that prune makes: a new folder that nothing is written outside of, whatever names and links the original
// holds and whatever is put into the copy meanwhile.
#pragma once
#include <string>
#include <string_view>

#include "base/file.h"

namespace lockstep {

class PrunedTree {
 public:
  // A folder of its own beside `destination`, which must not exist yet.
  explicit PrunedTree(const fs::path& destination);
  ~PrunedTree();  // what was not kept goes
  PrunedTree(const PrunedTree&) = delete;
  PrunedTree& operator=(const PrunedTree&) = delete;

  const fs::path& path() const { return path_; }
  bool has(const fs::path& relative) const;
  // Error{kBadInput} where `relative` leaves the folder, or a link stands on its way.
  void write(const fs::path& relative, std::string_view text);
  void remove(const fs::path& relative);  // no error where there is none
  void keep();                            // gives it its name, in one step

 private:
  int folder_of(const fs::path& relative, bool make) const;  // the folder it lies in, opened; -1: there is none

  fs::path destination_, path_;
  int root_ = -1;
  bool kept_ = false;
};

// The text of a regular file that lies in `root`, links resolved; nothing where it is none or lies elsewhere.
bool read_inside(const fs::path& root, const fs::path& file, std::string& text);

int64_t lines_in(std::string_view text);

}  // namespace lockstep
