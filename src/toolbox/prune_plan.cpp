#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/file_walk.h"
#include "base/interrupt.h"
#include "capture/run_reader.h"
#include "toolbox/prune.h"
#include "toolbox/pruned_tree.h"

namespace lockstep {
namespace {

constexpr uint64_t kMostNoteBytes = 64 << 20;
const std::set<std::string> kFrameworks{"torch", "mlx", "jax", "flax", "tinygrad", "numpy", "tensorflow", "keras"};

std::string top_of(const std::string& module) {
  return module.substr(0, module.find('.'));
}

}  // namespace

std::vector<std::string> noted_paths(const fs::path& folder, std::string_view kind) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (!it->path().filename().string().starts_with(kind)) continue;
    const std::string text = read_text(it->path(), kMostNoteBytes);
    for (size_t at = 0; at < text.size();) {
      const size_t line_end = std::min(text.find('\n', at), text.size());
      const Json path = Json::parse(text.substr(at, line_end - at), nullptr, false);
      if (path.is_string()) paths.push_back(path.get<std::string>());
      at = line_end + 1;
    }
  }
  return paths;
}

PrunePlan::PrunePlan(const fs::path& run, const std::vector<std::string>& wanted) {
  const ProgramCoverage coverage = read_coverage(run);
  choose_packages(coverage, wanted);
  for (const CoveredFile& file : coverage.files) {
    check_interrupt("prune");
    const PrunedPackage* package = package_of(file.path);
    if (!package) continue;
    add(file.path, file.used() ? "ran" : "imported");
    const FileName name{package->name, fs::path(file.path).lexically_relative(package->root).string()};
    for (const CoveredFunction& function : file.functions) {
      const size_t dot = function.name.rfind('.');
      if (function.calls > 0)
        functions_run[name].emplace(function.line,
                                    dot == std::string::npos ? function.name : function.name.substr(dot + 1));
    }
  }
  for (const std::string& path : noted_paths(run / "prune", "opened-")) {
    if (python.empty()) python = path;  // the first that is noted
    if (package_of(path)) add(path, path.ends_with(".py") ? "imported" : "opened");
  }
}

void PrunePlan::choose_packages(const ProgramCoverage& coverage, const std::vector<std::string>& wanted) {
  std::set<std::string> names(wanted.begin(), wanted.end());
  if (names.empty())
    for (const CoveredFile& file : coverage.files)
      if (file.used() && file.component != "other" && file.package != "python" && !file.module.empty())
        names.insert(top_of(file.module));
  for (const CoveredFile& file : coverage.files) {
    const fs::path path = file.path;
    if (!names.contains(file.module) || path.filename() != "__init__.py") continue;
    PrunedPackage package{.name = file.module, .root = path.parent_path()};
    bool compiled = false;  // a framework: models are written in Python
    const bool whole =
        walk_files(package.root, {.depth = 32, .secs = 120}, "prune", [&](const fs::directory_entry& entry) {
          std::error_code error;
          compiled |= entry.path().extension() == ".so";
          if (entry.path().extension() != ".py" || !entry.is_regular_file(error) || entry.is_symlink(error)) return;
          std::string text;
          if (!read_inside(package.root, entry.path(), text)) return;
          ++package.files_before;
          package.lines_before += lines_in(text);
        });
    if (wanted.empty() && (compiled || kFrameworks.contains(package.name))) continue;
    if (!whole) fail(Code::kBadInput, "prune", package.root.string() + " is too large a folder for a package");
    packages.push_back(std::move(package));
  }
  for (const std::string& name : wanted)
    if (std::none_of(packages.begin(), packages.end(), [&](const auto& package) { return package.name == name; }))
      fail(Code::kNotFound, "prune", "the program does not import a package '" + name + "'",
           {.hint = "lockstep coverage -- PROGRAM shows what it imports"});
  if (packages.empty())
    fail(Code::kNotFound, "prune", "no package that the program imports holds parts of a model",
         {.expected = "folders such as models, pipelines or schedulers", .hint = "--packages NAME"});
}

