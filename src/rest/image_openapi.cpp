#include "rest/image_openapi.h"

#include "service/service.h"
#include "studio/draw_request.h"

namespace lockstep {
namespace {

Json image_error_answer(const char* description) {
  return {{"description", description},
          {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}};
}

void add_errors(Json& responses, std::initializer_list<std::pair<const char*, const char*>> errors) {
  for (const auto& [status, description] : errors) responses[status] = image_error_answer(description);
}

// The fields of the OpenAI routes: those of a job that OpenAI knows or that `extra_body` carries, and how to answer.
Json drawing_schema(bool edits) {
  Json properties = arguments_schema(known_operation("jobs create"))["properties"];
  for (const char* ours : {"type", "images", "mask", "max_wait", "show", "sigmas"}) properties.erase(ours);
  if (!edits)
    for (const char* other : {"layers", "resolution", "condition_resolution", "image_positions", "caption",
                              "english_caption", "rescale_guidance"})
      properties.erase(other);
  properties["prompt"]["minLength"] = 1;
  properties["prompt"]["maxLength"] = kMostPromptCharacters;
  properties["num_inference_steps"] = properties["steps"];
  properties["true_cfg_scale"] = properties["guidance"];
  properties["stream"] = {{"type", "boolean"}, {"description", "answer with server-sent events"}};
  properties["partial_images"] = {
      {"type", "integer"}, {"minimum", 0}, {"maximum", 3}, {"description", "previews of a stream"}};
  properties["response_format"] = {{"type", "string"}, {"enum", {"b64_json", "url"}}};
  return {{"type", "object"}, {"properties", properties}, {"required", {"prompt"}}, {"additionalProperties", false}};
}

Json picture_schema(const char* description) {
  return {{"type", "object"},
          {"properties", {{"image_url", {{"type", "string"}, {"pattern", "^data:"}}}}},
          {"required", {"image_url"}},
          {"additionalProperties", false},
          {"description", description}};
}

Json drawing_item(const char* id, const char* summary, const Json& body) {
  const Json answer{{"type", "object"},
                    {"required", {"created", "data", "size", "quality", "output_format", "usage", "timings"}},
                    {"properties",
                     {{"created", {{"type", "integer"}}},
                      {"data", {{"type", "array"}, {"items", {{"type", "object"}, {"required", {"seed"}}}}}},
                      {"usage", {{"type", "object"}}},
                      {"timings", {{"type", "object"}}}}}};
  Json responses{
      {"200",
       {{"description", "the pictures"},
        {"content",
         {{"application/json", {{"schema", answer}}}, {"text/event-stream", {{"schema", {{"type", "string"}}}}}}}}}};
  add_errors(responses, {{"400", "a parameter is wrong; param names it"},
                         {"401", "no token, or a wrong one"},
                         {"403", "another Host, or a foreign Origin"},
                         {"404", "no such model"},
                         {"405", "another method is meant"},
                         {"410", "the job was cancelled"},
                         {"411", "the body's length is missing"},
                         {"413", "too large"},
                         {"415", "the body is of another type"},
                         {"422", "understood, and not possible"},
                         {"429", "the queue is full; Retry-After says when to come again"},
                         {"500", "the picture failed"}});
  return {{"post",
           {{"operationId", id},
            {"summary", summary},
            {"tags", {"images"}},
            {"requestBody", {{"required", true}, {"content", body}}},
            {"responses", responses}}}};
}

Json reading_item(const char* id, const char* summary, const char* type, const Json& parameters = Json::array()) {
  Json responses{{"200", {{"description", "done"}, {"content", {{type, {{"schema", {{"type", "string"}}}}}}}}}};
  add_errors(responses, {{"400", "the request is wrong"},
                         {"401", "no token, or a wrong one"},
                         {"403", "another Host, or a foreign Origin"},
                         {"404", "no such picture"},
                         {"405", "another method is meant"},
                         {"422", "understood, and not possible"},
                         {"429", "too many wait"}});
  Json item{{"operationId", id}, {"summary", summary}, {"tags", {"images"}}, {"responses", responses}};
  if (!parameters.empty()) item["parameters"] = parameters;
  return {{"get", item}};
}

}  // namespace

void add_image_paths(Json& paths) {
  paths["/v1/images/generations"] =
      drawing_item("images_generations", "pictures from a prompt, as OpenAI's clients ask",
                   {{"application/json", {{"schema", drawing_schema(false)}}}});
  Json form = drawing_schema(true), json = drawing_schema(true);
  form["properties"]["image"] = {{"type", "array"}, {"items", {{"type", "string"}, {"format", "binary"}}}};
  form["properties"]["mask"] = {{"type", "string"}, {"format", "binary"}};
  form["required"] = {"prompt", "image"};
  json["properties"]["images"] = {{"type", "array"},
                                  {"minItems", 1},
                                  {"maxItems", kMostPictures},
                                  {"items", picture_schema("a picture; only data URLs, nothing is fetched")}};
  json["properties"]["mask"] = picture_schema("where to draw: white or transparent");
  json["required"] = {"prompt", "images"};
  paths["/v1/images/edits"] =
      drawing_item("images_edits", "pictures from pictures and an instruction, as OpenAI's clients ask",
                   {{"multipart/form-data", {{"schema", form}}}, {"application/json", {{"schema", json}}}});
  const Json id{{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}},
                {{"name", "expires"}, {"in", "query"}, {"schema", {{"type", "integer"}}}},
                {{"name", "signature"}, {"in", "query"}, {"schema", {{"type", "string"}}}}};
  paths["/v1/images/{id}/content"] =
      reading_item("images_content", "a picture, by a signed link or the token", "image/*", id);
  paths["/v1/events"] = reading_item(
      "events", "what happens to jobs, as it happens (server-sent events)", "text/event-stream",
      Json::array({{{"name", "Last-Event-ID"}, {"in", "header"}, {"schema", {{"type", "integer"}, {"minimum", 0}}}}}));
  paths["/metrics"] = reading_item("metrics", "counts and times, as Prometheus reads them", "text/plain");
}

}  // namespace lockstep
