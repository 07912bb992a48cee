// Reads a component's config.json: required and optional fields with bounds, unknown values refused by name.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace lockstep::models {

class ConfigReader {
 public:
  ConfigReader(Json json, std::string origin) : json_(std::move(json)), origin_(std::move(origin)) {}

  bool has(std::string_view field) const {
    return json_.is_object() && json_.contains(field) && !json_[std::string(field)].is_null();
  }
  int64_t integer(std::string_view field, int64_t lowest, int64_t highest) const;
  int64_t integer_or(std::string_view field, int64_t otherwise, int64_t lowest, int64_t highest) const;
  double number(std::string_view field) const;
  double number_or(std::string_view field, double otherwise) const;
  bool boolean_or(std::string_view field, bool otherwise) const;
  std::string text_or(std::string_view field, std::string otherwise) const;
  std::vector<double> numbers(std::string_view field) const;
  std::vector<int64_t> integers(std::string_view field) const;
  std::vector<int64_t> integers_or_one(std::string_view field) const;  // a list, or a single number
  ConfigReader section(std::string_view field) const;
  const std::string& origin() const { return origin_; }
  [[noreturn]] void refuse(std::string_view field, std::string_view expected) const;

 private:
  Json json_;
  std::string origin_;
};

ConfigReader read_config(const fs::path& path,
                         std::string_view expected_class);  // checks _class_name when expected_class is not empty

}  // namespace lockstep::models
