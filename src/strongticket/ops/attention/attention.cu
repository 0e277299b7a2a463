// Attention of one token, one block per head.
//
// Eight lanes take a token at a time, four columns per load. They keep the largest score so far, and the sums of weights
// and of weighted values relative to it; in the end lanes and warps put theirs together.
// WIDTH (of a head, a multiple of 4), THREADS and TOGETHER (tokens in flight per eight lanes) are set by the launcher.

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 TEAM = 8, TEAMS = THREADS / TEAM, WARPS = THREADS / 32;
constexpr u32 LOADS = (WIDTH + 4 * TEAM - 1) / (4 * TEAM), EACH = 4 * LOADS;  // of a lane
constexpr u32 PART = WIDTH + 2;  // what a warp leaves: sums of values, of weights, the largest score
constexpr float LOWEST = -3.4028234663852886e38f;

extern __shared__ uint4 shared[];

// The first column of a lane's load.
__device__ u32 column_of(u32 load) { return 4 * (threadIdx.x % TEAM + load * TEAM); }

// This lane's columns of a head; those beyond the width stay as they are.
__device__ void load(float* to, const float* from) {
#pragma unroll
    for (u32 i = 0; i < LOADS; ++i)
        if (column_of(i) < WIDTH) {
            const float4 four = *(const float4*)(from + column_of(i));
            to[4 * i] = four.x, to[4 * i + 1] = four.y, to[4 * i + 2] = four.z, to[4 * i + 3] = four.w;
        }
}

// The sum over lanes that are `from`, 2 `from` and so on below `to` apart, for each of them.
__device__ float over_lanes(float x, u32 from, u32 to) {
    for (u32 step = from; step < to; step *= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

// qkv (3, heads, WIDTH), past (room, 2, heads, WIDTH), mixed (heads, WIDTH): in both a value is `pitch` after its key.
extern "C" __global__ void __launch_bounds__(THREADS) attend(const float* qkv, float* past, const u64* places, float* mixed) {
    const u64 place = *places, pitch = gridDim.x * WIDTH;
    const u32 head = blockIdx.x * WIDTH, warp = threadIdx.x / 32, of_warp = threadIdx.x % 32 / TEAM;
    const float* own = qkv + pitch + head;
    float* parts = (float*)shared;
    past += head;
    for (u32 c = threadIdx.x; c < WIDTH; c += THREADS) {
        past[2 * place * pitch + c] = own[c];
        past[(2 * place + 1) * pitch + c] = own[pitch + c];
    }

    float query[EACH] = {}, sums[EACH] = {}, weights = 0, largest = LOWEST;
    load(query, qkv + head);
#pragma unroll
    for (u32 i = 0; i < EACH; ++i) query[i] /= sqrtf(WIDTH);
    for (u64 first = warp * (32 / TEAM); first <= place; first += TEAMS * TOGETHER) {
        float keys[TOGETHER][EACH] = {}, values[TOGETHER][EACH] = {}, scores[TOGETHER], before = largest;
#pragma unroll
        for (u32 j = 0; j < TOGETHER; ++j) {
            const u64 token = first + j * TEAMS + of_warp;
            if (token > place) continue;
            const float* from = token < place ? past + 2 * token * pitch : own;
            load(keys[j], from);
            load(values[j], from + pitch);
        }
#pragma unroll
        for (u32 j = 0; j < TOGETHER; ++j) {
            float score = 0;
#pragma unroll
            for (u32 i = 0; i < EACH; ++i) score += query[i] * keys[j][i];
            score = over_lanes(score, 1, TEAM);
            scores[j] = first + j * TEAMS + of_warp > place ? __uint_as_float(0xff800000u) : score;
            largest = fmaxf(largest, scores[j]);
        }
        const float shrink = expf(before - largest);
        weights *= shrink;
#pragma unroll
        for (u32 i = 0; i < EACH; ++i) sums[i] *= shrink;
#pragma unroll
        for (u32 j = 0; j < TOGETHER; ++j) {
            const float weight = expf(scores[j] - largest);
            weights += weight;
#pragma unroll
            for (u32 i = 0; i < EACH; ++i) sums[i] += weight * values[j][i];
        }
    }

    float top = largest;
    for (u32 step = TEAM; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    const float shrink = expf(largest - top);
    weights = over_lanes(shrink * weights, TEAM, 32);
#pragma unroll
    for (u32 i = 0; i < EACH; ++i) {
        const float sum = over_lanes(shrink * sums[i], TEAM, 32);
        const u32 column = column_of(i / 4) + i % 4;
        if (of_warp == 0 && column < WIDTH) parts[warp * PART + column] = sum;
    }
    if (threadIdx.x % 32 == 0) parts[warp * PART + WIDTH] = weights, parts[warp * PART + WIDTH + 1] = top;
    __syncthreads();
    for (u32 c = threadIdx.x; c < WIDTH; c += THREADS) {
        float all = LOWEST, sum = 0, weight = 0;
#pragma unroll
        for (u32 w = 0; w < WARPS; ++w) all = fmaxf(all, parts[w * PART + WIDTH + 1]);
#pragma unroll
        for (u32 w = 0; w < WARPS; ++w) {
            const float share = expf(parts[w * PART + WIDTH + 1] - all);
            sum += share * parts[w * PART + c];
            weight += share * parts[w * PART + WIDTH];
        }
        mixed[head + c] = sum / weight;
    }
}
