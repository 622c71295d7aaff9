/* worker/kernels_rows.c once more, for the narrowest registers only and under other names: so that one test program
 * has all widths side by side. */

#define EDIT_NARROW
#define row_exp narrow_row_exp
#define row_dot narrow_row_dot
#define row_add narrow_row_add
#define row_scale narrow_row_scale
#define row_softmax narrow_row_softmax
#define row_softmax_again narrow_row_softmax_again
#define row_softmax_backward narrow_row_softmax_backward
#define row_cross_entropy narrow_row_cross_entropy
#define rms_norm narrow_rms_norm
#define rms_norm_again narrow_rms_norm_again
#define rms_norm_backward narrow_rms_norm_backward
#define swiglu narrow_swiglu
#define swiglu_backward narrow_swiglu_backward
#define rope narrow_rope
#define adamw_update narrow_adamw_update
#include "worker/kernels_rows.c"
