//! Kernels one behind the other in one launch: its workgroups are those of the first kernel, then those of the next, and so on, perhaps in several rounds.
//!
//! ```text
//! number = workgroup id x
//! round = number / workgroups of a round
//! number -= round * workgroups of a round, arguments += round * bytes of a round's
//! if number >= first of the last kernel: that one's code
//! ...
//! the first kernel's code
//! ```
//! Each kernel finds its own workgroup ids, made of the number behind its first one, and its own arguments, which follow those of the kernels before it; those of a round
//! follow those of the round before. LDS is as large as the largest needs it. What makes them wait for each other is theirs.

use super::{Block, BlockId, Function, Gen, Generic, MInst, Opnd, Part, Preloads, RegClass, Type, VReg};
use barewave_isa::{Reg, op};

/// A kernel of several, its workgroups in x, y, z, and how many arguments it has.
pub struct InChain {
    /// Its code, which ends where its workgroups do.
    pub function: Function,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Arguments of 8 bytes.
    pub args: u32,
}

impl Function {
    /// One kernel of several for workgroups of the same size, for a grid of one dimension that has as many workgroups for each round; `None` where they cannot be one.
    pub fn chained(parts: Vec<InChain>) -> Option<Function> {
        let head = &parts.first()?.function;
        let alike = |p: &InChain| {
            let f = &p.function;
            (f.target, f.workgroup_size) == (head.target, head.workgroup_size)
                && f.scratch_bytes == 0
                && f.preloads.scratch.is_none()
        };
        if !parts.iter().all(alike) {
            return None;
        }
        let mut all = Function {
            name: head.name.clone(),
            comment: String::new(),
            target: head.target,
            vregs: Vec::new(),
            blocks: Vec::new(),
            loops: Vec::new(),
            preloads: Preloads::default(),
            lds_bytes: 0,
            kernarg_bytes: 0,
            workgroup_size: head.workgroup_size,
            workgroups: None,
            scratch_bytes: 0,
        };
        let [of_all, number] = [(); 2].map(|()| all.new_vreg(RegClass::S, 1));
        let [args_of_all, kernarg] = [(); 2].map(|()| all.new_vreg(RegClass::S, 2));
        let item = all.new_vreg(RegClass::V, 1);
        all.preloads = Preloads { kernarg: Some(args_of_all.reg), workitem_id: Some(item.reg), ..Preloads::default() };
        let mut which = Vec::new();
        if all.target.info().architected_sgprs {
            which.push(MInst::new(op::S_MOV_B32, &[of_all.into()], &[Opnd::P(Reg::ttmp(9).into())]));
        } else {
            all.preloads.workgroup_id[0] = Some(of_all.reg);
        }
        let args: u32 = parts.iter().map(|p| p.args).sum();
        let of_round = parts.iter().fold(0u32, |n, p| n.saturating_add(p.grid.iter().product()));
        which.extend(all.find_round(of_round, args * 8, (of_all, args_of_all), (number, kernarg)));
        let firsts: Vec<u32> = parts
            .iter()
            .scan(0, |next: &mut u32, p| {
                let first = *next;
                *next = next.saturating_add(p.grid.iter().product());
                Some(first)
            })
            .collect();
        // A block asks for each kernel but the first one, the last one at first.
        let asking = parts.len() - 1;
        let begins: Vec<usize> = parts
            .iter()
            .scan(asking, |next, p| {
                let begin = *next;
                *next += p.function.blocks.len();
                Some(begin)
            })
            .collect();
        for (n, (first, begin)) in firsts.iter().zip(&begins).enumerate().skip(1).rev() {
            let to = Opnd::Block(BlockId(*begin as u32));
            which.push(MInst::new(op::S_CMP_LT_U32, &[], &[(first - 1).into(), number.into()]));
            which.push(MInst::new(op::S_CBRANCH_SCC1, &[], &[to]));
            all.blocks.push(Block { name: format!("ask_{n}"), insts: std::mem::take(&mut which), ..Block::default() });
        }
        let mut args = 0;
        for (n, (part, first)) in parts.into_iter().zip(firsts).enumerate() {
            let comment = &part.function.comment;
            if !all.comment.is_empty() && !comment.is_empty() {
                all.comment.push_str("; ");
            }
            all.comment.push_str(comment);
            all.lds_bytes = all.lds_bytes.max(part.function.lds_bytes);
            let own_args = part.args;
            // A chain of one has nobody to ask for.
            let before = std::mem::take(&mut which);
            all.take(n, part, (first, args * 8), (number, kernarg, item), before);
            args += own_args;
        }
        all.kernarg_bytes = args * 8;
        Some(all)
    }

