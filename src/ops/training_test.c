#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "framework/device.h"
#include "framework/op.h"
#include "framework/variable.h"
#include "ops/families.h"
#include "ops/testing.h"
#include "ops/training_rules.h"

/* Two runs of each op on the variables of make_var() and the gradient of make_grad(); results of TensorFlow 2.15.1. */
static const struct {
  const char *op, *attrs;
  td_dtype dtype;
  const char *scalars; /* other than default_scalars */
  const char *vars[4];
} cases[] = {
    {"ApplyGradientDescent",
     "",
     TD_FLOAT,
     "",
     {"-0.440000027 -0.319999993 -0.200000003 0.400000036 0.519999981 0.639999986"}},
    {"ApplyGradientDescent", "", TD_DOUBLE, "", {"-0.44 -0.32 -0.2 0.4 0.52 0.64"}},
    {"ApplyGradientDescent",
     "",
     TD_HALF,
     "",
     {"-0.439941406 -0.320068359 -0.199951172 0.400146484 0.520019531 0.640136719"}},
    {"ApplyGradientDescent",
     "",
     TD_BFLOAT16,
     "",
     {"-0.443359375 -0.3203125 -0.200195312 0.40234375 0.5234375 0.640625"}},
    {"ApplyGradientDescent",
     "",
     TD_COMPLEX64,
     "",
     {"-0.440000027 -0.319999993 -0.200000003 0.400000036 0.519999981 0.639999986"}},
    {"ApplyMomentum",
     "",
     TD_FLOAT,
     "",
     {"-0.502400041 -0.331280023 -0.160160005 0.346960008 0.518080056 0.689199984",
      "-0.656000018 0.166800007 0.989600003 -0.347599983 0.475199997 1.29799998"}},
    {"ApplyMomentum",
     "",
     TD_DOUBLE,
     "",
     {"-0.5024 -0.33128 -0.16016 0.34696 0.51808 0.6892", "-0.656 0.1668 0.9896 -0.3476 0.4752 1.298"}},
    {"ApplyMomentum",
     "",
     TD_HALF,
     "",
     {"-0.502929688 -0.331298828 -0.16003418 0.346923828 0.518554688 0.689453125",
      "-0.655761719 0.166748047 0.989257812 -0.34765625 0.475097656 1.296875"}},
    {"ApplyMomentum",
     "",
     TD_BFLOAT16,
     "",
     {"-0.50390625 -0.333984375 -0.16015625 0.34765625 0.51953125 0.6875",
      "-0.65625 0.166992188 0.9921875 -0.34765625 0.4765625 1.296875"}},
    {"ApplyMomentum",
     "use_nesterov: true",
     TD_FLOAT,
     "",
     {"-0.441919982 -0.335023999 -0.228128001 0.387567997 0.49446404 0.601360023",
      "-0.656000018 0.166800007 0.989600003 -0.347599983 0.475199997 1.29799998"}},
    {"ApplyKerasMomentum",
     "",
     TD_FLOAT,
     "",
     {"-0.344000012 -0.141200021 0.0616000034 0.600400031 0.803200006 1.00600004",
      "0.136000007 0.0678000003 -0.000399999321 0.147400007 0.0791999996 0.0110000148"}},
    {"ApplyKerasMomentum",
     "use_nesterov: true",
     TD_FLOAT,
     "",
     {"-0.315200001 -0.182960004 -0.0507199988 0.590320051 0.722560048 0.854800045",
      "0.136000007 0.0678000003 -0.000399999321 0.147400007 0.0791999996 0.0110000148"}},
    {"ApplyAdam",
     "",
     TD_FLOAT,
     "",
     {"-0.606483817 -0.325381458 -0.0432123989 0.277828038 0.560485363 0.844170511",
      "0.00499998033 0.106699996 0.208400026 0.0820999816 0.183800012 0.28550002",
      "0.395224005 0.411691725 0.436219007 0.452089757 0.471244007 0.49845773"}},
    {"ApplyAdam",
     "",
     TD_DOUBLE,
     "",
     {"-0.606483821 -0.325381449 -0.0432124143 0.27782801 0.560485318 0.844170477",
      "0.005 0.1067 0.2084 0.0821 0.1838 0.2855", "0.395224 0.41169175 0.436219 0.45208975 0.471244 0.49845775"}},
    {"ApplyAdam",
     "",
     TD_HALF,
     "",
     {"-0.606445312 -0.325439453 -0.0432739258 0.277832031 0.560546875 0.84375",
      "0.00491333008 0.106689453 0.208496094 0.08203125 0.183837891 0.285644531",
      "0.395019531 0.411621094 0.436035156 0.452148438 0.471435547 0.498535156"}},
    {"ApplyAdam",
     "",
     TD_BFLOAT16,
     "",
     {"-0.60546875 -0.326171875 -0.0427246094 0.27734375 0.5625 0.83984375",
      "0.00366210938 0.106445312 0.208984375 0.0810546875 0.18359375 0.287109375",
      "0.396484375 0.41015625 0.435546875 0.453125 0.46875 0.5"}},
    {"ApplyAdam",
     "",
     TD_COMPLEX64,
     "",
     {"-0.606483817 -0.325381458 -0.0432123989 0.277828038 0.560485363 0.844170511",
      "0.00499998033 0.106699996 0.208400026 0.0820999816 0.183800012 0.28550002",
      "0.395224005 0.411691725 0.436219007 0.452089757 0.471244007 0.49845773"}},
    {"ApplyAdam",
     "use_nesterov: true",
     TD_FLOAT,
     "",
     {"-0.59639287 -0.32399866 -0.0501316637 0.285560101 0.560115993 0.836072743",
      "0.00499998033 0.106699996 0.208400026 0.0820999816 0.183800012 0.28550002",
      "0.395224005 0.411691725 0.436219007 0.452089757 0.471244007 0.49845773"}},
    {"ApplyAdamWithAmsgrad",
     "",
     TD_FLOAT,
     "",
     {"-0.604310691 -0.317031175 -0.0294803716 0.2847386 0.572524071 0.860553086",
      "0.00499998033 0.106699996 0.208400026 0.0820999816 0.183800012 0.28550002",
      "0.395224005 0.411691725 0.436219007 0.452089757 0.471244007 0.49845773",
      "0.899999976 0.920000017 0.939999998 0.959999979 0.980000019 1"}},
    {"ApplyAdagrad",
     "",
     TD_FLOAT,
     "",
     {"-0.459832221 -0.328427851 -0.142564088 0.399829179 0.518136621 0.754030704",
      "0.420000017 0.124999993 0.639999986 0.284999996 0.26000002 1.04499984"}},
    {"ApplyAdagrad",
     "",
     TD_DOUBLE,
     "",
     {"-0.459832206 -0.32842785 -0.142564077 0.399829185 0.51813663 0.754030769", "0.42 0.125 0.64 0.285 0.26 1.045"}},
    {"ApplyAdagrad",
     "",
     TD_HALF,
     "",
     {"-0.459716797 -0.328369141 -0.142578125 0.399902344 0.518554688 0.75390625",
      "0.419677734 0.125 0.640136719 0.28515625 0.260009766 1.04492188"}},
    {"ApplyAdagrad",
     "",
     TD_BFLOAT16,
     "",
     {"-0.4609375 -0.328125 -0.142578125 0.400390625 0.51953125 0.75390625",
      "0.419921875 0.125 0.640625 0.28515625 0.259765625 1.0390625"}},
    {"ApplyAdagrad",
     "update_slots: false",
     TD_FLOAT,
     "",
     {"-0.347017765 -0.328867555 -0.267261237 0.425000012 0.505719066 0.609311104",
      "0.100000001 0.119999997 0.140000001 0.159999996 0.180000007 0.200000003"}},
    {"ApplyAdagradV2",
     "",
     TD_FLOAT,
     "",
     {"-0.460080862 -0.328347266 -0.14235805 0.399629533 0.51830411 0.75419718",
      "0.420000017 0.124999993 0.639999986 0.284999996 0.26000002 1.04499984"}},
    {"ApplyAdagradV2",
     "update_slots: false",
     TD_FLOAT,
     "",
     {"-0.347815275 -0.328784406 -0.266548872 0.42468828 0.505940795 0.609959722",
      "0.100000001 0.119999997 0.140000001 0.159999996 0.180000007 0.200000003"}},
    {"ApplyAdadelta",
     "",
     TD_FLOAT,
     "",
     {"-0.44515419 -0.319626778 -0.170315251 0.387281388 0.532122135 0.705265999",
      "0.111400001 0.0976749882 0.160900012 0.141474992 0.153400019 0.242275",
      "0.437889844 0.342029721 0.494183153 0.408785224 0.410684913 0.585125208"}},
    {"ApplyAdadelta",
     "",
     TD_DOUBLE,
     "",
     {"-0.445154194 -0.31962677 -0.170315254 0.387281372 0.532122103 0.705266021",
      "0.1114 0.097675 0.1609 0.141475 0.1534 0.242275",
      "0.437889859 0.342029712 0.494183141 0.408785231 0.410684949 0.585125202"}},
    {"ApplyRMSProp",
     "",
     TD_FLOAT,
     "",
     {"-0.83657968 -0.947946191 -0.98870945 -0.180459157 -0.230192214 -0.19940722",
      "0.111400008 0.0976749882 0.160900012 0.141474992 0.153400004 0.242275",
      "0.0388631597 0.296818942 0.508462191 0.176741615 0.397251368 0.561839104"}},
    {"ApplyRMSProp",
     "",
     TD_COMPLEX64,
     "",
     {"-0.83657968 -0.947946191 -0.98870945 -0.180459157 -0.230192214 -0.19940722",
      "0.111400008 0.0976749882 0.160900012 0.141474992 0.153400004 0.242275",
      "0.0388631597 0.296818942 0.508462191 0.176741615 0.397251368 0.561839104"}},
    {"ApplyCenteredRMSProp",
     "",
     TD_FLOAT,
     "",
     {"-1.71124685 -1.64836681 -1.58069038 -0.971247911 -0.901014388 -0.819925308",
      "0.00499998033 0.106699996 0.208400026 0.0820999816 0.183800012 0.28550002",
      "0.354399979 0.340674967 0.403899997 0.384474993 0.396399975 0.485275",
      "0.456610203 0.604107499 0.748731136 0.542430699 0.685543716 0.821170866"}},
    {"ApplyAdaMax",
     "",
     TD_FLOAT,
     "",
     {"-0.672187984 -0.578784704 -0.403824002 0.0671393722 0.193655178 0.471105039",
      "0.00499998033 0.106699996 0.208400026 0.0820999816 0.183800012 0.28550002",
      "0.400000006 0.411642015 0.5 0.450846016 0.470447987 0.649999976"}},
    {"ApplyAdagradDA",
     "",
     TD_FLOAT,
     "",
     {"0.0643630177 -0.0106395874 -0.101482682 0.0246480219 -0.0570041165 -0.11580614",
      "-0.700000048 0.219999999 1.13999999 -0.340000004 0.579999983 1.5",
      "0.720000029 0.424999982 0.939999998 0.585000038 0.560000002 1.34499991"}},
    {"ApplyAdagradDA",
     "",
     TD_FLOAT,
     "l1=0",
     {"0.0819165632 -0.0334387049 -0.11685884 0.0441069901 -0.0768892765 -0.128673494",
      "-0.700000048 0.219999999 1.13999999 -0.340000004 0.579999983 1.5",
      "0.720000029 0.424999982 0.939999998 0.585000038 0.560000002 1.34499991"}},
    {"ApplyProximalGradientDescent",
     "",
     TD_FLOAT,
     "",
     {"-0.416302979 -0.297614366 -0.178925753 0.377136946 0.495825529 0.614514112"}},
    {"ApplyProximalGradientDescent",
     "",
     TD_FLOAT,
     "l1=0",
     {"-0.436183631 -0.317494988 -0.198806375 0.397017598 0.515706122 0.634394765"}},
    {"SparseApplyProximalGradientDescent",
     "",
     TD_FLOAT,
     "",
     {"-0.475944906 -0.357256263 -0.23856765 0.453423351 0.392242372 0.331061244"}},
    {"SparseApplyProximalGradientDescent",
     "",
     TD_FLOAT,
     "l1=0",
     {"-0.495825529 -0.377136886 -0.258448303 0.493026525 0.431845516 0.370664388"}},
    {"ApplyProximalAdagrad",
     "",
     TD_FLOAT,
     "",
     {"-0.438957155 -0.296617538 -0.12775825 0.377005279 0.493414193 0.739304602",
      "0.420000017 0.124999993 0.639999986 0.284999996 0.26000002 1.04499984"}},
    {"ApplyProximalAdagrad",
     "",
     TD_FLOAT,
     "l1=0",
     {"-0.45638606 -0.324804753 -0.141953602 0.396852016 0.513755083 0.750495076",
      "0.420000017 0.124999993 0.639999986 0.284999996 0.26000002 1.04499984"}},
    {"SparseApplyProximalAdagrad",
     "",
     TD_FLOAT,
     "",
     {"-0.457808614 -0.367717475 -0.139960334 0.422704101 0.417629451 0.622773588",
      "0.224999994 0.200000003 0.984999895 0.5 0.430000007 1.98000002"}},
    {"SparseApplyProximalAdagrad",
     "",
     TD_FLOAT,
     "l1=0",
     {"-0.480595678 -0.391230464 -0.151623696 0.454209685 0.454680055 0.642786503",
      "0.224999994 0.200000003 0.984999895 0.5 0.430000007 1.98000002"}},
    {"ApplyAddSign",
     "",
     TD_FLOAT,
     "",
     {"-0.527999997 -0.309000015 -0.0899999961 0.345000029 0.56400001 0.782999992",
      "-0.219999999 0.0752000064 0.370399982 -0.10239999 0.192800015 0.487999946"}},
    {"ApplyPowerSign",
     "",
     TD_FLOAT,
     "",
     {"-0.427218705 -0.321597695 -0.215976626 0.40798831 0.513609409 0.61923039",
      "-0.219999999 0.0752000064 0.370399982 -0.10239999 0.192800015 0.487999946"}},
    {"ApplyFtrl",
     "",
     TD_FLOAT,
     "",
     {"-0.155049801 -0.135670215 -0.203796104 0.0381325111 -0.115303375 0.173231378",
      "0.420000017 0.124999993 0.639999986 0.284999996 0.26000002 1.04499984",
      "1.06103957 0.535093486 1.68852067 -0.255097181 0.642546356 -1.82779098"}},
    {"ApplyFtrl",
     "",
     TD_DOUBLE,
     "",
     {"-0.155049743 -0.135670229 -0.203796101 0.0381325049 -0.115303384 0.1732314", "0.42 0.125 0.64 0.285 0.26 1.045",
      "1.06103917 0.535093505 1.68852065 -0.25509717 0.64254634 -1.82779143"}},
    {"ApplyFtrl",
     "",
     TD_FLOAT,
     "lr_power=-0.7",
     {"-0.204062 -0.20479995 -0.238689557 0.0491174199 -0.152842671 0.261683851",
      "0.420000017 0.124999993 0.639999986 0.284999996 0.26000002 1.04499984",
      "1.16998804 0.535904765 1.80601048 -0.255963176 0.651400149 -2.75918984"}},
    {"ApplyFtrl",
     "multiply_linear_by_lr: true",
     TD_FLOAT,
     "",
     {"-0.855572402 -1.20346689 -0.833867908 -0.812234759 -1.02854228 -0.381632924",
      "0.420000017 0.124999993 0.639999986 0.284999996 0.26000002 1.04499984",
      "0.562896609 0.435303658 0.675429821 0.441863626 0.533569932 0.396651655"}},
    {"ApplyFtrl",
     "multiply_linear_by_lr: true",
     TD_FLOAT,
     "lr_power=-0.7",
     {"-1.11898303 -1.82030368 -0.998324096 -1.09652722 -1.38538826 -0.34805125",
      "0.420000017 0.124999993 0.639999986 0.284999996 0.26000002 1.04499984",
      "0.6191504 0.436882049 0.739455163 0.464804739 0.55011785 0.365334392"}},
    {"ApplyFtrlV2",
     "",
     TD_FLOAT,
     "",
     {"-0.146117896 -0.12862882 -0.202739328 0.0347858742 -0.121933013 0.165078387",
      "0.420000017 0.124999993 0.639999986 0.284999996 0.26000002 1.04499984",
      "1.00279701 0.509916723 1.68002415 -0.237097174 0.676616192 -1.7441206"}},
    {"ApplyFtrlV2",
     "",
     TD_DOUBLE,
     "",
     {"-0.146117858 -0.128628827 -0.202739332 0.0347858713 -0.121933026 0.165078413",
      "0.42 0.125 0.64 0.285 0.26 1.045", "1.00279666 0.509916731 1.68002423 -0.23709717 0.6766162 -1.7441212"}},
    {"ApplyFtrlV2",
     "",
     TD_FLOAT,
     "lr_power=-0.7",
     {"-0.191985294 -0.192655385 -0.237297162 0.0448248386 -0.161401689 0.252363652",
      "0.420000017 0.124999993 0.639999986 0.284999996 0.26000002 1.04499984",
      "1.10370541 0.507090807 1.79576683 -0.23796317 0.685077846 -2.66269851"}},
    {"ApplyFtrlV2",
     "multiply_linear_by_lr: true",
     TD_FLOAT,
     "",
     {"-0.840194821 -1.17850697 -0.828109086 -0.80639714 -1.02450943 -0.386541873",
      "0.420000017 0.124999993 0.639999986 0.284999996 0.26000002 1.04499984",
      "0.55286926 0.426379174 0.670799732 0.438723832 0.531497478 0.40168947"}},
    {"ApplyFtrlV2",
     "multiply_linear_by_lr: true",
     TD_FLOAT,
     "lr_power=-0.7",
     {"-1.0969044 -1.7673049 -0.990736485 -1.08500707 -1.37515259 -0.353837729",
      "0.420000017 0.124999993 0.639999986 0.284999996 0.26000002 1.04499984",
      "0.607032657 0.424307644 0.73387301 0.459974021 0.546090364 0.371325076"}},
    {"SparseApplyFtrl",
     "",
     TD_FLOAT,
     "",
     {"-0.10034997 -0.225208461 -0.203161195 0.156110257 -0.232153997 -0.0263594147",
      "0.224999994 0.200000003 0.984999895 0.5 0.430000007 1.98000002",
      "0.530015707 1.06617117 2.07444358 -1.16011059 1.58162165 0.421964228"}},
    {"SparseApplyFtrl",
     "",
     TD_DOUBLE,
     "",
     {"-0.100349969 -0.225208449 -0.203161189 0.156110265 -0.23215402 -0.0263593557", "0.225 0.2 0.985 0.5 0.43 1.98",
      "0.530015697 1.06617114 2.07444367 -1.16011068 1.58162187 0.421963387"}},
    {"SparseApplyFtrl",
     "",
     TD_FLOAT,
     "lr_power=-0.7",
     {"-0.135392711 -0.317552805 -0.220079228 0.193261877 -0.303829551 0.0396587327",
      "0.224999994 0.200000003 0.984999895 0.5 0.430000007 1.98000002",
      "0.531981707 1.09199023 2.23643446 -1.24739683 1.7450515 -0.69132781"}},
    {"SparseApplyFtrl",
     "multiply_linear_by_lr: true",
     TD_FLOAT,
     "",
     {"-0.984625638 -1.16085196 -0.728360176 -0.553053081 -1.23400867 -0.685471416",
      "0.224999994 0.200000003 0.984999895 0.5 0.430000007 1.98000002",
      "0.475987434 0.528792202 0.730790257 0.398279786 0.819129646 0.972285628"}},
    {"SparseApplyFtrl",
     "multiply_linear_by_lr: true",
     TD_FLOAT,
     "lr_power=-0.7",
     {"-1.40173483 -1.66151488 -0.808947921 -0.695809245 -1.70639348 -0.724487543",
      "0.224999994 0.200000003 0.984999895 0.5 0.430000007 1.98000002",
      "0.504000664 0.550195098 0.808670461 0.436104089 0.956989408 1.17658043"}},
    {"SparseApplyFtrlV2",
     "",
     TD_FLOAT,
     "",
     {"-0.0897038504 -0.21840696 -0.202330694 0.150424585 -0.235675871 -0.0354896449",
      "0.224999994 0.200000003 0.984999895 0.5 0.430000007 1.98000002",
      "0.479090869 1.03548193 2.06616783 -1.11967933 1.60485697 0.550803185"}},
    {"SparseApplyFtrlV2",
     "",
     TD_DOUBLE,
     "",
     {"-0.0897038436 -0.218406956 -0.202330672 0.15042459 -0.235675875 -0.0354895832", "0.225 0.2 0.985 0.5 0.43 1.98",
      "0.479090845 1.03548188 2.06616781 -1.11967946 1.6048571 0.550802285"}},
    {"SparseApplyFtrlV2",
     "",
     TD_FLOAT,
     "lr_power=-0.7",
     {"-0.119477093 -0.306577981 -0.219145209 0.185484588 -0.307400614 0.0283102281",
      "0.224999994 0.200000003 0.984999895 0.5 0.430000007 1.98000002",
      "0.475324035 1.05597842 2.22715521 -1.19921088 1.76497436 -0.507809281"}},
    {"SparseApplyFtrlV2",
     "multiply_linear_by_lr: true",
     TD_FLOAT,
     "",
     {"-0.962887704 -1.14160883 -0.724367321 -0.539530635 -1.20716178 -0.684777856",
      "0.224999994 0.200000003 0.984999895 0.5 0.430000007 1.98000002",
      "0.465589285 0.520109415 0.726811469 0.388663888 0.801417589 0.97130692"}},
    {"SparseApplyFtrlV2",
     "multiply_linear_by_lr: true",
     TD_FLOAT,
     "lr_power=-0.7",
     {"-1.36447561 -1.62596512 -0.804457486 -0.675061345 -1.65736294 -0.72502774",
      "0.224999994 0.200000003 0.984999895 0.5 0.430000007 1.98000002",
      "0.490736842 0.538530111 0.804209352 0.423249245 0.929635465 1.17745399"}},
    {"SparseApplyMomentum",
     "",
     TD_FLOAT,
     "",
     {"-0.544399977 -0.373280019 -0.202160001 0.486694425 0.413331211 0.339968026",
      "-0.385999978 0.436800003 1.25959992 -0.623264074 0.713328004 2.04992008"}},
    {"SparseApplyMomentum",
     "",
     TD_HALF,
     "",
     {"-0.544433594 -0.373291016 -0.202148438 0.486572266 0.413574219 0.33984375",
      "-0.385986328 0.436523438 1.25976562 -0.623046875 0.713378906 2.05078125"}},
    {"SparseApplyMomentum",
     "use_nesterov: true",
     TD_FLOAT,
     "",
     {"-0.505519986 -0.398624033 -0.29172799 0.549355567 0.370664954 0.191974312",
      "-0.385999978 0.436800003 1.25959992 -0.623264074 0.713328004 2.04992008"}},
    {"SparseApplyKerasMomentum",
     "",
     TD_FLOAT,
     "",
     {"-0.386000007 -0.183200002 0.0196000151 0.902336121 0.88092804 0.859520078",
      "0.109000005 0.0407999977 -0.0273999907 0.134416014 0.00976800546 -0.114879996"}},
    {"SparseApplyKerasMomentum",
     "use_nesterov: true",
     TD_FLOAT,
     "",
     {"-0.378800035 -0.246560007 -0.11431998 0.881868839 0.744742393 0.607615948",
      "0.109000005 0.0407999977 -0.0273999907 0.134416014 0.00976800546 -0.114879996"}},
    {"SparseApplyAdagrad",
     "",
     TD_FLOAT,
     "",
     {"-0.48527801 -0.394721389 -0.152159721 0.459403455 0.462529749 0.648791313",
      "0.224999994 0.200000003 0.984999895 0.5 0.430000007 1.98000002"}},
    {"SparseApplyAdagrad",
     "",
     TD_DOUBLE,
     "",
     {"-0.485278005 -0.39472136 -0.152159721 0.459403436 0.462529667 0.648791352", "0.225 0.2 0.985 0.5 0.43 1.98"}},
    {"SparseApplyAdagrad",
     "",
     TD_HALF,
     "",
     {"-0.485351562 -0.394775391 -0.152099609 0.459228516 0.462646484 0.6484375",
      "0.224975586 0.199951172 0.984863281 0.499755859 0.430175781 1.97949219"}},
    {"SparseApplyAdagrad",
     "",
     TD_BFLOAT16,
     "",
     {"-0.486328125 -0.396484375 -0.153320312 0.458984375 0.466796875 0.64453125",
      "0.224609375 0.200195312 0.9765625 0.5 0.4296875 1.984375"}},
    {"SparseApplyAdagrad",
     "update_slots: false",
     TD_FLOAT,
     "",
     {"-0.441886157 -0.415470064 -0.347439617 0.550000012 0.411438227 0.318622231",
      "0.100000001 0.119999997 0.140000001 0.159999996 0.180000007 0.200000003"}},
    {"SparseApplyAdagradV2",
     "",
     TD_FLOAT,
     "",
     {"-0.485542357 -0.394496918 -0.151978403 0.459146947 0.462769032 0.649053216",
      "0.224999994 0.200000003 0.984999895 0.5 0.430000007 1.98000002"}},
    {"SparseApplyAdadelta",
     "",
     TD_FLOAT,
     "",
     {"-0.498489827 -0.377194583 -0.209828228 0.470535755 0.467581362 0.51589036",
      "0.0928749964 0.104799993 0.193675011 0.132849991 0.140677735 0.287785023",
      "0.372944474 0.368504733 0.565530777 0.381717741 0.376202583 0.663308263"}},
    {"SparseApplyRMSProp",
     "",
     TD_FLOAT,
     "",
     {"-0.950104356 -1.07338119 -1.06531358 -0.213391155 -0.900812149 -1.32578754",
      "0.0928749964 0.104799993 0.193675011 0.132849991 0.140677735 0.287785023",
      "0.110271208 0.377884686 0.555316508 0.00997154973 0.362609237 0.592630684"}},
    {"SparseApplyCenteredRMSProp",
     "",
     TD_FLOAT,
     "",
     {"-1.77816808 -1.71904421 -1.64318538 -1.60891247 -1.95756888 -2.27435923",
      "0.0334999822 0.135200009 0.236900017 0.0217159688 0.189593002 0.357470036",
      "0.335874975 0.347799987 0.436675012 0.329679966 0.337507725 0.484614968",
      "0.499660879 0.65001303 0.788765252 0.280894727 0.512919843 0.728110194"}},
    {"SparseApplyAdagradDA",
     "",
     TD_FLOAT,
     "",
     {"0.0342199169 -0.0518856421 -0.113199763 0.0766303018 -0.0964667276 -0.174805924",
      "-0.400000006 0.519999981 1.43999994 -0.840000033 0.980000019 2.79999995",
      "0.524999976 0.49999997 1.28499985 0.800000012 0.729999959 2.28000021"}},
    {"SparseApplyAdagradDA",
     "",
     TD_FLOAT,
     "l1=0",
     {"0.0547518618 -0.0729203597 -0.126362532 0.0932890549 -0.113900475 -0.184700593",
      "-0.400000006 0.519999981 1.43999994 -0.840000033 0.980000019 2.79999995",
      "0.524999976 0.49999997 1.28499985 0.800000012 0.729999959 2.28000021"}},
};

