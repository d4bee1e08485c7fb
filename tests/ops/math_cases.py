import json
r = np.random.RandomState(7)
C64, C128 = np.complex64, np.complex128
FLOATS = [np.float16, BF16, np.float32, np.float64]
COMPLEX = [C64, C128]
SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
INTS = SIGNED + UNSIGNED
REALS = FLOATS + INTS
NUMBERS = REALS + COMPLEX
nan, inf = float('nan'), float('inf')
i32 = lambda *v: np.array(v, np.int32)
i64 = lambda *v: np.array(v, np.int64)
f32 = lambda *v: np.array(v, np.float32)


def is_c(t): return t in COMPLEX
def is_i(t): return t in INTS


def values(t, n, low=-4.0, high=4.0, seed=0):
    s = np.random.RandomState(seed + n)
    if is_c(t):
        return (s.uniform(low, high, n) + 1j * s.uniform(low, high, n)).astype(t)
    if is_i(t):
        low = max(low, np.iinfo(t).min)
        return s.randint(int(low), int(high) + 1, n).astype(t)
    return s.uniform(low, high, n).astype(t)


def special(t):
    if is_c(t):
        return values(t, 5)
    if is_i(t):
        i = np.iinfo(t)
        return np.array([i.min, i.max, 0, 1, 3], t)
    return np.array([0.0, -0.0, inf, -inf, nan, 0.5, 1.5, -2.5, 2.5], np.float64).astype(t)


def shaped(t, *shape, **kw):
    return values(t, int(np.prod(shape)), **kw).reshape(shape)


# ---- one operand ----
RANGES = {'Asin': (-1, 1), 'Acos': (-1, 1), 'Atanh': (-0.95, 0.95), 'Acosh': (1, 9), 'Sqrt': (0, 9), 'Rsqrt': (0.1, 9), 'Log': (0.01, 9),
          'Log1p': (-0.9, 9), 'Erfinv': (-0.99, 0.99), 'Ndtri': (0.01, 0.99), 'Lgamma': (-3, 20), 'Digamma': (-3, 20), 'Exp': (-80, 80),
          'Expm1': (-10, 10), 'Sin': (-100, 100), 'Cos': (-100, 100), 'Erf': (-3, 3), 'Erfc': (-3, 5)}
TYPES1 = {}
for o in 'Sqrt Rsqrt Exp Expm1 Log Log1p Sin Cos Tan Sinh Cosh Tanh Asin Acos Atan Asinh Acosh Atanh Sigmoid Inv Reciprocal'.split():
    TYPES1[o] = FLOATS + COMPLEX
for o in 'Floor Ceil Erf Erfc IsNan IsInf IsFinite Elu Selu Softplus Softsign LeakyRelu'.split():
    TYPES1[o] = FLOATS
for o in 'Erfinv Ndtri Rint'.split():
    TYPES1[o] = [np.float32, np.float64]
for o in 'Lgamma Digamma'.split():
    TYPES1[o] = [np.float16, np.float32, np.float64]
TYPES1.update(Abs=FLOATS + SIGNED, Neg=FLOATS + SIGNED + COMPLEX, Sign=FLOATS + SIGNED + COMPLEX, Square=NUMBERS,
              Round=FLOATS + [np.int32, np.int64], Invert=INTS, PopulationCount=INTS, Relu=REALS, Relu6=REALS, Conj=COMPLEX)
for o, ts in TYPES1.items():
    for t in ts:
        low, high = RANGES.get(o, (-4, 4))
        if t in (np.float16,) and o == 'Exp':
            low, high = -8, 8
        if is_c(t):
            low, high = max(low, -3), min(high, 3)
        kw = {'alpha': 0.25} if o == 'LeakyRelu' else {}
        case(o, [values(t, 11, low, high)], **kw)
        if not is_c(t) and o not in ('Lgamma', 'Digamma', 'Ndtri', 'Erfinv'):
            case(o, [special(t)], **kw)
for o in ('ComplexAbs', 'Real', 'Imag', 'Angle'):
    case(o, [values(C64, 7)], Tout=tf.float32)
    case(o, [values(C128, 7)], Tout=tf.float64)
