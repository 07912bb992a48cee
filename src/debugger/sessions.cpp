#include "debugger/sessions.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "base/error.h"
#include "base/folder.h"
#include "base/names.h"

namespace lockstep {
namespace {

constexpr size_t kMostEnded = 50;
constexpr size_t kMostAdopted = 1000;  // folders that are looked into

std::string safe(const std::string& name) {
  std::string out;
  for (const char c : name.substr(0, 60))
    out += std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' ? c : '_';
  return out.empty() || out[0] == '.' ? "_" + out : out;
}

std::string timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &utc);
  return text;
}

std::vector<std::string> folders_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : folder_entries(folder, "debug"))
    if (entry.is_directory(error)) names.push_back(entry.path().filename().string());
  std::sort(names.rbegin(), names.rend());  // the names begin with the time
  return names;
}

Json earlier_record(const fs::path& folder) {
  Json record;
  try {
    record = read_json(folder / "session.json", 16 << 20);
  } catch (const Error& error) {
    if (system_refused(error)) throw;
    record = {{"session", folder.filename().string()}, {"id", folder.filename().string()}, {"state", "unknown"}};
  }
  if (!record.is_object()) record = Json::object();
  if (record.value("state", Json("")) != Json("ended")) record["state"] = "lost";  // and too old to be adopted
  record.erase("process_start_ticks");
  return record;
}

}  // namespace

SessionIdentity Sessions::new_identity(const SessionRequest& request) const {
  const auto taken = [this](const std::string& name) {
    return std::any_of(sessions_.begin(), sessions_.end(),
                       [&](const auto& session) { return session->identity().name == name && session->live(); });
  };
  SessionIdentity identity;
  identity.name = request.name.empty() ? program_name(request) : request.name;
  if (taken(identity.name)) {
    if (!request.name.empty())
      fail(Code::kConflict, "start", "a session named " + request.name + " is live",
           {.hint = "another --name, or debug terminate --session " + request.name});
    const std::string base = identity.name;
    for (int i = 2; taken(identity.name); ++i) identity.name = base + "-" + std::to_string(i);
  }
  std::error_code error;
  fs::create_directories(folder(), error);
  const std::string base = timestamp() + "-" + safe(identity.name);
  for (int i = 1; i < 10000; ++i) {
    identity.id = i == 1 ? base : base + "-" + std::to_string(i);
    identity.folder = fs::absolute(folder() / identity.id);
    if (::mkdir(identity.folder.c_str(), 0700) == 0) return identity;
    if (errno != EEXIST) break;
  }
  fail(Code::kIo, "start", "cannot make a folder in " + folder().string());
}

std::shared_ptr<Session> Sessions::start(SessionRequest request) {
  const std::lock_guard lock(mutex_);
  if (sessions_.size() >= 4 * kMostEnded)
    fail(Code::kMemory, "start", "too many live sessions", {.hint = "debug terminate those that are done"});
  const SessionIdentity identity = new_identity(request);
  std::shared_ptr<Session> session;
  try {
    session = std::make_shared<Session>(identity, std::move(request));
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(identity.folder, ignored);  // nothing ran, so there is nothing to keep
    throw;
  }
  sessions_.push_back(session);
  drop_old();
  return session;
}

void Sessions::drop_old() {
  size_t ended = 0;
  for (size_t i = sessions_.size(); i-- > 0;)
    if (!sessions_[i]->live() && ++ended > kMostEnded)
      sessions_.erase(sessions_.begin() + static_cast<std::ptrdiff_t>(i));
}

void Sessions::adopt_earlier() {
  std::vector<std::string> names = folders_in(folder());
  if (names.size() > kMostAdopted) names.resize(kMostAdopted);
  std::reverse(names.begin(), names.end());
  const std::lock_guard lock(mutex_);
  for (const std::string& name : names) try {
      const fs::path left = fs::absolute(folder() / name);
      const Json record = read_json(left / "session.json", 64 << 20);
      if (!record.is_object() || record.value("state", Json("")) == Json("ended")) continue;
      const Json called = record.value("session", Json(name));
      const SessionIdentity identity{name, called.is_string() ? called.get<std::string>() : name, left};
      sessions_.push_back(std::make_shared<Session>(identity,
                                                    request_from(record.value("request", Json::object()), home_),
                                                    record, trace_state(left / "trace.jsonl")));
    } catch (const Error&) {  // a folder without a record: nothing ran
    }
}