static const struct {
  const char *name;
  double value;
} default_scalars[] = {
    {"lr", .1},           {"alpha", .2},      {"rho", .9},      {"epsilon", 1e-3},
    {"momentum", .8},     {"l1", .05},        {"l2", .02},      {"l2_shrinkage", .03},
    {"lr_power", -.5},    {"beta1", .9},      {"beta2", .99},   {"beta1_power", .81},
    {"beta2_power", .98}, {"sign_decay", .7}, {"logbase", 1.1}, {"beta", .6},
};

static double scalar_for(td_str name, const char *overrides) {
  char want[64];
  snprintf(want, sizeof want, "%.*s=", TD_STR_ARG(name));
  const char *at = strstr(overrides, want);
  if (at && (at == overrides || at[-1] == ' ')) return strtod(at + strlen(want), NULL);
  for (size_t i = 0; i < TD_COUNT(default_scalars); i++)
    if (td_str_is(name, default_scalars[i].name)) return default_scalars[i].value;
  fail_msg("no value for %.*s", TD_STR_ARG(name));
  return 0;
}

static td_tensor *make_var(td_dtype dtype, int k) {
  char text[256] = "";
  for (int i = 0; i < 6; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%.17g ", k ? .1 * k * k + .02 * i : (i - 2) * .3);
  return td_test_tensor(dtype, "[2,3]", text);
}

static td_tensor *make_grad(td_dtype dtype, bool sparse) {
  char text[512] = "";
  for (int i = 0; i < (sparse ? 9 : 6); i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%.17g ", (i % 3 - 1) * .4 + .05 * i);
  return td_test_tensor(dtype, sparse ? "[3,3]" : "[2,3]", text);
}

static td_device *make_device(void) {
  td_device *d = td_test_device();
  return d;
}

/* One op with its variables and inputs. */
typedef struct fixture {
  td_device *device;
  td_op_run run;
  td_tensor *in[16];
  td_variable *refs[16], *vars[4];
  int var_count;
  char attrs[256];
} fixture;

static td_variable *make_variable(fixture *f, bool resource, td_dtype dtype) {
  char name[8];
  snprintf(name, sizeof name, "v%d", f->var_count);
  td_variable *v =
      td_variable_create(resource ? &td_resource_variable_type : &td_ref_variable_type, dtype, td_str_of(name));
  v->value = make_var(dtype, f->var_count);
  f->vars[f->var_count++] = v;
  return v;
}

static void add_variable(fixture *f, int i, bool resource, td_dtype dtype) {
  td_variable *v = make_variable(f, resource, dtype);
  if (!resource) {
    f->refs[i] = v;
    return;
  }
  assert_null(td_resource_add(f->device->resources, TD_STR(""), td_str_of(v->name), &v->resource));
  assert_null(td_handle_create(f->device, TD_STR(""), td_str_of(v->name), &td_resource_variable_type, &f->in[i]));
}

static void setup(fixture *f, const char *op, const char *attrs, td_dtype dtype, const char *scalars) {
  memset(f, 0, sizeof *f);
  f->device = make_device();
  assert_null(td_ops_register());
  const td_op_def *def = td_op_find(td_str_of(op));
  if (!def) fail_msg("no op %s", op);
  bool sparse = strstr(op, "Sparse");
  snprintf(f->attrs, sizeof f->attrs, "T: %s%s%s%s", td_dtype_name(dtype), sparse ? "; Tindices: int64" : "",
           *attrs ? "; " : "", attrs);
  for (int i = 0; i < (int)def->input_count; i++) {
    const td_arg_def *a = &def->inputs[i];
    if (a->is_ref || a->type == TD_RESOURCE) {
      add_variable(f, i, !a->is_ref, dtype);
    } else if (td_str_is(a->name, "grad") || td_str_is(a->name, "delta")) {
      f->in[i] = make_grad(dtype, sparse);
    } else if (td_str_is(a->name, "indices")) {
      f->in[i] = td_test_tensor(TD_INT64, "[3]", "1 0 1");
    } else if (td_str_is(a->name, "global_step")) {
      f->in[i] = td_test_tensor(TD_INT64, "[]", "3");
    } else {
      char text[32];
      snprintf(text, sizeof text, "%.17g", scalar_for(a->name, scalars));
      f->in[i] = td_test_tensor(dtype, "[]", text);
    }
  }
  f->run = (td_op_run){.op = op,
                       .attrs = f->attrs,
                       .in = f->in,
                       .in_count = (int)def->input_count,
                       .refs = f->refs,
                       .device = f->device};
}

static void teardown(fixture *f) {
  for (int i = 0; i < 16; i++) td_tensor_release(f->in[i]);
  for (int i = 0; i < f->var_count; i++) td_variable_release(f->vars[i]);
  td_device_release(f->device);
}

static void run_ok(td_op_run *run) {
  td_assert_runs(run);
  for (int i = 0; i < 8; i++) td_variable_release(run->out_refs[i]);
}

static double tolerance_of(td_dtype t) { return t == TD_HALF ? 4e-3 : t == TD_BFLOAT16 ? 3e-2 : 2e-6; }

static void test_against_tensorflow(void **state) {
  for (size_t c = 0; c < TD_COUNT(cases); c++)
    for (int resource = 0; resource < 2; resource++) {
      fixture f;
      char op[64];
      snprintf(op, sizeof op, "%s%s", resource ? "Resource" : "", cases[c].op);
      assert_null(td_ops_register());
      if (!td_op_find(td_str_of(op))) continue; /* some exist for resources alone */
      setup(&f, op, cases[c].attrs, cases[c].dtype, cases[c].scalars);
      td_kernel *k = NULL;
      f.run.kernel = &k;
      run_ok(&f.run);
      run_ok(&f.run);
      for (int i = 0; i < f.var_count; i++)
        td_assert_tensor(f.vars[i]->value, cases[c].dtype, "[2,3]", cases[c].vars[i], tolerance_of(cases[c].dtype));
      td_kernel_release(k);
      teardown(&f);
    }
}

static void test_reader_keeps_its_snapshot(void **state) {
  fixture f;
  setup(&f, "ApplyGradientDescent", "", TD_FLOAT, "");
  td_tensor *before;
  assert_null(td_variable_read(f.vars[0], &before));
  run_ok(&f.run);
  td_assert_tensor(before, TD_FLOAT, "[2,3]", "-.6 -.3 0 .3 .6 .9", 1e-6);
  td_assert_tensor(f.vars[0]->value, TD_FLOAT, "[2,3]", "-.52 -.31 -.1 .35 .56 .77", 1e-6);
  td_tensor_release(before);
  teardown(&f);
}

static void replace(fixture *f, int i, td_tensor *t) {
  td_tensor_release(f->in[i]);
  f->in[i] = t;
}

static void test_errors(void **state) {
  fixture f;
  setup(&f, "ApplyMomentum", "", TD_FLOAT, "");
  replace(&f, 3, td_test_tensor(TD_FLOAT, "[3,2]", "0"));
  td_assert_run_fails(&f.run, TD_INVALID_ARGUMENT, "var and grad do not have the same shape[2,3] [3,2]");
  replace(&f, 3, make_grad(TD_FLOAT, false));
  replace(&f, 2, td_test_tensor(TD_FLOAT, "[2]", "0"));
  td_assert_run_fails(&f.run, TD_INVALID_ARGUMENT, "lr is not a scalar: [2]");
  replace(&f, 2, td_test_tensor(TD_FLOAT, "[]", "1"));
  td_variable_set(f.vars[1], td_test_tensor(TD_FLOAT, "[6]", "0"));
  td_assert_run_fails(&f.run, TD_INVALID_ARGUMENT, "var and accum do not have the same shape[2,3] [6]");
  td_variable_set(f.vars[1], NULL);
  td_assert_run_fails(&f.run, TD_FAILED_PRECONDITION, "Attempting to use uninitialized variables: v1");
  teardown(&f);
  setup(&f, "ResourceApplyAdagrad", "", TD_FLOAT, "");
  assert_null(td_resource_delete(f.device->resources, TD_STR(""), TD_STR("v1"), &td_resource_variable_type));
  td_assert_run_fails(&f.run, TD_INTERNAL, "Invalid variable reference.");
  teardown(&f);
  setup(&f, "ApplyFtrl", "", TD_FLOAT, "");
  replace(&f, 4, td_test_tensor(TD_FLOAT, "[]", "0"));
  td_assert_run_fails(&f.run, TD_INVALID_ARGUMENT, "lr is not a positive scalar");
  replace(&f, 4, td_test_tensor(TD_FLOAT, "[]", "1"));
  replace(&f, 6, td_test_tensor(TD_FLOAT, "[]", "-1"));
  td_assert_run_fails(&f.run, TD_INVALID_ARGUMENT, "l2 regularization strength is not a non-negative scalar");
  replace(&f, 6, td_test_tensor(TD_FLOAT, "[]", "nan"));
  td_assert_run_fails(&f.run, TD_INVALID_ARGUMENT, "l2 regularization strength is not a non-negative scalar");
  teardown(&f);
}

static void test_sparse_errors(void **state) {
  fixture f;
  setup(&f, "ResourceSparseApplyAdagrad", "", TD_FLOAT, "");
  replace(&f, 4, td_test_tensor(TD_INT64, "[3]", "0 2 1"));
  td_assert_run_fails(&f.run, TD_INVALID_ARGUMENT, "Index 2 at offset 1 in indices is out of range");
  replace(&f, 4, td_test_tensor(TD_INT64, "[3]", "0 1 -1"));
  td_assert_run_fails(&f.run, TD_INVALID_ARGUMENT, "Index -1 at offset 2 in indices is out of range");
  replace(&f, 4, td_test_tensor(TD_INT64, "[2]", "0 1"));
  td_assert_run_fails(&f.run, TD_INVALID_ARGUMENT, "grad must be the same size as indices in the first dimension.");
  replace(&f, 4, td_test_tensor(TD_INT64, "[3,1]", "0"));
  td_assert_run_fails(&f.run, TD_INVALID_ARGUMENT, "indices must be one-dimensional");
  replace(&f, 4, td_test_tensor(TD_INT64, "[3]", "0"));
  replace(&f, 3, td_test_tensor(TD_FLOAT, "[3,2]", "0"));
  td_assert_run_fails(&f.run, TD_INVALID_ARGUMENT, "var and grad must match in dimension 1");
  replace(&f, 3, td_test_tensor(TD_FLOAT, "[]", "0"));
  td_assert_run_fails(&f.run, TD_INVALID_ARGUMENT, "rank");
  td_assert_tensor(f.vars[0]->value, TD_FLOAT, "[2,3]", "-.6 -.3 0 .3 .6 .9", 1e-6); /* nothing changed */
  replace(&f, 3, td_test_tensor(TD_FLOAT, "[0,3]", ""));
  replace(&f, 4, td_test_tensor(TD_INT64, "[0]", ""));
  run_ok(&f.run);
  teardown(&f);
}

/* As TensorFlow without use_locking, which is why the table's other users need not wait. */
static void test_sparse_updates_share_a_table(void **state) {
  fixture f;
  setup(&f, "SparseApplyMomentum", "", TD_FLOAT, "");
  pthread_rwlock_rdlock(&f.vars[0]->lock); /* another update */
  run_ok(&f.run);
  pthread_rwlock_unlock(&f.vars[0]->lock);
  /* but not where the variable is its own gradient: that is a snapshot */
  td_tensor *before;
  assert_null(td_variable_read(f.vars[0], &before));
  char *text = td_tensor_summarize(before, 6);
  replace(&f, 3, before);
  replace(&f, 4, td_test_tensor(TD_INT64, "[2]", "1 0"));
  run_ok(&f.run);
  char *after = td_tensor_summarize(before, 6);
  assert_string_equal(text, after);
  assert_ptr_not_equal(before, f.vars[0]->value);
  td_free(text);
  td_free(after);
  teardown(&f);
}

/* ---- several threads ---- */

enum { THREADS = 4, ROUNDS = 200 };

typedef struct hammer {
  fixture *f;
  bool read;
} hammer;

static void *hammer_main(void *arg) {
  const hammer *h = arg;
  td_op_run run = h->f->run;
  td_kernel *k = NULL;
  run.kernel = &k;
  float sum = 0;
  for (int i = 0; i < ROUNDS; i++) {
    if (!h->read) {
      td_status s = td_op_test_run(&run);
      if (s) abort();
      for (int r = 0; r < 8; r++) td_variable_release(run.out_refs[r]);
      continue;
    }
    td_tensor *t;
    if (td_variable_read(h->f->vars[0], &t)) abort();
    for (int64_t e = 0; e < t->count; e++) sum += TD_DATA(t, float)[e];
    td_tensor_release(t);
  }
  td_kernel_release(k);
  return (void *)(uintptr_t)(sum == 12345.f);
}

static void hammer_op(const char *op, const char *expected) {
  fixture f;
  setup(&f, op, "", TD_FLOAT, "alpha=0.001; lr=0.001");
  pthread_t threads[THREADS];
  hammer h[THREADS];
  for (int i = 0; i < THREADS; i++) {
    h[i] = (hammer){&f, i == THREADS - 1};
    assert_int_equal(pthread_create(&threads[i], NULL, hammer_main, &h[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  if (expected) td_assert_tensor(f.vars[0]->value, TD_FLOAT, "[2,3]", expected, 1e-4);
  teardown(&f);
}

static void test_concurrent_updates(void **state) {
  /* 3 writers x 200 rounds: no update is lost */
  hammer_op("ApplyGradientDescent", "-.36 -.33 -.3 .45 .48 .51");
  hammer_op("ResourceApplyGradientDescent", "-.36 -.33 -.3 .45 .48 .51");
  hammer_op("ApplyAdam", NULL);
  hammer_op("SparseApplyMomentum", NULL);
  hammer_op("ResourceSparseApplyMomentum", NULL);
}

enum { LONGEST = 1000, PLACES = TD_RULE_VARS + 1 };

/* The rule on n elements from the second on: vector forms against the same in double, and where the old values are in
 * the way against where they lie elsewhere. */
static void check_rule(const td_rule_info *rule, int n, const td_rule_args *args) {
  static float single[PLACES][LONGEST + 2], old[PLACES][LONGEST + 2], apart[PLACES][LONGEST + 2];
  static double wide[PLACES][LONGEST + 2];
  void *s[TD_RULE_VARS], *w[TD_RULE_VARS], *to[TD_RULE_VARS];
  const void *from[TD_RULE_VARS];
  for (int k = 0; k < PLACES; k++) {
    for (int i = 0; i < n + 2; i++) {
      wide[k][i] = old[k][i] = single[k][i] = (float)(0.5 + k + 0.25 * (i % 70));
      apart[k][i] = NAN;
    }
    if (k < TD_RULE_VARS) s[k] = single[k], w[k] = wide[k], from[k] = old[k], to[k] = apart[k];
  }
  const void *grad = old[PLACES - 1];
  td_rule_get(rule, TD_FLOAT, false)(s, (const void *const *)s, grad, 1, 1 + n, args);
  td_rule_get(rule, TD_DOUBLE, false)(w, (const void *const *)w, wide[PLACES - 1], 1, 1 + n, args);
  td_rule_get(rule, TD_FLOAT, false)(to, from, grad, 1, 1 + n, args);
  for (int k = 0; k < rule->vars; k++)
    for (int i = 0; i < n + 2; i++) {
      double error = single[k][i] - wide[k][i];
      bool is_outside = i < 1 || i > n;
      assert_true(is_outside ? error == 0 : error * error <= 1e-12 * (1 + wide[k][i] * wide[k][i]));
      assert_true(is_outside ? isnan(apart[k][i]) : apart[k][i] == single[k][i]);
    }
}

static void test_rules_of_any_length(void **state) {
  static const char *const names[] = {"GradientDescent", "Momentum", "Adam", "Adagrad", "AdagradV2", "RMSProp"};
  for (size_t r = 0; r < TD_COUNT(names); r++)
    for (int flags = 0; flags < 2; flags++) {
      const td_rule_info *rule = td_rule_find(td_str_of(names[r]));
      td_rule_args args = {.params = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}, .update_slots = !flags, .nesterov = flags};
      for (int n = 0; n < 70; n++) check_rule(rule, n, &args);
      for (int n = 250; n <= LONGEST; n += 75) check_rule(rule, n, &args);
    }
}

/* Momentum of a variable that is its own accumulator, while a reader holds it. */
static void test_variable_twice(void **state) {
  fixture f;
  setup(&f, "ApplyMomentum", "", TD_FLOAT, "");
  td_tensor *before;
  assert_null(td_variable_read(f.vars[0], &before));
  f.refs[1] = f.refs[0];
  run_ok(&f.run);
  td_assert_tensor(before, TD_FLOAT, "[2,3]", "-.6 -.3 0 .3 .6 .9", 1e-6);
  td_assert_tensor(f.vars[0]->value, TD_FLOAT, "[2,3]", "-.792 -.171 .45 -.009 .612 1.233", 1e-6);
  td_tensor_release(before);
  teardown(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rules_of_any_length),
      cmocka_unit_test(test_against_tensorflow),
      cmocka_unit_test(test_reader_keeps_its_snapshot),
      cmocka_unit_test(test_variable_twice),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_sparse_errors),
      cmocka_unit_test(test_sparse_updates_share_a_table),
      cmocka_unit_test(test_concurrent_updates),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