case('LogicalNot', [np.array([True, False])])
case('Neg', [np.zeros((0, 3), np.float32)])
case('Exp', [np.float32(1)])
case('Sin', [f32(1e6, -3e7, 12345.678, 99999)])
case('Lgamma', [f32(0, -1, inf, -inf, nan, 0.5)])
for t in (np.float32, np.int32, np.float64, BF16, np.int8, np.uint8):
    case('ClipByValue', [values(t, 9, -9, 9), np.array(2).astype(t), np.array(5).astype(t)])
case('ClipByValue', [values(np.float32, 4), values(np.float32, 4, -3, 0), np.float32(1)])
case('ClipByValue', [values(np.float32, 4), values(np.float32, 3), np.float32(1)])
for t in FLOATS:
    case('CheckNumerics', [values(t, 4)], message='m')
    case('CheckNumerics', [np.array([1, nan]).astype(t)], message='m')
    case('CheckNumerics', [np.array([1, inf]).astype(t)], message='m')
    case('CheckNumerics', [np.array([inf, nan]).astype(t)], message='m')
    case('CheckNumericsV2', [np.array([-inf, nan]).astype(t)], message='m', fails='m : Tensor had -Inf and NaN values')
    case('CheckNumericsV2', [np.array([-inf, inf, nan]).astype(t)], message='m', fails='m : Tensor had -Inf, +Inf, and NaN values')

# ---- two operands ----
ARITH = FLOATS + INTS + COMPLEX
TYPES2 = {}
for o in 'AddV2 Sub Mul Div'.split():
    TYPES2[o] = ARITH
TYPES2['Add'] = [np.float32, np.int8, np.uint8, C64, BF16, np.float16]
for o in 'MulNoNan DivNoNan RealDiv Xdivy Xlogy Xlog1py'.split():
    TYPES2[o] = FLOATS + COMPLEX
for o in 'FloorDiv FloorMod Maximum Minimum'.split():
    TYPES2[o] = REALS
TYPES2['TruncateDiv'] = INTS + FLOATS
for o in 'Mod TruncateMod'.split():
    TYPES2[o] = [np.float32, np.float64, np.int32, np.int64]
for o in 'Less LessEqual Greater GreaterEqual'.split():
    TYPES2[o] = REALS
for o in 'Equal NotEqual'.split():
    TYPES2[o] = NUMBERS
for o in 'BitwiseAnd BitwiseOr BitwiseXor'.split():
    TYPES2[o] = INTS
TYPES2['SquaredDifference'] = FLOATS + COMPLEX + [np.int32, np.int64]
TYPES2['Atan2'] = FLOATS
TYPES2['NextAfter'] = [np.float32, np.float64]
for o, ts in TYPES2.items():
    for t in ts:
        x, y = values(t, 12), values(t, 12, seed=5)
        if o in ('FloorDiv', 'FloorMod', 'TruncateDiv', 'Div', 'Mod', 'TruncateMod', 'RealDiv', 'Xdivy'):
            y = np.where(y == 0, np.ones_like(y), y)
            x = x * np.array(5).astype(t)
        if o in ('Xlogy', 'Xlog1py') and not is_c(t):
            y = np.abs(y)
        case(o, [x, y])
        if o in ('Sub', 'Greater', 'NotEqual') and t in (np.float32, np.int32, C64, BF16):
            case(o, [x.reshape(3, 4), y[:4]])
            case(o, [x.reshape(3, 4), y[:3].reshape(3, 1)])
            case(o, [x[:3].reshape(3, 1), y[:4]])
            case(o, [x.reshape(2, 1, 6), y[:6].reshape(3, 2)[:, :1]])
            case(o, [x, y[5]])
            case(o, [x[4], y[:5]])
            case(o, [np.zeros((0, 4), t), y[:4]])
            case(o, [x[1], y[1]])
            case(o, [x.reshape(3, 4), y[:5]], fails='Incompatible shapes: [3,4] vs. [5]')
for t in SIGNED:
    m = np.iinfo(t).min
    for o in ('Div', 'FloorDiv', 'FloorMod', 'TruncateDiv'):
        case(o, [np.array([7, -7, 9], t), np.array([2, 2, -4], t)])
        case(o, [np.array([7, 1], t), np.array([0, 1], t)], code='TD_INVALID_ARGUMENT', fails='Integer division by zero')
