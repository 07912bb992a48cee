// A convolution as a matrix product: the patches under the kernel, one a row.
#include "backend/cuda/leaf/device.cuh"
#include "backend/cuda/leaf/kernels.cuh"

namespace lockstep::cuda {
namespace {

template <typename T>
__global__ void unfold_rows(ConvTask task, T* columns, int64_t first_row, int64_t rows) {
  const int64_t channels = task.x.shape[3], height = task.x.shape[1], width = task.x.shape[2];
  const int64_t out_height = task.out.shape[1], out_width = task.out.shape[2];
  const int64_t row_width = task.kernel_height * task.kernel_width * channels;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * row_width) return;
  const int64_t row = first_row + i / row_width, at = i % row_width;
  const int64_t c = at % channels, kx = at / channels % task.kernel_width, ky = at / channels / task.kernel_width;
  const int64_t ox = row % out_width, oy = row / out_width % out_height, b = row / out_width / out_height;
  const int64_t y = oy * task.stride + ky - task.pad_top, x = ox * task.stride + kx - task.pad_left;
  const T* from = static_cast<const T*>(task.x.data);
  columns[i] = y < 0 || y >= height || x < 0 || x >= width ? narrow<T>(0.0f)
                                                           : from[((b * height + y) * width + x) * channels + c];
}

}  // namespace

Outcome unfold(const ConvTask* task, void* columns, int64_t first_row, int64_t rows, Stream stream) {
  const int64_t count = rows * task->kernel_height * task->kernel_width * task->x.shape[3];
  if (count == 0) return Outcome::kDone;
  return for_float(task->x.dtype, "convolution of this dtype", [&]<typename T>(T) {
    unfold_rows<T><<<(count + 255) / 256, 256, 0, static_cast<cudaStream_t>(stream)>>>(*task, static_cast<T*>(columns),
                                                                                       first_row, rows);
    return launched("unfold");
  });
}

}  // namespace lockstep::cuda
