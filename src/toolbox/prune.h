// A copy of the packages that a program uses, holding only what ran, and the proof that the program does the same with
// it. The packages themselves are never written to.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "capture/recorded_program.h"
#include "toolbox/coverage.h"

namespace lockstep {

struct PruneRequest {
  RecordRequest program;
  std::vector<std::string> packages;  // empty: those that hold parts of a model
  fs::path into;                      // a folder that does not exist yet, or
  std::string branch;                 // a branch that does not exist yet, in the checkout that holds the packages
  bool functions = false;             // bodies that never ran are cut out too
  bool dry_run = false;
  std::function<void(const std::string&)> tell = [](const std::string&) {};
};

struct PrunedPackage {
  std::string name;
  fs::path root;  // the original
  int64_t files_before = 0, lines_before = 0, files_after = 0, lines_after = 0;
};

struct KeptFile {
  std::string why;  // "ran", "imported", "opened" or "restored"
  int64_t lines_before = 0, lines_after = 0, bodies_cut = 0;
  bool code = false;
};
using FileName = std::pair<std::string, std::string>;  // package, path inside it

struct PruneReport {
  std::vector<PrunedPackage> packages;
  std::map<FileName, KeptFile> files;
  std::vector<std::string> restored;    // "diffusers/x.py", or with a function behind it
  std::vector<std::string> left_links;  // files that the program used and that lie outside of their package
  int64_t rounds = 0;                   // how often the program ran on the copy
  int64_t tensors = 0;                  // that are the same, bit for bit
  bool output_equal = false;
  bool dry_run = false;
  fs::path into;
  std::string branch, commit, reference_run, candidate_run;
  int64_t lines_before() const;
  int64_t lines_after() const;
};

// Error{kConflict} where the program fails by itself or its outputs vary, where the copy cannot be made to do the same,
// and where a checkout holds uncommitted work.
PruneReport prune_program(const PruneRequest& request);

Json json_from(const PruneReport& report);
std::string prune_markdown(const PruneReport& report);

// The parts it is made of.

std::vector<std::string> words_with_commas(const std::string& text);

// What a process noted, a line each: a path as a JSON text. What is torn or hostile is left out.
std::vector<std::string> noted_paths(const fs::path& folder, std::string_view kind);

// What a program needs of the packages, by what is known of one run.
class PrunePlan {
 public:
  PrunePlan(const fs::path& run, const std::vector<std::string>& packages);
  std::vector<PrunedPackage> packages;
  std::map<FileName, KeptFile> files;
  std::map<FileName, std::set<std::pair<int64_t, std::string>>> functions_run;  // first line and name
  std::vector<std::string> left_links;
  std::string python;  // that ran the program

  const PrunedPackage* package_of(const fs::path& path) const;
  // With the __init__.py of the folders above. False: it is known already, or no regular file inside its package.
  bool add(const fs::path& original, const char* why);

 private:
  void choose_packages(const ProgramCoverage& coverage, const std::vector<std::string>& wanted);
};

// How two runs of a program differ; empty: not at all. `tensors` counts those that are the same. `folders` hold the
// packages and their copy: what is printed may name either.
std::string first_difference(const fs::path& reference, const fs::path& candidate, const std::vector<fs::path>& folders,
                             int64_t& tensors, bool& output_equal);

// Puts the tree on a new branch of the checkout; neither its files nor its index nor HEAD change. Gives the commit.
struct Checkout {
  fs::path top, git_folder;
};
Checkout checkout_for(const std::vector<PrunedPackage>& packages, const std::string& branch);
std::string commit_tree(const Checkout& checkout, const fs::path& tree, const std::string& branch,
                        const std::string& message);

}  // namespace lockstep
