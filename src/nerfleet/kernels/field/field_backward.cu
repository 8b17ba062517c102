// Gradients of the field's networks. A block takes 16 samples a warp, computes the hidden layers again from the stored
// features, and sends the gradient back layer by layer; weight gradients stay in registers until all tiles are done, then each
// block leaves its own, and a second kernel adds those of all blocks up, always in the same order.
//   features       [capacity, N_FEATURES] f16     ray_indices [capacity] i32     directions [n_rays, 3] f32
//   mlp            [N_MLP_PARAMS] f16             d_rgb [capacity, 3] f32        d_raw [capacity] f32
//   order          [capacity] i32, slot of the i-th sample of the sequence       count [1] i32, valid samples
//   partials       [gridDim, N_MLP_PARAMS] f32 scratch, a row for each block that has samples
//   grad_features  [capacity, N_FEATURES] f16, written, of the i-th sample       grad_mlp [N_MLP_PARAMS] f32, added to
// Shared memory: the weights, and for each sample of the block every layer's input. A buffer whose content is no longer needed
// takes the next gradient, so that one barrier a layer is enough.
#include "field.cuh"

constexpr int WARPS = NF_BACKWARD_WARPS;
constexpr int ROWS = 16 * WARPS;
constexpr int STRIDE_OUTPUT = matrix_stride(OUTPUT);
constexpr int STRIDE_SPARE = STRIDE_HIDDEN > STRIDE_FEATURES ? STRIDE_HIDDEN : STRIDE_FEATURES;  // features or a hidden gradient
constexpr int AT_SPARE = WEIGHT_HALVES, AT_H1 = AT_SPARE + ROWS * STRIDE_SPARE, AT_COLOUR = AT_H1 + ROWS * STRIDE_HIDDEN;
constexpr int AT_H2 = AT_COLOUR + ROWS * STRIDE_COLOUR, AT_H3 = AT_H2 + ROWS * STRIDE_SPARE, AT_OUTPUT = AT_H3 + ROWS * STRIDE_HIDDEN;

extern __shared__ __align__(16) unsigned char shared_memory[];

// The 16x8 tiles of a [16 M, 8 N] weight gradient that a warp owns: neighbours in one row of tiles, or several whole rows.
template <int M, int N>
struct WeightGradient {
    static constexpr int TILES = (M * N + WARPS - 1) / WARPS, COLUMNS = TILES < N ? TILES : N, TILE_ROWS = TILES / COLUMNS;
    static_assert(N % COLUMNS == 0 && TILES % COLUMNS == 0, "a warp's tiles form a rectangle");
    float sum[TILE_ROWS][COLUMNS][4];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < TILES * 4; ++i) (&sum[0][0][0])[i] = 0.0f;
    }
    __device__ __forceinline__ int first() const { return static_cast<int>(threadIdx.x / 32) * TILES; }

    // += gradient^T input over the block's samples.
    __device__ __forceinline__ void add(const __half* gradient, int gradient_stride, const __half* input, int input_stride) {
        const int lane = lane_index(), m = first() / N, n = first() % N;
        if (m >= M) return;
        const __half* a_row = gradient + ((lane & 7) + (lane >> 4) * 8) * gradient_stride + m * 16 + (lane >> 3 & 1) * 8;
        const __half* b_row = input + ((lane & 7) + (lane >> 3 & 1) * 8) * input_stride + n * 8 + (lane >> 4) * 8;
#pragma unroll 2
        for (int s = 0; s < WARPS; ++s) {
            unsigned a[TILE_ROWS][4];
#pragma unroll
            for (int r = 0; r < TILE_ROWS; ++r) load_matrices_transposed(a[r], a_row + s * 16 * gradient_stride + r * 16);
#pragma unroll
            for (int i = 0; i < COLUMNS; i += 2) {
                unsigned b[4];
                load_matrices_transposed(b, b_row + s * 16 * input_stride + i * 8);
#pragma unroll
                for (int r = 0; r < TILE_ROWS; ++r) {
                    mma_16x8x16(sum[r][i], a[r], b[0], b[1]);
                    if (i + 1 < COLUMNS) mma_16x8x16(sum[r][i + 1], a[r], b[2], b[3]);
                }
            }
        }
    }

    // The row-major gradient into global memory, `columns` wide; columns past it are padding.
    __device__ __forceinline__ void write(float* out, int columns) {
        const int lane = lane_index(), m = first() / N, n = first() % N;
        if (m >= M) return;
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
            const int column = (n + t % COLUMNS) * 8 + 2 * (lane & 3);
            if (column >= columns) continue;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float* p = out + ((m + t / COLUMNS) * 16 + (lane >> 2) + 8 * half) * columns + column;
                *reinterpret_cast<float2*>(p) = make_float2(sum[t / COLUMNS][t % COLUMNS][2 * half], sum[t / COLUMNS][t % COLUMNS][2 * half + 1]);
            }
        }
    }
};

