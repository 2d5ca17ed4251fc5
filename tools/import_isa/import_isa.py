#!/usr/bin/env python3
"""import_isa.py FACTS_DIR TABLES_DIR: writes isa/tables/*.isa from per-target fact files (TSV, one row per encoding).

Used once to start the tables and afterwards only to look at what a new fact file would change: the tables are
maintained by hand. For every target and operation the encodings are folded into one abstract row (operand types,
modifier words, opcode per format); rows are then written as deltas along the inheritance of the targets."""
import collections
import csv
import re
import sys
from names import canon

TARGETS = [('gfx803', None), ('gfx900', 'gfx803'), ('gfx906', 'gfx900'), ('gfx908', 'gfx906'), ('gfx90a', 'gfx908'),
           ('gfx942', 'gfx90a'), ('gfx950', 'gfx942'), ('gfx1010', 'gfx900'), ('gfx1030', 'gfx1010'), ('gfx1100', 'gfx1030'),
           ('gfx1150', 'gfx1100'), ('gfx1200', 'gfx1150'), ('gfx1250', 'gfx1200')]
FAMILY = {t: int(t[3:-2]) for t, _ in TARGETS}
FORMAT = {'VOP2+K(literal)': 'VOP2K', 'SDWA-VOP': 'SDWA', 'SDWA-VOP1': 'SDWA', 'SDWA-VOPC': 'SDWA', 'VOP1-DPP16': 'DPP',
          'VOP2-DPP16': 'DPP', 'VOPC-DPP16': 'DPP', 'VOP1-DPP8': 'DPP8', 'VOP2-DPP8': 'DPP8', 'VOPC-DPP8': 'DPP8',
          'VOP3-DPP16': 'DPP3', 'VOP3-DPP8': 'DPP3', 'VOP3P-DPP16': 'DPP3', 'VOP3P-DPP8': 'DPP3', 'VOP3P-MAI': 'MAI',
          'VOP3P-WMMA': 'WMMA', 'LDSDIR/VDSDIR': 'LDSDIR'}
# Where the opcode sits: (first bit, bits) by format; VOP3P-like formats use 7 bits at 16.
OPCODE = {'SOP2': (23, 7), 'SOPK': (23, 5), 'SOP1': (8, 8), 'SOPC': (16, 7), 'SOPP': (16, 7), 'VOP2': (25, 6), 'VOP2K': (25, 6),
          'VOP1': (9, 8), 'VOPC': (17, 8), 'VOP3': (16, 10), 'VOP3P': (16, 7), 'MAI': (16, 7), 'WMMA': (16, 7), 'SMEM': (18, 8),
          'DS': (17, 8), 'FLAT': (18, 7), 'GLOBAL': (18, 7), 'SCRATCH': (18, 7), 'MUBUF': (18, 7), 'MTBUF': (15, 4),
          'VINTRP': (16, 2), 'VINTERP': (16, 7), 'LDSDIR': (20, 2), 'MIMG': (18, 7), 'EXP': (0, 0), 'VIMAGE': (14, 8), 'VSAMPLE': (14, 8)}
OPCODE_BY_FAMILY = {('DS', 10): (18, 8), ('DS', 11): (18, 8), ('DS', 12): (18, 8), ('SMEM', 12): (13, 6), ('FLAT', 12): (14, 8),
                    ('GLOBAL', 12): (14, 8), ('SCRATCH', 12): (14, 8), ('MUBUF', 10): (18, 8), ('MUBUF', 11): (18, 8), ('MUBUF', 12): (14, 8),
                    ('MTBUF', 10): (16, 3), ('MTBUF', 12): (14, 8)}
WIDTHS = {'VGPR_32': 32, 'VReg_64': 64, 'VReg_64_AlignTarget': 64, 'VReg_96': 96, 'VReg_128': 128, 'VReg_320': 320,
          'anonymous_15610': 32, 'anonymous_15617': 64, 'anonymous_15618': 32, 'anonymous_15624': 32, 'anonymous_15623': 64,
          'anonymous_15615': 128, 'anonymous_15616': 96, 'anonymous_15614': 192, 'anonymous_15613': 256, 'anonymous_15612': 512,
          'anonymous_15611': 1024, 'anonymous_15625': 32, 'anonymous_15626': 64, 'anonymous_15628': 128, 'anonymous_24992': 32,
          'anonymous_29850': 32, 'SReg_32_XM0': 32, 'anonymous_26775': 32}


