//! Writes a [`Function`]: generic operations, every target instruction by its table row, loops and buffers.
//!
//! A generic integer operation is scalar when all its operands are, else vector; so address arithmetic is written
//! once and what is uniform stays in scalar registers. Memory is reached through raw buffers: a lane whose offset is
//! [`Builder::OUT_OF_BOUNDS`] reads zero and stores nothing, which is how kernels mask lanes at tensor edges.

mod memory;

use super::liveness::Liveness;
use super::loops::carried;
use super::{
    Block, BlockId, Code, Constraint, Function, Gen, Generic, Group, Lds, Loop, MInst, Memory, Note, Opnd, Order, Part,
    Pipeline, Preloads, RegClass, Space, Term, Type, VReg,
};
use barewave_isa::{Flags, Mods, Op, Reg, Target, op};
pub(crate) use memory::drops;

/// How long a wave sleeps between two looks at what others leave in memory, in 64 clocks: less than a quarter of what a look takes, so that it costs nearly nothing, and long enough that
/// waves that poll leave issue slots to those that work.
pub const SLEEP: u32 = 1;

/// A raw buffer: base address and size in a scalar descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Four scalar dwords.
    pub desc: Part,
    /// What it is a buffer of.
    pub memory: Memory,
}

/// A loop whose body is being written.
pub struct OpenLoop {
    counter: Part,
    header: BlockId,
}

impl OpenLoop {
    /// The scalar that counts.
    pub fn counter(&self) -> Part {
        self.counter
    }
}

impl Buffer {
    fn space(self) -> Space {
        Space { memory: self.memory, ..Space::default() }
    }
}

/// Builds one kernel. Create with [`Builder::new`], end with [`Builder::finish`].
pub struct Builder {
    f: Function,
    /// Final place of each label.
    places: Vec<Option<u32>>,
    /// A vector that holds [`Builder::OUT_OF_BOUNDS`], made in the entry block.
    out_of_bounds: Option<Part>,
    /// The part of LDS that accesses are said to touch.
    lds_part: Lds,
    /// Stage of instructions.
    stage: u8,
    /// Group of instructions.
    group: Group,
    /// The factor whose elements are moved.
    factor: Option<Term>,
    /// What listings say of instructions.
    note: Note,
    /// Cache policies of the loads and of the stores that follow.
    policies: [u32; 2],
}

impl Builder {
    /// A byte offset that lies outside of every buffer.
    pub const OUT_OF_BOUNDS: u32 = 0x8000_0000;

    /// A kernel of `workgroup_size` workitems per workgroup, the current block its entry.
    pub fn new(target: Target, name: &str, workgroup_size: u32) -> Builder {
        let f = Function {
            name: name.to_string(),
            comment: String::new(),
            target,
            vregs: Vec::new(),
            blocks: Vec::new(),
            loops: Vec::new(),
            preloads: Preloads::default(),
            lds_bytes: 0,
            kernarg_bytes: 0,
            workgroup_size,
            workgroups: None,
            scratch_bytes: 0,
        };
        let mut b = Builder {
            f,
            places: Vec::new(),
            out_of_bounds: None,
            lds_part: Lds::Any,
            stage: 0,
            group: Group::default(),
            factor: None,
            note: Note::default(),
            policies: [0; 2],
        };
        let entry = b.label();
        b.place(entry, "entry");
        // Before gfx9 LDS instructions clamp addresses to M0.
        if target.op(op::DS_READ_B32).is_some_and(|i| i.reads.contains(&Reg::M0)) {
            b.emit(op::S_MOV_B32, &[Opnd::P(Reg::M0.into())], &[u32::MAX.into()]);
        }
        b
    }

    /// The target.
    pub fn target(&self) -> Target {
        self.f.target
    }
    /// Lanes of a wavefront.
    pub fn wave_size(&self) -> u32 {
        self.f.target.info().wave_size
    }
    /// The function so far.
    pub fn function(&mut self) -> &mut Function {
        &mut self.f
    }

