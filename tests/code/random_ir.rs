//! Random machine IR through every pass: what the emulated device computes, strictly, is what an interpreter of the machine
//! IR computes from the function before any pass; and the static verifier finds nothing in the code.
//!
//! Functions have values of all integer types and f32, masks, selections, loops, branches, values that are overwritten,
//! LDS that waves exchange values through, and sometimes more values than registers. The interpreter (`interpret`) knows
//! the generic operations by their meaning in `mir::Gen`, and the target instructions that `mir::Builder` uses.

use crate::support::hints;
use barewave::codeobj::{Abi, Arg, CodeObject};
use barewave::emu::{EmuDevice, LaunchOptions};
use barewave::mir::{Builder, Code, Function, Gen, Generic, MInst, Opnd, Part, RegClass, Type};
use barewave::tensor::SplitMix64;
use barewave::{compile, passes, verify};
use barewave_isa::{ModName, Target, op};
use rayon::prelude::*;

const TARGETS: [&str; 9] =
    ["gfx803", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx1010", "gfx1030", "gfx1100", "gfx1201"];

/// Functions of each target.
const FUNCTIONS: u64 = 300;

const THREADS: u32 = 128;
/// Words of input and output of each workitem.
const WORDS: u32 = 4;

/// Types that values have.
const TYPES: [Type; 9] =
    [Type::U32, Type::I32, Type::U16, Type::I16, Type::U8, Type::I8, Type::U64, Type::I64, Type::F32];

struct Rng(SplitMix64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n.max(1) as u64) as usize
    }
    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

struct Generator {
    rng: Rng,
    b: Builder,
    /// Values that may be read, with their types.
    values: Vec<(Part, Type)>,
    /// Scalars that may be read.
    scalars: Vec<Part>,
    /// Values that may be overwritten.
    variables: Vec<Part>,
    masks: Vec<Part>,
}

impl Generator {
    fn constant(&mut self, t: Type) -> Opnd {
        let bits =
            self.rng.pick(&[0, 1, 2, 7, 63, 64, 255, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xdead_beef, u64::MAX]);
        Opnd::Imm(match t {
            Type::F32 => u64::from(self.rng.pick(&[0.0f32, 1.0, -2.0, 0.5, 3.25, 1e20, -1e-20]).to_bits()),
            t if t.bits() == 64 => bits & 0xffff_ffff,
            t => bits & ((1 << t.bits()) - 1),
        })
    }

    fn operand(&mut self, t: Type) -> Opnd {
        let fitting: Vec<Part> =
            self.values.iter().filter(|(_, u)| u.unsigned() == t.unsigned()).map(|(p, _)| *p).collect();
        if fitting.is_empty() || self.rng.chance(15) { self.constant(t) } else { self.rng.pick(&fitting).into() }
    }

    fn vector(&mut self, t: Type) -> Opnd {
        let fitting: Vec<Part> =
            self.values.iter().filter(|(_, u)| u.unsigned() == t.unsigned()).map(|(p, _)| *p).collect();
        if fitting.is_empty() { self.constant(t) } else { self.rng.pick(&fitting).into() }
    }

    fn operation(&mut self) {
        const OPS: [Gen; 19] = [
            Gen::Add,
            Gen::Sub,
            Gen::Mul,
            Gen::MulHi,
            Gen::Mad,
            Gen::And,
            Gen::Or,
            Gen::Xor,
            Gen::Not,
            Gen::Shl,
            Gen::Shr,
            Gen::Min,
            Gen::Max,
            Gen::Neg,
            Gen::Fma,
            Gen::Abs,
            Gen::Floor,
            Gen::Trunc,
            Gen::Select,
        ];
        let t = self.rng.pick(&TYPES);
        let o = self.rng.pick(&OPS);
        // which zero a minimum gives is open
        if !o.takes(t) || t == Type::F32 && matches!(o, Gen::Min | Gen::Max) {
            return;
        }
        let g = o.of(t);
        let mut srcs = Vec::new();
        for i in 0..o.sources() {
            srcs.push(match (o, i) {
                (Gen::Shl | Gen::Shr, 1) => Opnd::Imm(self.rng.below(t.bits() as usize) as u64),
                (Gen::Select, 0) => match self.masks.is_empty() {
                    true => return,
                    false => self.rng.pick(&self.masks).into(),
                },
                // at least one operand per lane
                (_, 0) | (Gen::Select, 1) => self.vector(t),
                _ => self.operand(t),
            });
        }
        if !srcs.iter().any(|s| self.b.is_vector(*s)) {
            return;
        }
        let p = self.b.generic(g, &srcs);
        self.values.push((p, t));
    }

