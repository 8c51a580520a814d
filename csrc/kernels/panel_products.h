/* kernels/panel_product.h in vectors of 32 bytes and, where processors may have them, of 64. */

#define PANEL_TARGET CLONES
#define ROWS_OF_TWO 6 /* twelve sums, two vectors of the panel and a number: sixteen registers */
#define ROWS_OF_ONE 12
#include "kernels/panel_product.h"
#undef ROWS_OF_ONE
#undef ROWS_OF_TWO
#undef PANEL_TARGET

#ifdef WIDE_VECTORS
#pragma push_macro("NAME")
#pragma push_macro("VECTOR_BYTES")
#undef NAME
#undef VECTOR_BYTES
#define NAME(name) JOIN(JOIN(name, REAL), wide)
#define VECTOR_BYTES 64
#define PANEL_TARGET __attribute__((target("arch=x86-64-v4")))
#define ROWS_OF_TWO 8 /* twice as many registers, but rows have addresses too */
#define ROWS_OF_ONE 8
#include "loops/vectors.h"
#include "kernels/panel_product.h"
#undef ROWS_OF_ONE
#undef ROWS_OF_TWO
#undef PANEL_TARGET
#pragma pop_macro("VECTOR_BYTES")
#pragma pop_macro("NAME")
#endif
