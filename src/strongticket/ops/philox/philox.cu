// Philox 4x32-10 weights, one counter (four weights, or 128 packed signs) per thread and step.
// Compile with --fmad=false: the maps below must round after every operation, as reference.py does.

typedef unsigned int u32;
typedef unsigned long long u64;

// A block's dynamic memory: the table of the normal quantile, or the words of packed signs.
extern __shared__ uint4 shared[];

struct Stream { u32 key0, key1, high0, high1; };

// The first element wanted, and how many.
struct Range { u64 start, count; };

__device__ uint4 philox(u64 counter, Stream s) {
    u32 c0 = (u32)counter, c1 = (u32)(counter >> 32), c2 = s.high0, c3 = s.high1, k0 = s.key0, k1 = s.key1;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u64 product0 = (u64)c0 * 0xD2511F53u, product1 = (u64)c2 * 0xCD9E8D57u;
        c0 = (u32)(product1 >> 32) ^ c1 ^ k0;
        c2 = (u32)(product0 >> 32) ^ c3 ^ k1;
        c1 = (u32)product1;
        c3 = (u32)product0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
}

struct Uniform {
    double step;
    __device__ Uniform(double scale, const double*) : step(scale * 0x1p-29) {}
    __device__ float operator()(u32 word) const {
        int odd = 2 * (int)(word >> 3) + 1 - (1 << 29);
        return (float)(step * (double)odd);
    }
};

struct Sign {
    float scale;
    __device__ Sign(double scale_, const double*) : scale((float)scale_) {}
    __device__ float operator()(u32 word) const { return word >> 31 ? -scale : scale; }
};

struct Normal {
    double scale;
    const double2* table;  // (512, 4) in shared memory, read as two pairs per piece
    __device__ Normal(double scale_, const double* table_) : scale(scale_), table((const double2*)table_) {}
    __device__ float operator()(u32 word) const {
        double x = (double)(2 * (word & 0x7fffffffu) + 1);
        long long bits = __double_as_longlong(x);
        int piece = (int)(bits >> 48) - (1023 << 4);
        double t = __longlong_as_double((bits & ((1LL << 48) - 1)) | (1023LL << 52)) - 1.0;
        double2 low = table[2 * piece], high = table[2 * piece + 1];
        double magnitude = scale * (((high.y * t + high.x) * t + low.y) * t + low.x);
        return (float)(word >> 31 ? -magnitude : magnitude);
    }
};

// Four weights to out[at] and on: full, aligned groups as one 16-byte store, the ends element by element.
__device__ void store(float* out, long long at, u64 count, const float* each) {
    float* to = out + at;
    if (at >= 0 && at + 4 <= (long long)count && ((u64)to & 15) == 0) {
        *(float4*)to = make_float4(each[0], each[1], each[2], each[3]);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (at + i >= 0 && at + i < (long long)count) to[i] = each[i];
}

// out[0 .. count) receives elements start .. start + count of the stream; every thread walks the counters that touch it.
template <class Map>
__device__ void fill(float* out, Range range, Stream stream, Map map) {
    u64 first = range.start / 4, last = (range.start + range.count + 3) / 4;
    for (u64 c = first + blockIdx.x * (u64)blockDim.x + threadIdx.x; c < last; c += (u64)gridDim.x * blockDim.x) {
        uint4 w = philox(c, stream);
        float each[4] = {map(w.x), map(w.y), map(w.z), map(w.w)};
        store(out, (long long)(4 * c) - (long long)range.start, range.count, each);
    }
}

#define ARGUMENTS \
    float *out, u64 start, u64 count, u32 key0, u32 key1, u32 high0, u32 high1, double scale, const double *table

extern "C" __global__ void fill_uniform(ARGUMENTS) {
    fill(out, {start, count}, {key0, key1, high0, high1}, Uniform(scale, table));
}

extern "C" __global__ void fill_sign(ARGUMENTS) {
    fill(out, {start, count}, {key0, key1, high0, high1}, Sign(scale, table));
}

// Every thread of a block draws a counter's four words; then the block writes all their signs, four per store.
extern "C" __global__ void fill_packed_sign(ARGUMENTS) {
    const u32* words = (const u32*)shared;
    u32 magnitude = __float_as_uint((float)scale);
    u64 first = start / 128, last = (start + count + 127) / 128;
    for (u64 c = first + blockIdx.x * (u64)blockDim.x; c < last; c += (u64)gridDim.x * blockDim.x) {
        shared[threadIdx.x] = philox(c + threadIdx.x, {key0, key1, high0, high1});
        __syncthreads();
        for (u32 four = threadIdx.x; four < 32 * blockDim.x; four += blockDim.x) {
            u32 word = words[four / 8] >> (4 * (four % 8)), sign = 1u << 31;
            float each[4] = {__uint_as_float(magnitude | (word << 31)), __uint_as_float(magnitude | (word << 30 & sign)),
                             __uint_as_float(magnitude | (word << 29 & sign)),
                             __uint_as_float(magnitude | (word << 28 & sign))};
            store(out, (long long)(128 * c + 4 * four) - (long long)start, count, each);
        }
        __syncthreads();
    }
}

extern "C" __global__ void fill_normal(ARGUMENTS) {
    double* shared_table = (double*)shared;
    for (int i = threadIdx.x; i < 512 * 4; i += blockDim.x) shared_table[i] = table[i];
    __syncthreads();
    fill(out, {start, count}, {key0, key1, high0, high1}, Normal(scale, shared_table));
}
