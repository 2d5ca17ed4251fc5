//! Packed f32: two additions, multiplications or multiply-adds become one where the target has an instruction for pairs of f32 (gfx90a and later CDNA),
//! which takes no longer than one of them.
//!
//! Kernels compute expressions one element after the other, or a few sums beside each other. Instructions that compute alike of what was
//! computed alike get the same number, and of these two each that are as deep in the block's graph of dependences are tried: their results, and what
//! they read in the same place, must lie or be able to lie in an even and an odd register. Registers of one dword become
//! halves of one of two for that, whoever reads or writes them. Scalars and constants that both read are written twice, into a pair of scalars,
//! and so are vectors where that pays.
//!
//! ```text
//! %5 = v_sub_f32 %1[0], %3                       %9[1] = v_mov_b32 %9[0]
//! %6 = v_exp_f32 %5                              %8 = v_pk_add_f32 %1[0:1], %9 {neg_lo=2, neg_hi=2}
//! %7 = v_sub_f32 %1[1], %3              ->       %8[0] = v_exp_f32 %8[0]  ...
//! ```
//!
//! Since two instructions of one depth never wait for each other, all pairs can be made at once; the block's order is then the one nearest to what it
//! was, so that what its author has ordered stays so. Blocks with matrix instructions are left alone: packed f32 goes through the matrix unit, beside which other
//! vector instructions are free (measured on MI300X: behind one of 16 cycles three additions take no time, and one that is packed takes 12 cycles). So are pipelined loops and blocks with constraints.

use super::dependences::{Graph, Places};
use super::simplify::remove_dead;
use crate::mir::abi::preloaded;
use crate::mir::liveness::{Liveness, Units, for_each_def};
use crate::mir::loops::carried;
use crate::mir::{Block, Function, Group, MInst, Opnd, Part, Pipeline, RegClass, VReg, packs_f32};
use barewave_isa::{ModName, Op, Pipe, op};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};

/// What is packed, into what, and which source is subtracted.
const PACKED: [(Op, Op, i32); 5] = [
    (op::V_ADD_F32, op::V_PK_ADD_F32, 0),
    (op::V_SUB_F32, op::V_PK_ADD_F32, 0b10),
    (op::V_MUL_F32, op::V_PK_MUL_F32, 0),
    (op::V_FMA_F32, op::V_PK_FMA_F32, 0),
    // What it adds to is its result.
    (op::V_FMAC_F32, op::V_PK_FMA_F32, 0),
];

/// Instructions of a block that could be packed from which on it is looked at.
const WORTH_LOOKING: usize = 6;

/// Pairs of scalars for constants and what else is uniform, at most: each takes two registers all along.
const SCALARS: usize = 12;

/// Pairs that must read a vector in both halves so that writing it twice pays.
const WORTH_COPYING: u32 = 2;

/// A source that both halves of a pair read.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Shared {
    /// This constant.
    Constant(u32),
    /// This dword of a scalar register.
    Scalar(Part),
    /// This vector register of one dword.
    Vector(VReg),
}

/// A source of a pair.
#[derive(Clone, Copy)]
enum Source {
    /// The first of neighbouring dwords, from an even one on, or of registers that become such.
    Halves(Part),
    Shared(Shared),
}

/// Two instructions that become one.
struct Pair {
    /// Which ones of the block.
    at: [usize; 2],
    op: Op,
    /// Results.
    dst: [Part; 2],
    srcs: SmallVec<[Source; 3]>,
    /// Sources that are taken with the other sign.
    negative: i32,
}

/// Packs what can be packed.
pub fn pack(f: &mut Function) {
    // Tables are for kernels in which there is something to look at.
    if !packs_f32(f.target) || !f.blocks.iter().any(|b| is_worth_looking(f, b)) {
        return;
    }
    let mut packing = Packing::of(f);
    (0..f.blocks.len()).for_each(|b| packing.block(b));
    packing.drop_copies_that_do_not_pay();
    let Packing { blocks, mates, .. } = packing;
    if !blocks.is_empty() {
        Rewrite::of(f, &mates, &blocks).all(blocks);
        // Constants that are in pairs of scalars now.
        remove_dead(f);
    }
}

