#include "capture/run_manifest.h"

#include "base/platform/executable.h"
#include "capture/run_folder.h"
#include "capture/store.h"

namespace lockstep {
namespace {

// What `lockstep record` knows of the program it starts, for a program that opens its run itself.
Json this_program() {
  Json argv = Json::array();
  for (const std::string& word : own_command_line()) argv.push_back(word);
  std::error_code error;
  const fs::path cwd = fs::current_path(error);
  return {{"argv", std::move(argv)}, {"cwd", error ? Json() : Json(cwd.string())}, {"exit_code", nullptr}};
}

}  // namespace

Json new_manifest(const std::string& name, const std::string& id, const Json& details) {
  Json manifest{{"format", "lockstep-run"},
                {"version", 1},
                {"id", id},
                {"name", name},
                {"created", utc_now()},
                {"finished", nullptr},
                {"status", "running"},
                {"program", this_program()}};
  merge_into(manifest, details);
  return manifest;
}

}  // namespace lockstep
