/* core/outer.c once more, for the narrowest registers only and under other names: so that one test program has both widths
 * side by side. */

#define EDIT_NARROW
#define outer_step narrow_outer_step
#define outer_clip_scale narrow_outer_clip_scale
#include "core/outer.c"