    fn comparison(&mut self) {
        let t = self.rng.pick(&[Type::U32, Type::I32, Type::F32]);
        let o = self.rng.pick(&[Gen::CmpEq, Gen::CmpNe, Gen::CmpLt, Gen::CmpLe, Gen::CmpGt, Gen::CmpGe]);
        let (x, y) = (self.vector(t), self.operand(t));
        if self.b.is_vector(x) {
            let m = self.b.generic(o.of(t), &[x, y]);
            self.masks.push(m);
        }
    }

    fn scalar(&mut self) {
        let o = self.rng.pick(&[Gen::Add, Gen::Sub, Gen::Mul, Gen::And, Gen::Or, Gen::Xor, Gen::Min, Gen::Max]);
        let (x, y) = (self.rng.pick(&self.scalars), self.constant(Type::U32));
        let y = if self.rng.chance(50) { y } else { self.rng.pick(&self.scalars).into() };
        let p = self.b.generic(o.of(Type::U32), &[x.into(), y]);
        self.scalars.push(p);
        if self.rng.chance(50) {
            let v = self.b.to_vector(p);
            self.values.push((v, Type::U32));
        }
    }

    fn overwrite(&mut self) {
        let v = self.rng.pick(&self.variables);
        let x = self.vector(Type::U32);
        if self.rng.chance(50) {
            self.b.copy_into(v, x);
        } else {
            let sum = self.b.generic(Gen::Xor.of(Type::U32), &[v.into(), x]);
            self.b.copy_into(v, sum);
        }
    }

    /// Waves exchange values through LDS.
    fn exchange(&mut self) {
        let at = self.b.lds(THREADS * 4);
        let item = self.b.workitem_id();
        let flip = self.rng.pick(&[1u32, 2, 31, 63, 64, 127]);
        let mine = self.b.shl(item, 2u32);
        let Opnd::V(x) = self.vector(Type::U32) else { return };
        self.b.lds_write(mine, x, at);
        self.b.barrier();
        let other = self.b.generic(Gen::Xor.of(Type::U32), &[item.into(), Opnd::Imm(flip.into())]);
        let theirs = self.b.shl(other, 2u32);
        let y = self.b.lds_read(1, theirs, at);
        self.values.push((y, Type::U32));
    }

    fn steps(&mut self, n: usize, depth: usize) {
        for _ in 0..n {
            match self.rng.below(20) {
                0 | 1 => self.comparison(),
                2 | 3 => self.scalar(),
                4 | 5 => self.overwrite(),
                6 if depth == 0 => self.exchange(),
                7 if depth < 2 => self.nested(depth),
                _ => self.operation(),
            }
        }
    }

