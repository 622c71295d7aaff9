/* A libFuzzer program; TARGET, given by the Makefile, is one of the functions of target.h. */

#include "tests/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return TARGET(data, size);
}