/// A block has enough that could be packed.
fn is_worth_looking(f: &Function, block: &Block) -> bool {
    let could = block.insts.iter().filter(|i| candidate(f, i).is_some());
    could.take(WORTH_LOOKING).count() == WORTH_LOOKING
}

/// The half of a pair that a register is, and the register that is the other half: itself where both are to be the same.
type Mate = (VReg, u8);

/// The pairs of a function.
struct Packing<'a> {
    f: &'a Function,
    places: Places,
    /// How often each register is written.
    defs: Vec<u32>,
    /// Constants of registers that are written once, by one.
    constants: Vec<Option<u32>>,
    /// Blocks that are left as they are.
    set: Vec<bool>,
    /// Registers of which nothing else may be made.
    alone: Vec<bool>,
    mates: Vec<Option<Mate>>,
    /// What pairs of scalars hold twice.
    scalars: Vec<Shared>,
    /// Of each block that has some its number, its pairs, and what its instructions depend on.
    blocks: Vec<(usize, Vec<Pair>, Graph)>,
}

impl<'a> Packing<'a> {
    fn of(f: &'a Function) -> Packing<'a> {
        let n = f.vregs.len();
        let (mut defs, mut constants, mut alone) = (vec![0; n], vec![None; n], vec![false; n]);
        let matrix = |i: &MInst| i.info(f.target).is_some_and(|x| x.pipe == Pipe::Matrix);
        let bound = |i: &MInst| i.stage > 0 || i.group != Group::default() || matrix(i);
        let fixed = |b: &Block| !b.constraints.is_empty() || b.insts.iter().any(bound);
        let mut set: Vec<bool> = f.blocks.iter().map(fixed).collect();
        for l in f.loops.iter().filter(|l| l.pipeline != Pipeline::Off) {
            set[l.header.0 as usize..=l.latch.0 as usize].fill(true);
        }
        for (block, set) in f.blocks.iter().zip(&set) {
            for i in &block.insts {
                for_each_def(i, |p| defs[p.reg.0 as usize] += 1);
                let moves = matches!(i.op(), Some(op::V_MOV_B32 | op::S_MOV_B32)) && i.mods.is_empty();
                if let ([Opnd::V(d)], [Opnd::Imm(x)]) = (&i.dsts[..], &i.srcs[..]) {
                    constants[d.reg.0 as usize] = (moves && f.vreg(d.reg).dwords == 1).then_some(*x as u32);
                }
                let touched = i.dsts.iter().chain(&i.srcs).filter_map(|o| o.part()).filter(|_| *set);
                touched.for_each(|p| alone[p.reg.0 as usize] = true);
            }
        }
        let counters = f.loops.iter().map(|l| l.counter);
        for v in preloaded(f).into_iter().map(|(v, _)| v).chain(counters) {
            defs[v.0 as usize] += 1;
            alone[v.0 as usize] = true;
        }
        (0..n).filter(|v| defs[*v] != 1).for_each(|v| constants[v] = None);
        let places = Places::new(&Units::of(f));
        let (mates, scalars, blocks) = (vec![None; n], Vec::new(), Vec::new());
        Packing { f, places, defs, constants, set, alone, mates, scalars, blocks }
    }
}

impl Packing<'_> {
    /// Looks for pairs in a block.
    fn block(&mut self, b: usize) {
        let f = self.f;
        let block = &f.blocks[b];
        if self.set[b] || !is_worth_looking(f, block) {
            return;
        }
        let Some(graph) = Graph::of(f, &block.insts, &[], &mut self.places) else { return };
        let depths = graph.depths();
        let mut alike: FxHashMap<(u64, u32), usize> = FxHashMap::default();
        let mut groups: Vec<(u32, Vec<usize>)> = Vec::new();
        for (i, number) in self.numbers(b).into_iter().enumerate() {
            let Some(number) = number else { continue };
            let group = *alike.entry((number, depths[i])).or_insert_with(|| {
                groups.push((depths[i], Vec::new()));
                groups.len() - 1
            });
            groups[group].1.push(i);
        }
        groups.sort_by_key(|g| g.0);
        let mut pairs = Vec::new();
        for (_, members) in groups {
            let mut at = 0;
            while at + 1 < members.len() {
                let found = self.pair(&block.insts, [members[at], members[at + 1]]);
                at += 1 + usize::from(found.is_some());
                pairs.extend(found);
            }
        }
        if !pairs.is_empty() {
            self.blocks.push((b, pairs, graph));
        }
    }

