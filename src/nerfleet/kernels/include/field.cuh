// The field's two networks for a warp: density (features -> HIDDEN -> 16) and colour ([16, 16 harmonics] -> HIDDEN -> HIDDEN -> 3).
// Specialised by NF_HIDDEN (32, 64 or 128 neurons) and the grid's macros. Weights: flat halves in global memory, [out][in] row
// major, density layers first; in shared memory every row has 8 halves of padding, so that no two rows share banks.
#pragma once
#include "harmonics.cuh"
#include "hash_grid.cuh"
#include "mlp.cuh"

constexpr int HIDDEN = NF_HIDDEN;
constexpr int INPUT = (N_FEATURES + 15) / 16 * 16;       // columns of the first density layer in global memory
constexpr int INPUT_TILED = (N_FEATURES + 31) / 32 * 32;  // and in shared memory
constexpr int COLOUR_INPUT = 32;
constexpr int OUTPUT = 16;
constexpr int FEATURE_TILES = INPUT_TILED / 16, HIDDEN_TILES = HIDDEN / 16;

constexpr int SIZE_D1 = HIDDEN * INPUT, SIZE_D2 = OUTPUT * HIDDEN, SIZE_C1 = HIDDEN * COLOUR_INPUT, SIZE_C2 = HIDDEN * HIDDEN, SIZE_C3 = OUTPUT * HIDDEN;
constexpr int GLOBAL_D1 = 0, GLOBAL_D2 = GLOBAL_D1 + SIZE_D1, GLOBAL_C1 = GLOBAL_D2 + SIZE_D2, GLOBAL_C2 = GLOBAL_C1 + SIZE_C1, GLOBAL_C3 = GLOBAL_C2 + SIZE_C2;
constexpr int N_MLP_PARAMS = GLOBAL_C3 + SIZE_C3;

constexpr int STRIDE_FEATURES = matrix_stride(INPUT_TILED), STRIDE_HIDDEN = matrix_stride(HIDDEN), STRIDE_COLOUR = matrix_stride(COLOUR_INPUT);
constexpr int SHARED_D1 = 0, SHARED_D2 = SHARED_D1 + HIDDEN * STRIDE_FEATURES, SHARED_C1 = SHARED_D2 + OUTPUT * STRIDE_HIDDEN;
constexpr int SHARED_C2 = SHARED_C1 + HIDDEN * STRIDE_COLOUR, SHARED_C3 = SHARED_C2 + HIDDEN * STRIDE_HIDDEN;
constexpr int WEIGHT_HALVES = SHARED_C3 + OUTPUT * STRIDE_HIDDEN;
constexpr int DENSITY_WEIGHT_HALVES = SHARED_C1;  // the density layers alone come first

// A warp's scratch: for each of 32 samples its features, then its harmonics.
constexpr int TILE_STRIDE = INPUT_TILED + 16 + 8;
constexpr int TILE_HALVES = 32 * TILE_STRIDE;

// One matrix from global to padded shared memory by all threads of a block, 16 bytes at a time; missing columns become zeros.
template <int ROWS, int COLUMNS, int TILED>
__device__ __forceinline__ void load_matrix(const __half* source, __half* target) {
    constexpr int CHUNKS = TILED / 8;
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += blockDim.x) {
        const int row = i / CHUNKS, column = i % CHUNKS * 8;
        const uint4 value = column < COLUMNS ? *reinterpret_cast<const uint4*>(source + row * COLUMNS + column) : make_uint4(0, 0, 0, 0);
        *reinterpret_cast<uint4*>(target + row * matrix_stride(TILED) + column) = value;
    }
}

__device__ __forceinline__ void load_density_weights(const __half* mlp, __half* shared) {
    load_matrix<HIDDEN, INPUT, INPUT_TILED>(mlp + GLOBAL_D1, shared + SHARED_D1);
    load_matrix<OUTPUT, HIDDEN, HIDDEN>(mlp + GLOBAL_D2, shared + SHARED_D2);
}

