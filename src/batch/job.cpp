#include "batch/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/folder.h"
#include "base/sha256.h"
#include "base/strict_stream.h"
#include "service/service.h"

namespace lockstep {
namespace {

constexpr uint64_t kMostJobsFileBytes = 1ull << 30;
constexpr size_t kMostIdCharacters = 100;

bool is_id(const std::string& text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  return !text.empty() && text.size() <= kMostIdCharacters && text[0] != '.' &&
         std::all_of(text.begin(), text.end(), fits);
}

Json absolute(const Json& value) {
  if (value.is_string()) return fs::absolute(value.get<std::string>()).lexically_normal().string();
  Json all = Json::array();
  if (value.is_array())
    for (const Json& one : value) all.push_back(absolute(one));
  return value.is_array() ? all : value;
}

// A run may be named by its folder, its id or as latest:NAME; only the first is a path.
void make_paths_absolute(const std::string& kind, Json& fields) {
  std::vector<std::string> paths{"image", "mask", "model"};
  if (kind == "compare") {
    paths.clear();
    for (const Argument& argument : known_operation("compare").arguments)
      if (argument.path) paths.push_back(argument.name);
    for (const char* run : {"reference", "candidate", "noise"}) {
      const auto found = fields.find(run);
      std::error_code error;
      if (found != fields.end() && found->is_string() && fs::is_directory(found->get<std::string>(), error))
        paths.emplace_back(run);
    }
  }
  for (const std::string& name : paths)
    if (fields.contains(name)) fields[name] = absolute(fields[name]);
}

std::string text_of(const Json& line, const char* name, const std::string& origin) {
  const auto found = line.find(name);
  if (found == line.end() || !found->is_string())
    fail(Code::kBadInput, "batch", origin + ": " + name + " is no text",
         {.got = found == line.end() ? "nothing" : found->type_name()});
  return found->get<std::string>();
}

std::string hex_digest(const std::string& text) {
  std::string hex;
  for (const uint8_t byte : sha256(text)) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace

BatchJob job_from(const Json& line, const std::string& default_id, const std::string& origin) {
  if (!line.is_object()) fail(Code::kBadInput, "batch", origin + " is no JSON object", {.got = line.type_name()});
  BatchJob job;
  job.kind = text_of(line, "kind", origin);
  if (job.kind != "generate" && job.kind != "edit" && job.kind != "compare")
    fail(Code::kBadInput, "batch", origin + ": there is no such kind of job",
         {.expected = "generate, edit or compare", .got = "'" + job.kind + "'"});
  job.id = line.contains("id") ? text_of(line, "id", origin) : default_id;
  if (!is_id(job.id))
    fail(Code::kBadInput, "batch", origin + ": the id cannot be a file's name",
         {.expected = "1 to 100 letters, digits, dots, dashes and underscores, no dot first",
          .got = "'" + job.id + "'"});
  job.fields = line;
  job.fields.erase("id");
  job.fields.erase("kind");
  make_paths_absolute(job.kind, job.fields);
  job.digest = hex_digest(json_from(job).dump(-1, ' ', false, Json::error_handler_t::replace));
  return job;
}

Json json_from(const BatchJob& job) {
  Json line{{"id", job.id}, {"kind", job.kind}};
  for (const auto& [name, value] : job.fields.items()) line[name] = value;
  return line;
}

std::vector<BatchJob> read_jobs(const fs::path& path) {
  std::vector<BatchJob> jobs;
  std::set<std::string> ids;
  std::istringstream lines = strict_text(read_text(path, kMostJobsFileBytes));
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string origin = fmt::format("{}, line {}", path.string(), number);
    jobs.push_back(job_from(parse_json(line, origin), fmt::format("{:06d}", number), origin));
    if (!ids.insert(jobs.back().id).second)
      fail(Code::kBadInput, "batch", origin + ": the id '" + jobs.back().id + "' was used before");
  }
  return jobs;
}

fs::path result_file(const fs::path& output, const std::string& id) {
  return output / (id + ".json");
}

std::optional<Json> whole_result(const fs::path& output, const BatchJob& job) {
  const fs::path file = result_file(output, job.id);
  std::error_code error;
  if (!fs::exists(file, error)) return std::nullopt;
  try {
    Json result = read_json(file);
    if (result.value("digest", "") != job.digest) return std::nullopt;
    for (const Json& made : result.at("files")) {
      const uintmax_t bytes = fs::file_size(output / made.at("file").get<std::string>(), error);
      if (error || bytes != made.at("bytes").get<uintmax_t>()) return std::nullopt;
    }
    return result;
  } catch (const Error& unreadable) {
    if (system_refused(unreadable)) throw;
  } catch (const Json::exception&) {  // a file of that name which is not ours
  }
  return std::nullopt;
}

void remove_unfinished_files(const fs::path& output) {
  for (const fs::directory_entry& entry : folder_entries(output, "batch")) {
    const std::string name = entry.path().filename().string();
    const size_t mark = name.rfind(".tmp-");
    std::error_code error;
    if (mark != std::string::npos && name.find_first_not_of("0123456789-", mark + 5) == std::string::npos)
      fs::remove(entry.path(), error);
  }
}

}  // namespace lockstep
