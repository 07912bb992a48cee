#include "zoom/rerun.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/new_folder.h"
#include "base/text.h"
#include "capture/recorded_program.h"

namespace lockstep::zoom {
namespace {

bool fits(const Tape& tape, const Call& call) {
  return tape.call == call.module && (call.step < 0 || tape.step == call.step) &&
         (call.hit < 0 || tape.hit == call.hit) && (call.pass.empty() || tape.pass == call.pass);
}

std::optional<Tape> recorded_tape(const fs::path& run, const Call& call) {
  std::error_code error;
  if (!fs::exists(run / "operations.jsonl", error)) return std::nullopt;
  for (Tape& tape : read_tapes(run))
    if (fits(tape, call)) return std::move(tape);
  return std::nullopt;
}

std::vector<std::string> words_in(const Json& list) {
  std::vector<std::string> out;
  for (const Json& word : list)
    if (word.is_string()) out.push_back(word);
  return out;
}

std::string part(int64_t number) {
  return number < 0 ? "" : std::to_string(number);
}

// How the run's program was started. The engine's own operations are not traced: it makes what the official pipeline
// makes, so that one is run in its place, where it is the reference.
RecordRequest request_from(const Run& run, const Call& call) {
  const Json program = run.manifest().value("program", Json::object());
  RecordRequest request;
  if (const auto official = official_in_place_of(run)) {
    request.argv = *official;
    return request;
  }
  if (const auto at = program.find("argv"); at != program.end() && at->is_array()) request.argv = words_in(*at);
  const std::string language = run.manifest().value("producer", Json::object()).value("language", std::string());
  if (request.argv.empty() || (!language.empty() && language != "python"))
    fail(Code::kUnsupported, "zoom", "run " + run.id() + " cannot be run again with its operations traced",
         {.expected = "a Python program recorded with 'lockstep record' or 'lockstep reference'",
          .hint = "lockstep record --operations '" + call.module + "' -- your program"});
  if (const auto at = program.find("cwd"); at != program.end() && at->is_string()) request.cwd = at->get<std::string>();
  std::error_code error;
  if (!request.cwd.empty() && !fs::is_directory(request.cwd, error))
    fail(Code::kNotFound, "zoom", "the folder that run " + run.id() + " was recorded in is gone",
         {.got = request.cwd.string()});
  return request;
}

Tape traced_again(const Run& run, const Call& call, const fs::path& feed, const fs::path& home, bool quiet) {
  // A program that asks for this itself would be started without end.
  if (std::getenv("LOCKSTEP_OPERATIONS_END"))
    fail(Code::kUnsupported, "zoom", "this program was started by zoom itself",
         {.hint = "recording with --operations '" + call.module + "', so that nothing is run again"});
  RecordRequest request = request_from(run, call);
  request.home = home;
  request.name = run.name() + ".zoom";
  request.modules = call.module;
  request.operations = call.module;
  request.operations_at = fmt::format("{}:{}:{}", part(call.step), part(call.hit), call.pass);
  request.operations_feed = feed.string();
  request.operations_end = true;
  request.inputs = true;
  request.stats_only = true;
  request.output_to_stderr = true;
  request.quiet = true;
  if (!quiet)
    print_error("lockstep: running {} again, {} {}\n", run.name(),
                feed.empty() ? "tracing" : "with the reference's inputs for", call.module);
  const RecordOutcome outcome = record_program(request);
  if (auto tape = recorded_tape(outcome.run, call)) return std::move(*tape);
  fail(Code::kNotFound, "zoom",
       fmt::format("the program of run {} ran again ({}), but {} was not called as before", run.id(), outcome.status,
                   call.module),
       {.hint = "its output: " + (outcome.run / "output.log").string()});
}

}  // namespace

std::optional<std::vector<std::string>> official_in_place_of(const Run& run) {
  const auto at = run.manifest().find("official");
  if (at == run.manifest().end() || !at->is_array() || at->empty()) return std::nullopt;
  std::vector<std::string> argv = words_in(*at);
  argv.insert(argv.begin(), (python_package_folder() / "lockstep" / "reference.py").string());
  return argv;
}

Tape tape_of(const Run& run, const Call& call, const fs::path& home, bool quiet) {
  if (auto tape = recorded_tape(run.path(), call)) return std::move(*tape);
  return traced_again(run, call, {}, home, quiet);
}

Tape tape_given(const Run& run, const Call& call, const std::vector<FedInput>& inputs, const fs::path& home,
                bool quiet) {
  request_from(run, call);  // says why it cannot be run again before anything is written
  const TemporaryFolder folder(home, "feed-", "zoom");
  write_fed_inputs(inputs, folder.path());
  return traced_again(run, call, folder.path(), home, quiet);
}

}  // namespace lockstep::zoom
