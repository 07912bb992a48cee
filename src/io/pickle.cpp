#include "io/pickle.h"

#include <cstring>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/utf8.h"
#include "io/pickle_globals.h"

namespace lockstep {
namespace {

constexpr size_t kMaxValues = 4'000'000;  // a checkpoint of 10,000 tensors has a twentieth of that

// Opcodes of protocol 2, the one torch writes. Letters are pickle's own.
enum Opcode : unsigned char {
  kMark = '(',
  kStop = '.',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kBinFloat = 'G',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kEmptySet = 0x8f,
};

std::string opcode_name(unsigned char code) {
  constexpr std::pair<unsigned char, const char*> kNames[] = {
      {'0', "POP"},
      {'1', "POP_MARK"},
      {'2', "DUP"},
      {'F', "FLOAT"},
      {'I', "INT"},
      {'L', "LONG"},
      {'P', "PERSID"},
      {'S', "STRING"},
      {'T', "BINSTRING"},
      {'V', "UNICODE"},
      {'d', "DICT"},
      {'g', "GET"},
      {'i', "INST"},
      {'l', "LIST"},
      {'o', "OBJ"},
      {'p', "PUT"},
      {0x81, "NEWOBJ"},
      {0x82, "EXT1"},
      {0x83, "EXT2"},
      {0x84, "EXT4"},
      {0x8b, "LONG4"},
      {'B', "BINBYTES"},
      {'C', "SHORT_BINBYTES"},
      {0x8c, "SHORT_BINUNICODE"},
      {0x8d, "BINUNICODE8"},
      {0x8e, "BINBYTES8"},
      {0x90, "ADDITEMS"},
      {0x91, "FROZENSET"},
      {0x92, "NEWOBJ_EX"},
      {0x93, "STACK_GLOBAL"},
      {0x94, "MEMOIZE"},
      {0x95, "FRAME"},
      {0x96, "BYTEARRAY8"},
      {0x97, "NEXT_BUFFER"},
      {0x98, "READONLY_BUFFER"},
  };
  for (const auto& [known, name] : kNames)
    if (known == code) return name;
  return "opcode " + std::to_string(code);
}

// While a pickle is read its containers still grow; they are const only for those who receive the result.
template <typename T>
T* growing(PickleRef ref) {
  return std::get_if<T>(&const_cast<PickleValue&>(*ref).value);
}

// Dictionary keys that can be compared: anything else counts as new.
std::optional<std::string> key_identity(const PickleValue& key) {
  if (const auto* text = std::get_if<std::string>(&key.value)) return "s" + *text;
  if (const auto* integer = std::get_if<int64_t>(&key.value)) return "i" + std::to_string(*integer);
  if (const auto* flag = std::get_if<bool>(&key.value)) return std::string("i") + (*flag ? "1" : "0");
  return std::nullopt;
}

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, std::string_view origin) : bytes_(bytes), origin_(origin) {}

  PickleDocument run() {
    while (true) {
      const unsigned char code = static_cast<unsigned char>(take(1)[0]);
      if (code != kStop) {
        step(code);
        continue;
      }
      document_.root = pop();
      document_.consumed_bytes = at_;
      return std::move(document_);
    }
  }

