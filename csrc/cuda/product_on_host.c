/* Products of matrices on the emulated device, element by element. Half precision is computed in double, and rounded. */
#include "cuda/cuda.h"
#include "cuda/product.h"

static float
widened(uint16_t bits, int type)
{
    union {
        uint32_t u;
        float f;
    } x;
    if (type == CODE_BF16) {
        x.u = (uint32_t)bits << 16;
        return x.f;
    }
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, rest = bits & 0x7fff;
    if (rest < 0x400) {
        return (sign ? -1.0f : 1.0f) * (float)rest / 16777216.0f;
    }
    x.u = sign | (rest >= 0x7c00 ? 0x7f800000u | (rest & 0x3ff) << 13 : (rest << 13) + 0x38000000u);
    return x.f;
}

static uint16_t
narrowed(float value, int type)
{
    union {
        uint32_t u;
        float f;
    } x = {.f = value};
    uint32_t sign = x.u >> 16 & 0x8000, rest = x.u & 0x7fffffff;
    if (type == CODE_BF16) {
        return (uint16_t)(rest > 0x7f800000u ? sign | 0x7fc0 : (x.u + 0x7fff + (x.u >> 16 & 1)) >> 16);
    }
    if (rest > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00);
    }
    if (rest >= 0x477ff000u) {
        return (uint16_t)(sign | 0x7c00);
    }
    if (rest < 0x38800000u) { /* too small for a full mantissa: the sum rounds */
        x.u = rest;
        x.f += 0.5f;
        return (uint16_t)(sign | (x.u - 0x3f000000u));
    }
    return (uint16_t)(sign | ((rest - 0x38000000u + 0xfffu + (rest >> 13 & 1)) >> 13));
}

static double
element(const void *data, long long at, int type)
{
    return type == CODE_F64   ? ((const double *)data)[at]
           : type == CODE_F32 ? ((const float *)data)[at]
                              : widened(((const uint16_t *)data)[at], type);
}

static void
store(void *data, long long at, int type, double value)
{
    if (type == CODE_F64) {
        ((double *)data)[at] = value;
    }
    else if (type == CODE_F32) {
        ((float *)data)[at] = (float)value;
    }
    else {
        ((uint16_t *)data)[at] = narrowed((float)value, type);
    }
}

void
emulate_product(const Product *p, const void *bias)
{
    for (long long z = 0; z < p->batch; z++) {
        for (long long j = 0; j < p->n; j++) {
            for (long long i = 0; i < p->m; i++) {
                long long to = z * p->step_c + i + j * p->ldc;
                double sum = bias != NULL ? element(bias, i, p->type) : p->adds ? element(p->c, to, p->out_type) : 0;
                for (long long l = 0; l < p->k; l++) {
                    long long from_a = p->transposes_a ? l + i * p->lda : i + l * p->lda;
                    long long from_b = p->transposes_b ? j + l * p->ldb : l + j * p->ldb;
                    sum += element(p->a, z * p->step_a + from_a, p->type) * element(p->b, z * p->step_b + from_b, p->type);
                }
                store(p->c, to, p->out_type, sum);
            }
        }
    }
}
