/* The ops' gradients. */
#include <string.h>

#include "graph/gradient.h"

/* For binary element-wise ops: from gx and gy, of the broadcast shape, to dx and dy. */
#define UNBROADCAST                                                    \
  "; sx = Shape(x); sy = Shape(y); r = BroadcastGradientArgs(sx, sy);" \
  "dx = Reshape(Sum(gx, r.0), sx); dy = Reshape(Sum(gy, r.1), sy)"
#define BINARY(op, text) \
  { op, "x y dz", text UNBROADCAST, NULL }
#define UNARY(op, text) \
  { op, "x dy", text, NULL }

/* For reductions: ys is the shape of x with ones where it was reduced, tile what each of them stood for. */
#define REDUCED                                                                             \
  "xs = Shape(x); rank = Rank(x); axes = FloorMod(AddV2(Cast(i){DstT=int32}, rank), rank);" \
  "ys = DynamicStitch([Range(0, rank, 1), axes], [xs, Fill(Shape(i), 1)]); tile = FloorDiv(xs, Maximum(ys, 1));"
#define EXTREME(op)                                                     \
  {                                                                     \
    op, "x i dy",                                                       \
        "y = " op                                                       \
        "(x, i){keep_dims=true}; mask = Cast(Equal(x, y)){DstT=$T};"    \
        "dx = Mul(mask, Reshape(RealDiv(dy, Sum(mask, i)), Shape(y)))", \
        NULL                                                            \
  }

#define NONE(op) \
  { op, NULL, NULL, NULL }

static bool is_complex(const td_node *n) {
  const Pb__AttrValue *t = td_attr_find(&n->def, "T");
  return t && (t->type == TD_COMPLEX64 || t->type == TD_COMPLEX128);
}

static td_status write_mul(const td_node *n, td_strbuf *text) {
  td_strbuf_puts(text, is_complex(n) ? "gx = Mul(dz, Conj(y)); gy = Mul(Conj(x), dz)" UNBROADCAST
                                     : "gx = Mul(dz, y); gy = Mul(x, dz)" UNBROADCAST);
  return TD_STATUS_OK;
}

/* y * x^(y-1) and z * log(x), the latter 0 where there is no logarithm. */
static td_status write_pow(const td_node *n, td_strbuf *text) {
  td_strbuf_printf(text,
                   "gx = Mul(Pow(x, Sub(y, 1.)), Mul(dz, y)); z = ZerosLike(x);"
                   "gy = Mul(Select(%s(x, z), Log(x), z), Mul(dz, Pow(x, y)))" UNBROADCAST,
                   is_complex(n) ? "NotEqual" : "Greater");
  return TD_STATUS_OK;
}

/* d(op(a) op(b)) for the four cases of transposed factors; `broadcast`: batch dimensions may differ. */
static td_status write_product(const td_node *n, const char *flag_x, const char *flag_y, bool broadcast,
                               td_strbuf *text) {
  static const struct {
    const char *x, *y;
  } cases[4] = {{"dz, y){0=false, 1=true}", "x, dz){0=true, 1=false}"},
                {"dz, y){0=false, 1=false}", "dz, x){0=true, 1=false}"},
                {"y, dz){0=false, 1=true}", "x, dz){0=false, 1=false}"},
                {"y, dz){0=true, 1=true}", "dz, x){0=true, 1=true}"}};
  bool tx, ty;
  if (is_complex(n)) return td_unimplemented("MatMul gradient for complex is not supported yet.");
  TD_TRY(td_attr_bool(&n->def, flag_x, &tx));
  TD_TRY(td_attr_bool(&n->def, flag_y, &ty));
  for (int second = 0; second < 2; second++) {
    const char *p = second ? cases[tx * 2 + ty].y : cases[tx * 2 + ty].x;
    td_strbuf_printf(text, "%s%c%c = %.*s(", second ? "; " : "", broadcast ? 'g' : 'd', second ? 'y' : 'x',
                     TD_STR_ARG(n->def.op));
    for (; *p; p++) {
      if (*p == '0' || *p == '1')
        td_strbuf_puts(text, *p == '0' ? flag_x : flag_y);
      else
        td_strbuf_putc(text, *p);
    }
  }
  if (broadcast)
    td_strbuf_puts(text,
                   "; sx = Shape(x); sy = Shape(y);"
                   "r = BroadcastGradientArgs(StridedSlice(sx, #0, #-2, #1), StridedSlice(sy, #0, #-2, #1));"
                   "dx = Reshape(Sum(gx, r.0), sx); dy = Reshape(Sum(gy, r.1), sy)");
  return TD_STATUS_OK;
}

