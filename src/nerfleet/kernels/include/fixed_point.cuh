// Gradients of the table in fixed point: sums of integers are the same in any order, sums of floats are not.
// Two neighbouring parameters share 64 bits, so that one addition serves both: high * 2^32 + low, with the sign of low borrowed
// from high. A sum of such pairs is the pair of the sums. kernels/hash_grid/fixed_point.py has the same for tensors.
#pragma once
#include "numbers.cuh"

using FixedPair = unsigned long long;
constexpr float FIXED_ONE = 16777216.0f;  // the smallest step is 2^-24, half precision's own; the largest sum 128

// Too large a value saturates. One that is not finite becomes 0: its parameters go without it, the others learn on.
__device__ __forceinline__ int to_fixed(float value) { return is_finite(value) ? __float2int_rn(value * FIXED_ONE) : 0; }

__device__ __forceinline__ FixedPair pack_fixed(float low, float high) {
    const int a = to_fixed(low), b = to_fixed(high) + (a >> 31);
    return static_cast<FixedPair>(static_cast<unsigned>(b)) << 32 | static_cast<unsigned>(a);
}

__device__ __forceinline__ float2 unpack_fixed(FixedPair pair) {
    const int a = static_cast<int>(static_cast<unsigned>(pair)), b = static_cast<int>(static_cast<unsigned>(pair >> 32)) - (a >> 31);
    return make_float2(static_cast<float>(a) * (1.0f / FIXED_ONE), static_cast<float>(b) * (1.0f / FIXED_ONE));
}
