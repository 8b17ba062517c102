// The grid encoding and the scatter of its gradient.
//   positions     [n, 3] f32 in the unit cube
//   table         [n_params] f16, levels one after the other, an entry's features adjacent; grad_table the same, added to
//   features      [n, NF_LEVELS * NF_FEATURES] f16; grad_features the same
//                 (as columns of rows of NF_ROW halves)
//   count         [1] i32 samples that are valid, or null: all n
#include "hash_grid.cuh"

#ifndef NF_ROW
#define NF_ROW N_FEATURES
#endif

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

// sum -> the entry's gradient, unless it rounds to zero.
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
        const unsigned low = pack_halves(sum[f], sum[f + 1]), high = pack_halves(sum[f + 2], sum[f + 3]);
        if (((low | high) & 0x7FFF7FFFu) != 0) reduce_add_half4(p + f, as_half2(low), as_half2(high));
    }
#endif
#pragma unroll
    for (int f = 0; f < NF_FEATURES; ++f) sum[f] = 0.0f;
}

// Gradients of LEVELS neighbouring levels of a sample.
constexpr int LEVELS = NF_LEVELS % 4 == 0 && NF_FEATURES <= 4 ? 4 : (NF_LEVELS % 2 == 0 ? 2 : 1);
__device__ __forceinline__ void load_gradients(const __half* p, float (&g)[LEVELS][NF_FEATURES]) {
    constexpr int N = LEVELS * NF_FEATURES;
    float* flat = &g[0][0];
    if constexpr (N % 8 == 0 && NF_ROW % 8 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 8) {
            const uint4 v = __ldg(reinterpret_cast<const uint4*>(p + i));
            const float2 a = unpack_halves(v.x), b = unpack_halves(v.y), c = unpack_halves(v.z), d = unpack_halves(v.w);
            flat[i] = a.x, flat[i + 1] = a.y, flat[i + 2] = b.x, flat[i + 3] = b.y;
            flat[i + 4] = c.x, flat[i + 5] = c.y, flat[i + 6] = d.x, flat[i + 7] = d.y;
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) flat[i] = __half2float(p[i]);
    }
}

// Eight lanes, one for each corner of a cell, walk along RUN neighbouring samples of a few levels and add up in registers while
// the samples stay in one cell: neighbours on a ray share most coarse cells, and the two corners along x mostly share a sector.
extern "C" __global__ void __launch_bounds__(256)
hash_grid_backward(const float* positions, const __half* grad_features, const Grid grid, const int* count, int n, __half* grad_table) {
    const int n_valid = count ? min(*count, n) : n;
    const int first_level = blockIdx.y * LEVELS, corner = threadIdx.x & 7;
    const int first = (blockIdx.x * (blockDim.x / 8) + threadIdx.x / 8) * RUN;
    if (first >= n_valid || (NF_INTERPOLATION == 2 && corner > 0)) return;
    const int end = min(first + RUN, n_valid);
    const auto vertex = [&](int i, unsigned x, unsigned y, unsigned z) {
        return entry_of(grid.level[first_level + i], first_level + i < NF_DENSE_LEVELS, x + (corner & 1), y + (corner >> 1 & 1), z + (corner >> 2));
    };
    const __half* gradient = grad_features + first_level * NF_FEATURES;
    float sum[LEVELS][NF_FEATURES] = {};
    unsigned x[LEVELS] = {}, y[LEVELS] = {}, z[LEVELS] = {};
    vec3 following = load3(positions + 3 * static_cast<size_t>(first));
    for (int s = first; s < end; ++s) {
        float g[LEVELS][NF_FEATURES];
        load_gradients(gradient + static_cast<size_t>(s) * NF_ROW, g);
        const vec3 position = following;
        following = load3(positions + 3 * static_cast<size_t>(min(s + 1, end - 1)));
#pragma unroll
        for (int i = 0; i < LEVELS; ++i) {
            const Corners c = corners_of(position, grid.level[first_level + i].scale);
            if (s > first && (c.x != x[i] || c.y != y[i] || c.z != z[i])) flush(grad_table, vertex(i, x[i], y[i], z[i]), sum[i]);
            x[i] = c.x, y[i] = c.y, z[i] = c.z;
            const float weight = corner_weight(c.fraction, corner);
#pragma unroll
            for (int f = 0; f < NF_FEATURES; ++f) sum[i][f] += weight * g[i][f];
        }
    }
#pragma unroll
    for (int i = 0; i < LEVELS; ++i) flush(grad_table, vertex(i, x[i], y[i], z[i]), sum[i]);
}
