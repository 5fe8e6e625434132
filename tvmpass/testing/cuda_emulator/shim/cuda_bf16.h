// nv_bfloat16 and nv_bfloat162.
#pragma once
#include "float16.h"

using nv_bfloat16 = emu::Float16<emu::BfloatFormat>;
using nv_bfloat162 = emu::Pair<nv_bfloat16>;
using __nv_bfloat16 = nv_bfloat16;
using __nv_bfloat162 = nv_bfloat162;

EMU_FLOAT16_FUNCTIONS(nv_bfloat16)
EMU_INLINE float __bfloat162float(nv_bfloat16 x) { return x; }
EMU_INLINE nv_bfloat16 __float2bfloat16(float x) { return nv_bfloat16(x); }
EMU_INLINE nv_bfloat16 __float2bfloat16_rn(float x) { return nv_bfloat16(x); }
EMU_INLINE unsigned short __bfloat16_as_ushort(nv_bfloat16 x) { return x.bits; }
