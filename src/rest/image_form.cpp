#include "rest/image_form.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/decimal.h"
#include "base/escape.h"
#include "studio/parameter_error.h"

namespace lockstep {
namespace {

// A form has only texts; these fields are numbers and switches.
constexpr const char* kWholeNumbers[] = {"n",
                                         "seed",
                                         "steps",
                                         "num_inference_steps",
                                         "partial_images",
                                         "output_compression",
                                         "layers",
                                         "resolution",
                                         "condition_resolution",
                                         "max_prompt_tokens"};
constexpr const char* kNumbers[] = {"true_cfg_scale", "guidance", "strength"};
constexpr const char* kSwitches[] = {"stream", "vae_tiling", "rescale_guidance", "english_caption"};

template <size_t N>
bool is_one_of(const std::string& name, const char* const (&names)[N]) {
  return std::any_of(std::begin(names), std::end(names), [&](const char* one) { return name == one; });
}

Json form_value(const std::string& name, const std::string& text) {
  const char* const end = text.data() + text.size();
  if (is_one_of(name, kWholeNumbers)) {
    int64_t number = 0;
    const auto [at, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc() && at == end) return number;
    refuse_parameter(name, name + " is no whole number", {.got = text.substr(0, 40)});
  }
  if (is_one_of(name, kNumbers)) {
    double number = 0;
    const auto [at, error] = read_decimal(text.data(), end, number);
    if (error == std::errc() && at == end && std::isfinite(number)) return number;
    refuse_parameter(name, name + " is no number", {.got = text.substr(0, 40)});
  }
  if (is_one_of(name, kSwitches)) {
    if (text == "true" || text == "True" || text == "1") return true;
    if (text == "false" || text == "False" || text == "0") return false;
    refuse_parameter(name, name + " is neither true nor false", {.got = text.substr(0, 40)});
  }
  return text;
}

// Spooled files go with the last who holds the uploads; those that a job keeps have moved away by then.
std::shared_ptr<const Uploads> owned(Uploads uploads) {
  return {new Uploads(std::move(uploads)), [](const Uploads* held) {
            for (const Upload& upload : held->pictures)
              if (!upload.spooled.empty()) ::unlink(upload.spooled.c_str());
            if (!held->mask.spooled.empty()) ::unlink(held->mask.spooled.c_str());
            delete held;
          }};
}

Upload upload_in(const Json& item, const std::string& parameter) {
  if (!item.is_object() || !item.contains("image_url") || !item["image_url"].is_string() || item.size() != 1)
    refuse_parameter(parameter, "a picture is not given by its data URL", {.expected = R"({"image_url": "data:..."})"});
  return upload_from_data_url(item["image_url"].get_ref<const std::string&>(), parameter);
}

}  // namespace

ImageForm image_form(std::vector<FormPart> parts) {
  Uploads uploads;
  for (FormPart& part : parts) {
    if (!part.is_file) continue;
    if (part.name == "mask" && !uploads.has_mask) {
      uploads.mask.spooled = part.file;
      uploads.has_mask = true;
    } else if (part.name == "image" || part.name == "image[]") {
      uploads.pictures.push_back({{}, part.file});
    } else {
      uploads.pictures.push_back({{}, part.file});  // so that it is removed with the others
      const auto held = owned(std::move(uploads));
      refuse_parameter(escaped(part.name), "there is no file '" + part.name + "' here", {.expected = "image, mask"});
    }
  }
  ImageForm form;
  form.uploads = owned(std::move(uploads));
  for (const FormPart& part : parts) {
    if (part.is_file) continue;
    if (form.fields.contains(part.name)) refuse_parameter(escaped(part.name), "a field is given twice");
    form.fields[part.name] = form_value(part.name, part.text);
  }
  if (form.fields.contains("image") || form.fields.contains("mask") || form.fields.contains("image[]"))
    refuse_parameter("image", "a picture is a file of the form, not a field");
  return form;
}

std::shared_ptr<const Uploads> uploads_from_json(Json& fields) {
  auto uploads = std::make_shared<Uploads>();
  if (const auto images = fields.find("images"); images != fields.end()) {
    if (!images->is_array() || images->size() > kMostPictures)
      refuse_parameter("images", "images are no list of pictures", {.expected = "1 to 16 of {\"image_url\": ...}"});
    for (const Json& item : *images) uploads->pictures.push_back(upload_in(item, "images"));
    fields.erase("images");
  }
  if (const auto mask = fields.find("mask"); mask != fields.end() && !mask->is_null()) {
    uploads->mask = upload_in(*mask, "mask");
    uploads->has_mask = true;
  }
  fields.erase("mask");
  return uploads;
}

AnswerForm take_answer_form(Json& fields, const std::string& kind) {
  AnswerForm form;
  form.edit = kind == "edit";
  if (const auto stream = fields.find("stream"); stream != fields.end()) {
    if (!stream->is_boolean() && !stream->is_null()) refuse_parameter("stream", "stream is neither true nor false");
    form.stream = stream->is_boolean() && stream->get<bool>();
    fields.erase("stream");
  }
  if (const auto format = fields.find("response_format"); format != fields.end()) {
    const bool known = format->is_null() || *format == Json("b64_json") || *format == Json("url");
    if (!known)
      refuse_parameter("response_format", "the form of the answer is not known", {.expected = "b64_json or url"});
    form.url = *format == Json("url");
    fields.erase("response_format");
  }
  if (form.stream && form.url)
    refuse_parameter("response_format", "a stream carries its pictures itself", {.expected = "b64_json"});
  const auto partial = fields.find("partial_images");
  if (!form.stream && partial != fields.end() && partial->is_number_integer() && *partial > 0)
    refuse_parameter("partial_images", "previews come with a stream", {.hint = "stream: true"});
  return form;
}

}  // namespace lockstep
