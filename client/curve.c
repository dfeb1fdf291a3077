#include "client/curve.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define WIDTH 64
#define HEIGHT 12

/* Means of `count` values in `columns` equal parts; returns the number of columns used. */
static size_t thin(const double *values, size_t count, double means[WIDTH])
{
    size_t columns = count < WIDTH ? count : WIDTH;

    for (size_t column = 0; column < columns; column++) {
        size_t first = column * count / columns;
        size_t end = (column + 1) * count / columns;
        double sum = 0;

        for (size_t i = first; i < end; i++)
            sum += values[i];
        means[column] = sum / (double)(end - first);
    }
    return columns;
}

void curve_print(FILE *out, const double *values, size_t count)
{
    double means[WIDTH];
    double low = INFINITY;
    double high = -INFINITY;
    size_t columns;

    if (count < 2)
        return;
    columns = thin(values, count, means);
    for (size_t i = 0; i < columns; i++) {
        if (!isfinite(means[i]))
            return;
        low = fmin(low, means[i]);
        high = fmax(high, means[i]);
    }
    for (int row = HEIGHT - 1; row >= 0; row--) {
        double top = low + (high - low) * (row + 1) / HEIGHT;
        double bottom = low + (high - low) * row / HEIGHT;
        char line[WIDTH + 1];

        memset(line, ' ', sizeof(line));
        for (size_t i = 0; i < columns; i++) {
            bool here = means[i] >= bottom && (means[i] < top || row == HEIGHT - 1);

            line[i] = here ? '*' : ' ';
        }
        line[columns] = '\0';
        (void)fprintf(out, "%9.4f |%s\n", (top + bottom) / 2, line);
    }
    (void)fprintf(out, "%9s +", "loss");
    for (size_t i = 0; i < columns; i++)
        (void)fputc('-', out);
    (void)fprintf(out, "\n%9s  step 1%*s%zu\n", "", (int)(columns > 6 ? columns - 6 : 1), "",
                  count);
}