for o in ('FloorMod', 'FloorDiv', 'Maximum', 'Minimum', 'DivNoNan', 'MulNoNan', 'Xlogy', 'Xdivy', 'Equal', 'NotEqual', 'Less', 'LessEqual', 'Greater', 'GreaterEqual'):
    a = f32(0, 1, -1, inf, -inf, nan, 5.5, -5.5, 5.5, 0)
    case(o, [a, f32(2, 0, 3, 2, nan, 2, 2, 2, -2, 0)])
    case(o, [a, f32(nan, inf, -inf, inf, -inf, nan, 0.5, 3, -3, -0.0)])
for t in FLOATS:
    case('Pow', [values(t, 9, 0.1, 4), values(t, 9, -3, 3)])
    case('Pow', [values(t, 9, -4, 4), np.array(2).astype(t)])
    case('Pow', [values(t, 9, 0, 4), np.array(0.5).astype(t)])
for t in COMPLEX:
    case('Pow', [values(t, 9), values(t, 9, -2, 2, seed=3)])
for t in SIGNED:
    case('Pow', [values(t, 9, -3, 3), values(t, 9, 0, 4)])
    case('Pow', [values(t, 3), np.array([1, -1, 2], t)])
for t in INTS:
    case('LeftShift', [values(t, 9, 0, 100), values(t, 9, 0, 6)])
    case('RightShift', [values(t, 9, -100, 100), values(t, 9, 0, 6)])
case('LeftShift', [i32(1, 1, -1), i32(40, -1, 3)])
case('RightShift', [i32(1, -8, -1), i32(40, -1, 3)])
for t in (np.float32, np.float64):
    case('Complex', [values(t, 6), values(t, 6, seed=2)], Tout=tf.complex64 if t == np.float32 else tf.complex128)
    case('Igamma', [values(t, 9, 0.1, 12), values(t, 9, 0, 12, seed=3)])
    case('Igammac', [values(t, 9, 0.1, 12), values(t, 9, 0, 12, seed=3)])
    case('Zeta', [values(t, 9, 1.1, 6), values(t, 9, 0.2, 12, seed=3)])
    case('Polygamma', [np.array([0, 1, 2, 3, 4]).astype(t), values(t, 5, 0.2, 8, seed=3)])
    case('ApproximateEqual', [values(t, 6), values(t, 6) + np.array([0, 1e-6, 1e-3, 1, -1e-3, 0]).astype(t)], tolerance=1e-4)
case('ApproximateEqual', [f32(1, 2), f32(1)], fails='must have the same size and shape')
for o in ('LogicalAnd', 'LogicalOr'):
    case(o, [np.array([[True], [False]]), np.array([True, False])])
S = np.array([b'a', b'bb', b'', b'dd'], object)
case('Add', [S, S[::-1].copy()])
case('Add', [S.reshape(2, 2), S[:2]])
case('Equal', [S, np.array([b'a', b'x', b'', b'd'], object)])
case('NotEqual', [S, np.array([b'a', b'x', b'', b'd'], object)])
case('Equal', [np.array([True, False]), np.array([True, True])])
case('Equal', [f32(1, 2), f32(1, 2, 3)], incompatible_shape_error=False)
case('NotEqual', [f32(1, 2), f32(1, 2, 3)], incompatible_shape_error=False)
case('Equal', [S, S[:3]], incompatible_shape_error=False)
case('Equal', [f32(1, 2), f32(1, 2, 3)], fails='Incompatible shapes: [2] vs. [3]')
for o in 'SigmoidGrad TanhGrad SqrtGrad RsqrtGrad InvGrad ReciprocalGrad'.split():
    for t in FLOATS + COMPLEX:
        case(o, [values(t, 9, 0.1, 1), values(t, 9, seed=4)])
    case(o, [f32(1, 2), f32(1, 2, 3)], fails='must have the same size and shape')
for o in 'ReluGrad Relu6Grad'.split():
    for t in REALS:
        case(o, [values(t, 9), values(t, 9, -3, 9, seed=4)])
