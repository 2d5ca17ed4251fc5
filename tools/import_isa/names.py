"""Canonical instruction names: the first spelling AMD gave an operation, see isa/tables/README."""
import re
EXACT = dict(p.split('=') for p in '''
v_add_nc_u32=v_add_u32 v_sub_nc_u32=v_sub_u32 v_subrev_nc_u32=v_subrev_u32
v_add_nc_u16=v_add_u16 v_sub_nc_u16=v_sub_u16 v_add_nc_i16=v_add_i16 v_sub_nc_i16=v_sub_i16 v_add_nc_i32=v_add_i32 v_sub_nc_i32=v_sub_i32
v_add_co_ci_u32=v_addc_co_u32 v_sub_co_ci_u32=v_subb_co_u32 v_subrev_co_ci_u32=v_subbrev_co_u32
v_mul_dx9_zero_f32=v_mul_legacy_f32 v_fma_dx9_zero_f32=v_fma_legacy_f32 v_fmac_dx9_zero_f32=v_fmac_legacy_f32
v_cvt_floor_i32_f32=v_cvt_flr_i32_f32 v_cvt_nearest_i32_f32=v_cvt_rpi_i32_f32
v_cvt_pk_rtz_f16_f32=v_cvt_pkrtz_f16_f32 v_cvt_pk_norm_i16_f32=v_cvt_pknorm_i16_f32 v_cvt_pk_norm_u16_f32=v_cvt_pknorm_u16_f32
v_cvt_pk_norm_i16_f16=v_cvt_pknorm_i16_f16 v_cvt_pk_norm_u16_f16=v_cvt_pknorm_u16_f16
v_ctz_i32_b32=v_ffbl_b32 v_clz_i32_u32=v_ffbh_u32 v_cls_i32=v_ffbh_i32
s_ctz_i32_b32=s_ff1_i32_b32 s_ctz_i32_b64=s_ff1_i32_b64 s_clz_i32_u32=s_flbit_i32_b32 s_clz_i32_u64=s_flbit_i32_b64 s_cls_i32=s_flbit_i32 s_cls_i32_i64=s_flbit_i32_i64
s_and_not1_b32=s_andn2_b32 s_and_not1_b64=s_andn2_b64 s_or_not1_b32=s_orn2_b32 s_or_not1_b64=s_orn2_b64
s_and_not1_saveexec_b32=s_andn2_saveexec_b32 s_and_not1_saveexec_b64=s_andn2_saveexec_b64 s_or_not1_saveexec_b32=s_orn2_saveexec_b32 s_or_not1_saveexec_b64=s_orn2_saveexec_b64
s_and_not0_saveexec_b32=s_andn1_saveexec_b32 s_and_not0_saveexec_b64=s_andn1_saveexec_b64 s_or_not0_saveexec_b32=s_orn1_saveexec_b32 s_or_not0_saveexec_b64=s_orn1_saveexec_b64
s_and_not1_wrexec_b32=s_andn2_wrexec_b32 s_and_not1_wrexec_b64=s_andn2_wrexec_b64 s_and_not0_wrexec_b32=s_andn1_wrexec_b32 s_and_not0_wrexec_b64=s_andn1_wrexec_b64
s_add_co_u32=s_add_u32 s_sub_co_u32=s_sub_u32 s_add_co_i32=s_add_i32 s_sub_co_i32=s_sub_i32 s_add_co_ci_u32=s_addc_u32 s_sub_co_ci_u32=s_subb_u32 s_addk_co_i32=s_addk_i32
s_get_pc_i64=s_getpc_b64 s_set_pc_i64=s_setpc_b64 s_swap_pc_i64=s_swappc_b64 s_call_i64=s_call_b64 s_rfe_i64=s_rfe_b64
s_set_inst_prefetch_distance=s_inst_prefetch s_wait_alu=s_waitcnt_depctr
s_wait_expcnt=s_waitcnt_expcnt s_wait_kmcnt=s_wait_kmcnt
s_min_num_f32=s_min_f32 s_max_num_f32=s_max_f32 s_min_num_f16=s_min_f16 s_max_num_f16=s_max_f16
v_mad_co_u64_u32=v_mad_u64_u32 v_mad_co_i64_i32=v_mad_i64_i32
v_fma_mix_f32=v_fma_mix_f32 v_dot2acc_f32_f16=v_dot2c_f32_f16
export=exp ds_direct_load=lds_direct_load ds_param_load=lds_param_load
ds_load_2addr_b32=ds_read2_b32 ds_load_2addr_b64=ds_read2_b64 ds_load_2addr_stride64_b32=ds_read2st64_b32 ds_load_2addr_stride64_b64=ds_read2st64_b64
ds_store_2addr_b32=ds_write2_b32 ds_store_2addr_b64=ds_write2_b64 ds_store_2addr_stride64_b32=ds_write2st64_b32 ds_store_2addr_stride64_b64=ds_write2st64_b64
ds_storexchg_rtn_b32=ds_wrxchg_rtn_b32 ds_storexchg_rtn_b64=ds_wrxchg_rtn_b64 ds_storexchg_2addr_rtn_b32=ds_wrxchg2_rtn_b32 ds_storexchg_2addr_rtn_b64=ds_wrxchg2_rtn_b64
ds_storexchg_2addr_stride64_rtn_b32=ds_wrxchg2st64_rtn_b32 ds_storexchg_2addr_stride64_rtn_b64=ds_wrxchg2st64_rtn_b64
image_atomic_add_uint=image_atomic_add image_atomic_sub_uint=image_atomic_sub image_atomic_inc_uint=image_atomic_inc image_atomic_dec_uint=image_atomic_dec
image_atomic_min_int=image_atomic_smin image_atomic_max_int=image_atomic_smax image_atomic_min_uint=image_atomic_umin image_atomic_max_uint=image_atomic_umax
image_atomic_min_flt=image_atomic_fmin image_atomic_max_flt=image_atomic_fmax
global_load_addtid_b32=global_load_dword_addtid global_store_addtid_b32=global_store_dword_addtid
global_load_async_to_lds_b32=global_load_async_to_lds_b32
'''.split())
LD = {'ubyte':'u8','sbyte':'i8','ushort':'u16','sshort':'i16','dword':'b32','dwordx2':'b64','dwordx3':'b96','dwordx4':'b128','dwordx8':'b256','dwordx16':'b512'}
LDR = {v:k for k,v in LD.items()}
ST = {'b8':'byte','b16':'short'}
AT = {'swap_b':'swap','cmpswap_b':'cmpswap','add_u':'add','sub_u':'sub','min_i':'smin','min_u':'umin','max_i':'smax','max_u':'umax','and_b':'and','or_b':'or','xor_b':'xor','inc_u':'inc','dec_u':'dec'}
BLK = {'4x4':'16b','16x16':'4b','32x32':'2b'}
OLD_MFMA = {'v_mfma_f32_32x32x2bf16','v_mfma_f32_16x16x2bf16','v_mfma_f32_4x4x2bf16','v_mfma_f32_32x32x4bf16','v_mfma_f32_16x16x8bf16','v_mfma_i32_32x32x8i8','v_mfma_i32_16x16x16i8'}
def canon(n, fam):
    """fam: 8, 9, 10, 11, 12"""
    if n.endswith('_e32'): n = n[:-4]
    n0 = n
    if fam == 8 and n in ('v_add_u32','v_sub_u32','v_subrev_u32'): return n.replace('_u32','_co_u32')
    if fam == 8 and n in ('v_addc_u32','v_subb_u32','v_subbrev_u32'): return n.replace('_u32','_co_u32')
    if n in EXACT: return EXACT[n]
    m = re.fullmatch(r'v_cmp(x?)_t_(f\d\d)', n)
    if m and fam >= 11: return f'v_cmp{m[1]}_tru_{m[2]}'
    m = re.fullmatch(r'(buffer|global|flat|scratch)_load_(d16_)?(hi_)?(u8|i8|b16)', n)
    if m and m[2]:
        return f"{m[1]}_load_{ {'u8':'ubyte','i8':'sbyte','b16':'short'}[m[4]]}_d16{'_hi' if m[3] else ''}"
    m = re.fullmatch(r'(buffer|global|flat|scratch)_store_d16_hi_(b8|b16)', n)
    if m: return f'{m[1]}_store_{ST[m[2]]}_d16_hi'
    m = re.fullmatch(r'(t?buffer)_(load|store)_d16_(hi_)?format_(\w+)', n)
    if m: return f"{m[1]}_{m[2]}_format_d16_{m[3] or ''}{m[4]}"
    m = re.fullmatch(r'(buffer|global|flat|scratch|s|s_buffer)_load_(lds_)?(u8|i8|u16|i16|b\d+)', n)
    if m and m[3] in LDR and not (m[1][0]=='s' and m[1]!='scratch' and m[3] in('u8','i8','u16','i16','b96')): return f"{m[1]}_load_{m[2] or ''}{LDR[m[3]]}"
    m = re.fullmatch(r'(buffer|global|flat|scratch)_store_(b\d+)', n)
    if m: return f"{m[1]}_store_{ST.get(m[2]) or LDR[m[2]]}"
    m = re.fullmatch(r'(buffer|global|flat)_atomic_(\w+?_[biu])(32|64)', n)
    if m and m[2] in AT: return f"{m[1]}_atomic_{AT[m[2]]}{'_x2' if m[3]=='64' else ''}"
    m = re.fullmatch(r'(buffer|global|flat)_atomic_(csub_u32|sub_clamp_u32)', n)
    if m: return f'{m[1]}_atomic_csub'
    m = re.fullmatch(r'(buffer|global|flat)_atomic_(min|max)(_num)?_f32', n)
    if m: return f'{m[1]}_atomic_f{m[2]}'
    m = re.fullmatch(r'(buffer|global|flat)_atomic_(min|max)_num_f64', n)
    if m: return f'{m[1]}_atomic_{m[2]}_f64'
    m = re.fullmatch(r'(buffer|global|flat)_atomic_f(min|max)_x2', n)
    if m: return f'{m[1]}_atomic_{m[2]}_f64'
    m = re.fullmatch(r'(buffer|global|flat)_atomic_cmpswap_f32', n)
    if m: return f'{m[1]}_atomic_fcmpswap'
    m = re.fullmatch(r'ds_(load|store)_(addtid_b32|[biu]\d+(_d16(_hi)?)?)', n)
    if m: return f"ds_{'read' if m[1]=='load' else 'write'}_{m[2]}"
    m = re.fullmatch(r'(v|ds)_(.*(?:min|max)\d?)_num_(\w+)', n)
    if m and 'bf16' not in n and not (m[1]=='v' and re.fullmatch(r'pk_(max|min)3',m[2])): return f'{m[1]}_{m[2]}_{m[3]}'
    m = re.fullmatch(r'v_med3_num_(\w+)', n)
    if m: return f'v_med3_{m[1]}'
    if n in OLD_MFMA: return n
    if n == 'v_mfma_f64_4x4x4f64': return 'v_mfma_f64_4x4x4_4b_f64'
    if fam >= 11 and n == 'v_interp_p2_f32': return 'v_interp_p2_inreg_f32'
    m = re.fullmatch(r'v_mfma_(f32|i32|f64)_(\d+x\d+)x(\d+)(f32|f16|bf16|i8|f64)(_1k)?', n)
    if m:
        acc,mn,k,ty,k1 = m.groups(); k=int(k)
        multi = {('4x4'):True}.get(mn) or (mn=='16x16' and ((ty=='f32' and k==1) or (ty in('f16','i8') and k==4) or (ty=='bf16' and (k==2 or (k1 and k==4))))) or (mn=='32x32' and ((ty=='f32' and k==1) or (ty in('f16','i8') and k==4) or (ty=='bf16' and (k==2 or (k1 and k==4)))))
        return f"v_mfma_{acc}_{mn}x{k}{'_'+BLK[mn] if multi else ''}_{ty}"
    return n
