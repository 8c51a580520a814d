/* batch_norm and group_norm of examples with further dimensions, for the type REAL; see kernels/batch_norm.c. */

INLINE void
NAME(store_moments)(const ChannelNorm *given, Py_ssize_t group, double shift, Moments found)
{
    ((REAL *)given->mean)[group] = (REAL)(shift + found.rest);
    ((REAL *)given->rstd)[group] = (REAL)found.rstd;
    ((REAL *)given->variance)[group] = (REAL)found.variance;
}

INLINE void
NAME(store_gradients)(const ChannelNorm *given, Py_ssize_t channel, double of_weight, double of_bias)
{
    if (given->of_weight != NULL) {
        ((REAL *)given->of_weight)[channel] = (REAL)of_weight;
    }
    if (given->of_bias != NULL) {
        ((REAL *)given->of_bias)[channel] = (REAL)of_bias;
    }
}

INLINE void
NAME(norm_group)(const ChannelNorm *given, Py_ssize_t group, Strips at)
{
    const REAL *x = (const REAL *)given->x + at.start, *weight = given->weight, *bias = given->bias;
    REAL *out = (REAL *)given->out + at.start;
    Py_ssize_t length = given->length, count = at.count * length;
    double sum = 0, squares = 0;
    for (Py_ssize_t s = 0; s < at.count; s++) {
        sum += NAME(total)(x + s * at.step, length);
    }
    REAL shift = (REAL)(sum / count);
    sum = 0;
    for (Py_ssize_t s = 0; s < at.count; s++) {
        NAME(moments)(x + s * at.step, length, shift, &sum, &squares);
    }
    Moments found = moments_of(sum, squares, count, given->eps);
    NAME(store_moments)(given, group, shift, found);
    for (Py_ssize_t s = 0; s < at.count; s++) {
        Py_ssize_t channel = at.channel + s * at.channel_step;
        double scale = found.rstd * (weight == NULL ? 1 : weight[channel]);
        REAL factor = (REAL)scale, offset = (REAL)((bias == NULL ? 0 : bias[channel]) - found.rest * scale);
        const REAL *from = x + s * at.step;
        REAL *to = out + s * at.step;
        for (Py_ssize_t k = 0; k < length; k++) {
            to[k] = (from[k] - shift) * factor + offset;
        }
    }
}

CLONES static void
NAME(norm_strips)(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const ChannelNorm *given = context;
    for (Py_ssize_t group = first; group < last; group++) {
        NAME(norm_group)(given, group, strips_of(given, group));
    }
}

/* The gradient of a group; what its strips contribute to weight and bias is added to `sums`. */
INLINE void
NAME(group_gradient)(const ChannelNorm *given, Py_ssize_t group, Strips at, NAME(Sums) * found, double *sums)
{
    const REAL *x = (const REAL *)given->x + at.start, *g = (const REAL *)given->g + at.start, *weight = given->weight;
    REAL shift = ((const REAL *)given->mean)[group], *out = given->out;
    Py_ssize_t length = given->length, count = at.count * length;
    double rstd = ((const REAL *)given->rstd)[group], rest = 0, total = 0, along = 0;
    for (Py_ssize_t s = 0; s < at.count; s++) {
        found[s] = (NAME(Sums)){0, 0, 0};
        NAME(products)(x + s * at.step, g + s * at.step, NULL, length, shift, &found[s]);
        rest += found[s].x / count;
    }
    for (Py_ssize_t s = 0; s < at.count; s++) {
        Py_ssize_t channel = at.channel + s * at.channel_step;
        double own = found[s].product - rest * found[s].g, factor = weight == NULL ? 1 : weight[channel];
        sums[channel] += own * rstd;
        sums[given->channels + channel] += found[s].g;
        total += factor * found[s].g;
        along += factor * own;
    }
    double slope = rstd * rstd * rstd * along / count;
    REAL slope_ = (REAL)slope, offset = (REAL)(rstd * total / count - rest * slope);
    for (Py_ssize_t s = 0; s < at.count && out != NULL; s++) {
        REAL factor = (REAL)(rstd * (weight == NULL ? 1 : weight[at.channel + s * at.channel_step]));
        const REAL *x_of = x + s * at.step, *g_of = g + s * at.step;
        REAL *to = out + at.start + s * at.step;
        for (Py_ssize_t k = 0; k < length; k++) {
            to[k] = g_of[k] * factor - ((x_of[k] - shift) * slope_ + offset);
        }
    }
}

/* Some channels, or groups of them, in all examples. */
CLONES static void
NAME(norm_strips_gradient)(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const ChannelNorm *given = context;
    Py_ssize_t pieces = channel_pieces(given), in_piece = given->channels / pieces, groups = group_count(given);
    double *sums = given->scratch;
    for (Py_ssize_t piece = first; piece < last; piece++) {
        NAME(Sums) *found = (NAME(Sums) *)(sums + 2 * given->channels) + piece * strips_in_group(given);
        for (Py_ssize_t channel = piece * in_piece; channel < (piece + 1) * in_piece; channel++) {
            sums[channel] = sums[given->channels + channel] = 0;
        }
        for (Py_ssize_t group = piece; group < groups; group += pieces) {
            NAME(group_gradient)(given, group, strips_of(given, group), found, sums);
        }
        for (Py_ssize_t channel = piece * in_piece; channel < (piece + 1) * in_piece; channel++) {
            NAME(store_gradients)(given, channel, sums[channel], sums[given->channels + channel]);
        }
    }
}