def rows(path):
    with open(path) as f:
        return list(csv.DictReader(f, delimiter='\t', quoting=csv.QUOTE_NONE))


def fields(r):
    return {f.split('=')[0]: [int(b) for b in f.split('=')[1].split(',')] for f in r['fields'].split(';') if f}


def operands(text):
    return [tuple(w.split(':')) for w in text.split()]


def width(cls):
    if cls in WIDTHS:
        return WIDTHS[cls]
    m = re.search(r'_(\d+)', cls)
    return int(m[1]) if m else 32


def source_type(cls):
    """(kind, type) of a source operand class; kind '' is whatever the format's field takes."""
    m = re.fullmatch(r'VSrc(?:T|Fake16|_NoInline)?_(v2)?(\w+?)(?:_splat|_Lo128)?', cls)
    if m:
        return '', ('p' if m[1] else '') + m[2]
    m = re.fullmatch(r'VCSrcT?_(v2)?(\w+?)(?:_Lo256)?', cls)
    if m:
        return 'c', ('p' if m[1] else '') + m[2]
    m = re.fullmatch(r'SSrc(?:OrLds)?_(\w+)', cls)
    if m:
        return ('', 'mask') if m[1] == 'i1' else ('s', m[1])
    m = re.fullmatch(r'SCSrc_(\w+)', cls)
    if m:
        return 'sc', m[1]
    m = re.fullmatch(r'(VI|AI)Src_(\d+)_(\w)(\d+)', cls)
    if m:
        return 'vi', f'b{m[2]}'
    m = re.fullmatch(r'(VI|AI)Src_(\d+)_bf16', cls)
    if m:
        return 'vi', f'b{m[2]}'
    m = re.fullmatch(r'AVSrc_(\d+)(_Align2)?', cls)
    if m:
        return '', f'b{m[1]}'
    if cls.startswith('ARegSrc'):
        return 'a', 'b32'
    if cls in ('VRegOrLdsSrc_32',):
        return 'vl', 'b32'
    if cls in ('VRegSrc_fake16', 'VRegSrc_16'):
        return 'v', 'f16'
    if cls in ('VCSrc_b32_Lo256',):
        return 'c', 'b32'
    return 'v', f'b{width(cls)}'


SUFFIX = re.compile(r'(?<![a-z0-9])(b|i|u|f|bf)(8|16|32|64)(?![0-9])')


def refine(ty, name, dst):
    """b32 -> i32, u32 or f32 when the mnemonic says so; destinations take the first such word, sources the last."""
    m = re.fullmatch(r'b(16|32|64)', ty)
    if not m:
        return ty
    every = [a + b for a, b in SUFFIX.findall(name)]
    if dst and name.startswith('v_cvt_'):
        first = re.sub(r'^v_cvt_((pk|sr|norm|scale|scalef32|flr|rpi|off|2xpk16|pk16|pk32|pk8)_)*', '', name).split('_')[0]
        every = [first] if first in every and '_pk' not in name else []
    every = every[:1] if dst else every
    found = [x for x in every if x.endswith(m[1])]
    if not found:
        return ty
    pick = found[0] if dst else found[-1]
    return pick if dst or pick[0] in 'iu' else ty


IMM = {'s16imm': 's16', 'u16imm': 'u16', 'i16imm': 'i16', 'i32imm': 'i32', 'hwreg': 'hwreg', 'SOPPBrTarget': 'label', 'SendMsg': 'msg',
       'SWaitCnt': 'waitcnt', 'DepCtr': 'depctr', 'SDelayALU': 'delay', 'Endpgm': 'endpgm', 'VersionImm': 'version',
       'GPRIdxMode': 'gpridx', 'KImmFP32': 'k32', 'KImmFP16': 'k16', 'KImmFP64': 'k64', 'SplitBarrier': 'barrier', 'i8imm': 'i8'}


# Classes that only operations on real 16-bit registers use, in either their true16 or fake16 form.
HALVES = r'_t16|VSrcT_|VGPROp_16|VCSrcT_|VRegSrc_16|VRegSrc_fake16|VSrcFake16|Lo128|anonymous_(15618|20995|21118|15646|21000|15653|15717|15722)\b'


