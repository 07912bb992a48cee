#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/folder.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/text.h"
#include "capture/run_reader.h"
#include "capture/store.h"
#include "cli/app.h"
#include "service/run_json.h"
#include "service/toolbox_question.h"

namespace lockstep {
namespace {

void list_runs(const App& app) {
  const Store store(home_folder(app.global.home));
  const std::vector<RunSummary> runs = store.list();
  if (app.global.json) {
    print_json(runs_json(store));
    return;
  }
  if (runs.empty()) {
    print("no runs in {}\n", store.home().string());
    return;
  }
  size_t widest = 4;
  for (const RunSummary& run : runs) widest = std::max(widest, std::min<size_t>(run.name.size(), 40));
  print("{:<24} {:<{}} {:<9} {:<20} {:>9}\n", "id", "name", widest, "status", "created", "size");
  for (const RunSummary& run : runs)
    print("{:<24} {:<{}} {:<9} {:<20} {:>9}{}\n", run.id, run.name.substr(0, 40), widest, run.status,
          run.created.substr(0, 19), text_from_bytes(folder_bytes(run.path)), run.archived ? "  archived" : "");
}

// Do the files still hold what was captured? {"tensors": N, "bad": [...], "dropped_records": N}
Json verified(const Run& run) {
  int64_t tensors = 0;
  Json bad = Json::array();
  for (const Record& record : run.records()) {
    if (!run.has_values(record)) continue;
    check_interrupt("verify");
    ++tensors;
    bool good = false;
    try {
      good = run.checksum_matches(record);
    } catch (const Error& error) {  // a file that is gone, cut or foreign
      if (system_refused(error)) throw;
    }
    if (!good) bad.push_back(to_string(record.key));
  }
  return {{"tensors", tensors}, {"bad", bad}, {"dropped_records", run.skipped_lines()}};
}

void print_ranks(const Json& manifest) {
  const auto ranks = manifest.find("ranks");
  if (ranks == manifest.end() || !ranks->is_array()) return;
  for (const Json& rank : *ranks)
    print("rank {:<4} {}, {} records\n", rank["rank"].get<int>(), rank["status"].get<std::string>(),
          rank["records"].get<int64_t>());
}

void show_run(App& app, const std::string& spec, bool verify) {
  const Run run = Run::open(spec, home_folder(app.global.home));
  const Json summary = run_summary(run), found = verify ? verified(run) : Json();
  if (verify && (!found["bad"].empty() || run.skipped_lines() > 0)) app.status = 1;
  if (app.global.json) {
    Json document = run_json(run);
    if (verify) document["verified"] = found;
    print_json(document);
    return;
  }
  print("{}  {}  {}\n{}\n", run.id(), run.name(), run.status(), run.path().string());
  for (const char* field : {"created", "finished", "program", "producer", "model", "settings", "versions", "aliases"}) {
    const auto at = run.manifest().find(field);
    if (at == run.manifest().end() || at->is_null() || (at->is_object() && at->empty())) continue;
    const std::string text =
        at->is_string() ? at->get<std::string>() : at->dump(-1, ' ', false, Json::error_handler_t::replace);
    print("{:<9} {}\n", field, text.size() > 300 ? text.substr(0, 300) + " ..." : text);
  }
  print_ranks(run.manifest());
  print("{} records, {} kept in full, {} with NaN or infinities, {}\n", summary["records"].get<int64_t>(),
        summary["full_tensors"].get<int64_t>(), summary["not_finite"].get<int64_t>(),
        text_from_bytes(summary["bytes"].get<uint64_t>()));
  if (run.skipped_lines() > 0) print("{} lines of records.jsonl are torn or malformed\n", run.skipped_lines());
  if (!verify) return;
  const size_t bad = found["bad"].size();
  print("{} of {} tensors hold the values of their capture\n",
        found["tensors"].get<int64_t>() - static_cast<int64_t>(bad), found["tensors"].get<int64_t>());
  for (size_t i = 0; i < std::min<size_t>(bad, 20); ++i) print("  not {}\n", found["bad"][i].get<std::string>());
}

void remove_runs(const App& app, const std::vector<std::string>& specs) {
  const Store store(home_folder(app.global.home));
  std::vector<fs::path> paths;  // all are found before the first is removed
  for (const std::string& spec : specs) paths.push_back(store.resolve(spec));
  uint64_t freed = 0;
  Json removed = Json::array();
  for (const fs::path& path : paths) {
    freed += store.remove(path);
    removed.push_back(path.filename().string());
  }
  if (app.global.json)
    print_json(Json{{"removed", removed}, {"bytes", freed}});
  else
    print("removed {}, {} freed\n", removed.size(), text_from_bytes(freed));
}

void archive_runs(const App& app, const std::vector<std::string>& specs) {
  const Store store(home_folder(app.global.home));
  std::vector<fs::path> paths;
  for (const std::string& spec : specs) paths.push_back(store.resolve(spec));
  Json archived = Json::array();
  for (const fs::path& path : paths) {
    store.archive(path);
    archived.push_back(path.filename().string());
  }
  if (app.global.json)
    print_json(Json{{"archived", archived}});
  else
    print("archived {}\n", archived.size());
}

void show_or_set_limits(const App& app, const std::string& warn, const std::string& refuse) {
  const Json limits = limits_json(home_folder(app.global.home), warn, refuse);
  const auto size = [&](const char* name) { return text_from_bytes(limits[name].get<uint64_t>()); };
  if (app.global.json)
    print_json(limits);
  else
    print("{} used; warning at {}, no more full tensors at {}\n", size("used_bytes"), size("warn_bytes"),
          size("refuse_bytes"));
}

}  // namespace

void add_runs(App& app) {
  CLI::App* command =
      app.cli.add_subcommand("runs", "manage the run store: list, show, health, remove, archive, limits");
  command->require_subcommand(1);
  command->footer("lockstep runs list\nlockstep runs show latest\nlockstep runs remove latest:port");
  CLI::App* list = command->add_subcommand("list", "list all runs, newest first");
  list->footer("lockstep runs list\nlockstep runs list --json");
  list->callback([&app] { list_runs(app); });

  auto spec = std::make_shared<std::string>("latest");
  CLI::App* show = command->add_subcommand("show", "show a run and its contents");
  show->footer("lockstep runs show\nlockstep runs show latest:reference --json");
  show->add_option("run", *spec, "id, unique prefix, latest, latest:NAME or a path");
  auto verify = std::make_shared<bool>(false);
  show->add_flag("--verify", *verify, "read every tensor and verify its checksum");
  show->callback([&app, spec, verify] { show_run(app, *spec, *verify); });

  add_health_to(app, *command, "lockstep runs health");

  auto removed = std::make_shared<std::vector<std::string>>();
  CLI::App* remove = command->add_subcommand("remove", "delete runs from the store");
  remove->footer("lockstep runs remove latest\nlockstep runs remove latest:port latest:reference");
  remove->add_option("run", *removed, "id, unique prefix, latest or latest:NAME")->required();
  remove->callback([&app, removed] { remove_runs(app, *removed); });

  auto archived = std::make_shared<std::vector<std::string>>();
  CLI::App* archive = command->add_subcommand("archive", "move runs to the archive; their ids keep working");
  archive->footer("lockstep runs archive latest:reference");
  archive->add_option("run", *archived, "id, unique prefix, latest or latest:NAME")->required();
  archive->callback([&app, archived] { archive_runs(app, *archived); });

  auto warn = std::make_shared<std::string>(), refuse = std::make_shared<std::string>();
  CLI::App* limits = command->add_subcommand("limits", "show or set how large the store may grow");
  limits->footer("lockstep runs limits\nlockstep runs limits --warn 1GB --refuse 10GB");
  limits->add_option("--warn", *warn, "warn beyond this size, such as 1GB");
  limits->add_option("--refuse", *refuse, "store no more full tensors beyond this size, such as 10GB");
  limits->callback([&app, warn, refuse] { show_or_set_limits(app, *warn, *refuse); });
}

}  // namespace lockstep