 private:
  [[noreturn]] void corrupt(const std::string& what) const {
    fail(Code::kCorrupt, "pickle", std::string(origin_) + ": " + what + " at offset " + std::to_string(at_));
  }
  // Whose arguments a message blames: those of the opcode just read.
  std::string place() const { return std::string(origin_) + " at offset " + std::to_string(at_ - 1); }

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) corrupt("the pickle is cut short");
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, count);
    at_ += count;
    return text;
  }

  uint64_t number(size_t count) {
    uint64_t value = 0;
    const std::string_view raw = take(count);
    for (size_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(static_cast<unsigned char>(raw[i])) << (8 * i);
    return value;
  }

  void push(PickleValue value) {
    if (document_.values.size() >= kMaxValues) corrupt("too many values");
    stack_.push_back(&document_.values.emplace_back(std::move(value)));
  }

  void push_text(std::string_view text) {
    if (!is_valid_utf8(text)) corrupt("a text that is not UTF-8");
    push({std::string(text)});
  }

  PickleRef pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) corrupt("the stack is empty");
    const PickleRef value = stack_.back();
    stack_.pop_back();
    return value;
  }

  PickleRef top() const {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) corrupt("the stack is empty");
    return stack_.back();
  }

  std::vector<PickleRef> pop_to_mark() {
    if (marks_.empty()) corrupt("no mark");
    std::vector<PickleRef> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  void push_tuple(size_t count) {
    std::vector<PickleRef> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    push({PickleList{PickleList::Kind::kTuple, std::move(items)}});
  }

  void append(const std::vector<PickleRef>& items) {
    PickleList* list = growing<PickleList>(top());
    if (!list || list->kind != PickleList::Kind::kList) corrupt("appending to something that is not a list");
    list->items.insert(list->items.end(), items.begin(), items.end());
  }

  void set_items(const std::vector<PickleRef>& items) {
    const PickleRef target = top();
    PickleDict* dict = growing<PickleDict>(target);
    if (!dict) corrupt("setting an item of something that is not a dictionary");
    if (items.size() % 2 != 0) corrupt("a key without a value");
    auto& places = places_[target];
    for (size_t i = 0; i < items.size(); i += 2) {
      if (std::holds_alternative<PickleList>(items[i]->value) || std::holds_alternative<PickleDict>(items[i]->value))
        if (!is_hashable(*items[i])) corrupt("a dictionary key that cannot be hashed");
      const std::optional<std::string> identity = key_identity(*items[i]);
      if (identity) {
        const auto [place, fresh] = places.emplace(*identity, dict->items.size());
        if (!fresh) {
          dict->items[place->second].second = items[i + 1];
          continue;
        }
      }
      dict->items.emplace_back(items[i], items[i + 1]);
    }
  }

  static bool is_hashable(const PickleValue& value) {
    const auto* list = std::get_if<PickleList>(&value.value);
    return list && list->kind == PickleList::Kind::kTuple;
  }

  void put(uint64_t index) { memo_[index] = top(); }

  void get(uint64_t index) {
    const auto at = memo_.find(index);
    if (at == memo_.end()) corrupt("memo entry " + std::to_string(index) + " was never set");
    stack_.push_back(at->second);
  }

  std::string_view take_line() {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_, bytes_.size() - at_);
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) corrupt("an unfinished line");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  void push_global() {
    const std::string module(take_line());
    const std::string name = module + "." + std::string(take_line());
    if (!is_accepted_global(name))
      fail(Code::kUnsupported, "pickle", std::string(origin_) + " wants to run " + name.substr(0, 200),
           {.expected = "tensors, dictionaries, lists and scalars only", .hint = "saving a plain state_dict"});
    push({PickleGlobal{name}});
  }

  void push_long() {
    const std::string_view raw = take(number(1));
    if (raw.size() > 8) return push({PickleValue::LongInteger{std::string(raw)}});
    uint64_t value = !raw.empty() && (raw.back() & 0x80) ? UINT64_MAX : 0;
    for (size_t i = 0; i < raw.size(); ++i) {
      value &= ~(uint64_t{0xFF} << (8 * i));
      value |= static_cast<uint64_t>(static_cast<unsigned char>(raw[i])) << (8 * i);
    }
    push({static_cast<int64_t>(value)});
  }

  void push_float() {
    uint64_t bits = 0;
    for (const char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
    push({std::bit_cast<double>(bits)});
  }

  void reduce() {
    const PickleRef arguments = pop(), function = pop();
    const auto* global = std::get_if<PickleGlobal>(&function->value);
    const auto* tuple = std::get_if<PickleList>(&arguments->value);
    if (!global || !tuple || tuple->kind != PickleList::Kind::kTuple) corrupt("a call that is not one");
    push(rebuild(global->name, tuple->items, place()));
  }

  // The only state torch attaches is OrderedDict's `_metadata`, which describes modules, not tensors.
  void build() {
    const PickleRef state = pop();
    const auto* dict = std::get_if<PickleDict>(&top()->value);
    if (!dict || !dict->ordered_type || !std::holds_alternative<PickleDict>(state->value))
      fail(Code::kUnsupported, "pickle", std::string(origin_) + " sets the state of an object (BUILD)",
           {.expected = "an OrderedDict"});
  }

  void step(unsigned char code) {
    switch (code) {
      case kProto: {
        const uint64_t version = number(1);
        if (version != 2)
          fail(Code::kUnsupported, "pickle", std::string(origin_) + " uses another pickle protocol",
               {.expected = "2", .got = std::to_string(version)});
        return;
      }
      case kMark:
        return marks_.push_back(stack_.size());
      case kNone:
        return push({PickleValue::None{}});
      case kNewTrue:
        return push({true});
      case kNewFalse:
        return push({false});
      case kBinInt:
        return push({static_cast<int64_t>(static_cast<int32_t>(number(4)))});
      case kBinInt1:
        return push({static_cast<int64_t>(number(1))});
      case kBinInt2:
        return push({static_cast<int64_t>(number(2))});
      case kLong1:
        return push_long();
      case kBinFloat:
        return push_float();
      case kBinUnicode:
        return push_text(take(number(4)));
      case kShortBinString:
        return push_text(take(number(1)));
      case kEmptyTuple:
        return push({PickleList{PickleList::Kind::kTuple, {}}});
      case kEmptyList:
        return push({PickleList{PickleList::Kind::kList, {}}});
      case kEmptySet:
        return push({PickleList{PickleList::Kind::kSet, {}}});
      case kEmptyDict:
        return push({PickleDict{}});
      case kTuple:
        return push({PickleList{PickleList::Kind::kTuple, pop_to_mark()}});
      case kTuple1:
        return push_tuple(1);
      case kTuple2:
        return push_tuple(2);
      case kTuple3:
        return push_tuple(3);
      case kAppend:
        return append({pop()});
      case kAppends:
        return append(pop_to_mark());
      case kSetItem: {
        const PickleRef value = pop(), key = pop();
        return set_items({key, value});
      }
      case kSetItems:
        return set_items(pop_to_mark());
      case kBinPut:
        return put(number(1));
      case kLongBinPut:
        return put(number(4));
      case kBinGet:
        return get(number(1));
      case kLongBinGet:
        return get(number(4));
      case kGlobal:
        return push_global();
      case kReduce:
        return reduce();
      case kBuild:
        return build();
      case kBinPersId:
        return push({storage_from_id(*pop(), place())});
      default:
        fail(Code::kUnsupported, "pickle",
             std::string(origin_) + " uses " + opcode_name(code) + " at offset " + std::to_string(at_ - 1),
             {.expected = "what torch.save writes for tensors, dictionaries, lists and scalars"});
    }
  }

  std::span<const std::byte> bytes_;
  std::string_view origin_;
  PickleDocument document_;
  size_t at_ = 0;
  std::vector<PickleRef> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleRef> memo_;
  std::unordered_map<const PickleValue*, std::unordered_map<std::string, size_t>> places_;  // keys of open dictionaries
};