// Gradient of a rectified layer's output, a W with W of 16 K rows, zero where that output (own rows in shared memory) is zero.
template <int K>
__device__ __forceinline__ void hidden_gradient(const Operand<1, K>& a, const __half* matrix, int stride, __half* outputs, Operand<1, HIDDEN_TILES>& out) {
#pragma unroll
    for (int h = 0; h < HIDDEN_TILES; ++h) {
        Sums<1, 2> sums;
        multiply_transposed<1, K, 2>(a, matrix + 16 * h, stride, sums);
        Operand<1, 1> tile;
        to_operand<1, 1, false>(sums, tile);
#pragma unroll
        for (int i = 0; i < 4; ++i) out[0][h][i] = tile[0][0][i] & positive_halves(*pair_of(outputs, STRIDE_HIDDEN, 2 * h + i / 2, i & 1));
    }
}

// Slots of own 16 samples: lanes r and r + 16 hold row r's; -1 past the last sample.
__device__ __forceinline__ int load_slots(const int* order, int first, int n) {
    const int sample = first + (lane_index() & 15);
    return sample < n ? order[sample] : -1;
}
__device__ __forceinline__ int slot_of(int slots, int row) { return __shfl_sync(0xFFFFFFFFu, slots, row); }

// Own 16 rows of features into shared memory, with zeros in padding and past the last sample.
__device__ __forceinline__ void load_features(const __half* features, int slots, __half* rows) {
    const int lane = lane_index();
    if constexpr (N_FEATURES % 8 == 0) {
        constexpr int CHUNKS = INPUT_TILED / 8;
#pragma unroll
        for (int i = lane; i < 16 * CHUNKS; i += 32) {
            const int row = i / CHUNKS, column = i % CHUNKS * 8, slot = slot_of(slots, row);
            const bool exists = slot >= 0 && column < N_FEATURES;
            const uint4 v = exists ? __ldg(reinterpret_cast<const uint4*>(features + static_cast<size_t>(slot) * N_FEATURES + column)) : make_uint4(0, 0, 0, 0);
            *reinterpret_cast<uint4*>(rows + row * STRIDE_FEATURES + column) = v;
        }
    } else {
        for (int i = lane; i < 16 * INPUT_TILED; i += 32) {
            const int row = i / INPUT_TILED, column = i % INPUT_TILED, slot = slot_of(slots, row);
            const bool exists = slot >= 0 && column < N_FEATURES;
            rows[row * STRIDE_FEATURES + column] = exists ? features[static_cast<size_t>(slot) * N_FEATURES + column] : __float2half(0.0f);
        }
    }
}

// Harmonics of the rays of own 16 samples, the second half of the colour network's input.
__device__ __forceinline__ void load_harmonics(const int* ray_indices, const float* directions, int slots, __half* rows) {
    const int lane = lane_index();
    if (lane >= 16) return;
    const int ray = slots >= 0 ? ray_indices[slots] : 0;
    store_harmonics(load3(directions + 3 * static_cast<size_t>(ray)), rows + lane * STRIDE_COLOUR + 16);
}

// Gradient of the colours before the logistic: columns 0..2 of the last layer's output.
__device__ __forceinline__ void output_gradient(const Sums<1, 1>& output, const float* d_rgb, int slots, Operand<1, 1>& gradient) {
    const int lane = lane_index(), column = 2 * (lane & 3);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int slot = slot_of(slots, (lane >> 2) + 8 * half);
        float pair[2] = {0.0f, 0.0f};
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
            if (slot >= 0 && column + odd < 3) {
                const float s = logistic(output[0][0][2 * half + odd]);
                pair[odd] = d_rgb[3 * static_cast<size_t>(slot) + column + odd] * s * (1.0f - s);
            }
        }
        gradient[0][0][half] = pack_halves(pair[0], pair[1]);
        gradient[0][0][2 + half] = 0;
    }
}

// d_raw joins the gradient of the density network's first output.
__device__ __forceinline__ void add_density_gradient(const float* d_raw, int slots, Sums<1, 2>& density) {
    const int lane = lane_index(), low = slot_of(slots, lane >> 2), high = slot_of(slots, (lane >> 2) + 8);
    if ((lane & 3) != 0) return;
    if (low >= 0) density[0][0][0] += d_raw[low];
    if (high >= 0) density[0][0][2] += d_raw[high];
}

