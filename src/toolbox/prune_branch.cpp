// A pruned tree as a new branch: written by git's own plumbing, with an index of its own.
#include <unistd.h>

#include "base/error.h"
#include "debugger/child_process.h"
#include "toolbox/prune.h"
#include "toolbox/tool_process.h"

namespace lockstep {
namespace {

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

ToolAnswer git(std::vector<std::string> words, const Environment& environment, const fs::path& cwd) {
  words.insert(words.begin(), {"git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c",
                               "core.autocrlf=false", "-c", "core.excludesFile=/dev/null", "-c", "gc.auto=0"});
  return ask_tool(words, "", environment, cwd);
}

std::string git_text(const std::vector<std::string>& words, const Environment& environment, const fs::path& cwd) {
  const ToolAnswer answer = git(words, environment, cwd);
  if (answer.status != 0)
    fail(Code::kConflict, "prune", "git " + words.front() + ": " + trimmed(answer.errors).substr(0, 400));
  return trimmed(answer.output);
}

}  // namespace

Checkout checkout_for(const std::vector<PrunedPackage>& packages, const std::string& branch) {
  const Environment environment = current_environment();
  Checkout checkout;
  for (const PrunedPackage& package : packages) {
    const ToolAnswer answer = git({"rev-parse", "--show-toplevel"}, environment, package.root);
    const fs::path top = trimmed(answer.output);
    if (answer.status != 0 || top.empty() || (!checkout.top.empty() && top != checkout.top))
      fail(Code::kBadInput, "prune", package.root.string() + " does not lie in the checkout that the branch is for",
           {.expected = "packages of one git checkout", .hint = "--packages NAME, or --into FOLDER"});
    checkout.top = top;
  }
  checkout.git_folder = git_text({"rev-parse", "--absolute-git-dir"}, environment, checkout.top);
  if (git({"check-ref-format", "refs/heads/" + branch}, environment, checkout.top).status != 0 ||
      branch.starts_with('-'))
    fail(Code::kUsage, "prune", "'" + branch + "' is no name for a branch");
  if (git({"show-ref", "--verify", "--quiet", "refs/heads/" + branch}, environment, checkout.top).status == 0)
    fail(Code::kConflict, "prune", "the branch " + branch + " exists",
         {.expected = "a new one: no branch of yours is changed", .hint = "another --branch"});
  if (!git_text({"status", "--porcelain"}, environment, checkout.top).empty())
    fail(Code::kConflict, "prune", checkout.top.string() + " has uncommitted work",
         {.expected = "a clean checkout, so that the branch holds what ran", .hint = "git commit or git stash first"});
  return checkout;
}

std::string commit_tree(const Checkout& checkout, const fs::path& tree, const std::string& branch,
                        const std::string& message) {
  Environment environment = current_environment();
  const fs::path index = tree.string() + ".index";
  const struct Removed {
    fs::path path;
    ~Removed() {
      std::error_code ignored;
      fs::remove(path, ignored);
    }
  } removed{index};
  environment["GIT_INDEX_FILE"] = index.string();
  environment["GIT_DIR"] = checkout.git_folder.string();
  environment["GIT_WORK_TREE"] = tree.string();
  if (git({"config", "user.email"}, environment, tree).status != 0) {
    environment.try_emplace("GIT_AUTHOR_NAME", "Lockstep");
    environment.try_emplace("GIT_AUTHOR_EMAIL", "lockstep@localhost");
    environment.try_emplace("GIT_COMMITTER_NAME", "Lockstep");
    environment.try_emplace("GIT_COMMITTER_EMAIL", "lockstep@localhost");
  }
  git_text({"add", "--all", "--force", "."}, environment, tree);
  const std::string written = git_text({"write-tree"}, environment, tree);
  const std::string head = git_text({"rev-parse", "--verify", "HEAD^{commit}"}, environment, tree);
  const std::string commit = git_text({"commit-tree", written, "-p", head, "-m", message}, environment, tree);
  // The last step, and the only one that shows: it fails where the branch has come to exist meanwhile.
  git_text({"update-ref", "refs/heads/" + branch, commit, std::string(commit.size(), '0')}, environment, tree);
  return commit;
}

}  // namespace lockstep
