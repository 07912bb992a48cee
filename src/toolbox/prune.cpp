#include "toolbox/prune.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/file_walk.h"
#include "base/interrupt.h"
#include "capture/store.h"
#include "debugger/child_process.h"
#include "toolbox/pruned_tree.h"
#include "toolbox/tool_process.h"

namespace lockstep {
namespace {

constexpr int kMostRounds = 20;
constexpr uint64_t kMostLogBytes = 256 << 20;
constexpr size_t kMostDefiners = 4;

class Pruning {
 public:
  explicit Pruning(const PruneRequest& request) : request_(request) {
    environment_ = request.program.environment.empty() ? current_environment() : request.program.environment;
  }

  PruneReport run() {
    request_.tell("running the program as it is");
    const RecordOutcome outcome = record("watch", "prune as it is");
    if (outcome.exit_code != 0)
      fail(Code::kConflict, "prune", fmt::format("the program {} by itself", outcome.status),
           {.expected = "exit status 0", .got = std::to_string(outcome.exit_code)});
    report_.reference_run = outcome.id;
    report_.dry_run = request_.dry_run;
    plan_ = std::make_unique<PrunePlan>(reference(), request_.packages);
    Checkout checkout;
    if (!request_.branch.empty()) {
      checkout = checkout_for(plan_->packages, request_.branch);
      prefix_ = plan_->packages.front().root.parent_path().lexically_relative(checkout.top);
      if (prefix_ == ".") prefix_.clear();
    }
    // A branch needs no folder of the user's, and neither does a look at what would be.
    const bool scratch = request_.dry_run || !request_.branch.empty();
    tree_ = std::make_unique<PrunedTree>(
        scratch ? fs::temp_directory_path() / fmt::format("lockstep-prune-{}", ::geteuid()) : request_.into);
    copy_all();
    if (!request_.dry_run) {
      prove();
      finish(checkout);
    }
    return finished();
  }

 private:
  // Each kind of run has a name of its own: a newer run of a name sends the older ones to the archive.
  RecordOutcome record(const std::string& pruning, const std::string& name) const {
    RecordRequest program = request_.program;
    program.environment = environment_;
    program.environment["LOCKSTEP_PRUNE"] = pruning;
    if (pruning != "watch") program.environment["PYTHONDONTWRITEBYTECODE"] = "1";
    program.coverage = "functions";
    program.record_modules = true;
    program.stats_only = true;  // with checksums, which tell bit for bit
    program.name = name;
    return record_program(program);
  }

  // Where a run is by now: another prune at the same time makes runs of the same names and archives ours.
  fs::path folder_of(const RecordOutcome& outcome) const { return store().resolve(outcome.id); }
  fs::path reference() const { return store().resolve(report_.reference_run); }
  Store store() const { return Store(request_.program.home); }

  std::vector<fs::path> package_folders() const {
    std::vector<fs::path> folders{copy_folder()};
    for (const PrunedPackage& one : plan_->packages) folders.push_back(one.root.parent_path());
    return folders;
  }

  fs::path copy_folder() const { return prefix_.empty() ? tree_->path() : tree_->path() / prefix_; }  // of the packages
  fs::path place(const FileName& name) const { return prefix_ / name.first / name.second; }

  const PrunedPackage& package(const std::string& name) const {
    return *std::find_if(plan_->packages.begin(), plan_->packages.end(), [&](const auto& p) { return p.name == name; });
  }

  void copy_all() {
    request_.tell(fmt::format("copying {} files", plan_->files.size()));
    std::vector<FileName> names;
    for (const auto& [name, file] : plan_->files) names.push_back(name);
    copy(names);
  }

  // Whole files first: one that cannot be cut stays as it is.
  void copy(const std::vector<FileName>& names) {
    Json questions = Json::array();
    std::vector<FileName> asked;
    for (const FileName& name : names) {
      check_interrupt("prune");
      const PrunedPackage& from = package(name.first);
      KeptFile& file = plan_->files[name];
      std::string text;
      if (!read_inside(from.root, from.root / name.second, text))
        fail(Code::kConflict, "prune", (from.root / name.second).string() + " was changed or removed meanwhile");
      tree_->write(place(name), text);
      file.lines_after = file.lines_before;
      file.bodies_cut = 0;
      gone_.erase(name);
      if (!request_.functions || !file.code || whole_.contains(name)) continue;
      Json keep = Json::array();
      for (const auto& [line, function] : plan_->functions_run[name]) keep.push_back({line, function});
      questions.push_back({{"original", (from.root / name.second).string()},
                           {"copy", (tree_->path() / place(name)).string()},
                           {"keep", std::move(keep)},
                           {"place", (from.root / name.second).string()}});
      asked.push_back(name);
    }
    if (!asked.empty()) cut(questions, asked);
  }