    /// A loop or a branch; what is made inside is not seen outside.
    fn nested(&mut self, depth: usize) {
        let seen = (self.values.len(), self.scalars.len(), self.masks.len());
        let n = 2 + self.rng.below(8);
        if self.rng.chance(50) {
            let turns = 1 + self.rng.below(4) as u32;
            let i = self.b.scalar(0);
            let head = self.b.block("loop");
            self.scalars.push(i);
            self.steps(n, depth + 1);
            self.overwrite();
            self.b.emit(op::S_ADD_U32, &[i.into()], &[i.into(), 1u32.into()]);
            self.b.emit(op::S_CMP_LT_U32, &[], &[i.into(), turns.into()]);
            self.b.emit(op::S_CBRANCH_SCC1, &[], &[Opnd::Block(head)]);
            self.b.block("after");
        } else {
            let skip = self.b.label();
            let x = self.rng.pick(&self.scalars);
            let limit = self.rng.pick(&[0u32, 5, 1000, 0x8000_0000]);
            self.b.branch_lt(x, limit, skip);
            self.steps(n, depth + 1);
            self.overwrite();
            self.b.place(skip, "join");
        }
        self.values.truncate(seen.0);
        self.scalars.truncate(seen.1);
        self.masks.truncate(seen.2);
    }
}

/// A function that reads its input and writes what it made of it.
fn function(target: Target, seed: u64) -> Function {
    let mut rng = Rng(SplitMix64(seed));
    let mut b = Builder::new(target, "k", THREADS);
    let bytes = THREADS * WORDS * 4;
    let (input, output) = (b.buffer_arg(0, bytes), b.buffer_arg(1, bytes));
    let item = b.workitem_id();
    let at = b.shl(item, 4u32);
    let wide = b.load(input, 4, at, Opnd::Imm(0), 0);
    let group = b.workgroup_id(0);
    let first = b.scalar(3);
    let mut g = Generator {
        rng: Rng(SplitMix64(seed ^ 0x5555)),
        b,
        values: vec![],
        scalars: vec![group, first],
        variables: vec![],
        masks: vec![],
    };
    for i in 0..4 {
        let x = g.b.to_vector(wide.dword(i));
        g.variables.push(x);
        g.values.push((x, Type::U32));
        g.values.push((wide.dword(i), Type::I32));
        g.values.push((wide.dword(i), if i % 2 == 0 { Type::U16 } else { Type::I8 }));
    }
    g.values.extend([(wide.slice(0, 2), Type::U64), (wide.slice(2, 2), Type::I64), (item, Type::U32)]);
    // numbers that are no NaN and not huge
    for i in 0..2 {
        let small = g.b.generic(Gen::And.of(Type::U32), &[wide.dword(i).into(), Opnd::Imm(0x807f_ffff)]);
        let float = g.b.generic(Gen::Or.of(Type::U32), &[small.into(), Opnd::Imm(0x3f00_0000)]);
        // a copy has no type of its own
        let float = g.b.to_vector(float);
        g.values.push((float, Type::F32));
    }
    let steps = if rng.chance(10) { 400 } else { 10 + rng.below(60) };
    g.steps(steps, 0);
    // all that was made reaches the output: integers mixed, the float by itself
    let mixed = g.b.to_vector(0u32);
    for (p, t) in g.values.clone() {
        let words: Vec<Opnd> = match t {
            Type::F32 => continue,
            t if t.bits() == 64 => vec![p.dword(0).into(), p.dword(1).into()],
            t if t.bits() == 32 => vec![p.into()],
            // the bits above are unspecified
            t => {
                let mask = Opnd::Imm((1 << t.bits()) - 1);
                vec![g.b.generic(Gen::And.of(Type::B32), &[p.into(), mask]).into()]
            }
        };
        for w in words {
            let w = g.b.to_vector(w);
            let m = g.b.generic(Gen::Mul.of(Type::U32), &[mixed.into(), Opnd::Imm(31)]);
            let m = g.b.generic(Gen::Add.of(Type::U32), &[m.into(), w.into()]);
            g.b.copy_into(mixed, m);
        }
    }
    let float = g.values.iter().rev().find(|v| v.1 == Type::F32).map_or(mixed, |v| v.0);
    g.b.store(output, mixed, at, Opnd::Imm(0), 0);
    g.b.store(output, float, at, Opnd::Imm(0), 4);
    for (i, v) in [(2, g.variables[0]), (3, g.variables[1])] {
        g.b.store(output, v, at, Opnd::Imm(0), 4 * i);
    }
    g.b.finish()
}

