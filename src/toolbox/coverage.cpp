#include "toolbox/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/file_walk.h"
#include "base/folder.h"
#include "base/interrupt.h"
#include "toolbox/coverage_row.h"

namespace lockstep {
namespace {

constexpr uint64_t kMostBytes = 256 << 20;
constexpr int64_t kFewCalls = 10;
constexpr std::array<std::string_view, 6> kComponents{"text encoder", "transformer", "vae",
                                                      "scheduler",    "pipeline",    "other"};

std::string text_of(const Json& json, const char* field) {
  const auto at = json.find(field);
  return at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
}

int64_t number_of(const Json& json, const char* field) {
  const auto at = json.find(field);
  return at != json.end() && at->is_number_integer() ? at->get<int64_t>() : 0;
}

struct Folders {
  std::set<std::string> packages, python;
  // "" where the path is not below one of them
  static std::string below(const std::set<std::string>& folders, const std::string& path) {
    for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder)  // the longer of two first
      if (path.size() > folder->size() + 1 && path.starts_with(*folder) && path[folder->size()] == '/')
        return path.substr(folder->size() + 1);
    return {};
  }
};

class Merged {
 public:
  // The first line says what the process was; a line each for a file and for a function follow.
  void add(std::string_view lines) {
    ++coverage.processes;
    const Json head = Json::parse(next_line(lines), nullptr, false);
    if (!head.is_object()) return;
    coverage.lines |= head.value("lines", Json(false)) == Json(true);
    for (const auto& [field, folders] :
         {std::pair{"packages", &folders_.packages}, {"python_library", &folders_.python}})
      for (const Json& folder : head.value(field, Json::array()))
        if (folder.is_string()) folders->insert(folder.get<std::string>());
    const fs::path cwd = text_of(head, "cwd");
    const std::string ours = text_of(head, "ours");
    std::unordered_map<std::string, std::string> modules;  // of files
    if (const auto told = head.find("modules"); told != head.end() && told->is_object())
      for (const auto& [path, module] : told->items())
        if (module.is_string()) modules.emplace(path, module.get<std::string>());
    std::unordered_map<int64_t, MergedFile*> numbered;
    while (!lines.empty()) {
      const std::string_view line = next_line(lines);
      if (line.starts_with('[')) {
        std::optional<CoverageRow> row = coverage_row(line);
        const auto file = row ? numbered.find(row->file) : numbered.end();
        if (file != numbered.end()) add_function(*file->second, std::move(*row));
        continue;
      }
      const Json told = Json::parse(line, nullptr, false);
      if (!told.is_object()) continue;
      const std::string name = text_of(told, "path"), path = (cwd / name).lexically_normal().string();
      if (!ours.empty() && path.starts_with(ours)) continue;
      MergedFile& file = files_[path];
      if (const auto module = modules.find(name); file.module.empty() && module != modules.end())
        file.module = module->second;
      numbered[number_of(told, "file")] = &file;
    }
  }

  ProgramCoverage finish() {
    for (auto& [path, merged] : files_) {
      CoveredFile file;
      file.path = path;
      file.module = merged.module;
      std::string inside = Folders::below(folders_.packages, path);
      if (!inside.empty()) {
        file.package = inside.substr(0, inside.find_first_of("/."));
      } else {
        const bool own = Folders::below(folders_.python, path).empty();
        file.package = own ? "program" : "python";
        inside = fs::path(path).filename().string();
      }
      file.component = component_of(inside, file.package);
      for (auto& [place, function] : merged.functions) {
        if (function.name != "<module>") {
          file.functions_run += function.calls > 0;
          file.calls += function.calls;
        }
        file.lines += static_cast<int64_t>(function.lines.size());
        file.lines_run += static_cast<int64_t>(function.lines_run.size());
        file.functions.push_back(std::move(function));
      }
      coverage.files.push_back(std::move(file));
    }
    const auto rank = [](const CoveredFile& file) {
      return std::find(kComponents.begin(), kComponents.end(), file.component) - kComponents.begin();
    };
    std::sort(coverage.files.begin(), coverage.files.end(), [&](const CoveredFile& a, const CoveredFile& b) {
      return std::tuple(rank(a), a.package, a.path) < std::tuple(rank(b), b.package, b.path);
    });
    return std::move(coverage);
  }

