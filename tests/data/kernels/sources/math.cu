// The mathematical library, in double and single precision.
#define UNARY(name, type, expression)                                             \
    extern "C" __global__ void name(type *out, const type *in, int n) {           \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                            \
        if (i < n) { type x = in[i]; out[i] = expression; }                       \
    }
#define BINARY(name, type, expression)                                            \
    extern "C" __global__ void name(type *out, const type *a, const type *b, int n) { \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                            \
        if (i < n) { type x = a[i], y = b[i]; out[i] = expression; }              \
    }
UNARY(sin_f64, double, sin(x))
UNARY(exp_f64, double, exp(x))
UNARY(log_f64, double, log(x))
UNARY(erf_f64, double, erf(x))
UNARY(sqrt_f64, double, sqrt(x) + 1.0 / x)
UNARY(tanh_f32, float, tanhf(x))
UNARY(sin_f32, float, sinf(x))
UNARY(exp_f32, float, expf(x))
UNARY(log_f32, float, logf(x))
UNARY(lgamma_f32, float, lgammaf(x))
UNARY(cbrt_f32, float, cbrtf(x))
UNARY(fast_f32, float, __expf(x) + __logf(x) + __sinf(x) * __cosf(x) + __fdividef(x, 3.f) + rsqrtf(x))
UNARY(round_f32, float, roundf(x) + 100.f * rintf(x) + 10000.f * floorf(x) + ceilf(x) + truncf(x))
BINARY(pow_f64, double, pow(x, y))
BINARY(fmod_f64, double, fmod(x, y))
BINARY(pow_f32, float, powf(x, y))
BINARY(atan2_f32, float, atan2f(x, y))
BINARY(hypot_f32, float, hypotf(x, y))
BINARY(fdim_f32, float, fdimf(x, y) + copysignf(1.f, x) + fminf(x, y))
BINARY(div_f32, float, x / y)
BINARY(div_f64, double, x / y)
