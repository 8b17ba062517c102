// The grid encoding and the scatter of its gradient.
//   positions     [n, 3] f32 in the unit cube
//   table         [n_params] f16, levels one after the other, an entry's features adjacent
//   grad_table    [n_params / 2] pairs in fixed point (fixed_point.cuh), added to: exact, in any order
//   features      [n, NF_LEVELS * NF_FEATURES] f16; grad_features the same, of the i-th sample of the sequence,
//                 as columns of rows of NF_ROW halves
//   order         [n] i32 which position is the i-th of the sequence, or null: the i-th
//   count         [1] i32 samples that are valid, or null: all n
#include "fixed_point.cuh"
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

// An addend is what one addition takes, two features; those of an entry are on neighbouring lanes, and so are the two corners
// along x, which mostly share a sector: one instruction serves it, which is what additions cost.
constexpr int WIDTH = NF_FEATURES == 1 ? 1 : 2, ADDENDS = NF_FEATURES / WIDTH;
constexpr int TEAM = 8, CORNERS = ADDENDS, CORNER_STRIDE = TEAM / ADDENDS;  // each lane has one addend of CORNERS corners

// sum -> the entry's gradient, unless it rounds to zero.
__device__ __forceinline__ void flush(FixedPair* grad_table, unsigned entry, int addend, float (&sum)[WIDTH]) {
#if NF_FEATURES == 1
    const FixedPair pair = entry & 1 ? pack_fixed(0.0f, sum[0]) : pack_fixed(sum[0], 0.0f);
    FixedPair* p = grad_table + entry / 2;
#else
    const FixedPair pair = pack_fixed(sum[0], sum[1]);
    FixedPair* p = grad_table + static_cast<size_t>(entry) * ADDENDS + addend;
#endif
    if (pair != 0) reduce_add(p, pair);
#pragma unroll
    for (int f = 0; f < WIDTH; ++f) sum[f] = 0.0f;
}

// Gradients of one addend of LEVELS neighbouring levels of a sample.
constexpr int LEVELS = NF_LEVELS % 4 == 0 && NF_FEATURES <= 4 ? 4 : (NF_LEVELS % 2 == 0 ? 2 : 1);
__device__ __forceinline__ void load_gradients(const __half* p, float (&g)[LEVELS][WIDTH]) {
#pragma unroll
    for (int i = 0; i < LEVELS; ++i) {
#if NF_FEATURES == 1
        g[i][0] = __half2float(p[i]);
#else
        const float2 pair = unpack_halves(__ldg(reinterpret_cast<const unsigned*>(p + i * NF_FEATURES)));
        g[i][0] = pair.x, g[i][1] = pair.y;
#endif
    }
}

// A team of eight lanes walks along RUN neighbouring samples of a few levels and adds up in registers while the samples stay in
// one cell: neighbours on a ray share most coarse cells. These sums of floats are why the sequence must be the same every time.
extern "C" __global__ void __launch_bounds__(256)
hash_grid_backward(const float* positions, const __half* grad_features, const Grid grid, const int* order, const int* count, int n, FixedPair* grad_table) {
    const int n_valid = count ? min(*count, n) : n;
    const int first_level = blockIdx.y * LEVELS, addend = threadIdx.x % ADDENDS, corner = threadIdx.x % TEAM / ADDENDS;
    const int first = (blockIdx.x * (blockDim.x / TEAM) + threadIdx.x / TEAM) * RUN;
    if (first >= n_valid || (NF_INTERPOLATION == 2 && corner > 0)) return;
    const int last = min(first + RUN, n_valid) - 1;
    const auto slot = [&](int s) { return static_cast<size_t>(order ? order[min(s, last)] : min(s, last)); };
    const __half* gradient = grad_features + first_level * NF_FEATURES + addend * WIDTH;
    float sum[LEVELS][CORNERS][WIDTH] = {};
    unsigned x[LEVELS] = {}, y[LEVELS] = {}, z[LEVELS] = {};
    const auto flush_level = [&](int i) {
#pragma unroll
        for (int j = 0; j < CORNERS; ++j) {
            const int c = corner + j * CORNER_STRIDE;
            const bool dense = first_level + i < NF_DENSE_LEVELS;
            flush(grad_table, entry_of(grid.level[first_level + i], dense, x[i] + (c & 1), y[i] + (c >> 1 & 1), z[i] + (c >> 2)), addend, sum[i][j]);
        }
    };
    vec3 following = load3(positions + 3 * slot(first));
    size_t after = slot(first + 1);
    for (int s = first; s <= last; ++s) {
        float g[LEVELS][WIDTH];
        load_gradients(gradient + static_cast<size_t>(s) * NF_ROW, g);
        const vec3 position = following;
        following = load3(positions + 3 * after);
        after = slot(s + 2);
#pragma unroll
        for (int i = 0; i < LEVELS; ++i) {
            const Corners c = corners_of(position, grid.level[first_level + i].scale);
            if (s > first && (c.x != x[i] || c.y != y[i] || c.z != z[i])) flush_level(i);
            x[i] = c.x, y[i] = c.y, z[i] = c.z;
#pragma unroll
            for (int j = 0; j < CORNERS; ++j) {
                const float weight = corner_weight(c.fraction, corner + j * CORNER_STRIDE);
#pragma unroll
                for (int f = 0; f < WIDTH; ++f) sum[i][j][f] += weight * g[i][f];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < LEVELS; ++i) flush_level(i);
}
