#include "cli/shown_run.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "capture/store.h"

namespace lockstep {

fs::path run_to_show(App& app, const std::string& command, const std::string& earlier, RecordRequest& request,
                     const std::function<RecordOutcome(const RecordRequest&)>& record) {
  const fs::path home = home_folder(app.global.home);
  if (earlier.empty() == request.argv.empty())
    fail(Code::kUsage, command, "expected a program to run or a run to show",
         {.hint = fmt::format("lockstep {0} -- python script.py, or lockstep {0} --run latest", command)});
  if (!earlier.empty()) return Store(home).resolve(earlier);
  request.home = home;
  request.output_to_stderr = true;
  request.quiet = app.global.quiet;
  const RecordOutcome outcome = record(request);
  if (outcome.exit_code != 0) {
    app.status = 3;
    if (!app.global.quiet)
      print_error("lockstep: the program {}; what follows is what ran until then\n",
                  outcome.status == "killed" ? "was killed" : "failed");
  }
  return outcome.run;
}

}  // namespace lockstep
