// lockstep jobs: the image server's jobs, one subcommand a row of the operations table, and `watch`, which follows
// them.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "capture/store.h"
#include "cli/app.h"
#include "cli/operation_options.h"
#include "cli/table.h"
#include "client/service_process.h"

namespace lockstep {
namespace {

class TerminalWait : public CallControl {
 public:
  bool cancelled() const override { return interrupted(); }
};

std::string text_in(const Json& object, const char* name) {
  return object.is_object() && object.contains(name) && object[name].is_string() ? object[name].get<std::string>()
                                                                                 : std::string();
}

// "denoise 4/20, 1.2 s to go", "place 3, 8.0 s to go"
std::string way_of(const Json& job) {
  std::string way;
  if (const Json progress = job.value("progress", Json::object()); progress.contains("stage")) {
    way = text_in(progress, "stage");
    if (progress.value("steps", 0) > 0)
      way += fmt::format(" {}/{}", progress.value("step", 0), progress["steps"].dump());
  } else if (job.contains("position")) {
    way = "place " + job["position"].dump();
  } else if (job.contains("error") && job["error"].is_object()) {
    way = text_in(job["error"], "message");
  }
  if (job.contains("eta_s"))
    way += fmt::format("{}{:.1f} s to go", way.empty() ? "" : ", ", job["eta_s"].get<double>());
  return way;
}

void print_job(const ServiceProcess& service, const Json& job) {
  print("{}  {}", text_in(job, "id"), text_in(job, "status"));
  if (const std::string way = way_of(job); !way.empty()) print("  {}", way);
  print("\n");
  for (const Json& image : job.value("images", Json::array()))
    print("  seed {}  http://{}:{}{}\n", image.value("seed", Json()).dump(), service.target.host, service.target.port,
          text_in(image, "url"));
}

void show(const App& app, const ServiceProcess& service, const Operation& operation, const Json& result) {
  if (app.global.json) return print_json(result);
  if (operation.name != "jobs list") return print_job(service, result);
  Table table({{"job"}, {"status"}, {"type"}, {"model"}, {"pictures", Table::Align::kRight}, {"how far"}});
  for (const Json& job : result["data"])
    table.add({text_in(job, "id"), text_in(job, "status"), text_in(job, "type"), text_in(job, "model"),
               job.value("n", Json()).dump(), way_of(job)});
  if (result["data"].empty())
    print("no jobs\n");
  else
    print(table.text(Terminal(app.global)));
}

bool has_ended(const Json& job) {
  const std::string status = text_in(job, "status");
  return status != "queued" && status != "running";
}

const Operation& operation_called(const std::string& name) {
  for (const Operation& operation : operations())
    if (operation.name == name) return operation;
  fail(Code::kInternal, "jobs", "the table has no " + name);
}

// What happens to a job until it has ended, or to all of them until Ctrl-C.
void watch_jobs(App& app, const std::string& id) {
  const ServiceProcess service = ensure_service(home_folder(app.global.home));
  const Operation& look = operation_called("jobs show");
  TerminalWait control;
  const auto job_now = [&] { return call_service(service, look, {{"id", id}}, control); };
  if (!id.empty()) job_now();  // one that there is not is said at once
  bool ended = false;
  const auto use = [&](const std::string& topic, const Json& event) {
    if (topic.empty())
      return !(ended = !id.empty() && has_ended(job_now()));  // the stream stands: nothing is missed now
    if (topic == "job.preview" || (!id.empty() && text_in(event, "id") != id)) return true;
    if (app.global.json) {
      Json line{{"event", topic}};
      line.update(event);
      print_json(line);
    } else {
      Json shown = event;
      if (event.contains("stage")) shown["progress"] = event;
      print("{}  {}  {}\n", text_in(event, "id"), topic.substr(topic.find('.') + 1), way_of(shown));
    }
    flush_output();
    ended = !id.empty() && (topic == "job.completed" || topic == "job.failed" || topic == "job.cancelled");
    return !ended;
  };
  const bool answered = follow_events(service, "/v1/events", use, [] { return interrupted(); });
  if (!ended) {
    check_interrupt("jobs watch");
    fail(Code::kIo, "jobs watch", answered ? "the service has ended" : "the service does not answer",
         {.hint = "lockstep serve"});
  }
  if (id.empty()) return;
  const Json job = job_now();
  if (!app.global.json) print_job(service, job);
  if (text_in(job, "status") != "completed") app.status = 1;
}

void run_row(App& app, const Operation& operation, const GivenWords& given) {
  const Json arguments = arguments_from(operation, given);
  checked_arguments(operation, arguments);  // what is wrong is said before anything is started
  TerminalWait control;
  const ServiceProcess service = ensure_service(home_folder(app.global.home));
  show(app, service, operation, call_service(service, operation, arguments, control));
}

}  // namespace

void add_jobs(App& app) {
  CLI::App* group = app.cli.add_subcommand("jobs", "request, show, follow and cancel pictures drawn by the service");
  group->require_subcommand(1);
  group->footer("lockstep jobs create --prompt 'three green stars'\nlockstep jobs list\nlockstep jobs watch ID");
  for (const Operation& operation : operations()) {
    if (!operation.name.starts_with("jobs ")) continue;
    CLI::App* command = group->add_subcommand(operation.name.substr(operation.name.find(' ') + 1), operation.help);
    std::string examples;
    for (const std::string& example : operation.examples) examples += (examples.empty() ? "" : "\n") + example;
    command->footer(examples);
    auto given = std::make_shared<GivenWords>();
    add_arguments(*command, operation, *given);
    command->callback([&app, &operation, given] { run_row(app, operation, *given); });
  }
  CLI::App* watch = group->add_subcommand("watch", "follow a job to its end, or all of them until Ctrl-C");
  watch->footer("lockstep jobs watch ID\nlockstep jobs watch");
  auto id = std::make_shared<std::string>();
  watch->add_option("ID", *id, "a job (default: all)");
  watch->callback([&app, id] { watch_jobs(app, *id); });
}

}  // namespace lockstep
