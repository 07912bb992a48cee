#include "compare/run_model.h"

#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"

namespace lockstep {
namespace {

std::string text_of(const Json& object, const char* name) {
  return object.is_object() && object.contains(name) && object[name].is_string() ? object[name].get<std::string>() : "";
}

}  // namespace

std::shared_ptr<const WeightSource> weights_of_run(const RunView& run) {
  if (run.weights) return run.weights;  // what the program really had in its hands
  const std::string model = text_of(run.header, "model");
  if (model.empty()) return nullptr;
  fs::path path = model;
  if (path.is_relative() && run.header.contains("program"))
    path = fs::path(text_of(run.header["program"], "cwd")) / path;
  std::error_code error;
  if (!path.is_absolute() || !fs::exists(path, error)) return nullptr;
  try {
    return open_weights(path);
  } catch (const Error& error) {  // found by ourselves: where it cannot be read, the comparison does without
    if (system_refused(error)) throw;
    return nullptr;
  }
}

}  // namespace lockstep
