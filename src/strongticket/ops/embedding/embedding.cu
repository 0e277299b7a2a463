// Sums of the rows of each token, given in the order of tokens: the same bits each time, in any order of threads.
//
// Frequent tokens have thousands of rows and most have none, so rows are divided into pieces of PIECE places. A token
// whose rows lie in one piece is summed there. One that continues in the next leaves its part in `parts`, which has two
// rows per piece: for the token at the piece's first place, and for another that continues after its end.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

extern "C" __global__ void sum_pieces(const float* __restrict__ rows, const i64* __restrict__ order,
                                      const int* __restrict__ tokens, const i64* __restrict__ starts,
                                      float* __restrict__ sums, float* __restrict__ parts, u32 count, u32 columns) {
    u32 first = blockIdx.x * PIECE, size = min(PIECE, count - first);
    for (u32 column = threadIdx.x; column < columns; column += blockDim.x) {
        float x[PIECE];
#pragma unroll
        for (u32 j = 0; j < PIECE; ++j)
            if (j < size) x[j] = rows[order[first + j] * columns + column];
        float sum = 0;
#pragma unroll
        for (u32 j = 0; j < PIECE; ++j) {
            if (j >= size) break;
            sum += x[j];
            int token = tokens[first + j];
            if (j + 1 < size && tokens[first + j + 1] == token) continue;
            i64 begin = starts[token], end = starts[token + 1];
            bool whole = begin >= first && end <= first + size;
            float* place = whole ? sums + (u64)token * columns : parts + (2ull * blockIdx.x + (begin > first)) * columns;
            place[column] = sum;
            sum = 0;
        }
    }
}

// One block per token: zeros for one without rows, and the parts of one that lies in several pieces.
extern "C" __global__ void join_pieces(const i64* __restrict__ starts, const float* __restrict__ parts,
                                       float* __restrict__ sums, u32 columns) {
    u64 token = blockIdx.x;
    i64 begin = starts[token], end = starts[token + 1];
    if (begin < end && begin / PIECE == (end - 1) / PIECE) return;
    for (u32 column = threadIdx.x; column < columns; column += blockDim.x) {
        float sum = 0;
        for (i64 i = begin; i < end; i = (i / PIECE + 1) * PIECE)
            sum += parts[(2 * (i / PIECE) + (begin > i / PIECE * PIECE)) * columns + column];
        sums[token * columns + column] = sum;
    }
}