def vop_signature(name, byfmt, half_dst):
    """Operand types and words of a VALU operation from its richest encoding."""
    for fmt in ('VOP3', 'VOP3P', 'MAI', 'WMMA', 'VINTERP', 'VINTRP', 'LDSDIR', 'VOP1', 'VOP2', 'VOPC', 'VOP2K', 'SDWA', 'DPP'):
        if fmt in byfmt:
            break
    rs = byfmt[fmt]
    r = next((x for x in rs if x['variant'] == 'fake16'), rs[0])
    e32 = next((x for f in ('VOPC', 'VOP2') for x in byfmt.get(f, [])), None)
    t16 = any(re.search(HALVES, x['ins'] + x['outs']) for v in byfmt.values() for x in v)
    opsel_row = next((x for x in rs if 'op_sel:' in x['ins'] and x['variant'] == 'fake16'), None)
    fl = fields(r)
    ins, outs = operands(r['ins']), operands(r['outs'])
    mods = {n[:-10]: c for n, c in ins if n.endswith('_modifiers')}
    dst, src, words = [], [], []
    tied = {n for n, _ in ins} & {'vdst_in', 'srcTiedDef', 'sdst_in'}
    for n, c in outs:
        if n == 'vdst1':
            continue
        if c.startswith('VOPDstS64') or c == 'SDWAVopcDst':
            ty, kind = 'mask', ''
        else:
            kind = 's.' if n == 'vdst' and (c.startswith('SReg') or c in ('anonymous_24992', 'anonymous_29850')) else ''
            ty = f'b{width(c)}'
            if c == 'ADst_32':
                kind = 'a.'
            if c in ('VOPDstOperand_t16', 'VOPDstOperand_t16Lo128'):
                ty = 'b32'
            ty = refine(ty, name, True)
            if half_dst and n == 'vdst' and not kind:
                ty = half_dst
        plus = '+' if tied and n == 'vdst' else ''
        if n == 'vdst' and any(k in ('src2', ) and k not in fl and (c2.startswith(('VGPR', 'anonymous', 'VOPD')) or c2.endswith('Align2')) for k, c2 in ins):
            plus = '+'
        dst.append(f'{kind}{ty}{plus}')
    if fmt in ('VOPC',) or (name.startswith('v_cmp') and not name.startswith('v_cmpx') and not dst):
        dst = ['mask']
    if name.startswith('v_swap') or re.match(r'v_permlane\d+_swap', name):
        return ('b16+ b16+' if 'b16' in name else 'b32+ b32+', '', ['permctl'] if 'perm' in name else ['t16'] if t16 else [])
    order = re.findall(r'\$(\w+)', r['asm'])
    for n, c in ins:
        base = n
        if c in ('VRegSrc_16', 'VRegSrc_fake16') and fmt == 'VINTERP':
            pass
        if n.endswith('_modifiers') or n in ('old', 'vdst_in', 'srcTiedDef', 'sdst_in') or (n not in fl and n not in ('imm',)):
            if not (n == 'src1' and name.startswith('v_swap')):
                continue
        if n in ('clamp', 'omod', 'op_sel', 'op_sel_hi', 'neg_lo', 'neg_hi', 'cbsz', 'abid', 'blgp', 'dpp_ctrl', 'row_mask', 'bank_mask',
                 'bound_ctrl', 'fi', 'dpp8', 'byte_sel', 'bitop3', 'scale_sel', 'waitexp', 'waitvdst', 'waitvsrc', 'high', 'dst_sel', 'dst_unused',
                 'src0_sel', 'src1_sel') or n.startswith(('index_key', 'matrix_')):
            continue
        if n == 'vdst':
            dst.append(f'b{width(c)}')
            continue
        if c in IMM:
            src.append(IMM[c])
            continue
        if n in ('attr', 'attrchan'):
            src.append(n)
            continue
        if c == 'InterpSlot':
            src.append('slot')
            continue
        kind, ty = source_type(c)
        ty = refine(ty, name, False)
        m = mods.get(n, '')
        flag = ''
        isf = re.fullmatch(r'p?b?f\d+', ty) is not None
        packed = fmt in ('VOP3P', 'WMMA', 'MAI')
        if packed:
            if m == '' and fmt != 'MAI' and not (fmt == 'WMMA'):
                flag = '-'
            if m and fmt == 'WMMA':
                flag = '+'
        elif re.match(r'FP(16|32|64)|FPV|FP32T16|PackedF16|PackedVGPR', m) or m in ('anonymous_20995', 'anonymous_20948', 'anonymous_15646', 'anonymous_20957'):
            flag = '' if isf else '+'
        elif m.startswith(('Int32InputMods', 'IntVReg', 'Int32T16', 'PackedI16')):
            flag = '~'
        elif m.startswith('IntOpSel') or m in ('anonymous_21118', 'anonymous_21077'):
            flag = '-' if isf else ''
        else:
            flag = '-' if isf else ''
        src.append((f'{kind}.' if kind else '') + ty + flag)
    has = {n for n, _ in ins}
    for w in ('clamp', 'omod', 'byte_sel', 'bitop3', 'scale_sel', 'waitexp', 'waitvdst', 'waitvsrc', 'high', 'cbsz', 'abid', 'blgp',
              'matrix_a_fmt', 'matrix_b_fmt', 'matrix_a_scale', 'matrix_b_scale', 'matrix_a_scale_fmt', 'matrix_b_scale_fmt',
              'matrix_a_reuse', 'matrix_b_reuse', 'index_key_8bit', 'index_key_16bit', 'index_key_32bit', 'neg_lo', 'neg_hi', 'op_sel_hi'):
        if w in has and w in (order + ['op_sel_hi', 'neg_lo', 'neg_hi']):
            words.append(w.replace('_', ''))
    if ('op_sel' in has or opsel_row is not None) and 'op_sel' in order:
        words.append('opsel')
    if {'neglo', 'neghi', 'opselhi', 'opsel'} <= set(words):
        words = [w for w in words if w not in ('neglo', 'neghi', 'opselhi', 'opsel')] + ['pk']
    if t16:
        words.append('t16')
    # the carry or select mask that e32 forms take from VCC
    return (' '.join(dst), ' '.join(src), words)