    /// Numbers of the instructions of a block that could be packed, which are the same where they compute alike of what was computed alike.
    fn numbers(&self, b: usize) -> Vec<Option<u64>> {
        let f = self.f;
        let mut of_register: FxHashMap<VReg, u64> = FxHashMap::default();
        let mut out = Vec::with_capacity(f.blocks[b].insts.len());
        for i in &f.blocks[b].insts {
            let found = candidate(f, i);
            let mut hash = FxHasher::default();
            i.code.hash(&mut hash);
            for o in &i.srcs {
                match (self.shared(o), o) {
                    // What is done to each element of a word differs in constants.
                    (Some(shared), _) => found.map(|_| shared).hash(&mut hash),
                    (None, Opnd::V(p)) if f.vreg(p.reg).dwords == 1 => of_register.get(&p.reg).hash(&mut hash),
                    (None, Opnd::V(p)) => p.reg.hash(&mut hash),
                    _ => {}
                }
            }
            let number = hash.finish();
            for_each_def(i, |p| {
                if f.vreg(p.reg).dwords == 1 && self.defs[p.reg.0 as usize] == 1 {
                    of_register.insert(p.reg, number);
                }
            });
            out.push(found.map(|_| number));
        }
        out
    }

    /// What an operand is in all lanes and for whatever reads it: a constant, or a scalar that is written once.
    fn shared(&self, o: &Opnd) -> Option<Shared> {
        match *o {
            Opnd::Imm(x) => Some(Shared::Constant(x as u32)),
            Opnd::V(p) => match (self.constants[p.reg.0 as usize], self.f.vreg(p.reg).class) {
                (Some(x), _) => Some(Shared::Constant(x)),
                (None, RegClass::S) if self.is_written_once(p.reg) => Some(Shared::Scalar(p)),
                _ => None,
            },
            _ => None,
        }
    }

    /// A register is written by one instruction, behind which another can be put.
    fn is_written_once(&self, v: VReg) -> bool {
        self.defs[v.0 as usize] == 1 && !self.alone[v.0 as usize]
    }

    /// The pair of two instructions that compute alike, where there can be one.
    fn pair(&mut self, insts: &[MInst], at: [usize; 2]) -> Option<Pair> {
        let [a, b] = at.map(|i| &insts[i]);
        let (op, negative) = candidate(self.f, a)?;
        if candidate(self.f, b)? != (op, negative) {
            return None;
        }
        let mut new = Vec::new();
        let dst = [a.dsts[0].part()?, b.dsts[0].part()?];
        self.halves(dst, &mut new)?;
        let mut scalar = None;
        let mut srcs = SmallVec::new();
        for (x, y) in a.srcs.iter().zip(&b.srcs) {
            srcs.push(self.source(x, y, &mut scalar, &mut new)?);
        }
        if a.op() == Some(op::V_FMAC_F32) {
            srcs.push(Source::Halves(dst[0]));
        }
        if let Some(shared) = scalar.filter(|s| !self.scalars.contains(s)) {
            if self.scalars.len() == SCALARS {
                return None;
            }
            self.scalars.push(shared);
        }
        new.into_iter().for_each(|(v, mate)| self.mates[v.0 as usize] = Some(mate));
        Some(Pair { at, op, dst, srcs, negative })
    }

    /// What a pair reads where its halves read `x` and `y`. Of all sources one may be a `scalar`.
    fn source(&self, x: &Opnd, y: &Opnd, scalar: &mut Option<Shared>, new: &mut Vec<(VReg, Mate)>) -> Option<Source> {
        if let (Some(a), Some(b)) = (self.shared(x), self.shared(y)) {
            if a != b {
                return None;
            }
            if scalar.is_none_or(|s| s == a) {
                *scalar = Some(a);
                return Some(Source::Shared(a));
            }
        }
        let (x, y) = (x.part()?, y.part()?);
        if x != y {
            return self.halves([x, y], new).map(|()| Source::Halves(x));
        }
        let single = self.f.vreg(x.reg).dwords == 1 && self.f.vreg(x.reg).class == RegClass::V;
        match self.mate(x.reg, new) {
            _ if !single || !self.is_written_once(x.reg) => return None,
            None => new.push((x.reg, (x.reg, 0))),
            Some((same, _)) if same == x.reg => {}
            Some(_) => return None,
        }
        Some(Source::Shared(Shared::Vector(x.reg)))
    }