for o in 'EluGrad SeluGrad SoftplusGrad SoftsignGrad LeakyReluGrad'.split():
    for t in FLOATS:
        case(o, [values(t, 9), values(t, 9, seed=4)], **({'alpha': 0.3} if o == 'LeakyReluGrad' else {}))

# ---- broadcasting, selection, casts ----
for t in (np.float32, np.int8, np.float64, C128, np.bool_, BF16):
    x = values(np.int32, 4, 0, 9).astype(t)
    case('BroadcastTo', [x, i32(3, 4)])
    case('BroadcastTo', [x.reshape(4, 1), i64(2, 4, 3)])
case('BroadcastTo', [S, i32(2, 4)])
case('BroadcastTo', [np.float32(2), i32(2, 3)])
case('BroadcastTo', [f32(1, 2), i32(0, 2)])
case('BroadcastTo', [f32(1, 2), i32(3)])
case('BroadcastTo', [f32(1, 2).reshape(1, 2), i32(2)])
for t in (i32, i64):
    for a, b in (((2, 3), (3,)), ((1, 3), (2, 1)), ((2, 1), (2, 1)), ((), (2, 3)), ((1,), (1,)), ((5, 1, 4), (1, 3, 1)), ((1, 1), (1,)),
                 ((2, 3), (3, 2)), ((0, 3), (1,)), ((2, 3), (2, 3))):
        a, b = np.array(a, t(0).dtype), np.array(b, t(0).dtype)
        case('BroadcastGradientArgs', [a, b])
        case('BroadcastArgs', [a, b])
B = np.array([True, False, True])
for t in (np.float32, np.int8, np.float16, np.int64, C128, np.bool_):
    x, y = values(np.int32, 6, 0, 9).astype(t).reshape(3, 2), values(np.int32, 6, 0, 9, seed=1).astype(t).reshape(3, 2)
    case('Select', [B, x, y])
    case('Select', [np.array(False), x, y])
    case('Select', [x.real > 4, x, y])
    case('SelectV2', [B.reshape(3, 1), x, y])
    case('SelectV2', [B[:2], x, y[0, 0]])
    case('SelectV2', [np.array(True), x, y])
    case('SelectV2', [np.array(True), x, y[:1]])
    case('SelectV2', [B.reshape(3, 1), x[0, 0], y[0]])
case('Select', [B, S[:3], S[1:]])
case('SelectV2', [B, S[0], S[1:]])
case('Select', [B, f32(1, 2), f32(1, 2)], fails='of type Select must have the same size and shape.  Input 0: [3] != input 1: [2]')
case('Select', [B, f32(1, 2), f32(1)], fails='must have the same size')
case('Select', [B.reshape(3, 1), f32(1, 2, 3), f32(1, 2, 3)], fails='must have the same size and shape.  Input 0: [3,1] != input 1: [3]')
case('SelectV2', [B, f32(1, 2), f32(1, 2)], fails='must be broadcastable')
for t in [BF16, np.float32, np.float64] + INTS + COMPLEX + [np.bool_]:
    x = (values(np.int32, 12, -1, 1) % 2).astype(t).reshape(3, 4)
    case('Where', [x])
case('Where', [f32(0, -0.0, nan, 1)])
case('Where', [np.array(True)])
case('Where', [np.zeros((0, 3), np.bool_)])
ALL = NUMBERS + [np.bool_]
for a in ALL:
    for b in ALL:
        if a is b:
            continue
        x = values(a, 6, 0, 100) if a is not np.bool_ else np.array([True, False])
        case('Cast', [x], DstT=tf.as_dtype(b))
        if a in (np.int32, np.float32, BF16) and b not in UNSIGNED:
            case('Cast', [values(a, 6, -100, 100)], DstT=tf.as_dtype(b))
for b in SIGNED[2:]:
    case('Cast', [f32(nan, inf, -inf, 3e20, -3e20, 1.9, -1.9)], DstT=tf.as_dtype(b))
    case('Cast', [np.array([nan, inf, -inf, 3e20, -3e20, 1.9, -1.9])], DstT=tf.as_dtype(b))
