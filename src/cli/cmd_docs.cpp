#include <fmt/format.h>

#include "base/text.h"
#include "cli/app.h"
#include "cli/help.h"

namespace lockstep {

// Hidden: what `./dev docs` writes to docs/cli.md.
void add_docs(App& app) {
  CLI::App* command = app.cli.add_subcommand("docs", "print the reference of all commands as Markdown");
  command->group("");
  command->callback([&app] { print(Text::trusted(markdown_reference(app.cli))); });
}

}  // namespace lockstep
