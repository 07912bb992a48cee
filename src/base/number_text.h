// Numbers as people read them.
#pragma once
#include <cstdint>
#include <string>

namespace lockstep {

std::string text_from_bytes(
    uint64_t bytes);                         // "512 B", "1.50 MB"; decimal units, as disks are sold and ls -h --si says
std::string text_from_count(int64_t count);  // "20,430,401,088"
std::string text_from_number(double value);  // six significant digits
std::string text_from_share(double share);   // "0.012 %", and never "0 %" or "100 %" unless exactly so

}  // namespace lockstep