for a, b in ((np.float32, BF16), (np.float32, np.float16), (np.float64, np.float32), (np.float64, np.float16), (np.float64, BF16)):
    case('Cast', [values(a, 9)], DstT=tf.as_dtype(b), Truncate=True)
case('Cast', [S], DstT=tf.float32, fails='Cast string to float is not supported')
case('Cast', [S], DstT=tf.string)
for a in (np.float32, np.int32, np.float64, np.int8, C64, np.float16):
    for b in (np.float32, np.uint8, np.int64, np.uint16, C128):
        case('Bitcast', [values(a, 16, 0, 3).reshape(2, 8)], type=tf.as_dtype(b), fails='Cannot bitcast from')
        case('Bitcast', [values(a, 8, 0, 3).reshape(2, 2, 2)], type=tf.as_dtype(b), fails='Cannot bitcast from')
        case('Bitcast', [values(a, 1, 0, 3).reshape(())], type=tf.as_dtype(b), fails='Cannot bitcast from')

# ---- reductions ----
AXES = [[], [0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2], [-1], [-3, 1]]
for o, ts in (('Sum', NUMBERS), ('Mean', NUMBERS), ('Prod', NUMBERS), ('Max', REALS), ('Min', REALS), ('EuclideanNorm', NUMBERS)):
    for t in ts:
        x = shaped(t, 2, 3, 4, low=1 if is_i(t) else -3, high=3)
        for n, a in enumerate(AXES if t in (np.float32, np.int32) else AXES[2:3] + AXES[5:6] + AXES[7:8]):
            case(o, [x, np.array(a, np.int32 if n % 2 else np.int64)], keep_dims=bool(n % 3 == 1))
    case(o, [np.zeros((0, 3), np.float32), i32(0)])
    case(o, [np.zeros((2, 0), np.int32), i32(0)])
    if o != 'Mean':
        case(o, [np.zeros((2, 0), np.int32), i32(1)])
        case(o, [np.zeros((2, 0), np.uint8), i32(1)])
    case(o, [np.zeros((2, 0), np.float32), i32(1)])
    case(o, [np.float32(3), np.zeros(0, np.int32)])
    case(o, [f32(1, 2), i32(1)], fails='Invalid reduction dimension')
    case(o, [f32(1, 2), i32(-2)], fails='Invalid reduction dimension')
for o in ('Max', 'Min'):
    case(o, [f32(1, nan, 2), i32(0)])
    case(o, [f32(nan, 1, 2), i32(0)])
    case(o, [f32(inf, -inf, 2), i32(0)])
    case(o, [f32(1, nan, 2, 3, nan, 5).reshape(2, 3), i32(0)])
for o in ('All', 'Any'):
    for a in ([0], [1], [0, 1], [-1], []):
        case(o, [np.array([[True, False, True], [True, True, True]]), np.array(a, np.int32)], keep_dims=len(a) == 2)
    case(o, [np.zeros((2, 0), np.bool_), i32(1)])
for t in FLOATS:
    case('L2Loss', [values(t, 9)])
case('L2Loss', [np.zeros(0, np.float32)])
case('Sum', [shaped(np.float32, 2, 1, 3, 1, 2, 3), i32(0, 3, 5)])
case('Sum', [shaped(np.float32, 2, 2, 2, 2, 2), i32(0, 2, 4)])
case('Max', [shaped(np.int32, 2, 2, 2, 2, 2), i32(1, 3)])
for o in ('ArgMax', 'ArgMin'):
    for t in REALS + [np.bool_]:
        x = shaped(np.int32, 3, 4, low=0, high=9).astype(t)
        for a in (0, 1, -1):
            case(o, [x, np.int32(a)], output_type=tf.int64 if a else tf.int32)
    case(o, [f32(nan, 1, nan, 3), np.int32(0)], output_type=tf.int64)
    case(o, [f32(1, nan, 3), np.int32(0)], output_type=tf.int64)
    case(o, [f32(-inf, -inf), np.int64(0)], output_type=tf.int64)
    case(o, [f32(1, 2), np.int32(1)], output_type=tf.int64)
    case(o, [np.zeros((2, 0), np.float32), np.int32(1)], output_type=tf.int64)
    case(o, [np.zeros((2, 0), np.float32), np.int32(0)], output_type=tf.int64)
    case(o, [f32(1, 2), i32(0, 1)], output_type=tf.int64, fails='dim must be a scalar')