def plain_signature(name, fmt, rs):
    """Operands of scalar formats, in assembly order."""
    r = rs[0]
    fl = fields(r)
    outs, ins = operands(r['outs']), operands(r['ins'])
    tied = any(n in ('sdst_in',) or (n == 'src0' and 'src0' not in fl and fmt == 'SOPK') or (n == 'src2' and n not in fl) for n, _ in ins)
    dst = [refine(f'b{width(c)}', name, True) + ('+' if tied else '') for n, c in outs]
    src = []
    order = re.findall(r'\$(\w+)', r['asm'])
    named = {n: c for n, c in ins}
    for n in order:
        if n not in named:
            continue
        c = named[n]
        default = {'SOP1': 'src0', 'SOP2': 'src0 src1', 'SOPC': 'src0 src1', 'SOPK': 'simm16 imm', 'SOPP': 'simm16'}[fmt].split()
        pre = '' if n in default or n == 'imm' else n + ':'
        if c in IMM:
            src.append(pre + IMM[c])
        elif c.startswith('SSrc') or c.startswith('SCSrc'):
            src.append(pre + ('sc.' if c.startswith('SC') else '') + refine(c.split('_')[1], name, False))
        else:
            src.append(pre + ('r.' if c.startswith('SReg') and fmt != 'SOPK' else '') + refine(f'b{width(c)}', name, False))
    return (' '.join(dst), ' '.join(src), [])


