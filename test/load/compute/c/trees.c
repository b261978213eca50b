// Scores a forest that internal/trees/treesgen wrote (Forest.Flat), as fast as C can: what internal/trees is compared with.
//
//   gcc -O3 -march=native -o trees trees.c && ./trees FOREST SECONDS
//
// Prints a line for each way of walking: its name, million traversals a second of CPU, and the sum of all scores.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

// A node: to child, or to child + 1 where the row's value is greater than the threshold. A leaf's child is itself, and its threshold infinite.
typedef struct {
  double threshold;
  uint32_t column;
  uint32_t child;
} node;

typedef struct {
  node *nodes;
  double *values;
  int depth;
} tree;

enum { LANES = 8, BLOCK = 48 };

static int trees, leaves, columns, rows;
static tree *forest;
static double *table;   // rows x columns
static double *lanes;   // blocks of rows, column by column, LANES rows side by side
static double *scores;

static void *more(size_t n) {
  void *p = aligned_alloc(64, (n + 63) / 64 * 64);
  if (!p) exit(1);
  return p;
}

static void must(void *to, size_t size, size_t n, FILE *f) {
  if (fread(to, size, n, f) != n) {
    fprintf(stderr, "the file ends early\n");
    exit(1);
  }
}

// Lays a tree out breadth first, children side by side.
static void lay(tree *t, int32_t *column, int32_t *left, int32_t *right, double *threshold, double *value) {
  int n = 2 * leaves - 1, end = 1;
  int32_t *order = more(n * 4);
  int *depth = more(n * sizeof(int));
  t->nodes = more(n * sizeof(node));
  t->values = more(n * 8);
  t->depth = 0;
  order[0] = leaves > 1 ? 0 : -1;
  depth[0] = 0;
  for (int i = 0; i < n; i++) {
    int32_t at = order[i];
    if (at < 0) {
      t->nodes[i] = (node){INFINITY, 0, i};
      t->values[i] = value[~at];
      if (depth[i] > t->depth) t->depth = depth[i];
      continue;
    }
    t->nodes[i] = (node){threshold[at], column[at], end};
    t->values[i] = 0;
    order[end] = left[at];
    order[end + 1] = right[at];
    depth[end] = depth[end + 1] = depth[i] + 1;
    end += 2;
  }
  free(order);
  free(depth);
}

static void load(const char *name) {
  FILE *f = fopen(name, "rb");
  int32_t head[4];
  if (!f) {
    perror(name);
    exit(1);
  }
  must(head, 4, 4, f);
  trees = head[0], leaves = head[1], columns = head[2], rows = head[3];
  int splits = leaves - 1;
  int32_t *words = more(12 * splits + 1);
  double *numbers = more(8 * (splits + leaves));
  forest = more(trees * sizeof(tree));
  for (int i = 0; i < trees; i++) {
    must(words, 4, 3 * splits, f);
    must(numbers, 8, splits + leaves, f);
    lay(&forest[i], words, words + splits, words + 2 * splits, numbers, numbers + splits);
  }
  table = more((size_t)rows * columns * 8);
  must(table, 8, (size_t)rows * columns, f);
  fclose(f);
  rows = rows / LANES * LANES;
  lanes = more((size_t)BLOCK * columns * 8);
  scores = more(rows * 8);
}

// The plainest loop: a row, a tree, a branch at each node.
static void plain(void) {
  for (int r = 0; r < rows; r++) {
    const double *row = table + (size_t)r * columns;
    double sum = 0;
    for (int i = 0; i < trees; i++) {
      const node *n = forest[i].nodes;
      uint32_t at = 0;
      while (n[at].child != at) at = row[n[at].column] > n[at].threshold ? n[at].child + 1 : n[at].child;
      sum += forest[i].values[at];
    }
    scores[r] = sum;
  }
}

static void fill(int first, int count) {
  for (int r = 0; r < count; r++)
    for (int c = 0; c < columns; c++)
      lanes[((size_t)(r / LANES) * columns + c) * LANES + r % LANES] = table[(size_t)(first + r) * columns + c];
}

// Tree by tree over a block of rows, LANES of them at once, without branches.
static void interleaved(void) {
  memset(scores, 0, rows * 8);
  for (int first = 0; first < rows; first += BLOCK) {
    int count = rows - first < BLOCK ? rows - first : BLOCK;
    fill(first, count);
    for (int i = 0; i < trees; i++) {
      const node *n = forest[i].nodes;
      for (int g = 0; g < count; g += LANES) {
        const double *x = lanes + (size_t)g * columns;
        uint32_t at[LANES] = {0};
        for (int d = forest[i].depth; d > 0; d--)
          for (int k = 0; k < LANES; k++) {
            const node *s = &n[at[k]];
            at[k] = s->child + (x[s->column * LANES + k] > s->threshold);
          }
        for (int k = 0; k < LANES; k++) scores[first + g + k] += forest[i].values[at[k]];
      }
    }
  }
}

#ifdef __AVX512F__
// The same with gathers: one instruction steps all lanes.
static void gathers(void) {
  const __m512i lane = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0), one = _mm512_set1_epi64(1), low = _mm512_set1_epi64(0xffffffff);
  memset(scores, 0, rows * 8);
  for (int first = 0; first < rows; first += BLOCK) {
    int count = rows - first < BLOCK ? rows - first : BLOCK;
    fill(first, count);
    for (int i = 0; i < trees; i++) {
      const char *n = (const char *)forest[i].nodes;
      for (int g = 0; g < count; g += LANES) {
        const double *x = lanes + (size_t)g * columns;
        __m512i at = _mm512_setzero_si512();
        for (int d = forest[i].depth; d > 0; d--) {
          __m512i place = _mm512_slli_epi64(at, 4);
          __m512d threshold = _mm512_i64gather_pd(place, n, 1);
          __m512i link = _mm512_i64gather_epi64(place, n + 8, 1);
          __m512i where = _mm512_add_epi64(_mm512_slli_epi64(_mm512_and_si512(link, low), 3), lane);
          __m512d value = _mm512_i64gather_pd(where, x, 8);
          __m512i child = _mm512_srli_epi64(link, 32);
          at = _mm512_mask_add_epi64(child, _mm512_cmp_pd_mask(value, threshold, _CMP_GT_OQ), child, one);
        }
        _mm512_storeu_pd(scores + first + g, _mm512_add_pd(_mm512_loadu_pd(scores + first + g), _mm512_i64gather_pd(at, forest[i].values, 8)));
      }
    }
  }
}
#endif

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static void measure(const char *name, void (*score)(void), double seconds) {
  double start = now(), took, sum = 0;
  long passes = 0;
  do {
    score();
    passes++;
  } while ((took = now() - start) < seconds);
  for (int r = 0; r < rows; r++) sum += scores[r];
  printf("%s %.2f %.12g\n", name, passes * (double)rows * trees / took / 1e6, sum);
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: trees FOREST SECONDS\n");
    return 2;
  }
  load(argv[1]);
  measure("plain", plain, atof(argv[2]));
  measure("interleaved", interleaved, atof(argv[2]));
#ifdef __AVX512F__
  measure("gathers", gathers, atof(argv[2]));
#endif
  return 0;
}