  void cut(const Json& questions, const std::vector<FileName>& asked) {
    const fs::path script = python_package_folder() / "lockstep" / "pruning.py";
    const ToolAnswer answer =
        ask_tool({plan_->python, "-I", script.string()},
                 Json{{"files", questions}}.dump(-1, ' ', true, Json::error_handler_t::replace), environment_);
    const Json told = Json::parse(answer.output, nullptr, false);
    if (answer.status != 0 || !told.is_object() || !told["files"].is_array() || told["files"].size() != asked.size())
      fail(Code::kInternal, "prune", "function bodies could not be cut: " + answer.errors.substr(0, 400));
    for (size_t i = 0; i < asked.size(); ++i) {
      KeptFile& file = plan_->files[asked[i]];
      std::map<int64_t, std::pair<int64_t, std::string>>& gone = gone_[asked[i]];
      gone.clear();
      for (const Json& one : told["files"][i].value("gone", Json::array()))
        gone[one[2].get<int64_t>()] = {one[0].get<int64_t>(), one[1].get<std::string>()};
      file.bodies_cut = static_cast<int64_t>(gone.size());
      std::string text;
      if (read_inside(tree_->path(), tree_->path() / place(asked[i]), text)) file.lines_after = lines_in(text);
    }
  }

  // Runs the program on the copy until it needs nothing more and does the same.
  void prove() {
    const fs::path description = tree_->path().string() + ".json";
    Json originals = Json::object();
    for (const PrunedPackage& one : plan_->packages) originals[one.name] = one.root.string();
    write_atomically(description, Json{{"copy", copy_folder().string()}, {"originals", originals}}.dump());
    const struct Removed {
      fs::path path;
      ~Removed() {
        std::error_code ignored;
        fs::remove(path, ignored);
      }
    } removed{description};
    for (int round = 0; round < kMostRounds; ++round) {
      const std::vector<std::string>& restored = report_.restored;
      request_.tell(restored.empty() ? "running it on the copy"
                                     : fmt::format("running it on the copy ({} restored so far, {} last)",
                                                   restored.size(), restored.back()));
      const RecordOutcome outcome = record(description.string(), "prune on the copy");
      ++report_.rounds;
      report_.candidate_run = outcome.id;
      if (request_.program.cancelled && request_.program.cancelled())
        fail(Code::kCancelled, "prune", "cancelled; nothing was kept");
      const fs::path run = folder_of(outcome);
      if (restore_missing(run) || restore_cut(run)) continue;
      const std::string difference = outcome.exit_code != 0 ? "the program " + outcome.status
                                                            : first_difference(reference(), run, package_folders(),
                                                                               report_.tensors, report_.output_equal);
      if (difference.empty()) return;
      if (restore_named(run)) continue;
      give_up(difference);
    }
    give_up("files were still missing after " + std::to_string(kMostRounds) + " rounds");
  }

  [[noreturn]] void give_up(const std::string& difference) {
    const RecordOutcome again = record("watch", "prune once more");
    int64_t tensors = 0;
    bool output = false;
    const std::string varies = first_difference(reference(), folder_of(again), package_folders(), tensors, output);
    if (!varies.empty())
      fail(Code::kConflict, "prune",
           "the program's own outputs vary from run to run (" + varies + "), so that nothing can be proven",
           {.expected = "a program that does the same twice", .hint = "a fixed seed"});
    fail(Code::kConflict, "prune",
         "with the copy the program does not do the same: " + difference + "; nothing was kept",
         {.hint = request_.functions ? "without --functions" : "lockstep runs show " + report_.candidate_run});
  }

  bool restore(const std::vector<fs::path>& originals) {
    std::vector<FileName> added;
    std::set<FileName> before;
    for (const auto& [name, file] : plan_->files) before.insert(name);
    for (const fs::path& path : originals)
      if (plan_->add(path, "restored")) report_.restored.push_back(shown(path));
    for (const auto& [name, file] : plan_->files)
      if (!before.contains(name)) added.push_back(name);
    copy(added);
    return !added.empty();
  }

  std::string shown(const fs::path& original) const {
    const PrunedPackage* from = plan_->package_of(original);
    return from ? (from->name / original.lexically_relative(from->root)).string() : original.string();
  }

  // What the copy did not have and the program asked for.
  bool restore_missing(const fs::path& run) {
    std::vector<fs::path> missing;
    for (const std::string& path : noted_paths(run / "prune", "missing-")) missing.emplace_back(path);
    return restore(missing);
  }

  // Bodies that were cut and have been called after all, whether the program told of it or not.
  bool restore_cut(const fs::path& run) {
    if (!request_.functions) return false;
    std::set<FileName> again;
    const fs::path copy = copy_folder();
    for (const CoveredFile& file : read_coverage(run).files) {
      const fs::path inside = fs::path(file.path).lexically_relative(copy);
      if (inside.empty() || inside.begin()->string() == "..") continue;
      const FileName name{inside.begin()->string(), fs::path(inside).lexically_relative(*inside.begin()).string()};
      const auto gone = gone_.find(name);
      if (gone == gone_.end()) continue;
      for (const CoveredFunction& function : file.functions) {
        const auto cut = gone->second.find(function.line);
        if (function.calls == 0 || cut == gone->second.end()) continue;
        plan_->functions_run[name].insert(cut->second);
        report_.restored.push_back(
            fmt::format("{}/{}:{} {}", name.first, name.second, cut->second.first, cut->second.second));
        again.insert(name);
      }
    }
    copy_again(again);
    return !again.empty();
  }

