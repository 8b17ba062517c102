// The functions of include/ptx.cuh for a CPU.
#pragma once
#include <cuda_fp16.h>

inline void mma_16x8x16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    auto& slots = warp().slots;
    for (int i = 0; i < 4; ++i) slots[lane()][i] = a[i];
    slots[lane()][4] = b0;
    slots[lane()][5] = b1;
    __syncwarp();
    const auto element = [&](int owner, int slot, int odd) { return half_value(uint16_t(slots[owner][slot] >> (16 * odd))); };
    const int g = lane() >> 2, t = lane() & 3;
    for (int i = 0; i < 4; ++i) {
        const int row = g + 8 * (i / 2), column = 2 * t + (i & 1);
        for (int k = 0; k < 16; ++k) {
            const int pair = (k & 7) / 2;
            c[i] += element((row & 7) * 4 + pair, (row >= 8) + 2 * (k >= 8), k & 1) * element(column * 4 + pair, 4 + (k >= 8), k & 1);
        }
    }
    __syncwarp();
}
inline void load_matrices_as(unsigned (&r)[4], const __half* row, bool transposed) {
    auto& slots = warp().slots;
    slots[lane()][0] = reinterpret_cast<uint64_t>(row);
    __syncwarp();
    if (reinterpret_cast<uint64_t>(row) % 16) std::abort();
    const int g = lane() >> 2, t = lane() & 3;
    for (int i = 0; i < 4; ++i) {
        const auto element = [&](int y, int x) { return unsigned(reinterpret_cast<const __half*>(slots[8 * i + y][0])[x].bits); };
        r[i] = transposed ? element(2 * t, g) | element(2 * t + 1, g) << 16 : element(g, 2 * t) | element(g, 2 * t + 1) << 16;
    }
    __syncwarp();
}
inline void load_matrices(unsigned (&r)[4], const __half* row) { load_matrices_as(r, row, false); }
inline void load_matrices_transposed(unsigned (&r)[4], const __half* row) { load_matrices_as(r, row, true); }
inline void reduce_add(unsigned long long* p, unsigned long long v) {
    if (reinterpret_cast<uint64_t>(p) % 8) std::abort();
    *p += v;
}
inline unsigned pack_halves_relu(float low, float high) {
    return half_bits(low > 0.0f ? low : 0.0f) | unsigned(half_bits(high > 0.0f ? high : 0.0f)) << 16;
}
inline unsigned positive_halves(unsigned bits) {
    return (half_value(uint16_t(bits)) > 0 ? 0xFFFFu : 0u) | (half_value(uint16_t(bits >> 16)) > 0 ? 0xFFFF0000u : 0u);
}
