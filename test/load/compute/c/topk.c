// The best K rows of a matrix for each profile, in C: what internal/vector is compared with.
// gcc -O3 -march=native -ffast-math topk.c -o topk && ./topk [ROWS PROFILES DIM K ROUNDS]; prints millions of dot products per second of CPU, of each round.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct scored {
	float score;
	int row;
};

static float dot(const float *a, const float *b, int dim) {
	float sum = 0;
	for (int i = 0; i < dim; i++) sum += a[i] * b[i];
	return sum;
}

static int worse(struct scored a, struct scored b) { return a.score != b.score ? a.score < b.score : a.row > b.row; }

static void down(struct scored *h, int i, int n) {
	for (;;) {
		int child = 2 * i + 1;
		if (child >= n) return;
		if (child + 1 < n && worse(h[child + 1], h[child])) child++;
		if (!worse(h[child], h[i])) return;
		struct scored t = h[i];
		h[i] = h[child];
		h[child] = t;
		i = child;
	}
}

// offer has the best k of one profile meet rows from to to.
static void offer(const float *rows, int from, int to, const float *profile, int dim, struct scored *h, int k) {
	for (int r = from; r < to; r++) {
		float s = dot(rows + (size_t)r * dim, profile, dim);
		if (r < k) {
			h[r] = (struct scored){s, r};
			if (r == k - 1)
				for (int i = k / 2 - 1; i >= 0; i--) down(h, i, k);
		} else if (s > h[0].score) {
			h[0] = (struct scored){s, r};
			down(h, 0, k);
		}
	}
}

static void sort(struct scored *h, int k) {
	for (int end = k - 1; end > 0; end--) {
		struct scored t = h[0];
		h[0] = h[end];
		h[end] = t;
		down(h, 0, end);
	}
}

// topk takes the rows in blocks that stay in the nearest cache (of 32 KiB), as internal/vector does.
static void topk(const float *rows, int n, const float *profiles, int m, int dim, struct scored *best, int k) {
	int block = 8192 / dim > 4 ? 8192 / dim : 4;
	for (int from = 0; from < n; from += block)
		for (int p = 0; p < m; p++) offer(rows, from, from + block < n ? from + block : n, profiles + (size_t)p * dim, dim, best + (size_t)p * k, k);
	for (int p = 0; p < m; p++) sort(best + (size_t)p * k, k);
}

static float *matrix(size_t n) {
	float *m = malloc(n * sizeof *m);
	if (!m) exit(1);
	for (size_t i = 0; i < n; i++) m[i] = (float)rand() / (float)RAND_MAX * 2 - 1;
	return m;
}

static int argument(int argc, char **argv, int i, int otherwise) { return argc > i ? atoi(argv[i]) : otherwise; }

int main(int argc, char **argv) {
	int n = argument(argc, argv, 1, 10000), m = argument(argc, argv, 2, 1000), dim = argument(argc, argv, 3, 128), k = argument(argc, argv, 4, 100), rounds = argument(argc, argv, 5, 3);
	if (n < 1 || m < 1 || dim < 1 || k < 1 || k > n) return 2;
	float *rows = matrix((size_t)n * dim), *profiles = matrix((size_t)m * dim);
	struct scored *best = malloc((size_t)m * k * sizeof *best);
	double checksum = 0;
	for (int round = 0; round < rounds; round++) {
		struct timespec a, b;
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
		topk(rows, n, profiles, m, dim, best, k);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
		double seconds = b.tv_sec - a.tv_sec + (b.tv_nsec - a.tv_nsec) / 1e9;
		printf("%.1f\n", (double)n * m / seconds / 1e6);
		checksum += best[0].score;
	}
	fprintf(stderr, "checksum %g\n", checksum);
	return 0;
}