def memory_signature(name, fmt, rs):
    """Operands of memory formats; addressing modes and returning forms are one row."""
    words = []
    def vis(r):
        return [x for x in re.findall(r'\$(\w+)', r['asm'])]
    rtn = [r for r in rs if r['outs']]
    non = [r for r in rs if not r['outs']]
    atomic = bool(rtn and non and '_load_' not in name)
    best = max(rtn or non, key=lambda r: len([1 for n, _ in operands(r['ins']) if n in ('vaddr', 'saddr', 'soffset', 'offset')]))
    lds = any(re.search(r' lds\b', r['asm']) for r in rs)
    fl = fields(best)
    ins, outs = operands(best['ins']), operands(best['outs'])
    dst, src = [], []
    if fmt in ('MUBUF', 'MTBUF'):
        datas = sorted({width(c) for r in rs for n, c in operands(r['outs'] + ' ' + r['ins']) if n == 'vdata' and not re.search(r' lds\b', r['asm'])})
        nontfe = min(datas) if datas else 0
        tfe = len(datas) > 1
        isdst = any(n == 'vdata' for n, _ in outs)
        tied = any(n in ('vdata_in', 'vdst_in') for r in rs for n, _ in operands(r['ins']))
        has_addr = any(n == 'srsrc' for r in rs for n, _ in operands(r['ins']))
        if datas:
            t = f'vdata:b{nontfe}'
            if isdst and not atomic:
                dst.append(t + ('+' if tied else ''))
            else:
                src.append(t)
        if has_addr:
            src += ['vaddr', 'srsrc', 'soffset']
        if atomic:
            words.append('atomic')
        if tfe:
            words.append('tfe')
        if lds:
            words.append('lds' if datas else 'ldsonly')
        if not has_addr and 'cpol' in {n for n, _ in ins}:
            words.append('cpol')
        return (' '.join(dst), ' '.join(src), words)
    order = vis(best)
    tied = {n for n, _ in ins} & {'vdst_in', 'sdst_in', 'vdata_in'}
    for n, c in outs:
        dst.append(f'{n}:b{width(c)}' + ('+' if tied else ''))
    named = {n: c for n, c in ins}
    seen = []
    for r in sorted(rs, key=lambda r: -len(r['ins'])):
        for n in vis(r):
            if n not in seen and n in {k for k, _ in operands(r['ins'])}:
                seen.append(n)
    for n in order:
        if n in named and n in ('addr', 'data0', 'data1', 'vaddr', 'vdata', 'saddr', 'sdata', 'sbase', 'soffset') or (fmt == 'SMEM' and n == 'offset'):
            c = named[n]
            if fmt == 'SMEM' and n in ('soffset', 'offset'):
                if 'soff' not in src:
                    src.append('soff')
                continue
            if n in ('addr', 'vaddr', 'saddr'):
                src.append(n)
            elif c in IMM:
                src.append(f'{n}:{IMM[c]}')
            else:
                src.append(f'{n}:b{width(c)}')
    if fmt == 'SMEM':
        data = next((c for r in rs for n, c in operands(r['ins']) if n == 'sdata'), None)
        if atomic:
            src = [f'sdata:b{width(data)}'] + [s for s in src if not s.startswith('sdata')]
        if any('cpol' in r['fields'] or 'cpol' in r['ins'] for r in rs):
            words.append('cpol')
    if fmt in ('GLOBAL', 'SCRATCH', 'FLAT'):
        modes = {('vaddr' in fields(r), 'saddr' in fields(r)) for r in rs}
        has_v, has_s = any(v for v, _ in modes), any(s for _, s in modes)
        data = [s for s in src if s.startswith('vdata')]
        if not data:
            data = [f'vdata:b{width(c)}' for r in rs[:1] for n, c in operands(r['ins']) if n == 'vdata']
        src = (['vaddr'] if has_v else []) + data + (['saddr'] if has_s else [])
        if fmt == 'GLOBAL' and has_s and not has_v:
            words.append('addtid')
        if 'offset' not in fl:
            words.append('nooffset')
        if not any('cpol' in fields(r) for r in rs):
            words.append('nocpol')
        if name.startswith(('global_load_lds', 'scratch_load_lds')):
            words.append('ldsdma')
        elif lds:
            words.append('lds')
    if fmt == 'DS':
        names = {n for n, _ in ins}
        if 'offset0' in names:
            words.append('offset2')
        elif 'offset' in names:
            words.append('swz' if named['offset'] == 'Swizzle' else 'offset')
        if 'gds' in names:
            words.append('gds')
        elif re.search(r' gds\b', best['asm']):
            words.append('gdsonly')
            src = ['gdata:b32' if x.startswith('data0') else x for x in src]
        atomic = False
    if atomic:
        words.append('atomic')
        words.append('') if False else None
    return (' '.join(dst), ' '.join(src), words)


def opcode(r, fmt, fam):
    lo, n = OPCODE_BY_FAMILY.get((fmt, fam)) or OPCODE[fmt]
    x = (int(r['fixed'], 16) >> lo) & ((1 << n) - 1)
    if fmt == 'MIMG' and fam >= 10:
        x |= (int(r['fixed'], 16) & 1) << 7
    if fmt == 'MTBUF' and fam == 10:
        x |= ((int(r['fixed'], 16) >> 53) & 1) << 3
    return x