__device__ __forceinline__ void load_weights(const __half* mlp, __half* shared) {
    load_density_weights(mlp, shared);
    load_matrix<HIDDEN, COLOUR_INPUT, COLOUR_INPUT>(mlp + GLOBAL_C1, shared + SHARED_C1);
    load_matrix<HIDDEN, HIDDEN, HIDDEN>(mlp + GLOBAL_C2, shared + SHARED_C2);
    load_matrix<OUTPUT, HIDDEN, HIDDEN>(mlp + GLOBAL_C3, shared + SHARED_C3);
}

// Zero the columns of a lane's tile row that no feature fills.
__device__ __forceinline__ void clear_padding(__half* row) {
    for (int i = N_FEATURES; i < INPUT_TILED; ++i) row[i] = __float2half(0.0f);
}

__device__ __forceinline__ void store_harmonics(vec3 direction, __half* row) {
    float h[16];
    spherical_harmonics(direction, h);
    uint4* out = reinterpret_cast<uint4*>(row);
    out[0] = make_uint4(pack_halves(h[0], h[1]), pack_halves(h[2], h[3]), pack_halves(h[4], h[5]), pack_halves(h[6], h[7]));
    out[1] = make_uint4(pack_halves(h[8], h[9]), pack_halves(h[10], h[11]), pack_halves(h[12], h[13]), pack_halves(h[14], h[15]));
}

// Output column 2t + odd (t < 4) of the lane's own sample (its lane number) from the accumulators of one column tile.
__device__ __forceinline__ float own_output(const float (&low)[4], const float (&high)[4], int t, int odd) {
    const int lane = lane_index(), source = (lane & 7) * 4 + t;
    const float a = __shfl_sync(0xFFFFFFFFu, low[odd], source), b = __shfl_sync(0xFFFFFFFFu, low[2 + odd], source);
    const float c = __shfl_sync(0xFFFFFFFFu, high[odd], source), d = __shfl_sync(0xFFFFFFFFu, high[2 + odd], source);
    return lane < 16 ? (lane < 8 ? a : b) : (lane < 24 ? c : d);
}

// Density network of the warp's 32 samples, whose features fill `tile`. Returns the lane's own raw density.
__device__ __forceinline__ float density_forward(const __half* weights, const __half* tile, Operand<2, 1>& outputs) {
    Operand<2, FEATURE_TILES> features;
    load_operand<2, FEATURE_TILES>(tile, TILE_STRIDE, features);
    Operand<2, HIDDEN_TILES> hidden;
    multiply_relu<2, FEATURE_TILES, HIDDEN_TILES>(features, weights + SHARED_D1, hidden);
    Sums<2, 2> sums;
    multiply<2, HIDDEN_TILES, 2>(hidden, weights + SHARED_D2, sums);
    to_operand<2, 1, false>(sums, outputs);
    return own_output(sums[0][0], sums[1][0], 0, 0);
}

// Colour network, before its activation. Each lane has stored its sample's harmonics in columns INPUT_TILED.. of its tile row.
__device__ __forceinline__ vec3 colour_forward(const __half* weights, const __half* tile, const Operand<2, 1>& outputs) {
    Operand<2, 1> harmonics;
    load_operand<2, 1>(tile + INPUT_TILED, TILE_STRIDE, harmonics);
    Operand<2, 2> input;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) input[m][0][i] = outputs[m][0][i], input[m][1][i] = harmonics[m][0][i];
    }
    Operand<2, HIDDEN_TILES> first, second;
    multiply_relu<2, 2, HIDDEN_TILES>(input, weights + SHARED_C1, first);
    multiply_relu<2, HIDDEN_TILES, HIDDEN_TILES>(first, weights + SHARED_C2, second);
    Sums<2, 1> sums;
    multiply<2, HIDDEN_TILES, 1>(second, weights + SHARED_C3, sums);
    return {own_output(sums[0][0], sums[1][0], 0, 0), own_output(sums[0][0], sums[1][0], 0, 1), own_output(sums[0][0], sums[1][0], 1, 0)};
}

__device__ __forceinline__ float logistic(float v) { return __fdividef(1.0f, 1.0f + __expf(-v)); }
__device__ __forceinline__ vec3 logistic(vec3 v) { return {logistic(v.x), logistic(v.y), logistic(v.z)}; }
