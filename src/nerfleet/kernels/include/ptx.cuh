// The instructions that CUDA C++ has no name for, one function each. Everything else in this folder is plain C++.
// Each has a form for every architecture from sm_75 on. tests/support/cuda_on_cpu holds the same functions for a CPU.
#pragma once
#include <cuda_fp16.h>

// c += a b for a 16x16 tile a (row major) and a 16x8 tile b (column major), fp16 in, fp32 sums.
// Lane 4g + t holds: a[0] rows g, columns 2t..; a[1] rows g + 8; a[2], a[3] the same 8 columns further; b0 rows 2t.. of
// column g, b1 8 rows further; c[0], c[1] row g, columns 2t, 2t + 1; c[2], c[3] row g + 8.
__device__ __forceinline__ void mma_16x8x16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

// Four 8x8 matrices of halves from shared memory; lane 8i + r gives the address of row r of matrix i (16-byte aligned).
// Lane 4g + t receives columns 2t, 2t + 1 of row g of matrix i in r[i].
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], const __half* row) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

// The same with each matrix transposed: lane 4g + t receives rows 2t, 2t + 1 of column g.
__device__ __forceinline__ void load_matrices_transposed(unsigned (&r)[4], const __half* row) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

// *address += value; nothing is returned. It clobbers no memory that its kernel reads: loads may pass it.
__device__ __forceinline__ void reduce_add(unsigned long long* address, unsigned long long value) {
    asm volatile("red.global.add.u64 [%0], %1;" ::"l"(address), "l"(value));
}

// The bits of two floats, negative ones replaced by zero, rounded to halves.
__device__ __forceinline__ unsigned pack_halves_relu(float low, float high) {
#if __CUDA_ARCH__ >= 800
    unsigned bits;
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
#else
    const __half2 h = __floats2half2_rn(fmaxf(low, 0.0f), fmaxf(high, 0.0f));
    return *reinterpret_cast<const unsigned*>(&h);
#endif
}

// All ones in each half that is above zero.
__device__ __forceinline__ unsigned positive_halves(unsigned bits) {
#if __CUDA_ARCH__ >= 800
    return __hgt2_mask(*reinterpret_cast<const __half2*>(&bits), __float2half2_rn(0.0f));
#else
    return (bits & 0xFFFFu ? 0xFFFFu : 0u) | (bits >> 16 ? 0xFFFF0000u : 0u);  // none is negative: they come from a rectifier
#endif
}