__device__ __forceinline__ void write_feature_gradient(const Sums<1, INPUT_TILED / 8>& sums, int first, int n, __half* out) {
    const int lane = lane_index();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int sample = first + (lane >> 2) + 8 * half;
        if (sample >= n) continue;
#pragma unroll
        for (int i = 0; i < INPUT_TILED / 8; ++i) {
            const int column = 8 * i + 2 * (lane & 3);
            __half* p = out + static_cast<size_t>(sample) * N_FEATURES + column;
            if constexpr (N_FEATURES % 2 == 0) {
                if (column < N_FEATURES) *reinterpret_cast<unsigned*>(p) = pack_halves(sums[0][i][2 * half], sums[0][i][2 * half + 1]);
            } else {
                if (column < N_FEATURES) p[0] = __float2half_rn(sums[0][i][2 * half]);
                if (column + 1 < N_FEATURES) p[1] = __float2half_rn(sums[0][i][2 * half + 1]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, WARPS == 8 && HIDDEN <= 64 && INPUT_TILED <= 32 ? 2 : 1)
field_backward(const __half* features, const int* ray_indices, const float* directions, const __half* mlp, const float* d_rgb, const float* d_raw,
               const int* order, const int* count, int capacity, float* partials, __half* grad_features) {
    __half* shared = reinterpret_cast<__half*>(shared_memory);
    load_weights(mlp, shared);
    const int n = min(*count, capacity), own = static_cast<int>(threadIdx.x / 32) * 16;
    __half *spare = shared + AT_SPARE, *h1 = shared + AT_H1, *colour_input = shared + AT_COLOUR, *h2 = shared + AT_H2, *h3 = shared + AT_H3, *out = shared + AT_OUTPUT;
    __half *own_spare = spare + own * STRIDE_HIDDEN, *own_h1 = h1 + own * STRIDE_HIDDEN, *own_h2 = h2 + own * STRIDE_HIDDEN, *own_h3 = h3 + own * STRIDE_HIDDEN;
    __half *own_colour_input = colour_input + own * STRIDE_COLOUR, *own_out = out + own * STRIDE_OUTPUT;
    WeightGradient<HIDDEN_TILES, INPUT_TILED / 8> grad_d1;
    WeightGradient<1, HIDDEN / 8> grad_d2, grad_c3;
    WeightGradient<HIDDEN_TILES, COLOUR_INPUT / 8> grad_c1;
    WeightGradient<HIDDEN_TILES, HIDDEN / 8> grad_c2;
    grad_d1.clear(), grad_d2.clear(), grad_c1.clear(), grad_c2.clear(), grad_c3.clear();
    __syncthreads();

    for (int base = blockIdx.x * ROWS; base < n; base += gridDim.x * ROWS) {
        const int first = base + own, slots = load_slots(order, first, n);
        __half* own_features = spare + own * STRIDE_SPARE;
        load_features(features, slots, own_features);
        load_harmonics(ray_indices, directions, slots, own_colour_input);
        __syncwarp();
        Operand<1, HIDDEN_TILES> hidden, next;
        Operand<1, 1> output;
        {
            Operand<1, FEATURE_TILES> input;
            load_operand<1, FEATURE_TILES>(own_features, STRIDE_FEATURES, input);
            multiply_relu<1, FEATURE_TILES, HIDDEN_TILES>(input, shared + SHARED_D1, hidden);
            store_operand<HIDDEN_TILES>(hidden[0], own_h1, STRIDE_HIDDEN);
            Sums<1, 2> density;
            multiply<1, HIDDEN_TILES, 2>(hidden, shared + SHARED_D2, density);
            to_operand<1, 1, false>(density, output);
            store_operand<1>(output[0], own_colour_input, STRIDE_COLOUR);
        }
        {
            Operand<1, 1> harmonics;
            load_operand<1, 1>(own_colour_input + 16, STRIDE_COLOUR, harmonics);
            Operand<1, 2> input;
#pragma unroll
            for (int i = 0; i < 4; ++i) input[0][0][i] = output[0][0][i], input[0][1][i] = harmonics[0][0][i];
            multiply_relu<1, 2, HIDDEN_TILES>(input, shared + SHARED_C1, hidden);
            store_operand<HIDDEN_TILES>(hidden[0], own_h2, STRIDE_HIDDEN);
            multiply_relu<1, HIDDEN_TILES, HIDDEN_TILES>(hidden, shared + SHARED_C2, next);
            store_operand<HIDDEN_TILES>(next[0], own_h3, STRIDE_HIDDEN);
            Sums<1, 1> colour;
            multiply<1, HIDDEN_TILES, 1>(next, shared + SHARED_C3, colour);
            output_gradient(colour, d_rgb, slots, output);
            store_operand<1>(output[0], own_out, STRIDE_OUTPUT);
        }
        __syncthreads();  // every layer's input and the last gradient are there
        grad_c3.add(out, STRIDE_OUTPUT, h3, STRIDE_HIDDEN);
        hidden_gradient<1>(output, shared + SHARED_C3, STRIDE_HIDDEN, own_h3, hidden);
        store_operand<HIDDEN_TILES>(hidden[0], own_spare, STRIDE_HIDDEN);
        __syncthreads();  // spare: gradient of h3; h3 and out are free
        grad_c2.add(spare, STRIDE_HIDDEN, h2, STRIDE_HIDDEN);
        hidden_gradient<HIDDEN_TILES>(hidden, shared + SHARED_C2, STRIDE_HIDDEN, own_h2, next);
        store_operand<HIDDEN_TILES>(next[0], own_h3, STRIDE_HIDDEN);
        __syncthreads();  // h3: gradient of h2; spare and h2 are free
        grad_c1.add(h3, STRIDE_HIDDEN, colour_input, STRIDE_COLOUR);
        {
            Sums<1, 2> density;
            multiply_transposed<1, HIDDEN_TILES, 2>(next, shared + SHARED_C1, STRIDE_COLOUR, density);
            add_density_gradient(d_raw, slots, density);
            to_operand<1, 1, false>(density, output);
            store_operand<1>(output[0], own_out, STRIDE_OUTPUT);
        }
        hidden_gradient<1>(output, shared + SHARED_D2, STRIDE_HIDDEN, own_h1, hidden);
        store_operand<HIDDEN_TILES>(hidden[0], own_spare, STRIDE_HIDDEN);
        load_features(features, slots, h2 + own * STRIDE_FEATURES);
        __syncthreads();  // out: gradient of the density outputs; spare: of h1; h2: features
        grad_d2.add(out, STRIDE_OUTPUT, h1, STRIDE_HIDDEN);
        grad_d1.add(spare, STRIDE_HIDDEN, h2, STRIDE_FEATURES);
        {
            Sums<1, INPUT_TILED / 8> feature_sums;
            multiply_transposed<1, HIDDEN_TILES, INPUT_TILED / 8>(hidden, shared + SHARED_D1, STRIDE_FEATURES, feature_sums);
            write_feature_gradient(feature_sums, first, n, grad_features);
        }
        __syncthreads();
    }
    if (blockIdx.x * ROWS >= static_cast<unsigned>(n)) return;
    float* partial = partials + static_cast<size_t>(blockIdx.x) * N_MLP_PARAMS;
    grad_d1.write(partial + GLOBAL_D1, INPUT);
    grad_d2.write(partial + GLOBAL_D2, HIDDEN);
    grad_c1.write(partial + GLOBAL_C1, COLOUR_INPUT);
    grad_c2.write(partial + GLOBAL_C2, HIDDEN);
    grad_c3.write(partial + GLOBAL_C3, HIDDEN);
}

// A block adds up QUADS * 4 neighbouring weights over the rows of `partials` that have been written: SLICES interleaved sums, then
// those in pairs.
constexpr int QUADS = 8, SLICES = 32;
static_assert(N_MLP_PARAMS % (QUADS * 4) == 0, "whole blocks");

__device__ __forceinline__ void add(float4& sum, float4 value) { sum.x += value.x, sum.y += value.y, sum.z += value.z, sum.w += value.w; }

extern "C" __global__ void __launch_bounds__(256)
sum_partials(const float4* partials, const int* count, int capacity, int n_blocks, float4* grad_mlp) {
    const int rows = min(n_blocks, (min(*count, capacity) + ROWS - 1) / ROWS), slice = threadIdx.x / QUADS, column = threadIdx.x % QUADS;
    const size_t quad = blockIdx.x * QUADS + column;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
    for (int row = slice; row < rows; row += SLICES) add(sum, partials[row * static_cast<size_t>(N_MLP_PARAMS / 4) + quad]);
    __shared__ float4 sums[SLICES][QUADS];
    sums[slice][column] = sum;
    for (int half = SLICES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (slice < half) add(sums[slice][column], sums[slice + half][column]);
    }
    if (slice == 0) add(grad_mlp[quad], sums[0][column]);
}
