#include "io/torch_file.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/utf8.h"
#include "io/mapped_tensor.h"

namespace lockstep {
namespace {

constexpr uint64_t kMaxPickleBytes = uint64_t{256} << 20;
// A pickle of torch's magic number 0x1950a86a20f9469cfc6c, then one of the format's version, 1001.
constexpr std::string_view kLegacyMagic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
constexpr int64_t kLegacyVersion = 1001;
constexpr long kNewestVersion = 10;  // of the zip form

[[noreturn]] void corrupt(const fs::path& path, const std::string& what, const Detail& detail = {}) {
  fail(Code::kCorrupt, "torch", path.string() + ": " + what, detail);
}

uint64_t storage_size_bytes(const PickleStorage& storage) {
  return storage.count * dtype_bytes(storage.dtype);
}

}  // namespace

bool TorchFile::looks_like(std::span<const std::byte> bytes) {
  const auto starts = [&](std::string_view magic) {
    return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  };
  return starts(kLegacyMagic) || starts("PK\3\4");
}

std::shared_ptr<const TorchFile> TorchFile::open(const fs::path& path) {
  const auto file = MappedFile::open(path);
  return parse(file->bytes(), path, file);
}

std::shared_ptr<const TorchFile> TorchFile::parse(std::span<const std::byte> bytes, const fs::path& origin,
                                                  std::shared_ptr<const void> owner) {
  std::shared_ptr<TorchFile> file(new TorchFile);
  file->path_ = origin;
  if (!looks_like(bytes))
    fail(Code::kUnsupported, "torch", origin.string() + " is not a file of torch.save",
         {.expected = "a zip archive or torch's older format"});
  if (bytes[0] == std::byte{'P'})
    file->read_zip(bytes, std::move(owner));
  else
    file->read_legacy(bytes, std::move(owner));
  file->list_tensors();
  return file;
}

void TorchFile::read_zip(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  archive_ = std::make_unique<ZipArchive>(bytes, path_.string(), std::move(owner));
  constexpr std::string_view kPickle = "/data.pkl";
  const ZipEntry* pickle = nullptr;
  for (const ZipEntry& entry : archive_->entries()) {
    if (!entry.name.ends_with(kPickle) || entry.name.find('/') != entry.name.size() - kPickle.size()) continue;
    if (pickle)
      corrupt(path_, "two pickles in one archive",
              {.expected = "one data.pkl", .got = pickle->name + " and " + entry.name});
    pickle = &entry;
  }
  if (!pickle) corrupt(path_, "no data.pkl in the archive", {.expected = "what torch.save writes"});
  prefix_ = pickle->name.substr(0, pickle->name.size() - kPickle.size() + 1);
  if (archive_->find(prefix_ + "constants.pkl"))
    fail(Code::kUnsupported, "torch", path_.string() + " is a TorchScript program",
         {.expected = "what torch.save writes", .hint = "saving a state_dict"});
  check_small_records();
  if (pickle->size_bytes > kMaxPickleBytes)
    corrupt(path_, "the pickle is too large",
            {.expected = "at most " + std::to_string(kMaxPickleBytes), .got = std::to_string(pickle->size_bytes)});
  const OwnedBytes content = archive_->read(*pickle, false);
  document_ = parse_pickle(content.bytes, path_.string() + ":" + pickle->name);
}

// The archive's version, byte order and alignment. Torch refuses a file in which one of them makes no sense.
void TorchFile::check_small_records() const {
  const auto text = [&](const char* name) -> std::optional<std::string> {
    const ZipEntry* entry = archive_->find(prefix_ + name);
    if (!entry) return std::nullopt;
    const OwnedBytes content = archive_->read_start(*entry, 64);
    return std::string(reinterpret_cast<const char*>(content.bytes.data()), content.bytes.size());
  };
  const auto is_number = [](std::string digits) {
    while (!digits.empty() && (digits.back() == '\n' || digits.back() == ' ')) digits.pop_back();
    return !digits.empty() && digits.size() < 10 &&
           std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  const std::optional<std::string> version = text("version"), order = text("byteorder");
  if (!version || !is_number(*version) || std::stol(*version) < 1 || std::stol(*version) > kNewestVersion)
    corrupt(path_, "unknown version of the archive",
            {.expected = "1 to " + std::to_string(kNewestVersion), .got = version.value_or("none").substr(0, 20)});
  for (const char* name : {".format_version", ".storage_alignment"})
    if (const auto value = text(name); value && !is_number(*value))
      corrupt(path_, std::string(name) + " is not a number", {.expected = "digits"});
  if (const auto id = text(".data/serialization_id"); id && !is_valid_utf8(*id))
    corrupt(path_, ".data/serialization_id is not text", {.expected = "UTF-8"});
  if (order && *order == "big")
    fail(Code::kUnsupported, "torch", path_.string() + " was written on a big-endian machine",
         {.expected = "little endian"});
  if (order && *order != "little") corrupt(path_, "unknown byte order", {.expected = "little", .got = *order});
}

// Pickles of magic, version, system, the object and the list of storages; then each storage as a count and its bytes.
void TorchFile::read_legacy(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  size_t at = kLegacyMagic.size();
  const auto next_pickle = [&] {
    PickleDocument document = parse_pickle(bytes.subspan(at), path_.string());
    at += document.consumed_bytes;
    return document;
  };
  const PickleDocument version = next_pickle();
  const auto* number = std::get_if<int64_t>(&version.root->value);
  if (!number || *number != kLegacyVersion)
    corrupt(path_, "unknown version of torch's older format", {.expected = std::to_string(kLegacyVersion)});
  const PickleDocument system = next_pickle();
  if (const auto* facts = std::get_if<PickleDict>(&system.root->value))
    for (const auto& [key, value] : facts->items) {
      const auto* name = std::get_if<std::string>(&key->value);
      const auto* little = std::get_if<bool>(&value->value);
      if (name && *name == "little_endian" && little && !*little)
        fail(Code::kUnsupported, "torch", path_.string() + " was written on a big-endian machine",
             {.expected = "little endian"});
    }
  document_ = next_pickle();
  const PickleDocument keys = next_pickle();
  const auto* list = std::get_if<PickleList>(&keys.root->value);
  if (!list) corrupt(path_, "no list of storages at offset " + std::to_string(at));

  std::unordered_map<std::string, uint64_t> item_bytes;  // key → element size, from the object
  for (const PickleValue& value : document_.values)
    if (const auto* storage = std::get_if<PickleStorage>(&value.value))
      item_bytes[storage->key] = dtype_bytes(storage->dtype) * (storage->complex ? 2 : 1);
  for (const PickleRef item : list->items) {
    const auto* key = std::get_if<std::string>(&item->value);
    if (!key) corrupt(path_, "a storage key that is not text before offset " + std::to_string(at));
    const auto known = item_bytes.find(*key);
    if (known == item_bytes.end())
      corrupt(path_, "storage " + *key + " at offset " + std::to_string(at) + " belongs to no tensor");
    if (bytes.size() - at < 8)
      corrupt(path_, "cut short before storage " + *key, {.expected = "8 bytes from offset " + std::to_string(at)});
    uint64_t count = 0;
    for (size_t i = 0; i < 8; ++i) count |= static_cast<uint64_t>(bytes[at + i]) << (8 * i);
    at += 8;
    if (count > (bytes.size() - at) / known->second)
      corrupt(path_, "storage " + *key + " runs past the end of the file",
              {.expected = std::to_string(count) + " elements from offset " + std::to_string(at)});
    const uint64_t size = count * known->second;
    if (!legacy_storages_.emplace(*key, OwnedBytes{bytes.subspan(at, size), owner}).second)
      corrupt(path_, "storage " + *key + " at offset " + std::to_string(at) + " is there twice");
    at += size;
  }
  if (at != bytes.size())
    corrupt(path_, "bytes follow the last storage",
            {.expected = "the end at offset " + std::to_string(at),
             .got = std::to_string(bytes.size() - at) + " more bytes"});
}

OwnedBytes TorchFile::storage_bytes(const PickleStorage& storage) const {
  OwnedBytes content;
  if (archive_) {
    const ZipEntry* entry = archive_->find(prefix_ + "data/" + storage.key);
    if (!entry)
      corrupt(path_, "no storage " + storage.key, {.expected = std::to_string(storage_size_bytes(storage)) + " bytes"});
    if (entry->size_bytes != storage_size_bytes(storage))
      corrupt(path_, "storage " + storage.key + " has another size than its tensors expect",
              {.expected = std::to_string(storage_size_bytes(storage)), .got = std::to_string(entry->size_bytes)});
    return archive_->read(*entry, false);
  }
  const auto at = legacy_storages_.find(storage.key);
  if (at == legacy_storages_.end())
    corrupt(path_, "no storage " + storage.key, {.expected = std::to_string(storage_size_bytes(storage)) + " bytes"});
  if (at->second.bytes.size() != storage_size_bytes(storage))
    corrupt(path_, "storage " + storage.key + " has another size than its tensors expect",
            {.expected = std::to_string(storage_size_bytes(storage)), .got = std::to_string(at->second.bytes.size())});
  return at->second;
}

void TorchFile::list_tensors() {
  for (const auto& [name, tensor] : tensors_in(document_.root, path_.string())) {
    TensorInfo info{.name = name, .dtype = tensor->dtype, .shape = tensor->shape, .file = path_};
    const ZipEntry* entry = archive_ ? archive_->find(prefix_ + "data/" + tensor->storage.key) : nullptr;
    if (archive_ ? !entry || entry->size_bytes != storage_size_bytes(tensor->storage)
                 : !legacy_storages_.contains(tensor->storage.key))
      storage_bytes(tensor->storage);  // says what is wrong
    if (entry && !entry->deflated) info.offset_bytes = entry->data_offset + tensor->offset * dtype_bytes(tensor->dtype);
    info.size_bytes = static_cast<uint64_t>(checked_numel(tensor->shape)) * dtype_bytes(tensor->dtype);
    info.complex = tensor->storage.complex;
    if (!index_.emplace(name, tensors_.size()).second)
      corrupt(path_, "two tensors are named \"" + name + "\" once their path is written with dots",
              {.expected = "each name once"});
    tensors_.push_back(std::move(info));
    pickled_.push_back(tensor);
  }
}

Tensor TorchFile::tensor(std::string_view name) const {
  const auto at = index_.find(std::string(name));
  if (at == index_.end())
    fail(Code::kNotFound, "torch", path_.string() + " has no tensor \"" + std::string(name) + "\"");
  const PickleTensor& pickled = *pickled_[at->second];
  if (checked_numel(pickled.shape) == 0) return Tensor::empty(pickled.dtype, pickled.shape);
  OwnedBytes content = storage_bytes(pickled.storage);
  const size_t item = dtype_bytes(pickled.dtype);
  const int64_t elements = static_cast<int64_t>(content.bytes.size() / item);
  const Tensor storage = tensor_from_bytes(content.bytes.first(static_cast<size_t>(elements) * item), pickled.dtype,
                                           {elements}, std::move(content.owner));
  // The reader checked that the last element lies inside the storage.
  const auto keep = std::make_shared<const Tensor>(storage);
  const Tensor view =
      Tensor::wrap(storage.strided_data() + pickled.offset * item, pickled.dtype, pickled.shape, keep, pickled.strides);
  return view.numel() > elements ? view : view.contiguous();
}

}  // namespace lockstep