    /// A label to branch to, placed later (or never).
    pub fn label(&mut self) -> BlockId {
        self.places.push(None);
        BlockId(self.places.len() as u32 - 1)
    }
    /// Starts a new block at `label`, following the current one.
    pub fn place(&mut self, label: BlockId, name: &str) {
        assert!(self.places[label.0 as usize].is_none(), "label placed twice");
        let n = self.f.blocks.len();
        self.places[label.0 as usize] = Some(n as u32);
        self.f.blocks.push(Block { name: format!("{name}_{n}"), ..Block::default() });
    }
    /// Starts a new block and returns its label.
    pub fn block(&mut self, name: &str) -> BlockId {
        let l = self.label();
        self.place(l, name);
        l
    }
    /// Keeps the instructions of the current block as they stand.
    pub fn fix_order(&mut self) {
        self.current().order = Order::Fixed;
    }
    /// The stage of the loop body that the instructions which follow are in.
    pub fn stage(&mut self, stage: u8) {
        self.stage = stage;
    }
    /// The group that the instructions which follow are in; the default one takes it back.
    pub fn group(&mut self, group: Group) {
        self.group = group;
    }
    /// The factor of a product whose elements the instructions which follow move, as listings say it; `None` takes it back.
    pub fn moves(&mut self, factor: Option<Term>) {
        self.factor = factor;
        self.note = Note::default();
    }
    /// What follows moves elements of [`Builder::moves`]' factor that begin at depth `k` of row or column `across` of the tile.
    pub fn element(&mut self, k: u32, across: u32) {
        self.note = Note::element(self.factor, k, across);
    }
    /// What follows adds products of depth `k` to the result's tile at a row and column; `None` takes it back.
    pub fn product(&mut self, at: Option<(u32, u32, u32)>) {
        self.note = at.map_or(Note::default(), |(row, column, k)| Note {
            row: row as u16,
            column: column as u16,
            ..Note::element(Some(Term::C), k, 0)
        });
    }
    /// States what the order of the current block must hold to.
    pub fn constrain(&mut self, constraint: Constraint) {
        self.current().constraints.push(constraint);
    }
    /// Comment shown above the current block in assembly.
    pub fn comment(&mut self, text: &str) {
        let c = &mut self.current().comment;
        if !c.is_empty() {
            c.push_str("; ");
        }
        c.push_str(text);
    }
    fn current(&mut self) -> &mut Block {
        self.f.blocks.last_mut().expect("a builder has a block")
    }

    /// A new vector value.
    pub fn v(&mut self, dwords: u8) -> Part {
        self.f.new_vreg(RegClass::V, dwords)
    }
    /// A new accumulation-register value (CDNA).
    pub fn a(&mut self, dwords: u8) -> Part {
        self.f.new_vreg(RegClass::A, dwords)
    }
    /// A new scalar value.
    pub fn s(&mut self, dwords: u8) -> Part {
        self.f.new_vreg(RegClass::S, dwords)
    }
    /// A new wavefront mask.
    pub fn mask(&mut self) -> Part {
        let n = self.f.mask_dwords();
        self.s(n)
    }
    /// True when the operand is held per lane.
    pub fn is_vector(&self, o: Opnd) -> bool {
        match o {
            Opnd::V(p) => self.f.vreg(p.reg).class != RegClass::S,
            Opnd::P(r) => r.first.is_vector(),
            _ => false,
        }
    }

