#include "service/operation.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/decimal.h"
#include "base/error.h"
#include "base/names.h"
#include "base/utf8.h"
#include "studio/parameter_error.h"

namespace lockstep {
namespace {

constexpr size_t kMostItems = 10000;

const char* type_words(ArgumentType type) {
  switch (type) {
    case ArgumentType::kText:
      return "a text";
    case ArgumentType::kInteger:
      return "a whole number";
    case ArgumentType::kNumber:
      return "a number";
    case ArgumentType::kBool:
      return "true or false";
    case ArgumentType::kTextList:
      return "a list of texts";
    case ArgumentType::kTextMap:
      return "an object of texts";
  }
  return "";
}

constexpr size_t kMostNameBytes = 100;  // of a name that a client made up, told back

[[noreturn]] void refuse_named(const Operation& operation, const std::string& name, const std::string& what,
                               const Detail& detail) {
  try {
    fail(Code::kBadInput, operation.name, what, detail);
  } catch (const Error& error) {
    throw ParameterError(error.code(), name.substr(0, kMostNameBytes), error.what());
  }
}

[[noreturn]] void refuse(const Operation& operation, const Argument& argument, const std::string& expected,
                         const std::string& got) {
  refuse_named(operation, argument.name, "argument '" + argument.name + "' cannot be used",
               {.expected = expected, .got = got.size() > 80 ? got.substr(0, 80) + "..." : got});
}

bool has_type(const Json& value, const Argument& argument) {
  const auto is_text = [&](const Json& one) {
    if (!one.is_string()) return false;
    const std::string& text = one.get_ref<const std::string&>();
    return text.size() <= argument.most_bytes && is_valid_utf8(text);
  };
  switch (argument.type) {
    case ArgumentType::kText:
      return is_text(value);
    case ArgumentType::kInteger:
      return value.is_number_integer();
    case ArgumentType::kNumber:
      return value.is_number() && std::isfinite(value.get<double>());
    case ArgumentType::kBool:
      return value.is_boolean();
    case ArgumentType::kTextList:
      return value.is_array() && value.size() <= kMostItems && std::all_of(value.begin(), value.end(), is_text);
    case ArgumentType::kTextMap:
      return value.is_object() && value.size() <= kMostItems && std::all_of(value.begin(), value.end(), is_text);
  }
  return false;
}

std::string shown(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string names_of_arguments(const Operation& operation) {
  std::string all;
  for (const Argument& argument : operation.arguments) all += (all.empty() ? "" : ", ") + argument.name;
  return all.empty() ? "no arguments" : all;
}

// Nothing that is handed to the system as a C string may hold a zero byte: it would be cut there in silence.
bool has_zero_byte(const Json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().find('\0') != std::string::npos;
  if (!value.is_structured()) return false;
  for (const auto& [key, item] : value.items())
    if ((value.is_object() && key.find('\0') != std::string::npos) || has_zero_byte(item)) return true;
  return false;
}

void check_value(const Operation& operation, const Argument& argument, const Json& value) {
  if (!has_type(value, argument)) refuse(operation, argument, type_words(argument.type), shown(value));
  if (has_zero_byte(value)) refuse(operation, argument, "a text without zero bytes", shown(value));
  if (value.is_number() && (argument.least != 0 || argument.most != 0)) {
    const double number = value.get<double>();
    if (number < argument.least || number > argument.most)
      refuse(operation, argument, shown(argument.least) + " to " + shown(argument.most), shown(value));
  }
  if (!argument.choices.empty() &&
      std::find(argument.choices.begin(), argument.choices.end(), value.get<std::string>()) == argument.choices.end()) {
    std::string all;
    for (const std::string& choice : argument.choices) all += (all.empty() ? "" : ", ") + choice;
    refuse(operation, argument, all, shown(value));
  }
}

Json type_schema(std::string_view type) {
  if (type == "any") return Json::object();
  if (type == "strings") return {{"type", "array"}, {"items", {{"type", "string"}}}};
  if (type == "objects") return {{"type", "array"}, {"items", {{"type", "object"}}}};
  return {{"type", type}};
}

}  // namespace

std::string joined_name(const Operation& operation, char separator) {
  std::string name = operation.name;
  std::replace(name.begin(), name.end(), ' ', separator);
  return name;
}

std::string route_of(const Operation& operation) {
  return operation.route.empty() ? "/v1/" + joined_name(operation, '/') : operation.route;
}

Json arguments_in_path(const Operation& operation, std::string_view path) {
  const std::string route = route_of(operation);
  std::string_view pattern = route;
  Json arguments = Json::object();
  while (!pattern.empty()) {
    const size_t brace = pattern.find('{');
    if (brace == std::string_view::npos) return path == pattern ? arguments : Json(nullptr);
    if (!path.starts_with(pattern.substr(0, brace))) return nullptr;
    path.remove_prefix(brace);
    const size_t end = pattern.find('}');
    const std::string_view value = path.substr(0, path.find('/'));
    if (value.empty()) return nullptr;
    arguments[std::string(pattern.substr(brace + 1, end - brace - 1))] = std::string(value);
    path.remove_prefix(value.size());
    pattern.remove_prefix(end + 1);
  }
  return path.empty() ? arguments : Json(nullptr);
}

Json argument_schema(const Argument& argument) {
  Json schema{{"description", argument.help}};
  switch (argument.type) {
    case ArgumentType::kText:
      schema["type"] = "string";
      break;
    case ArgumentType::kInteger:
      schema["type"] = "integer";
      break;
    case ArgumentType::kNumber:
      schema["type"] = "number";
      break;
    case ArgumentType::kBool:
      schema["type"] = "boolean";
      break;
    case ArgumentType::kTextList:
      schema.update({{"type", "array"}, {"items", {{"type", "string"}}}});
      break;
    case ArgumentType::kTextMap:
      schema.update({{"type", "object"}, {"additionalProperties", {{"type", "string"}}}});
      break;
  }
  if (argument.least != 0 || argument.most != 0) {
    const bool whole = argument.type == ArgumentType::kInteger;
    schema["minimum"] = whole ? Json(static_cast<int64_t>(argument.least)) : Json(argument.least);
    schema["maximum"] = whole ? Json(static_cast<int64_t>(argument.most)) : Json(argument.most);
  }
  if (!argument.choices.empty()) schema["enum"] = argument.choices;
  if (!argument.standard.is_null()) schema["default"] = argument.standard;
  return schema;
}

Json arguments_schema(const Operation& operation) {
  Json properties = Json::object(), required = Json::array();
  for (const Argument& argument : operation.arguments) {
    properties[argument.name] = argument_schema(argument);
    if (argument.required) required.push_back(argument.name);
  }
  Json schema{{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
  if (!required.empty()) schema["required"] = required;
  return schema;
}

Json result_schema(const Operation& operation) {
  Json properties = Json::object(), required = Json::array();
  std::string_view rest = operation.result;
  while (!rest.empty()) {
    const size_t blank = rest.find(' ');
    const bool last = blank == std::string_view::npos;
    const std::string_view field = last ? rest : rest.substr(0, blank);
    rest = last ? std::string_view() : rest.substr(blank + 1);
    if (field.empty()) continue;
    const size_t colon = field.find(':');
    std::string name(field.substr(0, colon));
    const bool optional = name.ends_with('?');
    if (optional) name.pop_back();
    properties[name] = type_schema(field.substr(colon + 1));
    if (!optional) required.push_back(name);
  }
  Json schema{{"type", "object"}, {"properties", properties}};
  if (!required.empty()) schema["required"] = required;
  return schema;
}

std::string text_argument(const Json& arguments, const char* name) {
  return arguments.contains(name) ? arguments[name].get<std::string>() : "";
}

Json checked_arguments(const Operation& operation, const Json& given) {
  if (!given.is_null() && !given.is_object())
    fail(Code::kBadInput, operation.name, "the arguments are no JSON object", {.got = given.type_name()});
  std::vector<std::string> known;
  for (const Argument& argument : operation.arguments) known.push_back(argument.name);
  if (given.is_object())
    for (const auto& [name, value] : given.items())
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        const std::vector<std::string> near = nearest_names(name, known, 1);
        refuse_named(operation, name, "there is no argument " + shown(name),
                     {.expected = names_of_arguments(operation), .hint = near.empty() ? "" : near[0]});
      }
  Json checked = Json::object();
  for (const Argument& argument : operation.arguments) {
    const auto found = given.is_object() ? given.find(argument.name) : given.end();
    const bool present = given.is_object() && found != given.end() && !found->is_null();
    if (present) {
      check_value(operation, argument, *found);
      checked[argument.name] = *found;
    } else if (argument.required) {
      refuse_named(
          operation, argument.name, "argument '" + argument.name + "' is missing",
          {.expected = type_words(argument.type), .hint = "one of its arguments: " + names_of_arguments(operation)});
    } else if (!argument.standard.is_null()) {
      checked[argument.name] = argument.standard;
    }
  }
  return checked;
}

Json value_from_text(const Operation& operation, const Argument& argument, std::string_view text) {
  const char* const end = text.data() + text.size();
  switch (argument.type) {
    case ArgumentType::kInteger: {
      int64_t number = 0;
      const auto [at, error] = std::from_chars(text.data(), end, number);
      if (error == std::errc() && at == end) return number;
      break;
    }
    case ArgumentType::kNumber: {
      double number = 0;
      const auto [at, error] = read_decimal(text.data(), end, number);
      if (error == std::errc() && at == end && std::isfinite(number)) return number;
      break;
    }
    case ArgumentType::kBool:
      if (text == "true" || text == "1" || text == "yes") return true;
      if (text == "false" || text == "0" || text == "no") return false;
      break;
    case ArgumentType::kText:
      return text;
    case ArgumentType::kTextList:
      return Json::array({text});
    case ArgumentType::kTextMap: {
      const size_t equals = text.find('=');
      if (equals != std::string_view::npos && equals > 0)
        return Json{{std::string(text.substr(0, equals)), text.substr(equals + 1)}};
      refuse(operation, argument, "NAME=VALUE", std::string(text));
    }
  }
  refuse(operation, argument, type_words(argument.type), std::string(text));
}

}  // namespace lockstep
