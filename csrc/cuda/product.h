/* A product of matrices, or of stacks of them, in the terms of cuBLAS: column by column. */
#ifndef UNDERTOW_CUDA_PRODUCT_H
#define UNDERTOW_CUDA_PRODUCT_H

typedef struct {
    int transposes_a, transposes_b, m, n, k, lda, ldb, ldc, batch, type;
    int out_type, adds; /* adds: to what the result holds. Both are cuBLASLt's alone. */
    long long step_a, step_b, step_c;
    const void *a, *b;
    void *c;
} Product;

/* ---- products.c */

/* How a matrix (the last two dimensions) lies: 0 row by row, 1 column by column, -1 neither; *step: from one to the next */
int lies(const Array *array, int *step);
/* The distance between the matrices of a stack, in bytes; -1 if there is no single one. */
npy_intp step_of_stack(const Array *array);

/* ---- light.c */

/* Whether cuBLASLt takes products of a type. */
int light_takes(int type);
/* Ask for a product; bias: one number for each of the m, or NULL. */
int enqueue_light(const Product *product, const void *bias, int is_long);


/* ---- product_on_host.c */

/* A product on the emulated device; `bias` may be NULL. */
void emulate_product(const Product *product, const void *bias);

#endif