std::shared_ptr<Session> Sessions::restart(const std::string& spec, const Environment& environment, bool count_calls) {
  const std::shared_ptr<Session> before = find(spec);
  before->terminate(false);
  SessionRequest request = before->request();
  if (request.environment.empty()) request.environment = environment;
  request.name = before->identity().name;
  request.count_calls |= count_calls;
  request.breakpoints = before->remembered_breakpoints();
  return start(std::move(request));
}

std::shared_ptr<Session> Sessions::known(const std::string& spec) const {
  std::shared_ptr<Session> session = named(spec);
  if (session) session->wait_for_return();
  return session;
}

std::shared_ptr<Session> Sessions::named(const std::string& spec) const {
  const std::lock_guard lock(mutex_);
  if (spec.empty()) return sessions_.empty() ? nullptr : sessions_.back();
  for (size_t i = sessions_.size(); i-- > 0;)
    if (sessions_[i]->identity().name == spec || sessions_[i]->identity().id == spec) return sessions_[i];
  std::shared_ptr<Session> found;
  for (const auto& session : sessions_)
    if (session->identity().id.starts_with(spec)) {
      if (found) fail(Code::kBadInput, "session", "'" + spec + "' begins several ids", {.hint = "debug sessions"});
      found = session;
    }
  return found;
}

std::shared_ptr<Session> Sessions::find(const std::string& spec) const {
  if (auto session = known(spec)) return session;
  if (spec.empty()) fail(Code::kNotFound, "session", "there is no session", {.hint = "debug start SCRIPT"});
  std::vector<std::string> names;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& session : sessions_) names.push_back(session->identity().name);
  }
  const std::vector<std::string> near = nearest_names(spec, names, 1);
  fail(Code::kNotFound, "session", "there is no live session '" + spec + "'",
       {.hint = near.empty() ? "debug sessions" : near[0]});
}

fs::path Sessions::folder_of(const std::string& spec) const {
  if (const auto session = known(spec)) return session->identity().folder;
  for (const std::string& name : folders_in(folder()))
    if (spec.empty() || name == spec || (name.starts_with(spec) && spec.size() >= 15)) return folder() / name;
  // By the name it had: the newest that carries it.
  for (const std::string& name : folders_in(folder()))
    if (name.size() > 16 && name.substr(16) == safe(spec)) return folder() / name;
  std::vector<std::string> names;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& session : sessions_) names.push_back(session->identity().name);
  }
  const std::vector<std::string> near = nearest_names(spec, names, 1);
  fail(Code::kNotFound, "session", spec.empty() ? "there is no session" : "there is no session '" + spec + "'",
       {.hint = near.empty() ? "debug sessions, or debug start SCRIPT" : near[0]});
}

Json Sessions::record_of(const std::string& spec) const {
  if (const auto session = known(spec)) return session->status();
  Json record = earlier_record(folder_of(spec));
  record.erase("report");
  record.erase("request");
  return record;
}

Json Sessions::list(size_t most, size_t& total) const {
  Json all = Json::array();
  const std::vector<std::string> names = folders_in(folder());
  total = names.size();
  for (const std::string& name : names) {
    if (all.size() >= most) break;
    Json record = record_of(name), brief = Json::object();
    for (const char* field : {"session", "id", "state", "program", "pid", "secs"})
      if (record.contains(field)) brief[field] = record[field];
    if (record.contains("end") && record["end"].is_object())
      brief["ended"] = record["end"].value("description", Json(""));
    all.push_back(std::move(brief));
  }
  return all;
}

size_t Sessions::live() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::count_if(sessions_.begin(), sessions_.end(), [](const auto& s) { return s->live(); }));
}

void Sessions::forget(const std::string& spec) {
  const fs::path folder = folder_of(spec);
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(sessions_.begin(), sessions_.end(),
                                    [&](const auto& session) { return session->identity().folder == folder; });
    if (found != sessions_.end()) {
      if ((*found)->live()) fail(Code::kConflict, "forget", "the session is live", {.hint = "debug terminate"});
      sessions_.erase(found);
    }
  }
  // The session's own thread may still write its last lines, and a folder that is not empty stays.
  constexpr int kAttempts = 50;
  constexpr auto kPause = std::chrono::milliseconds(2);
  std::error_code error;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    fs::remove_all(folder, error);
    if (!error) return;
    std::this_thread::sleep_for(kPause);
  }
}

void Sessions::terminate_all() {
  std::vector<std::shared_ptr<Session>> all;
  {
    const std::lock_guard lock(mutex_);
    all = sessions_;
  }
  for (const auto& session : all) session->terminate(true);
}

}  // namespace lockstep
