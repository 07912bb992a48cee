// One row of the operations table. The command line, the REST routes, the MCP tools, their help and their schemas are
// all made from these rows; a name here is the same everywhere ("debug break": `lockstep debug break`,
// POST /v1/debug/break, tool debug_break).
#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace lockstep {

class Service;

enum class ArgumentType { kText, kInteger, kNumber, kBool, kTextList, kTextMap };

struct Argument {
  std::string name;
  ArgumentType type = ArgumentType::kText;
  std::string help;
  bool required = false;
  bool positional = false;             // on the command line: a word, not an option
  Json standard = nullptr;             // what it is when not given; null: absent
  double least = 0, most = 0;          // of a number; both 0: any
  std::vector<std::string> choices{};  // of a text; empty: any
  bool path = false;                   // the caller's relative path is made absolute before it is sent
  std::string help_off{};              // of a switch that is on: what its --no-NAME does
  std::string value{};                 // on the command line's help: FILE, RUN, GLOB; empty: VALUE
  size_t most_bytes = 1 << 20;         // of a text
};

// How a caller follows and stops a call that takes long.
class CallControl {
 public:
  virtual ~CallControl() = default;
  virtual bool cancelled() const { return false; }
  virtual void progress(double /*done*/, const std::string& /*message*/) {}
  std::string client = "owner";            // whose call it is
  double longest_wait_secs = 24 * 3600.0;  // a call answers "still running" after this, whatever it was asked for
};

struct Operation {
  std::string name;  // words with blanks: "debug trace show"
  std::string help;  // one sentence
  std::vector<Argument> arguments;
  std::string result;  // fields of the answer: "session:string state:string stop?:object"; see result_schema
  bool reads = false;  // changes nothing: GET in REST, a read-only tool in MCP
  bool slow = false;   // may take long, beside those that take max_wait: few are served at a time
  std::vector<std::string> examples{};  // command lines; of what the terminal lacks, those of curl
  std::string route{};                  // in REST, where its name does not say it: "/v1/jobs/{id}/cancel"
  std::string binary{};  // field of the answer that is bytes: base64 in JSON; over HTTP raw, for who accepts them so
  Json (*call)(Service& service, const Json& arguments, CallControl& control) = nullptr;
};

std::string joined_name(const Operation& operation, char separator);  // "debug_trace_show", "debug/trace/show"

std::string route_of(const Operation& operation);  // "/v1/debug/trace/show", or its own
// Whether a path is the operation's, and what it says of arguments: {"id": ...}; null: it is not.
Json arguments_in_path(const Operation& operation, std::string_view path);
// A result may carry pictures for whoever can see them, as {mime_type, b64} in this field.
inline constexpr const char* kShownField = "shown";

Json argument_schema(const Argument& argument);     // of one argument
Json arguments_schema(const Operation& operation);  // JSON Schema of the object that `call` takes
Json result_schema(const Operation& operation);     // JSON Schema of the object that `call` gives

// The arguments with their defaults filled in. Error{kBadInput} names what is wrong and the nearest known name.
Json checked_arguments(const Operation& operation, const Json& given);
std::string text_argument(const Json& arguments, const char* name);  // of checked arguments; "" when not given

// A text from outside (a query string, a command line) as the argument's type. Error{kBadInput} where it is none.
Json value_from_text(const Operation& operation, const Argument& argument, std::string_view text);

}  // namespace lockstep