/// A wave of the interpreter: 64 lanes of every dword of every virtual register (scalars in lane 0).
struct Wave {
    first: u32,
    lanes: usize,
    units: Vec<[u32; 64]>,
    scc: bool,
    at: (usize, usize),
    done: bool,
}

struct Machine<'a> {
    f: &'a Function,
    base: Vec<usize>,
    memory: [Vec<u32>; 2],
    lds: Vec<u32>,
}

impl<'a> Machine<'a> {
    fn new(f: &'a Function, input: &[u32]) -> (Machine<'a>, Vec<Wave>) {
        let mut base = vec![0];
        f.vregs.iter().for_each(|v| base.push(base[base.len() - 1] + v.dwords as usize));
        let lanes = f.target.info().wave_size as usize;
        let units = base[base.len() - 1];
        let memory = [input.to_vec(), vec![0; input.len()]];
        let m = Machine { f, base, memory, lds: vec![0; f.lds_bytes as usize / 4] };
        let waves = (0..THREADS as usize / lanes).map(|n| {
            let mut w = Wave {
                first: (n * lanes) as u32,
                lanes,
                units: vec![[0; 64]; units],
                scc: false,
                at: (0, 0),
                done: false,
            };
            if let Some(v) = f.preloads.workitem_id {
                let first = w.first;
                w.units[m.base[v.0 as usize]] = std::array::from_fn(|i| first + i as u32);
            }
            w
        });
        let waves = waves.collect();
        (m, waves)
    }

    /// Runs all waves to their end; they meet at barriers.
    fn run(&mut self, waves: &mut [Wave]) {
        while waves.iter().any(|w| !w.done) {
            for w in waves.iter_mut().filter(|w| !w.done) {
                let mut steps = 0;
                while self.step(w) {
                    steps += 1;
                    assert!(steps < 1_000_000, "the interpreter does not come to an end");
                }
            }
        }
    }

    fn unit(&self, p: Part, dword: usize) -> usize {
        self.base[p.reg.0 as usize] + p.first as usize + dword
    }

    /// 64 bits of an operand in a lane.
    fn read(&self, w: &Wave, o: Opnd, lane: usize) -> u64 {
        match o {
            Opnd::V(p) => {
                let lane = if self.f.vreg(p.reg).class == RegClass::S { 0 } else { lane };
                let word = |i: usize| u64::from(w.units[self.unit(p, i)][lane]);
                if p.len > 1 { word(0) | word(1) << 32 } else { word(0) }
            }
            Opnd::Imm(v) => v,
            // the trap registers that hold workgroup ids: the only workgroup is number 0
            _ => 0,
        }
    }

    /// A bit of a mask.
    fn bit(&self, w: &Wave, o: Opnd, lane: usize) -> bool {
        let Opnd::V(p) = o else { panic!("a mask is a register") };
        w.units[self.unit(p, lane / 32)][0] >> (lane % 32) & 1 == 1
    }

    fn write(&self, w: &mut Wave, o: Opnd, lane: usize, v: u64) {
        let Opnd::V(p) = o else { return };
        for i in 0..p.len as usize {
            let unit = self.unit(p, i);
            w.units[unit][lane] = (v >> (32 * i.min(1))) as u32;
        }
    }