    /// Two dwords are, or become, neighbours from an even register on.
    fn halves(&self, [x, y]: [Part; 2], new: &mut Vec<(VReg, Mate)>) -> Option<()> {
        let [a, b] = [x, y].map(|p| self.f.vreg(p.reg));
        if a.class != RegClass::V || b.class != RegClass::V {
            return None;
        }
        if a.dwords > 1 || b.dwords > 1 {
            return (x.reg == y.reg && a.align > 1 && x.first.is_multiple_of(2) && y.first == x.first + 1)
                .then_some(());
        }
        let free = |v: VReg| !self.alone[v.0 as usize];
        match (self.mate(x.reg, new), self.mate(y.reg, new)) {
            (None, None) if x.reg != y.reg && free(x.reg) && free(y.reg) => {
                new.extend([(x.reg, (y.reg, 0)), (y.reg, (x.reg, 1))]);
                Some(())
            }
            (Some((of_x, 0)), Some((_, 1))) if of_x == y.reg => Some(()),
            _ => None,
        }
    }

    fn mate(&self, v: VReg, new: &[(VReg, Mate)]) -> Option<Mate> {
        new.iter().find(|n| n.0 == v).map(|n| n.1).or(self.mates[v.0 as usize])
    }

    /// Takes pairs apart that alone read a vector which would be written twice for them.
    fn drop_copies_that_do_not_pay(&mut self) {
        let mut readers: FxHashMap<VReg, u32> = FxHashMap::default();
        let all = self.blocks.iter().flat_map(|(_, pairs, _)| pairs);
        all.flat_map(vectors).for_each(|v| *readers.entry(v).or_default() += 1);
        for (_, pairs, _) in &mut self.blocks {
            pairs.retain(|p| vectors(p).all(|v| readers[&v] >= WORTH_COPYING));
        }
        self.blocks.retain(|(_, pairs, _)| !pairs.is_empty());
    }
}

/// What an instruction is packed into, and which sources are taken with the other sign.
fn candidate(f: &Function, i: &MInst) -> Option<(Op, i32)> {
    let op = i.op()?;
    let (_, packed, negative) = PACKED.into_iter().find(|p| p.0 == op)?;
    let dword = |o: &Opnd| match o {
        Opnd::V(p) => p.len == 1 && f.vreg(p.reg).class != RegClass::A,
        Opnd::Imm(_) => true,
        _ => false,
    };
    (i.mods.is_empty() && i.dsts.iter().chain(&i.srcs).all(dword)).then_some((packed, negative))
}

/// Vectors of which both halves of some pair read the one register.
fn vectors(p: &Pair) -> impl Iterator<Item = VReg> + '_ {
    p.srcs.iter().filter_map(|s| if let Source::Shared(Shared::Vector(v)) = s { Some(*v) } else { None })
}

/// A function while its pairs are put in.
struct Rewrite<'a> {
    f: &'a mut Function,
    /// The half of a new register that a register becomes.
    becomes: Vec<Option<Part>>,
    /// Pairs of scalars, by what they hold twice.
    scalars: Vec<(Shared, Part)>,
    /// What is written once more behind an instruction that writes a register: the copy's place.
    copies: FxHashMap<VReg, Vec<MInst>>,
}