    /// Finds a workgroup's number in its round, and where the round's arguments are: `to` of `from`.
    fn find_round(&mut self, workgroups: u32, bytes: u32, from: (Part, Part), to: (Part, Part)) -> Vec<MInst> {
        let [round, whole, ahead] = [(); 3].map(|()| self.new_vreg(RegClass::S, 1));
        let generic = |g: Generic, to: Part, srcs: [Opnd; 2]| MInst::new(g, &[to.into()], &srcs);
        let add = |op, n: u8, ahead: Opnd| MInst::new(op, &[to.1.dword(n).into()], &[from.1.dword(n).into(), ahead]);
        vec![
            generic(Gen::Div.of(Type::U32), round, [from.0.into(), workgroups.into()]),
            generic(Gen::Mul.of(Type::I32), whole, [round.into(), workgroups.into()]),
            generic(Gen::Sub.of(Type::I32), to.0, [from.0.into(), whole.into()]),
            generic(Gen::Mul.of(Type::I32), ahead, [round.into(), bytes.into()]),
            add(op::S_ADD_U32, 0, ahead.into()),
            add(op::S_ADDC_U32, 1, 0u32.into()),
        ]
    }

    /// Appends a kernel whose first workgroup is `first` and whose arguments begin at a byte. `before` stands in front of it.
    fn take(
        &mut self,
        n: usize,
        part: InChain,
        (first, byte): (u32, u32),
        (number, kernarg, item): (Part, Part, Part),
        before: Vec<MInst>,
    ) {
        let InChain { function: f, grid, .. } = part;
        let (regs, blocks) = (self.vregs.len() as u32, self.blocks.len() as u32);
        self.vregs.extend(&f.vregs);
        let own_item = f.preloads.workitem_id;
        let reg = |v: VReg| if Some(v) == own_item { item.reg } else { VReg(v.0 + regs) };
        let operand = |o: &mut Opnd| match o {
            Opnd::V(p) => p.reg = reg(p.reg),
            Opnd::Block(b) => b.0 += blocks,
            _ => {}
        };
        // Its ids and where its arguments are.
        let mut begin = before;
        let [x, y, z] = [(); 3].map(|()| self.new_vreg(RegClass::S, 1));
        let mut generic = |f: &mut Function, to: Option<Part>, g: Generic, srcs: &[Opnd]| {
            let to = to.unwrap_or_else(|| f.new_vreg(RegClass::S, 1));
            begin.push(MInst::new(g, &[to.into()], srcs));
            to
        };
        let own = generic(self, None, Gen::Sub.of(Type::I32), &[number.into(), first.into()]);
        let (mut left, copy) = (own, Gen::Copy.of(Type::B32));
        for (to, of) in [(x, grid[0]), (y, grid[1])] {
            if of == 1 {
                generic(self, Some(to), copy, &[0u32.into()]);
                continue;
            }
            let over = generic(self, None, Gen::Div.of(Type::U32), &[left.into(), of.into()]);
            let whole = generic(self, None, Gen::Mul.of(Type::I32), &[over.into(), of.into()]);
            generic(self, Some(to), Gen::Sub.of(Type::I32), &[left.into(), whole.into()]);
            left = over;
        }
        generic(self, Some(z), copy, &[left.into()]);
        for (dim, from) in [x, y, z].into_iter().enumerate() {
            if let Some(to) = f.preloads.workgroup_id[dim] {
                let to = Part { reg: reg(to), first: 0, len: 1 };
                generic(self, Some(to), copy, &[from.into()]);
            }
        }
        if let Some(to) = f.preloads.kernarg {
            let to = Part { reg: reg(to), first: 0, len: 2 };
            let [low, high] = [0, 1].map(|i| (Opnd::from(to.dword(i)), Opnd::from(kernarg.dword(i))));
            begin.push(MInst::new(op::S_ADD_U32, &[low.0], &[low.1, byte.into()]));
            begin.push(MInst::new(op::S_ADDC_U32, &[high.0], &[high.1, 0u32.into()]));
        }
        let id = |i: &MInst| {
            let reads = |r: u16| i.srcs.contains(&Opnd::P(Reg::ttmp(r).into()));
            match i.op() {
                Some(op::S_MOV_B32) if reads(9) => Some(x),
                Some(op::S_AND_B32) if reads(7) => Some(y),
                Some(op::S_LSHR_B32) if reads(7) => Some(z),
                _ => None,
            }
        };
        for mut block in f.blocks {
            for i in &mut block.insts {
                i.dsts.iter_mut().chain(&mut i.srcs).for_each(operand);
                if let Some(id) = id(i) {
                    *i = MInst { stage: i.stage, group: i.group, ..MInst::new(copy, &i.dsts, &[id.into()]) };
                }
            }
            let first: Vec<MInst> = std::mem::take(&mut begin);
            block.insts.splice(0..0, first);
            block.name = format!("{}_of_{n}", block.name);
            self.blocks.push(block);
        }
        for mut l in f.loops {
            (l.header.0, l.latch.0) = (l.header.0 + blocks, l.latch.0 + blocks);
            l.counter = reg(l.counter);
            operand(&mut l.limit);
            l.carried.iter_mut().for_each(|v| *v = reg(*v));
            self.loops.push(l);
        }
    }
}
