/* Random numbers by index: the finaliser of splitmix64 (Steele, Lea, Flood 2014) applied to seed, stream and index;
 * normals by Box and Muller with a logarithm and a sine of our own, for equal bits everywhere. */

#include "worker/draw.h"

#include <math.h>
#include <string.h>

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

uint64_t draw_bits(uint64_t seed, uint64_t stream, uint64_t index)
{
	const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
	uint64_t key = mix(mix(seed + golden) ^ (stream * golden + golden));
	return mix(key + (index + 1) * golden);
}

double draw_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
	return (double)(draw_bits(seed, stream, index) >> 11) * 0x1p-53;
}

/* ln x for normal x > 0, to about 1e-15: x = m 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2 artanh((m - 1) / (m +
 * 1)). */
static double natural_log(double x)
{
	uint64_t bits;
	memcpy(&bits, &x, sizeof bits);
	int exponent = (int)(bits >> 52) - 1023;
	bits = (bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x3ff0000000000000);
	double m;
	memcpy(&m, &bits, sizeof m);
	if (m > 1.4142135623730951) {
		m *= 0.5;
		exponent++;
	}
	double s = (m - 1) / (m + 1), square = s * s, sum = 0;
	for (int k = 21; k >= 1; k -= 2)
		sum = sum * square + 1.0 / k;
	return 2 * s * sum + exponent * 0.6931471805599453;
}

/* cos and sin of 2 pi turns, turns in [0, 1): the nearest quarter turn, and the rest by Taylor's series. */
static void cos_sin(double turns, double *ret_cos, double *ret_sin)
{
	int quarter = (int)(turns * 4 + 0.5);
	double x = (turns - quarter * 0.25) * 6.283185307179586, square = x * x;
	double c = 1, s = 1;
	for (int k = 16; k >= 2; k -= 2) {
		c = 1 - c * square / (k * (k - 1));
		s = 1 - s * square / (k * (k + 1));
	}
	s *= x;
	switch (quarter & 3) {
	case 0: *ret_cos = c; *ret_sin = s; break;
	case 1: *ret_cos = -s; *ret_sin = c; break;
	case 2: *ret_cos = -c; *ret_sin = -s; break;
	default: *ret_cos = s; *ret_sin = -c; break;
	}
}

void draw_normals(uint64_t seed, uint64_t stream, double deviation, float *ret_x, size_t count)
{
	for (size_t i = 0; i < count; i += 2) {
		double radius = sqrt(-2 * natural_log(1 - draw_uniform(seed, stream, i))) * deviation;
		double cosine, sine;
		cos_sin(draw_uniform(seed, stream, i + 1), &cosine, &sine);
		ret_x[i] = (float)(radius * cosine);
		if (i + 1 < count)
			ret_x[i + 1] = (float)(radius * sine);
	}
}
