// debug complete, loaded, exceptions, picture: what an editor asks beside what people ask.
#include "base/base64.h"
#include "base/error.h"
#include "base/file.h"
#include "service/groups.h"
#include "service/service.h"
#include "service/tensor_picture.h"

namespace lockstep {
namespace {

using enum ArgumentType;

Json ask_program(const char* operation, Service& service, const Json& arguments, CallControl& control, double secs) {
  const auto session = service.sessions().find(text_argument(arguments, "session"));
  Json wanted = arguments;
  wanted.erase("session");
  return session->ask(operation, wanted, secs, [&] { return control.cancelled(); });
}

Json complete(Service& service, const Json& arguments, CallControl& control) {
  return ask_program("complete", service, arguments, control, 15);
}

Json loaded(Service& service, const Json& arguments, CallControl& control) {
  return ask_program("loaded", service, arguments, control, 15);
}

Json exceptions(Service& service, const Json& arguments, CallControl& control) {
  return ask_program("exceptions", service, arguments, control, 15);
}

Json picture(Service& service, const Json& arguments, CallControl& control) {
  Json wanted = arguments;
  wanted.erase("to");
  Json numbers = ask_program("picture", service, wanted, control, 30);
  const TensorPicture made = tensor_picture(numbers);
  numbers.erase("floats");
  Json out{{"width", made.width},
           {"height", made.height},
           {"min", made.least},
           {"max", made.most},
           {"not_finite", made.not_finite}};
  for (const char* name : {"shape", "dtype", "tiles", "tiles_left_out", "step"})
    if (numbers.contains(name)) out[name] = numbers[name];
  if (arguments.contains("to")) {
    const fs::path to = text_argument(arguments, "to");
    write_atomically(to, made.png);
    out["path"] = to.string();
  } else {
    out["png"] = base64({reinterpret_cast<const uint8_t*>(made.png.data()), made.png.size()});
  }
  return out;
}

}  // namespace

std::vector<Operation> editor_operations() {
  const Argument session = session_argument();
  const Argument frame = frame_argument();
  const Argument thread = thread_argument();
  return {
      {.name = "debug complete",
       .help = "complete names in the scope of the stopped frame; nothing is called",
       .arguments = {{.name = "text", .help = "the text typed so far", .required = true, .positional = true},
                     session,
                     frame,
                     thread,
                     {.name = "column",
                      .type = kInteger,
                      .help = "number of characters before the cursor (default: all)",
                      .least = 0,
                      .most = 1e6}},
       .result = "completions:objects start:integer total:integer",
       .reads = true,
       .examples = {"lockstep debug complete 'self.att'"},
       .call = &complete},
      {.name = "debug loaded",
       .help = "list the program's source files in loading order",
       .arguments = {session,
                     {.name = "after",
                      .type = kInteger,
                      .help = "number of files to skip",
                      .standard = 0,
                      .least = 0,
                      .most = 1e9},
                     limit_argument("files", 1000, 5000)},
       .result = "files:objects next:integer total:integer",
       .reads = true,
       .examples = {"lockstep debug loaded --after 120"},
       .call = &loaded},
      {.name = "debug exceptions",
       .help = "set whether an uncaught exception stops the program in its frame",
       .arguments = {{.name = "stop",
                      .help = "uncaught: stop in its frame; never: let the program end",
                      .required = true,
                      .positional = true,
                      .choices = {"uncaught", "never"}},
                     session},
       .result = "stop:string",
       .examples = {"lockstep debug exceptions never"},
       .call = &exceptions},
      {.name = "debug picture",
       .help = "draw a tensor of the stopped frame as a PNG: the last two axes as a picture, the others as tiles",
       .arguments = {{.name = "expression",
                      .help = "an expression whose value is a tensor",
                      .required = true,
                      .positional = true},
                     session,
                     frame,
                     thread,
                     {.name = "slice", .help = "only this part of it: \"0, :, 3\""},
                     {.name = "to", .help = "file to write (default: returned as base64)", .path = true}},
       .result = "width:integer height:integer min:number max:number not_finite:integer shape?:array dtype?:string "
                 "tiles?:integer tiles_left_out?:integer step?:integer path?:string png?:string",
       .slow = true,
       .examples = {"lockstep debug picture latents --to latents.png",
                    "lockstep debug picture attention --slice '0, 3' --to head3.png"},
       .call = &picture},
  };
}

}  // namespace lockstep