    /// Appends an instruction.
    pub fn push(&mut self, inst: MInst) {
        let (stage, group, note) = (self.stage, self.group, self.note);
        let insts = &mut self.current().insts;
        if insts.len() == insts.capacity() {
            // By more than twice as much: instructions are long, and so is moving them.
            insts.reserve((3 * insts.len()).max(32));
        }
        insts.push(MInst { stage, group, note, ..inst });
    }
    /// What `body` appends to the current block, which it must not leave, taken out of it again.
    pub fn aside(&mut self, body: impl FnOnce(&mut Builder)) -> Vec<MInst> {
        let from = self.here();
        body(self);
        self.cut(from)
    }
    /// Where the next instruction will stand: block and number.
    pub fn here(&mut self) -> (usize, usize) {
        (self.f.blocks.len(), self.current().insts.len())
    }
    /// Takes out what has been appended since, all in one block.
    pub fn cut(&mut self, from: (usize, usize)) -> Vec<MInst> {
        assert_eq!(from.0, self.f.blocks.len(), "what is put aside stays in its block");
        self.current().insts.split_off(from.1)
    }
    /// Appends instructions as they are.
    pub fn append(&mut self, insts: impl IntoIterator<Item = MInst>) {
        self.current().insts.extend(insts);
    }
    /// Appends instructions as they are, the second list spread evenly between those of the first.
    pub fn spread(&mut self, main: Vec<MInst>, beside: Vec<MInst>) {
        let (n, count) = (main.len().max(1), beside.len());
        let mut beside = beside.into_iter();
        let insts = &mut self.current().insts;
        for (i, inst) in main.into_iter().enumerate() {
            insts.push(inst);
            insts.extend(beside.by_ref().take(count * (i + 1) / n - count * i / n));
        }
        insts.extend(beside);
    }
    /// Appends an instruction with explicit destinations.
    pub fn emit(&mut self, code: impl Into<Code>, dsts: &[Opnd], srcs: &[Opnd]) {
        self.push(MInst::new(code, dsts, srcs));
    }
    /// Appends a target instruction with one new destination, of the width and type its table row says, or a generic
    /// operation.
    pub fn op(&mut self, code: impl Into<Code>, srcs: &[Opnd]) -> Part {
        match code.into() {
            Code::Isa(op) => self.op_with(op, srcs, Mods::new()),
            Code::Gen(g) => self.generic(g, srcs),
        }
    }
    /// [`Builder::op`] with modifiers.
    pub fn op_with(&mut self, op: Op, srcs: &[Opnd], mods: Mods) -> Part {
        let dst = self.result_of(op);
        self.push(MInst { mods, ..MInst::new(op, &[dst.into()], srcs) });
        dst
    }
    /// A new value fit for the first destination of `op`.
    fn result_of(&mut self, op: Op) -> Part {
        let target = self.f.target;
        let info = target.op(op).unwrap_or_else(|| panic!("{target} has no {}", op.name()));
        let slot = info.dsts.first().unwrap_or_else(|| panic!("{} has no destination", op.name()));
        use barewave_isa::Class;
        if slot.class.contains(Class::VGPR) {
            self.f.new_typed(RegClass::V, slot.dwords(), element_of(slot))
        } else if info.flags.has(Flags::VALU_WRITES_SGPR) && slot.bits != 32 {
            self.mask()
        } else if slot.class.contains(Class::AGPR) {
            self.a(slot.dwords())
        } else {
            self.s(slot.dwords())
        }
    }
    /// A generic operation with a new destination: scalar where all operands are and the type is no float, else a vector; a
    /// mask for comparisons.
    pub fn generic(&mut self, g: Generic, srcs: &[Opnd]) -> Part {
        let dst = if g.op.compares() {
            self.mask()
        } else {
            let vector = g.ty.is_float() || g.op == Gen::Select || srcs.iter().any(|s| self.is_vector(*s));
            let class = if vector { RegClass::V } else { RegClass::S };
            self.f.new_typed(class, g.ty.dwords(), g.ty)
        };
        self.emit(g, &[dst.into()], srcs);
        dst
    }
    /// A conversion.
    pub fn convert(&mut self, from: Type, to: Type, x: impl Into<Opnd>) -> Part {
        self.generic(Generic::convert(from, to), &[x.into()])
    }