static td_status write_matmul(const td_node *n, td_strbuf *text) {
  return write_product(n, "transpose_a", "transpose_b", false, text);
}

static td_status write_batch_matmul(const td_node *n, td_strbuf *text) {
  return write_product(n, "adj_x", "adj_y", false, text);
}

static td_status write_batch_matmul_v2(const td_node *n, td_strbuf *text) {
  return write_product(n, "adj_x", "adj_y", true, text);
}

static td_status write_concat(const td_node *n, td_strbuf *text) {
  int64_t count;
  TD_TRY(td_attr_int(&n->def, "N", &count));
  td_strbuf_puts(text, "s = ShapeN(x); o = ConcatOffset(Cast(dim){DstT=int32}, s); dx = [");
  for (int64_t i = 0; i < count; i++)
    td_strbuf_printf(text, "%sSlice(dy, o.%lld, s.%lld)", i ? ", " : "", (long long)i, (long long)i);
  td_strbuf_putc(text, ']');
  return TD_STATUS_OK;
}

static const td_gradient_rule rules[] = {
    /* arrays */
    {"BroadcastTo", "x shape dy",
     "sx = Shape(x); r = BroadcastGradientArgs(sx, Cast(shape){DstT=int32}); dx = Reshape(Sum(dy, r.0), sx)", NULL},
    {"Concat", "dim x dy", NULL, write_concat},
    {"ConcatV2", "x dim dy", NULL, write_concat},
    {"ConjugateTranspose", "x p dy", "dx = ConjugateTranspose(dy, InvertPermutation(p))", NULL},
    {"ExpandDims", "x dim dy", "dx = Reshape(dy, Shape(x))", NULL},
    {"Fill", "dims x dy", "dx = Sum(dy, Range(0, Rank(dy), 1))", NULL},
    {"GatherNd", "x i dy", "dx = ScatterNd(i, dy, Shape(x){out_type=$Tindices})", NULL},
    UNARY("Identity", "dx = Identity(dy)"),
    {"Pack", "x dy", "dx = Unpack(dy){num=$N, *}", NULL},
    {"Reshape", "x shape dy", "dx = Reshape(dy, Shape(x))", NULL},
    {"Reverse", "x d dy", "dx = Reverse(dy, d)", NULL},
    {"ReverseV2", "x d dy", "dx = ReverseV2(dy, d)", NULL},
    {"Slice", "x begin size dy",
     "before = Cast(begin){DstT=int32}; after = Sub(Sub(Shape(x), before), Shape(dy));"
     "dx = Pad(dy, Concat(1, [ExpandDims(before, 1), ExpandDims(after, 1)]))",
     NULL},
    {"Split", "dim x dy", "dx = Concat(dim, dy)", NULL},
    {"SplitV", "x sizes dim dy", "dx = Concat(dim, dy)", NULL},
    UNARY("Squeeze", "dx = Reshape(dy, Shape(x))"),
    {"StridedSlice", "x begin end strides dy",
     "dx = StridedSliceGrad(Shape(x){out_type=$Index}, begin, end, strides, dy){*}", NULL},
    {"StridedSliceGrad", "shape begin end strides y dz", "dy = StridedSlice(dz, begin, end, strides){*}", NULL},
    {"Transpose", "x p dy", "dx = Transpose(dy, InvertPermutation(p))", NULL},
    {"Unpack", "x dy", "dx = Pack(dy){*}", NULL},
    {"_ArrayToList", "x dy", "dx = _ListToArray(dy){*}", NULL},
    {"_ListToArray", "x dy", "dx = _ArrayToList(dy){out_types=$Tin, *}", NULL},

    /* element-wise, one operand */
    UNARY("Abs", "dx = Mul(dy, Sign(x))"),
    UNARY("Acos", "dx = Mul(dy, Neg(Reciprocal(Sqrt(Sub(1., Square(x))))))"),
    UNARY("Acosh", "dx = RealDiv(dy, Sinh(Acosh(x)))"), /* TensorFlow's rule multiplies, here and for Asinh: wrongly */
    UNARY("Angle",
          "dx = Mul(Neg(Reciprocal(Complex(Imag(x){Tout=$Tout}, Real(x){Tout=$Tout}){Tout=$T})),"
          "Complex(dy, ZerosLike(dy)){Tout=$T})"),
    UNARY("Asin", "dx = Mul(dy, Reciprocal(Sqrt(Sub(1., Square(x)))))"),
    UNARY("Asinh", "dx = RealDiv(dy, Cosh(Asinh(x)))"),
    UNARY("Atan", "dx = Mul(dy, Reciprocal(Add(1., Square(x))))"),
    UNARY("Atanh", "dx = Mul(dy, Reciprocal(Sub(1., Square(x))))"),
    UNARY("Cast", "dx = Cast(dy){DstT=$SrcT}"),
    UNARY("Conj", "dx = Conj(dy)"),
    UNARY("Cos", "dx = Mul(dy, Neg(Sin(x)))"),
    UNARY("Cosh", "dx = Mul(dy, Sinh(x))"),
    UNARY("Exp", "dx = Mul(dy, Exp(x))"),
    UNARY("Expm1", "dx = Mul(dy, Exp(x))"),
    UNARY("Imag", "dx = Complex(ZerosLike(dy), dy){Tout=$T}"),
    UNARY("Inv", "dx = Mul(dy, Neg(Square(Reciprocal(x))))"),
    UNARY("Log", "dx = Mul(dy, Reciprocal(x))"),
    UNARY("Log1p", "dx = Div(dy, Add(1., x))"),
    UNARY("Neg", "dx = Neg(dy)"),
    UNARY("Real", "dx = Complex(dy, ZerosLike(dy)){Tout=$T}"),
    UNARY("Reciprocal", "dx = Mul(dy, Neg(Square(Reciprocal(x))))"),
    UNARY("Rsqrt", "dx = Mul(dy, Mul(Mul(-0.5, Reciprocal(x)), Rsqrt(x)))"),
    UNARY("Sigmoid", "y = Sigmoid(x); dx = Mul(dy, Mul(y, Sub(1., y)))"),
    UNARY("Sign", "dx = ZerosLike(x)"),
    UNARY("Sin", "dx = Mul(dy, Cos(x))"),
    UNARY("Sinh", "dx = Mul(dy, Cosh(x))"),
    UNARY("Sqrt", "dx = Mul(dy, Mul(0.5, Reciprocal(Sqrt(x))))"),
    UNARY("Square", "dx = Mul(dy, Mul(x, 2.))"),
    UNARY("Tan", "dx = Mul(dy, Square(Reciprocal(Cos(x))))"),
    UNARY("Tanh", "dx = Mul(dy, Sub(1., Square(Tanh(x))))"),

    /* element-wise, several operands */
    BINARY("Add", "gx = dz; gy = dz"),
    BINARY("AddV2", "gx = dz; gy = dz"),
    BINARY("Complex", "gx = Real(dz){Tout=$T}; gy = Imag(dz){Tout=$T}"),
    BINARY("Div", "gx = Div(dz, y); gy = Mul(dz, Div(Neg(x), Square(y)))"),
    BINARY("DivNoNan", "gx = DivNoNan(dz, y); gy = Mul(dz, DivNoNan(Neg(x), Square(y)))"),
    BINARY("Maximum", "gx = Mul(dz, Cast(GreaterEqual(x, y)){DstT=$T}); gy = Sub(dz, gx)"),
    BINARY("Minimum", "gx = Mul(dz, Cast(LessEqual(x, y)){DstT=$T}); gy = Sub(dz, gx)"),
    {"Mul", "x y dz", NULL, write_mul},
    {"MulNoNan", "x y dz", NULL, write_mul},
    {"Pow", "x y dz", NULL, write_pow},
    BINARY("RealDiv", "gx = RealDiv(dz, y); gy = Mul(dz, RealDiv(Neg(x), Square(y)))"),
    {"Select", "c x y dz", "z = ZerosLike(x); dx = Select(c, dz, z); dy = Select(c, z, dz)", NULL},
    BINARY("SquaredDifference", "gx = Mul(Mul(2., Sub(x, y)), dz); gy = Neg(gx)"),
    BINARY("Sub", "gx = dz; gy = Neg(dz)"),
    BINARY("Xdivy",
           "nonzero = Cast(NotEqual(x, ZerosLike(x))){DstT=$T};"
           "gx = Mul(Xdivy(nonzero, y), dz); gy = Mul(Xdivy(x, Neg(Square(y))), dz)"),
    BINARY("Xlog1py",
           "nonzero = Cast(NotEqual(x, ZerosLike(x))){DstT=$T};"
           "gx = Mul(Xlog1py(nonzero, y), dz); gy = Mul(Xdivy(x, Add(y, 1.)), dz)"),
    BINARY("Xlogy",
           "nonzero = Cast(NotEqual(x, ZerosLike(x))){DstT=$T};"
           "gx = Mul(Xlogy(nonzero, y), dz); gy = Mul(Xdivy(x, y), dz)"),

    /* reductions and products */
    {"BatchMatMul", "x y dz", NULL, write_batch_matmul},
    {"BatchMatMulV2", "x y dz", NULL, write_batch_matmul_v2},
    {"MatMul", "x y dz", NULL, write_matmul},
    EXTREME("Max"),
    {"Mean", "x i dy", REDUCED "dx = Tile(Reshape(RealDiv(dy, Cast(Prod(tile, 0)){DstT=$T}), ys), tile)", NULL},
    EXTREME("Min"),
    {"Sum", "x i dy", REDUCED "dx = Tile(Reshape(dy, ys), tile)", NULL},

    /* neural networks */
    UNARY("AvgPool", "dx = AvgPoolGrad(Shape(x), dy){*}"),
    {"BiasAdd", "x b dy", "dx = dy; db = BiasAddGrad(dy){*}", NULL},
    {"Conv2D", "x f dy", "dx = Conv2DBackpropInput(Shape(x), f, dy){*}; df = Conv2DBackpropFilter(x, Shape(f), dy){*}",
     NULL},
    UNARY("LogSoftmax", "dx = Sub(dy, Mul(Sum(dy, #-1){keep_dims=true}, Softmax(x)))"),
    UNARY("MaxPool", "dx = MaxPoolGrad(x, MaxPool(x){*}, dy){*}"),
    {"MaxPoolGrad", "x y g dz", "dg = MaxPoolGradGrad(x, y, dz){*}", NULL},
    UNARY("Relu", "dx = ReluGrad(dy, x)"),
    UNARY("Relu6", "dx = Relu6Grad(dy, x)"),
    UNARY("Softmax", "y = Softmax(x); dx = Mul(Sub(dy, Sum(Mul(dy, y), #-1){keep_dims=true}), y)"),

    /* variables: the gradient goes to the handle's input */
    {"ReadVariableOp", "x dy", "dx = dy", NULL},

    NONE("Const"),
    NONE("EditDistance"),
    NONE("Equal"),
    NONE("Floor"),
    NONE("FloorDiv"),
    NONE("Greater"),
    NONE("GreaterEqual"),
    NONE("Less"),
    NONE("LessEqual"),
    NONE("LinSpace"),
    NONE("LogicalAnd"),
    NONE("LogicalNot"),
    NONE("LogicalOr"),
    NONE("NotEqual"),
    NONE("OnesLike"),
    NONE("Range"),
    NONE("Rank"),
    NONE("Shape"),
    NONE("Size"),
    NONE("StopGradient"),
    NONE("TruncateDiv"),
    NONE("VarIsInitializedOp"),
    NONE("VariableShape"),
    NONE("ZerosLike"),
};

const td_gradient_rule *td_gradient_rule_find(td_str op) {
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (td_str_is(op, rules[i].op)) return &rules[i];
  return NULL;
}

bool td_gradient_rule_next(size_t *i, const td_gradient_rule **out) {
  if (*i >= sizeof rules / sizeof *rules) return false;
  *out = &rules[(*i)++];
  return true;
}