  const Folders& folders() const { return folders_; }
  ProgramCoverage coverage;

 private:
  struct MergedFile {
    std::string module;
    std::map<std::pair<int64_t, std::string>, CoveredFunction> functions;
  };

  static void add_function(MergedFile& file, CoverageRow row) {
    const std::string name = row.with_module ? "<module>" : std::move(row.name);
    const int64_t at = row.with_module ? 1 : row.line;
    CoveredFunction& function = file.functions[{at, name}];
    function.name = name;
    function.line = at;
    function.calls = row.with_module ? 1 : function.calls + row.calls;
    join_lines(function.lines_run, std::move(row.lines_run));
    join_lines(function.lines, std::move(row.lines));
  }
  static std::string_view next_line(std::string_view& lines) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    return line;
  }

  Folders folders_;
  std::map<std::string, MergedFile> files_;
};

// What a name is but for the number in it.
std::string without_numbers(const fs::path& path) {
  std::string out;
  for (const char c : path.stem().string())
    if (c != '_' && !(c >= '0' && c <= '9')) out += c;
  return out;
}

// Among the installed files of the same packages.
std::vector<LikeNamed> find_like_named(const ProgramCoverage& coverage, const Folders& folders) {
  std::map<std::string, std::vector<const CoveredFile*>> wanted;  // package → used files of the model
  std::set<std::string> used;
  for (const CoveredFile& file : coverage.files) {
    if (file.used()) used.insert(file.path);
    if (file.used() && file.component != "other" && file.package != "program") wanted[file.package].push_back(&file);
  }
  std::vector<LikeNamed> found;
  for (const auto& [package, files] : wanted) {
    std::multimap<std::string, std::string> others;
    for (const std::string& folder : folders.packages) {
      std::error_code error;
      const fs::path root = fs::path(folder) / package;
      if (!fs::is_directory(root, error)) continue;
      walk_files(root, {.entries = 100'000}, "coverage", [&](const fs::directory_entry& entry) {
        const std::string path = entry.path().string();
        if (entry.path().extension() == ".py" && !used.contains(path))
          others.emplace(without_numbers(entry.path()), path);
      });
    }
    for (const CoveredFile* file : files) {
      if (fs::path(file->path).stem() == "__init__") continue;
      LikeNamed like{file->path, {}};
      const auto [from, to] = others.equal_range(without_numbers(file->path));
      for (auto other = from; other != to; ++other) like.unused.push_back(other->second);
      if (!like.unused.empty()) found.push_back(std::move(like));
    }
  }
  return found;
}

void add_to(CoverageSum& sum, const CoveredFile& file) {
  ++sum.files;
  sum.files_used += file.used();
  for (const CoveredFunction& function : file.functions) sum.functions += function.name != "<module>";
  sum.functions_run += file.functions_run;
  sum.calls += file.calls;
  sum.lines += file.lines;
  sum.lines_run += file.lines_run;
}

std::vector<FunctionPlace> places(const ProgramCoverage& coverage) {
  std::vector<FunctionPlace> all;
  for (const CoveredFile& file : coverage.files)
    if (file.component != "other" || file.package == "program")
      for (const CoveredFunction& function : file.functions)
        if (function.calls > 0 && function.name != "<module>") all.push_back({&file, &function});
  return all;
}

}  // namespace

std::string component_of(std::string_view path_in_package, std::string_view package) {
  // The package's own name says nothing of the part: transformers holds text encoders.
  const size_t slash = path_in_package.find('/');
  std::string path(slash == std::string_view::npos ? path_in_package : path_in_package.substr(slash));
  std::transform(path.begin(), path.end(), path.begin(), ::tolower);
  const auto has = [&](std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return path.find(word) != std::string::npos; });
  };
  if (has({"schedul", "sampler"})) return "scheduler";
  if (has({"autoencoder", "vae"})) return "vae";
  if (has({"text_encoder", "textencoder"}) || (package == "transformers" && has({"/models/"}))) return "text encoder";
  if (has({"pipeline"})) return "pipeline";
  if (package != "transformers" && (has({"transformer"}) || (package == "diffusers" && has({"/models/"}))))
    return "transformer";
  return "other";
}

