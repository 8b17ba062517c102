// The field at given points: a warp takes 32 points at a time, one a lane.
//   positions  [n, 3] f32 in the unit cube      directions [n, 3] f32 unit length
//   table      [n_params] f16                   mlp        [N_MLP_PARAMS] f16
//   rgb        [n, 3] f32                       raw        [n] f32, log density
//   features   [n, N_FEATURES] f16 (read again by field_backward)
#include "field.cuh"

extern __shared__ __align__(16) unsigned char shared_memory[];

__device__ __forceinline__ void write_features(const __half* row, __half* out) {
#pragma unroll
    for (int f = 0; f < N_FEATURES; ++f) out[f] = row[f];
}

extern "C" __global__ void __launch_bounds__(128)
field_forward(const float* positions, const float* directions, const __half* table, const __half* mlp, const Grid grid, int n, float* rgb,
              float* raw, __half* features) {
    __half* weights = reinterpret_cast<__half*>(shared_memory);
    __half* tile = weights + WEIGHT_HALVES + threadIdx.x / 32 * TILE_HALVES;
    __half* row = tile + lane_index() * TILE_STRIDE;
    load_weights(mlp, weights);
    clear_padding(row);
    __syncthreads();
    for (int base = (blockIdx.x * blockDim.x + threadIdx.x) & ~31; base < n; base += gridDim.x * blockDim.x) {
        const int i = base + lane_index();
        const size_t safe = min(i, n - 1);
        encode(table, grid, load3(positions + 3 * safe), row);
        store_harmonics(load3(directions + 3 * safe), row + INPUT_TILED);
        __syncwarp();
        Operand<2, 1> outputs;
        const float density = density_forward(weights, tile, outputs);
        const vec3 colour = logistic(colour_forward(weights, tile, outputs));
        if (i < n) {
            store3(rgb + 3 * safe, colour);
            raw[i] = density;
            write_features(row, features + safe * N_FEATURES);
        }
        __syncwarp();
    }
}

extern "C" __global__ void __launch_bounds__(128)
field_density(const float* positions, const __half* table, const __half* mlp, const Grid grid, int n, float* raw) {
    __half* weights = reinterpret_cast<__half*>(shared_memory);
    __half* tile = weights + DENSITY_WEIGHT_HALVES + threadIdx.x / 32 * TILE_HALVES;
    __half* row = tile + lane_index() * TILE_STRIDE;
    load_density_weights(mlp, weights);
    clear_padding(row);
    __syncthreads();
    for (int base = (blockIdx.x * blockDim.x + threadIdx.x) & ~31; base < n; base += gridDim.x * blockDim.x) {
        const int i = base + lane_index();
        encode(table, grid, load3(positions + 3 * static_cast<size_t>(min(i, n - 1))), row);
        __syncwarp();
        Operand<2, 1> outputs;
        const float density = density_forward(weights, tile, outputs);
        if (i < n) raw[i] = density;
        __syncwarp();
    }
}
