/* Two codecs for the tests of frames. */

#include <stdlib.h>

#include "tests/codecs.h"

struct codec *codec, *other;

int codecs_make(void **state)
{
	(void)state;
	codec = codec_init(aligned_alloc(16, codec_size()));
	other = codec_init(aligned_alloc(16, codec_size()));
	return codec && other ? 0 : -1;
}

int codecs_free(void **state)
{
	(void)state;
	free(codec);
	free(other);
	return 0;
}
