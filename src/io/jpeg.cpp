#include <cstddef>
#include <cstdio>
// jpeglib.h needs the two above and does not include them.
#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "io/image_codecs.h"

namespace lockstep {
namespace {

constexpr int kMaxScans = 500;  // a progressive file of some kilobytes can ask for thousands of passes over the picture
constexpr long kMaxCodecMemory = 1l << 30;

struct JpegErrors {
  jpeg_error_mgr manager;  // first: libjpeg hands back a pointer to it
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = {};
};

[[noreturn]] void on_error(j_common_ptr codec) {
  JpegErrors* errors = reinterpret_cast<JpegErrors*>(codec->err);
  codec->err->format_message(codec, errors->message);
  std::longjmp(errors->jump, 1);
}

// libjpeg fills damaged parts with grey and calls it a warning. Here it is an error, except for stray bytes between
// markers, which some cameras write.
void on_message(j_common_ptr codec, int level) {
  if (level < 0 && codec->err->msg_code != JWRN_EXTRANEOUS_DATA) on_error(codec);
}

void on_progress(j_common_ptr codec) {
  if (!codec->is_decompressor || reinterpret_cast<j_decompress_ptr>(codec)->input_scan_number <= kMaxScans) return;
  JpegErrors* errors = reinterpret_cast<JpegErrors*>(codec->err);
  std::strncpy(errors->message, "more scans than any real picture has", sizeof errors->message - 1);
  std::longjmp(errors->jump, 1);
}

void use_errors(JpegErrors& errors) {
  jpeg_std_error(&errors.manager);
  errors.manager.error_exit = on_error;
  errors.manager.emit_message = on_message;
}

struct JpegReader {
  JpegReader() {
    use_errors(errors);
    codec.err = &errors.manager;
    jpeg_create_decompress(&codec);
    progress.progress_monitor = on_progress;
    codec.progress = &progress;
    codec.mem->max_memory_to_use = kMaxCodecMemory;
  }
  ~JpegReader() { jpeg_destroy_decompress(&codec); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  bool read_header(std::span<const std::byte> bytes) {
    if (setjmp(errors.jump)) return false;
    jpeg_mem_src(&codec, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_save_markers(&codec, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(&codec, TRUE);
    if (codec.num_components == 1)
      codec.out_color_space = JCS_GRAYSCALE;
    else
      codec.out_color_space = codec.num_components == 4 ? JCS_CMYK : JCS_RGB;
    return true;
  }

  bool read_rows(unsigned char* out, size_t row_bytes) {
    if (setjmp(errors.jump)) return false;
    jpeg_start_decompress(&codec);
    while (codec.output_scanline < codec.output_height) {
      unsigned char* row = out + codec.output_scanline * row_bytes;
      jpeg_read_scanlines(&codec, &row, 1);
    }
    jpeg_finish_decompress(&codec);
    return true;
  }

  JpegErrors errors;
  jpeg_decompress_struct codec{};
  jpeg_progress_mgr progress{};
};

struct JpegWriter {
  JpegWriter() {
    use_errors(errors);
    codec.err = &errors.manager;
    jpeg_create_compress(&codec);
  }
  ~JpegWriter() {
    jpeg_destroy_compress(&codec);
    std::free(out);
  }
  JpegWriter(const JpegWriter&) = delete;
  JpegWriter& operator=(const JpegWriter&) = delete;

  bool write(const unsigned char* pixels, uint32_t width, uint32_t height, int channels, const std::string& exif,
             int quality) {
    if (setjmp(errors.jump)) return false;
    jpeg_mem_dest(&codec, &out, &size);
    codec.image_width = width;
    codec.image_height = height;
    codec.input_components = channels;
    codec.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&codec);
    jpeg_set_quality(&codec, quality, TRUE);
    if (quality >= 90)  // chroma at full resolution: red edges in a generated picture stay sharp
      codec.comp_info[0].h_samp_factor = codec.comp_info[0].v_samp_factor = 1;
    jpeg_start_compress(&codec, TRUE);
    if (!exif.empty())
      jpeg_write_marker(&codec, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()),
                        static_cast<unsigned>(exif.size()));
    while (codec.next_scanline < height) {
      unsigned char* row = const_cast<unsigned char*>(pixels) +
                           static_cast<size_t>(codec.next_scanline) * width * static_cast<size_t>(channels);
      jpeg_write_scanlines(&codec, &row, 1);
    }
    jpeg_finish_compress(&codec);
    return true;
  }

  JpegErrors errors;
  jpeg_compress_struct codec{};
  unsigned char* out = nullptr;
  unsigned long size = 0;
};

// Adobe stores CMYK inverted, others do not; after that each colour is what paper and black ink leave of it.
Tensor rgb_from_cmyk(const Tensor& cmyk, bool inverted) {
  Tensor rgb = Tensor::empty(DType::kU8, {cmyk.dim(0), cmyk.dim(1), 3});
  const uint8_t* from = cmyk.data<uint8_t>();
  uint8_t* to = rgb.mutable_data<uint8_t>();
  for (int64_t i = 0; i < cmyk.dim(0) * cmyk.dim(1); ++i, from += 4, to += 3)
    for (int c = 0; c < 3; ++c) {
      const int ink = inverted ? from[c] : 255 - from[c], black = inverted ? from[3] : 255 - from[3];
      to[c] = static_cast<uint8_t>((ink * black + 127) / 255);
    }
  return rgb;
}

constexpr std::string_view kExif("Exif\0\0", 6);

std::span<const std::byte> exif_of(const jpeg_decompress_struct& codec) {
  for (jpeg_saved_marker_ptr marker = codec.marker_list; marker; marker = marker->next)
    if (marker->marker == JPEG_APP0 + 1 && marker->data_length >= kExif.size() &&
        std::memcmp(marker->data, kExif.data(), kExif.size()) == 0)
      return std::as_bytes(std::span(marker->data, marker->data_length));
  return {};
}

}  // namespace

DecodedImage decode_jpeg(std::span<const std::byte> bytes, std::string_view origin) {
  JpegReader reader;
  const auto corrupt = [&] {
    fail(Code::kCorrupt, "jpeg",
         std::string(origin) + ": " + reader.errors.message + " (near offset " +
             std::to_string(bytes.size() - (reader.codec.src ? reader.codec.src->bytes_in_buffer : 0)) + ")");
  };
  if (!reader.read_header(bytes)) corrupt();
  const jpeg_decompress_struct& codec = reader.codec;
  check_image_size(codec.image_width, codec.image_height, "jpeg", origin);
  // Huffman codes spend at least one bit on each block of 8 x 8 pixels; arithmetic coding may spend less.
  if (!codec.arith_code && uint64_t{codec.image_width} * codec.image_height / 512 > bytes.size())
    fail(Code::kCorrupt, "jpeg", std::string(origin) + ": too few bytes for the size it promises",
         {.got = std::to_string(codec.image_width) + " x " + std::to_string(codec.image_height) + " in " +
                 std::to_string(bytes.size()) + " bytes"});
  const int channels = codec.num_components;
  if (channels != 1 && channels != 3 && channels != 4)
    fail(Code::kUnsupported, "jpeg", std::string(origin) + ": unusual number of components",
         {.expected = "1, 3 or 4", .got = std::to_string(channels)});
  DecodedImage decoded;
  const std::span<const std::byte> exif = exif_of(codec);  // now: finishing frees the markers
  decoded.orientation = exif_orientation(exif);
  decoded.image.text = exif_text(exif);
  Tensor& pixels = decoded.image.pixels;
  pixels = Tensor::zeros(DType::kU8, {codec.image_height, codec.image_width, channels});
  if (!reader.read_rows(pixels.mutable_data<uint8_t>(), pixels.bytes() / codec.image_height)) corrupt();
  if (channels == 4) pixels = rgb_from_cmyk(pixels, codec.saw_Adobe_marker);
  return decoded;
}

std::string encode_jpeg(const Tensor& pixels, const std::map<std::string, std::string>& text, int quality) {
  if (pixels.dtype() != DType::kU8 || pixels.dim(2) == 4)
    fail(Code::kBadInput, "jpeg", "JPEG holds 8-bit grey or RGB only",
         {.got = std::string(dtype_name(pixels.dtype())) + " " + to_string(pixels.shape()), .hint = ".png"});
  if (pixels.dim(0) > JPEG_MAX_DIMENSION || pixels.dim(1) > JPEG_MAX_DIMENSION)
    fail(Code::kBadInput, "jpeg", to_string(pixels.shape()) + " is too large for JPEG", {.hint = ".png"});
  constexpr size_t kMaxSegment = 65533;
  const std::string block = text.empty() ? std::string() : exif_with_text(text, kMaxSegment - kExif.size());
  const std::string exif = block.empty() ? block : std::string(kExif) + block;
  JpegWriter writer;
  if (!writer.write(pixels.data<uint8_t>(), static_cast<uint32_t>(pixels.dim(1)), static_cast<uint32_t>(pixels.dim(0)),
                    static_cast<int>(pixels.dim(2)), exif, quality))
    fail(Code::kInternal, "jpeg", writer.errors.message);
  return {reinterpret_cast<const char*>(writer.out), writer.size};
}

}  // namespace lockstep
