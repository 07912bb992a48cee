#include <fmt/format.h>

#include <memory>

#include "base/text.h"
#include "capture/store.h"
#include "cli/app.h"
#include "cli/operation_options.h"
#include "cli/terminal.h"
#include "service/service.h"
#include "service/zoom_question.h"
#include "zoom/answer_text.h"

namespace lockstep {

void add_zoom(App& app) {
  const Operation& operation = known_operation("zoom");
  CLI::App* command = app.cli.add_subcommand("zoom", operation.help);
  command->footer(
      "lockstep zoom latest:reference latest:port\n"
      "lockstep zoom latest:reference latest:port --stage transformer.transformer_blocks.0.attn --step 0");
  auto given = std::make_shared<GivenWords>();
  add_arguments(*command, operation, *given);
  command->callback([&app, &operation, given] {
    const ZoomQuestion question = zoom_question_from(checked_arguments(operation, arguments_from(operation, *given)));
    const ZoomAnswer found = answer_to(question, home_folder(app.global.home), app.global.quiet || app.global.json);
    const Terminal terminal(app.global);
    if (app.global.json)
      print_json(zoom::json_from(found.answer, found.reference, found.yours));
    else
      print("{}", zoom::text_from(found.answer, found.reference, found.yours, terminal.color(),
                                  terminal.interactive() ? terminal.width() : 0));
    app.status = found.answer.agrees ? 0 : 1;
  });
}

}  // namespace lockstep