    /// One instruction; false when the wave stands at a barrier or has ended.
    fn step(&mut self, w: &mut Wave) -> bool {
        let (b, i) = w.at;
        let Some(inst) = self.f.blocks[b].insts.get(i) else {
            w.at = (b + 1, 0);
            return true;
        };
        w.at = (b, i + 1);
        match inst.code {
            Code::Gen(g) if g.op == Gen::Barrier => return false,
            Code::Gen(g) => self.generic(w, g, inst),
            Code::Isa(o) => match o {
                op::S_ENDPGM => {
                    w.done = true;
                    return false;
                }
                op::S_BARRIER => return false,
                op::S_CBRANCH_SCC1 | op::S_BRANCH => {
                    if let (true, Some(Opnd::Block(to))) = (w.scc || o == op::S_BRANCH, inst.srcs.first()) {
                        w.at = (to.0 as usize, 0);
                    }
                }
                op::S_CMP_LT_U32 => {
                    let (x, y) = (self.read(w, inst.srcs[0], 0) as u32, self.read(w, inst.srcs[1], 0) as u32);
                    w.scc = x < y;
                }
                op::S_ADD_U32 => {
                    let sum = (self.read(w, inst.srcs[0], 0) as u32).wrapping_add(self.read(w, inst.srcs[1], 0) as u32);
                    self.write(w, inst.dsts[0], 0, sum.into());
                }
                op::S_MOV_B32 | op::S_AND_B32 | op::S_LSHR_B32 => {
                    let x = self.read(w, inst.srcs[0], 0);
                    self.write(w, inst.dsts[0], 0, x);
                }
                // the address of an argument is its number
                op::S_LOAD_DWORDX2 => {
                    let n = self.read(w, inst.srcs[1], 0) / 8;
                    self.write(w, inst.dsts[0], 0, n);
                }
                op::BUFFER_LOAD_DWORD | op::BUFFER_LOAD_DWORDX4 => self.memory(w, inst, false),
                op::BUFFER_STORE_DWORD => self.memory(w, inst, true),
                op::DS_READ_B32 | op::DS_WRITE_B32 => {
                    let offset = inst.mods.get(ModName::Offset).unwrap_or(0) as usize;
                    for lane in 0..w.lanes {
                        let at = (self.read(w, inst.srcs[0], lane) as usize + offset) / 4;
                        if o == op::DS_READ_B32 {
                            let v = self.lds[at];
                            self.write(w, inst.dsts[0], lane, v.into());
                        } else {
                            self.lds[at] = self.read(w, inst.srcs[1], lane) as u32;
                        }
                    }
                }
                other => panic!("the interpreter does not know {other}"),
            },
        }
        true
    }

    fn memory(&mut self, w: &mut Wave, inst: &MInst, stores: bool) {
        let srcs = &inst.srcs[usize::from(stores)..];
        let Opnd::V(desc) = srcs[1] else { panic!("a buffer is described by registers") };
        let argument = w.units[self.unit(desc, 0)][0] as usize;
        let offset = inst.mods.get(ModName::Offset).unwrap_or(0) as u64 + self.read(w, srcs[2], 0);
        for lane in 0..w.lanes {
            let at = ((self.read(w, srcs[0], lane) as u32 as u64 + offset) / 4) as usize;
            let Opnd::V(data) = (if stores { inst.srcs[0] } else { inst.dsts[0] }) else { panic!("data in registers") };
            for i in 0..data.len as usize {
                let unit = self.unit(data, i);
                if stores {
                    self.memory[argument][at + i] = w.units[unit][lane];
                } else {
                    w.units[unit][lane] = self.memory[argument][at + i];
                }
            }
        }
    }

    fn generic(&self, w: &mut Wave, g: Generic, inst: &MInst) {
        let Opnd::V(to) = inst.dsts[0] else { return };
        let scalar = self.f.vreg(to.reg).class == RegClass::S;
        if g.op.compares() {
            let mut mask = 0u64;
            for lane in 0..w.lanes {
                let x: Vec<u64> = inst.srcs.iter().map(|s| self.read(w, *s, lane)).collect();
                mask |= u64::from(compare(g, &x)) << lane;
            }
            self.write(w, inst.dsts[0], 0, mask);
            return;
        }
        for lane in 0..if scalar { 1 } else { w.lanes } {
            let v = match (g.op, &inst.srcs[..]) {
                (Gen::Select, [m, x, y]) => self.read(w, if self.bit(w, *m, lane) { *x } else { *y }, lane),
                (_, srcs) => {
                    let x: Vec<u64> = srcs.iter().map(|s| self.read(w, *s, lane)).collect();
                    evaluate(g, &x)
                }
            };
            self.write(w, inst.dsts[0], lane, v);
        }
    }
}