def half_destinations(facts):
    """Operations whose VGPR destination is one 16-bit half, with its type: as the targets with real 16-bit registers have it."""
    out = {}
    for target in ('gfx1150', 'gfx1100', 'gfx1200', 'gfx950'):
        for r in rows(f'{facts}/{target}.tsv'):
            if r['format'].startswith(('VOP', 'VINTERP', 'SDWA')) and not r['format'].startswith('VOPD'):
                op = canon(r['mnemonic'], FAMILY[target])
                m = SUFFIX.findall(op)
                t16 = 'VOPDstOperand_t16' in r['outs']
                named = m and m[0][1] == '16' and not re.search(r'_pk|pack|swap|^v_cmp|_s_|dot2_|mad_[iu]32|sad|v_s_|bf16f32|wmma|mfma|mmac|lerp|perm|interp_p10', op)
                if t16 or (named and target in ('gfx950', 'gfx1200') and 'vdst' in r['outs'] and width(r['outs'].split()[0].split(':')[1]) == 32):
                    out.setdefault(op, ''.join(m[0]) if m and m[0][1] == '16' else 'b16')
    return out


def target_ops(facts, target, half):
    """op -> (mnemonic, destinations, sources, words, {format: opcode}) of one target."""
    fam = FAMILY[target]
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for r in rows(f'{facts}/{target}.tsv'):
        fmt, name = r['format'], r['mnemonic']
        if fmt.startswith('VOPD') or name.endswith('_pad_s_nop') or name == 's_version' and False:
            continue
        if fmt in ('MUBUF', 'MTBUF') and (r['bytes'] == '12') != (fam >= 12):
            continue
        if fmt in ('MIMG', 'VIMAGE', 'VSAMPLE', 'EXP'):
            continue
        if name in ('v_mul_legacy_f32',) and fam >= 11 or name in ('v_pk_min_f16', 'v_pk_max_f16') and fam >= 12:
            continue
        base = name[:-4] if name.endswith('_e32') else name
        groups[canon(name, fam)][FORMAT.get(fmt, fmt)].append(r | {'base': base})
    out = {}
    for op, byfmt in groups.items():
        names = {r['base'] for v in byfmt.values() for r in v}
        name = sorted(names)[0] if len(names) == 1 else min(names, key=len)
        first = next(iter(byfmt))
        if first in ('SOP1', 'SOP2', 'SOPC', 'SOPK', 'SOPP'):
            dst, src, words = plain_signature(op, first, byfmt[first])
        elif first in ('SMEM', 'DS', 'FLAT', 'GLOBAL', 'SCRATCH', 'MUBUF', 'MTBUF') or name.startswith('tensor_'):
            if name.startswith('tensor_'):
                continue
            dst, src, words = memory_signature(op, first, byfmt[first])
        else:
            dst, src, words = vop_signature(op, byfmt, half.get(op))
        encs = {}
        for fmt, rs in byfmt.items():
            if fmt in ('SDWA', 'DPP', 'DPP8', 'DPP3'):
                encs[fmt] = None
            else:
                ops = {opcode(r, fmt, fam) for r in rs}
                if fmt == 'MAI' and any(r['bytes'] == '16' for r in rs):
                    fmt = 'MAI16'
                if fmt == 'MAI' and any(r['bytes'] == '4' for r in rs):
                    encs['VOP1A'] = {(int(r['fixed'], 16) >> 9) & 255 for r in rs}.pop()
                    continue
                if fmt == 'WMMA' and any(r['bytes'] == '16' for r in rs):
                    fmt = 'WMMA16'
                    ops = {(int(r['fixed'], 16) >> 80) & 127 for r in rs}
                if fmt == 'VOP3' and rs[0]['bytes'] == '12':
                    fmt = 'TENSOR'
                if len(ops) > 1:
                    print('opcodes', target, op, fmt, ops, file=sys.stderr)
                encs[fmt] = min(ops)
        reads = implicit(op, byfmt, 'uses')
        writes = implicit(op, byfmt, 'defs')
        for reg in reads:
            words.append('<' + reg)
        for reg in writes:
            words.append('>' + reg)
        out[op] = (name, dst, src, words, encs)
    return out


def implicit(op, byfmt, column):
    """Implicit scalar registers besides EXEC and MODE; VCC that a mask operand names explicitly does not count."""
    found = set()
    for fmt, rs in byfmt.items():
        if fmt in ('SDWA', 'DPP', 'DPP8', 'VOPC', 'VOP2') and any(f in byfmt for f in ('VOP3', 'VOP3P')):
            continue
        for r in rs:
            found |= set(r[column].split())
    if all('M0' not in r[column].split() for v in byfmt.values() for r in v[-1:]):
        found.discard('M0')
    found -= {'MODE', 'FLAT_SCR'} if column == 'uses' else set()
    if column == 'uses':
        found.discard('EXEC') if not op.startswith('s_') else None
    if op.startswith(('v_cmp', 'v_add', 'v_sub', 'v_cndmask')):
        found.discard('VCC')
    return sorted(w.lower() for w in found)


