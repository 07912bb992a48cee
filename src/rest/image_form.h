// The bodies of the OpenAI routes as fields and uploads.
#pragma once
#include <memory>

#include "http/multipart.h"
#include "studio/draw_request.h"

namespace lockstep {

struct ImageForm {
  Json fields = Json::object();
  std::shared_ptr<const Uploads> uploads;  // spooled files, removed with the last holder
};

ImageForm image_form(std::vector<FormPart> parts);  // of multipart/form-data; ParameterError
// Takes `images: [{image_url}]` and `mask: {image_url}` out of a JSON body.
std::shared_ptr<const Uploads> uploads_from_json(Json& fields);

// How an answer is to be given.
struct AnswerForm {
  bool stream = false, url = false, edit = false;
};
AnswerForm take_answer_form(Json& fields, const std::string& kind);

}  // namespace lockstep
