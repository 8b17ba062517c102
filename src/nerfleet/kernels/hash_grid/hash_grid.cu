// The grid encoding and the scatter of its gradient.
//   positions     [n, 3] f32 in the unit cube
//   table         [n_params] f16, levels one after the other, an entry's features adjacent; grad_table the same, added to
//   features      [n, NF_LEVELS * NF_FEATURES] f16; grad_features the same
//   count         [1] i32 samples that are valid, or null: all n
#include "hash_grid.cuh"

constexpr int RUN = 16;  // neighbouring samples that one team walks along

extern "C" __global__ void __launch_bounds__(256)
hash_grid_forward(const float* positions, const __half* table, const Grid grid, int n, __half* features) {
    const int level = blockIdx.y;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum[NF_FEATURES];
    encode_level(table, grid.level[level], level < NF_DENSE_LEVELS, load3(positions + 3 * static_cast<size_t>(i)), sum);
    __half* out = features + static_cast<size_t>(i) * N_FEATURES + level * NF_FEATURES;
#pragma unroll
    for (int f = 0; f < NF_FEATURES; ++f) out[f] = __float2half_rn(sum[f]);
}

__device__ __forceinline__ void flush(__half* grad_table, unsigned entry, float (&sum)[NF_FEATURES]) {
    __half* p = grad_table + static_cast<size_t>(entry) * NF_FEATURES;
#if NF_FEATURES == 1
    // A pair of features shares a word: add zero to the other one.
    const bool upper = entry & 1;
    reduce_add_half2(p - (upper ? 1 : 0), __floats2half2_rn(upper ? 0.0f : sum[0], upper ? sum[0] : 0.0f));
#elif NF_FEATURES == 2
    reduce_add_half2(p, __floats2half2_rn(sum[0], sum[1]));
#else
#pragma unroll
    for (int f = 0; f < NF_FEATURES; f += 4) {
        reduce_add_half4(p + f, __floats2half2_rn(sum[f], sum[f + 1]), __floats2half2_rn(sum[f + 2], sum[f + 3]));
    }
#endif
#pragma unroll
    for (int f = 0; f < NF_FEATURES; ++f) sum[f] = 0.0f;
}

__device__ __forceinline__ void load_gradient(const __half* p, float (&g)[NF_FEATURES]) {
#if NF_FEATURES == 4
    const uint2 v = __ldg(reinterpret_cast<const uint2*>(p));
    const float2 low = unpack_halves(v.x), high = unpack_halves(v.y);
    g[0] = low.x, g[1] = low.y, g[2] = high.x, g[3] = high.y;
#else
#pragma unroll
    for (int f = 0; f < NF_FEATURES; ++f) g[f] = __half2float(p[f]);
#endif
}

// Eight lanes, one for each corner of a cell, walk along RUN neighbouring samples of one level and add up in registers while
// the samples stay in one cell: neighbours on a ray share most coarse cells, and the two corners along x mostly share a sector.
extern "C" __global__ void __launch_bounds__(256)
hash_grid_backward(const float* positions, const __half* grad_features, const Grid grid, const int* count, int n, __half* grad_table) {
    const int n_valid = count ? min(*count, n) : n;
    const int level_index = blockIdx.y;
    const Level level = grid.level[level_index];
    const bool dense = level_index < NF_DENSE_LEVELS;
    const int corner = threadIdx.x & 7;
    const int first = (blockIdx.x * (blockDim.x / 8) + threadIdx.x / 8) * RUN;
    if (first >= n_valid || (NF_INTERPOLATION == 2 && corner > 0)) return;
    const int end = min(first + RUN, n_valid);
    const __half* gradient = grad_features + level_index * NF_FEATURES;
    float sum[NF_FEATURES] = {};
    unsigned x = 0, y = 0, z = 0;
    bool pending = false;
#pragma unroll 4
    for (int i = first; i < end; ++i) {
        float g[NF_FEATURES];
        load_gradient(gradient + static_cast<size_t>(i) * N_FEATURES, g);
        const Corners c = corners_of(load3(positions + 3 * static_cast<size_t>(i)), level.scale);
        if (pending && (c.x != x || c.y != y || c.z != z)) {
            flush(grad_table, entry_of(level, dense, x + (corner & 1), y + (corner >> 1 & 1), z + (corner >> 2)), sum);
        }
        x = c.x, y = c.y, z = c.z;
        pending = true;
        const float weight = corner_weight(c.fraction, corner);
#pragma unroll
        for (int f = 0; f < NF_FEATURES; ++f) sum[f] += weight * g[f];
    }
    flush(grad_table, entry_of(level, dense, x + (corner & 1), y + (corner >> 1 & 1), z + (corner >> 2)), sum);
}
