/* core/vec.c once more, for the narrowest registers only and under other names: so that one test program has both widths
 * side by side. */

#define EDIT_NARROW
#define vec_delta narrow_vec_delta
#define vec_square_sum narrow_vec_square_sum
#define vec_scale narrow_vec_scale
#define vec_accumulate narrow_vec_accumulate
#define vec_move narrow_vec_move
#include "core/vec.c"