ProgramCoverage read_coverage(const fs::path& run) {
  Merged merged;
  for (const fs::directory_entry& entry : folder_entries(run / "coverage", "coverage")) {
    check_interrupt("coverage");
    if (entry.path().extension() == ".jsonl") merged.add(read_text(entry.path(), kMostBytes));
  }
  if (merged.coverage.processes == 0)
    fail(Code::kNotFound, "coverage", "nothing is known of what ran in " + run.string(),
         {.expected = "a run of lockstep coverage or record --coverage, of a Python that reads PYTHONPATH",
          .hint = "lockstep coverage -- python script.py"});
  ProgramCoverage coverage = merged.finish();
  coverage.like_named = find_like_named(coverage, merged.folders());
  return coverage;
}

std::vector<CoverageSum> by_component(const ProgramCoverage& coverage) {
  std::vector<CoverageSum> sums;
  for (const std::string_view component : kComponents) {
    CoverageSum sum;
    sum.group = component;
    for (const CoveredFile& file : coverage.files)
      if (file.component == component) add_to(sum, file);
    if (sum.files > 0) sums.push_back(sum);
  }
  return sums;
}

std::vector<CoverageSum> by_package(const ProgramCoverage& coverage) {
  std::map<std::string, CoverageSum> packages;
  for (const CoveredFile& file : coverage.files) {
    CoverageSum& sum = packages[file.package];
    sum.group = file.package;
    add_to(sum, file);
  }
  std::vector<CoverageSum> sums;
  for (auto& [name, sum] : packages) sums.push_back(std::move(sum));
  std::stable_sort(sums.begin(), sums.end(), [](const auto& a, const auto& b) { return a.calls > b.calls; });
  return sums;
}

std::vector<FunctionPlace> busiest(const ProgramCoverage& coverage, size_t most) {
  std::vector<FunctionPlace> all = places(coverage);
  std::erase_if(all, [](const FunctionPlace& place) { return place.function->calls <= kFewCalls; });
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.function->calls > b.function->calls; });
  if (all.size() > most) all.resize(most);
  return all;
}

std::vector<FunctionPlace> cheapest(const ProgramCoverage& coverage, size_t most) {
  // Where a model is at work, not where it is put together.
  static const std::set<std::string> kWork{"forward", "__call__", "call", "encode", "decode", "step", "main"};
  std::vector<FunctionPlace> all = places(coverage);
  std::erase_if(all, [](const FunctionPlace& place) {
    const std::string& name = place.function->name;
    const size_t dot = name.rfind('.');
    return place.function->calls > kFewCalls || !kWork.contains(dot == std::string::npos ? name : name.substr(dot + 1));
  });
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.function->calls < b.function->calls; });
  if (all.size() > most) all.resize(most);
  return all;
}

Json json_from(const ProgramCoverage& coverage) {
  const auto sums = [](const std::vector<CoverageSum>& groups) {
    Json json = Json::array();
    for (const CoverageSum& sum : groups)
      json.push_back({{"group", sum.group},
                      {"files", sum.files},
                      {"files_used", sum.files_used},
                      {"functions", sum.functions},
                      {"functions_run", sum.functions_run},
                      {"calls", sum.calls},
                      {"lines", sum.lines},
                      {"lines_run", sum.lines_run}});
    return json;
  };
  Json files = Json::array(), like = Json::array();
  for (const CoveredFile& file : coverage.files) {
    Json functions = Json::array();
    for (const CoveredFunction& function : file.functions) {
      Json json{{"name", function.name}, {"line", function.line}, {"calls", function.calls}};
      if (coverage.lines) json["lines"] = function.lines, json["lines_run"] = function.lines_run;
      functions.push_back(std::move(json));
    }
    files.push_back({{"path", file.path},
                     {"module", file.module},
                     {"package", file.package},
                     {"component", file.component},
                     {"used", file.used()},
                     {"calls", file.calls},
                     {"functions", std::move(functions)}});
  }
  for (const LikeNamed& named : coverage.like_named) like.push_back({{"used", named.used}, {"unused", named.unused}});
  return {{"schema", "lockstep-coverage-1"},
          {"processes", coverage.processes},
          {"lines", coverage.lines},
          {"components", sums(by_component(coverage))},
          {"packages", sums(by_package(coverage))},
          {"files", std::move(files)},
          {"like_named", std::move(like)}};
}

}  // namespace lockstep
