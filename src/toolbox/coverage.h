// What of a Python program's code really ran: files, functions, calls and lines, as its processes have written them
// (python/lockstep/coverage.py), put together and grouped.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace lockstep {

struct CoveredFunction {
  std::string name;
  int64_t line = 0, calls = 0;
  std::vector<int64_t> lines, lines_run;  // where lines were asked for
};

struct CoveredFile {
  std::string path, module;
  std::string package;    // "diffusers", "python" for its own library, "program" for what is not installed
  std::string component;  // "text encoder", "transformer", "vae", "scheduler", "pipeline" or "other"
  std::vector<CoveredFunction> functions;  // those that never ran too
  int64_t calls = 0, functions_run = 0, lines = 0, lines_run = 0;
  bool used() const { return functions_run > 0; }  // more than imported
};

// A file that ran, and others of its package whose names differ by a number alone: Qwen2_5_VL and not Qwen2VL.
struct LikeNamed {
  std::string used;
  std::vector<std::string> unused;
};

struct ProgramCoverage {
  std::vector<CoveredFile> files;  // by component, package and path
  std::vector<LikeNamed> like_named;
  int64_t processes = 0;
  bool lines = false;
};

// Error{kNotFound} where the run holds none.
ProgramCoverage read_coverage(const fs::path& run);

std::string component_of(std::string_view path_in_package, std::string_view package);

struct CoverageSum {
  std::string group;
  int64_t files = 0, files_used = 0, functions = 0, functions_run = 0, calls = 0, lines = 0, lines_run = 0;
};
std::vector<CoverageSum> by_component(const ProgramCoverage& coverage);
std::vector<CoverageSum> by_package(const ProgramCoverage& coverage);  // most calls first

struct FunctionPlace {
  const CoveredFile* file;
  const CoveredFunction* function;
};
// Of the model's own components: where a breakpoint would stop most often, and where it stops once or a few times.
std::vector<FunctionPlace> busiest(const ProgramCoverage& coverage, size_t most);
std::vector<FunctionPlace> cheapest(const ProgramCoverage& coverage, size_t most);

Json json_from(const ProgramCoverage& coverage);
std::string coverage_markdown(const ProgramCoverage& coverage);
std::string coverage_page(const ProgramCoverage& coverage, const std::string& title);  // one HTML file

}  // namespace lockstep
