#include "report/page.h"

namespace lockstep {

std::string page_with(const std::string& json) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<title>Lockstep report</title>\n<style>";
  out += page::kStyle;
  out += "</style></head>\n<body>";
  out += page::kBody;
  // Parsed as JSON, not as a program: that is several times faster for a page of megabytes.
  out += "<script type=\"application/json\" id=\"data\">";
  out += json;
  out += "</script>\n<script>\n\"use strict\";";
  for (const char* part : {page::kScriptData, page::kScriptFindings, page::kScriptInside, page::kScriptCurve,
                           page::kScriptSteps, page::kScriptTensor, page::kScriptPictures, page::kScriptTable})
    out += part;
  out += "</script></body></html>\n";
  return out;
}

}  // namespace lockstep