constexpr int kMaxDepth = 64;
constexpr size_t kMaxVisited = 4'000'000, kMaxNameBytes = 4096;

class Collector {
 public:
  explicit Collector(std::string_view origin) : origin_(origin) {}

  void visit(PickleRef ref, const std::string& name, int depth) {
    if (depth > kMaxDepth || ++visited_ > kMaxVisited)
      fail(Code::kCorrupt, "pickle", std::string(origin_) + " is nested too deeply or has too many values",
           {.expected =
                "at most " + std::to_string(kMaxDepth) + " levels and " + std::to_string(kMaxVisited) + " values"});
    if (name.size() > kMaxNameBytes)
      fail(Code::kCorrupt, "pickle", std::string(origin_) + " holds a name that is too long",
           {.expected = "at most " + std::to_string(kMaxNameBytes) + " bytes", .got = std::to_string(name.size())});
    if (const auto* tensor = std::get_if<PickleTensor>(&ref->value)) {
      found.emplace_back(name, tensor);
    } else if (const auto* dict = std::get_if<PickleDict>(&ref->value)) {
      for (const auto& [key, value] : dict->items) visit(value, join(name, key_text(*key)), depth + 1);
    } else if (const auto* list = std::get_if<PickleList>(&ref->value)) {
      for (size_t i = 0; i < list->items.size(); ++i) visit(list->items[i], join(name, std::to_string(i)), depth + 1);
    }
  }

  std::vector<std::pair<std::string, const PickleTensor*>> found;

 private:
  static std::string join(const std::string& name, const std::string& part) {
    return name.empty() ? part : name + "." + part;
  }
  static std::string key_text(const PickleValue& key) {
    if (const auto* text = std::get_if<std::string>(&key.value)) return *text;
    if (const auto* integer = std::get_if<int64_t>(&key.value)) return std::to_string(*integer);
    if (const auto* flag = std::get_if<bool>(&key.value)) return *flag ? "True" : "False";
    return "?";
  }

  std::string_view origin_;
  size_t visited_ = 0;
};

}  // namespace

PickleDocument parse_pickle(std::span<const std::byte> bytes, std::string_view origin) {
  return Machine(bytes, origin).run();
}

std::vector<std::pair<std::string, const PickleTensor*>> tensors_in(PickleRef root, std::string_view origin) {
  Collector collector(origin);
  collector.visit(root, "", 0);
  return std::move(collector.found);
}

}  // namespace lockstep
