// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
#pragma once

struct Key {
    unsigned low, high;
};

__device__ __forceinline__ uint4 philox(uint4 counter, Key key) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
        const unsigned high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
        counter = make_uint4(high1 ^ counter.y ^ key.low, low1, high0 ^ counter.w ^ key.high, low0);
        key.low += 0x9E3779B9u;
        key.high += 0xBB67AE85u;
    }
    return counter;
}

// [0, 1) with 24 bits.
__device__ __forceinline__ float uniform(unsigned word) { return (word >> 8) * (1.0f / 16777216.0f); }
