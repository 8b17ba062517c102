// Fully connected layers on tensor cores: a warp owns rows of 16 samples, weights lie in shared memory as [out][in + 8].
// An activation's accumulator layout is the next layer's operand layout, so nothing passes through memory between layers.
#pragma once
#include "ptx.cuh"
#include "numbers.cuh"

template <int M, int K>
using Operand = unsigned[M][K][4];  // M x K tiles of 16x16 halves
template <int M, int N>
using Sums = float[M][N][4];        // M x N tiles of 16x8 floats

__device__ __forceinline__ int lane_index() { return threadIdx.x & 31; }
__host__ __device__ constexpr int matrix_stride(int columns) { return columns + 8; }

template <int M, int N>
__device__ __forceinline__ void clear(Sums<M, N>& c) {
#pragma unroll
    for (int i = 0; i < M * N * 4; ++i) (&c[0][0][0])[i] = 0.0f;
}

// c = a W^T, W of 8 N rows and 16 K columns (K even).
template <int M, int K, int N>
__device__ __forceinline__ void multiply(const Operand<M, K>& a, const __half* matrix, Sums<M, N>& c) {
    static_assert(K % 2 == 0, "two column tiles are read at once");
    constexpr int STRIDE = matrix_stride(16 * K);
    const int lane = lane_index();
    const __half* row = matrix + (lane & 7) * STRIDE + (lane >> 3) * 8;
    clear<M, N>(c);
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int k = 0; k < K; k += 2) {
            unsigned b[4];
            load_matrices(b, row + n * 8 * STRIDE + k * 16);
#pragma unroll
            for (int m = 0; m < M; ++m) {
                mma_16x8x16(c[m][n], a[m][k], b[0], b[1]);
                mma_16x8x16(c[m][n], a[m][k + 1], b[2], b[3]);
            }
        }
    }
}

// c = a W, W of 16 K rows; its first 8 N columns (N even) out of `columns`.
template <int M, int K, int N>
__device__ __forceinline__ void multiply_transposed(const Operand<M, K>& a, const __half* matrix, int stride, Sums<M, N>& c) {
    static_assert(N % 2 == 0, "two column tiles are read at once");
    const int lane = lane_index();
    const __half* row = matrix + ((lane & 7) + (lane >> 3 & 1) * 8) * stride + (lane >> 4) * 8;
    clear<M, N>(c);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            unsigned b[4];
            load_matrices_transposed(b, row + k * 16 * stride + n * 8);
#pragma unroll
            for (int m = 0; m < M; ++m) {
                mma_16x8x16(c[m][n], a[m][k], b[0], b[1]);
                mma_16x8x16(c[m][n + 1], a[m][k], b[2], b[3]);
            }
        }
    }
}

// Accumulators of 2 K tiles of 8 columns -> operand of K tiles of 16 columns, rectified if asked.
template <int M, int K, bool RELU>
__device__ __forceinline__ void to_operand(const Sums<M, 2 * K>& c, Operand<M, K>& a) {
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float* pair = &c[m][2 * k + i / 2][2 * (i & 1)];
                a[m][k][i] = RELU ? pack_halves_relu(pair[0], pair[1]) : pack_halves(pair[0], pair[1]);
            }
        }
    }
}

// out = max(0, a W^T), W of 16 H rows: a pair of column tiles at a time, so that few accumulators are alive.
template <int M, int K, int H>
__device__ __forceinline__ void multiply_relu(const Operand<M, K>& a, const __half* matrix, Operand<M, H>& out) {
#pragma unroll
    for (int h = 0; h < H; ++h) {
        Sums<M, 2> sums;
        multiply<M, K, 2>(a, matrix + h * 16 * matrix_stride(16 * K), sums);
        Operand<M, 1> tile;
        to_operand<M, 1, true>(sums, tile);
#pragma unroll
        for (int m = 0; m < M; ++m) {
#pragma unroll
            for (int i = 0; i < 4; ++i) out[m][h][i] = tile[m][0][i];
        }
    }
}

// Operand of K column tiles from rows of halves in shared memory.
template <int M, int K>
__device__ __forceinline__ void load_operand(const __half* rows, int stride, Operand<M, K>& a) {
    const int lane = lane_index();
    const __half* row = rows + ((lane & 7) + (lane >> 3 & 1) * 8) * stride + (lane >> 4) * 8;
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int k = 0; k < K; ++k) load_matrices(a[m][k], row + m * 16 * stride + k * 16);
    }
}

// The pair (row g + 8 half, columns 8 n + 2t, + 1) of a lane, in rows of halves in shared memory.
__device__ __forceinline__ unsigned* pair_of(__half* rows, int stride, int n, int half) {
    const int lane = lane_index();
    return reinterpret_cast<unsigned*>(rows + ((lane >> 2) + 8 * half) * stride + 8 * n + 2 * (lane & 3));
}

// rows = operand (one tile of 16 rows).
template <int K>
__device__ __forceinline__ void store_operand(const unsigned (&a)[K][4], __half* rows, int stride) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i) *pair_of(rows, stride, 2 * k + i / 2, i & 1) = a[k][i];
    }
}
