// A job of a batch: one line of the jobs' file, what it is called, and whether its output is there whole.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace lockstep {

struct BatchJob {
  std::string id, kind;  // "generate", "edit" or "compare"
  Json fields;           // what is left of the line
  std::string digest;    // of the whole job: a job that was changed is another one
};

// One job from its line. Paths in it are made absolute: who works on it may stand in another folder.
BatchJob job_from(const Json& line, const std::string& default_id, const std::string& origin);
Json json_from(const BatchJob& job);                    // the line again, as a worker is given it
std::vector<BatchJob> read_jobs(const fs::path& path);  // Error{kBadInput} names the line; ids must differ

// DIR/ID.json is written last, when everything that it names is there; until then a job is not done.
fs::path result_file(const fs::path& output, const std::string& id);
std::optional<Json> whole_result(const fs::path& output, const BatchJob& job);
void remove_unfinished_files(const fs::path& output);  // of workers that were killed while they wrote

}  // namespace lockstep
