#include <functional>
#include <map>
#include <string>

#include "base/text.h"
#include "cli/app.h"
#include "cli/help.h"
#include "cli/manual_page.h"
#include "cli/shell_completions.h"

namespace lockstep {

// Hidden: what `./dev docs` writes to docs/cli.md, and what the build makes for an installation.
void add_docs(App& app) {
  static const std::map<std::string, std::function<std::string(const CLI::App&)>> kForms{
      {"markdown", markdown_reference}, {"man", manual_page},       {"bash", bash_completions},
      {"zsh", zsh_completions},         {"fish", fish_completions},
  };
  CLI::App* command = app.cli.add_subcommand("docs", "print the reference of all commands, or completions for a shell");
  command->group("");
  const auto form = std::make_shared<std::string>("markdown");
  command->add_option("FORM", *form, "markdown, man, bash, zsh or fish")->check(CLI::IsMember(kForms));
  command->callback([&app, form] { print(Text::trusted(kForms.at(*form)(app.cli))); });
}

}  // namespace lockstep