fn compare(g: Generic, x: &[u64]) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = match g.ty {
        Type::F32 => f32::from_bits(x[0] as u32).partial_cmp(&f32::from_bits(x[1] as u32)),
        Type::I32 => Some((x[0] as i32).cmp(&(x[1] as i32))),
        _ => Some((x[0] as u32).cmp(&(x[1] as u32))),
    };
    match g.op {
        Gen::CmpEq => order == Some(Equal),
        Gen::CmpNe => order != Some(Equal),
        Gen::CmpLt => order == Some(Less),
        Gen::CmpLe => matches!(order, Some(Less | Equal)),
        Gen::CmpGt => order == Some(Greater),
        _ => matches!(order, Some(Greater | Equal)),
    }
}

/// A generic operation by its meaning, on the low bits of its type.
fn evaluate(g: Generic, x: &[u64]) -> u64 {
    if g.ty == Type::F32 {
        let f = |i: usize| f32::from_bits(x[i] as u32);
        let r = match g.op {
            Gen::Add => f(0) + f(1),
            Gen::Sub => f(0) - f(1),
            Gen::Mul => f(0) * f(1),
            Gen::Fma => f(0).mul_add(f(1), f(2)),
            Gen::Floor => f(0).floor(),
            Gen::Trunc => f(0).trunc(),
            Gen::Neg => return (x[0] as u32 ^ 0x8000_0000).into(),
            Gen::Abs => return (x[0] as u32 & 0x7fff_ffff).into(),
            other => panic!("the interpreter does not know {other:?} of f32"),
        };
        return r.to_bits().into();
    }
    let bits = if g.ty == Type::B32 { if g.op == Gen::Copy { 64 } else { 32 } } else { g.ty.bits() };
    let low = |v: i128| if bits == 64 { v as u64 } else { v as u64 & ((1 << bits) - 1) };
    let n = |i: usize| {
        let v = low(x[i].into()) as u128;
        if g.ty.is_signed() { (v << (128 - bits)) as i128 >> (128 - bits) } else { v as i128 }
    };
    low(match g.op {
        Gen::Copy => n(0),
        Gen::Add => n(0) + n(1),
        Gen::Sub => n(0) - n(1),
        Gen::Mul => n(0).wrapping_mul(n(1)),
        Gen::MulHi => (n(0) * n(1)) >> 32,
        Gen::Mad => n(0).wrapping_mul(n(1)) + n(2),
        Gen::And => n(0) & n(1),
        Gen::Or => n(0) | n(1),
        Gen::Xor => n(0) ^ n(1),
        Gen::Not => !n(0),
        Gen::Shl => n(0) << x[1],
        Gen::Shr => n(0) >> x[1],
        Gen::Min => n(0).min(n(1)),
        Gen::Max => n(0).max(n(1)),
        Gen::Neg => -n(0),
        other => panic!("the interpreter does not know {other:?}"),
    })
}

fn interpret(f: &Function, input: &[u32]) -> Vec<u32> {
    let (mut m, mut waves) = Machine::new(f, input);
    m.run(&mut waves);
    m.memory[1].clone()
}

