// Cross-entropy of bfloat16 logits, one block per row: the row's loss, and its logits replaced by their gradient.
//
// A row is read twice, 16 bytes per thread at a time; the second time it comes from the cache. THREADS and LOADS, the
// 16-byte loads in flight per thread, are set by the launcher.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 EACH = 8, WARPS = THREADS / 32;  // logits per load; warps per block, at most 32
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;
constexpr float LOWEST = -3.4028234663852886e38f;

extern __shared__ uint4 shared[];

// A bfloat16 is the upper half of a float.
__device__ float widened(u16 bits) { return __uint_as_float((u32)bits << 16); }

// To nearest, ties to even.
__device__ u16 rounded(float x) {
    u32 bits = __float_as_uint(x);
    return (u16)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

__device__ u32 rounded(float low, float high) {
#ifdef __CUDACC_RTC__
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return (u32)rounded(high) << 16 | rounded(low);
#endif
}

// e^x 2^shift.
__device__ float power(float x, float shift = 0) { return exp2f(LOG2_E * x + shift); }

// Eight logits; columns from `vocabulary` on are not tokens and have no weight.
struct Eight {
    float z[EACH];

    __device__ Eight(uint4 words, u32 place, u32 vocabulary) {
        u32 pairs[] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (u32 i = 0; i < EACH; ++i) z[i] = widened((u16)(pairs[i / 2] >> 16 * (i % 2)));
        if (EACH * (place + 1) <= vocabulary) return;
#pragma unroll
        for (u32 i = 0; i < EACH; ++i)
            if (EACH * place + i >= vocabulary) z[i] = __uint_as_float(0xff800000u);
    }
};

// This thread's share of a row of `size` loads: use(place, words).
template <class Use>
__device__ void walk(const uint4* row, u32 size, Use use) {
    for (u32 first = threadIdx.x; first < size; first += LOADS * THREADS) {
        uint4 words[LOADS];
#pragma unroll
        for (u32 j = 0; j < LOADS; ++j)
            if (first + j * THREADS < size) words[j] = row[first + j * THREADS];
#pragma unroll
        for (u32 j = 0; j < LOADS; ++j)
            if (first + j * THREADS < size) use(first + j * THREADS, words[j]);
    }
}

// Every thread's x combined, for every thread; `places` has a word for each warp.
template <class Combine>
__device__ float over_block(float x, float neutral, float* places, Combine combine) {
    u32 lane = threadIdx.x % 32;
    for (u32 step = 16; step; step /= 2) x = combine(x, __shfl_xor_sync(0xffffffffu, x, step));
    if (lane == 0) places[threadIdx.x / 32] = x;
    __syncthreads();
    x = lane < WARPS ? places[lane] : neutral;
    for (u32 step = 16; step; step /= 2) x = combine(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

// logits: (rows, columns), columns a multiple of EACH. The gradient is that of `scale` times the sum of the losses.
extern "C" __global__ void __launch_bounds__(THREADS) cross_entropy(u16* logits, const u64* targets, float* losses,
                                                                    u32 columns, u32 vocabulary, float scale) {
    u16* row = logits + (u64)blockIdx.x * columns;
    u32 size = columns / EACH;
    float* places = (float*)shared;

    u64 target = targets[blockIdx.x];
    // A target that is not a token makes the loss NaN: a kernel cannot raise an error.
    float at_target = __uint_as_float(0x7fc00000u);
    if (target < vocabulary) at_target = widened(row[target]);

    // The sum of exp(z), kept as total * exp(top), so that it does not overflow.
    float top = LOWEST, total = 0;
    walk((const uint4*)row, size, [&](u32 place, uint4 words) {
        Eight eight(words, place, vocabulary);
        float highest = eight.z[0];
#pragma unroll
        for (u32 i = 1; i < EACH; ++i) highest = fmaxf(highest, eight.z[i]);
        if (highest > top) {
            total *= power(top - highest);
            top = highest;
        }
#pragma unroll
        for (u32 i = 0; i < EACH; ++i) total += power(eight.z[i] - top);
    });
    float highest = over_block(top, LOWEST, places, [](float a, float b) { return fmaxf(a, b); });
    total *= power(top - highest);
    total = over_block(total, 0, places + WARPS, [](float a, float b) { return a + b; });

    // A probability times `scale` is exp(z - highest) 2^shift: the difference is exact, however large the logits.
    float shift = log2f(scale) - log2f(total);
    walk((const uint4*)row, size, [&](u32 place, uint4 words) {
        Eight eight(words, place, vocabulary);
        float p[EACH];
#pragma unroll
        for (u32 i = 0; i < EACH; ++i) p[i] = power(eight.z[i] - highest, shift);
        uint4 gradient = {rounded(p[0], p[1]), rounded(p[2], p[3]), rounded(p[4], p[5]), rounded(p[6], p[7])};
        ((uint4*)row)[place] = gradient;
    });
    __syncthreads();  // the whole row is written before one of its logits is written again
    if (threadIdx.x == 0) {
        losses[blockIdx.x] = LN_2 * log2f(total) + (highest - at_target);
        if (target < vocabulary) row[target] = rounded(power(at_target - highest, shift) - scale);
    }
}