    /// i32 `a + b`.
    pub fn add(&mut self, a: impl Into<Opnd>, b: impl Into<Opnd>) -> Part {
        self.generic(Gen::Add.of(Type::I32), &[a.into(), b.into()])
    }
    /// i32 `a - b`.
    pub fn sub(&mut self, a: impl Into<Opnd>, b: impl Into<Opnd>) -> Part {
        self.generic(Gen::Sub.of(Type::I32), &[a.into(), b.into()])
    }
    /// `a * b`, low 32 bits.
    pub fn mul(&mut self, a: impl Into<Opnd>, b: impl Into<Opnd>) -> Part {
        self.generic(Gen::Mul.of(Type::I32), &[a.into(), b.into()])
    }
    /// `a * b + c`, low 32 bits.
    pub fn mad(&mut self, a: impl Into<Opnd>, b: impl Into<Opnd>, c: impl Into<Opnd>) -> Part {
        self.generic(Gen::Mad.of(Type::I32), &[a.into(), b.into(), c.into()])
    }
    /// `a & b`.
    pub fn and(&mut self, a: impl Into<Opnd>, b: impl Into<Opnd>) -> Part {
        self.generic(Gen::And.of(Type::U32), &[a.into(), b.into()])
    }
    /// `a << b`.
    pub fn shl(&mut self, a: impl Into<Opnd>, b: impl Into<Opnd>) -> Part {
        self.generic(Gen::Shl.of(Type::U32), &[a.into(), b.into()])
    }
    /// `a >> b`, unsigned.
    pub fn shr(&mut self, a: impl Into<Opnd>, b: impl Into<Opnd>) -> Part {
        self.generic(Gen::Shr.of(Type::U32), &[a.into(), b.into()])
    }
    /// `a / d`, unsigned.
    pub fn udiv(&mut self, a: impl Into<Opnd>, d: u32) -> Part {
        self.generic(Gen::Div.of(Type::U32), &[a.into(), d.into()])
    }
    /// `a % d`, unsigned.
    pub fn umod(&mut self, a: impl Into<Opnd>, d: u32) -> Part {
        self.generic(Gen::Rem.of(Type::U32), &[a.into(), d.into()])
    }
    /// `(a / d, a % d)`, unsigned.
    pub fn divmod(&mut self, a: impl Into<Opnd>, d: u32) -> (Part, Part) {
        let a = a.into();
        if d == 1 {
            let q = match a {
                Opnd::V(p) => p,
                a => self.scalar_of(a),
            };
            return (q, self.scalar(0));
        }
        let q = self.udiv(a, d);
        let qd = self.mul(q, d);
        (q, self.sub(a, qd))
    }
    /// The same of a vector below some number, which gives its quotient 23 bits or fewer where a multiply-add of 24 bits is to give the rest: that
    /// takes a quarter of the time of a product of 32 bits. What is not below has a rest of no meaning.
    pub fn divmod_below(&mut self, a: Part, d: u32, below: u64) -> (Part, Part) {
        const MOST: u64 = 1 << 23;
        let fits = below / u64::from(d.max(1)) < MOST && u64::from(d) < MOST;
        if !fits || d.is_power_of_two() || !self.is_vector(a.into()) {
            return self.divmod(a, d);
        }
        let q = self.udiv(a, d);
        let minus = self.scalar((d as i32).wrapping_neg() as u32);
        (q, self.op(op::V_MAD_I32_I24, &[q.into(), minus.into(), a.into()]))
    }
    fn scalar_of(&mut self, a: Opnd) -> Part {
        let s = self.s(1);
        self.copy_into(s, a);
        s
    }
    /// f32 `a * b + c`.
    pub fn fma(&mut self, a: impl Into<Opnd>, b: impl Into<Opnd>, c: impl Into<Opnd>) -> Part {
        self.generic(Gen::Fma.of(Type::F32), &[a.into(), b.into(), c.into()])
    }
    /// f32 `acc += a * b`.
    pub fn fma_into(&mut self, acc: Part, a: impl Into<Opnd>, b: impl Into<Opnd>) {
        self.emit(Gen::Fma.of(Type::F32), &[acc.into()], &[a.into(), b.into(), acc.into()]);
    }
    /// `acc += a * b` in a type: one rounding for floats, low bits for integers.
    pub fn multiply_add_into(&mut self, ty: Type, acc: Part, a: impl Into<Opnd>, b: impl Into<Opnd>) {
        let (a, b) = (a.into(), b.into());
        if ty.is_float() {
            self.emit(Gen::Fma.of(ty), &[acc.into()], &[a, b, acc.into()]);
        } else {
            let product = self.generic(Gen::Mul.of(ty), &[a, b]);
            self.emit(Gen::Add.of(ty), &[acc.into()], &[acc.into(), product.into()]);
        }
    }
    /// Copies `src` into `dst`.
    pub fn copy_into(&mut self, dst: Part, src: impl Into<Opnd>) {
        self.emit(Gen::Copy.of(Type::B32), &[dst.into()], &[src.into()]);
    }
    /// A new vector copy of `src`.
    pub fn to_vector(&mut self, src: impl Into<Opnd>) -> Part {
        let d = self.v(1);
        self.copy_into(d, src);
        d
    }
    /// A new scalar holding a constant.
    pub fn scalar(&mut self, x: u32) -> Part {
        let d = self.s(1);
        self.copy_into(d, x);
        d
    }
    /// The first lane's value of a vector that is the same in all lanes.
    pub fn uniform(&mut self, v: impl Into<Opnd>) -> Part {
        self.op(op::V_READFIRSTLANE_B32, &[v.into()])
    }
    /// Per lane `mask ? a : b`.
    pub fn select(&mut self, mask: Part, a: impl Into<Opnd>, b: impl Into<Opnd>) -> Part {
        self.op(op::V_CNDMASK_B32, &[b.into(), a.into(), mask.into()])
    }
    /// Per lane the vector register is `x` where the mask is set, and stays what it is elsewhere.
    pub fn select_into(&mut self, to: Part, mask: Part, x: Part) {
        for d in 0..to.len {
            let (to, x) = (to.dword(d), x.dword(d));
            self.emit(op::V_CNDMASK_B32, &[to.into()], &[to.into(), x.into(), mask.into()]);
        }
    }
    /// Both masks.
    pub fn mask_and(&mut self, a: Part, b: Part) -> Part {
        self.mask_of([op::S_AND_B32, op::S_AND_B64], a, b)
    }
    /// The lanes of both masks, or of the one that there is.
    pub fn both(&mut self, a: Option<Part>, b: Option<Part>) -> Option<Part> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.mask_and(a, b)),
            (a, b) => a.or(b),
        }
    }
    /// The one mask without the other.
    pub fn mask_and_not(&mut self, a: Part, b: Part) -> Part {
        self.mask_of([op::S_ANDN2_B32, op::S_ANDN2_B64], a, b)
    }
    /// Either mask.
    pub fn mask_or(&mut self, a: Part, b: Part) -> Part {
        self.mask_of([op::S_OR_B32, op::S_OR_B64], a, b)
    }
    /// An operation on masks of one dword or of two.
    fn mask_of(&mut self, [one, two]: [Op; 2], a: Part, b: Part) -> Part {
        let d = self.mask();
        self.emit(if d.len == 2 { two } else { one }, &[d.into()], &[a.into(), b.into()]);
        d
    }
    /// `off` where the mask is set, else [`Builder::OUT_OF_BOUNDS`].
    pub fn guard(&mut self, mask: Part, off: impl Into<Opnd>) -> Part {
        let out = match self.out_of_bounds {
            Some(p) => p,
            None => {
                let p = self.v(1);
                let set = MInst::new(Gen::Copy.of(Type::B32), &[p.into()], &[Self::OUT_OF_BOUNDS.into()]);
                self.f.blocks[0].insts.insert(0, set);
                self.out_of_bounds = Some(p);
                p
            }
        };
        self.select(mask, off, out)
    }
    /// Mask of the lanes with `a < b`, unsigned.
    pub fn lt_u32(&mut self, a: impl Into<Opnd>, b: impl Into<Opnd>) -> Part {
        self.op(op::V_CMP_LT_U32, &[a.into(), b.into()])
    }

    /// Flat workitem id within the workgroup.
    pub fn workitem_id(&mut self) -> Part {
        if self.f.preloads.workitem_id.is_none() {
            self.f.preloads.workitem_id = Some(self.f.new_vreg(RegClass::V, 1).reg);
        }
        self.f.whole(self.f.preloads.workitem_id.expect("just set"))
    }
    /// Workgroup id in dimension `dim` (0 to 2).
    pub fn workgroup_id(&mut self, dim: usize) -> Part {
        if self.f.target.info().architected_sgprs {
            return self.architected_workgroup_id(dim);
        }
        if self.f.preloads.workgroup_id[dim].is_none() {
            self.f.preloads.workgroup_id[dim] = Some(self.f.new_vreg(RegClass::S, 1).reg);
        }
        self.f.whole(self.f.preloads.workgroup_id[dim].expect("just set"))
    }
    /// The id from the trap registers: x in ttmp9, y and z the halves of ttmp7 (RDNA4 manual, 3.5).
    fn architected_workgroup_id(&mut self, dim: usize) -> Part {
        let d = self.s(1);
        let (op, reg, by): (Op, u16, &[Opnd]) = match dim {
            0 => (op::S_MOV_B32, 9, &[]),
            1 => (op::S_AND_B32, 7, &[Opnd::Imm(0xffff)]),
            _ => (op::S_LSHR_B32, 7, &[Opnd::Imm(16)]),
        };
        let mut srcs = vec![Opnd::P(Reg::ttmp(reg).into())];
        srcs.extend_from_slice(by);
        self.emit(op, &[d.into()], &srcs);
        d
    }
    fn kernarg(&mut self) -> Part {
        if self.f.preloads.kernarg.is_none() {
            self.f.preloads.kernarg = Some(self.f.new_vreg(RegClass::S, 2).reg);
        }
        self.f.whole(self.f.preloads.kernarg.expect("just set"))
    }
    /// A buffer of `bytes` bytes whose address is the 64-bit kernel argument number `arg`.
    pub fn buffer_arg(&mut self, arg: u32, bytes: u32) -> Buffer {
        let base = self.kernarg();
        let desc = self.s(4);
        self.f.kernarg_bytes = self.f.kernarg_bytes.max(arg * 8 + 8);
        self.scalar_load_into(desc.slice(0, 2), base, arg * 8);
        self.copy_into(desc.dword(2), bytes);
        self.copy_into(desc.dword(3), self.f.target.info().raw_buffer_word3);
        Buffer { desc, memory: Memory::Arg(arg.min(255) as u8) }
    }
    /// The 64-bit address in kernel argument number `arg`.
    pub fn pointer_arg(&mut self, arg: u32) -> Part {
        let base = self.kernarg();
        let p = self.s(2);
        self.f.kernarg_bytes = self.f.kernarg_bytes.max(arg * 8 + 8);
        self.scalar_load_into(p, base, arg * 8);
        p
    }
    /// The low 32 bits of kernel argument number `arg`.
    pub fn number_arg(&mut self, arg: u32) -> Part {
        let base = self.kernarg();
        let p = self.s(1);
        self.f.kernarg_bytes = self.f.kernarg_bytes.max(arg * 8 + 8);
        self.scalar_load_into(p, base, arg * 8);
        p
    }
    /// Barrier of the workgroup. A single wave needs none: its accesses to LDS are done in order.
    pub fn barrier(&mut self) {
        if self.f.workgroup_size > self.wave_size() {
            self.emit(Gen::Barrier.of(Type::B32), &[], &[]);
        }
    }

    /// Runs `body` with a scalar counter 0, `step`, ... while it is below `limit`, at least once.
    pub fn loop_while(&mut self, name: &str, limit: impl Into<Opnd>, step: u32, body: impl FnOnce(&mut Builder, Part)) {
        self.counted_loop(name, limit, step, Pipeline::Off, false, body);
    }
    /// A loop node: `body` with a scalar counter 0, `step`, ... while it is below `limit`, at least once.
    pub fn counted_loop(
        &mut self,
        name: &str,
        limit: impl Into<Opnd>,
        step: u32,
        pipeline: Pipeline,
        overrun: bool,
        body: impl FnOnce(&mut Builder, Part),
    ) {
        let open = self.begin_loop(name);
        body(self, open.counter);
        self.end_loop(open, limit, step, pipeline, overrun);
    }
    /// Begins the body of a loop, which [`Builder::end_loop`] ends.
    pub fn begin_loop(&mut self, name: &str) -> OpenLoop {
        let counter = self.scalar(0);
        self.block(name);
        OpenLoop { counter, header: BlockId(self.f.blocks.len() as u32 - 1) }
    }
    /// Ends the body of a loop and goes on behind it.
    pub fn end_loop(&mut self, open: OpenLoop, limit: impl Into<Opnd>, step: u32, pipeline: Pipeline, overrun: bool) {
        self.stage = 0;
        let latch = BlockId(self.f.blocks.len() as u32 - 1);
        let (limit, counter, header) = (limit.into(), open.counter.reg, open.header);
        let (carried, in_turns) = (Vec::new(), false);
        self.f.loops.push(Loop { header, latch, counter, step, limit, carried, pipeline, overrun, in_turns });
        self.block("after");
    }
    /// The rounds of the loop that has just ended take two buffers in turn, and moving addresses from one to the other takes time of what it
    /// multiplies.
    pub fn take_turns(&mut self) {
        if let Some(l) = self.f.loops.last_mut() {
            l.in_turns = true;
        }
    }
    /// Runs `body` until the mask that it gives is empty: while any lane needs another round.
    pub fn loop_while_any(&mut self, name: &str, body: impl FnOnce(&mut Builder) -> Part) {
        let head = self.open_any(name);
        let mask = body(self);
        self.close_any(head, mask);
    }
    /// Runs `body`, which looks at memory, until the mask that it gives is empty: while a lane waits for what others leave there. Between two looks the wave sleeps
    /// ([`SLEEP`]).
    pub fn wait_while_any(&mut self, name: &str, body: impl FnOnce(&mut Builder) -> Part) {
        let (head, there) = (self.block(name), self.label());
        let mask = body(self);
        self.branch_if_none(mask, there, "missing");
        self.emit(op::S_SLEEP, &[], &[SLEEP.into()]);
        self.emit(op::S_BRANCH, &[], &[Opnd::Block(head)]);
        self.place(there, "there");
    }
    /// Begins a loop that [`Builder::close_any`] ends.
    pub fn open_any(&mut self, name: &str) -> BlockId {
        self.block(name)
    }
    /// Goes back to where a loop began while the mask is not empty.
    pub fn close_any(&mut self, head: BlockId, mask: Part) {
        self.branch_by_mask(mask, op::S_CBRANCH_SCC1, head);
        self.block("after");
    }
    /// Branches to `to` when the mask is empty; continues in a new block.
    pub fn branch_if_none(&mut self, mask: Part, to: BlockId, name: &str) {
        self.branch_by_mask(mask, op::S_CBRANCH_SCC0, to);
        self.block(name);
    }
    /// The scalar condition code tells whether a mask has a bit set.
    fn branch_by_mask(&mut self, mask: Part, branch: Op, to: BlockId) {
        let (any, op) = (self.mask(), if mask.len == 2 { op::S_OR_B64 } else { op::S_OR_B32 });
        self.emit(op, &[any.into()], &[mask.into(), mask.into()]);
        self.emit(branch, &[], &[Opnd::Block(to)]);
    }
    /// Branches to `to` when scalar `a < b`, unsigned; continues in a new block.
    pub fn branch_lt(&mut self, a: impl Into<Opnd>, b: impl Into<Opnd>, to: BlockId) {
        self.emit(op::S_CMP_LT_U32, &[], &[a.into(), b.into()]);
        self.emit(op::S_CBRANCH_SCC1, &[], &[Opnd::Block(to)]);
        self.block("next");
    }

    /// Ends the program and gives out the function.
    pub fn finish(mut self) -> Function {
        self.emit(op::S_ENDPGM, &[], &[0u32.into()]);
        let places = &self.places;
        for block in &mut self.f.blocks {
            for inst in &mut block.insts {
                for s in inst.srcs.iter_mut() {
                    if let Opnd::Block(b) = s {
                        *b = BlockId(places[b.0 as usize].expect("every label that is branched to is placed"));
                    }
                }
            }
        }
        if !self.f.loops.is_empty() {
            let live = Liveness::of(&self.f);
            let carried: Vec<_> = self.f.loops.iter().map(|l| carried(&self.f, &live, l)).collect();
            self.f.loops.iter_mut().zip(carried).for_each(|(l, c)| l.carried = c);
        }
        self.f
    }
}

/// What a destination of a target instruction holds, as far as its row says so and a value of the type fills it.
fn element_of(slot: &barewave_isa::Slot) -> Type {
    use barewave_isa::Type as Row;
    let ty = match slot.ty {
        Row::F16 => Type::F16,
        Row::Bf16 => Type::Bf16,
        Row::F32 => Type::F32,
        Row::F64 => Type::F64,
        Row::I16 => Type::I16,
        Row::U16 => Type::U16,
        Row::I32 => Type::I32,
        Row::U32 => Type::U32,
        Row::I64 => Type::I64,
        Row::U64 => Type::U64,
        _ => Type::B32,
    };
    if ty.dwords() == slot.dwords() { ty } else { Type::B32 }
}

impl From<VReg> for u32 {
    fn from(v: VReg) -> u32 {
        v.0
    }
}
