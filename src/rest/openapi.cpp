#include "rest/image_openapi.h"
#include "rest/rest_server.h"

namespace lockstep {
namespace {

Json error_answer(const char* description) {
  return {{"description", description},
          {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}};
}

Json answers(const Json& schema) {
  Json all{{"200", {{"description", "done"}, {"content", {{"application/json", {{"schema", schema}}}}}}}};
  const std::pair<const char*, const char*> errors[] = {
      {"400", "the arguments are wrong"},
      {"401", "no token, or a wrong one"},
      {"403", "another Host, or a foreign Origin"},
      {"404", "no such session, breakpoint, run, tensor or file"},
      {"405", "another method is meant"},
      {"409", "not possible in the present state, such as looking into a running program"},
      {"411", "the body's length is missing"},
      {"413", "too large"},
      {"410", "the job was cancelled"},
      {"415", "the body is no JSON"},
      {"422", "understood, and not possible: a file, a format or the program failed"},
      {"429", "the queue is full; Retry-After says when to come again"},
      {"500", "a picture failed"},
      {"503", "too many calls are waiting"}};
  for (const auto& [status, description] : errors) all[status] = error_answer(description);
  return all;
}

Json query_parameter(const Argument& argument) {
  Json schema = argument_schema(argument);
  Json parameter{
      {"name", argument.name}, {"in", "query"}, {"required", argument.required}, {"description", argument.help}};
  schema.erase("description");
  parameter["schema"] = std::move(schema);
  return parameter;
}

Json operation_item(const Operation& operation) {
  const std::string group = operation.name.substr(0, operation.name.find(' '));
  Json item{{"operationId", joined_name(operation, '_')}, {"summary", operation.help}, {"tags", {group}}};
  const std::string route = route_of(operation);
  const auto in_path = [&](const Argument& argument) {
    return route.find("{" + argument.name + "}") != std::string::npos;
  };
  Json parameters = Json::array();
  for (const Argument& argument : operation.arguments) {
    if (!operation.reads && !in_path(argument)) continue;
    parameters.push_back(query_parameter(argument));
    if (in_path(argument)) parameters.back()["in"] = "path", parameters.back()["required"] = true;
  }
  if (!parameters.empty()) item["parameters"] = std::move(parameters);
  if (!operation.reads) {
    const bool needed = std::any_of(operation.arguments.begin(), operation.arguments.end(),
                                    [&](const Argument& argument) { return argument.required && !in_path(argument); });
    Json schema = arguments_schema(operation);
    for (const Argument& argument : operation.arguments)
      if (in_path(argument)) {
        schema["properties"].erase(argument.name);
        schema.erase("required");
      }
    item["requestBody"] = {{"required", needed}, {"content", {{"application/json", {{"schema", schema}}}}}};
  }
  item["responses"] = answers(result_schema(operation));
  return item;
}

Json plain_get(const char* id, const char* summary, const Json& schema) {
  return {{"get", {{"operationId", id}, {"summary", summary}, {"tags", {"service"}}, {"responses", answers(schema)}}}};
}

Json events_item() {
  Json responses = answers(Json::object());
  responses["200"] = {{"description", "one event each: stopped, continued, breakpoint, output, exited, ended"},
                      {"content", {{"text/event-stream", {{"schema", {{"type", "string"}}}}}}}};
  return {{"get",
           {{"operationId", "debug_events"},
            {"summary", "what happens in a session, as it happens (server-sent events)"},
            {"tags", {"debug"}},
            {"parameters",
             {{{"name", "session"}, {"in", "query"}, {"schema", {{"type", "string"}}}},
              {{"name", "after"}, {"in", "query"}, {"schema", {{"type", "integer"}, {"minimum", 0}}}}}},
            {"responses", responses}}}};
}

}  // namespace

Json openapi_document() {
  Json paths = Json::object();
  paths["/v1/health"] =
      plain_get("health", "whether the service is there", {{"type", "object"}, {"required", {"name", "version"}}});
  paths["/v1/openapi.json"] = plain_get("openapi", "this document", {{"type", "object"}});
  paths["/v1/debug/events"] = events_item();
  for (const Operation& operation : operations())
    paths[route_of(operation)][operation.reads ? "get" : "post"] = operation_item(operation);
  add_image_paths(paths);
  const Json error{{"type", "object"},
                   {"required", {"error"}},
                   {"properties",
                    {{"error",
                      {{"type", "object"},
                       {"required", {"code", "message"}},
                       {"properties",
                        {{"code", {{"type", "string"}}},
                         {"message", {{"type", "string"}}},
                         {"hint", {{"type", "string"}}},
                         {"type", {{"type", "string"}}},
                         {"param", {{"type", {"string", "null"}}}}}}}}}}};
  return {
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "Lockstep"},
        {"version", LOCKSTEP_VERSION},
        {"description",
         "Debugging sessions over live Python programs, recorded runs compared, and pictures on request."}}},
      {"security", {{{"token", Json::array()}}}},
      {"paths", paths},
      {"components",
       {{"schemas", {{"Error", error}}}, {"securitySchemes", {{"token", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
}

}  // namespace lockstep