const PrunedPackage* PrunePlan::package_of(const fs::path& path) const {
  const std::string text = path.string();
  for (const PrunedPackage& package : packages) {
    const std::string root = package.root.string();
    if (text.size() > root.size() + 1 && text.starts_with(root) && text[root.size()] == '/') return &package;
  }
  return nullptr;
}

bool PrunePlan::add(const fs::path& original, const char* why) {
  const fs::path path = original.lexically_normal();
  const PrunedPackage* package = package_of(path);
  if (!package) return false;
  const fs::path inside = path.lexically_relative(package->root);
  const FileName name{package->name, inside.string()};
  if (files.contains(name)) return false;
  if (inside.string().find("__pycache__") != std::string::npos) return false;
  std::string text;
  if (!read_inside(package->root, path, text)) {
    std::error_code error;
    if (fs::exists(path, error) && !fs::is_directory(path, error)) left_links.push_back(path.string());
    return false;
  }
  const bool code = path.extension() == ".py";
  files[name] = {.why = why, .lines_before = code ? lines_in(text) : 0, .code = code};
  // Without it a folder would be taken for another kind of package, and its __init__ never run.
  for (fs::path folder = inside; folder.has_parent_path() && !folder.empty();) {
    folder = folder.parent_path();
    std::error_code error;
    if (fs::is_regular_file(package->root / folder / "__init__.py", error))
      add(package->root / folder / "__init__.py", why);
    if (folder.empty()) break;
  }
  return true;
}

namespace {

// A place in one of the packages, original or copy, as a warning names it: the same in both but for the line's number.
std::string with_like_places(std::string text, const std::vector<fs::path>& folders) {
  for (const fs::path& folder : folders) {
    const std::string start = folder.string() + "/", mark = ".py:";
    for (size_t at = text.find(start); at != std::string::npos; at = text.find(start, at)) {
      text.erase(at, start.size());
      const size_t end = std::min(text.find_first_of(" \n", at), text.size());
      const size_t number = text.find(mark, at) + mark.size();
      if (number <= end && number > mark.size())
        text.erase(number, std::min(text.find_first_not_of("0123456789", number), end) - number);
    }
  }
  return text;
}

// The lines that a run printed, without those that it went back in to write again: a progress bar tells the time it
// took. Sorted, since which of its two streams we read first is chance; by what they say once the folders are alike.
std::string lasting_output(const fs::path& run, const std::vector<fs::path>& folders) {
  constexpr uint64_t kMostOutput = 256 << 20;
  std::error_code error;
  if (!fs::exists(run / "output.log", error)) return {};
  const std::string text = with_like_places(read_text(run / "output.log", kMostOutput), folders);
  std::vector<std::string_view> lines;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size() - 1) + 1;
    std::string_view line(text.data() + from, end - from);
    from = end;
    while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
    if (line.find('\r') == std::string_view::npos && !line.empty()) lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace

std::string first_difference(const fs::path& reference, const fs::path& candidate, const std::vector<fs::path>& folders,
                             int64_t& tensors, bool& output_equal) {
  output_equal = lasting_output(reference, folders) == lasting_output(candidate, folders);
  const Run a = Run::open_path(reference), b = Run::open_path(candidate);
  std::map<std::string, const Record*> others;
  const auto key = [](const Record& record) {
    return to_string(record.key) + " " + std::string(role_name(record.role));
  };
  for (const Record& record : b.records()) others.emplace(key(record), &record);
  tensors = 0;
  for (const Record& record : a.records()) {
    const auto other = others.find(key(record));
    if (other == others.end()) return to_string(record.key) + " is missing";
    const Record& match = *other->second;
    if (record.dtype != match.dtype || record.shape != match.shape)
      return to_string(record.key) + " has another shape or dtype";
    if (record.checksum.empty() || record.checksum != match.checksum)
      return to_string(record.key) + " has other values";
    ++tensors;
  }
  if (b.records().size() != a.records().size()) return "the copy records more tensors";
  if (tensors == 0 && !output_equal) return "what the program prints";
  return {};
}

}  // namespace lockstep