impl<'a> Rewrite<'a> {
    fn of(f: &'a mut Function, mates: &[Option<Mate>], blocks: &[(usize, Vec<Pair>, Graph)]) -> Rewrite<'a> {
        let (mut becomes, mut copies) = (vec![None; f.vregs.len()], FxHashMap::default());
        let read_twice: FxHashSet<VReg> = blocks.iter().flat_map(|b| &b.1).flat_map(vectors).collect();
        for (v, mate) in mates.iter().enumerate() {
            let Some((mate, 0)) = *mate else { continue };
            let (own, alike) = (VReg(v as u32), mate.0 as usize == v);
            if alike && !read_twice.contains(&own) {
                continue;
            }
            let both = f.new_typed(RegClass::V, 2, f.vregs[v].ty);
            let [low, high] = [0, 1].map(|half| both.dword(half));
            becomes[v] = Some(low);
            if alike {
                copies.insert(own, vec![MInst::new(op::V_MOV_B32, &[high.into()], &[low.into()])]);
            } else {
                becomes[mate.0 as usize] = Some(high);
            }
        }
        Rewrite { f, becomes, scalars: Vec::new(), copies }
    }

    fn all(mut self, blocks: Vec<(usize, Vec<Pair>, Graph)>) {
        for (b, pairs, graph) in blocks {
            let mut becomes: Vec<usize> = (0..graph.out.len()).collect();
            pairs.iter().for_each(|p| becomes[p.at[1]] = p.at[0]);
            let mut packed: FxHashMap<usize, MInst> = pairs.iter().map(|p| (p.at[0], self.packed(b, p))).collect();
            let order =
                graph.order_of_merged(&becomes).expect("instructions of one depth wait for nothing of each other");
            let mut old: Vec<Option<MInst>> = self.f.blocks[b].insts.drain(..).map(Some).collect();
            let new =
                order.into_iter().map(|i| packed.remove(&i).or_else(|| old[i].take()).expect("each instruction once"));
            self.f.blocks[b].insts = new.collect();
        }
        for block in &mut self.f.blocks {
            let mut insts = Vec::with_capacity(block.insts.len());
            for mut i in block.insts.drain(..) {
                let mut behind = SmallVec::<[MInst; 2]>::new();
                for_each_def(&i, |p| behind.extend(self.copies.remove(&p.reg).into_iter().flatten()));
                for o in i.dsts.iter_mut().chain(i.srcs.iter_mut()) {
                    if let Opnd::V(p) = o
                        && let Some(Some(to)) = self.becomes.get(p.reg.0 as usize)
                    {
                        *p = *to;
                    }
                }
                insts.push(i);
                insts.extend(behind);
            }
            block.insts = insts;
        }
        let constants = self.scalars.iter().filter_map(|(shared, pair)| match shared {
            Shared::Constant(x) => Some((*x, *pair)),
            _ => None,
        });
        let set = |(x, pair): (u32, Part)| {
            [0, 1].map(|half| MInst::new(op::S_MOV_B32, &[pair.dword(half).into()], &[x.into()]))
        };
        let set: Vec<MInst> = constants.flat_map(set).collect();
        self.f.blocks[0].insts.splice(0..0, set);
        if !self.f.loops.is_empty() {
            let live = Liveness::of(self.f);
            let carried: Vec<_> = self.f.loops.iter().map(|l| carried(self.f, &live, l)).collect();
            self.f.loops.iter_mut().zip(carried).for_each(|(l, c)| l.carried = c);
        }
    }

    /// The instruction that a pair of a block becomes.
    fn packed(&mut self, b: usize, p: &Pair) -> MInst {
        let srcs: SmallVec<[Opnd; 3]> = p
            .srcs
            .iter()
            .map(|s| match *s {
                Source::Halves(x) => self.both(x).into(),
                Source::Shared(Shared::Vector(v)) => self.both(self.f.whole(v)).into(),
                Source::Shared(uniform) => self.scalars(uniform).into(),
            })
            .collect();
        let mut packed = MInst::new(p.op, &[self.both(p.dst[0]).into()], &srcs);
        if p.negative != 0 {
            packed.mods = packed.mods.with(ModName::Neg, p.negative).with(ModName::NegHi, p.negative);
        }
        packed.note = self.f.blocks[b].insts[p.at[0]].note;
        packed
    }

    /// The pair of registers whose first is, or becomes, this one.
    fn both(&self, first: Part) -> Part {
        Part { len: 2, ..self.becomes[first.reg.0 as usize].unwrap_or(first) }
    }

    /// The pair of scalars that holds this twice.
    fn scalars(&mut self, uniform: Shared) -> Part {
        if let Some((_, pair)) = self.scalars.iter().find(|s| s.0 == uniform) {
            return *pair;
        }
        let pair = self.f.new_vreg(RegClass::S, 2);
        self.scalars.push((uniform, pair));
        if let Shared::Scalar(of) = uniform {
            let copy = |half| MInst::new(op::S_MOV_B32, &[pair.dword(half).into()], &[of.into()]);
            self.copies.entry(of.reg).or_default().extend([copy(0), copy(1)]);
        }
        pair
    }
}