case('ArgMax', [f32(1, 5, 2), np.int32(0)], output_type=tf.int16)
for t in REALS:
    x = shaped(t, 3, 7, low=0, high=9)
    for k in (0, 1, 3, 7):
        case('TopKV2', [x, np.int32(k)])
case('TopKV2', [f32(3, 1, 3, 2, 3), np.int32(3)])
case('TopKV2', [f32(1, 2), np.int32(3)], fails='input must have at least k columns. Had 2, needed 3')
case('TopKV2', [f32(1, 2), np.int32(-1)], fails='Need k >= 0, got -1')
case('TopKV2', [np.float32(1), np.int32(1)], fails='input must be >= 1-D')
case('TopKV2', [f32(1, 2), i32(1, 2)], fails='k must be')
P = f32(0.1, 0.3, 0.6, 0.5, 0.2, 0.3, 0.3, 0.3, 0.4, 1, inf, 0).reshape(4, 3)
case('InTopK', [P, i32(2, 2, 0, 0)], k=1)
case('InTopK', [P, i64(1, 2, 0, 5)], k=2)
case('InTopKV2', [P, i32(1, 2, 0, 1), np.int32(2)])
case('InTopKV2', [P, i32(1, 2), np.int32(2)])
for o in ('Cumsum', 'Cumprod'):
    for t in NUMBERS:
        x = shaped(t, 3, 4, low=0 if is_i(t) else -2, high=3)
        case(o, [x, np.int32(1)])
        case(o, [x, np.int32(0)], exclusive=True)
        case(o, [x, np.int64(-1)], reverse=True)
        case(o, [x, np.int64(0)], reverse=True, exclusive=True)
    case(o, [f32(1), np.int32(1)])
    case(o, [f32(1), i32(0)], fails='axis must be a scalar')
    case(o, [np.zeros((0, 2), np.float32), np.int32(1)])
for t in FLOATS:
    x = shaped(t, 3, 4)
    for e in (True, False):
        for rv in (True, False):
            case('CumulativeLogsumexp', [x, np.int32(1)], exclusive=e, reverse=rv)
for t in (np.int32, np.int64, np.float32, np.float64):
    case('Bincount', [i32(1, 2, 2, 5, 9), np.int32(6), np.array([1, 2, 3, 4, 5], t)])
    case('Bincount', [i32(1, 2, 2, 5, 9), np.int32(6), np.zeros(0, t)])
    case('DenseBincount', [i32(1, 2, 2, 5, 9, 0).reshape(2, 3), np.int32(4), np.zeros((0, 0), t)], fails='')
    case('DenseBincount', [i64(1, 2, 2, 3), np.int64(4), np.array([1, 2, 3, 4], t)], binary_output=True)
case('Bincount', [i32(-1, 2), np.int32(6), f32()])
case('Bincount', [i32(1, 2), np.int32(-6), f32()])
case('Bincount', [i32(1, 2), np.int32(6), f32(1, 2, 3)], fails='`weights` must be the same shape as `arr`')
for t in NUMBERS:
    case('AddN', [[values(t, 5), values(t, 5, seed=1), values(t, 5, seed=2)]])
case('AddN', [[f32(1, 2), f32(1)]], fails='must have the same size and shape')
case('AddN', [[np.float32(i) for i in range(11)]])
case('AddN', [[f32(1, 2)]])

# ---- segments ----
for o, ts in (('SegmentSum', NUMBERS), ('SegmentMean', NUMBERS), ('SegmentProd', NUMBERS), ('SegmentMin', REALS), ('SegmentMax', REALS)):
    for t in ts:
        x = shaped(t, 5, 2, low=0 if is_i(t) else -2, high=3)
        case(o, [x, i32(0, 0, 1, 3, 3)])
        case(o, [x, i64(1, 1, 1, 1, 4)])
    case(o, [f32(1, 2, 3), i32(0, 2, 1)], fails='segment ids are not increasing')
    case(o, [f32(1, 2, 3), i32(-1, 0, 1)], fails='segment ids')
    case(o, [f32(1, 2, 3), i32(0, 1)], fails='segment_ids should be the same size as dimension 0 of input')
    case(o, [np.zeros((0, 2), np.float32), np.zeros(0, np.int32)])
