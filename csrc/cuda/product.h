/* A product of matrices, or of stacks of them, in the terms of cuBLAS: column by column. */
#ifndef UNDERTOW_CUDA_PRODUCT_H
#define UNDERTOW_CUDA_PRODUCT_H

typedef struct {
    int transposes_a, transposes_b, m, n, k, lda, ldb, ldc, batch, type;
    long long step_a, step_b, step_c;
    const void *a, *b;
    void *c;
} Product;

/* ---- light.c */

/* Whether cuBLASLt takes products of a type. */
int light_takes(int type);
/* Ask for a product; bias: one number for each of the m, or NULL. */
int enqueue_light(const Product *product, const void *bias, int is_long);

#endif
