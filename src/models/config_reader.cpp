#include "models/config_reader.h"

#include "base/error.h"

namespace lockstep::models {

void ConfigReader::refuse(std::string_view field, std::string_view expected) const {
  const std::string name(field);
  const std::string got = json_.is_object() && json_.contains(name) ? json_[name].dump().substr(0, 80) : "nothing";
  fail(Code::kBadInput, "config", origin_ + ": " + name, {.expected = std::string(expected), .got = got});
}

int64_t ConfigReader::integer(std::string_view field, int64_t lowest, int64_t highest) const {
  const std::string bounds = "a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest);
  if (!has(field) || !json_[std::string(field)].is_number_integer()) refuse(field, bounds);
  const int64_t value = json_[std::string(field)].get<int64_t>();
  if (value < lowest || value > highest) refuse(field, bounds);
  return value;
}

int64_t ConfigReader::integer_or(std::string_view field, int64_t otherwise, int64_t lowest, int64_t highest) const {
  return has(field) ? integer(field, lowest, highest) : otherwise;
}

double ConfigReader::number(std::string_view field) const {
  if (!has(field) || !json_[std::string(field)].is_number()) refuse(field, "a number");
  return json_[std::string(field)].get<double>();
}

double ConfigReader::number_or(std::string_view field, double otherwise) const {
  return has(field) ? number(field) : otherwise;
}

bool ConfigReader::boolean_or(std::string_view field, bool otherwise) const {
  if (!has(field)) return otherwise;
  if (!json_[std::string(field)].is_boolean()) refuse(field, "true or false");
  return json_[std::string(field)].get<bool>();
}

std::string ConfigReader::text_or(std::string_view field, std::string otherwise) const {
  if (!has(field)) return otherwise;
  if (!json_[std::string(field)].is_string()) refuse(field, "a text");
  return json_[std::string(field)].get<std::string>();
}

std::vector<double> ConfigReader::numbers(std::string_view field) const {
  if (!has(field) || !json_[std::string(field)].is_array()) refuse(field, "a list of numbers");
  std::vector<double> values;
  for (const Json& item : json_[std::string(field)]) {
    if (!item.is_number()) refuse(field, "a list of numbers");
    values.push_back(item.get<double>());
  }
  return values;
}

std::vector<int64_t> ConfigReader::integers(std::string_view field) const {
  std::vector<int64_t> values;
  for (const double value : numbers(field)) {
    if (value != static_cast<double>(static_cast<int64_t>(value)) || value < 0 || value > 1 << 20)
      refuse(field, "a list of whole numbers");
    values.push_back(static_cast<int64_t>(value));
  }
  return values;
}

std::vector<int64_t> ConfigReader::integers_or_one(std::string_view field) const {
  if (has(field) && json_[std::string(field)].is_number()) return {integer(field, 0, 1 << 24)};
  return integers(field);
}

ConfigReader ConfigReader::section(std::string_view field) const {
  if (!has(field) || !json_[std::string(field)].is_object()) refuse(field, "an object");
  return ConfigReader(json_[std::string(field)], origin_ + ": " + std::string(field));
}

ConfigReader read_config(const fs::path& path, std::string_view expected_class) {
  constexpr uint64_t kMaxConfigBytes = 1 << 20;
  ConfigReader config(read_json(path, kMaxConfigBytes), path.string());
  if (!expected_class.empty() && config.text_or("_class_name", "") != expected_class)
    config.refuse("_class_name", expected_class);
  return config;
}

}  // namespace lockstep::models
