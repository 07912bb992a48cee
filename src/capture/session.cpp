#include "capture/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"

namespace lockstep {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_yes(const std::string& value) {
  return !value.empty() && value != "0" && value != "false" && value != "no";
}

uint64_t size_setting(const char* name, uint64_t otherwise) {
  const std::string text = environment(name);
  if (text.empty()) return otherwise;
  const std::optional<uint64_t> bytes = bytes_from_text(text);
  if (!bytes)
    fail(Code::kUsage, "environment", std::string(name) + " is not a size",
         {.expected = "such as 500MB", .got = "'" + text.substr(0, 40) + "'"});
  return *bytes;
}

}  // namespace

std::vector<std::string> globs_from_text(std::string_view text) {
  std::vector<std::string> globs;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    if (comma != 0) globs.emplace_back(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return globs;
}

std::optional<SessionSettings> settings_from_environment(std::string_view default_name) {
  const std::string record = environment("LOCKSTEP_RECORD"), attach = environment("LOCKSTEP_RUN");
  SessionSettings settings;
  settings.reference = environment("LOCKSTEP_REFERENCE");
  settings.substitute = globs_from_text(environment("LOCKSTEP_SUBSTITUTE"));
  settings.record = is_yes(record) || (record.empty() && !attach.empty());
  const bool substitutes = !settings.reference.empty() && !settings.substitute.empty();
  if (!settings.record && !substitutes) return std::nullopt;
  settings.attach = attach;
  settings.rank = rank_from_environment();
  settings.run.home = home_folder();
  settings.run.name = record.empty() || record == "1" || record == "true" ? std::string(default_name) : record;
  settings.run.stats_only = is_yes(environment("LOCKSTEP_STATS_ONLY"));
  settings.run.full = globs_from_text(environment("LOCKSTEP_FULL"));
  settings.run.budget_bytes = size_setting("LOCKSTEP_BUDGET", settings.run.budget_bytes);
  settings.run.buffer_bytes = size_setting("LOCKSTEP_BUFFER", settings.run.buffer_bytes);
  settings.filter.tap = globs_from_text(environment("LOCKSTEP_TAP"));
  settings.filter.no_tap = globs_from_text(environment("LOCKSTEP_NO_TAP"));
  settings.filter.steps = steps_from_text(environment("LOCKSTEP_STEPS"));
  return settings;
}

namespace {

std::unique_ptr<RunWriter> attached(const SessionSettings& settings) {
  if (settings.attach.empty()) return nullptr;
  if (!settings.rank) return RunWriter::attach(settings.attach, settings.run);
  RunOptions own = settings.run;
  own.details["pid"] = ::getpid();  // for `lockstep record`, which wants to know who ended first
  return RunWriter::attach(make_rank_folder(settings.attach, *settings.rank), own);
}

}  // namespace

std::unique_ptr<CaptureSession> CaptureSession::open(const SessionSettings& settings) {
  std::unique_ptr<CaptureSession> session(new CaptureSession);
  // The reference first: opened later, "latest" would mean the run that is just beginning.
  if (!settings.reference.empty())
    session->reference_ = std::make_unique<Run>(Run::open(settings.reference, settings.run.home));
  if (settings.record) {
    session->writer_ = attached(settings);
    if (!session->writer_) {
      RunOptions own = settings.run;
      // A child of the recorded program finds the run taken and gets one of its own. Not by the same name: the latest
      // run of that name is the program's.
      if (!settings.attach.empty()) own.name += ".child";
      // Without `lockstep record` the ranks have no run in common: each has its own, and none takes another's name.
      if (settings.rank && settings.attach.empty()) {
        own.name += fmt::format(".rank{}", settings.rank->rank);
        own.details["rank"] = settings.rank->rank, own.details["world"] = settings.rank->world;
      }
      session->writer_ = RunWriter::create(own);
    }
  }
  TapOptions options;
  options.filter = settings.filter;
  options.reference = session->reference_.get();
  options.substitute = settings.substitute;
  session->tap_ = std::make_unique<RecordingTap>(session->writer_.get(), std::move(options));
  return session;
}

void CaptureSession::close(std::string_view status) {
  if (writer_) writer_->close(status);
}

}  // namespace lockstep