VOP3_BASE = {'VOP1': {8: 0x140, 9: 0x140, 10: 0x180, 11: 0x180, 12: 0x180}, 'VOP2': {f: 0x100 for f in range(8, 13)}, 'VOPC': {f: 0 for f in range(8, 13)}}


def encoding_text(encs, fam):
    out = []
    for fmt, op in encs.items():
        if op is None:
            out.append(fmt)
        elif fmt == 'VOP3' and any(b in encs and encs[b] is not None and encs[b] + VOP3_BASE[b][fam] == op for b in VOP3_BASE):
            out.append('VOP3')
        else:
            out.append(f'{fmt}={op:02x}')
    order = ['SOP1', 'VOP1', 'VOP1A', 'VOP2', 'VOPC', 'VOP2K', 'VOP3', 'VOP3P', 'SDWA', 'DPP', 'DPP8', 'DPP3']
    out.sort(key=lambda w: order.index(w.split('=')[0]) if w.split('=')[0] in order else 0)
    return ' '.join(out)


FILES = [('sop', 'Scalar ALU and program control', r's_(?!.*(?:load|store|atomic|dcache|memtime|memrealtime|atc_probe|gl1|prefetch|get_waveid)).*'),
         ('smem', 'Scalar memory', r's_.*'), ('ds', 'Local and global data share', r'(ds_|lds_).*'),
         ('buffer', 'Buffer memory', r't?buffer_.*'), ('flat', 'Flat, global and scratch memory', r'(flat|global|scratch|cluster|tensor)_.*'),
         ('matrix', 'Matrix instructions', r'v_(s?mfma|smfmac|s?w?mmac|swmmac|wmma|mfma|accvgpr).*'),
         ('vcmp', 'Vector compares', r'v_cmp.*'), ('valu', 'Vector ALU', r'v_.*')]


def main():
    facts, tables = sys.argv[1:3]
    half = half_destinations(facts)
    all_ops = {t: target_ops(facts, t, half) for t, _ in TARGETS}
    parent = dict(TARGETS)
    names = sorted({op for ops in all_ops.values() for op in ops})
    texts = collections.defaultdict(list)
    for op in names:
        segs, sig0 = [], None
        for t, p in TARGETS:
            mine = all_ops[t].get(op)
            up = all_ops[p].get(op) if p else None
            if mine is None:
                if up is not None:
                    segs.append(f'{t} -')
                continue
            name, dst, src, words, encs = mine
            sig = f'{dst} <- {src}'.strip() + (' : ' + ' '.join(words) if words else '')
            enc = encoding_text(encs, FAMILY[t])
            parts = []
            if up is None:
                if sig0 is None:
                    sig0 = sig
                elif sig != sig0:
                    parts.append(f'({sig})')
                if name != op:
                    parts.append(':' + name)
                parts.append(enc)
            else:
                usig = f'{up[1]} <- {up[2]}'.strip() + (' : ' + ' '.join(up[3]) if up[3] else '')
                uenc = encoding_text(up[4], FAMILY[p])
                if name != up[0]:
                    parts.append(':' + name)
                if sig != usig:
                    if (dst, src) == (up[1], up[2]):
                        parts += ['+' + w for w in words if w not in up[3]] + ['-' + w for w in up[3] if w not in words]
                    else:
                        parts.append(f'({sig})')
                if enc != uenc:
                    parts.append(enc)
            if parts:
                segs.append(t + ' ' + ' '.join(parts))
        texts[next(f for f, _, rx in FILES if re.fullmatch(rx, op))].append((op, sig0, segs))
    for f, title, _ in FILES:
        w = max(len(op) for op, _, _ in texts[f])
        v = min(60, max(len(s) for _, s, _ in texts[f]))
        with open(f'{tables}/{f}.isa', 'w') as out:
            out.write(f'# {title}. Grammar: README.md in this directory.\n\n')
            for op, sig, segs in texts[f]:
                out.write(f'{op:{w}}  {sig:{v}} | ' + ' | '.join(segs) + '\n')


main()