/// What the device computes with the code that all passes make.
fn execute(f: Function, input: &[u32]) -> Result<(Vec<u32>, u32), String> {
    let target = f.target;
    let m = passes::compile(f).map_err(|e| e.to_string())?;
    hints::check(&m);
    let args = (0..2).map(|i| Arg::buffer(format!("a{i}"), 8 * i)).collect();
    let object = CodeObject { target, abi: Abi::V5, kernels: vec![compile::kernel_of(&m, args)], sections: vec![] };
    let elf = object.to_bytes().map_err(|e| e.to_string())?;
    verify::admit(&elf).map_err(|e| e.to_string())?;
    let device = EmuDevice::with_memory(target, 1 << 24).map_err(|e| e.to_string())?;
    let module = device.load(&elf).map_err(|e| e.to_string())?;
    let bytes: Vec<u8> = input.iter().flat_map(|w| w.to_le_bytes()).collect();
    let at = [0, 1].map(|_| device.alloc(bytes.len() as u64).unwrap());
    device.write(at[0], &bytes).unwrap();
    device.write(at[1], &vec![0; bytes.len()]).unwrap();
    let args: Vec<u8> = at.iter().flat_map(|a| a.to_le_bytes()).collect();
    let options = LaunchOptions { strict: true, single_thread: true, ..LaunchOptions::default() };
    let kernel = module.kernel("k").map_err(|e| e.to_string())?;
    device.launch(&kernel, [1, 1, 1], [THREADS, 1, 1], &args, &options).map_err(|e| e.to_string())?;
    let mut out = vec![0; bytes.len()];
    device.read(at[1], &mut out).unwrap();
    Ok((out.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect(), m.usage.spills))
}

/// Word 1 of each workitem is a float, of which all NaNs are one.
fn same(i: usize, a: u32, b: u32) -> bool {
    let nan = |x: u32| f32::from_bits(x).is_nan();
    a == b || i % 4 == 1 && nan(a) && nan(b)
}

#[test]
fn passes_keep_what_random_functions_mean() {
    let jobs: Vec<(&str, u64)> = TARGETS.iter().flat_map(|t| (0..FUNCTIONS).map(move |n| (*t, n))).collect();
    let failures: Vec<String> = jobs
        .par_iter()
        .filter_map(|&(name, n)| {
            let target = Target::parse(name).unwrap();
            let seed = n * 1_000_003 + name.len() as u64 + u64::from(target.info().elf_mach);
            let f = function(target, seed);
            let mut rng = SplitMix64(seed);
            let input: Vec<u32> = (0..THREADS * WORDS).map(|_| rng.next_u64() as u32).collect();
            let want = interpret(&f, &input);
            let text = f.to_string();
            let problem = match execute(f, &input) {
                Err(e) => e,
                Ok((got, _)) => {
                    let i = (0..want.len()).find(|&i| !same(i, want[i], got[i]))?;
                    format!("word {} of item {}: {:#x} instead of {:#x}", i % 4, i / 4, got[i], want[i])
                }
            };
            Some(format!("{name}, function {n}: {problem}\n{text}"))
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {} fail; the shortest:\n{}",
        failures.len(),
        jobs.len(),
        failures.iter().min_by_key(|f| f.len()).unwrap()
    );
}

/// The comparison can fail: of functions in which one operation is replaced by another before any pass, most
/// compute something else, and the strict device and the interpreter still agree on what.
#[test]
fn a_changed_operation_is_noticed() {
    let target = Target::GFX906;
    let (mut noticed, mut tried) = (0, 0);
    for n in 0..40 {
        let f = function(target, 77 + n);
        let mut changed = f.clone();
        // the last operation of the mix that reaches the output
        let adds = changed
            .blocks
            .iter_mut()
            .flat_map(|b| &mut b.insts)
            .filter(|i| i.code == Code::Gen(Gen::Add.of(Type::U32)));
        let Some(add) = adds.last() else { continue };
        add.code = Code::Gen(Gen::Sub.of(Type::U32));
        tried += 1;
        let mut rng = SplitMix64(n);
        let input: Vec<u32> = (0..THREADS * WORDS).map(|_| rng.next_u64() as u32).collect();
        let (got, _) = execute(changed.clone(), &input).unwrap();
        let differs = |want: &[u32]| (0..want.len()).any(|i| !same(i, want[i], got[i]));
        assert!(!differs(&interpret(&changed, &input)));
        noticed += usize::from(differs(&interpret(&f, &input)));
    }
    assert!(tried >= 30 && noticed * 4 >= tried * 3, "{noticed} of {tried} noticed");
}