for o, ts in (('UnsortedSegmentSum', NUMBERS), ('UnsortedSegmentProd', NUMBERS), ('UnsortedSegmentMin', REALS), ('UnsortedSegmentMax', REALS)):
    for t in ts:
        x = shaped(t, 5, 2, low=0 if is_i(t) else -2, high=3)
        case(o, [x, i32(3, 0, -1, 3, 1), np.int32(5)])
        case(o, [x, i64(3, 0, -1, 3, 1, 0, 0, 2, 2, 1).reshape(5, 2), np.int64(4)])
    case(o, [f32(1, 2, 3), i32(0, 2, 5), np.int32(3)])
    rows = np.arange(1, 13, dtype=np.float32).reshape(6, 2)
    case(o, [rows, i32(0, 1, 0, 2, 1, 3), np.int32(4)])  # as Unique numbers them
    case(o, [rows, i64(0, 1, 1, 2, 0, 1), np.int64(4)])  # a segment is left over
    case(o, [f32(1, 2, 3), i32(0, 2), np.int32(3)], fails='does not start with segment_ids.shape')
    case(o, [f32(1, 2, 3), i32(0, 2, 1), np.int32(-3)], fails='num_segments')
for o, ts in (('SparseSegmentSum', REALS), ('SparseSegmentMean', FLOATS), ('SparseSegmentSqrtN', FLOATS)):
    for t in ts:
        x = shaped(t, 4, 3, low=0 if is_i(t) else -2, high=3)
        case(o, [x, i32(0, 3, 1, 1, 2), i32(0, 0, 1, 3, 3)])
        case(o + 'WithNumSegments', [x, i64(0, 3, 1, 1, 2), i64(0, 0, 1, 3, 3), np.int32(6)])
    case(o, [f32(1, 2, 3), i32(0, 7), i32(0, 1)], fails='is out of range [0, 3)')
    case(o, [f32(1, 2, 3), i32(0, 1), i32(1, 0)], fails='segment ids are not increasing')
    case(o, [f32(1, 2, 3), i32(0, 1), i32(1)], fails='segment_ids and indices should have same size')
    case(o + 'WithNumSegments', [f32(1, 2, 3), i32(0, 1), i32(1, 3), np.int32(3)], fails='segment ids must be < num_segments')
for o in ('SparseSegmentSumGrad', 'SparseSegmentMeanGrad', 'SparseSegmentSqrtNGrad'):
    for t in FLOATS:
        x = shaped(t, 3, 2)
        case(o, [x, i32(0, 3, 1, 1, 2), i32(0, 0, 1, 2, 2), np.int32(5)])
    case(o, [f32(1, 2, 3), i32(0, 7), i32(0, 1), np.int32(3)], fails='Index 7 out of range [0, 3).')

# ---- sequences ----
for t in (np.int32, np.int64, np.float32, np.float64):
    v = lambda x: np.array(x, t)
    case('Range', [v(0), v(10), v(3)])
    case('Range', [v(10), v(0), v(-4)])
    case('Range', [v(3), v(3), v(1)])
    case('Range', [v(3), v(1), v(1)], fails='Requires start <= limit when delta > 0')
    case('Range', [v(1), v(3), v(-1)], fails='Requires start >= limit when delta < 0')
    case('Range', [v(1), v(3), v(0)], fails='Requires delta != 0')
case('Range', [np.float32(0), np.float32(1), np.float32(0.1)])
case('Range', [np.float32(0.5), np.float32(9.3), np.float32(0.7)])
for t in (np.float32, np.float64):
    for a, b, n in ((0, 1, 7), (5, -3, 4), (2, 2, 1), (1, 3, 2)):
        case('LinSpace', [np.array(a, t), np.array(b, t), np.int32(n)])
    case('LinSpace', [np.array(0, t), np.array(1, t), np.int32(0)])
