#include "cli/manual_page.h"

#include <fmt/format.h>

#include "cli/command_tree.h"

namespace lockstep {
namespace {

// A backslash starts an escape, a dash would become a hyphen that cannot be searched for or copied, and a dot or an
// apostrophe at the start of a line is a request.
std::string in_roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

void put_entries(std::string& out, const std::vector<HelpEntry>& entries) {
  for (const HelpEntry& entry : entries)
    out += fmt::format(".TP\n\\fB{}\\fR\n{}\n", in_roff(entry.name), in_roff(entry.meaning));
}

void put_command(std::string& out, const CLI::App& app) {
  out += fmt::format(".SS {}\n{}\n.PP\n\\fB{}\\fR\n", in_roff(full_name(app)), in_roff(app.get_description()),
                     in_roff(usage(app)));
  put_entries(out, arguments(app));
  put_entries(out, options(app));
  const std::vector<std::string> examples = lines_of(app.get_footer());
  if (!examples.empty()) out += ".PP\nExamples:\n.nf\n";
  for (const std::string& example : examples) out += "    " + in_roff(example) + "\n";
  if (!examples.empty()) out += ".fi\n";
  for (const CLI::App* command : visible_commands(app)) put_command(out, *command);
}

}  // namespace

std::string manual_page(const CLI::App& root) {
  std::string out = fmt::format(
      ".TH LOCKSTEP 1 \"\" \"lockstep {}\" \"User Commands\"\n.SH NAME\nlockstep \\- run Qwen\\-Image, and debug ports "
      "of diffusion models\n.SH SYNOPSIS\n\\fB{}\\fR\n.SH DESCRIPTION\n{}\n",
      LOCKSTEP_VERSION, in_roff(usage(root)), in_roff(root.get_description()));
  out += ".SH OPTIONS\n";
  put_entries(out, options(root));
  out += ".SH COMMANDS\n";
  for (const CLI::App* command : visible_commands(root)) put_command(out, *command);
  out +=
      ".SH EXIT STATUS\n.TP\n0\ndone, or match\n.TP\n1\ncompared and different\n.TP\n2\nusage or bad input\n.TP\n3\n"
      "failed: file, memory, device, program\n.TP\n4\ninternal error\n.TP\n130\ninterrupted\n";
  return out;
}

}  // namespace lockstep