  void copy_again(const std::set<FileName>& names) { copy({names.begin(), names.end()}); }

  // By what the program printed when it failed: names that could not be imported, files of the copy in a traceback.
  bool restore_named(const fs::path& run) {
    std::error_code error;
    const std::string log = fs::exists(run / "output.log", error) ? read_text(run / "output.log", kMostLogBytes) : "";
    std::vector<fs::path> found;
    for (const std::string_view before : {"cannot import name '", "has no attribute '"})
      for (size_t at = log.find(before); at != std::string::npos; at = log.find(before, at + 1)) {
        const size_t from = at + before.size(), end = log.find('\'', from);
        if (end != std::string::npos && end - from < 200) add_definers(log.substr(from, end - from), found);
      }
    if (restore(found)) return true;
    // One by one: of the first traceback, which tells the cause, the innermost file that was cut; else of any other.
    const std::string copy = copy_folder().string() + "/";
    const size_t caused = log.find("\n\nThe above exception was the direct cause");
    for (const std::string& part : {log.substr(0, caused), log})
      for (size_t at = part.rfind(copy); at != std::string::npos && at > 0; at = part.rfind(copy, at - 1)) {
        const size_t from = at + copy.size(), end = part.find_first_of("\"\n", from);
        if (end == std::string::npos || end - from > 1000) continue;
        const fs::path inside = part.substr(from, end - from);
        const FileName name{inside.begin()->string(), inside.lexically_relative(*inside.begin()).string()};
        const auto file = plan_->files.find(name);
        if (file == plan_->files.end() || !file->second.code || !request_.functions || !whole_.insert(name).second)
          continue;
        report_.restored.push_back(name.first + "/" + name.second);
        copy_again({name});
        return true;
      }
    return false;
  }

  void add_definers(const std::string& name, std::vector<fs::path>& found) const {
    for (const PrunedPackage& one : plan_->packages)
      walk_files(one.root, {.depth = 32, .secs = 60}, "prune", [&](const fs::directory_entry& entry) {
        if (entry.path().extension() != ".py" || found.size() >= kMostDefiners) return;
        std::string text;
        if (!read_inside(one.root, entry.path(), text)) return;
        for (const std::string& start : {"\nclass " + name, "\ndef " + name, "\n" + name + " ="})
          if (text.find(start) != std::string::npos) {
            found.push_back(entry.path());
            break;
          }
      });
  }

  void finish(const Checkout& checkout) {
    if (!request_.branch.empty())
      for (const char* file :
           {"LICENSE", "LICENSE.txt", "NOTICE", "README.md", "README.rst", "pyproject.toml", "setup.py", "setup.cfg"}) {
        std::string text;
        if (read_inside(checkout.top, checkout.top / file, text)) tree_->write(file, text);
      }
    const PruneReport report = finished();
    tree_->write("PRUNED.md", prune_markdown(report));
    if (request_.branch.empty()) {
      tree_->keep();
      report_.into = fs::absolute(request_.into).lexically_normal();
      return;
    }
    report_.commit =
        commit_tree(checkout, tree_->path(), request_.branch,
                    fmt::format("Keep what {} uses\n\n{} of {} lines are left.\n", request_.program.argv.back(),
                                report.lines_after(), report.lines_before()));
    report_.branch = request_.branch;
  }

  PruneReport finished() const {
    PruneReport report = report_;
    report.packages = plan_->packages;
    report.files = plan_->files;
    report.left_links = plan_->left_links;
    for (PrunedPackage& one : report.packages)
      for (const auto& [name, file] : report.files)
        if (name.first == one.name && file.code) {
          ++one.files_after;
          one.lines_after += file.lines_after;
        }
    return report;
  }

  const PruneRequest& request_;
  std::map<std::string, std::string> environment_;
  fs::path prefix_;
  std::unique_ptr<PrunePlan> plan_;
  std::unique_ptr<PrunedTree> tree_;
  std::set<FileName> whole_;                                                     // not cut again
  std::map<FileName, std::map<int64_t, std::pair<int64_t, std::string>>> gone_;  // line in the copy → old line, name
  PruneReport report_;
};

}  // namespace

int64_t PruneReport::lines_before() const {
  int64_t sum = 0;
  for (const PrunedPackage& package : packages) sum += package.lines_before;
  return sum;
}

int64_t PruneReport::lines_after() const {
  int64_t sum = 0;
  for (const PrunedPackage& package : packages) sum += package.lines_after;
  return sum;
}

PruneReport prune_program(const PruneRequest& request) {
  if (!request.dry_run && request.into.empty() == request.branch.empty())
    fail(Code::kUsage, "prune", "expected a place for the copy",
         {.expected = "either --into FOLDER or --branch NAME", .hint = "--dry-run to see what it would hold"});
  return Pruning(request).run();
}

}  // namespace lockstep
